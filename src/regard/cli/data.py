"""regard data"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data.inspection import Inspection
    from regard.recipe import DataRecipe


def command(
    files: Annotated[list[Path], typer.Argument(help="Data files or folders.", metavar="FILE")],
    input: Annotated[str, typer.Option(help="The column of a table to read.")] = "",
    target: Annotated[str, typer.Option(help="The column of the targets, for pairs.")] = "",
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

    Records, alphabet, entropy, lengths, duplicates, and leaks between the parts of a split. Two
    files with as many lines, named alike but for the language, are read as pairs.

    Example: regard data train.txt --test test.txt
    """
    from rich.console import Console

    from regard.cli.output import print_json
    from regard.data.inspection import inspect, render
    from regard.data.pairs import looks_paired
    from regard.data.sides import Sources
    from regard.recipe import DataRecipe

    recipe = DataRecipe(
        train=tuple(map(str, files)),
        valid=tuple(map(str, valid or ())),
        test=tuple(map(str, test or ())),
        input=input,
        target=target,
        format=format,  # type: ignore[arg-type]  # the reader names what is allowed
        strict=strict,
    )
    task = "target" if target or looks_paired(files) else "next"
    sources = Sources(recipe, task)
    found = inspect(
        sources.train,
        valid=sources.given[0],
        test=sources.given[1],
        valid_fraction=recipe.valid_fraction,
        test_fraction=recipe.test_fraction,
    )
    if task == "target":
        found = suggested(found, recipe)
    if json:
        print_json(found.to_json())
    else:
        render(found, Console(highlight=False))


def suggested(found: Inspection, recipe: DataRecipe) -> Inspection:
    """What was found in pairs, with what `regard train` would choose for them."""
    from dataclasses import asdict, replace

    from regard.train.choose import choose

    chosen, (first, second) = choose({"task": "target", "data": asdict(recipe)})
    why = f"{first.partition('→ ')[2]}; {second}"
    tokens, model = chosen["tokens"]["kind"], chosen["model"]["name"]
    return replace(
        found,
        suggestion=replace(found.suggestion, task="target", tokens=tokens, model=model, why=why),
    )
