"""The bootstrap: resample the records, compute the metric again (Efron 1979).

Records are drawn with replacement, as many as there are; of running text, blocks of symbols are
drawn. The draws depend on the number of units and the seed alone, and an estimate keeps the value
of each resample, so that two models on the same records are compared in pairs and metrics of
several columns are averaged by arithmetic on those values (Koehn 2004, "Statistical significance
tests for machine translation evaluation").
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError
from regard.evaluation import Metric, target_name

RESAMPLES = 1000
UNITS = 10_000  # more are joined with their neighbours first: sums of units are units too
CELLS = 1 << 17  # resamples times records in memory at once: a megabyte, which caches hold

Floats = NDArray[np.float64]
Result = TypeVar("Result")


def draw_counts(units: int) -> Iterator[NDArray[np.int64]]:
    """Yield RESAMPLES times how often each of `units` is drawn, (units,)."""
    random = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        yield np.bincount(random.integers(0, units, units), minlength=units)


def draw_weights(units: int) -> Iterator[Floats]:
    """Yield (R, units) weights, at most CELLS at a time: first a row of ones, the data themselves,
    then how often each unit is drawn, RESAMPLES rows in all.
    """
    yield np.ones((1, units))
    draws, rows = draw_counts(units), max(1, CELLS // units)
    while chunk := list(islice(draws, rows)):
        yield np.array(chunk, dtype=np.float64)


def resample_sums(values: Floats) -> Floats:
    """Return the sums of values (U, ...) over each resample, (RESAMPLES, ...)."""
    values = join_neighbors(values)
    return np.array([counts @ values for counts in draw_counts(len(values))])


def sum_shuffled(table: Floats) -> Floats:
    """Return the sums of (U, K) numbers over all units and over each resample, (1 + RESAMPLES, K).

    Where neighbours will be joined, units are shuffled first: in sorted files neighbours are alike.
    """
    if len(table) > UNITS:
        table = table[np.random.default_rng(0).permutation(len(table))]
    return np.concatenate([table.sum(0)[None], resample_sums(table)])


def join_neighbors(values: Floats) -> Floats:
    """Return at most UNITS sums of neighbouring values."""
    if len(values) <= UNITS:
        return values
    borders = np.linspace(0, len(values), UNITS + 1).astype(np.int64)[:-1]
    return np.add.reduceat(values, borders, axis=0)


def digest(*arrays: NDArray[Any]) -> str:
    """Return a checksum of records: estimates of equal checksums are compared in pairs."""
    checksum = hashlib.blake2b(digest_size=16)
    for array in arrays:
        checksum.update(f"{array.shape}{array.dtype}".encode())
        checksum.update(np.ascontiguousarray(array).tobytes())
    return checksum.hexdigest()


@dataclass(frozen=True, eq=False)
class BootstrapEstimate:
    """A metric of some records, and of RESAMPLES resamples of them.

    NaN is undefined. The interval is over the resamples that define the metric.
    """

    value: float
    samples: Floats
    data: str  # a checksum of the records
    undefined: str = ""  # why these data do not define the metric
    impossible: int = 0  # predictions of probability 0, which make it infinite
    ends: tuple[float, float] | None = None  # of the interval, if not the quantiles of `samples`
    digits: int = 4  # shown after the decimal point
    signature: str = ""  # how it was computed, where there are several ways
    class_name: str = ""  # of a metric of one class
    target: str = ""  # of a metric of one of several targets
    title: str = ""  # as a column of a table
    lower_is_better: bool = False
    most: float = 1.0  # that of a perfect model, if higher is better
    in_table: bool = True

    @property
    def interval(self) -> tuple[float, float]:
        """The 2.5% and 97.5% quantiles of the samples."""
        if self.ends is not None:
            return self.ends
        if not math.isfinite(self.value):
            return self.value, self.value
        low, high = np.quantile(self.samples[~np.isnan(self.samples)], [0.025, 0.975]).tolist()
        return low, high

    def metric(self) -> Metric:
        low, high = self.interval
        names = "impossible digits class_name target undefined lower_is_better most"
        shared = names.split()
        return Metric(self.value, low, high, **{name: getattr(self, name) for name in shared})

    def convert(self, unit: Callable[[float], float]) -> BootstrapEstimate:
        """Return the estimate in another unit, an increasing function of this one."""
        low, high = self.interval
        samples = np.array([unit(sample) for sample in self.samples.tolist()])
        return replace(self, value=unit(self.value), samples=samples, ends=(unit(low), unit(high)))

    def minus(self, other: BootstrapEstimate) -> Metric:
        """Return the difference to another model on the same records, in pairs."""
        if self.data != other.data:
            raise UserError(
                "the two models were not measured on the same records, "
                "so they cannot be compared in pairs"
            )
        difference = replace(
            self,
            value=self.value - other.value,
            samples=self.samples - other.samples,
            undefined=self.undefined or other.undefined,
            impossible=self.impossible + other.impossible,
            ends=None,
        )
        return difference.metric()

    def verdict(self, other: BootstrapEstimate) -> str:
        """Say whether this one is better or worse than another."""
        gap = self.minus(other)
        if gap.undefined:
            return str(gap)
        if math.isnan(gap.value):
            return "both give probability 0 to some of the data"
        below, above = gap.high < 0, gap.low > 0
        better, worse = (below, above) if self.lower_is_better else (above, below)
        return "better" if better else "worse" if worse else "no difference that 95% supports"


class Resamples:
    """The records and RESAMPLES resamples of them, on which metrics are computed.

    Every array of a resampled quantity has 1 + RESAMPLES entries, the first of the data themselves.
    Units are what is drawn: records, or sequences of which each has several records.
    """

    def __init__(self, data: str, units: NDArray[np.int64], count: int) -> None:
        self.data = data  # a checksum of the records
        self.units, self.count = units, count  # (N,) the unit of each record, and how many

    def sum(self, values: ArrayLike) -> Floats:
        """Return the sums of the values (N,) of the records, (1 + RESAMPLES,)."""
        weights = np.asarray(values, dtype=np.float64)
        totals: Floats = np.bincount(self.units, weights, self.count)  # type: ignore[assignment]
        return sum_shuffled(totals[:, None])[:, 0]

    def estimate(self, values: Floats, undefined: str = "") -> BootstrapEstimate:
        """Return the estimate of a metric from its values (1 + RESAMPLES,); `undefined` is why the
        first is NaN, if it is.
        """
        value = float(values[0])
        reason = undefined or "these data do not define it"
        return BootstrapEstimate(
            value, values[1:], self.data, undefined=reason if math.isnan(value) else ""
        )


class CountedSums(Resamples):
    """Resampled sums of a table (U, K) whose last column counts predictions."""

    def __init__(self, table: Floats, data: str) -> None:
        super().__init__(data, np.arange(len(table)), len(table))
        self.sums = sum_shuffled(table)

    def mean(self, column: int, undefined: str) -> BootstrapEstimate:
        """Return the estimate of the sum of a column over the number of predictions."""
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: undefined
            return self.estimate(self.sums[:, column] / self.sums[:, -1], undefined)


def mean_of_defined(values: Floats) -> Floats:
    """Return the means of the rows of (R, K) over what is not NaN; NaN where all is."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # 0 / 0
        mean: Floats = np.where(defined, values, 0.0).sum(1) / defined.sum(1)
    return mean


