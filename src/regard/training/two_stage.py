"""Pre-training and then learning labels or values from it, in one go: a run inside a run.

The first run fills in masked tokens, in OUT/pretrained; the second begins from it (`train.start`).
They have the same tokens and the same encoder, and share the minutes half and half. Where both read
the same labelled file, what one holds out is held out of the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.api import plan, train
from regard.data.readers import TABLES
from regard.data.targets import LABELLED
from regard.errors import UsageError, UserError
from regard.recipe import Recipe, build, read, to_toml
from regard.recipe import tables as tables_of
from regard.registry import TASKS
from regard.run import CONFIG, FACTS, RECIPE, write_text
from regard.training.distributed import ProcessGroup
from regard.training.final_report import TrainResult
from regard.training.init_from import PRETRAINED
from regard.training.progress import Reporter

DROPOUT = 0.1  # at most, while tokens are filled in: masks that differ each time disturb enough
# What a task with answers asks of training that filling in does not.
ASIDE = {"label_smoothing": 0.0, "consistency": 0.0, "balance": False, "patience": 0, "average": 0}


def plan_both(
    source: Sequence[str | Path],
    file: Path,
    out: Path,
    *,
    assignments: Sequence[str] = (),
    **tables: Mapping[str, Any],
) -> tuple[Recipe | None, Recipe, list[str]]:
    """The recipe of pre-training on `file`, that of what `source` asks, and lines that say what and
    why; where `file` is a run folder, that run is begun from, and there is no first recipe.
    """
    if (file / CONFIG).exists():
        start = {**tables.get("train", {}), "start": str(file.resolve())}
        recipe, lines = plan(source, assignments=assignments, **{**tables, "train": start})
        return None, fit_to_begin(recipe), lines
    recipe, lines = plan(source, assignments=assignments, **tables)
    fit_to_begin(recipe)
    if recipe.train.start:
        raise UsageError("--pretrain and train.start both say where to begin: give one of them")
    first = before(recipe, file)
    half = recipe.train.minutes / 2
    inner = str((out / PRETRAINED).resolve())
    recipe = recipe.replace(train={"start": inner, "minutes": half})
    spent = "" if recipe.train.steps else f", {half:g} minutes each"
    lines.append(f"pre-training on {file} first, in {out / PRETRAINED}{spent}")
    return first, recipe, lines


def fit_to_begin(recipe: Recipe) -> Recipe:
    """The recipe, if what it asks can begin from a model that fills in."""
    if recipe.task not in LABELLED:
        raise UsageError(f"--pretrain is for labels and values, and this is of task {recipe.task}")
    if recipe.model.name not in TASKS["masked"]:
        raise UsageError(f"--pretrain is for {', '.join(TASKS['masked'])}, not {recipe.model.name}")
    return recipe


def before(recipe: Recipe, file: Path) -> Recipe:
    """The recipe that fills in the tokens of a file, for another to begin from."""
    if not file.exists():
        raise UserError(f"--pretrain: no file or run folder at {file}")
    values = tables_of(recipe)
    if str(file.resolve()) not in recipe.data.train:
        column = recipe.data.input if file.suffix.lstrip(".") in TABLES else ""
        values["data"] = {"train": [str(file.resolve())], "input": column}
    model = values["model"]
    for key in ("task", "n_outputs", "tied"):
        model.pop(key)
    model["dropout"] = min(model["dropout"], DROPOUT)
    values["train"] |= ASIDE | {"forbid": "", "minutes": recipe.train.minutes / 2}
    return build(values | {"task": "masked"})


def stored(out: Path) -> Recipe | None:
    """The first of the two recipes of a run that goes on, if it has not been carried out."""
    inner = out / PRETRAINED
    if (inner / FACTS).exists() or not (inner / RECIPE).exists():
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
    """Carry out both recipes, or what is left of them; an interrupted first one is returned."""
    if first is None:
        return train(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    inner = out / PRETRAINED
    world.on_rank0(lambda: lay_down(recipe, out, resume))
    try:
        result = train(first, inner, resume=resume, reporter=reporter, began=began, world=world)
    except Exception:
        if world.first and not inner.exists():  # refused: nothing was done
            (out / RECIPE).unlink(missing_ok=True)
            out.rmdir()
        raise
    if result.outcome == "interrupted":
        return result
    told = ", ".join(
        f"{name.replace('_', ' ')} {figure}"
        for name, figure in result.figures.get("valid", {}).items()
    )
    reporter.say(
        f"pre-training ended after {result.steps:,} steps: {told or 'nothing was held out'}"
    )
    now = time.monotonic()
    return train(recipe, out, resume=True, reporter=reporter, began=now, world=world)


def lay_down(recipe: Recipe, out: Path, resume: bool) -> None:
    """Write the recipe of a run that has another one inside, so that it can be gone on with."""
    if resume and (out / RECIPE).exists():
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not empty: add --resume to go on, or choose another")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {out}: {error.strerror}") from None
    write_text(out / RECIPE, to_toml(recipe))
