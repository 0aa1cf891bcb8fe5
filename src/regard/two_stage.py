"""Pre-training a masked language model, then fine-tuning it for labels or values.

The first run, in OUT/pretrained, predicts masked tokens; the second starts from it
(`train.init_from`). Both have the same tokenizer and the same encoder, and each has half of the
minutes. If both read the same labelled file, they hold out the same records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.api import plan, train
from regard.data.text_files import TABLES
from regard.errors import UsageError, UserError
from regard.recipe import Recipe, build, override, read, to_toml
from regard.recipe import tables as tables_of
from regard.registry import MODELS, TASKS
from regard.run import CONFIG, METADATA, RECIPE
from regard.storage import write_text
from regard.training.distributed import ProcessGroup
from regard.training.final_report import TrainResult
from regard.training.init_from import PRETRAINED
from regard.training.progress import Reporter

DROPOUT = 0.1  # at most, in pre-training: random masks regularize enough
# Settings of supervised training that pre-training does not use.
UNUSED = {
    "label_smoothing": 0.0,
    "r_drop": 0.0,
    "class_weights": False,
    "patience": 0,
    "average_last": 0,
}


def plan_both(
    source: Sequence[str | Path],
    file: Path,
    out: Path,
    *,
    assignments: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    **tables: Mapping[str, Any],
) -> tuple[Recipe | None, Recipe, list[str]]:
    """Return the recipe of pre-training on `file`, the recipe for `source`, and lines that explain
    the defaults. If `file` is a run folder, training starts from it, and there is no first recipe.
    """
    if (file / CONFIG).exists():
        start = {**tables.get("train", {}), "init_from": str(file.resolve())}
        recipe, lines = plan(
            source, assignments=assignments, options=options, **{**tables, "train": start}
        )
        return None, check_pretrainable(recipe), lines
    settings, assignments, options = separate_settings(assignments, options or {})
    recipe, lines = plan(source, assignments=assignments, options=options, **tables)
    check_pretrainable(recipe)
    if recipe.train.init_from:
        raise UsageError("--pretrain and train.init_from both say where to begin: give one of them")
    first = pretraining_recipe(recipe, file, settings)
    half = recipe.train.minutes / 2
    inner = str((out / PRETRAINED).resolve())
    recipe = recipe.replace(train={"init_from": inner, "minutes": half})
    spent = "" if recipe.train.steps else f", {half:g} minutes each"
    lines.append(f"pre-training on {file} first, in {out / PRETRAINED}{spent}")
    return first, recipe, lines


def separate_settings(
    assignments: Sequence[str], options: Mapping[str, str]
) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Return the settings of pre-training tasks, such as --mask, and the other assignments and
    options.
    """
    tasks = {task.pretrains_with for task in TASKS.values()} - {""}
    names = {field.name for name in tasks for field in fields(TASKS[name].Config)} - {"name"}
    prefixes = tuple(f"task.{name}=" for name in names)
    taken = [one for one in assignments if one.startswith(prefixes)]
    taken += [f"task.{key}={value}" for key, value in options.items() if key in names]
    return (
        override({"task": {}}, taken)["task"],
        [one for one in assignments if one not in taken],
        {key: value for key, value in options.items() if key not in names},
    )


def check_pretrainable(recipe: Recipe) -> Recipe:
    """Return the recipe; raise a UsageError if its model cannot start from a pretrained one."""
    task = recipe.build_task()
    if not task.pretrains_with:
        raise UsageError(f"--pretrain is for labels and values, and this is of task {task.name}")
    models = MODELS.names(task.pretrains_with, recipe.reads)
    if recipe.model.name not in models:
        raise UsageError(f"--pretrain is for {', '.join(models)}, not {recipe.model.name}")
    return recipe


def pretraining_recipe(recipe: Recipe, file: Path, settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a masked language model of a file, for `recipe` to start from."""
    if not file.exists():
        raise UserError(f"--pretrain: no file or run folder at {file}")
    values = tables_of(recipe)
    if str(file.resolve()) not in recipe.data.train:
        column = recipe.data.input if file.suffix.lstrip(".") in TABLES else ""
        values["data"] = {"train": [str(file.resolve())], "input": column}
    model = values["model"]
    for key in ("task", "n_outputs", "pooling", "pooler", "tied"):
        model.pop(key)
    model["dropout"] = min(model["dropout"], DROPOUT)
    values["train"] |= UNUSED | {"minutes": recipe.train.minutes / 2}
    values.pop("augment", None)
    return build(values | {"task": {"name": recipe.build_task().pretrains_with, **settings}})


def stored(out: Path) -> Recipe | None:
    """Return the recipe of pre-training of a run that is resumed, if it is not finished."""
    inner = out / PRETRAINED
    if (inner / METADATA).exists() or not (inner / RECIPE).exists():
        return None
    return build(read(inner / RECIPE))


def train_both(
    first: Recipe | None,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool,
    reporter: Reporter,
    began: float,
    world: ProcessGroup,
) -> TrainResult:
    """Train both recipes, or the rest of them; return the first result if it was interrupted."""
    if first is None:
        return train(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    inner = out / PRETRAINED
    world.on_rank0(lambda: write_recipe(recipe, out, resume))
    try:
        result = train(first, inner, resume=resume, reporter=reporter, began=began, world=world)
    except Exception:
        if world.first and not inner.exists():  # an error before training: leave nothing behind
            (out / RECIPE).unlink(missing_ok=True)
            out.rmdir()
        raise
    if result.outcome == "interrupted":
        return result
    metrics = ", ".join(
        f"{name.replace('_', ' ')} {metric}"
        for name, metric in result.figures.get("valid", {}).items()
    )
    reporter.say(
        f"pre-training ended after {result.steps:,} steps: {metrics or 'nothing was held out'}"
    )
    now = time.monotonic()
    return train(recipe, out, resume=True, reporter=reporter, began=now, world=world)


def write_recipe(recipe: Recipe, out: Path, resume: bool) -> None:
    """Write the recipe of the outer run before the inner one starts, so that both can resume."""
    if resume and (out / RECIPE).exists():
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not empty: add --resume to go on, or choose another")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {out}: {error.strerror}") from None
    write_text(out / RECIPE, to_toml(recipe))
