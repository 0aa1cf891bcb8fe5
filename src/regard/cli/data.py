"""regard data"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data.report import LabelReport, TextReport
    from regard.data.sources import DataSource
    from regard.recipe import DataRecipe


Files = Annotated[list[Path], typer.Argument(help="Data files or folders.", metavar="FILE")]
Input = Annotated[str, typer.Option(help="The column of a table to read; two texts: A,B.")]
Target = Annotated[str, typer.Option(help="The column of targets or labels; several: y1,y2.")]
Task = Annotated[
    str, typer.Option(help="next, target, label, labels, value, position-label; else guessed.")
]
Format = Annotated[
    str,
    typer.Option(help="auto, lines, text, files, csv, tsv, jsonl, fasta, smi, labelled, images."),
]
Valid = Annotated[
    list[Path] | None, typer.Option(help="Validation file, looked through for leaks.")
]
Test = Annotated[list[Path] | None, typer.Option(help="Test file, looked through for leaks.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first damaged record.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Any data key: --set data.split=stratified.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    files: Files,
    input: Input = "",
    target: Target = "",
    task: Task = "",
    format: Format = "auto",
    valid: Valid = None,
    test: Test = None,
    strict: Strict = False,
    set_: Set = None,
    json: Json = False,
) -> None:
    """What is in a file, and what to train on it.

    Records, alphabet, entropy, lengths, duplicates, and leaks between the parts of a split. Two
    files with as many lines, named alike but for the language, are read as pairs; files or folders
    whose names differ in one word, as classes.

    With labels: what is asked, classes and values by side, conflicts, and what of the held-out
    sides training has seen, exactly or almost.

    Example: regard data train.txt --test test.txt

    With labels: regard data molecules.csv --input smiles --target active; images: regard data DIR
    """
    from dataclasses import replace

    from rich.console import Console

    from regard.cli.output import print_json
    from regard.data.report import inspect, inspect_labelled, render
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
    recipe = changed(recipe, set_ or [])
    sources, why, line = opened(recipe, task)
    if sources.numbered:
        return show_numbered(sources, why, json)
    tokens, reason = chosen_tokens(sources) if sources.labelled else ("", "")
    found = inspect(
        sources.train,
        valid=sources.held_out_files[0],
        test=sources.held_out_files[1],
        valid_fraction=recipe.valid_fraction,
        test_fraction=recipe.test_fraction,
    )
    if sources.task == "target":
        found = suggested(found, recipe)
    if sources.labelled:
        found = labelled(found, inspect_labelled(sources, why), tokens, reason)
    if line:
        found = replace(found, remarks=(line, *found.remarks))
    if json:
        print_json(found.to_json())
    else:
        render(found, Console(highlight=False))


def show_numbered(sources: DataSource, why: str, json: bool) -> None:
    """What there is to say of pictures or point clouds."""
    from regard.cli.output import print_json, print_table
    from regard.data.report import inspect_images, inspect_point_clouds

    form = sources.train.format
    found = (inspect_images if form == "images" else inspect_point_clouds)(sources, why)
    if json:
        print_json(found.to_json())
    else:
        print_table([form, ""], [list(row) for row in found.rows()])


def changed(recipe: DataRecipe, assignments: list[str]) -> DataRecipe:
    """The recipe with the keys that --set names."""
    from dataclasses import replace

    from regard.errors import UsageError
    from regard.recipe import DataRecipe, check, override

    values = override({}, assignments)
    if values.keys() - {"data"}:
        raise UsageError(f"--set {min(values.keys() - {'data'})}: regard data has data.KEY alone")
    given = values.get("data", {})
    typed = check("data", DataRecipe, given)
    return replace(recipe, **{key: getattr(typed, key) for key in given})


def opened(recipe: DataRecipe, task: str) -> tuple[DataSource, str, str]:
    """The data as the task reads it, which is guessed where it is not given; why it is that, and
    the line that says what else it could be.
    """
    from regard.data.sources import DataSource
    from regard.data.targets import LABELLED
    from regard.data.task_inference import infer_task
    from regard.errors import UsageError, did_you_mean

    tasks = ["next", "target", *LABELLED]
    if task and task not in tasks:
        raise UsageError(f"unknown task {task!r}; {did_you_mean(task, tasks)}")
    if task:
        return DataSource(recipe, task), "as asked", ""
    found = infer_task(recipe)
    return DataSource(recipe, found.task), found.why or "by the files", found.line


def chosen_tokens(sources: DataSource) -> tuple[str, str]:
    """The tokens that `regard train` chooses for labelled records, by which they are compared, and
    why.
    """
    from dataclasses import asdict

    from regard.recipe import TokensRecipe
    from regard.training.defaults import choose

    chosen, lines = choose({"task": sources.task, "data": asdict(sources.recipe)})
    kind = chosen["tokens"]["kind"]
    sources.tokenize_as(TokensRecipe(kind=kind))
    return kind, lines[0].partition("→ ")[2]


def labelled(found: TextReport, labels: LabelReport, tokens: str, why: str) -> TextReport:
    """What was found in labelled records, with what is asked of them; no model is suggested."""
    from dataclasses import replace

    suggestion = replace(found.suggestion, task=labels.task, tokens=tokens, model="", why=why)
    return replace(found, labels=labels, leaks=labels.leaks, suggestion=suggestion)


def suggested(found: TextReport, recipe: DataRecipe) -> TextReport:
    """What was found in pairs, with what `regard train` would choose for them."""
    from dataclasses import asdict, replace

    from regard.training.defaults import choose

    chosen, (first, second) = choose({"task": "target", "data": asdict(recipe)})
    why = f"{first.partition('→ ')[2]}; {second}"
    tokens, model = chosen["tokens"]["kind"], chosen["model"]["name"]
    return replace(
        found,
        suggestion=replace(found.suggestion, task="target", tokens=tokens, model=model, why=why),
    )
