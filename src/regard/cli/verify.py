"""regard verify"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import RunFolder


def command(
    run: RunFolder,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prove exactness on this very run, check by check.

    Example: regard verify runs/names
    """
    from regard.console import print_json, print_table
    from regard.verify import verify

    report = verify(run)
    if json:
        print_json(report.to_json())
    else:
        print_table(
            ["", "check", "detail"],
            [["ok" if c.ok else "FAIL", c.name, c.detail] for c in report.checks],
        )
    if not report.ok:
        raise typer.Exit(1)
