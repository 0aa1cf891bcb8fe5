"""regard data"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import TaskName, extra_options
from regard.data import Progress, no_progress

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
    from dataclasses import asdict

    from regard.console import print_json, print_table
    from regard.data.table_columns import complete_data
    from regard.recipe import DataRecipe, check
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
    chosen, lines = complete_data(recipe, task)
    recipe = check("data", DataRecipe, asdict(recipe) | chosen)
    settings = extra_options(context.args)
    name, why, line = find_task(recipe, task, settings)
    with Reporter() as reporter:
        watch = reporter.progress
        report = report_on(recipe, name, why, [*lines, line] if line else lines, settings, watch)
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


def settings_of(recipe: DataRecipe) -> dict[str, Any]:
    """Return the settings that differ from the defaults; others are left to the task."""
    from dataclasses import asdict

    from regard.recipe import DataRecipe

    usual = asdict(DataRecipe())
    return {key: value for key, value in asdict(recipe).items() if value != usual[key]}


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


def find_task(
    recipe: DataRecipe, task: str, settings: dict[str, str] | None = None
) -> tuple[str, str, str]:
    """Return the task, given or inferred, the reason, and a line about other possible tasks;
    `settings` are those of the input.
    """
    from regard.data.task_inference import infer_task
    from regard.registry import TASKS

    if task:
        return TASKS[task].name, "as asked", ""
    inferred = infer_task(recipe, settings=settings)
    return inferred.task, inferred.why or "by the files", inferred.line


def report_on(
    recipe: DataRecipe,
    name: str,
    why: str,
    lines: list[str],
    settings: dict[str, str] | None = None,
    progress: Progress = no_progress,
) -> Any:
    """Return the report on the data, with the defaults of `regard train` as its suggestion."""
    from dataclasses import asdict, replace

    from regard.data.sources import DataSource, recognize_modality
    from regard.data.task_inference import configure_media
    from regard.recipe import DataRecipe, check, modality_name, registered
    from regard.registry import MODALITIES, TASKS
    from regard.training.defaults import fill_defaults

    task = TASKS[name]()
    modality = configure_media(recognize_modality(recipe, task.roles), settings or {})
    role, given = task.roles.encoded[0], settings_of(recipe)
    if not modality.reads_text:
        if task.roles.labels:
            values = {"task": {"name": name}, "data": given, role: asdict(modality.config)}
            recipe = check("data", DataRecipe, fill_defaults(values)[0]["data"])
        sources = DataSource(recipe, task.roles, modality, kind=task.kind)
        sources.watch(progress)
        return modality.report(sources, why)
    tables, defaults = fill_defaults({"task": {"name": name}, "data": given})
    filled = check("data", DataRecipe, given | tables["data"])
    recipe = replace(filled, format=given.get("format", "auto"))  # why it is read so is reported
    sources = DataSource(recipe, task.roles, modality, kind=task.kind)
    sources.watch(progress)
    table = tables[role]
    config = registered(role, MODALITIES, table, modality_name(table))
    chosen = defaults[0].partition("→ ")[2]
    if not task.roles.input:
        report = sources.modality.report(sources, why)
        suggestion = replace(
            report.suggestion,
            tokens=config.tokenizer,
            why=f"{chosen}; {report.suggestion.why.partition('; ')[2]}",
        )
        return replace(report, suggestion=suggestion, remarks=(*lines, *report.remarks))
    sources.compare_as(MODALITIES[config.name](config))
    report = sources.modality.report(sources, why)
    model = "" if task.roles.labels else tables["model"]["name"]
    reason = chosen if task.roles.labels else f"{chosen}; {defaults[1]}"
    suggestion = replace(
        report.suggestion, task=name, tokens=config.tokenizer, model=model, why=reason
    )
    return replace(report, suggestion=suggestion, remarks=(*lines, *report.remarks))
