"""regard look"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.look.page import Page


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[
        str, typer.Argument(help="A text, a file, an image; default a held-out record.")
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            help="Translators: look at this translation; default the model's. Labels and values: "
            "explain this one too; default the second best."
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("look.html"),
    png: Annotated[
        Path | None, typer.Option(help="Also write every figure as PNG into this folder.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="The same as SVG.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="The same as PDF.")] = None,
    beams: Annotated[
        int,
        typer.Option(min=0, max=32, help="Width of the beam search; 0: 4, or 5 for translators."),
    ] = 0,
) -> None:
    """Show what happens inside a model, as one HTML page.

    Language models and translators: attention, surprise, next symbols and beam search for TEXT, and
    which source word each word comes from. Labels and values: the prediction and what in TEXT it
    rests on, what each head looks for, held-out records in the plane, and errors. Word vectors: the
    words in the plane, and the neighbours of the words of TEXT. Masked language models: the tokens
    predicted at every position of TEXT, and at each <mask> in it. The page needs no network.

    Example: regard look runs/names-transformer isabella --out look.html

    Figures for a paper: regard look runs/names-transformer isabella --pdf figures

    Translation: regard look runs/en-de "a red house" --target "ein rotes Haus"

    Labels: regard look runs/kinds "who is maria ?" --target number

    Images or point clouds: regard look runs/digits-transformer digits.npz[12]

    Word vectors: regard look runs/text-skipgram "king river"

    Masked tokens: regard look runs/filled "the <mask> of the king"
    """
    from regard.cli.options import log
    from regard.look.run_warnings import run_warnings
    from regard.registry import TASKS
    from regard.run import Run
    from regard.tasks import LookRequest

    opened = Run.open(run)
    request = LookRequest(text=text, target=target, beams=beams, log=log)
    page = TASKS[opened.description.task]().page(opened, request)
    page.warn(*run_warnings(opened))
    _write(page, {"html": out, "png": png, "svg": svg, "pdf": pdf})


def _write(page: Page, paths: Mapping[str, Path | None]) -> None:
    """Write the page and folders of its figures, and print the files."""
    from regard.errors import UserError
    from regard.look.figures import save_all

    for suffix, path in paths.items():
        if path is None:
            continue
        try:
            html = suffix == "html"
            files = [page.write(path)] if html else save_all(page.components, path, suffix)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        print(*files, sep="\n")
