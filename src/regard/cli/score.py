"""regard score"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Format, Input, RunFolder, Strict

if TYPE_CHECKING:
    from regard.data.inputs import Item
    from regard.evaluation.language_modeling import ScoredRecord

    Row = tuple[Item, str, ScoredRecord]  # a record, the note on it, its log-probabilities


def command(
    run: RunFolder,
    file: Annotated[
        Path,
        typer.Argument(help="Records: FASTA, CSV, TSV, JSONL, lines, or - for standard input."),
    ],
    targets: Annotated[
        Path | None,
        typer.Argument(help="For a translator: the targets of the sources in FILE."),
    ] = None,
    input: Input = "",
    target: Annotated[
        str, typer.Option(help="The column that has the targets; by default the run's own.")
    ] = "",
    format: Format = "auto",
    strict: Strict = False,
    device: Device = "auto",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, symbol by symbol.")
    ] = False,
) -> None:
    """The log-probability of each record, or of each target given its source.

    Files are read as in training, from the columns that the run was trained on. A row for each
    record, order kept, streaming.

    Example: regard score runs/names others.txt | sort -n | head

    Prints the total in nats, a tab, the id of the record (its text where it has no id), a tab and a
    note: whether it has unknown symbols, is empty or damaged. An impossible record scores -inf, a
    damaged one nan.
    """
    from regard.api import load
    from regard.cli.options import count_records, log, name_of, noted, rows_reporter
    from regard.console import plain, print_json

    pipeline = load(run, verb="score", device=device)
    reader = pipeline.reader.asked(input=input, target=target, format=format)
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
