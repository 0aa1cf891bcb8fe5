"""The honest table: models on the same symbols, ranked in pairs, with their cost and a verdict.

Rows are ranked by nats per symbol, where they translate by BLEU, and where they answer by the
figure that leads their task. Nothing here trains; `rungs` does. A row may stand for several seeds:
its figure is their mean, its spread their standard deviation, and what it is compared by is the
mean over seeds in each resample of the records. It may stand for the folds of a cross-validation:
then the answers to all folds give one figure, and each fold another.

What a ranked table says, in words that its numbers alone decide.

It must be able to say that attention loses, that rows cannot be told apart, and that nothing can be
recommended.
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

from regard.evaluation.estimates import BootstrapEstimate, Folds, symbol_cost
from regard.evaluation.language_modeling import (
    Metric,
    TokenLosses,
    by_target,
    metrics_of,
    to_document,
)
from regard.evaluation.predictions import StoredPredictions

JUDGED = {"bleu": "BLEU", "chrf": "chrF", "exact": "exact %"}  # columns of translations
ANSWERED = {  # columns of answers, where a task has them; what leads comes first
    "accuracy": "accuracy",
    "accuracy_mean": "mean accuracy",
    "f1": "F1",
    "f1_mean": "mean F1",
    "f1_macro": "macro F1",
    "mcc": "MCC",
    "mcc_mean": "mean MCC",
    "auroc": "AUROC",
    "auroc_mean": "mean AUROC",
    "average_precision": "avg. precision",
    "average_precision_mean": "mean avg. precision",
    "average_precision_macro": "macro avg. precision",
    "ece": "ECE",
    "ece_mean": "mean ECE",
    "rmse": "RMSE",
    "rmse_standardized_mean": "mean standardized RMSE",
    "mae": "MAE",
    "mae_standardized_mean": "mean standardized MAE",
    "r2": "R²",
    "r2_mean": "mean R²",
    "spearman": "Spearman",
    "spearman_mean": "mean Spearman",
}
LEADING = {  # what rows are ranked by: the first that is known
    "target": ("bleu",),
    "label": ("accuracy",),
    "labels": ("auroc_mean", "auroc"),
    "value": ("rmse_standardized_mean", "rmse", "r2_mean"),
    "position-label": ("accuracy",),
}
OF_TARGET = ("auroc", "rmse")  # what is shown of each of several targets
COST = "nats_per_symbol"  # what they are ranked by otherwise


def leading(task: str, known: Mapping[str, object]) -> str:
    """What rows of a task are ranked by, of what is known of them."""
    return next((name for name in LEADING.get(task, ()) if name in known), COST)


@dataclass(frozen=True, eq=False)
class Row:
    """One model of the table."""

    model: str
    parameters: int
    train_seconds: float
    symbols_per_second: float
    peak_memory_bytes: int
    measured: TokenLosses | None  # of symbols: the mean over seeds, unit by unit
    values: tuple[float, ...]  # what rows are ranked by, of each seed
    runs: tuple[Path, ...]
    judged: Mapping[str, BootstrapEstimate] = field(
        default_factory=dict
    )  # of translations or answers
    tokens_per_second: float = 0.0  # of training, as symbols_per_second
    answers_per_second: float = 0.0  # sentences translated by a beam, or records answered
    epochs: float = 1.0  # how often training went through the data
    ranked_by: str = COST  # a name of `estimates`
    folds: Folds | None = None  # ranked_by's figure of each fold
    answers: StoredPredictions | None = None  # of the first seed, those of all folds together
    rank: int = 0

    @cached_property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """All that rows may be compared by, in pairs."""
        costs = {} if self.measured is None else {COST: symbol_cost(self.measured)}
        return {**self.judged, **costs}

    @cached_property
    def figures(self) -> dict[str, Metric]:
        """The metrics, by name."""
        costs = {} if self.measured is None else metrics_of(self.measured)
        return {name: one.figure() for name, one in self.judged.items()} | costs

    @property
    def leads(self) -> Metric:
        """What the row is ranked by."""
        return self.figures[self.ranked_by]

    @property
    def cost(self) -> float:
        """What rows are sorted by: less is better; infinite where it is undefined."""
        value = self.leads.value
        if math.isnan(value):
            return math.inf
        return value if self.estimates[self.ranked_by].cost else -value

    @property
    def worth(self) -> str:
        """What the row is ranked by, in words."""
        if self.ranked_by == COST:
            return f"{self.leads} nats per symbol"
        return f"{(JUDGED | ANSWERED)[self.ranked_by]} {self.leads}"

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None of one seed, or where a figure is infinite or
        undefined.
        """
        if len(self.values) < 2 or not all(map(math.isfinite, self.values)):
            return None
        return statistics.stdev(self.values)

    def behind(self, other: Row) -> Metric:
        """How far it is behind another row, in pairs, in what both are ranked by."""
        ours, theirs = (row.estimates[row.ranked_by] for row in (self, other))
        return ours.minus(theirs) if ours.cost else theirs.minus(ours)

    def to_json(self) -> dict[str, Any]:
        """A row of `regard compare --json`."""
        return {
            "model": self.model,
            "metrics": to_document(self.figures),
            "rank": self.rank,
            "parameters": self.parameters,
            "train_seconds": round(self.train_seconds, 3),
            "symbols_per_second": round(self.symbols_per_second, 1),
            "tokens_per_second": round(self.tokens_per_second, 1),
            **self._answering(),
            "epochs": round(self.epochs, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
            "seeds": len(self.values),
            "sd_over_seeds": self.spread,
            "runs": [str(run) for run in self.runs],
            **({} if self.folds is None else {"folds": self.folds.to_json()}),
        }

    def _answering(self) -> dict[str, float]:
        """How fast it answers, under the name that its task has for it."""
        name = "sentences_per_second" if self.answers is None else "records_per_second"
        return {name: round(self.answers_per_second, 1)}


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
    task: str = "next"
    folds: int = 0  # of a cross-validation
    left_out: tuple[str, ...] = ()  # rows that the time did not hold
    unknown: int = 0  # records of classes that training does not have: they are not judged

    @property
    def signatures(self) -> dict[str, str]:
        """How translations were judged, by metric; figures of other signatures do not compare."""
        judged = self.rows[0].judged.items()
        return {name: one.signature for name, one in judged if one.signature}

    @property
    def curved_by(self) -> str:
        """What `curves` are of."""
        return COST if self.rows[0].answers is None else self.rows[0].ranked_by

    @property
    def material(self) -> str:
        """What was measured on, in words."""
        if self.rows[0].answers is not None:
            return self._labelled()
        whole = f"{self.symbols:,} symbols of {self.records:,} {self.side} records"
        if not self.sentences:
            return whole
        some = "all" if self.sentences == self.records else f"the first {self.sentences:,}"
        return f"{whole}, {some} translated"

    def _labelled(self) -> str:
        left_out = f", {self.unknown:,} of unknown classes not judged" if self.unknown else ""
        if not self.folds:
            return f"{self.records:,} {self.side} records{left_out}"
        how = "one left out at a time" if self.folds >= self.records else f"{self.folds:,} folds"
        return f"{self.records:,} records, {how}{left_out}"

    def to_json(self) -> dict[str, Any]:
        """The document `regard compare --json` prints."""
        translated = {"sentences": self.sentences, "signatures": self.signatures}
        return {
            "side": self.side,
            "symbols": self.symbols,
            "records": self.records,
            **(translated if self.sentences else {}),
            **({"task": self.task} if self.rows[0].answers is not None else {}),
            **({"folds": self.folds} if self.folds else {}),
            "ranked_by": self.rows[0].ranked_by,
            "rows": [row.to_json() for row in self.rows],
            **({"left_out": list(self.left_out)} if self.left_out else {}),
            "verdict": self.verdict,
            "scaling": {
                model: [{"symbols": n, self.curved_by: value} for n, value in curve]
                for model, curve in self.curves.items()
            },
        }

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table as text: columns and rows."""
        lines = [
            {
                "": f"{row.rank}.",
                "model": row.model,
                **cells_of(row),
                "parameters": f"{row.parameters:,}",
                **speeds(row),
                "trained": f"{row.train_seconds:,.0f} s",
                "memory": f"{row.peak_memory_bytes / 2**20:,.0f} MB",
            }
            for row in self.rows
        ]
        return list(lines[0]), [list(line.values()) for line in lines]

    def target_cells(self) -> tuple[list[str], list[list[str]]]:
        """Where there are several targets, what leads of each, as text: columns and rows."""
        first = by_target(self.rows[0].figures)[1]
        name = next((one for one in OF_TARGET if any(one in found for found in first.values())), "")
        if not name:
            return [], []
        lines = []
        for row in self.rows:
            each = by_target(row.figures)[1]
            lines.append([row.model, *(str(each[target][name]) for target in first)])
        return ["model", *(f"{ANSWERED[name]} ({target})" for target in first)], lines

    @property
    def shortened(self) -> str:
        """Which rows are missing for want of time, in words; nothing where none is."""
        names = ", ".join(self.left_out)
        return f"Left out for lack of time: {names}." if names else ""

    def to_markdown(self) -> str:
        """The table and the verdict as Markdown."""
        body: list[str] = []
        for columns, lines in (self.cells(), self.target_cells()):
            if columns:
                between = [""] if body else []
                named = [column.replace("|", "\\|") for column in columns]
                head = [*between, "| " + " | ".join(named) + " |", "|" + "---|" * len(columns)]
                body += [*head, *("| " + " | ".join(line) + " |" for line in lines)]
        signed = [f"- {name}: `{one}`" for name, one in self.signatures.items()]
        signed = [*signed, ""] if signed else []
        short = [self.shortened, ""] if self.left_out else []
        said = [self.verdict, "", *short, *signed]
        told = ["# Comparison", "", self.material, "", *body, "", *said]
        return "\n".join(told)


def cells_of(row: Row) -> dict[str, str]:
    """What a row is like: cells by column."""
    if row.answers is not None:
        return answered(row)
    return translated(row) if row.judged else plain(row)


def answered(row: Row) -> dict[str, str]:
    """What a model that answers is like: what leads with its interval, the rest beside."""
    first, digits = row.ranked_by, row.leads.digits
    found = {f"{ANSWERED[first]} [95%]": f"{row.leads}{spread(row, digits)}"}
    if row.folds is not None:
        sd = row.folds.sd
        found["over folds"] = f"± {sd:.{digits}f}" if math.isfinite(sd) else "–"
    for name, column in ANSWERED.items():
        if name in row.judged and name != first:
            figure = row.figures[name]
            value, of = figure.value, f" ({figure.of})" if figure.of else ""
            found[column + of] = f"{value:.3f}" if math.isfinite(value) else "–"
    return found


def plain(row: Row) -> dict[str, str]:
    """What a language model is like: cells by column."""
    bits = row.figures["bits_per_symbol"].value
    return {
        "nats per symbol [95%]": f"{row.leads}{spread(row, 4)}",
        "bits": f"{bits:.3f}" if math.isfinite(bits) else "∞",
    }


def translated(row: Row) -> dict[str, str]:
    """What a translator is like: cells by column."""
    bits = {
        name: replace(row.figures[f"nats_per_{name}"].scaled(1 / math.log(2)), digits=3)
        for name in ("symbol", "token")
    }
    leads, finite = row.ranked_by == "bleu", math.isfinite(row.figures[COST].value)
    found = {
        f"{column} [95%]": f"{replace(row.figures[name], digits=1)}"
        + spread(row, 1) * (leads and name == "bleu")
        for name, column in JUDGED.items()
        if name in row.judged
    }
    found["bits/symbol [95%]"] = f"{bits['symbol']}" + spread(row, 3, 1 / math.log(2)) * (not leads)
    found["bits/token"] = f"{bits['token'].value:.3f}" if finite else "∞"
    return found


def speeds(row: Row) -> dict[str, str]:
    """What is done in a second: cells by column."""
    if row.answers is not None:
        return {"answers/s": f"{row.answers_per_second:,.0f}"}
    if not row.judged:
        return {"symbols/s": f"{row.symbols_per_second:,.0f}"}
    return {
        "tokens/s": f"{row.tokens_per_second:,.0f}",
        "sentences/s": f"{row.answers_per_second:,.0f}",
    }


def mean(several: Sequence[TokenLosses]) -> TokenLosses:
    """Each unit's mean cost; what one holds impossible stays so."""
    first = several[0]
    nats = np.mean([m.nats for m in several], axis=0)
    return replace(first, nats=nats, impossible=max(m.impossible for m in several))


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


SMALL = 0.01  # a difference below this share of the best figure is not worth much cost
FLOORS = {  # rows that any other should beat, and what they do
    "ibm1": "word for word",
    "majority": "saying the same of every record",
}


def verdict(
    rows: Sequence[Row], curves: Mapping[str, Sequence[tuple[int, float]]] | None = None
) -> str:
    """What ranked rows say, in words: which to use, what it costs, whether more data would help."""
    finite = [row for row in rows if math.isfinite(row.cost)]
    if not finite and math.isnan(rows[0].leads.value):
        return f"The models cannot be ranked: {rows[0].worth}."
    if not finite:
        return "Every model holds some of the data impossible: none can be recommended."
    told = [winner(finite, len(rows))]
    told += hurried(finite) or about_attention(finite)
    told += cheaper(finite)
    told += above_floor(finite) + by_bits(finite)
    impossible = [row.model for row in rows if row.measured and row.measured.impossible]
    if impossible:
        told.append(
            f"{listed(impossible)} hold{'s' * (len(impossible) == 1)} some of it impossible."
        )
    if curves:
        told += more_data(finite[0], curves)
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


def above_floor(rows: Sequence[Row]) -> list[str]:
    """Which rows are no better than one that knows next to nothing."""
    floor = next((row for row in rows if row.model in FLOORS), None)
    if floor is None:
        return []
    found = [row.model for row in rows if row is not floor and not surely_better(row, floor)]
    if not found:
        return []
    verb = "is" if len(found) == 1 else "are"
    return [f"{listed(found)} {verb} not surely better than {FLOORS[floor.model]}."]


def by_bits(rows: Sequence[Row]) -> list[str]:
    """Where the best by BLEU holds the references less probable than another does."""
    best = rows[0]
    if best.ranked_by != "bleu":
        return []
    other = min(rows, key=lambda row: row.figures[COST].value)
    gap = other.estimates[COST].minus(best.estimates[COST])
    if other.rank == 1 or not gap.high < 0:
        return []
    return [f"By what the references cost, {other.model} is better, {gap} nats per symbol."]


def more_data(best: Row, curves: Mapping[str, Sequence[tuple[int, float]]]) -> list[str]:
    """What the last doubling of the training data bought the best model."""
    curve = curves.get(best.model, ())
    if len(curve) < 2:
        return []
    (before, worse), (after, better) = curve[-2], curve[-1]
    doublings = math.log2(after / before)
    more_is_better = best.answers is not None and not best.estimates[best.ranked_by].cost
    gain = (worse - better) / doublings / max(abs(better), 1e-9) * (-1 if more_is_better else 1)
    words = f"The last doubling of the data improved {best.model} by {gain:.1%}"
    if gain > SMALL:
        return [f"{words}: more data would help."]
    return [f"{words}: more data would hardly help."]


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
