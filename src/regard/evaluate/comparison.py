"""The honest table: models on the same symbols, ranked in pairs, with their cost and a verdict.

Nothing here trains; `rungs` does. A row may stand for several seeds: its figure is their mean, its
spread their standard deviation, and what it is compared by is each unit's mean cost over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from regard.evaluate.report import Figure, Measured, difference, figures

SMALL = 0.01  # a difference below this share of the best figure is not worth much cost

QUALITY = {"bleu": "BLEU", "exact": "exact %"}  # columns of translations


@dataclass(frozen=True, eq=False)
class Row:
    """One model of the table."""

    model: str
    parameters: int
    train_seconds: float
    symbols_per_second: float
    peak_memory_bytes: int
    measured: Measured  # the mean over seeds, unit by unit
    values: tuple[float, ...]  # nats per symbol of each seed
    runs: tuple[Path, ...]
    quality: Mapping[str, Figure] = field(
        default_factory=dict
    )  # of translations: bleu, chrf, exact
    rank: int = 0

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The metrics, by name."""
        return figures(self.measured)

    @property
    def nats(self) -> Figure:
        """Nats per symbol."""
        return self.figures["nats_per_symbol"]

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None of one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """A row of `regard compare --json`."""
        return {
            "model": self.model,
            "metrics": {
                name: figure.to_json() for name, figure in {**self.quality, **self.figures}.items()
            },
            "rank": self.rank,
            "parameters": self.parameters,
            "train_seconds": round(self.train_seconds, 3),
            "symbols_per_second": round(self.symbols_per_second, 1),
            "peak_memory_bytes": self.peak_memory_bytes,
            "seeds": len(self.values),
            "sd_over_seeds": self.spread,
            "runs": [str(run) for run in self.runs],
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """The table, best row first, and what it says."""

    side: str  # what was measured on: test or valid
    symbols: int
    records: int
    rows: tuple[Row, ...]
    verdict: str
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document `regard compare --json` prints."""
        return {
            "side": self.side,
            "symbols": self.symbols,
            "records": self.records,
            "rows": [row.to_json() for row in self.rows],
            "verdict": self.verdict,
            "scaling": {
                model: [{"symbols": n, "nats_per_symbol": nats} for n, nats in curve]
                for model, curve in self.curves.items()
            },
        }

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table as text: columns and rows."""
        columns = ["", "model", "nats per symbol [95%]", "bits"]
        judged = [
            name for name in ("bleu", "exact") if all(name in row.quality for row in self.rows)
        ]
        columns += [QUALITY[name] for name in judged]
        columns += ["parameters", "symbols/s", "trained", "memory"]
        lines = []
        for row in self.rows:
            bits = row.figures["bits_per_symbol"].value
            spread = f" ± {row.spread:.4f}" if row.spread is not None else ""
            lines.append(
                [
                    f"{row.rank}.",
                    row.model,
                    f"{row.nats}{spread}",
                    f"{bits:.3f}" if math.isfinite(bits) else "∞",
                    *(f"{row.quality[name].value:.1f}" for name in judged),
                    f"{row.parameters:,}",
                    f"{row.symbols_per_second:,.0f}",
                    f"{row.train_seconds:,.0f} s",
                    f"{row.peak_memory_bytes / 2**20:,.0f} MB",
                ]
            )
        return columns, lines

    def to_markdown(self) -> str:
        """The table and the verdict as Markdown."""
        columns, lines = self.cells()
        head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        measured = f"{self.symbols:,} symbols of {self.records:,} records ({self.side})"
        return "\n".join(["# Comparison", "", measured, "", *head, *body, "", self.verdict, ""])


def mean(several: Sequence[Measured]) -> Measured:
    """Each unit's mean cost; what one holds impossible stays so."""
    first = several[0]
    nats = np.mean([m.nats for m in several], axis=0)
    return replace(first, nats=nats, impossible=max(m.impossible for m in several))


def ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Best first; a row's rank is one more than the number of rows that are surely better."""
    found = []
    for row in rows:
        better = sum(surely_better(other, row) for other in rows if other is not row)
        found.append(replace(row, rank=1 + better))
    return tuple(sorted(found, key=lambda row: (row.rank, row.nats.value, row.parameters)))


def surely_better(one: Row, other: Row) -> bool:
    """Does the whole 95% interval of the paired difference lie on one's side?"""
    gap = difference(one.measured, other.measured)
    return not math.isnan(gap.value) and gap.high < 0


def verdict(
    rows: Sequence[Row], curves: Mapping[str, Sequence[tuple[int, float]]] | None = None
) -> str:
    """What ranked rows say, in words: which to use, what it costs, whether more data would help."""
    finite = [row for row in rows if math.isfinite(row.nats.value)]
    if not finite:
        return "Every model holds some of the data impossible: none can be recommended."
    told = [winner(finite, len(rows))]
    told += against_attention(finite)
    told += cheaper(finite)
    impossible = [row.model for row in rows if not math.isfinite(row.nats.value)]
    if impossible:
        told.append(
            f"{listed(impossible)} hold{'s' * (len(impossible) == 1)} some of it impossible."
        )
    if curves:
        told += more_data(finite[0].model, curves)
    return " ".join(told)


def winner(rows: Sequence[Row], total: int) -> str:
    """The best row of `total`, or those that cannot be told apart, and which of these to take."""
    best = [row for row in rows if row.rank == 1]
    if len(best) == 1:
        words = f"Use {best[0].model}: {best[0].nats} nats per symbol, the best of {total}"
        if len(rows) == 1:
            return f"{words}."
        second = rows[1]
        gap = difference(second.measured, best[0].measured)
        return f"{words}; {second.model}, the next, is worse by {gap}."
    cheap = min(best, key=lambda row: (row.train_seconds, row.parameters))
    names = listed([row.model for row in best])
    return (
        f"{names} cannot be told apart here (95%): use {cheap.model}, "
        f"the cheapest of them ({cheap.train_seconds:,.0f} s, {cheap.parameters:,} parameters)."
    )


def against_attention(rows: Sequence[Row]) -> list[str]:
    """Where attention loses, that is said."""
    attending = next((row for row in rows if row.model == "transformer"), None)
    if attending is None or attending.rank == 1:
        return []
    gap = difference(attending.measured, rows[0].measured)
    return [f"The transformer is worse by {gap}: on these data attention does not pay."]


def cheaper(rows: Sequence[Row]) -> list[str]:
    """A row that costs a tenth and loses next to nothing."""
    best = rows[0]
    for row in sorted(rows[1:], key=lambda row: row.train_seconds):
        loss = row.nats.value / best.nats.value - 1
        if row.rank > 1 and loss < 5 * SMALL and row.train_seconds < best.train_seconds / 10:
            times = best.train_seconds / max(row.train_seconds, 0.01)
            return [f"{row.model} is {loss:.1%} worse and trains {times:,.0f} times faster."]
    return []


def more_data(model: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> list[str]:
    """What the last doubling of the training data bought the best model."""
    curve = curves.get(model, ())
    if len(curve) < 2:
        return []
    (before, worse), (after, better) = curve[-2], curve[-1]
    doublings = math.log2(after / before)
    gain = (worse - better) / doublings / better
    words = f"The last doubling of the data improved {model} by {gain:.1%}"
    if gain > SMALL:
        return [f"{words}: more data would help."]
    return [f"{words}: more data would hardly help."]


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
