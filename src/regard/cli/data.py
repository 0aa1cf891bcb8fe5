"""regard data"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import TaskName, extra_options

if TYPE_CHECKING:
    from regard.recipe import DataRecipe


Files = Annotated[list[Path], typer.Argument(help="Data files or folders.", metavar="FILE")]
Input = Annotated[str, typer.Option(help="The column of a table to read; two texts: A,B.")]
Target = Annotated[
    str, typer.Option(help="The column of targets or labels; several: y1,y2 or 'y*'.")
]
Format = Annotated[
    str,
    typer.Option(help="auto, lines, text, files, csv, tsv, jsonl, fasta, smi, labelled."),
]
Valid = Annotated[
    list[Path] | None, typer.Option(help="Validation file, looked through for leaks.")
]
Test = Annotated[list[Path] | None, typer.Option(help="Test file, looked through for leaks.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first damaged record.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Any data key: --set data.split=stratified.")
]
Out = Annotated[Path | None, typer.Option(help="Also write this page, such as data.html.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    context: typer.Context,
    files: Files,
    input: Input = "",
    target: Target = "",
    task: TaskName = "",
    format: Format = "auto",
    valid: Valid = None,
    test: Test = None,
    strict: Strict = False,
    set_: Set = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """What is in a file, and what to train on it.

    Records, alphabet, entropy after 0 to 3 symbols, lengths, duplicates, leaks between the parts of
    a split, and the place of the alphabet among others. Two
    files with as many lines, named alike but for the language, are read as pairs; files or folders
    whose names differ in one word, as classes.

    With labels: what is asked, classes and values by side, conflicts, and what of the held-out
    sides training has seen, exactly or almost.

    Example: regard data names.txt --test others.txt

    With labels: regard data molecules.csv --target toxic

    Images, in a folder for each class: regard data images
    """
    from regard.console import print_json, print_table
    from regard.inspection import inspect_data
    from regard.recipe import DataRecipe
    from regard.training.progress import Reporter

    recipe = DataRecipe(
        train=tuple(map(str, files)),
        valid=tuple(map(str, valid or ())),
        test=tuple(map(str, test or ())),
        input=input,
        target=target,
        format=format,
        strict=strict,
    )
    recipe = override_data(recipe, set_ or [])
    with Reporter() as reporter:
        report = inspect_data(recipe, task, extra_options(context.args), reporter.progress)
    if out is not None:
        write_page(report, [file.name for file in files], out)
    if json:
        print_json(report.to_json())
    else:
        report.render(print_table)


def write_page(report: Any, names: list[str], path: Path) -> None:
    """Write the page of a report."""
    from regard.cli.options import log
    from regard.errors import UserError
    from regard.look.data_page import data_page

    try:
        log(str(data_page(report, names).write(path)))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def override_data(recipe: DataRecipe, assignments: list[str]) -> DataRecipe:
    """Return the recipe with the keys that --set names."""
    from dataclasses import replace

    from regard.errors import UsageError
    from regard.recipe import DataRecipe, check, override

    values = override({}, assignments)
    if values.keys() - {"data"}:
        raise UsageError(f"--set {min(values.keys() - {'data'})}: regard data has data.KEY alone")
    table = values.get("data", {})
    checked = check("data", DataRecipe, table)
    return replace(recipe, **{key: getattr(checked, key) for key in table})
