"""regard demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAMES = ("ladder", "translate", "digits", "shapes")
MINUTES = {"ladder": 2.5, "translate": 2.0, "digits": 1.5, "shapes": 1.4}


def command(
    name: Annotated[
        str, typer.Argument(help="Which: ladder, translate, digits or shapes.")
    ] = "ladder",
    out: Annotated[
        Path | None,
        typer.Option(help="Where the run folders go, runs/demo; numbered when taken."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time for all models that train; about two by default.")
    ] = None,
) -> None:
    """What regard does, on bundled data, in minutes.

    ladder: names, the whole climb from counting to attention, in one table and one report.
    translate: dates, numbers and money into German; what attention is for.
    digits: handwritten digits as patches, and where attention looks (needs scikit-learn).
    shapes: bodies in space as clouds of points, turned in any way.

    Example: regard demo translate --minutes 1
    """
    from regard.errors import UsageError, did_you_mean

    if name not in NAMES:
        raise UsageError(f"unknown demonstration {name!r}; {did_you_mean(name, list(NAMES))}")
    time = MINUTES[name] if minutes is None else minutes
    if name == "ladder":
        from regard.demos import demo

        demo(out or Path("runs/demo"), time)
    elif name == "digits":
        from regard.demos import demo_digits

        demo_digits(out or Path("runs/demo-digits"), time)
    elif name == "shapes":
        from regard.demos import demo_shapes

        demo_shapes(out or Path("runs/demo-shapes"), time)
    else:
        from regard.demos import demo_translate

        demo_translate(out or Path("runs/demo-translate"), time)
