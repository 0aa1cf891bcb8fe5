"""What depends on the order of scores alone: AUROC, average precision, ranks, thresholds.

Scores are sorted once. A resample then is a weight for each record, and the figure of the
resample, each record repeated as often as it was drawn, comes from cumulative weights: exact, with
ties, in time linear in the records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.evaluate.intervals import Floats

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
