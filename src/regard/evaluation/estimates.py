"""Figures of any form with their bootstrap: resample the records, compute the figure again.

`intervals` resamples sums. What is a function of sums goes through it; what is not (a rank
statistic, counts of many classes) is a function of how often each record was drawn, and the draws
come from here, a few at a time. Either way a figure keeps its value in each resample, so that two
models on the same records are compared in pairs, and figures of several columns are averaged, by
arithmetic on those values (Efron 1979; Koehn 2004).
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
from regard.evaluation.bootstrap import (
    RESAMPLES,
    UNITS,
    Floats,
    resampled_ratios,
    resampled_sums,
    resamples,
)
from regard.evaluation.language_modeling import Metric, TokenLosses, target_name, verdict

CELLS = 1 << 17  # resamples times records that are held at once: a megabyte, which caches hold

Measure = Callable[[Floats], Floats]  # weights (R, N) or sums (R, K) to figures (R, M)
Result = TypeVar("Result")


@dataclass(frozen=True)
class UndefinedMetric(Metric):
    """A figure that these data do not define, and why."""

    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Never NaN: no value, and the reason."""
        named = {"class": self.of} if self.of else {}
        return {"value": None, "undefined": self.why, **named}

    def scaled(self, factor: float) -> Metric:
        """Still undefined."""
        return self

    def negative(self) -> Metric:
        """Still undefined."""
        return self

    def exponential(self) -> Metric:
        """Still undefined."""
        return self

    def __str__(self) -> str:
        return f"undefined ({self.why})"


@dataclass(frozen=True, eq=False)
class BootstrapEstimate:
    """A figure of some records, and the same of RESAMPLES resamples of them.

    NaN is undefined, in a resample too: the interval is over the resamples that define the figure.
    """

    value: float
    samples: Floats
    data: str  # which records: see `digest`
    cost: bool = False  # whether less is better
    why: str = ""  # it is undefined
    impossible: int = 0  # records that make it infinite
    digits: int = 4  # shown after the point
    signature: str = ""  # how it was computed, where that may differ
    of: str = ""  # the class it is of, where it is of one class
    target: str = ""  # the target it is of, where there are several

    def figure(self) -> Metric:
        """The value with its interval."""
        return self._figure(self.value, self.samples, self.why, self.impossible)

    def minus(self, other: BootstrapEstimate) -> Metric:
        """The difference to another model on the same records, in pairs."""
        if self.data != other.data:
            raise UserError(
                "the two models were not measured on the same records, "
                "so they cannot be compared in pairs"
            )
        value, samples = self.value - other.value, self.samples - other.samples
        impossible = self.impossible + other.impossible
        return self._figure(value, samples, self.why or other.why, impossible)

    def verdict(self, other: BootstrapEstimate) -> str:
        """What the difference says about this one, in words."""
        gap = self.minus(other)
        if isinstance(gap, UndefinedMetric):
            return str(gap)
        return verdict(gap if self.cost else gap.negative())

    def _figure(self, value: float, samples: Floats, why: str, impossible: int) -> Metric:
        named: dict[str, Any] = {"of": self.of, "target": self.target}
        if why:
            return UndefinedMetric(math.nan, math.nan, math.nan, why=why, **named)
        if not math.isfinite(value):
            return Metric(value, value, value, impossible, **named)
        low, high = np.quantile(samples[~np.isnan(samples)], [0.025, 0.975]).tolist()
        return Metric(value, low, high, digits=self.digits, **named)


def symbol_cost(measured: TokenLosses) -> BootstrapEstimate:
    """Nats per symbol as an estimate; infinite where something was held impossible."""
    m = measured
    value = math.inf if m.impossible else float(m.nats.sum() / m.symbols.sum())
    samples = resampled_ratios(m.nats, m.symbols)
    return BootstrapEstimate(value, samples, digest(m.symbols), cost=True, impossible=m.impossible)


def mean_over_seeds(
    several: Sequence[Mapping[str, BootstrapEstimate]],
) -> dict[str, BootstrapEstimate]:
    """The mean of each figure over models of other seeds, and that of each resample of the records.
    What one seed leaves undefined is undefined.
    """
    found = {}
    for name, first in several[0].items():
        ones = [one[name] for one in several]
        found[name] = replace(
            first,
            value=statistics.fmean(one.value for one in ones),
            samples=np.mean([one.samples for one in ones], axis=0),
            why=next((one.why for one in ones if one.why), ""),
            impossible=max(one.impossible for one in ones),
        )
    return found


