"""Transformers of all kinds as stages, in the order of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from step_models import STEP_MODELS

from regard.look.steps import trace_steps


def parts(trace):
    return list(dict.fromkeys(stage.path[:2] for stage in trace.stages if stage.shown))


def test_a_decoder_goes_from_the_input_through_its_blocks_to_a_sample():
    trace = trace_steps(STEP_MODELS["decoder"]())
    assert parts(trace) == [
        ("Input",),
        ("Block 1", "Attention"),
        ("Block 1", "Feed-forward"),
        ("Block 2", "Attention"),
        ("Block 2", "Feed-forward"),
        ("Output",),
        ("Sampling",),
    ]
    residual = trace.find("Block 1 › Feed-forward › Residual")
    first, added = (stage.values for stage in residual.inputs)
    np.testing.assert_allclose(residual.values, first + added, atol=1e-6)


def test_norms_come_first_or_last():
    before = trace_steps(STEP_MODELS["decoder"]())
    after = trace_steps(STEP_MODELS["decoder of 2017"]())
    block = ("Block 1", "Feed-forward")
    assert next(s.title for s in before.stages if s.path == block and s.shown) == "Norm"
    assert [s.title for s in after.stages if s.path == block and s.shown][-1] == "Norm"


def test_a_translator_shows_the_source_and_a_captioner_its_patches():
    trace = trace_steps(STEP_MODELS["encoder–decoder"](), position=2)
    assert ("Block 2", "Cross-attention") in parts(trace)
    assert trace.find("Encoded source").values.shape == (7, 12)
    trace = trace_steps(STEP_MODELS["captioner"](), position=2)
    assert list(trace.find("Encoded source").rows)[1] == "row 1, column 1"


@pytest.mark.parametrize("name", ["mean", "first", "max", "attention", "sum"])
def test_pooled_vectors_lead_to_the_probabilities_of_classes(name):
    pipeline = STEP_MODELS[f"encoder, {name} pooling"]()
    trace = trace_steps(pipeline, position=3)
    with torch.no_grad():
        scores = pipeline.prepared.run(None)[0]
    found = trace.find("Output › Probabilities")
    np.testing.assert_allclose(found.values, scores.softmax(-1).numpy(), atol=1e-5)
    assert list(found.columns) == ["p", "q", "r"]


def test_masked_tokens_and_labels_end_without_a_sample():
    assert trace_steps(STEP_MODELS["masked"]()).stages[-1].title == "Probabilities"
    labels = trace_steps(STEP_MODELS["labels"]()).stages[-1]
    assert list(labels.columns) == ["one", "two"] and labels.title == "Probabilities"
    assert trace_steps(STEP_MODELS["values"]()).stages[-1].title == "Value"
