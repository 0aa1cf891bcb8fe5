"""Metrics of predicted values: RMSE, MAE, R², Pearson's and Spearman's correlation.

All but the last are functions of sums over records. Spearman's (1904) is Pearson's of the ranks,
ties by their mean rank, and ranks depend on the other records of a resample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike

from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import (
    BootstrapEstimate,
    Floats,
    Resamples,
    cumulative_sums,
    digest,
    draw_weights,
    mean_over_columns,
    sum_shuffled,
    with_columns,
)

RELATIVE_ZERO = 1e-12  # a sum of squares is zero if it is smaller beside the squares it is made of


@dataclass(frozen=True, eq=False)
class RegressionReport(Report):
    """How well several values at once are predicted: each column, and means over columns.

    A mean has no unit: errors are divided by the column's `scale` before they are averaged, and
    without scales they are not averaged.
    """

    ranking = ("rmse_standardized_mean", "rmse", "r2_mean")
    target_metric = "rmse"

    means: dict[str, BootstrapEstimate]
    columns: tuple[dict[str, BootstrapEstimate], ...]
    targets: tuple[str, ...]  # the names of the columns

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The means and the metrics of each column; of a single column, its own."""
        if len(self.columns) == 1:
            return self.columns[0]
        return with_columns(self.means, self.columns, self.targets)


def regression_report(
    predictions: ArrayLike,
    truths: ArrayLike,
    *,
    scale: Sequence[float] = (),
    names: Sequence[str] = (),
) -> RegressionReport:
    """Evaluate predictions (N,) of a value, or (N, C) of several; truths are NaN where missing.

    Columns may have different units: their errors are averaged after division by `scale`, the
    standard deviations of the training data. Resamples are of records, the same for all columns.
    `names` are those of the columns.
    """
    predicted = np.asarray(predictions, dtype=np.float64)
    values = np.asarray(truths, dtype=np.float64)
    if predicted.shape != values.shape or values.ndim not in (1, 2) or not values.size:
        raise ValueError(
            f"predictions {predicted.shape} and truths {values.shape} must be of one shape, (N,) "
            "or (N, C), not empty"
        )
    if not np.isfinite(predicted[~np.isnan(values)]).all() or np.isinf(values).any():
        raise ValueError("predictions must be finite, and truths finite or NaN for missing")
    predicted, values = (x.reshape(len(x), -1) for x in (predicted, values))
    columns = tuple(
        estimate_metrics("value", ValueResamples(*column))
        for column in zip(predicted.T, values.T, strict=True)
    )
    without_units = [_without_unit(*column) for column in zip_longest(columns, scale)]
    means = mean_over_columns(without_units, digest(values), "no column defines it")
    return RegressionReport(means, columns, tuple(names) or tuple(map(str, range(len(columns)))))


def _without_unit(
    column: Mapping[str, BootstrapEstimate], scale: float | None
) -> dict[str, BootstrapEstimate]:
    """Return what can be averaged with other columns: errors divided by `scale`, and the rest."""
    estimates = {}
    for name, estimate in column.items():
        if not estimate.lower_is_better:
            estimates[name] = estimate
        elif scale is not None:
            factor = 1 / scale if scale > 0 else np.nan
            reason = "" if scale > 0 else "all training values are equal"
            estimates[f"{name}_standardized"] = replace(
                estimate,
                value=estimate.value * factor,
                samples=estimate.samples * factor,
                undefined=estimate.undefined or reason,
                title=f"standardized {estimate.title}",
            )
    return estimates


class ValueResamples(Resamples):
    """Resampled sums of the predictions and truths (N,) of one value, NaN where missing."""

    def __init__(self, predictions: Floats, truths: Floats) -> None:
        known = np.flatnonzero(~np.isnan(truths))
        super().__init__(digest(truths), known, len(truths))
        x, y = self.predictions, self.truths = predictions[known], truths[known]
        # deviations from the means, so that nothing is lost when large sums are subtracted
        a, b = (values - values.mean() if len(values) else values for values in (x, y))
        error = x - y
        table = np.zeros((len(truths), 8))
        columns = [np.ones_like(x), np.abs(error), error**2, a, b, a * a, b * b, a * b]
        table[known] = np.stack(columns, axis=1)
        n, self.absolute_error, self.squared_error, a, b, aa, bb, self.products = sum_shuffled(
            table
        ).T
        self.records = n = np.where(n > 0, n, np.nan)
        self.products = self.products - a * b / n
        self.prediction_spread = _spread(aa, a, n)  # sums of squares around the mean
        self.truth_spread = _spread(bb, b, n)

    def estimate(self, values: Floats, undefined: str = "") -> BootstrapEstimate:
        return super().estimate(values, undefined or self._reason())

    def _reason(self) -> str:
        if not len(self.truths):
            return "no truth is known"
        if self.truths.min() == self.truths.max():
            return "all truths are equal" if len(self.truths) > 1 else "only one truth is known"
        return "all predictions are equal"


def _spread(squares: Floats, sums: Floats, n: Floats) -> Floats:
    spread = squares - sums**2 / n
    return np.where(spread > RELATIVE_ZERO * squares, spread, np.nan)


@register_metric("value", "rmse", title="RMSE", lower_is_better=True)
def rmse(values: ValueResamples) -> BootstrapEstimate:
    return values.estimate(np.sqrt(values.squared_error / values.records))


@register_metric("value", "mae", title="MAE", lower_is_better=True)
def mae(values: ValueResamples) -> BootstrapEstimate:
    return values.estimate(values.absolute_error / values.records)


@register_metric("value", "r2", title="R²")
def r2(values: ValueResamples) -> BootstrapEstimate:
    return values.estimate(1 - values.squared_error / values.truth_spread)


@register_metric("value", "pearson", title="Pearson", in_table=False)
def pearson(values: ValueResamples) -> BootstrapEstimate:
    spread = np.sqrt(values.prediction_spread * values.truth_spread)
    return values.estimate(np.clip(values.products / spread, -1.0, 1.0))


@register_metric("value", "spearman", title="Spearman")
def spearman(values: ValueResamples) -> BootstrapEstimate:
    rank_predictions, rank_truths = Ranks(values.predictions), Ranks(values.truths)
    chunks = []
    for all_weights in draw_weights(values.count):
        weights = np.take(all_weights, values.units, axis=1)
        x, y = rank_predictions(weights), rank_truths(weights)
        weighted = weights * x
        products, x_spread = (np.einsum("rn,rn->r", weighted, other) for other in (y, x))
        squares = x_spread * np.einsum("rn,rn->r", weights * y, y)
        chunks.append(products / np.sqrt(np.where(squares > 0, squares, np.nan)))
    return values.estimate(np.concatenate(chunks))


class Ranks:
    """Numbers (N,), sorted once, to be ranked under weights, ties by their mean rank."""

    def __init__(self, values: Floats) -> None:
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.first = np.searchsorted(ordered, values, "left")
        self.last = np.searchsorted(ordered, values, "right")

    def __call__(self, weights: Floats) -> Floats:
        """Return twice the ranks minus their mean, whole numbers, under weights (R, N)."""
        total = cumulative_sums(np.take(weights, self.order, axis=1))
        twice = np.take(total, self.first, axis=1) + np.take(total, self.last, axis=1)
        ranks: Floats = twice - total[:, -1:]
        return ranks
