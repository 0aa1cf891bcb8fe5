"""Heads, masks and long convolutions as stages."""

from __future__ import annotations

import numpy as np
import pytest
from step_models import STEP_MODELS

from regard.look.steps import trace_steps


def titles(trace, level):
    return [stage.title for stage in trace.stages if stage.path[:3] == level and stage.shown]


def test_a_head_is_told_step_by_step():
    trace = trace_steps(STEP_MODELS["decoder"](), position=3)
    assert titles(trace, ("Block 1", "Attention", "Head 2")) == [
        "Query",
        "Query, normalized",
        "Query, rotated",
        "Key",
        "Key, normalized",
        "Key, rotated",
        "Value",
        "Scores",
        "Scores, scaled",
        "Masked scores",
        "Weights",
        "Weighted values",
    ]
    weights = trace.find("Head 2 › Weights").values
    assert weights[:3].sum() == pytest.approx(1) and (weights[3:] == 0).all()
    masked = trace.find("Head 2 › Masked scores")
    assert np.isneginf(masked.values[3:]).all() and list(masked.columns) == list(trace.tokens)


def test_keys_of_this_position_are_those_of_its_own_stages():
    for name in ("decoder", "decoder with grouped heads", "decoder of 2019"):
        trace = trace_steps(STEP_MODELS[name](), position=2)
        for head in (1, 2, 3):
            where = f"Head {head} › "
            keys, values = (trace.find(where + f"{x} of all positions") for x in ("keys", "values"))
            own = [s for s in trace.stages if s.where.startswith(f"Block 1 › Attention › {where}")]
            key = [s for s in own if s.title.startswith("Key")][-1]
            np.testing.assert_array_equal(keys.values[1], key.values)
            value = next(s for s in own if s.title == "Value")
            np.testing.assert_array_equal(values.values[1], value.values)


def test_a_window_masks_what_lies_before_it():
    masked = trace_steps(STEP_MODELS["window"](), position=5).find("Head 1 › Masked scores").values
    assert np.isfinite(masked).tolist() == [True, False, False, True, True, False]


def test_an_encoder_has_no_mask_and_cross_attention_reads_the_source():
    trace = trace_steps(STEP_MODELS["encoder, mean pooling"]())
    assert "Masked scores" not in titles(trace, ("Block 1", "Attention", "Head 1"))
    trace = trace_steps(STEP_MODELS["encoder–decoder"](), position=2)
    weights = trace.find("Cross-attention › Head 3 › Weights")
    assert weights.values.shape == (7,) and weights.values.sum() == pytest.approx(1)


def test_a_long_convolution_is_a_weighted_sum_over_the_past():
    """Against a direct sum over positions, with the filters of the model."""
    pipeline = STEP_MODELS["hyena"]()
    trace = trace_steps(pipeline, position=4)
    stage = trace.find("Hyena › Long convolution")
    weights, values = (x.values for x in stage.inputs)
    filters = pipeline.model.blocks[0].mixer.filters(6).detach().numpy()
    assert weights.shape == (4, 12)
    expected = sum(filters[:, 3 - s] * values[s] for s in range(4))
    np.testing.assert_allclose(stage.values, expected, atol=1e-6)
    two_sided = trace_steps(STEP_MODELS["hyena encoder"](), position=3)
    assert two_sided.find("Hyena › Long convolution").inputs[0].values.shape == (6, 12)
