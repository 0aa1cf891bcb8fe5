"""Forecasters over patches as stages."""

from __future__ import annotations

import numpy as np
import torch
from step_models import STEP_MODELS

from regard.look.steps import trace_steps

FORECASTERS = ("forecaster", "causal forecaster", "lstm forecaster", "cnn forecaster")


def test_a_forecast_ends_in_the_units_of_the_data():
    for name in FORECASTERS:
        pipeline = STEP_MODELS[name]()
        trace = trace_steps(pipeline, position=2)
        with torch.no_grad():
            expected = pipeline.prepared.run(None)[0, :, 0].flatten().numpy()
        np.testing.assert_allclose(trace.find("Output › Forecast").values, expected, atol=1e-5)
        units = trace.find("In the units of the data").values
        np.testing.assert_allclose(units, 20 * expected + 50, atol=1e-3)
        assert trace.notes == ["The first channel is followed."]


def test_an_earlier_patch_leaves_the_forecast_to_the_last():
    last, first = (trace_steps(STEP_MODELS["cnn forecaster"](), position=n) for n in (0, 2))
    assert any(stage.title == "Last patch" for stage in first.stages)
    assert not any(stage.title == "Last patch" for stage in last.stages)
    np.testing.assert_allclose(
        first.find("Last patch").values, last.find("Convolution 2 › Residual").values, atol=1e-6
    )
