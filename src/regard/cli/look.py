"""regard look"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, RunFolder


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
        Path | None, typer.Option(help="Also write a figure (.png, .svg or .pdf).")
    ] = None,
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

    Translation: regard look runs/train "on May 2" --target "am 2. Mai"

    Labels: regard look runs/questions "who was Mozart ?" --target number

    Images or point clouds: regard look runs/digits digits.npz[12]

    Word vectors: regard look runs/text-skipgram "king queen"

    Masked tokens: regard look runs/text-masked "the <mask> of the king"
    """
    from regard.cli.options import log
    from regard.console import print_json
    from regard.errors import UsageError, UserError
    from regard.look.figures import FORMATS, save
    from regard.registry import TASKS
    from regard.run import Run
    from regard.tasks import LookRequest

    if png is not None and png.suffix.lower() not in FORMATS:
        raise UsageError(f"--png must end in {', '.join(FORMATS)}, got {png.name!r}")
    opened = Run.open(run)
    request = LookRequest(text=text, target=target, beams=beams, device=device, log=log)
    page = TASKS[opened.description.task]().page(opened, request)
    written = {}
    for name, path in (("page", out), ("figure", png)):
        if path is None:
            continue
        try:
            done = page.write(path) if path is out else save(page.components, path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        written[name] = str(done)
    if json:
        print_json(written)
    else:
        print("\n".join(written.values()))
