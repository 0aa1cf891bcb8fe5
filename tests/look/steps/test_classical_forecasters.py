"""Forecasters without hidden layers as stages, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from step_models import CLASSICAL, STEP_MODELS

from regard.look.steps import trace_steps


def past_of(pipeline):
    return pipeline.prepared.tensors["past"][0, :, 0].double().numpy()


@pytest.mark.parametrize("name", [*CLASSICAL, "drift with quantiles", "nlinear with covariates"])
def test_the_last_stage_is_the_forecast(name):
    pipeline = STEP_MODELS[name]()
    trace = trace_steps(pipeline, position=2)
    expected = pipeline.prepared.run(None)[0, :, 0].detach().flatten().numpy()
    if "boosting" in name:
        expected = expected[1:2]  # one step of the horizon
    last = trace.stages[-1]
    np.testing.assert_allclose(last.values, 20 * expected + 50, rtol=1e-5)
    assert last.title == "In the units of the data" and last.inputs[0].measured
    assert trace.notes[0] == "The first channel is followed."


def test_a_season_and_a_line_continue():
    pipeline = STEP_MODELS["seasonal naive"]()
    past = past_of(pipeline)
    found = trace_steps(pipeline).find("Point forecast").values
    np.testing.assert_allclose(found, [past[18], past[19], past[14], past[21]])  # 20 is missing
    pipeline = STEP_MODELS["drift"]()
    trace, slope = trace_steps(pipeline), (past[23] - past[0]) / 23
    assert trace.find("Slope").values == pytest.approx(slope)
    line = past[23] + slope * np.arange(1, 5)
    np.testing.assert_allclose(trace.find("Point forecast").values, line)


def test_smoothing_is_the_recursion_written_out():
    pipeline = STEP_MODELS["smoothing"]()
    model, past, trace = pipeline.model, past_of(pipeline), trace_steps(pipeline)
    alpha, gamma = (float(x[0]) for x in (model.alpha, model.gamma))
    assert float(model.phi[0]) == 0
    level, slope = np.nanmean(past[:6]), 0.0
    season = np.nanmean((past[:12] - level).reshape(2, 6), 0)
    for step, value in enumerate(past):
        error = 0.0 if np.isnan(value) else value - level - season[step % 6]
        level += alpha * error
        season[step % 6] += gamma * error
    assert slope == 0 and trace.find("Step −1 › Level l").values == pytest.approx(level, abs=1e-5)
    forecast = level + season[[0, 1, 2, 3]]
    np.testing.assert_allclose(trace.find("Point forecast").values, forecast, atol=1e-5)
    assert "missing" in trace.find("Step −4 › Error e").formula


def test_a_moving_average_repeats_the_ends():
    pipeline = STEP_MODELS["dlinear"]()
    past = np.nan_to_num(past_of(pipeline))
    padded = np.r_[[past[0]] * 12, past, [past[-1]] * 12]
    expected = [padded[i : i + 25].mean() for i in range(24)]
    trace = trace_steps(pipeline)
    np.testing.assert_allclose(trace.find("Trend").values, expected, atol=1e-6)
    both = trace.find("From the trend").values + trace.find("From the rest").values
    np.testing.assert_allclose(trace.find("Forecast › Forecast").values, both, atol=1e-6)


def test_quantiles_are_those_of_errors_in_training():
    pipeline = STEP_MODELS["drift with quantiles"]()
    trace = trace_steps(pipeline)
    errors = trace.find("Quantiles › Errors").values.reshape(4, 3)
    assert (np.diff(errors) > 0).all()
    forecast = trace.find("Quantiles › Forecast")
    point = trace.find("Point forecast").values
    np.testing.assert_allclose(forecast.values.reshape(4, 3), point[:, None] + errors, rtol=1e-6)
    assert forecast.columns[4] == "step 2, level 0.5"
