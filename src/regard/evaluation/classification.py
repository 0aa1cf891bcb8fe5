"""Metrics of predicted classes: one of C for a record, several labels at once, or one per position.

Everything is computed from arrays of scores and truths. A metric that the truths do not define is
undefined and gives the reason. Calibration is that of Guo et al. 2017 (arXiv:1706.04599), the
correlation of K classes that of Gorodkin 2004 ("Comparing two K-category assignments by a
K-category correlation coefficient"), which for two classes is Matthews's and Pearson's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import (
    BootstrapEstimate,
    Floats,
    Resamples,
    cumulative_sums,
    digest,
    draw_weights,
    mean_of_defined,
    mean_over_columns,
    sum_shuffled,
    with_columns,
)

BINS = 15  # of equal width, as in Guo et al. 2017
EDGES = np.arange(BINS + 1) / BINS
TOLERANCE = 1e-4  # how far the probabilities of a record may be from a sum of one
CRITERIA = ("mcc", "f1", "accuracy")  # for choosing a threshold
KINDS = ("label", "labels", "position-label")
ONE_CLASS = "all truths are of one class"
ABSENT = "the class neither occurs nor is predicted"

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """The bins of a reliability diagram. An empty bin has NaN."""

    edges: Floats  # (BINS + 1,)
    counts: Integers  # (BINS,)
    confidence: Floats  # (BINS,) the mean probability of the most probable class
    accuracy: Floats  # (BINS,) how often the most probable class is the true one


@dataclass(frozen=True, eq=False)
class ClassificationReport(Report):
    """How well classes are predicted."""

    ranking = ("accuracy",)

    estimates: dict[str, BootstrapEstimate]
    classes: tuple[dict[str, BootstrapEstimate], ...]  # precision, recall and F1 of each class
    confusion: Integers  # (C, C), truths down, predictions across
    reliability: Reliability


@dataclass(frozen=True, eq=False)
class MultilabelReport(Report):
    """How well several labels at once are predicted: the means over columns, and each column."""

    ranking = ("auroc_mean", "auroc")
    target_metric = "auroc"

    means: dict[str, BootstrapEstimate]  # over the columns whose truths have both classes
    columns: tuple[ClassificationReport, ...]
    targets: tuple[str, ...]  # the names of the columns

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The means and the metrics of each column; of a single column, its own."""
        columns = [column.estimates for column in self.columns]
        return columns[0] if len(columns) == 1 else with_columns(self.means, columns, self.targets)


def classification_report(
    scores: ArrayLike,
    truths: ArrayLike,
    *,
    probabilities: bool = False,
    threshold: float | None = None,
    positive: int | None = None,
    names: Sequence[str] = (),
) -> ClassificationReport:
    """Evaluate scores (N, C), logits or `probabilities`, of the classes (N,) of N records.

    The class of the highest score is predicted; of two classes, class 1 where its probability
    reaches `threshold` (see `best_threshold`). `f1`, `precision`, `recall` and `average_precision`
    are of the class `positive`, by default the second of two; `names` are those of the classes.
    """
    table, classes = np.asarray(scores, dtype=np.float64), np.asarray(truths)
    _check(table, classes, probabilities)
    if not len(classes):
        raise ValueError("there are no records")
    classes = _class_numbers(classes, table.shape[1])
    scored = ClassScores(
        table, classes, probabilities, threshold=threshold, positive=positive, names=names
    )
    (resamples,) = _resample_records([scored], np.ones((len(classes), 1), bool), [digest(classes)])
    return resamples.report("label")


