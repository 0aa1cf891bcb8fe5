"""regard look"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[str, typer.Argument(help="What the model reads; default a held-out record.")] = "",
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("look.html"),
    png: Annotated[Path | None, typer.Option(help="Also a picture (.png or .svg).")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Width of the beam tree.")] = 4,
) -> None:
    """What happens inside, as one self-contained HTML page: attention, masks, surprise, choices, beams.

    Example: regard look runs/names-transformer isabella --out look.html
    """
    from regard.look.language import look

    written = look(run, text, out=out, picture=png, beams=beams)
    for path in written:
        print(path)
