"""regard score"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.strategy import Device

if TYPE_CHECKING:
    from regard.api import Interpreter, Predictor
    from regard.evaluate.scoring import ScoredRecord


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[
        Path, typer.Argument(help="Records to score, or - for standard input, a line each.")
    ],
    targets: Annotated[
        Path | None,
        typer.Argument(help="For a translator: the targets of the sources in FILE."),
    ] = None,
    input: Annotated[str, typer.Option(help="The column of a table to read.")] = "",
    target: Annotated[str, typer.Option(help="The column of a table that has the targets.")] = "",
    format: Annotated[str, typer.Option(help="auto, lines, csv, tsv or jsonl.")] = "auto",
    device: Device = "auto",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, symbol by symbol.")
    ] = False,
) -> None:
    """The log-probability of each record, or of each target given its source.

    Line in, line out, order kept, streaming.

    Example: regard score runs/names-transformer names.txt | sort -n | head

    Prints the total in nats, a tab and the record; an impossible record scores -inf.
    """
    from regard.api import Predictor, load_speaker
    from regard.cli.output import plain, print_json
    from regard.errors import UsageError

    found = load_speaker(run, device=device)
    if isinstance(found, Predictor):
        if targets is not None or target:
            raise UsageError(f"{run} predicts the next symbol (task next): it scores no targets")
        rows = of_records(found, file, format, input)
    else:
        files = [file] if targets is None else [file, targets]
        rows = of_pairs(found, files, format, (input, target))
    if json:
        print_json({"records": [row.to_json() for row in rows]})
        return
    for row in rows:
        print(f"{row.total:.6f}\t{plain(row.text)}", flush=str(file) == "-")


def of_records(
    predictor: Predictor, file: Path, format: str, column: str
) -> Iterator[ScoredRecord]:
    """The records of a file, scored."""
    from regard.evaluate.scoring import score, texts_of

    for texts in texts_of(file, format=format, column=column):
        yield from score(predictor.model, predictor.tokenizer, texts, constrain=predictor.forbidden)


def of_pairs(
    interpreter: Interpreter, files: list[Path], format: str, columns: tuple[str, str]
) -> Iterator[ScoredRecord]:
    """The targets of pairs, scored."""
    from regard.cli.translate import warn_of_length
    from regard.evaluate.material import reader_of
    from regard.evaluate.scoring import AT_ONCE

    own, side = interpreter.source_tokenizer, interpreter.side
    reader = reader_of(files, own, format=format, columns=columns, side=side)
    for chunk in reader.records():
        lengths = interpreter.source_tokenizer.encode_batch(list(chunk.sources))[1]
        for line, length in zip(chunk.lines, lengths, strict=True):
            if length > interpreter.room:
                warn_of_length(f"{files[0]}:{line}: the source", length, interpreter.room)
        pairs = list(zip(chunk.sources, chunk.texts, strict=True))
        for first in range(0, len(pairs), AT_ONCE):
            yield from interpreter.score(pairs[first : first + AT_ONCE])
