"""Charts: curves, bars, histograms, points, heat maps, attention, and maps over images and point
clouds.
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
    as_array,
    as_weights,
    cell,
    check_choice,
    check_indices,
    check_length,
    encode_bytes,
    escape,
    number,
    numbers,
    pack,
    pack_weights,
)
from regard.look.page.document import Table

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
            check_length(f"ys of {name!r}", len(ys), "x", len(xs))
        for what, names in (("dots", self.dots), ("bands", self.bands)):
            for name in names:
                if name not in lengths:
                    raise ValueError(
                        f"{what} must name a series of {sorted(lengths)}, got {name!r}"
                    )
        for name, (low, high) in self.bands.items():
            check_length(f"low of {name!r}", len(low), "x", lengths[name])
            check_length(f"high of {name!r}", len(high), "x", lengths[name])

    def data(self) -> dict[str, Any]:
        series = []
        for name, xs, ys in self.series:
            item = {"name": name, "x": numbers(xs), "y": numbers(ys)}
            if name in self.bands:
                low, high = self.bands[name]
                item |= {"low": numbers(low), "high": numbers(high)}
            series.append(item)
        return self.fields("series", "bands") | {"series": series}


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
        check_length("values", len(self.values), "label", len(self.labels))
        if len(self.low) != len(self.high):
            raise ValueError(
                f"give low and high together, got {len(self.low)} and {len(self.high)}"
            )
        if len(self.low):
            check_length("low", len(self.low), "label", len(self.labels))
        check_indices("highlight", "bars", self.highlight, len(self.labels))

    def fallback(self) -> str:
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
        check_length("edges", len(self.edges), "count, and one more", len(self.counts) + 1)
        edges = np.asarray(self.edges, dtype=np.float64)
        if len(edges) < 2 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise ValueError(f"edges must be finite and increase, got {list(self.edges)[:8]}")
        if not all(0 <= count < float("inf") for count in self.counts):
            raise ValueError("counts must be finite and at least 0")

    def fallback(self) -> str:
        low, high = cell(number(self.edges[0])), cell(number(self.edges[-1]))
        words = f"{self.title or 'Histogram'}: {cell(sum(self.counts))} between {low} and {high}."
        return f"<p>{escape(words)}</p>"


@dataclass(frozen=True, eq=False)
class Scatter(Component):
    """Points (N, 2), coloured by their `groups` or by their `values`, if given.

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
        array = as_array("points", self.points, 2)
        if array.shape[1] != 2 or not np.isfinite(array).all():
            raise ValueError(f"points must be finite and (N, 2), got shape {array.shape}")
        object.__setattr__(self, "points", array)
        if self.groups and len(self.values):
            raise ValueError("give either groups or values, got both")
        for name in ("texts", "groups", "values"):
            if len(getattr(self, name)):
                check_length(name, len(getattr(self, name)), "point", len(array))
        check_indices("marks", "points", self.marks, len(array))

    def array(self) -> NDArray[np.float64]:
        """Return the points, (N, 2)."""
        return np.asarray(self.points, dtype=np.float64)

    def names(self) -> list[str]:
        """Return the different groups, the most frequent first."""
        return [name for name, _ in Counter(self.groups).most_common()]

    def data(self) -> dict[str, Any]:
        numbered = {name: i for i, name in enumerate(self.names())}
        x, y = self.array().T
        return self.fields("points") | {
            "x": numbers(x),
            "y": numbers(y),
            "groups": [numbered[name] for name in self.groups],
            "names": list(numbered),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Projector(Component):
    """Words as points that can be searched and chosen; a chosen one shows its neighbours.

    `planes` are layouts of the same first N of the `words`, (N, 2) each, with labels of their
    `axes` where these mean something; `groups` colour them. For the first L words, `neighbours` has
    the indices of the nearest words, nearest first, and `similarities` how similar they are.
    `chosen` is selected when the page opens.
    """

    kind: ClassVar[str] = "projector"
    words: Sequence[str]
    planes: Mapping[str, ArrayLike]
    groups: Sequence[str]
    neighbours: Sequence[Sequence[int]]
    similarities: Sequence[Sequence[float]]
    axes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    chosen: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        check_length(
            "similarities", len(self.similarities), "row of neighbours", len(self.neighbours)
        )
        for row, others in enumerate(self.neighbours):
            check_length("similarities", len(self.similarities[row]), "neighbour", len(others))
            check_indices("neighbours", "words", others, len(self.words))
        if not 0 <= self.chosen < len(self.neighbours):
            raise ValueError(
                f"chosen must be a word with neighbours, 0 to {len(self.neighbours) - 1}"
            )
        if not self.planes:
            raise ValueError("planes must hold one at least")

    def scatters(self) -> dict[str, Scatter]:
        """Return each plane as points, with the chosen word and its neighbours marked."""
        marked = [
            i for i in [*self.neighbours[self.chosen][::-1], self.chosen] if i < len(self.groups)
        ]
        scatters = {}
        for name, points in self.planes.items():
            x_label, y_label = self.axes.get(name, ("", ""))
            scatters[name] = Scatter(
                points,
                texts=list(self.words[: len(self.groups)]),
                groups=self.groups,
                marks={i: self.words[i] for i in marked},
                x_label=x_label,
                y_label=y_label,
                title=name,
            )
        return scatters

    def data(self) -> dict[str, Any]:
        planes = [scatter.data() for scatter in self.scatters().values()]
        return self.fields("planes", "groups", "axes") | {"planes": planes}


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
        check_choice("scale", self.scale, SCALES)
        array = as_array("values", self.values, 2)
        object.__setattr__(self, "values", array)
        check_length("rows", len(self.rows), "row of values", array.shape[0])
        check_length("columns", len(self.columns), "column of values", array.shape[1])
        if self.scale == "logarithmic" and (array < 0).any():
            raise ValueError(f"logarithmic values must be at least 0, got {array.min()}")
        if self.scale == "weights":
            as_weights(array)
        for row, column in self.marks:
            if not (0 <= row < array.shape[0] and 0 <= column < array.shape[1]):
                raise ValueError(f"marks must lie in values {array.shape}, got {(row, column)}")

    def array(self) -> NDArray[np.float64]:
        """Return the values, (R, C)."""
        return np.asarray(self.values, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class MaskMap(Component):
    """An attention mask: boolean (T, S), True = may attend, queries down and keys across."""

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
        """Return the mask as a heat map with the scale "mask"."""
        keys = self.keys or self.queries
        return Heatmap(self.mask, self.queries, keys, title=self.title, scale="mask")

    def data(self) -> dict[str, Any]:
        return self.heatmap().data()


@dataclass(frozen=True, eq=False)
class AttentionMaps(Component):
    """Attention weights (L, H, T, S): all heads small, and one of them large as map or arcs.

    `tokens` names the T queries and `sources` the S keys (the same tokens when empty). A row sums
    to one, or to zero where a query may look nowhere; only the range [0, 1] is checked here.
    `scores` (L, H, T, S), where given, are the inputs of the softmax; a score that is not finite is
    masked. `chosen`, a layer and a head, is shown large at first.
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
        array = as_array("weights", self.weights, 4)
        object.__setattr__(self, "weights", as_weights(array))
        check_length("tokens", len(self.tokens), "query", array.shape[2])
        check_length("sources", len(self.keys()), "key", array.shape[3])
        if self.scores is not None and np.shape(self.scores) != array.shape:
            raise ValueError(
                f"scores must have the shape of weights, {array.shape}, got {np.shape(self.scores)}"
            )
        if self.layers:
            check_length("layers", len(self.layers), "layer", array.shape[0])
        if not all(0 <= i < n for i, n in zip(self.chosen, array.shape, strict=False)):
            raise ValueError(
                f"chosen must be a layer and a head of weights {array.shape}, got {self.chosen}"
            )

    def array(self) -> NDArray[np.float64]:
        """Return the weights, (L, H, T, S)."""
        return np.asarray(self.weights, dtype=np.float64)

    def keys(self) -> list[str]:
        """Return the names of the keys."""
        return list(self.sources or self.tokens)

    def layer_names(self) -> list[str]:
        """Return one name per layer, numbered from 1 when none were given."""
        return list(self.layers) or [f"layer {i + 1}" for i in range(self.array().shape[0])]

    def data(self) -> dict[str, Any]:
        return self.fields("weights", "scores") | {
            "weights": pack_weights(self.array()),
            "sources": self.keys(),
            "layers": self.layer_names(),
            "scores": None if self.scores is None else pack(as_array("scores", self.scores, 4)),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenMaps(Component):
    """M maps over the N tokens of one item, such as the patches of an image.

    `maps` (M, Q, N): each has one value per token (Q = 1) or, for every token that can be chosen,
    one for each other. With one row more than tokens, the first row is that of `<S>`; `aside`
    (M, Q), if given, is the value of `<S>` in each row. Small maps stand in rows of `across`. The
    scale is "weights", from 0 to 1, or "diverging".
    """

    maps: ArrayLike
    names: Sequence[str]
    title: str = ""
    unit: str = "weight"
    scale: str = "weights"
    across: int = 0
    aside: ArrayLike | None = None

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, ("weights", "diverging"))
        array = as_array("maps", self.maps, 3)
        count = array.shape[2]
        check_length("names", len(self.names), "map", array.shape[0])
        if array.shape[1] not in (1, count, count + 1):
            raise ValueError(f"maps must have 1, {count} or {count + 1} rows, got {array.shape[1]}")
        if self.aside is not None and np.shape(self.aside) != array.shape[:2]:
            raise ValueError(f"aside must be {array.shape[:2]}, got {np.shape(self.aside)}")
        if self.scale == "weights":
            object.__setattr__(self, "maps", as_weights(array))

    def array(self) -> NDArray[np.float64]:
        """Return the maps, (M, Q, N)."""
        return np.asarray(self.maps, dtype=np.float64)

    def data(self) -> dict[str, Any]:
        return self.fields("maps", "aside", "pixels", "points") | {
            "maps": (pack_weights if self.scale == "weights" else pack)(self.array()),
            "across": self.across or len(self.names),
            "aside": None if self.aside is None else pack(np.asarray(self.aside, np.float64)),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageMaps(TokenMaps):
    """Maps over the rows × columns patches (`grid`) of an image of bytes (height, width, C).

    A chosen patch `verb` those of its map. `columns`, if given, names each column of small maps.
    """

    kind: ClassVar[str] = "image-maps"
    pixels: ArrayLike
    grid: tuple[int, int]
    verb: str = "looks at"
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        image = np.asarray(self.pixels)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
            raise ValueError(f"pixels must be bytes of 1 or 3 channels, got {image.shape}")
        TokenMaps.__post_init__(self)
        check_length("maps", self.array().shape[2], "patch", self.grid[0] * self.grid[1])
        if self.columns:
            check_length("columns", len(self.columns), "map across", self.across or len(self.names))

    def image(self) -> NDArray[np.uint8]:
        """Return the pixels, (height, width, C)."""
        return np.ascontiguousarray(self.pixels, dtype=np.uint8)

    def data(self) -> dict[str, Any]:
        image = self.image()
        return TokenMaps.data(self) | {"pixels": encode_bytes(image), "size": list(image.shape)}


@dataclass(frozen=True, eq=False, kw_only=True)
class PointMaps(TokenMaps):
    """Maps over the tokens of a point cloud: `points` (P, 3), each of the token in `owners`.

    `kinds`, if given, says what each point is.
    """

    kind: ClassVar[str] = "point-maps"
    points: ArrayLike
    owners: Sequence[int]
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        points = as_array("points", self.points, 2)
        if points.shape[1] != 3:
            raise ValueError(f"points must be (P, 3), got {points.shape}")
        TokenMaps.__post_init__(self)
        check_length("owners", len(self.owners), "point", len(points))
        check_indices("owners", "tokens", self.owners, self.array().shape[2])
        if self.kinds:
            check_length("kinds", len(self.kinds), "point", len(points))

    def data(self) -> dict[str, Any]:
        return TokenMaps.data(self) | {"points": pack(np.asarray(self.points, np.float64))}
