"""Embeddings, positions, norms and feed-forward networks as stages."""

from __future__ import annotations

import numpy as np
import torch
from step_models import STEP_MODELS
from torch import nn

from regard.look.steps import trace_steps
from regard.look.steps.parts import embed_steps, feedforward_steps, norm_steps
from regard.look.steps.stages import StepTrace, Tracer


def test_an_id_leads_to_its_row_and_its_position():
    pipeline = STEP_MODELS["decoder of 2019"]()
    trace, model = trace_steps(pipeline, position=3), pipeline.model
    token = int(trace.find("Input › Id").values[0])
    assert pipeline.tokenizer.text(token) == trace.tokens[2]
    row = model.embedding.weight[token].detach().numpy()
    np.testing.assert_allclose(trace.find("Input › Embedding").values, row, atol=1e-7)
    code = model.positions.embedding.weight[2].detach().numpy()
    np.testing.assert_allclose(trace.find("Position added").values, row + code, atol=1e-6)


def test_pixels_points_and_steps_are_embedded_from_their_own_numbers():
    trace = trace_steps(STEP_MODELS["vit, none positions"](), position=5)
    assert list(trace.tokens)[:3] == ["<S>", "row 1, column 1", "row 1, column 2"]
    pixels = trace.find("Input › Pixels").values
    standardized = trace.find("Standardized pixels").values
    np.testing.assert_allclose(standardized, (pixels / 255 - 0.5) / 0.5, atol=1e-6)
    trace = trace_steps(STEP_MODELS["points"](), position=4)
    assert trace.tokens[3] == "group 3"
    assert trace.find("Group of points").values.shape[0] == 3  # one of four is missing
    hidden = trace.find("Second layer, of each neighbor").values
    np.testing.assert_array_equal(trace.find("Largest over the group").values, hidden.max(0))
    trace = trace_steps(STEP_MODELS["series"](), position=3)
    assert trace.find("Input › Steps").values.shape == (12,)
    first = trace_steps(STEP_MODELS["series"](), position=1)
    assert first.find("Input › Embedding").formula.startswith("a learned vector")


def empty_tracer():
    return Tracer(StepTrace(["a"], 0), {})


def test_what_is_unknown_is_shown_but_not_taken_apart():
    class Strange(nn.Module):
        def forward(self, ids):
            return torch.ones(1, 1, 2)

    t = empty_tracer()
    x = embed_steps(t, Strange(), torch.zeros(1, 1), [], None)
    assert x.opaque and x.formula == "computed by Strange"
    y = feedforward_steps(t, Strange(), x)
    assert y.opaque and y.formula == "Strange"
    assert norm_steps(t, nn.Identity(), "Norm") == []


def test_the_middle_of_a_gated_network_is_a_product():
    trace = trace_steps(STEP_MODELS["decoder"]())
    gate, values, hidden = (
        trace.find(f"Feed-forward › {name}").values for name in ("Gate", "Values", "Gated values")
    )
    np.testing.assert_allclose(hidden, gate / (1 + np.exp(-gate)) * values, atol=1e-6)
