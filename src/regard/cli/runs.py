"""regard runs"""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="Where to look, also in the folders in it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(folder: Folder = Path("runs"), json: Json = False) -> None:
    """List runs and comparisons, the newest first.

    With its data, the metric by which models are ranked and its 95% interval on the test split. A
    comparison is listed as its best row; of the folder of a comparison, all rows are.

    Example: regard runs
    """
    from regard.console import print_json, print_table
    from regard.errors import human_size
    from regard.run_folders import find

    entries = find(folder)
    if json:
        print_json({"runs": [entry.to_json() for entry in entries]})
        return
    if not entries:
        print(f"no runs in {folder}; `regard train FILE` makes one")
        return
    rows = [
        [
            str(entry.path),
            entry.task,
            entry.data,
            entry.model,
            entry.result,
            f"{entry.date:%d %b %H:%M}",
            human_size(entry.bytes),
        ]
        for entry in entries
    ]
    columns = ["run", "task", "data", "model", "metric", "date", "size"]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if not sys.stdout.isatty() or sum(widths) + 2 * len(widths) <= get_terminal_size().columns:
        print_table(columns, rows)
        return
    for path, task, data, model, metric, date, size in rows:  # two lines for each
        print(f"{path:<{widths[0]}}  {date}  {size}")
        print(f"  {task} of {data or 'no data'}: {model}, {metric}")
