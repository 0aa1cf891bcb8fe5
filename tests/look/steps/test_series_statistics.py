"""The statistics of a column as stages, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kurtosis, skew
from step_models import STEP_MODELS

from regard.look.steps import trace_steps
from regard.look.steps.series_statistics import column_statistics
from regard.look.steps.stages import StepTrace, Tracer


def test_statistics_are_those_of_numpy():
    trace = trace_steps(STEP_MODELS["statistics of series"]())
    x = trace.find("Column 1 › Values").values
    expected = {
        "Moments › Skewness": skew(x),
        "Moments › Kurtosis": kurtosis(x, fisher=False),
        "Changes › Changes, mean size": np.abs(np.diff(x)).mean(),
        "Changes › Changes of changes, mean size": np.abs(np.diff(x, 2)).mean(),
        "Changes › Share of crossings": (np.diff(np.sign(x - x.mean())) != 0).mean(),
    }
    for name, value in expected.items():
        assert trace.find(name).values[0] == pytest.approx(value), name
    centered = x - x.mean()
    correlation = (centered[2:] * centered[:-2]).sum() / (centered**2).sum()
    assert trace.find("Autocorrelations › Autocorrelations").values[1] == pytest.approx(correlation)
    spectrum = np.abs(np.fft.rfft(centered, 72)) ** 2 / len(x) ** 2  # the longest has 36 steps
    np.testing.assert_allclose(trace.find("Frequencies › Power").values, spectrum[1:37])


def test_a_constant_column_has_statistics():
    t = Tracer(StepTrace(["the series"], 0), {})
    steps = t.given("Steps", np.full((5, 1), 3.0))
    parts = column_statistics(t, steps, ["a", "b", "c", "d", "e"], 5)
    sizes = [sum(len(stage.values) for stage in part) for part in parts]
    assert sizes == [10, 7, 12, 16]
    assert all(np.isfinite(stage.values).all() for part in parts for stage in part)
    assert t.trace.find("Standardized").formula == "all values are equal"
