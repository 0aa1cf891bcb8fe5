"""Charts: what is refused, and colours that can be told apart."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.figures import colours
from regard.look.page import (
    AttentionMaps,
    Bars,
    Forecasts,
    Heatmap,
    Histogram,
    Lines,
    MaskMap,
    Scatter,
)


def luminance(colour):
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * r**2.2 + 0.7152 * g**2.2 + 0.0722 * b**2.2


def test_colour_ramps_are_monotone_in_lightness():
    for name in ("ramp", "warm"):
        steps = np.diff([luminance(c) for c in colours(name)])
        assert (steps < 0).all()
    low, middle, high = np.split(np.array([luminance(c) for c in colours("diverging")]), [2, 3])
    assert (np.diff([*low, *middle]) > 0).all() and (np.diff([*middle, *high]) < 0).all()


def test_groups_of_points_are_numbered_by_how_often_they_occur():
    corners = [(0.0, 0.0, "all A"), (1.0, 0.0, "all B"), (0.5, 1.0, "all C")]
    data = Scatter(
        np.eye(2)[[0, 1, 1]], groups=["a", "b", "b"], marks={2: "here"}, outline=corners
    ).data()
    assert [list(corner) for corner in data["outline"]] == [list(corner) for corner in corners]
    assert data["names"] == ["b", "a"] and data["groups"] == [1, 0, 0]
    assert data["x"] == [1, 0, 0] and data["marks"] == [[2, "here"]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Heatmap([[1, 2]], ["a"], ["b"]),
            "columns must have one entry per column of values",
        ),
        (lambda: Heatmap([1, 2], ["a"], ["b"]), "values must have 2 dimensions"),
        (lambda: Heatmap([[1]], ["a"], ["b"], scale="rainbow"), "scale must be one of .*'rainbow'"),
        (lambda: MaskMap([[1]], ["a"]), "mask must be boolean"),
        (lambda: Heatmap([[1]], ["a"], ["b"], marks=[(0, 1)]), r"marks must lie in .*\(0, 1\)"),
        (lambda: Heatmap([[2]], ["a"], ["b"], scale="weights"), r"weights must lie in \[0, 1\]"),
        (lambda: AttentionMaps(np.ones((1, 2, 3)), ["a"]), "weights must have 4 dimensions"),
        (
            lambda: AttentionMaps(np.ones((1, 2, 1, 1)), ["a"], chosen=(0, 2)),
            "chosen must be a layer",
        ),
        (
            lambda: AttentionMaps(np.full((1, 1, 2, 3), 2.0), ["a", "b"]),
            r"weights must lie in \[0, 1\]",
        ),
        (
            lambda: AttentionMaps(np.zeros((1, 1, 2, 3)), ["a", "b"]),
            "sources must have one entry per key",
        ),
        (
            lambda: AttentionMaps(np.zeros((1, 1, 1, 1)), ["a"], layers=["x", "y"]),
            "layers must have one",
        ),
        (
            lambda: AttentionMaps(np.zeros((1, 1, 1, 1)), ["a"], scores=np.zeros((1, 1, 1, 2))),
            r"scores must have the shape of weights, \(1, 1, 1, 1\), got \(1, 1, 1, 2\)",
        ),
        (
            lambda: Heatmap([[-1.0]], ["a"], ["b"], scale="logarithmic"),
            "logarithmic values must be at least 0, got -1.0",
        ),
        (lambda: Lines([("a", [1], [1, 2])]), "ys of 'a' must have one entry per x"),
        (lambda: Lines([("a", [1], [1])] * 2), "different names"),
        (lambda: Lines([("a", [1], [1])], bands={"b": ([1], [1])}), "bands must name a series"),
        (lambda: Bars(["a"], [1], [0.5]), "give low and high together"),
        (lambda: Histogram([1, 0], [3]), "edges must be finite and increase"),
        (lambda: Histogram([0, 1, 2], [3]), "edges must have one entry per count, and one more"),
    ],
)
def test_wrong_data_is_refused_with_its_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("unit", "characters", "step"), [("D", 10, 86_400_000), ("h", 16, 3_600_000), ("s", 19, 1000)]
)
def test_times_of_windows_are_dates_as_long_as_they_must_be(unit, characters, step):
    steps = np.arange(5) + 2 * np.arange(2)[:, None]
    times = np.datetime64("2024-02-28", unit) + steps.astype(f"m8[{unit}]")
    arrays = np.zeros((1, 2, 3, 1)), np.zeros((2, 2, 1)), np.zeros((2, 3, 1))
    names = dict(zip(("forecasts", "history", "truth"), arrays, strict=True))
    data = Forecasts(names=["a"], targets=["y"], times=times, **names).data()
    assert (data["characters"], data["step"]) == (characters, step)
    assert data["times"] == [[t] for t in times[:, 0].astype("M8[ms]").astype(int).tolist()]
    months = np.array(["2024-01", "2024-02", "2024-03", "2024-04", "2024-05"], "M8[M]")
    data = Forecasts(
        names=["a"], targets=["y"], times=np.stack([months, months + 1]), **names
    ).data()
    assert data["step"] == 0 and data["characters"] == 10 and len(data["times"][1]) == 5
    with pytest.raises(ValueError, match="times must be one for each step"):
        Forecasts(names=["a"], targets=["y"], times=times[:, 1:], **names)
