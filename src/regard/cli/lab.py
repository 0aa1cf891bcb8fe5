"""regard lab"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(help="An experiment; none lists them all.")] = "",
    file: Annotated[
        Path | None, typer.Argument(help="Your own file, for experiments that take one.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small form, in seconds.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the page and pictures.")] = Path("runs/lab"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """The lectures' claims as experiments.

    Each has a figure, a table and claims with their tolerances; one that fails is reported.

    Example: regard lab distance --quick

    On your own text: regard lab dimensions text.txt
    """
    from regard.cli.output import print_json, print_table
    from regard.lab.experiments import EXPERIMENTS, perform
    from regard.lab.result import Options
    from regard.train.progress import Reporter

    if not name:
        if json:
            print_json({"experiments": {key: one.line for key, one in EXPERIMENTS.items()}})
        else:
            print_table(["experiment", ""], [[key, one.line] for key, one in EXPERIMENTS.items()])
        return
    reporter = Reporter(quiet=quiet)
    result = perform(name, Options(quick=quick, seed=seed, file=file, reporter=reporter))
    written = result.write(out, name, reporter)
    if json:
        print_json(result.to_json(written))
        return
    for table in [*result.tables, result.claims_table()]:
        shown = table.data()
        print_table(shown["columns"], shown["rows"], title=shown["title"])
        print()
    print(", ".join(str(path) for path in written))
