"""From logits to a sample."""

from __future__ import annotations

import numpy as np
import torch
from step_models import STEP_MODELS

from regard.look.steps import trace_steps


def test_logits_become_probabilities_and_a_cumulative_sum():
    pipeline = STEP_MODELS["decoder"]()
    trace = trace_steps(pipeline, position=2)
    with torch.no_grad():
        expected = pipeline.prepared.run(None)[0, 1]
    np.testing.assert_allclose(trace.find("Output › Logits").values, expected.numpy(), atol=1e-6)
    p = expected.double().softmax(-1).numpy()
    for title in ("Probabilities", "Top-K", "Top-P"):  # nothing is cut by default
        np.testing.assert_allclose(trace.find(f"Sampling › {title}").values, p, atol=1e-6)
    last = trace.stages[-1]
    assert (last.title == "Sample" and last.values[-1] == 1) or abs(last.values[-1] - 1) < 1e-12
    assert list(last.columns)[4] == pipeline.tokenizer.text(4)


def test_scores_of_values_are_in_the_units_of_the_data():
    pipeline = STEP_MODELS["values"]()
    pipeline.model.shift.fill_(10.0)
    pipeline.model.scale.fill_(3.0)
    trace = trace_steps(pipeline)
    with torch.no_grad():
        expected = pipeline.prepared.run(None)[0].numpy()
    np.testing.assert_allclose(trace.find("Output › Value").values, expected, rtol=1e-6)
