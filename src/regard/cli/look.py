"""regard look"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, complete_runs

if TYPE_CHECKING:
    from regard.look.page import Page
    from regard.tasks import LookRequest

RunFolder = Annotated[
    Path,
    typer.Argument(
        help="A run, such as runs/latest; or a comparison, whose rows all read TEXT.",
        autocompletion=complete_runs,
    ),
]
Item = Annotated[str, typer.Argument(help="A text, a file, an image; default a held-out record.")]
Target = Annotated[
    str,
    typer.Option(
        help="Translators: look at this translation; default the model's. Labels and values: "
        "explain this one too; default the second best."
    ),
]
Out = Annotated[Path, typer.Option(help="The page to write.")]
Png = Annotated[Path | None, typer.Option(help="Also write every figure as PNG into this folder.")]
Svg = Annotated[Path | None, typer.Option(help="The same as SVG.")]
Pdf = Annotated[Path | None, typer.Option(help="The same as PDF.")]
Shapes = Annotated[
    bool, typer.Option("--shapes", help="Print every tensor from ids to logits; no page.")
]
Prior = Annotated[
    bool,
    typer.Option(
        "--prior",
        help="Language models: how the posterior of P(b | a) narrows as the data are read; TEXT "
        "is the pair ab.",
    ),
]
Beams = Annotated[
    int,
    typer.Option(min=0, max=32, help="Width of the beam search; 0: 4, or 5 for translators."),
]
Live = Annotated[
    bool,
    typer.Option(
        "--live", help="One page with the model inside: it runs on what you type or draw."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: RunFolder,
    text: Item = "",
    target: Target = "",
    out: Out = Path("look.html"),
    png: Png = None,
    svg: Svg = None,
    pdf: Pdf = None,
    shapes: Shapes = False,
    prior: Prior = False,
    beams: Beams = 0,
    live: Live = False,
    device: Device = "cpu",
    json: Json = False,
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

    One text under all rows of a comparison: regard look runs/names-compare maria

    The posterior of P(u | q) as the data of a run arrive: regard look runs/names qu --prior

    A page in which the model runs, without a network: regard look runs/names maria --live

    Every tensor with its shape, of any model: regard look runs/names maria --shapes
    """
    from regard.cli.options import announced, log
    from regard.look.figures import check_folder
    from regard.tasks import LookRequest

    for folder in filter(None, (png, svg, pdf)):
        check_folder(folder)
    if not has_strip(run):
        run = announced(run)
    if shapes:
        print_shapes(run, text, target, json)
        return
    request = LookRequest(text=text, target=target, beams=beams, device=device, log=log)
    figures = {"png": png, "svg": svg, "pdf": pdf}
    page = make_page(run, request, figures, live=live, prior=prior)
    print_files(write(page, {"html": out, **figures}), json)


def make_page(
    run: Path, request: LookRequest, figures: Mapping[str, object], *, live: bool, prior: bool
) -> Page:
    """Return the page that is asked for, of which these figures will be saved."""
    if live:
        from regard.live.page import live_page

        others = {"target": request.target, "beams": request.beams, "prior": prior}
        check_alone({**figures, **others})
        return live_page(run, request.text)
    if prior:
        return prior_page(run, request.text)
    return strip_page(run, request) or task_page(run, request)


def check_alone(options: Mapping[str, object]) -> None:
    """Refuse options that have no effect on a live page."""
    from regard.errors import UsageError

    if given := [name for name, value in options.items() if value]:
        raise UsageError(f"--live writes one page, drawn by its model: leave out --{given[0]}")


def has_strip(run: Path) -> bool:
    """Return whether the folder is a comparison of models that give symbols a probability."""
    from regard.look.surprise_page import scores_symbols
    from regard.run_folders import is_comparison

    return is_comparison(run) and scores_symbols(run)


def strip_page(folder: Path, request: LookRequest) -> Page | None:
    """Return the page of one text under all rows of a comparison, and log its first line; None if
    the folder is none.
    """
    from regard.look.surprise_page import compare_surprise, surprise_page

    if not has_strip(folder):
        return None
    page = surprise_page(folder, compare_surprise(folder, request.text, request.target))
    request.log(page.subtitle)
    return page


def task_page(run: Path, request: LookRequest) -> Page:
    """Return the page of a run, with warnings if it should not be trusted."""
    from regard.look.run_warnings import run_warnings
    from regard.registry import TASKS
    from regard.run import Run

    opened = Run.open(run)
    page: Page = TASKS[opened.description.task]().page(opened, request)
    page.warn(*run_warnings(opened))
    return page


def prior_page(run: Path, text: str) -> Page:
    """Return the page about a transition of the data of a run, and log its first line."""
    from regard.cli.options import log
    from regard.look import prior_page
    from regard.pipelines import load
    from regard.pipelines.generator import Generator

    page = prior_page.prior_page(load(run, kind=Generator), text)
    log(page.subtitle)
    return page


def print_shapes(run: Path, text: str, target: str, as_json: bool) -> None:
    """Print the tensors that a model makes of a text, and what their axes are."""
    from regard.console import print_json, print_table
    from regard.look.shape_trace import trace_shapes
    from regard.pipelines import load

    trace = trace_shapes(load(run), text, target)
    tables = {"tensors": trace.table().data(), "letters": trace.legend().data()}
    if as_json:
        keys = ("columns", "rows")
        print_json({name: {key: cells[key] for key in keys} for name, cells in tables.items()})
        return
    for cells in tables.values():
        print_table(cells["columns"], cells["rows"])
        print()


def write(page: Page, paths: Mapping[str, Path | None]) -> dict[str, list[str]]:
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


def print_files(files: Mapping[str, list[str]], as_json: bool) -> None:
    """Print the names of the files."""
    from regard.console import print_json

    if as_json:
        print_json({"page": files["html"][0]} | {k: files[k] for k in files if k != "html"})
    else:
        print(*(path for paths in files.values() for path in paths), sep="\n")
