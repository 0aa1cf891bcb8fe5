"""Choosing for a user who gave point clouds: groups, size, regularisation, and why."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.data.clouds import Clouds
from regard.recipe import TrainRecipe
from regard.registry import family

LOOKED = 5_000  # clouds looked at
FEW = 64  # points up to which each is a token
SAMPLES, NEIGHBOURS = 32, 16  # of larger clouds
# Up to so many clouds: (layers, width, dropout), on a CPU and on a GPU.
SIZES = (
    (500, (2, 64, 0.1), (2, 64, 0.1)),
    (5_000, (3, 64, 0.05), (4, 128, 0.1)),
    (50_000, (4, 96, 0.0), (6, 192, 0.1)),
    (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
)
# What clouds are changed by in training, where nothing is said; molecules by nothing. Turning those
# of space is left to a model that does not see it.
CHANGES = {"rotate": 0.0, "zoom": 0.1, "jitter": 0.01, "drop": 0.2}
FLAT = {"rotate": 10.0, "zoom": 0.1, "jitter": 0.01, "drop": 0.2}  # those of two dimensions
WHOLE = 2048  # tokens of a step, at least
MANY = 32  # clouds of a step, about


@dataclass
class Looked:
    """What the first clouds are like."""

    records: int = 0
    counts: list[int] = field(default_factory=list)
    dimensions: int = 3
    features: int = 0
    atoms: bool = False
    whole: bool = True  # was that all?

    @property
    def shown(self) -> str:
        """Their size in words."""
        least, most = min(self.counts), max(self.counts)
        many = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        return f"{many} {'atoms' if self.atoms else 'points'} in {self.dimensions} dimensions"


def look(source: Clouds) -> Looked:
    """The first clouds."""
    seen = Looked()
    for chunk in source.examples():
        clouds: Any = chunk.texts
        seen.counts += [len(cloud) for cloud in clouds]
        seen.dimensions, seen.atoms = clouds[0].points.shape[1], len(clouds[0].atoms) > 0
        seen.features = clouds[0].features.shape[1]
        seen.records += len(clouds)
        if seen.records >= LOOKED:
            seen.whole = False
            break
    return seen


def choose_points(result: dict[str, Any], source: Clouds) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    seen, task = look(source), result["task"]
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    tokens["kind"] = "points"
    most = max(seen.counts)
    each = seen.atoms or most <= FEW or task == "position-label"
    why = "as asked" if tokens.get("samples") or tokens.get("neighbours") else "by their size"
    tokens.setdefault("samples", 0 if each else SAMPLES)
    tokens.setdefault("neighbours", 1 if seen.atoms else min(NEIGHBOURS, most))
    length = 1 + min(tokens["samples"] or most, most)
    told = f"{length - 1} of them are" if tokens["samples"] else "each is"
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown} → task {task}, {told} a token with "
        f"{tokens['neighbours']} neighbours, itself included ({why})"
    )
    second = size_model(model, train, task, seen, length)
    return result, [first, second]


def size_model(
    model: dict[str, Any], train: dict[str, Any], task: str, seen: Looked, length: int
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, task, "points").Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in SIZES if seen.records < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    if seen.dimensions == 3 and not train.get("rotate"):
        model.setdefault("preset", "molecule" if seen.atoms else "invariant")
    if seen.atoms:
        dropout = 0.0
        if task != "value" and model.get("preset") == "molecule":
            model.setdefault("pooling", "mean")
    model.setdefault("dropout", dropout)
    if task == "label":
        train.setdefault("label_smoothing", 0.1)
    usual = {} if seen.atoms else CHANGES if seen.dimensions == 3 else FLAT
    if not any(key in train for key in CHANGES):
        train |= {key: x for key, x in usual.items() if key != "drop" or task != "position-label"}
    tokens = max(WHOLE, MANY * length)
    if "batch_tokens" not in train:
        train["batch_tokens"] = tokens * (4 if gpu and seen.records > 5_000 else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = (
        "as asked" if given else f"{n_layers} × {d_model}, for {seen.records:,} clouds and {where}"
    )
    turned = "" if model.get("preset", "modern") == "modern" else ", which sees no rotation"
    changed = ", ".join(f"{key} {train[key]:g}" for key in CHANGES if train.get(key))
    return (
        f"model: {name} {sized}{turned}, at most {length} tokens each; clouds changed by "
        f"{changed or 'nothing'}"
    )
