"""Matrices as colour: heat maps, masks, and the attention of every head of every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .component import Component, choice, matrix, pack, pack_weights, same_length

SCALES = ("sequential", "weights", "logarithmic", "diverging", "mask")


@dataclass(frozen=True, eq=False)
class Heatmap(Component):
    """A matrix (R, C) with a label per row and column; values that are not finite are hatched.

    `weights` has the colours of attention: the square root, from 0 to 1. `logarithmic` is for
    counts: colours follow log(1 + n), and 0 is hatched too. `diverging` centres its colours on
    zero; `mask` has two, for zero and for the rest. `marks` are (row, column) of outlined cells.
    """

    kind: ClassVar[str] = "heatmap"
    values: ArrayLike
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    scale: str = "sequential"
    unit: str = ""
    marks: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        choice("scale", self.scale, SCALES)
        array = matrix("values", self.values, 2)
        object.__setattr__(self, "values", array)
        same_length("rows", len(self.rows), "row of values", array.shape[0])
        same_length("columns", len(self.columns), "column of values", array.shape[1])
        if self.scale == "logarithmic" and (array < 0).any():
            raise ValueError(f"logarithmic values must be at least 0, got {array.min()}")
        if self.scale == "weights" and not (array.min() >= -1e-6 and array.max() <= 1 + 1e-3):
            raise ValueError(f"weights must lie in [0, 1], got {array.min()} to {array.max()}")
        for row, column in self.marks:
            if not (0 <= row < array.shape[0] and 0 <= column < array.shape[1]):
                raise ValueError(f"marks must lie in values {array.shape}, got {(row, column)}")

    def array(self) -> NDArray[np.float64]:
        """The values, (R, C)."""
        return np.asarray(self.values, dtype=np.float64)

    def data(self) -> dict[str, Any]:
        """The packed matrix and its labels."""
        return {
            "title": self.title,
            "values": pack(self.array()),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "scale": self.scale,
            "unit": self.unit,
            "marks": [list(mark) for mark in self.marks],
        }


@dataclass(frozen=True, eq=False)
class Mask(Component):
    """Who may look at whom: boolean (T, S), True = may attend, queries down and keys across."""

    kind: ClassVar[str] = "heatmap"  # the same renderer with two colours
    mask: ArrayLike
    queries: Sequence[str]
    keys: Sequence[str] = ()
    title: str = ""

    def __post_init__(self) -> None:
        if np.asarray(self.mask).dtype != np.bool_:
            dtype = np.asarray(self.mask).dtype
            raise ValueError(f"mask must be boolean (True = may attend), got {dtype}")
        self.heatmap()

    def heatmap(self) -> Heatmap:
        """The mask as a heat map with the scale "mask"."""
        keys = self.keys or self.queries
        return Heatmap(self.mask, self.queries, keys, title=self.title, scale="mask")

    def data(self) -> dict[str, Any]:
        """The data of that heat map."""
        return self.heatmap().data()


@dataclass(frozen=True, eq=False)
class Attention(Component):
    """Attention weights (L, H, T, S): all heads small, and one of them large as map or arcs.

    `tokens` names the T queries and `sources` the S keys (the same tokens when empty). A row sums
    to one, or to zero where a query may look nowhere; only the range [0, 1] is checked here.
    `scores` (L, H, T, S), where given, are what the softmax made the weights of, and stand beside
    them; a score that is not finite is one that the mask hides. `chosen`, a layer and a head, is
    the one that is large at first.
    """

    kind: ClassVar[str] = "attention"
    weights: ArrayLike
    tokens: Sequence[str]
    sources: Sequence[str] = ()
    layers: Sequence[str] = ()
    title: str = ""
    scores: ArrayLike | None = None
    score_name: str = "score"
    chosen: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        array = matrix("weights", self.weights, 4)
        if not (np.isfinite(array).all() and array.min() >= -1e-6 and array.max() <= 1 + 1e-3):
            raise ValueError(
                f"weights must lie in [0, 1], got values from {array.min()} to {array.max()}"
            )
        object.__setattr__(self, "weights", np.clip(array, 0.0, 1.0))
        same_length("tokens", len(self.tokens), "query", array.shape[2])
        same_length("sources", len(self.keys()), "key", array.shape[3])
        if self.scores is not None and np.shape(self.scores) != array.shape:
            raise ValueError(
                f"scores must have the shape of weights, {array.shape}, got {np.shape(self.scores)}"
            )
        if self.layers:
            same_length("layers", len(self.layers), "layer", array.shape[0])
        if not all(0 <= i < n for i, n in zip(self.chosen, array.shape, strict=False)):
            raise ValueError(
                f"chosen must be a layer and a head of weights {array.shape}, got {self.chosen}"
            )

    def array(self) -> NDArray[np.float64]:
        """The weights, (L, H, T, S)."""
        return np.asarray(self.weights, dtype=np.float64)

    def keys(self) -> list[str]:
        """The tokens looked at."""
        return list(self.sources or self.tokens)

    def layer_names(self) -> list[str]:
        """One name per layer, numbered from 1 when none were given."""
        return list(self.layers) or [f"layer {i + 1}" for i in range(self.array().shape[0])]

    def data(self) -> dict[str, Any]:
        """The packed weights and the tokens."""
        return {
            "title": self.title,
            "weights": pack_weights(self.array()),
            "tokens": list(self.tokens),
            "sources": self.keys(),
            "layers": self.layer_names(),
            "scores": None if self.scores is None else pack(matrix("scores", self.scores, 4)),
            "score_name": self.score_name,
            "chosen": list(self.chosen),
        }
