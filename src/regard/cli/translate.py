"""regard translate"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from regard.interpreter import Translation

Run = Annotated[Path, typer.Argument(help="A run folder of task target.")]
File = Annotated[
    Path, typer.Argument(help="Lines to translate, or pictures; - for standard input.")
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
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    int8: Int8 = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Translate line by line.

    Line in, line out, order kept, streaming; an empty line stays empty.

    Example: regard translate runs/train-transformer < some.en > some.de

    Of pictures, lines are their paths, or FILE holds them: regard translate runs/emoji cat.png

    Several runs as one: regard translate a --with b --with c. Of many translations the one most
    like all of them: regard translate a --strategy consensus

    --n-best prints the number of the line, a tab, the score, a tab and the text; best first.
    """
    from regard.api import load_interpreter
    from regard.cli.output import print_json
    from regard.errors import UsageError

    if n_best > 1 and strategy != "beam":
        raise UsageError(f"--n-best is for --strategy beam, got {strategy}")
    interpreter = load_interpreter(run, *(others or []), int8=int8, device=device)
    chosen = strategy_of(
        strategy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beams=beams,
        length_penalty=length_penalty,
        n_best=n_best,
        text=interpreter.tokenizer.decode,
    )
    chunks = interpreter.records(None if str(file) == "-" else file)
    stream = interpreter.stream(chunks, chosen, max_new=max_new, batch_size=batch_size)
    found = told(stream, interpreter.room)
    if json:
        print_json({"sequences": [one.to_json() for several in found for one in several]})
        return
    with counting(file) as count:
        for number, several in enumerate(found, start=1):
            for one in several:
                print(line_of(one, number if n_best > 1 else 0, scores), flush=True)
            count(several[0].input)


def told(stream: Iterator[list[Translation]], room: int) -> Iterator[list[Translation]]:
    """The translations, with a warning for each that is not of the whole line."""
    for number, several in enumerate(stream, start=1):
        if several[0].cut:
            warn_of_length(f"line {number}", several[0].cut + room, room, "translated")
        if several[0].dead_end:
            warn(f"the translation of line {number} ended where all is forbidden")
        yield several


def warn_of_length(which: str, tokens: int, room: int, verb: str = "read") -> None:
    """A source that is longer than what the model has learned of."""
    warn(f"{which} has {tokens:,} tokens; only the first {room:,} are {verb}")


def warn(words: str) -> None:
    """A remark, beside the result."""
    print(f"warning: {one_line(words)}", file=sys.stderr)


def line_of(translation: Translation, number: int, scores: bool) -> str:
    """A translation on one line, whatever the model has made; before it the number of its source,
    if that is not 0, and its score, with any number or where scores are asked for.
    """
    before = f"{number}\t" if number else ""
    before += f"{translation.score:.6f}\t" if scores or number else ""
    return before + " ".join(translation.text.replace("\r", "\n").split("\n"))


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
