"""Choosing for a user who gave pictures: patches, size, regularisation, and why."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.data.pictures import Pictures
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.tokens.patches import LARGE, SIDES

LOOKED = 20_000  # pictures looked at
# Up to so many pictures: (layers, width, dropout), on a CPU and on a GPU.
SIZES = (
    (500, (2, 64, 0.1), (2, 64, 0.1)),
    (5_000, (4, 64, 0.1), (4, 128, 0.1)),
    (50_000, (4, 96, 0.1), (6, 192, 0.1)),
    (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
)
# What pictures are changed by in training, where nothing is said: it helps wherever data are few,
# and mirrors nothing, since letters and digits are not what they are in a mirror.
CHANGES = {"shift": 0.1, "rotate": 10.0, "zoom": 0.1}
WHOLE = 2048  # tokens of a step, at least
MANY = 64  # pictures of a step, about


@dataclass
class Looked:
    """What the first pictures are like."""

    records: int = 0
    sizes: set[tuple[int, int]] = field(default_factory=set)
    channels: int = 1
    whole: bool = True  # was that all?

    @property
    def least(self) -> int:
        """Pixels of the shortest side."""
        return min(min(size) for size in self.sizes)

    @property
    def shown(self) -> str:
        """Their size in words."""
        colour = {1: "grey", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        tall, wide = (max(size[i] for size in self.sizes) for i in range(2))
        return f"{'' if len(self.sizes) == 1 else 'up to '}{tall} × {wide} pixels, {colour}"


def look(source: Pictures) -> Looked:
    """The first pictures."""
    seen = Looked()
    for chunk in source.examples():
        images: Any = chunk.texts
        seen.sizes |= {image.shape[:2] for image in images}
        seen.channels = images[0].shape[2]
        seen.records += len(images)
        if seen.records >= LOOKED:
            seen.whole = False
            break
    return seen


def choose_images(result: dict[str, Any], source: Pictures) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    seen = look(source)
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    why = "as asked" if tokens.get("patch") else "by their size"
    tokens["kind"] = "patches"
    side = next((own for most, own in SIDES if seen.least <= most), LARGE)
    side = tokens["patch"] = tokens.get("patch") or side
    rows, columns = (max(-(-size[i] // side) for size in seen.sizes) for i in range(2))
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown} → task {result['task']}, {rows} × {columns} patches of "
        f"{side} × {side} ({why})"
    )
    second = size_model(model, train, result["task"], seen, rows * columns + 1)
    return result, [first, second]


def size_model(
    model: dict[str, Any], train: dict[str, Any], task: str, seen: Looked, length: int
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, task, "patches").Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in SIZES if seen.records < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    model.setdefault("dropout", dropout)
    if task == "label":
        train.setdefault("label_smoothing", 0.1)
    if not any(key in train for key in CHANGES):
        train |= CHANGES
    tokens = max(WHOLE, MANY * length)
    if "batch_tokens" not in train:
        train["batch_tokens"] = tokens * (4 if gpu and seen.records > 5_000 else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = (
        "as asked" if given else f"{n_layers} × {d_model}, for {seen.records:,} images and {where}"
    )
    changed = ", ".join(f"{key} {train[key]:g}" for key in CHANGES if train.get(key))
    return f"model: {name} {sized}, {length} tokens each; images changed by {changed or 'nothing'}"
