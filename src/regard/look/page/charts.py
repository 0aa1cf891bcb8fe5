"""Charts of numbers: lines with bands, bars with intervals, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from .component import Component, cell, escape, number, numbers, same_length
from .prose import Table

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
