"""Costs against sizes: timing on a machine that others use too, exponents with intervals, and where
one curve crosses another.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.training.loop import seed_of

DRAWS = 400  # of the bootstrap

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """How long a measurement may take: at least `least` repeats, then until `seconds` are over or
    there are `most`.
    """

    seconds: float
    least: int = 3
    most: int = 25


@dataclass(frozen=True)
class Exponent:
    """The p of cost ~ size^p with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def timed(work: Callable[..., Tensor], inputs: Sequence[Tensor], box: Box) -> list[float]:
    """Seconds of forward and backward, by repeat; the first, in which memory is taken and kernels
    are chosen, does not count.
    """
    device = inputs[0].device
    times: list[float] = []
    began = time.perf_counter()
    while len(times) <= box.least or (
        time.perf_counter() - began < box.seconds and len(times) <= box.most
    ):
        start = moment(device)
        once(work, inputs)
        times.append(moment(device) - start)
    return times[1:]


def once(work: Callable[..., Tensor], inputs: Sequence[Tensor]) -> None:
    """Forward and backward; gradients are let go."""
    for x in inputs:
        x.grad = None
    gpu = inputs[0].is_cuda
    with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=gpu):
        y = work(*inputs)
    y.backward(torch.ones_like(y))


def moment(device: torch.device) -> float:
    """Now, once the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def exponent(sizes: Sequence[float], costs: Sequence[Sequence[float]], seed: int = 0) -> Exponent:
    """The slope of log cost over log size, each size with its repeats.

    Theil and Sen's: the median of the slopes of all pairs of sizes, each by the median of its
    repeats, which one disturbed size or a few disturbed repeats do not move. The interval holds
    95% of what resampled repeats give, and no less than the middle half of the pairs' slopes: where
    a power is no law, that is what is uncertain.
    """
    random = np.random.default_rng(seed_of(seed))
    x = np.log(np.asarray(sizes, float))
    middle = slopes(x, np.log([statistics.median(row) for row in costs]))
    again = [np.median(random.choice(np.asarray(row), (DRAWS, len(row))), axis=1) for row in costs]
    drawn = np.median(slopes(x, np.log(np.stack(again, axis=1))), axis=1)  # (DRAWS,)
    low, high = np.quantile(drawn, (0.025, 0.975))
    inner = np.quantile(middle, (0.25, 0.75))
    return Exponent(float(np.median(middle)), float(min(low, inner[0])), float(max(high, inner[1])))


def quotient(one: Sequence[float], other: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95% interval of the logarithm of the median of one over that of the other, repeats
    resampled.
    """
    random = np.random.default_rng(seed_of(seed))
    first, second = (
        np.median(random.choice(np.asarray(row), (DRAWS, len(row))), axis=1) for row in (one, other)
    )
    low, high = np.quantile(np.log(first / second), (0.025, 0.975))
    return float(low), float(high)


def slopes(x: Floats, y: Floats) -> Floats:
    """Of the lines through all pairs of points: x (S,), y (..., S)."""
    a, b = np.triu_indices(len(x), 1)
    return np.asarray((y[..., b] - y[..., a]) / (x[b] - x[a]))


def crossing(sizes: Sequence[float], one: Sequence[float], other: Sequence[float]) -> float | None:
    """The size from which `one` costs less than `other` at all larger ones, between those measured
    on a line of logarithms; the first where it always does, None where it never does.
    """
    gaps = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    if gaps[-1] > 0:
        return None
    at = len(gaps) - 1
    while at and gaps[at - 1] <= 0:
        at -= 1
    if not at:
        return float(sizes[0])
    x, y = math.log(sizes[at - 1]), math.log(sizes[at])
    a, b = gaps[at - 1], gaps[at]
    return math.exp(x + (y - x) * a / (a - b))
