"""What depends on the order of scores alone: AUROC, average precision, ranks, thresholds.

Scores are sorted once. A resample then is a weight for each record, and the figure of the
resample, each record repeated as often as it was drawn, comes from cumulative weights: exact, with
ties, in time linear in the records.

How well labels are predicted: one of C classes, several at once, or one at each position.

Everything is computed from arrays: scores and truths. A figure that the truths do not define is
undefined and says why; it is never a default. Confidence is checked as by Guo et al. 2017
(arXiv:1706.04599), correlation as by Gorodkin 2004 ("Comparing two K-category assignments by a
K-category correlation coefficient"), which for two classes is Matthews's, and Pearson's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.evaluation.bootstrap import Floats
from regard.evaluation.estimates import (
    BootstrapEstimate,
    by_sums,
    by_weights,
    digest,
    macro,
    mean_of_defined,
    with_columns,
)
from regard.evaluation.language_modeling import Metric

CRITERIA = ("mcc", "f1", "accuracy")


class Ranking:
    """Scores (N,) of records of which some are positive (N,), ready to be judged under weights."""

    def __init__(self, scores: Floats, positive: NDArray[np.bool_]) -> None:
        self.positives = _sorted(np.flatnonzero(positive), scores)
        self.negatives = _sorted(np.flatnonzero(~positive), scores)
        up, down = scores[self.positives], scores[self.negatives]
        self.below = np.searchsorted(down, up, "left")  # negatives below each positive ...
        self.upto = np.searchsorted(down, up, "right")  # ... and those below or level with it
        self.first = np.searchsorted(up, up, "left")  # the first positive level with it

    def __call__(self, weights: Floats) -> Floats:
        """(R, 2) AUROC and average precision under weights (R, N); NaN without both classes.

        AUROC is the share of pairs in which the positive scores higher, ties one half (Hanley &
        McNeil 1982). Average precision is the mean, over the positives, of the precision among all
        that score at least as high: the sum of (R_n - R_{n-1}) P_n, without interpolation.
        """
        ups = np.take(weights, self.positives, axis=1)
        downs = cumulated(np.take(weights, self.negatives, axis=1))
        hits = ups.sum(1, keepdims=True) - np.take(cumulated(ups), self.first, axis=1)
        below = np.take(downs, self.below, axis=1)
        pairs = np.einsum("rn,rn->r", ups, below + np.take(downs, self.upto, axis=1)) / 2
        reached = hits + downs[:, -1:] - below
        found = np.einsum("rn,rn->r", ups, hits / np.maximum(reached, 1.0))  # 0 where none is drawn
        total = ups.sum(1)
        both = np.where((total > 0) & (downs[:, -1] > 0), 1.0, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([pairs / (total * downs[:, -1]), found / total], axis=1) * both[:, None]


class Ranks:
    """Numbers (N,) ready to be ranked under weights, ties by their mean rank."""

    def __init__(self, values: Floats) -> None:
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.first = np.searchsorted(ordered, values, "left")
        self.last = np.searchsorted(ordered, values, "right")

    def __call__(self, weights: Floats) -> Floats:
        """(R, N) ranks less their mean, twice over (which keeps them whole), under (R, N)."""
        total = cumulated(np.take(weights, self.order, axis=1))
        twice = np.take(total, self.first, axis=1) + np.take(total, self.last, axis=1)
        ranks: Floats = twice - total[:, -1:]
        return ranks


def cumulated(values: Floats) -> Floats:
    """(R, N) to (R, N + 1): the sums of the first 0, 1, ... N."""
    found = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=found[:, 1:])
    return found


def _sorted(records: NDArray[np.int64], scores: Floats) -> NDArray[np.int64]:
    return records[np.argsort(scores[records], kind="stable")]


def best_threshold(scores: ArrayLike, truths: ArrayLike, by: str = "mcc") -> float:
    """The t for which `score >= t` predicts 1 best, by `mcc`, `f1` or `accuracy`.

    Call it on **validation data only** and apply what it gives elsewhere: on the data that are
    reported it makes their figures too good. Scores (N,) are of class 1, for `label` and `labels`
    its probabilities. Truths (N,) are 0 or 1; negative or NaN is missing.
    The threshold is half way between two scores; of several that are as good, the highest.
    """
    if by not in CRITERIA:
        raise ValueError(f"unknown by={by!r}; choose one of {', '.join(CRITERIA)}")
    given = np.asarray(truths, dtype=np.float64)
    known = given >= 0  # NaN is not
    values = np.asarray(scores, dtype=np.float64)
    if given.ndim != 1 or values.shape != given.shape:
        raise ValueError(
            f"scores {values.shape} and truths {given.shape} must be of one shape (N,)"
        )
    values, positive = values[known], given[known] == 1
    if not np.isin(given[known], (0, 1)).all() or not np.isfinite(values).all():
        raise ValueError("truths must be 0, 1 or missing, and scores finite")
    if positive.all() or not positive.any():
        raise ValueError("a threshold needs both classes in the validation data, but it has one")
    levels, place = np.unique(values, return_inverse=True)  # ascending
    ups = np.bincount(place, positive)[::-1].cumsum()  # those predicted 1 at each level, from above
    all_ = np.bincount(place)[::-1].cumsum()
    hits, chosen = np.append(0.0, ups), np.append(0.0, all_)  # from nothing to everything
    quality = _quality(hits, chosen, hits[-1], chosen[-1], by)
    best = int(np.argmax(quality))
    borders = np.concatenate([[np.nextafter(levels[-1], np.inf)], _between(levels), [levels[0]]])
    return float(borders[best])


def _between(levels: Floats) -> Floats:
    """A number above each level but the last and not above the next, from the highest down."""
    low, high = levels[:-1], levels[1:]
    middle = low / 2 + high / 2
    found: Floats = np.where((low < middle) & (middle <= high), middle, high)[::-1]
    return found


def _quality(hits: Floats, chosen: Floats, positives: float, records: float, by: str) -> Floats:
    """Of predicting 1 for `chosen` records of which `hits` are 1."""
    if by == "f1":
        f1: Floats = 2 * hits / (chosen + positives)
        return f1
    if by == "accuracy":
        right: Floats = (hits + (records - positives) - (chosen - hits)) / records
        return right
    covariance = hits * records - chosen * positives
    spread = chosen * (records - chosen) * positives * (records - positives)
    mcc: Floats = covariance / np.sqrt(np.maximum(spread, 1.0))  # 0 where all are alike
    return mcc


BINS = 15  # of equal width, as in Guo et al. 2017
EDGES = np.arange(BINS + 1) / BINS
MACRO = ("f1_macro", "precision_macro", "recall_macro")  # means over the classes
NAMES = ("accuracy", "error", *MACRO, "mcc", "log_loss", "ece")
OF_CLASS = ("precision", "recall", "f1")  # figures of each class
OF_POSITIVE = ("f1", "precision", "recall", "average_precision")  # of the class that is looked for
COSTS = ("error", "log_loss", "ece")
GIVEN = ("logits", "probabilities")
SLACK = 1e-4  # how far the probabilities of a record may be from a sum of one

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """The bins of a reliability diagram: how sure, and how often right. An empty bin has NaN."""

    edges: Floats  # (BINS + 1,)
    counts: Integers  # (BINS,)
    confidence: Floats  # (BINS,) the mean probability of the likeliest class
    accuracy: Floats  # (BINS,) how often the likeliest class is the true one


@dataclass(frozen=True, eq=False)
class ClassificationReport:
    """How good some predicted labels are."""

    estimates: dict[str, BootstrapEstimate]
    classes: tuple[dict[str, BootstrapEstimate], ...]  # OF_CLASS of each class
    confusion: Integers  # (C, C), truths down, predictions across
    reliability: Reliability

    def figures(self) -> dict[str, Metric]:
        """The metrics by name."""
        return {name: one.figure() for name, one in self.estimates.items()}


@dataclass(frozen=True, eq=False)
class MultilabelReport:
    """How good several labels at once are: the mean over columns, and each column."""

    mean: dict[str, BootstrapEstimate]  # over the columns whose truths have both classes
    columns: tuple[ClassificationReport, ...]
    targets: tuple[str, ...]  # the names of the columns

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The means, called so, and the metrics of each column; of a single column, its own."""
        if len(self.columns) == 1:
            return self.columns[0].estimates
        means = {f"{name}_mean": one for name, one in self.mean.items()}
        return with_columns(means, [one.estimates for one in self.columns], self.targets)

    def figures(self) -> dict[str, Metric]:
        """The same with their intervals."""
        return {name: one.figure() for name, one in self.estimates.items()}


