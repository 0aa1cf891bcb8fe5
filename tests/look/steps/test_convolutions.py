"""Convolutions as stages, against torch's own."""

from __future__ import annotations

import numpy as np
import torch
from step_models import STEP_MODELS

from regard.layers.embeddings import Inputs
from regard.look.steps import trace_steps


def test_the_vector_of_a_position_is_the_models():
    for name, last in (("cnn over steps", "Output › ReLU"), ("cnn over images", "Last norm")):
        pipeline = STEP_MODELS[name]()
        ids = pipeline.prepared.tensors["ids"]
        with torch.no_grad():
            vectors = pipeline.model.vectors(Inputs(ids, torch.ones(ids.shape[:2]).long()))[0]
        for position in (2, 4, ids.size(1)):
            trace = trace_steps(pipeline, position=position)
            found = trace.find(last).values
            np.testing.assert_allclose(found, vectors[position - 1].numpy(), atol=1e-6)


def test_the_first_position_of_series_is_the_mean_of_all_steps():
    pipeline = STEP_MODELS["cnn over series"]()
    ids = pipeline.prepared.tensors["ids"]
    with torch.no_grad():
        vectors = pipeline.model.vectors(Inputs(ids, torch.ones(ids.shape[:2]).long()))[0]
    for position in (1, 3):
        trace = trace_steps(pipeline, position=position)
        found = trace.find("Mean of the steps").values
        np.testing.assert_allclose(found, vectors[position - 1].numpy(), atol=1e-6)
    assert trace.notes == ["Of the steps, number 4 is followed."]


def test_windows_have_the_width_of_their_filters():
    trace = trace_steps(STEP_MODELS["cnn classifier"](), position=3)
    for width, share in ((2, 3), (3, 2), (4, 2)):
        window = trace.find(f"Filters of width {width} › Window")
        assert window.values.shape == (7 * width,)
        assert trace.find(f"Filters of width {width} › Filters").values.shape == (share,)
    first = trace_steps(STEP_MODELS["cnn classifier"](), position=1)
    assert first.find("Before the text").values.tolist() == [0.0] * 7
