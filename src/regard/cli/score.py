"""regard score"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Format, Input, RunFolder, Strict
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.data.inputs import InputReader, Item
    from regard.evaluation.language_modeling import ScoredRecord
    from regard.pipelines import Pipeline
    from regard.pipelines.masked_predictor import MaskedPredictor

    Row = tuple[Item, str, ScoredRecord]  # a record, the note on it, its log-probabilities


File = Annotated[
    Path,
    typer.Argument(help="Records: FASTA, CSV, TSV, JSONL, lines, or - for standard input."),
]
Targets = Annotated[
    Path | None,
    typer.Argument(help="For a translator: the targets of the sources in FILE."),
]
Target = Annotated[
    str, typer.Option(help="The column that has the targets; by default the run's own.")
]
Masked = Annotated[
    bool, typer.Option("--masked", help="Masked models: each token given all others.")
]
Variants = Annotated[
    str,
    typer.Option(help="Masked models: substitutions to score, A12G,M1V:K3R; all; or their column."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, symbol by symbol.")]


def command(
    run: RunFolder,
    file: File,
    targets: Targets = None,
    input: Input = "",
    target: Target = "",
    format: Format = "auto",
    masked: Masked = False,
    variants: Variants = "",
    strict: Strict = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The log-probability of each record, or of each target given its source.

    Files are read as in training, from the columns that the run was trained on. A row for each
    record, order kept, streaming.

    Example: regard score runs/names others.txt | sort -n | head

    Masked models give the pseudo-log-likelihood, the sum over tokens that are masked one at a time:
    regard score runs/proteins new.fasta --masked

    The effect of variants such as A12G or M1V:K3R on each record of a file, or on a sequence, in
    nats; above 0 the model prefers it: regard score runs/proteins new.fasta --masked --variants all

    Prints the total in nats, a tab, the id of the record (its text where it has no id), a tab and a
    note: whether it has unknown symbols, is empty or damaged. An impossible record scores -inf, a
    damaged one nan.
    """
    from regard.api import load
    from regard.cli.options import count_records, log, name_of, noted, rows_reporter
    from regard.console import plain, print_json

    pipeline = load(run, verb="score", device=device)
    check_masked(pipeline, masked, variants)
    reader = pipeline.reader.asked(input=input, target=target, format=format)
    if variants:
        return score_variants(pipeline, file, variants, reader, strict, json)
    files = [file] if targets is None else [file, targets]
    batches, notes = pipeline.score_files(files, reader, log)
    count = 0 if targets else count_records(pipeline, file, reader)
    rows = scored_rows(
        pipeline, noted(batches, notes, strict, rows_reporter(json), "scoring", count)
    )
    if json:
        print_json({"records": [document(*row) for row in rows]})
        return
    for item, note, record in rows:
        total = "nan" if item.note else f"{record.total:.6f}"
        name = name_of(item if item.named else item._replace(text=record.text, shown=""))
        print(f"{total}\t{name}\t{plain(note)}", flush=str(file) == "-")


def check_masked(pipeline: Pipeline, masked: bool, variants: str) -> None:
    """Raise a UsageError unless --masked is given for masked language models alone."""
    if masked and not pipeline.scores_masked:
        raise UsageError(
            f"--masked is for runs of `regard train FILE --task masked`, and {pipeline.run} is of "
            f"task {pipeline.task}: leave it out"
        )
    if pipeline.scores_masked and not masked:
        raise UsageError(
            f"{pipeline.run} is of task {pipeline.task}, which has no probability of a whole "
            "record: say --masked for that of each token given all others"
        )
    if variants and not masked:
        raise UsageError("--variants needs --masked, and a run of task masked")


def score_variants(
    predictor: MaskedPredictor,
    file: Path,
    variants: str,
    reader: InputReader,
    strict: bool,
    json: bool,
) -> None:
    """Print the effect of variants of each sequence: those of the option, or those of its row."""
    from regard.console import plain, print_json

    entries = []
    for item, note, named in variant_rows(predictor, file, variants, reader, strict):
        scores = [] if item.note else predictor.variant_effects(item.text, named)
        entries.append({"id": item.id, "variants": [s.to_json() for s in scores], "note": note})
        if not json:
            rows = [(f"{s.score:.6f}", s.variant) for s in scores] or [("nan", named)]
            for score, variant in rows:
                print(f"{score}\t{plain(variant)}\t{plain(item.id)}\t{plain(note)}")
    if json:
        print_json({"records": entries})


def variant_rows(
    predictor: MaskedPredictor, file: Path, variants: str, reader: InputReader, strict: bool
) -> Iterator[tuple[Item, str, str]]:
    """Yield each sequence with the note on it and its variants."""
    from dataclasses import replace

    from regard.cli.options import count_records, log, noted, rows_reporter
    from regard.data.inputs import Item, RecordNotes
    from regard.evaluation.masked_tokens import ALL, SUBSTITUTION

    is_column = variants != ALL and SUBSTITUTION.match(variants) is None
    if str(file) != "-" and not file.exists() and str(file).replace("*", "").isalpha():
        items = [Item(str(file), "1")]
        yield items[0], RecordNotes(predictor.tokenizer).of(items)[0], variants
        return
    if is_column:
        reader = replace(reader, inputs=(next(iter(reader.inputs), ""), variants))
    batches, notes = predictor.score_files([file], reader, log)
    named: list[str] = []  # of each record: no texts to have notes on

    def sequences() -> Iterator[list[Item]]:
        for items in batches:
            named[:] = [item.second if is_column else variants for item in items]
            yield [item._replace(second="") for item in items]

    total = count_records(predictor, file, reader)
    for items, lines in noted(sequences(), notes, strict, rows_reporter(), "scoring", total):
        yield from zip(items, lines, list(named), strict=True)


def document(item: Item, note: str, record: ScoredRecord) -> dict[str, Any]:
    """Return an entry of --json."""
    entry = {"id": item.id} | record.to_json() | {"note": note}
    return entry | {"total": None} if item.note else entry


def scored_rows(pipeline: Any, batches: Iterable[tuple[list[Item], list[str]]]) -> Iterator[Row]:
    """Yield the records of batches with their scores, in order; damaged ones have none."""
    from regard.evaluation.language_modeling import RECORDS_AT_ONCE, ScoredRecord

    for items, lines in batches:
        for first in range(0, len(items), RECORDS_AT_ONCE):
            part = slice(first, first + RECORDS_AT_ONCE)
            scored = iter(pipeline.score_items([item for item in items[part] if not item.note]))
            for item, note in zip(items[part], lines[part], strict=True):
                yield item, note, ScoredRecord(item.text, [], []) if item.note else next(scored)
