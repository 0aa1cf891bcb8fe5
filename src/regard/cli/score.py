"""regard score"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.records import Format, Input, Strict
from regard.cli.strategy import Device

if TYPE_CHECKING:
    from regard.api import Generator, Translator
    from regard.data.inputs import InputReader, Item
    from regard.evaluation.language_modeling import ScoredRecord

    Row = tuple[Item, str, ScoredRecord]  # a record, the note on it, what it costs


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
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

    Example: regard score runs/names-transformer names.txt | sort -n | head

    Prints the total in nats, a tab, the id of the record (its text where it has no id), a tab and a
    note: whether it has unknown symbols, is empty or damaged. An impossible record scores -inf, a
    damaged one nan.
    """
    from regard.api import Generator, load_sequence_model
    from regard.cli.output import plain, print_json
    from regard.cli.records import name_of, reading_for
    from regard.errors import UsageError

    found = load_sequence_model(run, device=device)
    reading = reading_for(run, input, target, format)
    if isinstance(found, Generator):
        if targets is not None or target:
            raise UsageError(f"{run} predicts the next symbol (task next): it scores no targets")
        rows = of_records(found, run, file, reading, strict)
    else:
        files = [file] if targets is None else [file, targets]
        rows = of_pairs(found, files, reading, strict)
    if json:
        print_json({"records": [document(*row) for row in rows]})
        return
    for item, note, record in rows:
        total = "nan" if item.note else f"{record.total:.6f}"
        name = name_of(item if item.named else item._replace(text=record.text, shown=""))
        print(f"{total}\t{name}\t{plain(note)}", flush=str(file) == "-")


def document(item: Item, note: str, record: ScoredRecord) -> dict[str, Any]:
    """An entry of --json."""
    found = {"id": item.id} | record.to_json() | {"note": note}
    return found | {"total": None} if item.note else found


def of_records(
    generator: Generator, run: Path, file: Path, reading: InputReader, strict: bool
) -> Iterator[Row]:
    """The records of a file, scored."""
    from regard.cli.records import noted, read
    from regard.data.inputs import RecordNotes
    from regard.errors import UserError
    from regard.evaluation.language_modeling import AT_ONCE, ScoredRecord, score

    if str(file) != "-" and (why := reading.running_text(file)):
        raise UserError(f"{file} is read as running text ({why}): regard evaluate measures that")
    notes = RecordNotes(generator.tokenizer)
    for items, words in noted(read(run, file, generator.tokenizer, reading), notes, strict):
        for first in range(0, len(items), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            texts = [item.text for item in items[some]]
            found = score(
                generator.model, generator.tokenizer, texts, constrain=generator.forbidden
            )
            for item, note, record in zip(items[some], words[some], found, strict=True):
                yield item, note, ScoredRecord(item.text, [], []) if item.note else record


def of_pairs(
    translator: Translator, files: list[Path], reading: InputReader, strict: bool
) -> Iterator[Row]:
    """The targets of pairs, scored."""
    from regard.cli.records import noted, say
    from regard.data.inputs import RecordNotes
    from regard.evaluation.eval_data import pair_items
    from regard.evaluation.language_modeling import AT_ONCE, ScoredRecord

    batches = pair_items(files, translator.source_tokenizer, reading, translator.side, say)
    notes = RecordNotes(translator.source_tokenizer, translator.context, translator.tokenizer)
    for items, words in noted(batches, notes, strict):
        for first in range(0, len(items), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            whole = [item for item in items[some] if not item.note]
            found = iter(translator.score([(item.text, item.second) for item in whole]))
            for item, note in zip(items[some], words[some], strict=True):
                yield item, note, ScoredRecord("", [], []) if item.note else next(found)
