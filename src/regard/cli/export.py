"""regard export"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    to: Annotated[str, typer.Option(help="hf: a Hugging Face folder.")] = "hf",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a model as a Hugging Face folder.

    Example: regard export runs/names-transformer --to hf names-hf
    """
    from regard.cli.output import print_json
    from regard.errors import UsageError
    from regard.interop.hugging_face import export_hf

    if to != "hf":
        raise UsageError(f"--to: unknown format {to!r}; choose one of hf")
    report = export_hf(run, out)
    if json:
        print_json(report)
    else:
        print(f"{report['class']}, {report['parameters']:,} parameters → {out}")
        for line in report["warnings"]:
            print(f"warning: {line}", file=sys.stderr)
