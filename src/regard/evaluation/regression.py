"""How well numbers are predicted: RMSE, MAE, R², Pearson's and Spearman's correlation.

All but the last are functions of sums over records. Spearman's (1904) is Pearson's of the ranks,
ties by their mean rank, which depend on who else was drawn. Truths may have gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.evaluation.bootstrap import Floats
from regard.evaluation.classification import Ranks
from regard.evaluation.estimates import (
    BootstrapEstimate,
    by_sums,
    by_weights,
    digest,
    macro,
    with_columns,
)
from regard.evaluation.language_modeling import Metric

NAMES = ("rmse", "mae", "r2", "pearson", "spearman")
COSTS = ("rmse", "mae")
WHY = "no column defines it"
ALIKE = 1e-12  # a sum of squares this small beside the squares it is the difference of is zero


@dataclass(frozen=True, eq=False)
class RegressionReport:
    """How good several predicted numbers at once are: each column, and means over columns.

    A mean has no unit: errors are divided by the column's `scale` before they are averaged, and
    without scales there is no mean of them.
    """

    mean: dict[
        str, BootstrapEstimate
    ]  # of each figure that has no unit, over the columns that define it
    columns: tuple[dict[str, BootstrapEstimate], ...]
    targets: tuple[str, ...]  # the names of the columns

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The means, called so, and the metrics of each column; of a single column, its own."""
        if len(self.columns) == 1:
            return self.columns[0]
        return with_columns(self.mean, self.columns, self.targets)

    def figures(self) -> dict[str, Metric]:
        """The same with their intervals."""
        return {name: one.figure() for name, one in self.estimates.items()}


def value(predicted: ArrayLike, truths: ArrayLike) -> dict[str, BootstrapEstimate]:
    """Judge N predictions (N,) of one number beside truths (N,), NaN where missing, by name."""
    said, right = np.asarray(predicted, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if right.ndim != 1:
        raise ValueError(f"truths must be (N,), got {right.shape}; `values` takes (N, C)")
    _check(said, right)
    return _column(said, right)


def values(
    predicted: ArrayLike,
    truths: ArrayLike,
    *,
    scale: Sequence[float] = (),
    names: Sequence[str] = (),
) -> RegressionReport:
    """Judge predictions (N, C) of C numbers beside truths (N, C), NaN where missing.

    Columns may have different units, so that their errors are averaged after division by `scale`,
    the standard deviations of the training data; without it they are not averaged. Resamples are of
    records, the same for all columns. `names` are those of the columns.
    """
    said, right = np.asarray(predicted, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if right.ndim != 2:
        raise ValueError(f"truths must be (N, C), got {right.shape}; `value` takes (N,)")
    _check(said, right)
    columns = tuple(_column(a, b) for a, b in zip(said.T, right.T, strict=True))
    whole = macro([_without_unit(*one) for one in zip_longest(columns, scale)], digest(right), WHY)
    means = {f"{name}_mean": one for name, one in whole.items()}
    return RegressionReport(means, columns, tuple(names) or tuple(map(str, range(right.shape[1]))))


def _without_unit(
    column: dict[str, BootstrapEstimate], scale: float | None
) -> dict[str, BootstrapEstimate]:
    """What of a column can be averaged with others: errors as shares of `scale`, correlations."""
    found = {}
    for name, one in column.items():
        if name not in COSTS:
            found[name] = one
        elif scale is not None:
            share = 1 / scale if scale > 0 else math.nan
            why = one.why or ("" if scale > 0 else "all training values are alike")
            found[f"{name}_standardized"] = replace(
                one, value=one.value * share, samples=one.samples * share, why=why
            )
    return found


def _check(said: Floats, right: Floats) -> None:
    if said.shape != right.shape or not right.size:
        raise ValueError(
            f"predicted {said.shape} and truths {right.shape} must be of one shape, not empty"
        )
    known = ~np.isnan(right)
    if not np.isfinite(said[known]).all() or np.isinf(right).any():
        raise ValueError("predictions must be finite, and truths finite or NaN for missing")


def _column(said: Floats, right: Floats) -> dict[str, BootstrapEstimate]:
    known = ~np.isnan(right)
    x, y = said[known], right[known]
    found, samples = by_sums(_from_sums, _table(x, y, known))
    ranks_x, ranks_y, there = Ranks(x), Ranks(y), np.flatnonzero(known)

    def spearman(weights: Floats) -> Floats:
        drawn = np.take(weights, there, axis=1)
        a, b = ranks_x(drawn), ranks_y(drawn)
        weighed = drawn * a
        top, spread_x = (np.einsum("rn,rn->r", weighed, other) for other in (b, a))
        spread_y = np.einsum("rn,rn->r", drawn * b, b)
        found: Floats = top / _root(spread_x * spread_y)
        return found[:, None]

    rank, rank_samples = by_weights(spearman, len(right))
    estimates = np.append(found, rank)
    drawn = np.concatenate([samples, rank_samples], axis=1)
    data = digest(right)
    return {
        name: BootstrapEstimate(
            float(one), of, data, name in COSTS, _why(y) if np.isnan(one) else ""
        )
        for name, one, of in zip(NAMES, estimates, drawn.T, strict=True)
    }


def _table(x: Floats, y: Floats, known: NDArray[np.bool_]) -> Floats:
    """(N, 8) what is summed, zero where the truth is missing.

    Around the means, so that nothing is lost when large sums are subtracted.
    """
    a = x - x.mean() if len(x) else x
    b = y - y.mean() if len(y) else y
    error = x - y
    table = np.zeros((len(known), 8))
    columns = [np.ones_like(x), np.abs(error), error**2, a, b, a * a, b * b, a * b]
    table[known] = np.stack(columns, axis=1)
    return table


def _from_sums(sums: Floats) -> Floats:
    """(R, 4) RMSE, MAE, R² and Pearson from (R, 8) sums; undefined is NaN."""
    n, absolute, square, x, y, xx, yy, xy = sums.T
    n = np.where(n > 0, n, np.nan)
    spread_x, spread_y = _spread(xx, x, n), _spread(yy, y, n)
    pearson = np.clip((xy - x * y / n) / np.sqrt(spread_x * spread_y), -1.0, 1.0)
    figures = [np.sqrt(square / n), absolute / n, 1 - square / spread_y, pearson]
    return np.stack(figures, axis=1)


def _spread(squares: Floats, sums: Floats, n: Floats) -> Floats:
    """Sums of squares around the mean; NaN where all numbers are alike."""
    found = squares - sums**2 / n
    return np.where(found > ALIKE * squares, found, np.nan)


def _root(squares: Floats) -> Floats:
    return np.sqrt(np.where(squares > 0, squares, np.nan))


def _why(y: Floats) -> str:
    """A figure is undefined."""
    if not len(y):
        return "no truth is known"
    if y.min() == y.max():
        return "all truths are alike" if len(y) > 1 else "only one truth is known"
    return "all predictions are alike"
