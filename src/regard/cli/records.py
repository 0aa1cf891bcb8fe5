"""What the verbs that read records of a file share: options, reading and notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import one_line

if TYPE_CHECKING:
    from regard.data.inputs import InputReader, Item, RecordNotes
    from regard.pipelines.pipeline import Pipeline

Input = Annotated[
    str, typer.Option(help="The column of a table to read; by default the run's own.")
]
Format = Annotated[str, typer.Option(help="auto, lines, csv, tsv, jsonl, fasta or smi.")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit with 1 if any record has a note."),
]


def log(line: str) -> None:
    """Print a line to standard error."""
    print(one_line(line), file=sys.stderr)


def read_records(
    pipeline: Pipeline, file: Path, reader: InputReader, *, paths: bool = False
) -> Iterator[list[Item]]:
    """Yield the records of a file, or of standard input (`-`), in batches.

    With `paths`, items that are no texts may be given by their paths on standard input.
    """
    path = None if str(file) == "-" else file
    if path is None and not paths:
        pipeline.source_tokenizer.check_pipe()
    return reader.records(path, pipeline.modality, pipeline.source_tokenizer, log)


def noted(
    batches: Iterable[list[Item]], notes: RecordNotes, strict: bool
) -> Iterator[tuple[list[Item], list[str]]]:
    """Yield batches of records with their notes, then print how many there are of each note; with
    `strict`, notes are an error.
    """
    for items in batches:
        yield items, notes.of(items)
    for line in notes.lines():
        log(f"note: {line}")
    if strict:
        notes.refuse()


def name_of(item: Item) -> str:
    """Return the id of a record or, if it has none, its text, for a line of output."""
    from regard.console import plain

    return plain(item.id if item.named else item.shown or item.text)
