"""regard demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[
        Path, typer.Option(help="Where the run folders go; numbered when taken.")
    ] = Path("runs/demo"),
    minutes: Annotated[float, typer.Option(help="Time for each model that trains.")] = 1.0,
) -> None:
    """Three models on bundled names, in one table.

    From counting to attention: train, measure, sample, look inside.

    Example: regard demo --minutes 0.5
    """
    from regard.demo import demo

    demo(out, minutes)
