"""Charts: curves, bars, histograms, points, heat maps, attention, maps over images and point
clouds; and components about tokens: surprise, contributions, tags, next-token distributions,
beam search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.look.page.document import (
    Component,
    Facts,
    Table,
    as_array,
    as_json,
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
    visible,
)

DATES = ((10, 86_400_000), (16, 60_000), (19, 1000), (23, 1))  # characters of ISO dates by units
Band = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, eq=False)
class Lines(Component):
    """Curves: `series` holds (name, xs, ys); `bands` maps a name to its (low, high) around ys.

    A value that is not finite, or not positive on a logarithmic axis, leaves a gap; the chart
    says how many. `x_ticks` are marked instead of round numbers; `levels` are named dashed lines;
    `dots` names series that are points without a line between them, and `areas` those that are
    filled down to 0, a background for the others. Colours of `ordered` series follow a ramp. More
    series than colours are named at their ends.
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
    areas: Sequence[str] = ()
    ordered: bool = False

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError("series must hold at least one (name, xs, ys), got none")
        lengths = {name: len(xs) for name, xs, _ in self.series}
        if len(lengths) != len(self.series):
            raise ValueError(f"series must have different names, got {[s[0] for s in self.series]}")
        for name, xs, ys in self.series:
            check_length(f"ys of {name!r}", len(ys), "x", len(xs))
        for what, names in (("dots", self.dots), ("bands", self.bands), ("areas", self.areas)):
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Forecasts(Component):
    """Forecasts of N windows of time series by several models, one window at a time.

    `forecasts` (R, N, H, C) are those of the R models in `names`, the best first, `history`
    (N, P, C) is what came before, `truth` (N, H, C) what came, of the C `targets`. `times`
    (N, P + H) are numbers or, as datetime64, dates; `labels` names the series of each window, if
    there are several. The first `visible` models are drawn when the page opens.
    """

    kind: ClassVar[str] = "forecasts"
    names: Sequence[str]
    targets: Sequence[str]
    forecasts: ArrayLike
    history: ArrayLike
    truth: ArrayLike
    times: NDArray[Any]
    labels: Sequence[str] = ()
    visible: int = 4
    title: str = ""

    def __post_init__(self) -> None:
        forecasts, history = as_array("forecasts", self.forecasts, 4), np.asarray(self.history)
        rows, windows, horizon, channels = forecasts.shape
        check_length("names", len(self.names), "row of forecasts", rows)
        check_length("targets", len(self.targets), "channel of forecasts", channels)
        if np.shape(self.truth) != (windows, horizon, channels):
            raise ValueError(f"truth must be {forecasts.shape[1:]}, got {np.shape(self.truth)}")
        if history.ndim != 3 or history.shape[::2] != (windows, channels):
            raise ValueError(f"history must be ({windows}, P, {channels}), got {history.shape}")
        if self.times.shape != (windows, history.shape[1] + horizon):
            raise ValueError(f"times must be one for each step, got {self.times.shape}")
        if self.labels:
            check_length("labels", len(self.labels), "window", windows)

    def clock(self) -> dict[str, Any]:
        """Return the times as integers, milliseconds of dates: those of each window, or the first
        of each and the `step` if all are equal; and how many characters of a date are shown.
        """
        dated = self.times.dtype.kind == "M"
        times = self.times.astype("M8[ms]").astype(np.int64) if dated else self.times
        deltas = np.unique(np.diff(times, axis=1))
        even = len(deltas) == 1
        precise = [length for length, unit in DATES if not (times % unit).any()]
        return {
            "times": (times[:, :1] if even else times).tolist(),
            "step": int(deltas[0]) if even else 0,
            "characters": precise[0] if dated else 0,
        }

    def data(self) -> dict[str, Any]:
        arrays = ("forecasts", "history", "truth")
        packed = {name: pack(np.asarray(getattr(self, name), np.float64)) for name in arrays}
        return self.fields("times", *arrays) | packed | self.clock()


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
class Intervals(Component):
    """A dot per label with its interval, on an axis of their own range; infinite values have rows.

    For metrics, which are compared with each other rather than with 0. `highlight` holds the rows
    that stand out, and `better` says which end of the axis is the good one: where a few bad rows
    would press the better half together, the axis is that of the better half at first.
    """

    kind: ClassVar[str] = "intervals"
    labels: Sequence[str]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    title: str = ""
    unit: str = ""
    highlight: Sequence[int] = ()
    better: str = ""

    def __post_init__(self) -> None:
        for name in ("values", "low", "high"):
            check_length(name, len(getattr(self, name)), "label", len(self.labels))
        check_indices("highlight", "rows", self.highlight, len(self.labels))
        check_choice("better", self.better, ("", "less", "more"))

    def axis(self) -> str:
        """Return the label of the axis: the unit, and which end is the good one."""
        return ", ".join(filter(None, (self.unit, self.better and f"{self.better} is better")))

    def data(self) -> dict[str, Any]:
        return self.fields("unit") | {"axis": self.axis()}

    def fallback(self) -> str:
        rows = list(zip(self.labels, self.values, self.low, self.high, strict=True))
        return Table(["", self.unit or "value", "low", "high"], rows, title=self.title).fallback()


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

    `texts` say what each point is. `marks` name points that stand out, by their number. `order`
    names groups in the order of the legend; others follow, the most frequent first. With
    `diagonal`, where both coordinates are equal is drawn as a line. `outline` has the corners of
    what points lie within, (x, y, name).
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
    order: Sequence[str] = ()
    outline: Sequence[tuple[float, float, str]] = ()

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
        """Return the different groups: those of `order`, then others, the most frequent first."""
        return _in_order(self.groups, self.order)

    def data(self) -> dict[str, Any]:
        numbered = {name: i for i, name in enumerate(self.names())}
        x, y = self.array().T
        return self.fields("points", "order") | {
            "x": numbers(x),
            "y": numbers(y),
            "groups": [numbered[name] for name in self.groups],
            "names": list(numbered),
        }


