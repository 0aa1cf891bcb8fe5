"""regard import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[Path, typer.Argument(help="A Hugging Face folder: GPT-2, Llama or Qwen3.")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Read a Hugging Face folder into a run folder.

    Every verb then takes it.

    Example: regard import names-hf --out runs/names-again
    """
    from regard.cli.output import print_json
    from regard.interop.hugging_face import import_hf

    report = import_hf(folder, out)
    if json:
        print_json(report)
    else:
        print(f"{report['class']}, {report['parameters']:,} parameters → {out}")
