"""regard demo"""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

MINUTES = {"ladder": 1.2, "translate": 2.0, "digits": 1.5, "shapes": 1.4, "series": 1.5}


def command(
    name: Annotated[
        str, typer.Argument(help="Which: ladder, translate, digits, shapes or series.")
    ] = "ladder",
    out: Annotated[
        Path | None,
        typer.Option(help="Where the run folders go, runs/demo; numbered when taken."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time for all models that train; about two by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """What regard does, on bundled data, in minutes.

    ladder: names, the whole climb from counting to attention, in one table and one report.
    translate: dates, numbers and money into German; what attention is for.
    digits: handwritten digits as patches, and where attention looks.
    shapes: bodies in space as clouds of points, turned in any way.
    series: an hourly load, forecast from counting to attention.

    Example: regard demo translate --minutes 1
    """
    from regard.errors import UsageError, did_you_mean

    if name not in MINUTES:
        raise UsageError(f"unknown demonstration {name!r}; {did_you_mean(name, list(MINUTES))}")
    from regard import demos
    from regard.console import print_json
    from regard.run_folders import RUNS, mark_latest

    run, folder = {
        "ladder": (demos.demo, "demo"),
        "translate": (demos.demo_translate, "demo-translate"),
        "digits": (demos.demo_digits, "demo-digits"),
        "shapes": (demos.demo_shapes, "demo-shapes"),
        "series": (demos.demo_series, "demo-series"),
    }[name]
    with redirect_stdout(sys.stderr) if json else nullcontext():
        made = run(out or Path(RUNS) / folder, MINUTES[name] if minutes is None else minutes)
    mark_latest(made)
    if json:
        print_json({"folder": str(made), "pages": [str(path) for path in made.glob("*.html")]})