def _in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Return the different names: those of `order`, then others, the most frequent first."""
    counts = Counter(names)
    rest = [name for name, _ in counts.most_common() if name not in order]
    return [name for name in order if name in counts] + rest


@dataclass(frozen=True, eq=False, kw_only=True)
class Projector(Component):
    """Words as points that can be searched and chosen; a chosen one shows its neighbours.

    `planes` are layouts of the same first N of the `words`, (N, 2) each, with labels of their
    `axes` where these mean something; `groups` colour them. For the first L words, `neighbours` has
    the indices of the nearest words, nearest first, and `similarities` how similar they are.
    `chosen` is selected when the page opens, and the `queries` are always named.
    """

    kind: ClassVar[str] = "projector"
    words: Sequence[str]
    planes: Mapping[str, ArrayLike]
    groups: Sequence[str]
    neighbours: Sequence[Sequence[int]]
    similarities: Sequence[Sequence[float]]
    axes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    chosen: int = 0
    queries: Sequence[int] = ()
    title: str = ""

    def __post_init__(self) -> None:
        check_indices("queries", "points", self.queries, len(self.groups))
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


MOST_STORED = 600_000  # attention weights up to which all are on the page, at a byte each
TILED = 260_000  # tiles of larger maps, over all heads


def pack_sparse(weights: NDArray[np.float64]) -> dict[str, Any]:
    """Return weights (L, H, T, S) as the greatest of each tile and the largest few of each row, in
    about as many bytes as MOST_STORED weights.

    A reader knows of any other weight that it is at most its tile and the least stored of its row.
    """
    layers, heads, rows, columns = weights.shape
    side = next((n for n in (128, 64, 32) if layers * heads * n * n <= TILED), 16)
    down, across = min(side, rows), min(side, columns)
    down_of, across_of = (np.arange(n) * m // n for n, m in ((rows, down), (columns, across)))
    first_row, first_column = (np.unique(x, return_index=True)[1] for x in (down_of, across_of))
    tiles = np.maximum.reduceat(np.maximum.reduceat(weights, first_row, 2), first_column, 3)
    count = (MOST_STORED - tiles.size) // (3 * layers * heads * rows)
    count = int(np.clip(count, 2, columns))
    order = np.argsort(-weights, axis=-1, kind="stable")[..., :count]  # (L, H, T, K), falling
    largest = np.take_along_axis(weights, order, -1)
    return {
        "shape": list(weights.shape),
        "tiles": pack_weights(tiles),
        "values": pack_weights(largest),
        "columns": encode_bytes(order.astype("<u2")),
    }


@dataclass(frozen=True, eq=False)
class AttentionMaps(Component):
    """Attention weights (L, H, T, S): all heads small, and one of them large as map or arcs.

    Of more than MOST_STORED weights only the largest of each row and the greatest of each tile are
    stored. `tokens` names the T queries and `sources` the S keys (the same when empty). A row sums
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

    def entropies(self) -> NDArray[np.float64]:
        """Return (L, H): the mean entropy of the rows of each head in bits, without empty rows."""
        weights = self.array()
        mass = weights.sum(-1)  # (L, H, T)
        shares = weights / np.where(mass > 0, mass, 1)[..., None]
        bits = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(-1)
        return np.asarray((bits * (mass > 0)).sum(-1) / np.maximum((mass > 0).sum(-1), 1))

    def data(self) -> dict[str, Any]:
        weights = self.array()
        large = weights.size > MOST_STORED
        return self.fields("weights", "scores") | {
            "weights": (pack_sparse if large else pack_weights)(weights),
            "entropies": numbers(self.entropies().ravel()),
            "sources": self.keys(),
            "layers": self.layer_names(),
            "scores": None if self.scores is None else pack(as_array("scores", self.scores, 4)),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenMaps(Component):
    """M maps over the N tokens of one item, such as the patches of an image.

    `maps` (M, Q, N): each has one value per token (Q = 1) or, for every token that can be chosen,
    one for each other. With one row more than tokens, the first row is that of `<S>`; `aside`
    (M, Q), if given, is the value of `<S>` in each row. Small maps stand in rows of `across`;
    `over` names their columns and `down` their rows. The scale is "weights", from 0 to 1,
    "diverging" or, of images, "sequential" over all of the maps.
    """

    maps: ArrayLike
    names: Sequence[str]
    title: str = ""
    unit: str = "weight"
    scale: str = "weights"
    across: int = 0
    aside: ArrayLike | None = None
    over: Sequence[str] = ()
    down: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, ("weights", "diverging", "sequential"))
        across = self.across or len(self.names)
        if self.over:
            check_length("over", len(self.over), "map across", across)
        if self.down:
            check_length("down", len(self.down), "row of maps", -(-len(self.names) // across))
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
        return self.fields("maps", "aside", "pixels", "points", "values") | {
            "maps": (pack_weights if self.scale == "weights" else pack)(self.array()),
            "across": self.across or len(self.names),
            "aside": None if self.aside is None else pack(np.asarray(self.aside, np.float64)),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageMaps(TokenMaps):
    """Maps over the rows × columns patches (`grid`) of an image of bytes (height, width, C), which
    is drawn beside them; without `pixels`, the maps stand alone.

    A chosen patch `verb` those of its map. With `outlined`, map i belongs to patch i, whose border
    is drawn.
    """

    kind: ClassVar[str] = "image-maps"
    pixels: ArrayLike | None = None
    grid: tuple[int, int]
    verb: str = "looks at"
    outlined: bool = False

    def __post_init__(self) -> None:
        image = self.image()
        if image is not None and (image.ndim != 3 or image.shape[2] not in (1, 3)):
            raise ValueError(f"pixels must be bytes of 1 or 3 channels, got {image.shape}")
        TokenMaps.__post_init__(self)
        check_length("maps", self.array().shape[2], "patch", self.grid[0] * self.grid[1])

    def image(self) -> NDArray[np.uint8] | None:
        """Return the pixels, (height, width, C), if there are any."""
        if self.pixels is None:
            return None
        if np.asarray(self.pixels).dtype != np.uint8:
            raise ValueError(f"pixels must be bytes, got {np.asarray(self.pixels).dtype}")
        return np.ascontiguousarray(self.pixels, dtype=np.uint8)

    def data(self) -> dict[str, Any]:
        image = self.image()
        if image is None:
            return TokenMaps.data(self) | {"pixels": None}
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


@dataclass(frozen=True, eq=False, kw_only=True)
class SeriesMaps(TokenMaps):
    """Maps over the tokens of a series: `values` (C, T), NaN where missing, of `columns`; `owners`
    has the token of each step.
    """

    kind: ClassVar[str] = "series-maps"
    values: ArrayLike
    columns: Sequence[str]
    owners: Sequence[int]

    def __post_init__(self) -> None:
        values = as_array("values", self.values, 2)
        TokenMaps.__post_init__(self)
        check_length("columns", len(self.columns), "row of values", len(values))
        check_length("owners", len(self.owners), "step", values.shape[1])
        check_indices("owners", "tokens", self.owners, self.array().shape[2])

    def data(self) -> dict[str, Any]:
        values = np.asarray(self.values, np.float64)
        return TokenMaps.data(self) | {"values": [numbers(row) for row in values]}


_NODE_KEYS = {"id", "parent", "token", "score", "kept", "finished", "step"}


@dataclass(frozen=True, eq=False)
class Surprise(Component):
    """A text whose tokens are coloured by their bits, −log₂ of the probability a model gave them.

    `rows` holds (model name, bits per token) pairs, which share one colour scale; a token of
    probability 0 has infinite bits, one that was not scored has NaN.
    """

    kind: ClassVar[str] = "surprise"
    unit: ClassVar[str] = "bits"
    least_limit: ClassVar[float] = 1.0  # of the colour scale
    tokens: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    title: str = ""

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("rows must hold at least one (name, bits) pair, got none")
        for name, bits in self.rows:
            check_length(f"bits of {name!r}", len(bits), "token", len(self.tokens))
            negative = [float(b) for b in bits if b < -1e-4]  # float32 rounding
            if negative:
                raise ValueError(f"bits of {name!r} must not be negative, got {negative[0]}")

    def data(self) -> dict[str, Any]:
        rows = [
            {"name": name, "bits": numbers(max(b, 0.0) if b == b else b for b in bits)}
            for name, bits in self.rows
        ]
        return self.fields("rows") | {"rows": rows}


@dataclass(frozen=True, eq=False, kw_only=True)
class Reading(Component):
    """A text as a model reads it: the bits of each token, and what was expected in its place.

    `expected` holds the most probable (token, probability) at each position, falling, and of what
    follows the text if it is longer by one; it is empty where nothing was predicted. `ranks` are
    those of the tokens among all `size`, from 1, 0 where unknown.
    """

    kind: ClassVar[str] = "reading"
    tokens: Sequence[str]
    bits: Sequence[float]
    expected: Sequence[Sequence[tuple[str, float]]]
    ranks: Sequence[int]
    size: int
    title: str = ""

    def __post_init__(self) -> None:
        check_length("bits", len(self.bits), "token", len(self.tokens))
        check_length("ranks", len(self.ranks), "token", len(self.tokens))
        if len(self.expected) - len(self.tokens) not in (0, 1):
            raise ValueError(
                f"expected must have an entry for each of {len(self.tokens)} tokens, and at most "
                f"one more, got {len(self.expected)}"
            )

    def surprise(self) -> Surprise:
        """Return the text without what was expected, as figures draw it."""
        return Surprise(self.tokens, [("", self.bits)], title=self.title)

    def data(self) -> dict[str, Any]:
        names = {name: 0 for row in self.expected for name, _ in row}
        numbered = {name: i for i, name in enumerate(names)}
        rows = [[[numbered[name], round(p, 5)] for name, p in row] for row in self.expected]
        bits = numbers(max(b, 0.0) if b == b else b for b in self.bits)
        return self.fields("bits", "expected") | {
            "bits": bits,
            "names": list(names),
            "expected": rows,
        }


@dataclass(frozen=True, eq=False)
class Ribbons(Component):
    """Two texts, and ribbons from each token of the second to those of the first, as wide as the
    weights (T, S), from 0 to 1. `names` are those of the texts.
    """

    kind: ClassVar[str] = "ribbons"
    source: Sequence[str]
    target: Sequence[str]
    weights: ArrayLike
    names: tuple[str, str] = ("source", "translation")
    title: str = ""

    def __post_init__(self) -> None:
        array = as_weights(as_array("weights", self.weights, 2))
        object.__setattr__(self, "weights", array)
        check_length("target", len(self.target), "row of weights", array.shape[0])
        check_length("source", len(self.source), "column of weights", array.shape[1])

    def heatmap(self) -> Heatmap:
        """Return the weights as a map, as figures draw them."""
        title = self.title
        return Heatmap(self.weights, self.target, self.source, title, "weights", "weight")


@dataclass(frozen=True, eq=False)
class Contributions(Component):
    """A text whose tokens are coloured by what each adds to a score, negative where it lowers it.

    `rows` holds (name, number per token) pairs, in one `unit` and on one scale around zero.
    """

    kind: ClassVar[str] = "surprise"  # the same renderer, with negative colours
    least_limit: ClassVar[float] = 0.0
    tokens: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    title: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("rows must hold at least one (name, numbers) pair, got none")
        for name, values in self.rows:
            check_length(f"numbers of {name!r}", len(values), "token", len(self.tokens))
            if not np.isfinite(values).all():
                raise ValueError(f"numbers of {name!r} must be finite")

    def data(self) -> dict[str, Any]:
        rows = [{"name": name, "bits": numbers(values)} for name, values in self.rows]
        return self.fields("rows") | {"rows": rows, "signed": True}


@dataclass(frozen=True, eq=False)
class Logo(Component):
    """A sequence logo: (W, A) `bits` of each of A `letters` at each position, the tallest on top.

    `colours` are indices into the page's series colours by letter, `most` is the height of the
    axis, and positions are counted from `first`.
    """

    kind: ClassVar[str] = "logo"
    letters: Sequence[str]
    bits: ArrayLike
    colours: Sequence[int]
    most: float
    first: int = 1
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        check_length("letters", len(self.letters), "column of bits", self.array().shape[1])
        check_length("colours", len(self.colours), "letter", len(self.letters))

    def array(self) -> NDArray[np.float64]:
        """Return the bits, (W, A)."""
        return as_array("bits", self.bits, 2)

    def stacks(self, least: float) -> list[list[tuple[str, float, int]]]:
        """Return (letter, bits, colour) of each position from the bottom up, if not smaller."""
        return [
            [
                (self.letters[i], float(row[i]), self.colours[i])
                for i in np.argsort(row, kind="stable")
                if row[i] >= least
            ]
            for row in self.array()
        ]

    def data(self) -> dict[str, Any]:
        stacks = [
            [[letter, number(bits), colour] for letter, bits, colour in stack]
            for stack in self.stacks(0.005 * self.most)
        ]
        return self.fields("letters", "bits", "colours") | {"stacks": stacks}


@dataclass(frozen=True, eq=False)
class Tagged(Component):
    """A text whose tokens have tags, such as the state that emitted each; None is no tag.

    `notes` describe a tag. `order` names tags in the order of the legend; others follow, the most
    frequent first.
    """

    kind: ClassVar[str] = "tagged"
    tokens: Sequence[str]
    tags: Sequence[str | None]
    notes: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    order: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_length("tags", len(self.tags), "token", len(self.tokens))

    def names(self) -> list[str]:
        """Return the different tags: those of `order`, then others, the most frequent first."""
        return _in_order((tag for tag in self.tags if tag is not None), self.order)

    def data(self) -> dict[str, Any]:
        names = self.names()
        numbered: dict[str | None, int] = {name: i for i, name in enumerate(names)} | {None: -1}
        return self.fields("tags", "notes", "order") | {
            "tags": [numbered[tag] for tag in self.tags],
            "names": names,
            "notes": [self.notes.get(name, "") for name in names],
        }

    def fallback(self) -> str:
        pairs = [(visible(t), tag or "–") for t, tag in zip(self.tokens, self.tags, strict=True)]
        return Facts(pairs, title=self.title).fallback()


@dataclass(frozen=True, eq=False)
class Distribution(Component):
    """The next-symbol distribution with sliders for temperature, top-K and top-P.

    They apply in this order: divide the logits by the temperature and normalise; keep the K most
    probable symbols (ties go to the earlier one) and renormalise; of these keep the most probable
    until their sum reaches P, including the one that crosses P. Give either `logits` or
    `probabilities`. `top_k` 0 and `top_p` 1 cut nothing.
    """

    kind: ClassVar[str] = "distribution"
    tokens: Sequence[str]
    logits: ArrayLike | None = None
    probabilities: ArrayLike | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    title: str = ""

    def __post_init__(self) -> None:
        if (self.logits is None) == (self.probabilities is None):
            raise ValueError("give either logits or probabilities, got both or neither")
        check_length("tokens", len(self.tokens), "logit", len(self.scores()))
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if not 0 <= self.top_k <= len(self.tokens):
            raise ValueError(f"top_k must be in 0..{len(self.tokens)}, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    def scores(self) -> NDArray[np.float64]:
        """Return the logits (V,), or the logs of the probabilities; −∞ is probability 0."""
        if self.probabilities is not None:
            probabilities = as_array("probabilities", self.probabilities, 1)
            if not (probabilities >= 0).all() or not 0 < probabilities.sum() < math.inf:
                raise ValueError("probabilities must be finite, at least 0 and not all 0")
            with np.errstate(divide="ignore"):
                return np.log(probabilities)
        assert self.logits is not None
        logits = as_array("logits", self.logits, 1)
        if np.isnan(logits).any() or not math.isfinite(logits.max()):
            raise ValueError("logits must be numbers, at least one of them finite and none +inf")
        return logits

    def cut(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probabilities (V,) after the temperature, and after both cuts."""
        scores = self.scores() / self.temperature
        tempered = np.exp(scores - scores.max())
        tempered /= tempered.sum()
        order = np.argsort(-scores, kind="stable")[: self.top_k or len(scores)]
        order = order[tempered[order] > 0]
        before = np.cumsum(tempered[order]) - tempered[order]
        if self.top_p < 1:
            order = order[before < self.top_p * tempered[order].sum()]
        final = np.zeros_like(tempered)
        final[order] = tempered[order] / tempered[order].sum()
        return tempered, final

    def data(self) -> dict[str, Any]:
        scores = self.scores()
        return self.fields("logits", "probabilities") | {
            "logits": numbers(scores - scores.max()),
            "top_k": int(self.top_k) or len(self.tokens),
        }


@dataclass(frozen=True, eq=False)
class BeamTree(Component):
    """The hypotheses of a beam search as a tree, one column per step.

    A node is a mapping with exactly the keys id, parent (None at the root), token, score
    (cumulative log-probability), kept, finished and step. `best` is the id of the winner; by
    default the kept node of greatest score among the finished ones or, if none finished, among
    those of the last step.
    """

    kind: ClassVar[str] = "beam-tree"
    nodes: Sequence[Mapping[str, Any]]
    best: int | str | None = None
    title: str = ""

    def __post_init__(self) -> None:
        steps: dict[Any, int] = {}
        for node in self.nodes:
            if set(node) != _NODE_KEYS:
                raise ValueError(
                    f"a node must have the keys {sorted(_NODE_KEYS)}, got {sorted(node)}"
                )
            if node["id"] in steps:
                raise ValueError(f"node ids must differ, got {node['id']!r} twice")
            steps[node["id"]] = node["step"]
        for node in self.nodes:
            parent = node["parent"]
            if parent is not None and steps.get(parent, node["step"]) >= node["step"]:
                raise ValueError(
                    f"node {node['id']!r}: parent must be a node of an earlier step, got {parent!r}"
                )
        if not self.nodes or (self.best is not None and self.best not in steps):
            raise ValueError(
                f"best must be the id of a node, got {self.best!r} of {len(steps)} nodes"
            )

    def best_path(self) -> list[Any]:
        """Return the ids from the root to the winner."""
        by_id = {node["id"]: node for node in self.nodes}
        at = self.best if self.best is not None else self._winner()
        path: list[Any] = []
        while at is not None:
            path.append(at)
            at = by_id[at]["parent"]
        return path[::-1]

    def _winner(self) -> Any:
        nodes = [n for n in self.nodes if n["kept"]] or list(self.nodes)
        last = max(n["step"] for n in nodes)
        finalists = [n for n in nodes if n["finished"]] or [n for n in nodes if n["step"] == last]
        return max(finalists, key=lambda n: float(n["score"]))["id"]

    def data(self) -> dict[str, Any]:
        nodes = [{key: as_json(value) for key, value in node.items()} for node in self.nodes]
        return {"title": self.title, "nodes": nodes, "path": as_json(self.best_path())}
