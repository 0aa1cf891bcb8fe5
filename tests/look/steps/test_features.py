"""Features of images, point clouds and series as stages, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from step_models import STEP_MODELS, point_clouds, waves

from regard.look.steps import trace_steps
from regard.look.steps.features import MOST_POINTS


def by_name(stage):
    return dict(zip(stage.columns, stage.values.tolist(), strict=True))


def test_pixels_are_named_by_their_place():
    pipeline = STEP_MODELS["pixels"]()
    trace = trace_steps(pipeline)
    images = np.random.default_rng(0).integers(0, 256, (9, 4, 6, 2), dtype=np.uint8)
    pixels = by_name(trace.find("Input › Pixels"))
    assert pixels["row 2, column 5, channel 2"] == images[4, 1, 4, 1]
    assert len(pixels) == 4 * 6 * 2


def test_statistics_of_points_do_not_change_when_they_are_rotated():
    trace = trace_steps(STEP_MODELS["statistics of points"]())
    points = trace.find("Input › Points").values
    features = by_name(trace.find("Features › Features"))
    centered = points - points.mean(0)
    spread = np.sqrt(np.linalg.eigvalsh(centered.T @ centered / len(points)))
    for axis in range(3):
        assert features[f"spread along axis {axis + 1}"] == pytest.approx(spread[axis], abs=1e-5)
    radii = np.linalg.norm(centered, axis=1)
    assert features["mean distance to the centroid"] == pytest.approx(radii.mean(), rel=1e-5)
    assert features["points"] == len(point_clouds()[4].points)


def test_many_points_have_a_summary_of_their_distances(monkeypatch):
    monkeypatch.setattr("regard.look.steps.features.MOST_POINTS", 2)
    assert MOST_POINTS == 256
    trace = trace_steps(STEP_MODELS["statistics of points"]())
    summary = trace.find("Distances between points › Summary").values
    features = by_name(trace.find("Features › Features"))
    assert summary[0] == features["mean distance between points"]


def test_statistics_of_series_have_their_names():
    trace = trace_steps(STEP_MODELS["statistics of series"]())
    features, values = by_name(trace.find("Features › Features")), trace.find("Steps").values
    assert features["column 2: mean"] == pytest.approx(values[:, 1].mean(), abs=1e-5)
    assert features["column 1: quantile 1"] == pytest.approx(values[:, 0].max(), abs=1e-5)
    assert features["logarithm of the length"] == pytest.approx(np.log(28), abs=1e-5)
    assert features["column 1: share missing"] == pytest.approx(1 / 28)
    assert len(waves()[4]) == 28


def test_a_convolution_exceeds_its_threshold_at_some_steps():
    """One filter, written out: weights of 2 at the places 0, 1 and 2, at every step."""
    pipeline = STEP_MODELS["rocket"]()
    trace = trace_steps(pipeline)
    x = trace.find("Input › Centered").values @ pipeline.model.channels[0, 0].double().numpy()
    padded = np.r_[np.zeros(4), x, np.zeros(4)]
    outputs = [np.dot([2, 2, 2, *[-1] * 6], padded[t : t + 9]) for t in range(len(x))]
    share = np.mean(np.array(outputs) > pipeline.model.thresholds[0, 0, 0].item() + 1e-7)
    assert trace.find("Features › Features").values[0] == pytest.approx(share, abs=1e-6)


def test_a_step_reads_those_around_it():
    pipeline = STEP_MODELS["statistics of steps"]()
    trace = trace_steps(pipeline, position=6)  # the fifth step
    values, features = trace.find("Steps").values, by_name(trace.find("Features › Features"))
    assert features["column 1: value at +0"] == pytest.approx(values[4, 0], abs=1e-6)
    assert features["column 2: value at -4"] == pytest.approx(values[0, 1], abs=1e-6)
    assert features["column 2: value at -5"] == 0
    assert features["column 1: mean over ±8"] == pytest.approx(values[:13, 0].mean(), abs=1e-5)
    none = trace_steps(pipeline, position=1)
    assert not none.find("Features › Features").values.any()
