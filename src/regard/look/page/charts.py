"""Charts of numbers: lines with bands, bars with intervals, histograms.

Points in the plane.

Matrices as colour: heat maps, masks, and the attention of every head of every layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.look.page.component import (
    Component,
    cell,
    choice,
    escape,
    matrix,
    number,
    numbers,
    pack,
    pack_weights,
    same_length,
)
from regard.look.page.prose import Table

Band = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, eq=False)
class Lines(Component):
    """Curves: `series` holds (name, xs, ys); `bands` maps a name to its (low, high) around ys.

    A value that is not finite, or not positive on a logarithmic axis, leaves a gap; the chart
    says how many. `x_ticks` are marked instead of round numbers; `levels` are named dashed lines;
    `dots` names series that are points without a line between them.
    """

    kind: ClassVar[str] = "lines"
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]]
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    bands: Mapping[str, Band] = field(default_factory=dict)
    x_ticks: Sequence[float] = ()
    levels: Mapping[str, float] = field(default_factory=dict)
    dots: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError("series must hold at least one (name, xs, ys), got none")
        lengths = {name: len(xs) for name, xs, _ in self.series}
        if len(lengths) != len(self.series):
            raise ValueError(f"series must have different names, got {[s[0] for s in self.series]}")
        for name, xs, ys in self.series:
            same_length(f"ys of {name!r}", len(ys), "x", len(xs))
        for name in self.dots:
            if name not in lengths:
                raise ValueError(f"dots must name a series of {sorted(lengths)}, got {name!r}")
        for name, (low, high) in self.bands.items():
            if name not in lengths:
                raise ValueError(f"bands must name a series of {sorted(lengths)}, got {name!r}")
            same_length(f"low of {name!r}", len(low), "x", lengths[name])
            same_length(f"high of {name!r}", len(high), "x", lengths[name])

    def data(self) -> dict[str, Any]:
        """The series with their bands and the axes."""
        series = []
        for name, xs, ys in self.series:
            item = {"name": name, "x": numbers(xs), "y": numbers(ys)}
            if name in self.bands:
                low, high = self.bands[name]
                item |= {"low": numbers(low), "high": numbers(high)}
            series.append(item)
        axes = {"x_label": self.x_label, "y_label": self.y_label}
        return {
            "title": self.title,
            "series": series,
            **axes,
            "log_x": self.log_x,
            "log_y": self.log_y,
            "x_ticks": numbers(self.x_ticks),
            "dots": list(self.dots),
            "levels": [[name, number(value)] for name, value in self.levels.items()],
        }


@dataclass(frozen=True, eq=False)
class Bars(Component):
    """One bar per label, with optional intervals (`low`, `high`) and one highlighted bar set."""

    kind: ClassVar[str] = "bars"
    labels: Sequence[str]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    title: str = ""
    unit: str = ""
    highlight: Sequence[int] = ()

    def __post_init__(self) -> None:
        same_length("values", len(self.values), "label", len(self.labels))
        if len(self.low) != len(self.high):
            raise ValueError(
                f"give low and high together, got {len(self.low)} and {len(self.high)}"
            )
        if len(self.low):
            same_length("low", len(self.low), "label", len(self.labels))
        for i in self.highlight:
            if not 0 <= i < len(self.labels):
                raise ValueError(f"highlight must name bars 0 to {len(self.labels) - 1}, got {i}")

    def data(self) -> dict[str, Any]:
        """Labels, values, intervals."""
        return {
            "title": self.title,
            "labels": list(self.labels),
            "values": numbers(self.values),
            "low": numbers(self.low),
            "high": numbers(self.high),
            "unit": self.unit,
            "highlight": list(self.highlight),
        }

    def fallback(self) -> str:
        """The bars as a table."""
        columns, rows = ["", self.unit or "value"], [self.labels, self.values]
        if len(self.low):
            columns, rows = [*columns, "low", "high"], [*rows, self.low, self.high]
        return Table(columns, list(zip(*rows, strict=True)), title=self.title).fallback()


@dataclass(frozen=True, eq=False)
class Histogram(Component):
    """Counts between consecutive edges: one more edge than counts, edges increasing."""

    kind: ClassVar[str] = "histogram"
    edges: Sequence[float]
    counts: Sequence[float]
    title: str = ""
    x_label: str = ""
    y_label: str = "count"

    def __post_init__(self) -> None:
        same_length("edges", len(self.edges), "count, and one more", len(self.counts) + 1)
        edges = np.asarray(self.edges, dtype=np.float64)
        if len(edges) < 2 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise ValueError(f"edges must be finite and increase, got {list(self.edges)[:8]}")
        if not all(0 <= count < float("inf") for count in self.counts):
            raise ValueError("counts must be finite and at least 0")

    def data(self) -> dict[str, Any]:
        """Edges, counts and axis labels."""
        return {
            "title": self.title,
            "edges": numbers(self.edges),
            "counts": numbers(self.counts),
            "x_label": self.x_label,
            "y_label": self.y_label,
        }

    def fallback(self) -> str:
        """The counts in words."""
        low, high = cell(number(self.edges[0])), cell(number(self.edges[-1]))
        words = f"{self.title or 'Histogram'}: {cell(sum(self.counts))} between {low} and {high}."
        return f"<p>{escape(words)}</p>"


@dataclass(frozen=True, eq=False)
class Scatter(Component):
    """Points (N, 2), coloured by the group or by the value that each has, if they have either.

    `texts` say what each point is. `marks` name points that stand out, by their number. With
    `diagonal`, where both coordinates are equal is drawn as a line.
    """

    kind: ClassVar[str] = "scatter"
    points: ArrayLike
    texts: Sequence[str] = ()
    groups: Sequence[str] = ()
    values: Sequence[float] = ()
    marks: Mapping[int, str] = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    unit: str = ""
    diagonal: bool = False

    def __post_init__(self) -> None:
        array = matrix("points", self.points, 2)
        if array.shape[1] != 2 or not np.isfinite(array).all():
            raise ValueError(f"points must be finite and (N, 2), got shape {array.shape}")
        object.__setattr__(self, "points", array)
        if self.groups and len(self.values):
            raise ValueError("give either groups or values, got both")
        for name in ("texts", "groups", "values"):
            if len(getattr(self, name)):
                same_length(name, len(getattr(self, name)), "point", len(array))
        for i in self.marks:
            if not 0 <= i < len(array):
                raise ValueError(f"marks must name points 0 to {len(array) - 1}, got {i}")

    def array(self) -> NDArray[np.float64]:
        """The points, (N, 2)."""
        return np.asarray(self.points, dtype=np.float64)

    def names(self) -> list[str]:
        """The different groups, the most frequent first."""
        return [name for name, _ in Counter(self.groups).most_common()]

    def data(self) -> dict[str, Any]:
        """Coordinates, the number of each point's group or its value, and what they are."""
        places = {name: i for i, name in enumerate(self.names())}
        return {
            "title": self.title,
            "x": numbers(self.array()[:, 0]),
            "y": numbers(self.array()[:, 1]),
            "texts": list(self.texts),
            "groups": [places[name] for name in self.groups],
            "names": list(places),
            "values": numbers(self.values),
            "marks": [[i, name] for i, name in self.marks.items()],
            "x_label": self.x_label,
            "y_label": self.y_label,
            "unit": self.unit,
            "diagonal": self.diagonal,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Projector(Component):
    """Words as points that can be searched and chosen; a chosen one shows its neighbours.

    `planes` are ways to lay the same first N of the `words` out, (N, 2) each, with labels of their
    `axes` where these mean something; `groups` colour them. Of the first L words `near` has the
    numbers of the nearest ones, nearest first, and `similarities` how near they are. `chosen` is
    the one that is shown at first.
    """

    kind: ClassVar[str] = "projector"
    words: Sequence[str]
    planes: Mapping[str, ArrayLike]
    groups: Sequence[str]
    near: Sequence[Sequence[int]]
    similarities: Sequence[Sequence[float]]
    axes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    chosen: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        same_length("similarities", len(self.similarities), "row of near", len(self.near))
        for row, others in enumerate(self.near):
            same_length("similarities", len(self.similarities[row]), "neighbour", len(others))
            if any(not 0 <= i < len(self.words) for i in others):
                raise ValueError(f"near must name words 0 to {len(self.words) - 1}, got {others}")
        if not 0 <= self.chosen < len(self.near):
            raise ValueError(f"chosen must be a word of near, 0 to {len(self.near) - 1}")
        if not self.planes:
            raise ValueError("planes must hold one at least")

    def scatters(self) -> dict[str, Scatter]:
        """Each plane as points, the chosen word and its neighbours marked."""
        marks = [i for i in self.near[self.chosen] if i < len(self.groups)]
        own = [self.chosen] if self.chosen < len(self.groups) else []
        found = {}
        for name, points in self.planes.items():
            x_label, y_label = self.axes.get(name, ("", ""))
            found[name] = Scatter(
                points,
                texts=list(self.words[: len(self.groups)]),
                groups=self.groups,
                marks={i: self.words[i] for i in [*marks[::-1], *own]},
                x_label=x_label,
                y_label=y_label,
                title=name,
            )
        return found

    def data(self) -> dict[str, Any]:
        """The words, what is near which, and each plane as points."""
        return {
            "title": self.title,
            "words": list(self.words),
            "near": [list(map(int, others)) for others in self.near],
            "similarities": [numbers(row) for row in self.similarities],
            "planes": [one.data() for one in self.scatters().values()],
            "chosen": self.chosen,
        }


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
class MaskMap(Component):
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
class AttentionMaps(Component):
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
