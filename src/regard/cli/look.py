"""regard look"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
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
Steps = Annotated[
    bool,
    typer.Option("--steps", help="Step through the model: every stage of one token with numbers."),
]
Position = Annotated[
    int,
    typer.Option(min=0, help="With --steps: the token to follow, from 1; 0: the last one."),
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
Excites = Annotated[
    str,
    typer.Option(
        metavar="ACTIVATION:UNIT",
        help="Print the records of the training data that excite a unit or head most, such as "
        "block.0.feedforward.hidden:7; no page.",
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
    steps: Steps = False,
    position: Position = 0,
    beams: Beams = 0,
    live: Live = False,
    excites: Excites = "",
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

    Every number of one token, stage by stage: regard look runs/names maria --steps --position 3

    What a head responds to: regard look runs/names --excites block.0.attention.heads:1
    """
    from regard.cli.options import announced, log
    from regard.tasks import LookRequest

    figures = {"png": png, "svg": svg, "pdf": pdf}
    check_folders(figures)
    run = run if has_strip(run) else announced(run)
    if shapes:
        return print_shapes(run, text, target, json)
    if excites:
        return search(run, excites, device, json)
    request = LookRequest(text=text, target=target, beams=beams, device=device, log=log)
    if live:
        views = {"target": target, "beams": beams, "prior": prior, "steps": steps}
        page = live_page(run, text, figures | views)
    else:
        page = step_page(run, request, position) if steps else page_of(run, request, prior)
    print_files(write(page, {"html": out, **figures}), json)


def check_folders(figures: Mapping[str, Path | None]) -> None:
    """Raise a UserError unless every figure can be written."""
    from regard.look.figures import check_folder

    for folder in filter(None, figures.values()):
        check_folder(folder)


def page_of(run: Path, request: LookRequest, prior: bool) -> Page:
    """Return the page of a comparison or of a run, or the one about a transition of its data."""
    if prior:
        return prior_page(run, request.text)
    return strip_page(run, request) or task_page(run, request)


def step_page(run: Path, request: LookRequest, position: int) -> Page:
    """Return the page that steps through a model, with warnings if it should not be trusted."""
    from regard.look.run_warnings import run_warnings
    from regard.look.steps.page import steps_page
    from regard.pipelines import load
    from regard.run import Run

    page = steps_page(load(run), request.text, request.target, position)
    page.warn(*run_warnings(Run.open(run)))
    request.log(page.title)
    return page


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


def live_page(run: Path, text: str, others: Mapping[str, object]) -> Page:
    """Return the page in which a model runs; `others` are options that have no effect on it."""
    from regard.errors import UsageError
    from regard.live import page

    if given := [name for name, value in others.items() if value]:
        raise UsageError(
            f"--live writes one page, drawn by the model in it: leave out --{given[0]}"
        )
    return page.live_page(run, text)


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


SEARCHED_EVERY = 1.0  # seconds between lines of progress: a search takes half a minute at most


def search(run: Path, excites: str, device: str, as_json: bool) -> None:
    """Print the records that excite a unit most; their index is built where it is missing."""
    from regard.cli.options import log
    from regard.console import print_json, print_table
    from regard.look.activation_search import open_index, unit_of
    from regard.pipelines import load
    from regard.training.progress import Reporter

    name, unit = unit_of(excites)
    with Reporter(every=SEARCHED_EVERY) as reporter:
        pipeline = load(run, device=device)
        index = open_index(pipeline, name, log=log, progress=reporter.progress)
    matches = index.search(unit)
    log(index.note)
    if as_json:
        return print_json(
            {
                "activation": name,
                "unit": unit,
                "note": index.note,
                "records": [asdict(one) for one in matches],
            }
        )
    rows = [[str(one.record), str(one.position), f"{one.value:.4g}", one.text] for one in matches]
    print_table(["record", "position", "value", "text"], rows)


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
