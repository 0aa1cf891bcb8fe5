"""Two rows of a comparison, tested in pairs on the same records.

The paired bootstrap (Koehn 2004, "Statistical significance tests for machine translation
evaluation") resamples records and counts how often the difference has the other sign. The
predictive Bayes factor of two language models is the ratio of the probabilities that they give
records neither was fitted to: with equal prior odds, their posterior odds. It is decided by the sum
over all records, the bootstrap by how much that sum varies.
"""

from __future__ import annotations

import math

import numpy as np

from regard.evaluation.bootstrap import BootstrapEstimate
from regard.evaluation.language_modeling import TokenLosses


def bootstrap_p(one: BootstrapEstimate, other: BootstrapEstimate) -> float:
    """Return the two-sided p of a paired difference of zero; NaN where a sample is not finite.

    One more than the resamples are counted, so that p is never 0.
    """
    gaps = np.asarray(one.samples) - np.asarray(other.samples)
    if not np.isfinite(gaps).all() or not len(gaps):
        return math.nan
    beyond = min(int((gaps <= 0).sum()), int((gaps >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(gaps) + 1))


def log10_bayes_factor(one: TokenLosses, other: TokenLosses) -> float:
    """Return log₁₀ of the predictive Bayes factor for `one` over `other`; NaN where both give some
    of the data probability 0.
    """
    if one.impossible and other.impossible:
        return math.nan
    if one.impossible or other.impossible:
        return -math.inf if one.impossible else math.inf
    return float(other.nats.sum() - one.nats.sum()) / math.log(10)


def describe_p(p: float, resamples: int) -> str:
    """Return p in words; the least that so many resamples can show is a bound."""
    least = 2 / (resamples + 1)
    return f"p < {least:.2g}" if p <= least * 1.001 else f"p = {p:.2g}"


def describe_bayes_factor(log10: float, name: str) -> str:
    """Return a sentence part: how much more probable the data are under the model `name`."""
    if log10 == math.inf:
        return f"the held-out data are impossible without {name}"
    power = f"10^{log10:,.0f}" if log10 >= 3 else f"{10**log10:,.3g}"
    return f"the held-out data are {power} times more probable under {name} (Bayes factor)"
