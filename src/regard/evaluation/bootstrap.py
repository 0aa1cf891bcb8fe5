"""Intervals by the bootstrap: resample the units, recompute the ratio of sums (Efron 1979).

Units are records, or blocks of 1,000 symbols of running text, so that symbols which depend on one
another stay together. Two models on the same units are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
UNITS = 10_000  # more are joined with their neighbours first: sums of units are units too

Floats = NDArray[np.float64]


def resampled_ratios(numerators: Floats, denominators: Floats, seed: int = 0) -> Floats:
    """(RESAMPLES, ...) ratios of the sums of numerators (U, ...) and denominators (U,)."""
    below = np.maximum(resampled_sums(denominators, seed), 1e-300)  # (RESAMPLES,)
    above = resampled_sums(numerators, seed)  # (RESAMPLES, ...), of the same units each time
    ratios: Floats = (above.T / below).T
    return ratios


def resampled_sums(values: Floats, seed: int = 0) -> Floats:
    """(RESAMPLES, ...) sums of values (U, ...), U of them drawn with replacement each time.

    The draws depend on U and the seed alone: sums of other values of the same units go in pairs.
    """
    values = join(values)
    return np.array([drawn @ values for drawn in resamples(len(values), seed)])


def resamples(units: int, seed: int = 0) -> Iterator[NDArray[np.int64]]:
    """(units,) how often each unit is drawn, of as many draws with replacement, RESAMPLES times."""
    random = np.random.default_rng(seed)
    for _ in range(RESAMPLES):
        yield np.bincount(random.integers(0, units, units), minlength=units)


def join(values: Floats) -> Floats:
    """At most UNITS sums of neighbours."""
    if len(values) <= UNITS:
        return values
    borders = np.linspace(0, len(values), UNITS + 1).astype(np.int64)[:-1]
    return np.add.reduceat(values, borders, axis=0)


def ratio_interval(numerators: Floats, denominators: Floats) -> tuple[float, float, float]:
    """The ratio of sums with the 2.5% and 97.5% quantiles of its bootstrap distribution."""
    value = float(numerators.sum() / denominators.sum())
    low, high = np.quantile(resampled_ratios(numerators, denominators), [0.025, 0.975])
    return value, float(low), float(high)


def paired_interval(
    ours: Floats, theirs: Floats, denominators: Floats
) -> tuple[float, float, float]:
    """The difference of two ratios over the same units, ours minus theirs, with its interval."""
    both = np.stack([ours, theirs], axis=1)  # (U, 2)
    ratios = resampled_ratios(both, denominators)  # (RESAMPLES, 2)
    low, high = np.quantile(ratios[:, 0] - ratios[:, 1], [0.025, 0.975])
    value = float((ours.sum() - theirs.sum()) / denominators.sum())
    return value, float(low), float(high)
