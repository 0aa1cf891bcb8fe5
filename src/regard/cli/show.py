"""regard show"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import complete_runs

Run = Annotated[
    Path,
    typer.Argument(help="A run or the folder of a comparison.", autocompletion=complete_runs),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 28  # of a curve


def command(run: Run = Path("runs/latest"), json: Json = False) -> None:
    """Print what a run is, its metrics, and the curves of its training.

    Of a comparison, the table of its rows and the verdict.

    Example: regard show runs/latest
    """
    from regard.errors import UserError
    from regard.run_folders import is_comparison, is_run

    if is_comparison(run):
        show_comparison(run, json)
    elif is_run(run):
        show_run(run, json)
    else:
        what = "neither a run nor a comparison" if run.exists() else "no such folder"
        raise UserError(f"{run}: {what}; `regard runs` lists those that there are")


def show_run(run: Path, json: bool) -> None:
    """Print the card and the curves of a run."""
    from regard.console import print_json, print_metrics
    from regard.errors import human_size
    from regard.evaluation import from_document
    from regard.run_folders import (
        NOT_FINISHED,
        card,
        curves_of,
        describe,
        facts_of,
        metadata_of,
        next_verbs,
    )

    if json:
        print_json(card(run))
        return
    entry, metadata, curves = describe(run), metadata_of(run), curves_of(run)
    print(f"{entry.path}: {entry.model}, task {entry.task}, trained on {entry.data or 'no data'}")
    print(
        " · ".join([*facts_of(metadata), f"{entry.date:%d %b %Y %H:%M}", human_size(entry.bytes)])
    )
    if entry.state == NOT_FINISHED:
        print(f"{entry.state}: `regard train {run} --resume` goes on with it")
    elif entry.state:
        print(entry.state)
    splits = {name: from_document(one) for name, one in metadata.get("metrics", {}).items() if one}
    if splits:
        print()
        print_metrics(splits)
    print_curves(curves)
    for line in metadata.get("selection", {}).get("lines", ()):
        print(line)
    if verbs := next_verbs(entry):
        commands = [f"regard {verb.format(run=run)}" for verb in verbs[:3]]
        print(f"\nnext: {'  ·  '.join(commands)}")


def print_curves(curves: dict[str, list[Any]]) -> None:
    """Print each curve of several points as a line of bars."""
    shown = {title: points for title, points in curves.items() if len(points) > 1}
    if not shown:
        return
    first = next(iter(shown.values()))[0]
    print(f"\n{first.metric.replace('_', ' ')} by step, {first.step:,} to ", end="")
    print(f"{max(points[-1].step for points in shown.values()):,}")
    for title, points in shown.items():
        values = [point.value for point in points]
        words = f"{values[0]:.3g} → {values[-1]:.3g}"
        if title == "validation":
            best = min(points, key=lambda point: point.value)
            words += f", least {best.value:.3g} at step {best.step:,}"
        print(f"{title:<13} {bars(values)} {words}")


def bars(values: Sequence[float], width: int = WIDTH) -> str:
    """Return a curve as a line of bars, each the mean of as many values, between the least and the
    largest of all.
    """
    width = min(width, len(values))
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means).ljust(WIDTH)


def show_comparison(folder: Path, json: bool) -> None:
    """Print the rows and the verdict of a comparison."""
    from regard.console import print_json, print_table
    from regard.evaluation import from_document
    from regard.run_folders import COMPARISON, describe
    from regard.storage import StoredComparison, read_json

    document = read_json(folder / COMPARISON, StoredComparison)
    if json:
        print_json(document)
        return
    entry, name = describe(folder), document["ranked_by"]
    print(f"{folder}: comparison of {len(document['rows'])} models, task {entry.task}, ", end="")
    print(f"trained on {entry.data}, {document['split']} split\n")
    rows = [
        [
            f"{row['rank']}.",
            row["model"],
            str(from_document(row["metrics"])[name]),
            f"{row['parameters']:,}",
            f"{row['train_seconds']:,.0f} s",
        ]
        for row in document["rows"]
    ]
    print_table(["", "model", name.replace("_", " "), "parameters", "trained"], rows)
    print(f"\n{document['verdict']}")
    print(f"\nnext: regard show {folder / document['rows'][0]['model']}  ·  {folder}/compare.html")