def label(
    scores: ArrayLike,
    truths: ArrayLike,
    *,
    given: str = "logits",
    threshold: float | None = None,
    ranked: bool = True,
    positive: int | None = None,
    names: Sequence[str] = (),
) -> ClassificationReport:
    """Judge scores (N, C), logits or probabilities, of which class each of N records has (N,).

    The likeliest class is predicted; with two, class 1 where its probability reaches `threshold`
    (see `best_threshold`). Without `ranked` AUROC and average precision, which cost most where
    there are many classes, are left out. `f1`, `precision`, `recall` and `average_precision` are
    of the class `positive`, of two by default the second; `names` are those of the classes.
    """
    table, right = np.asarray(scores, dtype=np.float64), np.asarray(truths)
    _check(table, right, given)
    known = _whole(right, table.shape[1])
    if not len(known):
        raise ValueError("there are no records")
    problem = _Problem(table, known, given, threshold, ranked, positive, names)
    return problem.judged(*by_weights(problem, len(known)), digest(known))


def labels(
    scores: ArrayLike,
    truths: ArrayLike,
    *,
    given: str = "logits",
    thresholds: Sequence[float] | None = None,
    positive: Sequence[int] = (),
    classes: Sequence[Sequence[str]] = (),
    names: Sequence[str] = (),
) -> MultilabelReport:
    """Judge scores (N, C) of C independent labels beside truths (N, C): 0, 1, or missing.

    Missing is negative or NaN. A logit is of label 1 against 0. Each column is judged like `label`
    on the records that have it; resamples are of records, the same for all columns. `positive` is
    the class that `f1` and its like are of, 1 by default, `classes` are the names of both, and
    `names` those of the columns.
    """
    table, right = np.asarray(scores, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if table.ndim != 2 or table.shape != right.shape or not table.size:
        raise ValueError(
            f"scores {table.shape} and truths {right.shape} must be of one shape (N, C), not empty"
        )
    if thresholds is not None and len(thresholds) != table.shape[1]:
        raise ValueError(f"{table.shape[1]} columns need as many thresholds, got {len(thresholds)}")
    known = right >= 0  # NaN is not
    problems = []
    for column in range(table.shape[1]):
        there = known[:, column]
        ones, zeros = table[there, column], np.zeros(int(there.sum()))
        pair = np.stack([1 - ones if given == "probabilities" else zeros, ones], axis=1)  # (N, 2)
        _check(pair, right[there, column], given)
        threshold = None if thresholds is None else thresholds[column]
        own = positive[column] if positive else 1
        both = classes[column] if classes else ()
        whole = _whole(right[there, column], 2)
        problems.append(_Problem(pair, whole, given, threshold, positive=own, names=both))

    def measure(weights: Floats) -> Floats:
        pairs = zip(problems, known.T, strict=True)
        drawn = ((one, np.take(weights, np.flatnonzero(there), axis=1)) for one, there in pairs)
        return np.concatenate([one(of) for one, of in drawn], axis=1)

    values, samples = by_weights(measure, len(right))
    data = digest(np.where(known, right, -1.0))
    parts = zip(
        np.split(values, len(problems)), np.split(samples, len(problems), axis=1), strict=True
    )
    columns = tuple(
        one.judged(*part, digest(one.truths, there))
        for one, part, there in zip(problems, parts, known.T, strict=True)
    )
    full = [
        one.estimates
        for one, problem in zip(columns, problems, strict=True)
        if len(np.unique(problem.truths)) == 2
    ]
    targets = tuple(names) or tuple(map(str, range(table.shape[1])))
    if full:
        return MultilabelReport(macro(full, data, ""), columns, targets)
    why = "no column has both classes"
    nothing = {name: _undefined(one, data, why) for name, one in columns[0].estimates.items()}
    return MultilabelReport(nothing, columns, targets)


def positions(
    scores: ArrayLike,
    truths: ArrayLike,
    lengths: ArrayLike,
    *,
    given: str = "logits",
    positive: int | None = None,
    names: Sequence[str] = (),
) -> ClassificationReport:
    """Judge scores (P, C) of the class of each of P positions (P,), in sequences of `lengths` (S,).

    A negative truth is missing. Accuracy is per position: Q3 for three classes of secondary
    structure. Neighbours depend on one another, so that resamples are of sequences. `positive` and
    `names` are as for `label`.
    """
    table, right = np.asarray(scores, dtype=np.float64), np.asarray(truths)
    sizes = np.asarray(lengths, dtype=np.int64)
    _check(table, right, given)
    if not len(sizes) or (sizes < 0).any() or sizes.sum() != len(right):
        raise ValueError(
            f"lengths must be of one sequence at least and sum to the {len(right)} positions, "
            f"got {len(sizes)} with the sum {sizes.sum()}"
        )
    known = right >= 0
    whole = _whole(right[known], table.shape[1])
    problem = _Problem(table[known], whole, given, ranked=False, positive=positive, names=names)
    sequences = np.repeat(np.arange(len(sizes)), sizes)[known]
    truths_of_all = np.where(known, right, -1).astype(np.int64)
    estimated = by_sums(problem.figures, problem.sums_of(sequences, len(sizes)))
    return problem.judged(*estimated, digest(truths_of_all, sizes))


class _Problem:
    """Scores and truths of N records, as a function from weights to figures."""

    def __init__(
        self,
        scores: Floats,
        truths: Integers,
        given: str,
        threshold: float | None = None,
        ranked: bool = True,
        positive: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.classes = scores.shape[1]
        self.positive = 1 if positive is None and self.classes == 2 else positive
        if self.positive is not None and not 0 <= self.positive < self.classes:
            raise ValueError(f"positive must be from 0 to {self.classes - 1}, got {positive}")
        self.class_names = tuple(names) or tuple(map(str, range(self.classes)))
        self.truths = truths
        likeliest = scores.argmax(1)
        logs, probabilities = _normalised(scores, given)
        confidence = np.take_along_axis(probabilities, likeliest[:, None], axis=1)[:, 0]
        self.sure = confidence - (likeliest == truths)  # (N,) by how much too sure
        self.confidence = confidence
        # bins are open below: (0, 1/15], (1/15, 2/15], ...; a sum may round to more than 1
        self.bins = np.clip(np.searchsorted(EDGES, confidence, "left") - 1, 0, BINS - 1)
        self.signs = np.sign(np.bincount(self.bins, self.sure, BINS))  # too sure, or not enough
        self.predicted = likeliest
        if threshold is not None:
            if self.classes != 2:
                raise ValueError(f"a threshold is for two classes, got {self.classes}")
            self.predicted = (probabilities[:, 1] >= threshold).astype(np.int64)
        pairs = truths * self.classes + self.predicted  # cells of the confusion matrix ...
        self.cells, self.cell = np.unique(pairs, return_inverse=True)  # ... that occur, and whose
        nats = -np.take_along_axis(logs, truths[:, None], axis=1)[:, 0]
        self.impossible = int(np.isinf(nats).sum())
        self.nats = np.where(np.isinf(nats), 0.0, nats)
        self.rankings = self._rankings(scores, logs, given) if ranked else []
        several = [] if self.classes == 2 else ["average_precision_macro"]
        several += [] if self.positive is None else ["average_precision"]
        self.names = (*NAMES, *(("auroc", *several) if ranked else ()))

    def __call__(self, weights: Floats) -> Floats:
        """(R, names and OF_CLASS for each class) under weights (R, N)."""
        cells = _counts(self.cell, weights, len(self.cells))  # fewer than the records
        said, there = self.cells % self.classes, self.cells // self.classes
        parts = [
            _counts(there, cells * (said == there), self.classes),
            _counts(there, cells, self.classes),
            _counts(said, cells, self.classes),
            np.einsum("rn,n->r", weights, self.nats)[:, None],
            _counts(self.bins, weights * self.sure, BINS),
        ]
        found = self.figures(np.concatenate(parts, axis=1))
        if not self.rankings:
            return found
        each = np.stack([one(weights) for one in self.rankings])  # (classes, R, 2)
        means = [mean_of_defined(each[:, :, i].T) for i in range(2)]  # (R,) each
        if self.classes > 2 and self.positive is not None:
            means.append(each[self.positive, :, 1])
        ranked = np.stack(means, axis=1)
        return np.concatenate([found[:, : len(NAMES)], ranked, found[:, len(NAMES) :]], axis=1)

    def _rankings(self, scores: Floats, logs: Floats, given: str) -> list[Ranking]:
        """Of the positive class for two classes, else of each class against the rest.

        Two logits are ranked by their difference: probabilities near 1 would run together.
        """
        if self.classes == 2:
            this = self.positive or 0
            own = scores[:, this]
            ones = own - scores[:, 1 - this] if given == "logits" else own
            return [Ranking(ones, self.truths == this)]
        table = logs if given == "logits" else scores
        return [Ranking(table[:, c], self.truths == c) for c in range(self.classes)]

    def sums_of(self, units: Integers, count: int) -> Floats:
        """(count, K) what `figures` takes, of each unit: units (N,) says whose a record is."""

        def spread(codes: Integers, width: int, values: Any = None) -> Floats:
            found = np.bincount(units * width + codes, values, count * width)
            return found.reshape(count, width).astype(np.float64)

        parts = [
            spread(self.truths, self.classes, self.truths == self.predicted),
            spread(self.truths, self.classes),
            spread(self.predicted, self.classes),
            spread(np.zeros_like(units), 1, self.nats),
            spread(self.bins, BINS, self.sure),
        ]
        return np.concatenate(parts, axis=1)

    def figures(self, sums: Floats) -> Floats:
        """(R, NAMES and OF_CLASS of each class) from sums (R, 3 C + 1 + BINS).

        The sums are hits, truths and predictions of each class, nats, and excess confidence by bin.
        A bin keeps its sign in a resample: noise around zero, folded up, would lift every sample.
        """
        hits, there, said = np.split(sums[:, : 3 * self.classes], 3, axis=1)  # (R, C) each
        nats, sure = sums[:, 3 * self.classes], sums[:, 3 * self.classes + 1 :]
        records = there.sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 is NaN: undefined
            accuracy = hits.sum(1) / records
            f1 = 2 * hits / (there + said)
            recall = hits / there
            # of a class that occurs and is never predicted it is 0, as F1 is
            precision = np.where((said == 0) & (there > 0), 0.0, hits / said)
            log_loss = nats / records
            ece = np.maximum(np.einsum("rb,b->r", sure, self.signs), 0.0) / records
        mcc = _correlation(hits.sum(1), there, said, records)
        means = [mean_of_defined(each) for each in (f1, precision, recall)]
        main = [accuracy, 1 - accuracy, *means, mcc, log_loss, ece]
        return np.concatenate([np.stack(main, axis=1), precision, recall, f1], axis=1)

    def judged(self, values: Floats, samples: Floats, data: str) -> ClassificationReport:
        """The figures under their names."""
        names = (*self.names, *(name for name in OF_CLASS for _ in range(self.classes)))
        found = []
        for place, name in enumerate(names):
            value, impossible = float(values[place]), 0
            if name == "log_loss" and self.impossible:
                value, impossible = math.inf, self.impossible
            why = self._why(name) if math.isnan(value) else ""
            cost = name in COSTS
            found.append(BootstrapEstimate(value, samples[:, place], data, cost, why, impossible))
        main = dict(zip(self.names, found, strict=False))
        rest = found[len(main) :]
        classes = tuple(
            {
                name: replace(rest[row * self.classes + c], of=self.class_names[c])
                for row, name in enumerate(OF_CLASS)
            }
            for c in range(self.classes)
        )
        return ClassificationReport(
            self._ordered(main, classes), classes, self._confusion(), self._reliability()
        )

    def _ordered(
        self, main: dict[str, BootstrapEstimate], classes: Sequence[dict[str, BootstrapEstimate]]
    ) -> dict[str, BootstrapEstimate]:
        """The figures in the order they are shown in: those of the positive class after the share
        that is right.
        """
        own: dict[str, BootstrapEstimate] = {}
        if self.positive is not None:
            own = {name: classes[self.positive][name] for name in OF_POSITIVE if name in OF_CLASS}
            if "average_precision" in main:
                own["average_precision"] = replace(
                    main["average_precision"], of=self.class_names[self.positive]
                )
        first = {name: main[name] for name in ("accuracy", "error")}
        return first | own | {name: one for name, one in main.items() if name not in own}

    def _why(self, name: str) -> str:
        """A figure is undefined."""
        if not len(self.truths):
            return "no truth is known"
        if name == "recall":
            return "the class does not occur"
        if name in ("f1", "precision"):
            return "the class neither occurs nor is predicted"
        return "all truths are of one class"

    def _confusion(self) -> Integers:
        found = np.zeros(self.classes**2, dtype=np.int64)
        found[self.cells] = np.bincount(self.cell, minlength=len(self.cells))
        return found.reshape(self.classes, self.classes)

    def _reliability(self) -> Reliability:
        counts = np.bincount(self.bins, minlength=BINS)
        with np.errstate(invalid="ignore"):
            confidence = np.bincount(self.bins, self.confidence, BINS) / counts
            gap = np.bincount(self.bins, self.sure, BINS) / counts
        return Reliability(EDGES.copy(), counts, confidence, confidence - gap)


def _correlation(hits: Floats, there: Floats, said: Floats, records: Floats) -> Floats:
    """(R,) Gorodkin's correlation. Undefined if all truths are alike, 0 if all predictions are."""
    covariance = hits * records - (there * said).sum(1)
    truth, prediction = (records**2 - (x**2).sum(1) for x in (there, said))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(prediction > 0, covariance / np.sqrt(truth * prediction), 0.0)
    return np.where(truth > 0, found, np.nan)


def _counts(codes: Integers, weights: Floats, groups: int) -> Floats:
    """(R, groups) the weights (R, N) of the records of each group, N codes."""
    return np.stack([np.bincount(codes, row, groups) for row in weights])


def _normalised(scores: Floats, given: str) -> tuple[Floats, Floats]:
    """The logarithms of probabilities and the probabilities themselves, (N, C) each."""
    if given == "probabilities":
        with np.errstate(divide="ignore"):
            return np.log(scores), scores
    logs = scores - scores.max(1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(1, keepdims=True))
    return logs, np.exp(logs)


def _check(scores: Floats, truths: NDArray[Any], given: str) -> None:
    """Scores (N, C) beside truths (N,) must be what they are said to be."""
    if given not in GIVEN:
        raise ValueError(f"unknown given={given!r}; choose one of {', '.join(GIVEN)}")
    if scores.ndim != 2 or scores.shape[1] < 2 or truths.shape != scores.shape[:1]:
        raise ValueError(
            "scores must be (N, C) with two classes at least and truths (N,), "
            f"got {scores.shape} and {truths.shape}"
        )
    if np.isnan(scores).any() or (scores == np.inf).any() or (scores == -np.inf).all(1).any():
        raise ValueError("a score is NaN or infinite")
    if given == "probabilities":
        sums = scores.sum(1)
        if (scores < 0).any() or (scores > 1).any() or (np.abs(sums - 1) > SLACK).any():
            raise ValueError("probabilities must be from 0 to 1 and sum to 1 for each record")


def _whole(truths: NDArray[Any], classes: int) -> Integers:
    """Truths as the numbers of classes."""
    found = truths.astype(np.int64)
    if (found != truths).any() or (found < 0).any() or (found >= classes).any():
        bad = truths[(found != truths) | (found < 0) | (found >= classes)][0]
        raise ValueError(f"truths must be whole numbers from 0 to {classes - 1}, got {bad}")
    return found


def _undefined(one: BootstrapEstimate, data: str, why: str) -> BootstrapEstimate:
    return BootstrapEstimate(math.nan, np.full_like(one.samples, np.nan), data, one.cost, why)