def digest(*arrays: NDArray[Any]) -> str:
    """A name for the records with these truths, equal for equal truths in the same order."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(f"{array.shape}{array.dtype}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def weights(units: int, seed: int = 0) -> Iterator[Floats]:
    """(R, units) how often each unit is drawn, RESAMPLES rows in all, at most CELLS cells a time.

    They depend on `units` and the seed alone; up to UNITS units `resampled_sums` draws the same.
    """
    draws, rows = resamples(units, seed), max(1, CELLS // units)
    while some := list(islice(draws, rows)):
        yield np.array(some, dtype=np.float64)


def by_weights(measure: Measure, units: int) -> tuple[Floats, Floats]:
    """Figures (M,) of all units, and (RESAMPLES, M) of resamples, by how often each is drawn."""
    samples = np.concatenate([measure(drawn) for drawn in weights(units)])
    return measure(np.ones((1, units)))[0], samples


def by_sums(measure: Measure, table: Floats) -> tuple[Floats, Floats]:
    """Figures (M,) of all units, and (RESAMPLES, M) of resamples, by the sums of (U, K) numbers."""
    if len(table) > UNITS:  # neighbours will be joined: they must not be alike, as in sorted files
        table = table[np.random.default_rng(0).permutation(len(table))]
    return measure(table.sum(0)[None])[0], measure(resampled_sums(table))


def mean_of_defined(values: Floats) -> Floats:
    """(R, K) to (R,): the mean of those that are not NaN, or NaN if all are."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # 0 / 0
        mean: Floats = np.where(there, values, 0.0).sum(1) / there.sum(1)
    return mean


def macro(
    columns: Sequence[Mapping[str, BootstrapEstimate]], data: str, why: str
) -> dict[str, BootstrapEstimate]:
    """The mean of each figure over the columns that define it; `why` none does.

    In a resample that leaves a rare class out, the mean is over the columns still defined.
    """
    found = {}
    for name in columns[0]:
        ones = [one[name] for one in columns]
        defined = [one for one in ones if not one.why]
        if not defined:
            nothing = np.full(RESAMPLES, np.nan)
            found[name] = BootstrapEstimate(math.nan, nothing, data, ones[0].cost, why)
            continue
        value = sum(one.value for one in defined) / len(defined)
        samples = mean_of_defined(np.stack([one.samples for one in defined], axis=1))
        impossible = sum(one.impossible for one in defined)
        of = ones[0].of if all(one.of == ones[0].of for one in ones) else ""
        found[name] = BootstrapEstimate(
            value, samples, data, ones[0].cost, impossible=impossible, of=of
        )
    return found


def with_columns(
    means: Mapping[str, BootstrapEstimate],
    columns: Sequence[Mapping[str, BootstrapEstimate]],
    names: Sequence[str],
) -> dict[str, BootstrapEstimate]:
    """The means over several targets, then the figures of each, under names that say which."""
    found = dict(means)
    for target, column in zip(names, columns, strict=True):
        for name, one in column.items():
            found[target_name(name, target)] = replace(one, target=target)
    return found


@dataclass(frozen=True)
class Folds:
    """One figure of each fold of a cross-validation, and how the defined ones vary."""

    figures: tuple[Metric, ...]

    @property
    def defined(self) -> list[float]:
        """The values of the folds that have one."""
        return [one.value for one in self.figures if not math.isnan(one.value)]

    @property
    def mean(self) -> float:
        """Over the defined folds; NaN without one."""
        return statistics.fmean(self.defined) if self.defined else math.nan

    @property
    def sd(self) -> float:
        """Of the defined folds (n - 1); NaN with fewer than two, or if one is infinite."""
        if len(self.defined) < 2 or not math.isfinite(self.mean):
            return math.nan
        return statistics.stdev(self.defined)

    def to_json(self) -> dict[str, Any]:
        """Never NaN or Infinity."""
        mean, sd = (x if math.isfinite(x) else None for x in (self.mean, self.sd))
        return {"mean": mean, "sd": sd, "folds": [one.to_json() for one in self.figures]}

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.sd:.4f} ({len(self.defined)} folds)"


def by_fold(folds: Sequence[Mapping[str, BootstrapEstimate]]) -> dict[str, Folds]:
    """The figures of each fold side by side, by name.

    The folds' models share most of their training data, so the deviation is not a standard error
    (Bengio & Grandvalet 2004).
    """
    return {name: Folds(tuple(one[name].figure() for one in folds)) for name in folds[0]}


def pooled(
    measure: Callable[..., Result], folds: Sequence[Sequence[ArrayLike]], **options: Any
) -> Result:
    """One figure for all folds: `measure` of each fold's arguments, put one after the other.

    Each record counts once, with the scores of the model that did not see it. Scores of different
    models are ranked together, which AUROC feels if they are not on one scale: by_fold does not
    (Forman & Scholz 2010).
    """
    return measure(*(np.concatenate(parts) for parts in zip(*folds, strict=True)), **options)
