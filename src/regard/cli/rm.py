"""regard rm"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import complete_runs

Runs = Annotated[
    list[Path],
    typer.Argument(
        help="Runs, or folders of comparisons.", metavar="RUN", autocompletion=complete_runs
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(runs: Runs, yes: Yes = False, json: Json = False) -> None:
    """Remove runs or comparisons with all their files.

    Folders that hold anything else are refused.

    Example: regard rm runs/names --yes
    """
    from regard.console import print_json
    from regard.errors import UsageError, human_size
    from regard.run_folders import check_removable, describe, remove

    for run in runs:
        check_removable(run)
    if not yes and not sys.stdin.isatty():
        raise UsageError("regard rm asks before it removes, and this is no terminal: add --yes")
    removed, total = [], 0
    for run in runs:
        entry = describe(run)
        about = ", ".join(filter(None, (entry.model, entry.data, human_size(entry.bytes))))
        if not yes and not typer.confirm(f"remove {run} ({about})?", err=True):
            continue
        remove(run)
        removed.append(str(run))
        total += entry.bytes
    if json:
        print_json({"removed": removed, "bytes": total})
    else:
        print(f"removed {', '.join(removed) or 'nothing'}, {human_size(total)}")