def cumulative_sums(values: Floats) -> Floats:
    """Return the sums of the first 0, 1, ... N of each row of (R, N), (R, N + 1)."""
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def mean_over_seeds(
    seeds: Sequence[Mapping[str, BootstrapEstimate]],
) -> dict[str, BootstrapEstimate]:
    """Average the estimates of models with different seeds, resample by resample; what is undefined
    for one seed is undefined.
    """
    means = {}
    for name, first in seeds[0].items():
        estimates = [estimates[name] for estimates in seeds]
        means[name] = replace(
            first,
            value=statistics.fmean(one.value for one in estimates),
            samples=np.mean([one.samples for one in estimates], axis=0),
            undefined=next((one.undefined for one in estimates if one.undefined), ""),
            impossible=max(one.impossible for one in estimates),
            ends=None,
        )
    return means


def mean_over_columns(
    columns: Sequence[Mapping[str, BootstrapEstimate]], data: str, undefined: str
) -> dict[str, BootstrapEstimate]:
    """Average each metric over the columns that define it, under the name NAME_mean; `undefined` is
    the reason where none does.

    In a resample without a rare class, the mean is over the columns that are still defined.
    """
    means = {}
    for name, first in columns[0].items():
        estimates = [column[name] for column in columns]
        defined = [one for one in estimates if not one.undefined]
        value, samples = math.nan, np.full(RESAMPLES, np.nan)
        if defined:
            value = sum(one.value for one in defined) / len(defined)
            samples = mean_of_defined(np.stack([one.samples for one in defined], axis=1))
        same_class = all(one.class_name == first.class_name for one in estimates)
        means[f"{name}_mean"] = replace(
            first,
            value=value,
            samples=samples,
            data=data,
            undefined="" if defined else undefined,
            impossible=sum(one.impossible for one in defined),
            class_name=first.class_name if defined and same_class else "",
            title=f"mean {first.title}",
        )
    return means


