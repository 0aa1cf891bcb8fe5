"""Windows of positions as stages."""

from __future__ import annotations

import numpy as np
from step_models import STEP_MODELS

from regard.look.steps import trace_steps


def test_a_window_before_the_text_is_zero():
    trace = trace_steps(STEP_MODELS["mlp"](), position=1)
    assert trace.stages[0].title == "Before the text" and not trace.stages[0].values.any()
    assert trace.find("Input › Window").values.shape == (3 * 4,)


def test_dilations_double():
    pipeline = STEP_MODELS["cnn"]()
    trace = trace_steps(pipeline, position=5)
    for block, distances in ((1, (2, 1, 0)), (2, (4, 2, 0))):
        window = trace.find(f"Block {block} › Window")
        names = [stage.title for stage in window.inputs]
        assert names[-1] == "Norm"
        assert names[:2] == [f"Position {5 - d}: {trace.tokens[4 - d]}" for d in distances[:2]]
        np.testing.assert_array_equal(
            window.values, np.concatenate([stage.values for stage in window.inputs])
        )
