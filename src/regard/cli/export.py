"""regard export"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import RunFolder
from regard.errors import one_line


def command(
    run: RunFolder,
    out: Annotated[Path, typer.Argument(help="The folder to write; of vectors, the file.")],
    to: Annotated[
        str, typer.Option(help="hf: a Hugging Face folder. vec: word vectors as text.")
    ] = "hf",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a model as a Hugging Face folder, or word vectors as text.

    Example: regard export runs/names-transformer names-hf

    For gensim and others: regard export runs/text-skipgram --to vec text.vec
    """
    from regard.api import export
    from regard.console import print_json

    report = export(run, out, to)
    if json:
        print_json(report)
    elif to == "vec":
        print(f"vectors of {report['words']:,} words → {out}")
    else:
        print(f"{report['class']}, {report['parameters']:,} parameters → {out}")
        for line in report["warnings"]:
            print(f"warning: {one_line(line)}", file=sys.stderr)
