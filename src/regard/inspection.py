"""What is in data files, and what to train on them: the report of `regard data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from regard.data import Progress, no_progress
from regard.data.sources import DataSource, recognize_modality
from regard.data.table_columns import complete_data
from regard.data.task_inference import configure_media, infer_task
from regard.recipe import DataRecipe, check, modality_name, registered
from regard.registry import MODALITIES, TASKS
from regard.training.defaults import fill_defaults


def inspect_data(
    recipe: DataRecipe,
    task: str = "",
    settings: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
) -> Any:
    """Return the report on the data of a recipe. What it leaves open, columns and the task, is
    chosen as `regard train` chooses it; `settings` are those of the input.
    """
    settings = settings or {}
    chosen, lines = complete_data(recipe, task)
    recipe = check("data", DataRecipe, asdict(recipe) | chosen)
    name, why, line = find_task(recipe, task, settings)
    lines += [line] if line else []
    return report_on(recipe, name, why, lines, settings, progress)


def settings_of(recipe: DataRecipe) -> dict[str, Any]:
    """Return the settings that differ from the defaults; others are left to the task."""
    usual = asdict(DataRecipe())
    return {key: value for key, value in asdict(recipe).items() if value != usual[key]}


def find_task(
    recipe: DataRecipe, task: str, settings: Mapping[str, Any] | None = None
) -> tuple[str, str, str]:
    """Return the task, given or inferred, the reason, and a line about other possible tasks;
    `settings` are those of the input.
    """
    if task:
        return TASKS[task].name, "as asked", ""
    inferred = infer_task(recipe, settings=settings)
    return inferred.task, inferred.why or "by the files", inferred.line


def report_on(
    recipe: DataRecipe,
    name: str,
    why: str,
    lines: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
) -> Any:
    """Return the report on the data, with the defaults of `regard train` as its suggestion."""
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