def multilabel_report(
    scores: ArrayLike,
    truths: ArrayLike,
    *,
    probabilities: bool = False,
    thresholds: Sequence[float] | None = None,
    positive: Sequence[int] = (),
    classes: Sequence[Sequence[str]] = (),
    names: Sequence[str] = (),
) -> MultilabelReport:
    """Evaluate scores (N, C) of C independent labels; truths (N, C) are 0, 1, or missing.

    Missing is negative or NaN. A logit is of label 1 against 0. Each column is evaluated like
    `classification_report` on the records that have it; resamples are of records, the same for all
    columns. `positive` is the class of `f1` and the like, 1 by default, `classes` are the names of
    both, and `names` those of the columns.
    """
    table, labels = np.asarray(scores, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if table.ndim != 2 or table.shape != labels.shape or not table.size:
        raise ValueError(
            f"scores {table.shape} and truths {labels.shape} must be of one shape (N, C), not empty"
        )
    if thresholds is not None and len(thresholds) != table.shape[1]:
        raise ValueError(f"{table.shape[1]} columns need as many thresholds, got {len(thresholds)}")
    known = labels >= 0  # NaN is not
    columns = []
    for column, mask in enumerate(known.T):
        scored = _label_scores(
            table[mask, column],
            labels[mask, column],
            probabilities,
            threshold=None if thresholds is None else thresholds[column],
            positive=positive[column] if positive else 1,
            names=classes[column] if classes else (),
        )
        columns.append(scored)
    checksums = [digest(one.truths, mask) for one, mask in zip(columns, known.T, strict=True)]
    resamples = _resample_records(columns, known, checksums)
    reports = tuple(one.report("labels") for one in resamples)
    both = [
        report.estimates
        for report, column in zip(reports, columns, strict=True)
        if len(np.unique(column.truths)) == 2
    ]
    reason = "no column defines it" if both else "no column has both classes"
    undefined = {name: replace(e, undefined=reason) for name, e in reports[0].estimates.items()}
    means = mean_over_columns(both or [undefined], digest(np.where(known, labels, -1.0)), reason)
    return MultilabelReport(means, reports, tuple(names) or tuple(map(str, range(len(columns)))))


def _label_scores(
    scores: Floats, truths: Floats, probabilities: bool, **options: Any
) -> ClassScores:
    """Return the scores (N,) of a label as those of two classes."""
    zeros = 1 - scores if probabilities else np.zeros_like(scores)
    pair = np.stack([zeros, scores], axis=1)
    _check(pair, truths, probabilities)
    return ClassScores(pair, _class_numbers(truths, 2), probabilities, **options)


def position_report(
    scores: ArrayLike,
    truths: ArrayLike,
    lengths: ArrayLike,
    *,
    probabilities: bool = False,
    positive: int | None = None,
    names: Sequence[str] = (),
) -> ClassificationReport:
    """Evaluate scores (P, C) of the class of each of P positions (P,), in sequences of `lengths`.

    A negative truth is missing. Accuracy is per position: Q3 for three classes of secondary
    structure. Neighbours depend on each other, so that resamples are of sequences. `positive` and
    `names` are as in `classification_report`.
    """
    table, classes = np.asarray(scores, dtype=np.float64), np.asarray(truths)
    sizes = np.asarray(lengths, dtype=np.int64)
    _check(table, classes, probabilities)
    if not len(sizes) or (sizes < 0).any() or sizes.sum() != len(classes):
        raise ValueError(
            f"lengths must be of one sequence at least and sum to the {len(classes)} positions, "
            f"got {len(sizes)} with the sum {sizes.sum()}"
        )
    known = classes >= 0
    scored = ClassScores(
        table[known],
        _class_numbers(classes[known], table.shape[1]),
        probabilities,
        positive=positive,
        names=names,
    )
    sequences = np.repeat(np.arange(len(sizes)), sizes)[known]
    sums = sum_shuffled(scored.unit_sums(sequences, len(sizes)))
    data = digest(np.where(known, classes, -1).astype(np.int64), sizes)
    return ClassResamples(scored, sums, data, sequences, len(sizes)).report("position-label")


def _resample_records(
    columns: Sequence[ClassScores], known: NDArray[np.bool_], checksums: Sequence[str]
) -> list[ClassResamples]:
    """Resample N records of which (N, columns) are `known`, the same for all columns."""
    rows = [np.flatnonzero(mask) for mask in known.T]
    rankings = [column.rankings() for column in columns]
    sums: list[list[Floats]] = [[] for _ in columns]
    ranked: list[list[Floats]] = [[] for _ in columns]
    for weights in draw_weights(len(known)):
        for i, column in enumerate(columns):
            of_column = np.take(weights, rows[i], axis=1)
            sums[i].append(column.weighted_sums(of_column))
            ranked[i].append(np.stack([ranking(of_column) for ranking in rankings[i]]))
    return [
        ClassResamples(
            column,
            np.concatenate(sums[i]),
            checksums[i],
            rows[i],
            len(known),
            np.concatenate(ranked[i], axis=1),
        )
        for i, column in enumerate(columns)
    ]


class ClassScores:
    """Scores (N, C) and truths (N,) of N records, and what is summed over them."""

    def __init__(
        self,
        scores: Floats,
        truths: Integers,
        probabilities: bool,
        *,
        threshold: float | None = None,
        positive: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.scores, self.truths, self.classes = scores, truths, scores.shape[1]
        self.positive = 1 if positive is None and self.classes == 2 else positive
        if self.positive is not None and not 0 <= self.positive < self.classes:
            raise ValueError(f"positive must be from 0 to {self.classes - 1}, got {positive}")
        self.class_names = tuple(names) or tuple(map(str, range(self.classes)))
        self.are_probabilities = probabilities
        if probabilities:
            with np.errstate(divide="ignore"):
                self.log_probs = np.log(scores)
            self.probabilities = scores
        else:
            logits = scores - scores.max(1, keepdims=True)
            self.log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            self.probabilities = np.exp(self.log_probs)
        best = scores.argmax(1)
        self.predicted = best
        if threshold is not None:
            if self.classes != 2:
                raise ValueError(f"a threshold is for two classes, got {self.classes}")
            self.predicted = (self.probabilities[:, 1] >= threshold).astype(np.int64)
        self.confidence = np.take_along_axis(self.probabilities, best[:, None], axis=1)[:, 0]
        self.excess = self.confidence - (best == truths)  # of confidence over accuracy
        # bins are open below: (0, 1/15], (1/15, 2/15], ...; a sum may round to more than 1
        self.bins = np.clip(np.searchsorted(EDGES, self.confidence, "left") - 1, 0, BINS - 1)
        self.signs = np.sign(np.bincount(self.bins, self.excess, BINS))  # overconfident or not
        nats = -np.take_along_axis(self.log_probs, truths[:, None], axis=1)[:, 0]
        self.impossible = int(np.isinf(nats).sum())
        self.nats = np.where(np.isinf(nats), 0.0, nats)
        # the cells of the confusion matrix that occur, and the one of each record
        pairs = truths * self.classes + self.predicted
        self.cells, self.cell = np.unique(pairs, return_inverse=True)

    def weighted_sums(self, weights: Floats) -> Floats:
        """Return (R, 3 C + 1 + BINS) sums under weights (R, N): hits, truths and predictions of
        each class, nats, and excess confidence by bin.
        """
        cells = _sum_groups(self.cell, weights, len(self.cells))  # fewer than the records
        truth, predicted = self.cells // self.classes, self.cells % self.classes
        parts = [
            _sum_groups(truth, cells * (predicted == truth), self.classes),
            _sum_groups(truth, cells, self.classes),
            _sum_groups(predicted, cells, self.classes),
            np.einsum("rn,n->r", weights, self.nats)[:, None],
            _sum_groups(self.bins, weights * self.excess, BINS),
        ]
        return np.concatenate(parts, axis=1)

    def unit_sums(self, units: Integers, count: int) -> Floats:
        """Return the sums of `weighted_sums` over the records of each unit (N,) of `count`."""

        def sum_codes(codes: Integers, width: int, values: Any = None) -> Floats:
            sums = np.bincount(units * width + codes, values, count * width)
            return sums.reshape(count, width).astype(np.float64)

        parts = [
            sum_codes(self.truths, self.classes, self.truths == self.predicted),
            sum_codes(self.truths, self.classes),
            sum_codes(self.predicted, self.classes),
            sum_codes(np.zeros_like(units), 1, self.nats),
            sum_codes(self.bins, BINS, self.excess),
        ]
        return np.concatenate(parts, axis=1)

    def rankings(self) -> list[Ranking]:
        """Return the ranking of the positive of two classes, else of each class against the rest.

        Two logits are ranked by their difference: probabilities near 1 would be rounded to ties.
        """
        if self.classes == 2:
            positive = self.positive or 0
            scores = self.scores[:, positive]
            if not self.are_probabilities:
                scores = scores - self.scores[:, 1 - positive]
            return [Ranking(scores, self.truths == positive)]
        table = self.scores if self.are_probabilities else self.log_probs
        return [Ranking(table[:, c], self.truths == c) for c in range(self.classes)]

    def confusion(self) -> Integers:
        pairs = self.truths * self.classes + self.predicted
        return np.bincount(pairs, minlength=self.classes**2).reshape(self.classes, self.classes)

    def reliability(self) -> Reliability:
        counts = np.bincount(self.bins, minlength=BINS)
        with np.errstate(invalid="ignore"):
            confidence = np.bincount(self.bins, self.confidence, BINS) / counts
            excess = np.bincount(self.bins, self.excess, BINS) / counts
        return Reliability(EDGES.copy(), counts, confidence, confidence - excess)


def _sum_groups(codes: Integers, weights: Floats, groups: int) -> Floats:
    """Return the sums (R, groups) of weights (R, N) over the records of each code (N,)."""
    return np.stack([np.bincount(codes, row, groups) for row in weights])


class Ranking:
    """Scores (N,) of records of which some are positive (N,), sorted once.

    A resample is a weight for each record. Its metrics, each record repeated as often as it was
    drawn, come from cumulative weights: exact, with ties, in time linear in the records.
    """

    def __init__(self, scores: Floats, positive: NDArray[np.bool_]) -> None:
        self.positives, self.negatives = (
            records[np.argsort(scores[records], kind="stable")]
            for records in (np.flatnonzero(positive), np.flatnonzero(~positive))
        )
        up, down = scores[self.positives], scores[self.negatives]
        self.below = np.searchsorted(down, up, "left")  # negatives below each positive ...
        self.upto = np.searchsorted(down, up, "right")  # ... and those below or level with it
        self.first = np.searchsorted(up, up, "left")  # the first positive level with it

    def __call__(self, weights: Floats) -> Floats:
        """Return (R, 2) AUROC and average precision under weights (R, N); NaN without both classes.

        AUROC is the share of pairs in which the positive scores higher, ties one half (Hanley &
        McNeil 1982). Average precision is the mean, over the positives, of the precision among all
        that score at least as high: the sum of (R_n - R_{n-1}) P_n, without interpolation.
        """
        ups = np.take(weights, self.positives, axis=1)
        downs = cumulative_sums(np.take(weights, self.negatives, axis=1))
        hits = ups.sum(1, keepdims=True) - np.take(cumulative_sums(ups), self.first, axis=1)
        below = np.take(downs, self.below, axis=1)
        pairs = np.einsum("rn,rn->r", ups, below + np.take(downs, self.upto, axis=1)) / 2
        selected = hits + downs[:, -1:] - below
        precision = np.einsum("rn,rn->r", ups, hits / np.maximum(selected, 1.0))  # 0 if not drawn
        total = ups.sum(1)
        both = np.where((total > 0) & (downs[:, -1] > 0), 1.0, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            metrics = np.stack([pairs / (total * downs[:, -1]), precision / total], axis=1)
        return metrics * both[:, None]


class ClassResamples(Resamples):
    """Resampled counts of classes and predictions, (1 + RESAMPLES, C), and rankings of scores."""

    def __init__(
        self,
        scored: ClassScores,
        sums: Floats,
        data: str,
        units: Integers,
        count: int,
        ranked: Floats | None = None,
    ) -> None:
        super().__init__(data, units, count)
        classes = scored.classes
        self.scored, self.scores, self.truths = scored, scored.scores, scored.truths
        self.hits, self.support, self.predicted = np.split(sums[:, : 3 * classes], 3, axis=1)
        self.nats, self.excess = sums[:, 3 * classes], sums[:, 3 * classes + 1 :]
        self.records = self.support.sum(1)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: undefined
            self.f1 = 2 * self.hits / (self.support + self.predicted)
            self.recall = self.hits / self.support
            # 0 for a class that occurs and is never predicted, as F1 is
            never = (self.predicted == 0) & (self.support > 0)
            self.precision = np.where(never, 0.0, self.hits / self.predicted)
        self.ranked = ranked  # (rankings, 1 + RESAMPLES, 2), or None: not ranked

    def estimate(self, values: Floats, undefined: str = ONE_CLASS) -> BootstrapEstimate:
        return super().estimate(values, undefined if len(self.truths) else "no truth is known")

    def estimate_class(self, values: Floats, number: int, undefined: str) -> BootstrapEstimate:
        """Return the estimate of a metric of one class from its values (1 + RESAMPLES,)."""
        return replace(self.estimate(values, undefined), class_name=self.scored.class_names[number])

    def estimate_positive(self, values: Floats, undefined: str) -> BootstrapEstimate | None:
        """Return the estimate of the positive class, if any, from (1 + RESAMPLES, C) values."""
        number = self.scored.positive
        return None if number is None else self.estimate_class(values[:, number], number, undefined)

    def report(self, kind: str) -> ClassificationReport:
        classes = tuple(
            {
                "precision": self.estimate_class(self.precision[:, c], c, ABSENT),
                "recall": self.estimate_class(self.recall[:, c], c, "the class does not occur"),
                "f1": self.estimate_class(self.f1[:, c], c, ABSENT),
            }
            for c in range(self.scored.classes)
        )
        estimates = estimate_metrics(kind, self)
        return ClassificationReport(
            estimates, classes, self.scored.confusion(), self.scored.reliability()
        )


@register_metric(KINDS, "accuracy", title="accuracy")
def accuracy(classes: ClassResamples) -> BootstrapEstimate:
    return classes.estimate(classes.hits.sum(1) / classes.records)


@register_metric(KINDS, "error", title="error", lower_is_better=True, in_table=False)
def error(classes: ClassResamples) -> BootstrapEstimate:
    return classes.estimate(1 - classes.hits.sum(1) / classes.records)


@register_metric(KINDS, "f1", title="F1")
def f1(classes: ClassResamples) -> BootstrapEstimate | None:
    return classes.estimate_positive(classes.f1, ABSENT)


@register_metric(KINDS, "precision", title="precision", in_table=False)
def precision(classes: ClassResamples) -> BootstrapEstimate | None:
    return classes.estimate_positive(classes.precision, ABSENT)


@register_metric(KINDS, "recall", title="recall", in_table=False)
def recall(classes: ClassResamples) -> BootstrapEstimate | None:
    return classes.estimate_positive(classes.recall, "the class does not occur")


@register_metric(KINDS, "average_precision", title="avg. precision")
def average_precision(classes: ClassResamples) -> BootstrapEstimate | None:
    number = classes.scored.positive
    if classes.ranked is None or number is None:
        return None
    of_class = classes.ranked[0 if len(classes.ranked) == 1 else number, :, 1]
    return classes.estimate_class(of_class, number, ONE_CLASS)


@register_metric(("label", "position-label"), "f1_macro", title="macro F1")
@register_metric("labels", "f1_macro", title="macro F1", in_table=False)
def f1_macro(classes: ClassResamples) -> BootstrapEstimate:
    return classes.estimate(mean_of_defined(classes.f1))


@register_metric(KINDS, "precision_macro", title="macro precision", in_table=False)
def precision_macro(classes: ClassResamples) -> BootstrapEstimate:
    return classes.estimate(mean_of_defined(classes.precision))


@register_metric(KINDS, "recall_macro", title="macro recall", in_table=False)
def recall_macro(classes: ClassResamples) -> BootstrapEstimate:
    return classes.estimate(mean_of_defined(classes.recall))


@register_metric(KINDS, "mcc", title="MCC")
def mcc(classes: ClassResamples) -> BootstrapEstimate:
    """Gorodkin's correlation: undefined if all truths are equal, 0 if all predictions are."""
    support, predicted, records = classes.support, classes.predicted, classes.records
    covariance = classes.hits.sum(1) * records - (support * predicted).sum(1)
    truth_spread, predicted_spread = (records**2 - (x**2).sum(1) for x in (support, predicted))
    correlation = covariance / np.sqrt(truth_spread * predicted_spread)
    correlation = np.where(predicted_spread > 0, correlation, 0.0)
    return classes.estimate(np.where(truth_spread > 0, correlation, np.nan))


@register_metric(KINDS, "log_loss", title="log loss", lower_is_better=True, in_table=False)
def log_loss(classes: ClassResamples) -> BootstrapEstimate:
    estimate = classes.estimate(classes.nats / classes.records)
    impossible = classes.scored.impossible
    return replace(estimate, value=math.inf, impossible=impossible) if impossible else estimate


@register_metric(KINDS, "ece", title="ECE", lower_is_better=True)
def ece(classes: ClassResamples) -> BootstrapEstimate:
    """The expected calibration error. A bin keeps its sign in resamples: noise around zero, taken
    absolutely, would increase every sample.
    """
    excess = np.einsum("rb,b->r", classes.excess, classes.scored.signs)
    return classes.estimate(np.maximum(excess, 0.0) / classes.records)


@register_metric(KINDS, "auroc", title="AUROC")
def auroc(classes: ClassResamples) -> BootstrapEstimate | None:
    if classes.ranked is None:
        return None
    return classes.estimate(mean_of_defined(classes.ranked[:, :, 0].T))


@register_metric(KINDS, "average_precision_macro", title="macro avg. precision")
def average_precision_macro(classes: ClassResamples) -> BootstrapEstimate | None:
    if classes.ranked is None or len(classes.ranked) == 1:
        return None
    return classes.estimate(mean_of_defined(classes.ranked[:, :, 1].T))


def _check(scores: Floats, truths: NDArray[Any], probabilities: bool) -> None:
    if scores.ndim != 2 or scores.shape[1] < 2 or truths.shape != scores.shape[:1]:
        raise ValueError(
            "scores must be (N, C) with two classes at least and truths (N,), "
            f"got {scores.shape} and {truths.shape}"
        )
    if np.isnan(scores).any() or (scores == np.inf).any() or (scores == -np.inf).all(1).any():
        raise ValueError("a score is NaN or infinite")
    if probabilities:
        sums = scores.sum(1)
        if (scores < 0).any() or (scores > 1).any() or (np.abs(sums - 1) > TOLERANCE).any():
            raise ValueError("probabilities must be from 0 to 1 and sum to 1 for each record")


def _class_numbers(truths: NDArray[Any], classes: int) -> Integers:
    numbers = truths.astype(np.int64)
    invalid = (numbers != truths) | (numbers < 0) | (numbers >= classes)
    if invalid.any():
        raise ValueError(
            f"truths must be whole numbers from 0 to {classes - 1}, got {truths[invalid][0]}"
        )
    return numbers


def best_threshold(scores: ArrayLike, truths: ArrayLike, by: str = "mcc") -> float:
    """Return the t for which `score >= t` predicts 1 best, by `mcc`, `f1` or `accuracy`.

    Call it on **validation data only** and apply the threshold elsewhere: on the data that are
    reported it makes their metrics too good. Scores (N,) are of class 1, for `label` and `labels`
    its probabilities. Truths (N,) are 0 or 1; negative or NaN is missing. The threshold is half way
    between two scores; of several that are equally good, the highest.
    """
    if by not in CRITERIA:
        raise ValueError(f"unknown by={by!r}; choose one of {', '.join(CRITERIA)}")
    labels = np.asarray(truths, dtype=np.float64)
    known = labels >= 0  # NaN is not
    values = np.asarray(scores, dtype=np.float64)
    if labels.ndim != 1 or values.shape != labels.shape:
        raise ValueError(
            f"scores {values.shape} and truths {labels.shape} must be of one shape (N,)"
        )
    values, positive = values[known], labels[known] == 1
    if not np.isin(labels[known], (0, 1)).all() or not np.isfinite(values).all():
        raise ValueError("truths must be 0, 1 or missing, and scores finite")
    if positive.all() or not positive.any():
        raise ValueError("a threshold needs both classes in the validation data, but it has one")
    levels, level = np.unique(values, return_inverse=True)  # ascending
    # records predicted 1 by each threshold, from the highest down
    hits = np.append(0.0, np.bincount(level, positive)[::-1].cumsum())
    chosen = np.append(0.0, np.bincount(level)[::-1].cumsum())
    best = int(np.argmax(_quality(hits, chosen, by)))
    low, high = levels[:-1], levels[1:]
    middle = low / 2 + high / 2
    between = np.where((low < middle) & (middle <= high), middle, high)[::-1]
    thresholds = np.concatenate([[np.nextafter(levels[-1], np.inf)], between, [levels[0]]])
    return float(thresholds[best])


def _quality(hits: Floats, chosen: Floats, by: str) -> Floats:
    """Return how good it is to predict 1 for `chosen` records of which `hits` are 1."""
    positives, records = hits[-1], chosen[-1]
    if by == "f1":
        f1_score: Floats = 2 * hits / (chosen + positives)
        return f1_score
    if by == "accuracy":
        correct: Floats = (hits + (records - positives) - (chosen - hits)) / records
        return correct
    covariance = hits * records - chosen * positives
    spread = chosen * (records - chosen) * positives * (records - positives)
    correlation: Floats = covariance / np.sqrt(np.maximum(spread, 1.0))  # 0 if all are predicted 1
    return correlation
