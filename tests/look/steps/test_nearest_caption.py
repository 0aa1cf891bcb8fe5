"""The nearest image as stages, against a search by hand."""

from __future__ import annotations

import numpy as np
from step_models import STEP_MODELS, TEXTS

from regard.look.steps import trace_steps


def test_the_nearest_image_says_the_word():
    pipeline = STEP_MODELS["nearest caption"]()
    model, trace = pipeline.model, trace_steps(pipeline, position=2)
    distances = trace.find("Distances")
    pixels = trace.find("Pixels").values
    squares = ((model.images.double().numpy() - pixels) ** 2).sum(1)
    np.testing.assert_allclose(np.sort(distances.values), np.sort(squares)[:5])
    assert distances.values.argmin() == 0 and distances.columns[0] == TEXTS[squares.argmin()]
    repeated = trace.find("Repeated word")
    assert repeated.columns[repeated.values.argmax()] == TEXTS[squares.argmin()][1]
    p = trace.find("Output › Probabilities").values
    assert abs(p.sum() - 1) < 1e-6 and p.max() >= 0.99
