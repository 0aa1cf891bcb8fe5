"""regard translate"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.records import Format, Input, Strict
from regard.cli.strategy import (
    Beams,
    Device,
    Int8,
    Others,
    Penalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    Way,
    strategy_of,
)
from regard.errors import one_line

if TYPE_CHECKING:
    from regard.data.inputs import Item
    from regard.pipelines.translator import Translation

    Row = tuple[Item, str, list[Translation]]  # a record, the note on it, its translations

WARNED = 20  # lines whose notes are printed one by one

Run = Annotated[Path, typer.Argument(help="A run folder of task target.")]
File = Annotated[
    Path, typer.Argument(help="Lines to translate, or a table, or pictures; - for standard input.")
]
NBest = Annotated[int, typer.Option(min=1, help="Translations of each line, from beams.")]
Scores = Annotated[bool, typer.Option("--scores", help="A score and a tab before each line.")]
MaxNew = Annotated[int, typer.Option(min=0, help="Most tokens of a translation; 0 as is fit.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Rows decoded together, beams counted.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: Run,
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

    Example: regard translate runs/train-transformer < some.en > some.de

    Of pictures, lines are their paths, or FILE holds them: regard translate runs/emoji cat.png

    Several runs as one: regard translate a --with b --with c. Of many translations the one most
    like all of them: regard translate a --strategy consensus

    --n-best prints the number of the line, a tab, the score, a tab and the text; best first.
    """
    from regard.api import load_translator
    from regard.cli.output import print_json
    from regard.cli.records import noted, read, reading_for
    from regard.data.inputs import RecordNotes
    from regard.errors import UsageError

    if n_best > 1 and strategy != "beam":
        raise UsageError(f"--n-best is for --strategy beam, got {strategy}")
    translator = load_translator(run, *(others or []), int8=int8, device=device)
    chosen = strategy_of(
        strategy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beams=beams,
        length_penalty=length_penalty,
        n_best=n_best,
        text=translator.tokenizer.decode,
    )
    reading = reading_for(run, input, format=format).first_text
    batches = read(run, file, translator.source_tokenizer, reading)
    notes = RecordNotes(translator.source_tokenizer, translator.context, empty=False)

    def found() -> Iterator[Row]:
        first = 0
        for items, words in noted(batches, notes, strict):
            made = translator.translate(
                [item.text for item in items],
                chosen,
                max_new=max_new,
                batch_size=batch_size,
                first=first,
                names=["" if item.note else item.shown or item.text for item in items],
            )
            first += len(items)
            yield from zip(items, words, made, strict=True)

    rows = told(found())
    if json:
        print_json(
            {"sequences": [document(i, n, one) for i, n, several in rows for one in several]}
        )
        return
    with counting(file) as count:
        for item, note, several in rows:
            for one in several:
                print(line_of(item, note, one, n_best > 1, scores), flush=True)
            count(several[0].input)


def document(item: Item, note: str, translation: Translation) -> dict[str, Any]:
    """An entry of --json."""
    return {"id": item.id} | translation.to_json() | {"note": note}


def told(stream: Iterable[Row]) -> Iterator[Row]:
    """The same, with a warning for each translation of a line that has a note or a dead end: lines
    have no column for it.
    """
    warned = 0
    for item, note, several in stream:
        if note and not item.named and warned < WARNED:
            warn(f"{place_of(item)}: {note}")
            warned += 1
            if warned == WARNED:
                warn("further notes are counted, and stand in --json")
        if several[0].dead_end:
            warn(f"the translation of {place_of(item)} ended where all is forbidden")
        yield item, note, several


def place_of(item: Item) -> str:
    """What a message calls a record."""
    return f"line {item.id}" if item.id.isdecimal() and not item.named else item.id


def warn(words: str) -> None:
    """A remark, beside the result."""
    print(f"warning: {one_line(words)}", file=sys.stderr)


def line_of(item: Item, note: str, one: Translation, several: bool, scores: bool) -> str:
    """A translation on one line, whatever the model has made. Before it the id of its source, if
    that is its own or there are `several`, and its score, with several or where scores are asked
    for; after it, of a source with an id of its own, the note.
    """
    from regard.cli.output import plain

    before = f"{plain(item.id)}\t" if several or item.named else ""
    before += f"{one.score:.6f}\t" if scores or several else ""
    text = " ".join(one.text.replace("\r", "\n").split("\n"))
    return f"{before}{text}\t{plain(note)}" if item.named else before + text


@contextmanager
def counting(file: Path) -> Iterator[Callable[[str], None]]:
    """Counts lines on a terminal that shows nothing else, with the time left where it is known."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal or sys.stdout.isatty():
        yield lambda text: None
        return
    shown = TextColumn("{task.fields[lines]:,} lines"), BarColumn(24), TimeRemainingColumn()
    with Progress(*shown, console=console, transient=True, redirect_stdout=False) as bar:
        task, lines = bar.add_task("translate", total=size_of(file), lines=0), 0

        def count(text: str) -> None:
            nonlocal lines
            lines += 1
            bar.update(task, advance=len(text.encode()) + 1, lines=lines)

        yield count


def size_of(file: Path) -> int | None:
    """Bytes to read, where that can be known."""
    status = os.fstat(sys.stdin.fileno()) if str(file) == "-" else file.stat()
    return status.st_size if stat.S_ISREG(status.st_mode) and file.suffix != ".gz" else None
