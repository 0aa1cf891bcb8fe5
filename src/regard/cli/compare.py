"""regard compare"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.api import ComparisonResult

Files = Annotated[list[Path], typer.Argument(help="Data files or folders.", metavar="FILE")]
Task = Annotated[
    str, typer.Option(help="next, target, label, labels, value, position-label; else guessed.")
]
Models = Annotated[str, typer.Option(help="Which rows, as in bigram,lstm,transformer.")]
Minutes = Annotated[float, typer.Option(help="Time for all rows together.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each row, with other random numbers.")]
Folds = Annotated[int, typer.Option(help="Cross-validate labelled records; -1: leave one out.")]
Scaling = Annotated[bool, typer.Option("--scaling", help="Also on fractions of the data.")]
Out = Annotated[Path | None, typer.Option(help="Folder; default runs/NAME-compare.")]
Valid = Annotated[list[Path] | None, typer.Option(help="Validation file; otherwise held out.")]
Test = Annotated[list[Path] | None, typer.Option(help="Test file; otherwise held out.")]
Column = Annotated[str, typer.Option(help="The column of a table to read; of pairs, the source.")]
Target = Annotated[str, typer.Option(help="The column of targets: texts, labels or values.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Recipe key for all rows.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def command(
    files: Files,
    task: Task = "",
    models: Models = "",
    minutes: Minutes = 10.0,
    seeds: Seeds = 1,
    folds: Folds = 0,
    scaling: Scaling = False,
    out: Out = None,
    valid: Valid = None,
    test: Test = None,
    input: Column = "",
    target: Target = "",
    set_: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every model on your data, in one honest table.

    Example: regard compare names.txt --minutes 5 --models bigram,lstm,transformer

    Translators, by BLEU: regard compare train.en train.de --minutes 20

    Labels and values: regard compare questions.tsv --input question --target kind --folds 10

    The same split, the same symbols, each row in its own process; neural rows of equal size share
    the time. Rows that the minutes do not hold are left out, and named. The same command goes on
    where it was stopped.
    """
    began = time.monotonic()
    from regard.api import compare
    from regard.cli.output import print_json, print_strip, print_table
    from regard.training.progress import Reporter

    data = {"input": input or None, "target": target or None, **given(valid=valid, test=test)}
    try:
        found = compare(
            files,
            models=[name.strip() for name in models.split(",") if name.strip()],
            minutes=minutes,
            seeds=seeds,
            folds=folds,
            scaling=scaling,
            out=out,
            assignments=[*(set_ or []), *([f'task="{task}"'] if task else [])],
            data=data,
            reporter=Reporter(quiet=quiet or json),
            began=began,
        )
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        print_json(found.comparison.to_json())
        return
    columns, rows = found.comparison.cells()
    print_table(columns, rows, title=title(found))
    columns, rows = found.comparison.target_cells()
    if columns:
        print()
        print_table(columns, rows)
    print(f"\n{found.comparison.verdict}")
    if found.comparison.left_out:
        print(found.comparison.shortened)
    if found.strip is not None:
        print("\nbits of each symbol of a held-out text (0 to 9, + is more):")
        print_strip(*found.strip)
    print(f"\n{found.folder}/compare.html, compare.md, compare.json")


def title(found: ComparisonResult) -> str:
    """What was measured on."""
    return f"{found.comparison.material}, 95% intervals"


def given(**sides: list[Path] | None) -> dict[str, Any]:
    """Paths as a recipe has them."""
    return {side: [str(path.resolve()) for path in paths or []] for side, paths in sides.items()}
