"""The table of `regard compare`: models measured on the same data, ranked in pairs, with a verdict.

Nothing is trained here (see `training.comparison_runs`). A row may stand for several seeds: its
metrics are their means, and models are compared by the mean over seeds in each resample of the
records. It may stand for the folds of a cross-validation: then the predictions of all folds give
one metric, and each fold another.

The verdict follows from the numbers alone. It can say that attention loses, that rows cannot be
told apart, and that no model can be recommended.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.evaluation import Metric, Report, group_by_target, target_name, to_document
from regard.evaluation.bootstrap import BootstrapEstimate, Folds
from regard.evaluation.language_modeling import TokenLosses, to_bits
from regard.evaluation.paired_tests import (
    bootstrap_p,
    describe_bayes_factor,
    describe_p,
    log10_bayes_factor,
)
from regard.evaluation.predictions import Predictions
from regard.notebook import html_table

SYMBOL_LOSS = "bits_per_symbol"
MISCALIBRATED = 0.1  # a difference of expected calibration errors that is worth a sentence
SMALL = 0.01  # a relative difference below which a model is hardly better
BASELINES = {  # models that any other should beat, and what they do
    "chance": "a random order",
    "ibm1": "word for word",
    "majority": "predicting the most common class",
    "mean": "predicting the mean",
    "seasonal-naive": "repeating the last season",
}

Curve = Sequence[tuple[int, float]]  # training symbols, and the metric


@dataclass(frozen=True, eq=False, repr=False)
class Row(Report):
    """One model of the table."""

    model: str
    parameters: int
    train_seconds: float
    symbols_per_second: float  # of training
    peak_memory_bytes: int
    losses: TokenLosses | None  # of symbols: the mean over seeds, unit by unit
    values: tuple[float, ...]  # of the metric that ranks, of each seed
    runs: tuple[Path, ...]
    quality: Mapping[str, BootstrapEstimate] = field(default_factory=dict)  # of the model's outputs
    tokens_per_second: float = 0.0  # of training
    outputs_per_second: float = 0.0  # sentences translated by a beam, or records predicted
    epochs: float = 1.0  # of training
    ranked_by: str = SYMBOL_LOSS  # a name of `estimates`
    folds: Folds | None = None  # the metric that ranks, of each fold
    predictions: Predictions | None = None  # of the first seed, of all folds
    rank: int = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model}: {self.summary}>"

    @cached_property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        return {**self.quality, **({} if self.losses is None else self.losses.estimates)}

    @cached_property
    def main_metric(self) -> Metric:
        """The metric that ranks the row."""
        return self.estimates[self.ranked_by].metric()

    @property
    def ranking_loss(self) -> float:
        """The metric, negative if more is better; infinite if undefined."""
        value = self.main_metric.value
        if math.isnan(value):
            return math.inf
        return value if self.estimates[self.ranked_by].lower_is_better else -value

    @property
    def calibration_error(self) -> float:
        """The expected calibration error of its probabilities; NaN if it has none."""
        estimate = self.quality.get("ece")
        return math.nan if estimate is None else estimate.value

    @property
    def summary(self) -> str:
        """The metric that ranks the row, with its name."""
        title = self.estimates[self.ranked_by].title
        if self.ranked_by == SYMBOL_LOSS:
            return f"{self.main_metric} {title}"
        return f"{title} {self.main_metric}"

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None of one seed, or if a value is not finite."""
        if len(self.values) < 2 or not all(map(math.isfinite, self.values)):
            return None
        return statistics.stdev(self.values)

    def format_spread(self, digits: int, factor: float = 1.0) -> str:
        return "" if self.spread is None else f" ± {self.spread * factor:.{digits}f}"

    def behind(self, other: Row) -> Metric:
        """Return how much worse this row is than another one, in pairs."""
        estimate, reference = (row.estimates[row.ranked_by] for row in (self, other))
        lower_is_better = estimate.lower_is_better
        return estimate.minus(reference) if lower_is_better else reference.minus(estimate)

    def significantly_better(self, other: Row) -> bool:
        """Return whether the 95% interval of the paired difference excludes 0 and worse values."""
        gap = self.behind(other)
        return not math.isnan(gap.value) and gap.high < 0

    def to_json(self) -> dict[str, Any]:
        """Return a row of `regard compare --json`."""
        outputs = "sentences" if self.predictions is None else "records"
        return {
            "model": self.model,
            "metrics": to_document(self.metrics()),
            "rank": self.rank,
            "parameters": self.parameters,
            "train_seconds": round(self.train_seconds, 3),
            "symbols_per_second": round(self.symbols_per_second, 1),
            "tokens_per_second": round(self.tokens_per_second, 1),
            f"{outputs}_per_second": round(self.outputs_per_second, 1),
            "epochs": round(self.epochs, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
            "seeds": len(self.values),
            "sd_over_seeds": self.spread,
            "runs": [str(run) for run in self.runs],
            **({} if self.folds is None else {"folds": self.folds.to_json()}),
        }

    def cells(self) -> dict[str, str]:
        """Return the row of the table as text, by column."""
        if self.predictions is not None:
            quality, speed = _prediction_cells(self), {"records/s": self.outputs_per_second}
        elif self.quality:
            quality = _translation_cells(self)
            speed = {"tokens/s": self.tokens_per_second, "sentences/s": self.outputs_per_second}
        else:
            quality, speed = _language_cells(self), {"symbols/s": self.symbols_per_second}
        return {
            "": f"{self.rank}.",
            "model": self.model,
            **quality,
            "parameters": f"{self.parameters:,}",
            **{column: f"{rate:,.0f}" for column, rate in speed.items()},
            "trained": f"{self.train_seconds:,.0f} s",
            "memory": f"{self.peak_memory_bytes / 2**20:,.0f} MB",
        }


def _prediction_cells(row: Row) -> dict[str, str]:
    """Return the metric that ranks with its interval, and the other ones."""
    first, metric = row.estimates[row.ranked_by], row.main_metric
    cells = {f"{first.title} [95%]": f"{metric}{row.format_spread(metric.digits)}"}
    if row.folds is not None:
        sd = row.folds.sd
        cells["over folds"] = f"± {sd:.{metric.digits}f}" if math.isfinite(sd) else "–"
    for name, estimate in row.quality.items():
        if estimate.in_table and not estimate.target and name != row.ranked_by:
            class_name = f" ({estimate.class_name})" if estimate.class_name else ""
            finite = math.isfinite(estimate.value) and not estimate.undefined
            cells[estimate.title + class_name] = f"{estimate.value:.3f}" if finite else "–"
    return cells


def _translation_cells(row: Row) -> dict[str, str]:
    cells = {
        f"{estimate.title} [95%]": f"{replace(estimate.metric(), digits=1)}"
        + row.format_spread(1) * (name == row.ranked_by)
        for name, estimate in row.quality.items()
        if estimate.in_table
    }
    bits = replace(row.estimates["bits_per_symbol"].metric(), digits=3)
    spread = row.format_spread(3) * (row.ranked_by == SYMBOL_LOSS)
    cells["bits/symbol [95%]"] = f"{bits}{spread}"
    per_token = row.estimates["nats_per_token"].value
    cells["bits/token"] = f"{to_bits(per_token):.3f}" if math.isfinite(per_token) else "∞"
    return cells


def _language_cells(row: Row) -> dict[str, str]:
    title = row.estimates[SYMBOL_LOSS].title
    return {f"{title} [95%]": f"{row.main_metric}{row.format_spread(4)}"}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The table, best row first, and its verdict."""

    split: str  # that was measured: test or valid
    symbols: int
    records: int
    rows: tuple[Row, ...]
    verdict: str
    curves: Mapping[str, Curve] = field(default_factory=dict)
    sentences: int = 0  # that were translated
    task: str = "next"
    folds: int = 0  # of a cross-validation
    left_out: tuple[str, ...] = ()  # rows for which there was no time
    unknown: int = 0  # records of classes that training does not have, which are left out

    @property
    def signatures(self) -> dict[str, str]:
        """How translations were scored, by metric; different signatures do not compare."""
        quality = self.rows[0].quality.items()
        return {name: estimate.signature for name, estimate in quality if estimate.signature}

    @property
    def curve_metric(self) -> str:
        """The metric of `curves`."""
        return SYMBOL_LOSS if self.rows[0].predictions is None else self.rows[0].ranked_by

    @property
    def data_description(self) -> str:
        """The records that were measured."""
        if self.rows[0].predictions is None:
            described = f"{self.symbols:,} symbols of {self.records:,} {self.split} records"
            if not self.sentences:
                return described
            part = "all" if self.sentences == self.records else f"the first {self.sentences:,}"
            return f"{described}, {part} translated"
        unknown = f", {self.unknown:,} of unknown classes left out" if self.unknown else ""
        if not self.folds:
            return f"{self.records:,} {self.split} records{unknown}"
        folds = "leave one out" if self.folds >= self.records else f"{self.folds:,} folds"
        return f"{self.records:,} records, {folds}{unknown}"

    @property
    def left_out_note(self) -> str:
        """Which rows are missing for lack of time."""
        return f"Left out for lack of time: {', '.join(self.left_out)}." if self.left_out else ""

    def to_json(self) -> dict[str, Any]:
        """Return the document of `regard compare --json`."""
        translated = {"sentences": self.sentences, "signatures": self.signatures}
        return {
            "split": self.split,
            "symbols": self.symbols,
            "records": self.records,
            **(translated if self.sentences else {}),
            "task": self.task,
            **({"folds": self.folds} if self.folds else {}),
            "ranked_by": self.rows[0].ranked_by,
            "rows": [row.to_json() for row in self.rows],
            **({"left_out": list(self.left_out)} if self.left_out else {}),
            "verdict": self.verdict,
            "scaling": {
                model: [
                    {"symbols": n, self.curve_metric: value if math.isfinite(value) else None}
                    for n, value in curve
                ]
                for model, curve in self.curves.items()
            },
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table as text."""
        lines = [row.cells() for row in self.rows]
        return list(lines[0]), [list(line.values()) for line in lines]

    def target_table(self) -> tuple[list[str], list[list[str]]]:
        """Return a table of the main metric of each of several targets; empty for one target."""
        best = self.rows[0]
        targets = group_by_target(best.metrics())[1]
        if best.predictions is None or not targets:
            return [], []
        name = best.predictions.report.target_metric
        titles = [best.quality[target_name(name, target)].title for target in targets]
        lines = []
        for row in self.rows:
            by_target = group_by_target(row.metrics())[1]
            lines.append([row.model, *(str(by_target[target][name]) for target in targets)])
        columns = (f"{title} ({target})" for title, target in zip(titles, targets, strict=True))
        return ["model", *columns], lines

    def __repr__(self) -> str:
        columns, rows = self.table()
        number = columns.index("model")
        shown = [f"{row[0]} {row[number]} {row[number + 1]}" for row in rows]
        listed = "\n".join(f"  {line}" for line in shown)
        return f"<{type(self).__name__} on {self.data_description}:\n{listed}>"

    def _repr_html_(self) -> str:
        notes = [self.verdict, self.left_out_note]
        return html_table(*self.table(), title=self.data_description, notes=notes)

    def to_markdown(self) -> str:
        """Return the tables and the verdict as Markdown."""
        body: list[str] = []
        for columns, lines in (self.table(), self.target_table()):
            if columns:
                titles = [column.replace("|", "\\|") for column in columns]
                body += ["| " + " | ".join(titles) + " |", "|" + "---|" * len(columns)]
                body += [*("| " + " | ".join(line) + " |" for line in lines), ""]
        notes = [self.left_out_note, ""] if self.left_out else []
        signatures = [f"- {name}: `{signature}`" for name, signature in self.signatures.items()]
        notes += [*signatures, ""] if signatures else []
        head = ["# Comparison", "", self.data_description, ""]
        return "\n".join([*head, *body, self.verdict, "", *notes])


def rank_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Sort rows, the best first; a rank is one more than the number of rows that are
    significantly better."""
    ranked = []
    for row in rows:
        better = sum(other.significantly_better(row) for other in rows if other is not row)
        ranked.append(replace(row, rank=1 + better))
    return tuple(sorted(ranked, key=lambda row: (row.rank, row.ranking_loss, row.parameters)))


def write_verdict(rows: Sequence[Row], curves: Mapping[str, Curve] | None = None) -> str:
    """Say what ranked rows show: which model to use, and whether more data would help."""
    finite = [row for row in rows if math.isfinite(row.ranking_loss)]
    if not finite and math.isnan(rows[0].main_metric.value):
        return f"The models cannot be ranked: {rows[0].summary}."
    if not finite:
        return "Every model gives some of the data probability 0: none can be recommended."
    sentences = [_recommend(finite, len(rows)), *_tests(finite)]
    sentences += _too_little_time(finite) or _judge_attention(finite)
    sentences += _calibration(finite) + _cheaper(finite) + _above_baseline(finite)
    sentences += _by_loss(finite)
    sentences += [_infinite(row) for row in rows if row.losses and row.losses.impossible]
    return " ".join([*sentences, *_more_data(finite[0], (curves or {}).get(finite[0].model, ()))])


def _recommend(rows: Sequence[Row], total: int) -> str:
    """Name the best row of `total`, and those that cannot be told apart from it."""
    best, tied = rows[0], [row for row in rows[1:] if row.rank == 1]
    words = f"Use {best.model}: {best.summary}, the best of {total}"
    if len(rows) == 1:
        return f"{words}."
    if not tied:
        return f"{words}; {rows[1].model}, the next, is worse by {rows[1].behind(best)}."
    names = _enumerate([row.model for row in tied])
    sentence = f"{words}; {names} cannot be told apart from it (95%)."
    cheapest = min(tied, key=lambda row: (row.train_seconds, row.parameters))
    if 3 * cheapest.train_seconds >= best.train_seconds:
        return sentence
    return (
        f"{sentence} {cheapest.model}, {cheapest.main_metric}, is the cheapest of them: it takes "
        f"{cheapest.train_seconds:,.1f} s instead of {best.train_seconds:,.1f} s."
    )


def _infinite(row: Row) -> str:
    """Say why the loss of a row is infinite."""
    assert row.losses is not None
    count = row.losses.impossible
    symbols = "one held-out symbol" if count == 1 else f"{count:,} held-out symbols"
    return f"{row.model} gives {symbols} probability 0, so its loss is infinite."


def _calibration(rows: Sequence[Row]) -> list[str]:
    """Name a row that is tied with the best one and much better calibrated."""
    tied = [row for row in rows if row.rank == 1 and math.isfinite(row.calibration_error)]
    if rows[0] not in tied:
        return []
    best, calibrated = rows[0], min(tied, key=lambda row: row.calibration_error)
    if best.calibration_error - calibrated.calibration_error < MISCALIBRATED:
        return []
    return [
        f"The probabilities of {best.model} are badly calibrated (ECE "
        f"{best.calibration_error:.2f}); use {calibrated.model} where they matter "
        f"({calibrated.calibration_error:.2f})."
    ]


def _tests(rows: Sequence[Row]) -> list[str]:
    """Name the paired tests of the best row against the next, and what they say."""
    if len(rows) < 2:
        return []
    best, other = rows[:2]
    estimates = [row.estimates[row.ranked_by] for row in (best, other)]
    p = bootstrap_p(*estimates)
    parts = []
    if not math.isnan(p):
        tested = describe_p(p, len(estimates[0].samples))
        parts.append(f"paired bootstrap against {other.model}: {tested}")
    if best.losses and other.losses:
        factor = log10_bayes_factor(best.losses, other.losses)
        if not math.isnan(factor):
            name = best.model if factor >= 0 else other.model
            parts.append(describe_bayes_factor(abs(factor), name))
    if not parts:
        return []
    words = "; ".join(parts)
    return [f"{words[0].upper()}{words[1:]}."]


def _too_little_time(rows: Sequence[Row]) -> list[str]:
    """Name the rows that were stopped before their first epoch was over."""
    stopped = [row for row in rows if row.epochs < 1]
    if not stopped:
        return []
    names, least = _enumerate([row.model for row in stopped]), min(row.epochs for row in stopped)
    return [
        f"{names} had too little time to see all of the data once (the least: {least:.1%}): "
        "with more --minutes this table may look different."
    ]


def _judge_attention(rows: Sequence[Row]) -> list[str]:
    """Say by how much attention alone loses, and what a recurrent translator gains by it."""
    by_name, sentences = {row.model: row for row in rows}, []
    transformer = by_name.get("transformer")
    if transformer is not None and transformer.rank > 1:
        words = f"The transformer is worse by {transformer.behind(rows[0])}"
        if rows[0].model == "rnn-attention":  # which attends as well
            sentences.append(f"{words}: in this time it does not pay to attend alone.")
        else:
            seconds = transformer.train_seconds
            sentences.append(f"{words} after {seconds:,.0f} s of training.")
    if "rnn" in by_name and "rnn-attention" in by_name:
        gain = by_name["rnn"].behind(by_name["rnn-attention"])
        sure = "" if gain.low > 0 or gain.high < 0 else ", no difference that 95% supports"
        sentences.append(f"Attention gives the recurrence {gain} over a bottleneck{sure}.")
    return sentences


def _cheaper(rows: Sequence[Row]) -> list[str]:
    """Name a row that trains ten times faster and is hardly worse."""
    best = rows[0]
    for row in sorted(rows[1:], key=lambda row: row.train_seconds):
        loss = (row.ranking_loss - best.ranking_loss) / max(abs(best.ranking_loss), 1e-9)
        if row.rank > 1 and loss < 5 * SMALL and row.train_seconds < best.train_seconds / 10:
            times = best.train_seconds / max(row.train_seconds, 0.01)
            return [f"{row.model} is {loss:.1%} worse and trains {times:,.0f} times faster."]
    return []


def _above_baseline(rows: Sequence[Row]) -> list[str]:
    """Name the rows that are not significantly better than a baseline."""
    baseline = next((row for row in rows if row.model in BASELINES), None)
    if baseline is None:
        return []
    others = (row for row in rows if row is not baseline)
    names = [row.model for row in others if not row.significantly_better(baseline)]
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    return [
        f"{_enumerate(names)} {verb} not significantly better than {BASELINES[baseline.model]}."
    ]


def _by_loss(rows: Sequence[Row]) -> list[str]:
    """Name a translator that gives the references more probability than the best one."""
    best = rows[0]
    if best.losses is None or best.ranked_by == SYMBOL_LOSS:
        return []
    other = min(rows, key=lambda row: row.estimates[SYMBOL_LOSS].value)
    gap = other.estimates[SYMBOL_LOSS].minus(best.estimates[SYMBOL_LOSS])
    if other.rank == 1 or not gap.high < 0:
        return []
    return [f"By the loss of the references {other.model} is better, {gap} bits per symbol."]


def _more_data(best: Row, curve: Curve) -> list[str]:
    """Say how much the last doubling of the training data improved the best model."""
    if len(curve) < 2:
        return []
    (before, worse), (after, better) = curve[-2], curve[-1]
    sign = 1
    if best.predictions is not None and not best.estimates[best.ranked_by].lower_is_better:
        sign = -1
    gain = sign * (worse - better) / math.log2(after / before) / max(abs(better), 1e-9)
    words = f"The last doubling of the data improved {best.model} by {gain:.1%}"
    return [f"{words}: more data would {'' if gain > SMALL else 'hardly '}help."]


def _enumerate(names: Sequence[str]) -> str:
    """Join names as in "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
