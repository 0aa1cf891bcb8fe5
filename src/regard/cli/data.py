"""regard data"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    files: Annotated[list[Path], typer.Argument(help="Data files or folders.", metavar="FILE")],
    input: Annotated[str, typer.Option(help="The column of a table to read.")] = "",
    format: Annotated[str, typer.Option(help="auto, lines, text, csv, tsv or jsonl.")] = "auto",
    valid: Annotated[
        list[Path] | None, typer.Option(help="Validation file, looked through for leaks.")
    ] = None,
    test: Annotated[
        list[Path] | None, typer.Option(help="Test file, looked through for leaks.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first damaged record.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """What is in a file, and what to train on it.

    Records, alphabet, entropy, lengths, duplicates, and leaks between the parts of a split.

    Example: regard data train.txt --test test.txt
    """
    from rich.console import Console

    from regard.cli.output import print_json
    from regard.data.inspection import inspect, render
    from regard.data.readers import Source
    from regard.recipe import DataRecipe

    source = Source(files, format=format, column=input, strict=strict)
    others = [
        Source(given, format=source.format, column=input, strict=strict) if given else None
        for given in (valid, test)
    ]
    shares = DataRecipe()
    found = inspect(
        source,
        valid=others[0],
        test=others[1],
        valid_fraction=shares.valid_fraction,
        test_fraction=shares.test_fraction,
    )
    if json:
        print_json(found.to_json())
    else:
        render(found, Console(highlight=False))
