"""What verbs share that apply a run to the records of a file: options, reading, notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import one_line

if TYPE_CHECKING:
    from regard.data.inputs import InputReader, Item, RecordNotes
    from regard.tokenizers import Tokenizer

Input = Annotated[
    str, typer.Option(help="The column of a table to read; by default the run's own.")
]
Format = Annotated[str, typer.Option(help="auto, lines, csv, tsv, jsonl, fasta or smi.")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit with 1 if any record has a note."),
]


def say(words: str) -> None:
    """Print a remark beside the result."""
    print(one_line(words), file=sys.stderr)


def reading_for(run: Path, input: str = "", target: str = "", format: str = "auto") -> InputReader:
    """How files are read for a run: as its training files were, unless a user asks otherwise."""
    from regard.pipelines.loading import input_reader

    return input_reader(run).asked(input=input, target=target, format=format)


def read(run: Path, file: Path, tokenizer: Tokenizer, reading: InputReader) -> Iterator[list[Item]]:
    """The records of a file, or of standard input (`-`), some at a time."""
    from regard.pipelines.loading import data_metadata

    path = None if str(file) == "-" else file
    return reading.records(path, tokenizer, data_metadata(run), say)


def noted(
    batches: Iterable[list[Item]], notes: RecordNotes, strict: bool
) -> Iterator[tuple[list[Item], list[str]]]:
    """Batches of records and of their notes; at the end the counts of notes are printed, which
    `strict` makes an error.
    """
    for items in batches:
        yield items, notes.of(items)
    for line in notes.lines():
        say(f"note: {line}")
    if strict:
        notes.refuse()


def name_of(item: Item) -> str:
    """What stands for a record in a row of text: its own id or, where it has none, its text."""
    from regard.cli.output import plain

    return plain(item.id if item.named else item.shown or item.text)
