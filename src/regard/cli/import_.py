"""regard import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[
        Path,
        typer.Argument(help="A Hugging Face folder: GPT-2, Llama, Qwen3 …; or a file of vectors."),
    ],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Read a Hugging Face folder, or word vectors as text, into a run folder.

    Every verb then takes it.

    Example: regard import names-hf --out runs/names-again

    What word2vec, gensim, fastText or GloVe wrote: regard import text.vec --out runs/text
    """
    from regard.api import import_model
    from regard.console import print_json

    report = import_model(folder, out)
    if json:
        print_json(report)
    elif report["class"] == "vec":
        print(f"vectors of {report['words']:,} words → {out}")
    else:
        print(f"{report['class']}, {report['parameters']:,} parameters → {out}")