def with_columns(
    means: Mapping[str, BootstrapEstimate],
    columns: Sequence[Mapping[str, BootstrapEstimate]],
    targets: Sequence[str],
) -> dict[str, BootstrapEstimate]:
    """Return the means over several targets, then the estimates of each under its own name."""
    estimates = dict(means)
    for target, column in zip(targets, columns, strict=True):
        for name, estimate in column.items():
            estimates[target_name(name, target)] = replace(estimate, target=target)
    return estimates


@dataclass(frozen=True)
class Folds:
    """A metric of each fold of a cross-validation, and its mean and spread over the folds."""

    metrics: tuple[Metric, ...]

    @property
    def defined(self) -> list[float]:
        return [metric.value for metric in self.metrics if not math.isnan(metric.value)]

    @property
    def mean(self) -> float:
        """Over the folds that define the metric; NaN without one."""
        return statistics.fmean(self.defined) if self.defined else math.nan

    @property
    def sd(self) -> float:
        """With n - 1; NaN for fewer than two defined folds, or if one is infinite."""
        if len(self.defined) < 2 or not math.isfinite(self.mean):
            return math.nan
        return statistics.stdev(self.defined)

    def to_json(self) -> dict[str, Any]:
        mean, sd = (x if math.isfinite(x) else None for x in (self.mean, self.sd))
        return {"mean": mean, "sd": sd, "folds": [metric.to_json() for metric in self.metrics]}


def metrics_by_fold(folds: Sequence[Mapping[str, BootstrapEstimate]]) -> dict[str, Folds]:
    """Return the metrics of the folds, by name.

    The models of the folds share most of their training data, so that the standard deviation is not
    a standard error (Bengio & Grandvalet 2004).
    """
    return {name: Folds(tuple(fold[name].metric() for fold in folds)) for name in folds[0]}


def pool_folds(
    report: Callable[..., Result], folds: Sequence[Sequence[ArrayLike]], **options: Any
) -> Result:
    """Call `report` once with the arguments of all folds, concatenated.

    Each record counts once, with the scores of the model that was not trained on it. Scores of
    different models are ranked together, which affects AUROC if they are not on one scale;
    `metrics_by_fold` is free of that (Forman & Scholz 2010).
    """
    return report(*(np.concatenate(parts) for parts in zip(*folds, strict=True)), **options)
