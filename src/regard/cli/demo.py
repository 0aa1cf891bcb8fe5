"""regard demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[
        Path, typer.Option(help="Where the run folders go; numbered when taken.")
    ] = Path("runs/demo"),
    minutes: Annotated[float, typer.Option(help="Time for all models that train.")] = 2.0,
) -> None:
    """The whole ladder on bundled names, in one table and one report.

    From counting to attention: train, measure, sample, look inside.

    Example: regard demo --minutes 1
    """
    from regard.demo import demo

    demo(out, minutes)
