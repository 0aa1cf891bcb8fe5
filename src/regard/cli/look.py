"""regard look"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.look.page import Page
    from regard.run import Run


RunFolder = Annotated[Path, typer.Argument(help="A run folder, or that of a comparison.")]
Item = Annotated[str, typer.Argument(help="A text, a file, an image; default a held-out record.")]
Target = Annotated[
    str,
    typer.Option(
        help="Translators: look at this translation; default the model's. Labels and values: "
        "explain this one too; default the second best."
    ),
]
Out = Annotated[Path, typer.Option(help="The page to write.")]
Png = Annotated[Path | None, typer.Option(help="Also write a figure (.png, .svg or .pdf).")]
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


def command(
    run: RunFolder,
    text: Item = "",
    target: Target = "",
    out: Out = Path("look.html"),
    png: Png = None,
    shapes: Shapes = False,
    prior: Prior = False,
    beams: Beams = 0,
) -> None:
    """Show what happens inside a model, as one HTML page.

    Language models and translators: attention, surprise, next symbols and beam search for TEXT, and
    which source word each word comes from. Labels and values: the prediction and what in TEXT it
    rests on, what each head looks for, held-out records in the plane, and errors. Word vectors: the
    words in the plane, and the neighbours of the words of TEXT. Masked language models: the tokens
    predicted at every position of TEXT, and at each <mask> in it. The page needs no network.

    Example: regard look runs/names-transformer isabella --out look.html

    Translation: regard look runs/en-de "a red house" --target "ein rotes Haus"

    Labels: regard look runs/kinds "who is maria ?" --target number

    Images or point clouds: regard look runs/digits-transformer digits.npz[12]

    Word vectors: regard look runs/text-skipgram "king river"

    Masked tokens: regard look runs/filled "the <mask> of the king"

    One text under all rows of a comparison: regard look runs/names-compare maria

    The posterior of P(u | q) as the data of a run arrive: regard look runs/names-bigram qu --prior

    Every tensor with its shape, of any model: regard look runs/names-transformer maria --shapes
    """
    from regard.errors import UsageError
    from regard.look.figures import FORMATS
    from regard.look.surprise_page import COMPARISON
    from regard.run import Run

    if png is not None and png.suffix.lower() not in FORMATS:
        raise UsageError(f"--png must end in {', '.join(FORMATS)}, got {png.name!r}")
    if shapes:
        print_shapes(run, text, target)
    elif (run / COMPARISON).exists():
        write(surprise(run, text, target), out, png)
    elif prior:
        write(open_prior(Run.open(run), text), out, png)
    else:
        write(task_page(Run.open(run), text, target, beams), out, png)


def write(page: Page, out: Path, png: Path | None) -> None:
    """Write a page and, if asked, its figures; print their names."""
    from regard.errors import UserError
    from regard.look.figures import save

    for path in (out, png):
        if path is None:
            continue
        try:
            print(page.write(path) if path is out else save(page.components, path))
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None


def surprise(folder: Path, text: str, target: str) -> Page:
    """Return the page of one text under all rows of a comparison, and print its strip."""
    from regard.console import print_strip
    from regard.look.surprise_page import compare_surprise, surprise_page

    strip = compare_surprise(folder, text, target)
    print_strip(*strip)
    page = surprise_page(folder, strip)
    print(page.subtitle)
    return page


def task_page(run: Run, text: str, target: str, beams: int) -> Page:
    """Return the page of the run's task."""
    from regard.cli.options import log
    from regard.registry import TASKS
    from regard.tasks import LookRequest

    request = LookRequest(text=text, target=target, beams=beams, log=log)
    page: Page = TASKS[run.description.task]().page(run, request)
    return page


def open_prior(run: Run, text: str) -> Page:
    """Return the page about a transition of the data of a run, and print its first line."""
    from regard.look.prior_page import prior_page
    from regard.pipelines import load
    from regard.pipelines.generator import Generator

    page = prior_page(load(run, kind=Generator), text)
    print(page.subtitle)
    return page


def print_shapes(run: Path, text: str, target: str) -> None:
    """Print the tensors that a model makes of a text, and what their axes are."""
    from regard.console import print_table
    from regard.look.shape_trace import trace_shapes
    from regard.pipelines import load

    trace = trace_shapes(load(run), text, target)
    for table in (trace.table(), trace.legend()):
        cells = table.data()
        print_table(cells["columns"], cells["rows"])
        print()
