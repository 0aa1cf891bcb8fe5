"""The honest table: models on the same symbols, ranked in pairs, with their cost and a verdict.

Rows are ranked by nats per symbol and, where they translate, by BLEU. Nothing here trains; `rungs`
does. A row may stand for several seeds: its figure is their mean, its spread their standard
deviation, and what it is compared by is each unit's mean cost over seeds.
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
from regard.evaluate.translation import Judged

SMALL = 0.01  # a difference below this share of the best figure is not worth much cost

JUDGED = {"bleu": "BLEU", "chrf": "chrF", "exact": "exact %"}  # columns of translations


@dataclass(frozen=True, eq=False)
class Row:
    """One model of the table."""

    model: str
    parameters: int
    train_seconds: float
    symbols_per_second: float
    peak_memory_bytes: int
    measured: Measured  # the mean over seeds, unit by unit
    values: tuple[float, ...]  # what rows are ranked by, of each seed
    runs: tuple[Path, ...]
    judged: Mapping[str, Judged] = field(default_factory=dict)  # of translations: bleu, chrf, exact
    tokens_per_second: float = 0.0  # of training, as symbols_per_second
    sentences_per_second: float = 0.0  # translated by a beam, where it translates
    epochs: float = 1.0  # how often training went through the data
    rank: int = 0

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The metrics, by name."""
        return {name: one.figure() for name, one in self.judged.items()} | figures(self.measured)

    @property
    def nats(self) -> Figure:
        """Nats per symbol."""
        return self.figures["nats_per_symbol"]

    @property
    def ranked_by(self) -> str:
        """BLEU of translations where it is known, else nats per symbol."""
        return "bleu" if "bleu" in self.judged else "nats_per_symbol"

    @property
    def cost(self) -> float:
        """What rows are sorted by: less is better."""
        value = self.figures[self.ranked_by].value
        return -value if self.ranked_by == "bleu" else value

    @property
    def worth(self) -> str:
        """What the row is ranked by, in words."""
        figure = self.figures[self.ranked_by]
        return f"BLEU {figure}" if self.ranked_by == "bleu" else f"{figure} nats per symbol"

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None of one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def behind(self, other: Row) -> Figure:
        """How far it is behind another row, in pairs: BLEU, or nats per symbol."""
        if self.ranked_by == other.ranked_by == "bleu":
            return other.judged["bleu"].minus(self.judged["bleu"])
        return difference(self.measured, other.measured)

    def to_json(self) -> dict[str, Any]:
        """A row of `regard compare --json`."""
        return {
            "model": self.model,
            "metrics": {name: figure.to_json() for name, figure in self.figures.items()},
            "rank": self.rank,
            "parameters": self.parameters,
            "train_seconds": round(self.train_seconds, 3),
            "symbols_per_second": round(self.symbols_per_second, 1),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "sentences_per_second": round(self.sentences_per_second, 1),
            "epochs": round(self.epochs, 3),
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
    sentences: int = 0  # that were translated: the first of the records

    @property
    def signatures(self) -> dict[str, str]:
        """How translations were judged, by metric; figures of other signatures do not compare."""
        return {name: one.signature for name, one in self.rows[0].judged.items()}

    @property
    def material(self) -> str:
        """What was measured on, in words."""
        whole = f"{self.symbols:,} symbols of {self.records:,} {self.side} records"
        if not self.sentences:
            return whole
        some = "all" if self.sentences == self.records else f"the first {self.sentences:,}"
        return f"{whole}, {some} translated"

    def to_json(self) -> dict[str, Any]:
        """The document `regard compare --json` prints."""
        translated = {"sentences": self.sentences, "signatures": self.signatures}
        return {
            "side": self.side,
            "symbols": self.symbols,
            "records": self.records,
            **(translated if self.sentences else {}),
            "ranked_by": self.rows[0].ranked_by,
            "rows": [row.to_json() for row in self.rows],
            "verdict": self.verdict,
            "scaling": {
                model: [{"symbols": n, "nats_per_symbol": nats} for n, nats in curve]
                for model, curve in self.curves.items()
            },
        }

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table as text: columns and rows."""
        lines = [
            {
                "": f"{row.rank}.",
                "model": row.model,
                **(translated(row) if row.judged else plain(row)),
                "parameters": f"{row.parameters:,}",
                **speeds(row),
                "trained": f"{row.train_seconds:,.0f} s",
                "memory": f"{row.peak_memory_bytes / 2**20:,.0f} MB",
            }
            for row in self.rows
        ]
        return list(lines[0]), [list(line.values()) for line in lines]

    def to_markdown(self) -> str:
        """The table and the verdict as Markdown."""
        columns, lines = self.cells()
        head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        signed = [f"- {name}: `{one}`" for name, one in self.signatures.items()]
        signed = [*signed, ""] if signed else []
        told = ["# Comparison", "", self.material, "", *head, *body, "", self.verdict, "", *signed]
        return "\n".join(told)


def plain(row: Row) -> dict[str, str]:
    """What a language model is like: cells by column."""
    bits = row.figures["bits_per_symbol"].value
    return {
        "nats per symbol [95%]": f"{row.nats}{spread(row, 4)}",
        "bits": f"{bits:.3f}" if math.isfinite(bits) else "∞",
    }


def translated(row: Row) -> dict[str, str]:
    """What a translator is like: cells by column."""
    bits = {
        name: replace(row.figures[f"nats_per_{name}"].scaled(1 / math.log(2)), digits=3)
        for name in ("symbol", "token")
    }
    leads = row.ranked_by == "bleu"
    found = {
        f"{column} [95%]": f"{replace(row.figures[name], digits=1)}"
        + spread(row, 1) * (leads and name == "bleu")
        for name, column in JUDGED.items()
        if name in row.judged
    }
    found["bits/symbol [95%]"] = f"{bits['symbol']}" + spread(row, 3, 1 / math.log(2)) * (not leads)
    found["bits/token"] = f"{bits['token'].value:.3f}" if math.isfinite(row.nats.value) else "∞"
    return found


def speeds(row: Row) -> dict[str, str]:
    """What is done in a second: cells by column."""
    if not row.judged:
        return {"symbols/s": f"{row.symbols_per_second:,.0f}"}
    return {
        "tokens/s": f"{row.tokens_per_second:,.0f}",
        "sentences/s": f"{row.sentences_per_second:,.0f}",
    }


def mean(several: Sequence[Measured]) -> Measured:
    """Each unit's mean cost; what one holds impossible stays so."""
    first = several[0]
    nats = np.mean([m.nats for m in several], axis=0)
    return replace(first, nats=nats, impossible=max(m.impossible for m in several))


def mean_judged(several: Sequence[Mapping[str, Judged]]) -> dict[str, Judged]:
    """The mean of figures over seeds, and that of each resample of the sentences."""
    found = {}
    for name, first in several[0].items():
        values = [one[name].value for one in several]
        samples = np.mean([one[name].samples for one in several], axis=0)
        found[name] = replace(first, value=statistics.fmean(values), samples=samples)
    return found


def spread(row: Row, digits: int, factor: float = 1.0) -> str:
    """The standard deviation over seeds, to stand behind a figure."""
    return f" ± {row.spread * factor:.{digits}f}" if row.spread is not None else ""


def ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Best first; a row's rank is one more than the number of rows that are surely better."""
    found = []
    for row in rows:
        better = sum(surely_better(other, row) for other in rows if other is not row)
        found.append(replace(row, rank=1 + better))
    return tuple(sorted(found, key=lambda row: (row.rank, row.cost, row.parameters)))


def surely_better(one: Row, other: Row) -> bool:
    """Does the whole 95% interval of the paired difference lie on one's side?"""
    gap = one.behind(other)
    return not math.isnan(gap.value) and gap.high < 0


def verdict(
    rows: Sequence[Row], curves: Mapping[str, Sequence[tuple[int, float]]] | None = None
) -> str:
    """What ranked rows say, in words: which to use, what it costs, whether more data would help."""
    finite = [row for row in rows if math.isfinite(row.cost)]
    if not finite:
        return "Every model holds some of the data impossible: none can be recommended."
    told = [winner(finite, len(rows))]
    told += hurried(finite) or about_attention(finite)
    told += cheaper(finite)
    told += word_for_word(finite) + by_bits(finite)
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
        words = f"Use {best[0].model}: {best[0].worth}, the best of {total}"
        if len(rows) == 1:
            return f"{words}."
        return f"{words}; {rows[1].model}, the next, is worse by {rows[1].behind(best[0])}."
    cheap = min(best, key=lambda row: (row.train_seconds, row.parameters))
    names = listed([row.model for row in best])
    return (
        f"{names} cannot be told apart here (95%): use {cheap.model}, "
        f"the cheapest of them ({cheap.train_seconds:,.0f} s, {cheap.parameters:,} parameters)."
    )


def hurried(rows: Sequence[Row]) -> list[str]:
    """Rows that were stopped before they had seen the data once, of which nothing is concluded."""
    found = [row for row in rows if row.epochs < 1]
    if not found:
        return []
    names, least = listed([row.model for row in found]), min(row.epochs for row in found)
    return [
        f"{names} had too little time to see all of the data once (the least: {least:.1%}): "
        "with more --minutes this table may look different."
    ]


def about_attention(rows: Sequence[Row]) -> list[str]:
    """Where attention loses, that is said; and what a recurrence that translates has from it."""
    named = {row.model: row for row in rows}
    attending, told = named.get("transformer"), []
    if attending is not None and attending.rank > 1:
        words = f"The transformer is worse by {attending.behind(rows[0])}"
        if rows[0].model == "rnn-attention":  # which attends as well
            told.append(f"{words}: in this time it does not pay to attend alone.")
        else:
            told.append(f"{words}: on these data attention does not pay.")
    if "rnn" in named and "rnn-attention" in named:
        gain = named["rnn"].behind(named["rnn-attention"])
        sure = "" if gain.low > 0 or gain.high < 0 else ", no difference that 95% supports"
        told.append(f"Attention gives the recurrence {gain} over a bottleneck{sure}.")
    return told


def cheaper(rows: Sequence[Row]) -> list[str]:
    """A row that costs a tenth and loses next to nothing."""
    best = rows[0]
    for row in sorted(rows[1:], key=lambda row: row.train_seconds):
        loss = (row.cost - best.cost) / max(abs(best.cost), 1e-9)
        if row.rank > 1 and loss < 5 * SMALL and row.train_seconds < best.train_seconds / 10:
            times = best.train_seconds / max(row.train_seconds, 0.01)
            return [f"{row.model} is {loss:.1%} worse and trains {times:,.0f} times faster."]
    return []


def word_for_word(rows: Sequence[Row]) -> list[str]:
    """Which translators are no better than a table of words."""
    floor = next((row for row in rows if row.model == "ibm1"), None)
    if floor is None:
        return []
    found = [row.model for row in rows if row is not floor and not surely_better(row, floor)]
    if not found:
        return []
    verb = "is" if len(found) == 1 else "are"
    return [f"{listed(found)} {verb} not surely better than word for word."]


def by_bits(rows: Sequence[Row]) -> list[str]:
    """Where the best by BLEU holds the references less probable than another does."""
    best = rows[0]
    other = min(rows, key=lambda row: row.nats.value)
    if best.ranked_by != "bleu" or other.rank == 1:
        return []
    gap = difference(other.measured, best.measured)
    if not gap.high < 0:
        return []
    return [f"By what the references cost, {other.model} is better, {gap} nats per symbol."]


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
