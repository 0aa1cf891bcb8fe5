"""regard lab"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.look.page import Table


def command(
    name: Annotated[str, typer.Argument(help="An experiment, or all; none lists them.")] = "",
    file: Annotated[Path | None, typer.Argument(help="Your data, where it takes some.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small form, in seconds.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the page and pictures.")] = Path("runs/lab"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """The lectures' claims as experiments.

    Each has a figure, a table and claims with their tolerances. A claim holds, fails, or the
    experiment is too small to tell, as --quick often is. `all` runs every one of them and writes
    index.html with all claims.

    Example: regard lab distance --quick

    With your own data, and all of them: regard lab dimensions text.txt · regard lab all --quick
    """
    from regard.cli.output import print_json
    from regard.lab.index import perform
    from regard.lab.result import Options, summary
    from regard.training.progress import Reporter

    if not name:
        _list(json)
        return
    reporter = Reporter(quiet=quiet)
    options = Options(quick=quick, seed=seed, file=file, reporter=reporter)
    if name == "all":
        from regard.lab.index import hang

        gallery = hang(options, out)
        if json:
            print_json(gallery.to_json())
        else:
            tables = [gallery.claims_table(), gallery.table()]
            _print(tables, summary(gallery.claims), gallery.written)
        return
    result = perform(name, options)
    written = result.write(out, name, reporter)
    if json:
        print_json(result.to_json(written))
    else:
        _print([*result.tables, result.claims_table()], summary(result.claims), written)


def _list(json: bool) -> None:
    from regard.cli.output import print_json, print_table
    from regard.lab.index import EXPERIMENTS

    if json:
        print_json({"experiments": {key: one.line for key, one in EXPERIMENTS.items()}})
        return
    rows = [[key, one.line, one.file] for key, one in EXPERIMENTS.items()]
    print_table(["experiment", "asks", "FILE, if you have one"], rows)


def _print(tables: Sequence[Table], counted: str, written: Sequence[Path]) -> None:
    from regard.cli.output import print_table

    for table in tables:
        shown = table.data()
        print_table(shown["columns"], shown["rows"], title=shown["title"])
        print()
    print(counted)
    print(", ".join(str(path) for path in written))
