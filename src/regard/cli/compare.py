"""regard compare"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, TaskName, absolute, complete_models, extra_options, names_of

if TYPE_CHECKING:
    from regard.api import ComparisonResult

Files = Annotated[list[Path], typer.Argument(help="Data files or folders.", metavar="FILE")]
Models = Annotated[
    str,
    typer.Option(
        help="Which rows, as in bigram,lstm,transformer; otherwise all that suit the data.",
        autocompletion=complete_models,
    ),
]
Tokenizers = Annotated[
    str, typer.Option(help="Each model with each of them: characters,kmers:k=3,bpe.")
]
Minutes = Annotated[float, typer.Option(help="Time for all rows together.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each row, with other random numbers.")]
Folds = Annotated[int, typer.Option(help="Cross-validate labelled records; -1: leave one out.")]
Scaling = Annotated[bool, typer.Option("--scaling", help="Also on fractions of the data.")]
Out = Annotated[Path | None, typer.Option(help="Folder; default runs/NAME-compare.")]
Valid = Annotated[list[Path] | None, typer.Option(help="Validation file; otherwise held out.")]
Test = Annotated[list[Path] | None, typer.Option(help="Test file; otherwise held out.")]
Column = Annotated[str, typer.Option(help="The column of a table to read; of pairs, the source.")]
Target = Annotated[str, typer.Option(help="The column of targets, or several: y1,y2 or 'y*'.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Recipe key for all rows.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def command(
    context: typer.Context,
    files: Files,
    task: TaskName = "",
    models: Models = "",
    tokenizers: Tokenizers = "",
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
    device: Device = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every model on your data, in one honest table.

    Example: regard compare names.txt --minutes 5 --models bigram,lstm,transformer

    Translators, by BLEU: regard compare train.en train.de --minutes 20

    Tokens, per base: regard compare new.fa --models bigram --tokenizers nucleotides,kmers:k=3,bpe

    Labels and values: regard compare questions.tsv --target kind --folds 10

    The same split, the same symbols, each row in its own process; neural rows of equal size share
    the time. Rows that the minutes do not hold are left out, and named. The same command goes on
    where it was stopped.
    """
    began = time.monotonic()
    from regard.api import RowRequest, compare_rows
    from regard.console import print_json
    from regard.planning import plan_recipe
    from regard.run_folders import RUNS, mark_latest
    from regard.training.progress import Reporter

    assignments = [*(set_ or []), *([f"train.device={device}"] if device else [])]
    columns = {"input": input or None, "target": target or None, "folds": folds or None}
    held_out = {"valid": absolute(valid), "test": absolute(test)}
    tables: dict[str, Any] = {"task": {"name": task or None}, "data": columns | held_out}
    request = RowRequest(names_of(models), minutes, seeds, scaling, names_of(tokenizers))
    folder = out or Path(RUNS) / f"{files[0].stem}-compare"
    try:
        result = compare_rows(
            partial(plan_recipe, files, assignments=assignments),
            request,
            folder,
            tables=tables,
            options=extra_options(context.args),
            reporter=Reporter(quiet=quiet or json),
            began=began,
        )
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        mark_latest(folder)
    if json:
        print_json(result.comparison.to_json())
    else:
        print_result(result)


def print_result(result: ComparisonResult) -> None:
    """Print the tables and the verdict of a comparison, and where its files are."""
    from regard.console import print_strip, print_table

    comparison = result.comparison
    columns, rows = comparison.table()
    print_table(columns, rows, title=f"{comparison.data_description}, 95% intervals")
    columns, rows = comparison.target_table()
    if columns:
        print()
        print_table(columns, rows)
    print(f"\n{comparison.verdict}")
    if comparison.left_out:
        print(comparison.left_out_note)
    if result.strip is not None:
        print("\nbits of each symbol of a held-out text (0 to 9, + is more):")
        print_strip(*result.strip)
    print(f"\n{result.folder}/compare.html, compare.md, compare.json")
