"""Default sizes and budgets of a recipe.

The rules were set on validation data: the size of a model follows the amount of data, since a small
file is soon memorized, and dropout is used if the data is read many times.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from regard.models import Shape
from regard.recipe import TrainRecipe, check, modality_name
from regard.registry import MODALITIES, MODELS, TASKS

Tables = dict[str, Any]

ONE_PASS = ("count", "solve")  # loops of families that are fitted at once, without steps
TIMED = ("gradient", "em")  # loops of families that train for as long as they are given


# An upper limit of the amount of data, and the shapes up to it on a CPU and on a GPU.
Sizes = Sequence[tuple[float, Shape, Shape]]


def sizes(*rows: tuple[float, tuple[int, int, float], tuple[int, int, float]]) -> Sizes:
    """Return a table of sizes from plain tuples."""
    return [(most, Shape(*cpu), Shape(*gpu)) for most, cpu, gpu in rows]


def has_gpu() -> bool:
    """Return whether the model will be trained on a GPU by default."""
    return torch.cuda.is_available()


def hardware() -> str:
    """Return what the model will be trained on, in words."""
    return "a GPU" if has_gpu() else f"{os.cpu_count() or 1} CPU cores"


def default_shape(table: Sizes, amount: float) -> Shape:
    """Return the shape for an amount of data."""
    cpu, gpu = next((cpu, gpu) for most, cpu, gpu in table if amount < most)
    return gpu if has_gpu() else cpu


def fill_shape(model: Tables, fields: Mapping[str, object], shape: Shape) -> bool:
    """Fill in depth, width and dropout; return whether depth or width was given already."""
    given = any(key in model for key in ("size", "n_layers", "d_model"))
    if not given:
        model["n_layers"], model["d_model"] = shape.n_layers, shape.d_model
    if "dropout" in fields:
        model.setdefault("dropout", shape.dropout)
    return given


def fill_batch(train: Tables, tokens: int, *, large: bool) -> None:
    """Fill in the tokens of a step, four times as many on a GPU if the data is `large`."""
    if "batch_tokens" not in train:
        train["batch_tokens"] = tokens * (4 if has_gpu() and large else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))


def budget(train: Mapping[str, Any]) -> str:
    """Return how long training will take, in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if train.get("minutes"):
        return f"{train['minutes']:g} minutes, as asked"
    return f"{TrainRecipe().minutes:g} minutes (--minutes changes that)"


def fill_defaults(values: Mapping[str, Any]) -> tuple[Tables, list[str]]:
    """Return the tables of a recipe, whose task is known, with all defaults, and lines that explain
    them.
    """
    task = TASKS[values["task"]["name"]]
    tables: Tables = {name: dict(table) for name, table in values.items()}
    for name in ("data", *task.roles.encoded, "model", "augment", "train"):
        tables.setdefault(name, {})
    lines = task(check("task", task.Config, tables["task"])).defaults(tables)
    for name in task.roles.encoded:
        tables[name]["name"] = modality_name(tables[name])
    family = MODELS.get(tables["model"]["name"], task.name, kind_of(tables))
    if family.loop in TIMED:
        lines[-1] += f", {budget(tables['train'])}"
    return {name: table for name, table in tables.items() if table}, lines


def kind_of(tables: Tables) -> str:
    """Return the kind of input that the model reads."""
    name = (tables.get("input") or tables["output"])["name"]
    kind: str = MODALITIES[name].kind
    return kind
