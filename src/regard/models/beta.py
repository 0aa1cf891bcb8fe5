"""The Beta distribution: what is known of one probability after counting.

The distribution function is the regularised incomplete beta function I_x(a, b), by its continued
fraction (DLMF 8.17.22), evaluated from the front (Lentz 1976; Thompson & Barnett 1986); quantiles
by bisection, which needs nothing but that it rises.
"""

from __future__ import annotations

import math

TINY = 1e-300  # in place of a zero that would be divided by
STEPS = 1_000_000  # of the fraction; it takes about the square root of a + b


def cumulative(x: float, a: float, b: float) -> float:
    """P(X <= x) for X ~ Beta(a, b), a and b positive."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges faster from the other side
        return 1 - cumulative(1 - x, b, a)
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(norm + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / keep(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / keep(1 + even * d), keep(1 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / keep(1 + odd * d), keep(1 + odd / c)
        value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * value


def keep(value: float) -> float:
    """The value, away from zero."""
    return value if abs(value) > TINY else TINY


def quantile(probability: float, a: float, b: float) -> float:
    """The x with P(X <= x) = probability for X ~ Beta(a, b)."""
    if not (0 <= probability <= 1 and a > 0 and b > 0):
        raise ValueError(
            f"probability must be from 0 to 1, a and b positive, got {probability}, {a} and {b}"
        )
    low, high = 0.0, 1.0
    while True:
        # where x is tiny, halve its exponent rather than itself: relative precision everywhere
        middle = math.sqrt(max(low, TINY) * high) if high > 4 * low else (low + high) / 2
        if not low < middle < high:
            return middle
        if cumulative(middle, a, b) < probability:
            low = middle
        else:
            high = middle
