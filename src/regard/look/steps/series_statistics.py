"""Steps through the statistics of one column of a series (`models/series_features.py`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from regard.look.steps.operations import (
    Add,
    Apply,
    Autocorrelations,
    Deviation,
    Differences,
    Dot,
    Entries,
    LargestOfBands,
    Mean,
    Multiply,
    Products,
    Scale,
    Sort,
    Subtract,
    ZScore,
)
from regard.look.steps.stages import Names, Stage, Tracer
from regard.models.series_features import BANDS, FREQUENCIES, LAGS, LEAST_POWER, QUANTILES

FLAT = 1e-9  # a deviation below it is that of a constant


def column_statistics(t: Tracer, steps: Stage, rows: Names, longest: int) -> list[list[Stage]]:
    """Add the statistics of the first column of steps (T, C): moments and changes, quantiles,
    autocorrelations, powers of bands.
    """
    length, width = steps.values.shape
    with t.level("Column 1") as inner:
        places, formula = tuple(range(0, length * width, width)), "the steps of the first column"
        x = inner.step("Values", Entries(places), steps, formula=formula, columns=rows)
        mean = inner.step("Mean", Mean(), x, formula="Σ xᵢ / n")
        centered = inner.step("Centered", Subtract(), x, mean, formula="x − mean", columns=rows)
    moments = moment_steps(t, x, mean, rows) + change_steps(t, x, centered)
    with t.level("Quantiles") as inner:
        ordered = inner.step("Sorted", Sort(), x, formula="the least first")
        ranks = ((length - 1) * torch.tensor(QUANTILES)).round().long().tolist()
        formula = "the value nearest to each share of the way"
        names = [f"{q:g}" for q in QUANTILES]
        quantiles = inner.step(
            "Quantiles", Entries(tuple(ranks)), ordered, formula=formula, columns=names
        )
    with t.level("Autocorrelations") as inner:
        formula = "Σₜ xₜ xₜ₋ₗ / Σₜ xₜ², for each lag l"
        words: dict[str, Any] = {"formula": formula, "columns": [f"lag {lag}" for lag in LAGS]}
        waves = inner.step("Autocorrelations", Autocorrelations(LAGS), centered, **words)
    return [moments, [quantiles], [waves], band_steps(t, centered, longest)]


def moment_steps(t: Tracer, x: Stage, mean: Stage, rows: Names) -> list[Stage]:
    """Add mean, deviation, skewness and kurtosis, and the first and last value."""
    with t.level("Moments") as inner:
        formula = "√(mean((x − mean)²))"
        deviation = inner.step("Deviation", Deviation(0.0), x, mean, formula=formula)
        if deviation.values[0] > FLAT:
            formula = "(x − mean) / deviation"
            unit = inner.step("Standardized", ZScore(), x, mean, deviation, formula=formula)
        else:
            formula = "all values are equal"
            zeros = np.zeros(len(x.values))
            unit = inner.given("Standardized", zeros, shown=True, formula=formula)
        third = inner.step("Cubes", Apply("cube"), unit, formula="x³", columns=rows)
        skewness = inner.step("Skewness", Mean(), third, formula="their mean")
        fourth = inner.step("Fourth powers", Apply("fourth"), unit, formula="x⁴", columns=rows)
        kurtosis = inner.step("Kurtosis", Mean(), fourth, formula="their mean")
        first = inner.step("First value", Entries((0,)), x)
        last = inner.step("Last value", Entries((len(x.values) - 1,)), x)
    return [mean, deviation, skewness, kurtosis, first, last]


def change_steps(t: Tracer, x: Stage, centered: Stage) -> list[Stage]:
    """Add slope, sizes of changes, and how often the mean is crossed."""
    length = len(x.values)
    with t.level("Changes") as inner:
        formula = "from −½ to ½"
        time = inner.given("Time", np.arange(length) / length - 0.5, shown=True, formula=formula)
        product = inner.step("Products with time", Multiply(), centered, time, formula="xₜ t")
        slope = inner.step("Slope", Mean(), product, formula="their mean")
        parts = [slope]
        for title in ("Changes", "Changes of changes"):
            x = inner.step(title, Differences(), x, formula="xₜ₊₁ − xₜ")
            sizes = inner.step(f"{title}, sizes", Apply("size"), x, formula="|x|")
            parts.append(inner.step(f"{title}, mean size", Mean(), sizes, formula="their mean"))
        after = inner.step("From the second on", Entries(tuple(range(1, length))), centered)
        before = inner.step("To the last but one", Entries(tuple(range(length - 1))), centered)
        formula = "below 0 where the mean is crossed"
        both = inner.step("Products of neighbors", Multiply(), after, before, formula=formula)
        crossed = inner.step("Crossings", Apply("below_zero"), both, formula="1 where it is")
        return [*parts, inner.step("Share of crossings", Mean(), crossed, formula="their mean")]


def band_steps(t: Tracer, x: Stage, longest: int) -> list[Stage]:
    """Add the logarithms of the largest power in each band of frequencies."""
    count, length = max(BANDS, min(FREQUENCIES, longest)), len(x.values)
    frequency = np.arange(1, count + 1) / (2 * count)
    angles = 2 * math.pi * frequency[:, None] * np.arange(length)  # (F, T)
    edges = np.unique(np.round(np.geomspace(1, count + 1, BANDS + 1)).astype(int)).tolist()
    with t.level("Frequencies") as inner:
        waves = inner.given("cosines", np.cos(angles)), inner.given("sines", np.sin(angles))
        real = inner.step("With cosines", Dot(), x, waves[0], formula="Σₜ xₜ cos(2π f t)")
        imaginary = inner.step("With sines", Dot(), x, waves[1], formula="Σₜ xₜ sin(2π f t)")
        pairs = (real, real, imaginary, imaginary)
        power = inner.step("Squares", Products(), *pairs, formula="real² + imaginary²")
        how = Scale(1 / length**2, f"1 / {length}²")
        power = inner.step("Power", how, power, formula="divided by the squared length")
        how_of = LargestOfBands(tuple(edges))
        largest = inner.step("Largest of bands", how_of, power, formula="of each band")
        missing = BANDS - len(largest.values)
        least = inner.given("least power", [LEAST_POWER])
        added = inner.step("Added", Add(), largest, least, formula="+ the least power")
        logs = inner.step("Logarithms", Apply("log"), added, formula="ln power")
        if not missing:
            return [logs]
        rest = inner.given("Empty bands", np.full(missing, math.log(LEAST_POWER)), shown=True)
        return [logs, rest]
