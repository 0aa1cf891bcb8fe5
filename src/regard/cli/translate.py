"""regard translate"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    Beams,
    Device,
    Format,
    Input,
    Int8,
    Others,
    Penalty,
    RunFolder,
    Sampling,
    Seed,
    Strict,
    Temperature,
    TopK,
    TopP,
    Way,
    count_records,
    noted,
    read_records,
    rows_reporter,
    strategy_of,
)
from regard.errors import UsageError, one_line

if TYPE_CHECKING:
    from regard.data.inputs import Item
    from regard.decoding import Strategy
    from regard.pipelines.translator import Translation, Translator

    Row = tuple[Item, str, list[Translation]]  # a record, the note on it, its translations

WARNED = 20  # lines whose notes are printed one by one

File = Annotated[
    Path, typer.Argument(help="Lines to translate, or a table, or images; - for standard input.")
]
NBest = Annotated[int, typer.Option(min=1, help="Translations of each line, from beams.")]
Scores = Annotated[bool, typer.Option("--scores", help="A score and a tab before each line.")]
MaxNew = Annotated[int, typer.Option(min=0, help="Most tokens of a translation; 0 as is fit.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Rows decoded together, beams counted.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: RunFolder,
    file: File = Path("-"),
    others: Others = None,
    strategy: Way = "beam",
    beams: Beams = None,
    length_penalty: Penalty = 1.0,
    n_best: NBest = 1,
    scores: Scores = False,
    max_new: MaxNew = 0,
    batch_size: BatchSize = 64,
    input: Input = "",
    format: Format = "auto",
    strict: Strict = False,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    int8: Int8 = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Translate line by line.

    Line in, line out, order kept, streaming; an empty line stays empty. Tables are read from the
    column that the run was trained on; records with ids print the id, a tab, the translation, a tab
    and a note: whether the source has unknown symbols, is truncated or damaged.

    Example: regard translate runs/train test.en

    Captions of images, given by their paths or in FILE: regard translate runs/pictures pictures.npz

    Several runs as one: regard translate runs/train test.en --ensemble runs/train-2

    Of many translations the one most like all: regard translate runs/train test.en --strategy mbr

    --n-best prints the number of the line, a tab, the score, a tab and the text; best first.
    """
    from regard.api import load
    from regard.data.inputs import RecordNotes

    if n_best > 1 and strategy != "beam":
        raise UsageError(f"--n-best is for --strategy beam, got {strategy}")
    translator = load(run, *(others or []), verb="translate", int8=int8, device=device)
    decoding = strategy_of(
        strategy,
        Sampling(temperature, top_k, top_p, seed),
        beams=beams,
        length_penalty=length_penalty,
        n_best=n_best,
        text=translator.tokenizer.decode,
    )
    reader = translator.reader.asked(input=input, format=format).first_text
    batches = read_records(translator, file, reader, paths=True)
    notes = RecordNotes(translator.source_tokenizer, translator.context, empty=False)
    total = count_records(translator, file, reader)
    noted_batches = noted(batches, notes, strict, rows_reporter(json), "translating", total)
    options = {"max_new": max_new, "batch_size": batch_size}
    rows = warn_of_notes(translations(translator, noted_batches, decoding, **options))
    if json:
        print_document(rows)
    else:
        print_lines(rows, n_best > 1, scores)


def translations(
    translator: Translator,
    batches: Iterable[tuple[list[Item], list[str]]],
    decoding: Strategy,
    **options: int,
) -> Iterator[Row]:
    """Yield records with their notes and translations, in order."""
    first = 0
    for items, lines in batches:
        names = ["" if item.note else item.shown or item.text for item in items]
        texts = [item.text for item in items]
        translated = translator.translate(texts, decoding, first=first, names=names, **options)
        first += len(items)
        yield from zip(items, lines, translated, strict=True)


def print_document(rows: Iterable[Row]) -> None:
    """Print all translations as one JSON document."""
    from regard.console import print_json

    entries = [
        {"id": item.id} | translation.to_json() | {"note": note}
        for item, note, candidates in rows
        for translation in candidates
    ]
    print_json({"sequences": entries})


def print_lines(rows: Iterable[Row], numbered: bool, scores: bool) -> None:
    """Print each translation on one line as soon as it is made."""
    for item, note, candidates in rows:
        for translation in candidates:
            print(format_line(item, note, translation, numbered, scores), flush=True)


def warn_of_notes(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, with a warning for each that has a note and no column for it, or that nothing
    could continue.
    """
    warned = 0
    for item, note, candidates in rows:
        name = f"line {item.id}" if item.id.isdecimal() and not item.named else item.id
        if note and not item.named and warned < WARNED:
            warn(f"{name}: {note}")
            warned += 1
            if warned == WARNED:
                warn("further notes are counted, and stand in --json")
        if candidates[0].dead_end:
            warn(f"the translation of {name} ended where all is forbidden")
        yield item, note, candidates


def warn(message: str) -> None:
    """Print a warning on stderr."""
    print(f"warning: {one_line(message)}", file=sys.stderr)


def format_line(
    item: Item, note: str, translation: Translation, numbered: bool, scores: bool
) -> str:
    """Return a translation as one line.

    Before it come the id of the source, if lines are `numbered` or records have ids, and the score,
    if lines are `numbered` or with `scores`; after it, for records with ids, the note.
    """
    from regard.console import plain

    before = f"{plain(item.id)}\t" if numbered or item.named else ""
    before += f"{translation.score:.6f}\t" if scores or numbered else ""
    text = " ".join(translation.text.replace("\r", "\n").split("\n"))
    return f"{before}{text}\t{plain(note)}" if item.named else before + text
