"""Boosted trees as stages, against scikit-learn and against paths walked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from step_models import STEP_MODELS

from regard.look.steps import trace_steps
from regard.look.steps.operations import Leaves
from regard.look.steps.page import kept_rows

NODES = np.array(  # x₀ ≤ 0.5, then x₁ ≤ 2, which a missing value exceeds
    [[0, 0.5, 1, 0], [0, 9, 1, 10], [3, 2.0, 3, 0], [0, 9, 3, 30], [0, 9, 4, 40]], dtype=float
)


@pytest.mark.parametrize(
    ("x", "expected"),
    [([0.5, 7], 10), ([0.6, 2], 30), ([0.6, 3], 40), ([0.6, np.nan], 40), ([np.nan, 0], 10)],
)
def test_a_path_goes_left_at_the_threshold(x, expected):
    assert Leaves((0,)).compute(np.array(x), NODES).tolist() == [expected]


def test_leaves_are_those_of_the_model():
    """Each horizon step has its own features; trees and the baseline add up."""
    pipeline = STEP_MODELS["boosting"]()
    expected = pipeline.prepared.run(None)[0, :, 0, 0].numpy()
    for position in (1, 4):
        trace = trace_steps(pipeline, position=position)
        leaves = trace.find("Trees › Leaves")
        assert leaves.values.shape == (100,)
        features = trace.find("Features › Features")
        assert features.values[-2:].tolist() == [position - 1, 0]  # step and channel
        before = pipeline.prepared.tensors["past"][0, 24 - 6 + position - 1, 0].item()
        mean, deviation = (trace.find(f"Input › {n}").values[0] for n in ("Mean", "Deviation"))
        season = features.values[list(features.columns).index("one season before")]
        if not np.isnan(before):
            assert season * deviation + mean == pytest.approx(before, rel=1e-5)
        forecast = trace.find("Output › Forecast").values[0]
        assert forecast == pytest.approx(expected[position - 1], rel=1e-5)


def test_a_page_holds_the_nodes_on_the_paths_alone():
    trace = trace_steps(STEP_MODELS["boosting"](), position=2)
    nodes, leaves = trace.find("nodes of the trees"), trace.find("Trees › Leaves")
    rows = kept_rows(trace)[id(nodes)]
    paths = leaves.how.paths(*(x.values for x in leaves.inputs))
    assert rows == sorted({node for path in paths for node in path})
    assert len(rows) < len(nodes.values)


def test_each_level_has_trees_of_its_own():
    trace = trace_steps(STEP_MODELS["boosting with quantiles"]())
    assert "Each level has trees of its own: these are for 0.5." in trace.notes
