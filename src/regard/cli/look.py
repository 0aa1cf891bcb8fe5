"""regard look"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, RunFolder

if TYPE_CHECKING:
    from regard.look.page import Page
    from regard.tasks import LookRequest


def command(
    run: RunFolder,
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
    device: Device = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what happens inside a model, as one HTML page.

    Language models and translators: attention, surprise, next symbols and beam search for TEXT, and
    which source word each word comes from. Labels and values: the prediction and what in TEXT it
    rests on, what each head looks for, held-out records in the plane, and errors. Word vectors: the
    words in the plane, and the neighbours of the words of TEXT. Masked language models: the tokens
    predicted at every position of TEXT, and at each <mask> in it. The page needs no network.

    Example: regard look runs/names isabella --out look.html

    Figures for a paper: regard look runs/names isabella --pdf figures

    Translation: regard look runs/train "on May 2" --target "am 2. Mai"

    Labels: regard look runs/questions "who was Mozart ?" --target number

    Images or point clouds: regard look runs/digits digits.npz[12]

    Word vectors: regard look runs/text-skipgram "king queen"

    Masked tokens: regard look runs/text-masked "the <mask> of the king"
    """
    from regard.cli.options import log
    from regard.look.figures import check_folder
    from regard.tasks import LookRequest

    for folder in filter(None, (png, svg, pdf)):
        check_folder(folder)
    request = LookRequest(text=text, target=target, beams=beams, device=device, log=log)
    files = _write(_page(run, request), {"html": out, "png": png, "svg": svg, "pdf": pdf})
    _print(files, json)


def _page(run: Path, request: LookRequest) -> Page:
    """Return the page of a run, with warnings if it should not be trusted."""
    from regard.look.run_warnings import run_warnings
    from regard.registry import TASKS
    from regard.run import Run

    opened = Run.open(run)
    page: Page = TASKS[opened.description.task]().page(opened, request)
    page.warn(*run_warnings(opened))
    return page


def _print(files: Mapping[str, list[str]], as_json: bool) -> None:
    from regard.console import print_json

    if as_json:
        print_json({"page": files["html"][0]} | {k: files[k] for k in files if k != "html"})
    else:
        print(*(path for paths in files.values() for path in paths), sep="\n")


def _write(page: Page, paths: Mapping[str, Path | None]) -> dict[str, list[str]]:
    """Write the page and folders of its figures; return the files by format."""
    from regard.errors import UserError
    from regard.look.figures import save_all

    files = {}
    for suffix, path in paths.items():
        if path is None:
            continue
        try:
            html = suffix == "html"
            written = [page.write(path)] if html else save_all(page.components, path, suffix)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        files[suffix] = [str(file) for file in written]
    return files
