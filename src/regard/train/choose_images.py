"""Choosing for a user who gave pictures: patches, size, regularisation, and why."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
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

    def add(self, images: Sequence[Any]) -> None:
        """Look at more."""
        self.sizes |= {image.shape[:2] for image in images}
        self.channels = images[0].shape[2]
        self.records += len(images)

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
        seen.add(chunk.texts)
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
    tokens["kind"] = "patches"
    patches, length = cut(tokens, seen)
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown} → task {result['task']}, {patches}"
    )
    return result, [first, size_model(model, train, result["task"], seen, length)]


def cut(tokens: dict[str, Any], seen: Looked) -> tuple[str, int]:
    """Fill in the side of patches where it is open; what they are, and how many tokens that is."""
    why = "as asked" if tokens.get("patch") else "by their size"
    side = next((own for most, own in SIDES if seen.least <= most), LARGE)
    side = tokens["patch"] = tokens.get("patch") or side
    rows, columns = (max(-(-size[i] // side) for size in seen.sizes) for i in range(2))
    return f"{rows} × {columns} patches of {side} × {side} ({why})", rows * columns + 1


def where() -> str:
    """What it will be trained on, in words."""
    return "a GPU" if torch.cuda.is_available() else f"{os.cpu_count() or 1} CPU cores"


def sized(model: dict[str, Any], seen: Looked) -> tuple[int, int, str]:
    """Fill in depth, width and dropout where they are open: layers, width, and what they are for;
    nothing where they were asked for.
    """
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in SIZES if seen.records < most)
    n_layers, d_model, dropout = large if torch.cuda.is_available() else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    model.setdefault("dropout", dropout)
    return n_layers, d_model, "" if given else f", for {seen.records:,} images and {where()}"


def size_model(
    model: dict[str, Any], train: dict[str, Any], task: str, seen: Looked, length: int
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name = model["name"]
    fields = family(name, task, "patches").Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    n_layers, d_model, words = sized(model, seen)
    shape = f"{n_layers} × {d_model}{words}" if words else "as asked"
    if task == "label":
        train.setdefault("label_smoothing", 0.1)
    if not any(key in train for key in CHANGES):
        train |= CHANGES
    tokens = max(WHOLE, MANY * length)
    if "batch_tokens" not in train:
        many = torch.cuda.is_available() and seen.records > 5_000
        train["batch_tokens"] = tokens * (4 if many else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
    changed = ", ".join(f"{key} {train[key]:g}" for key in CHANGES if train.get(key))
    return f"model: {name} {shape}, {length} tokens each; images changed by {changed or 'nothing'}"
