"""Interpolation, smoothing and learned attention: each against its formula, and the wave."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.lab import kernels as lab
from regard.lab.kernels import FULL, INVERSE, PRINTED, Attention, fit, kernels, smooth, wave
from regard.lab.result import Options
from regard.layers.attention import negative_distance, negative_log_distance

X = np.array([1.36, 3.40, 4.8, 6.05])
Y = np.array([1.79, -1.77, 0.4, -2.17])


def by_hand(kernel, asked):
    made = []
    for q in asked:
        weights = [kernel(abs(q - x)) for x in X]
        made.append(sum(w * y for w, y in zip(weights, Y, strict=True)) / sum(weights))
    return np.array(made)


@pytest.mark.parametrize(
    ("score", "kernel"),
    [
        (negative_log_distance, lambda d: 1 / d),
        (negative_distance, lambda d: np.exp(-d)),
        (lab.gaussian(0.7), lambda d: np.exp(-(d**2) / (2 * 0.7**2))),
    ],
)
def test_each_weighted_mean_is_attention_with_its_score(score, kernel):
    asked = np.array([0.9, 2.0, 4.21, 5.5])
    values, weights = smooth(asked, (X, Y), score)
    assert np.allclose(values, by_hand(kernel, asked), atol=1e-5)
    assert np.allclose(weights.sum(1), 1, atol=1e-6) and weights.shape == (4, 4)


def test_parameter_free_attention_is_a_softmax_of_products_and_learning_starts_there():
    model = Attention((X, Y), learned=False, valued=False)
    asked = np.array([2.2, 4.21])
    codes, keys = model.code(asked).double().numpy(), model.code(X).double().numpy()
    weights = np.exp(codes @ keys.T)
    expected = (weights @ Y) / weights.sum(1)
    assert np.allclose(model(asked).detach().numpy(), expected, atol=1e-4)
    learned = Attention((X, Y), learned=True, valued=True)
    assert np.allclose(learned(asked).detach().numpy(), expected, atol=1e-4)


def test_a_point_left_out_does_not_answer_for_itself():
    model = Attention((X, Y), learned=True, valued=True)
    target = torch.from_numpy(Y.copy()).float()
    moved = Attention((X, Y + np.array([0, 9.0, 0, 0])), learned=True, valued=True)
    gap = (model(X, out=True) - moved(X, out=True)).detach().abs()
    assert gap[1] < 1e-5 and (gap[[0, 2, 3]] > 1e-4).all() and len(target) == 4


def test_learning_lowers_the_error_on_points_left_out():
    random = np.random.default_rng(0)
    points = lab.sample(24, random)
    before = Attention(points, learned=True, valued=True)(points[0], out=True).detach().numpy()
    after = fit(points, 40, valued=True, seed=0)(points[0], out=True).numpy()
    assert lab.rms(after - points[1]) < 0.9 * lab.rms(before - points[1])


def test_the_wave_passes_through_the_three_points_the_lecture_prints():
    for x, y in PRINTED:
        assert abs(wave(np.array([x]))[0] - y) < 1e-3


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(lab, "SMALL", lab.Plan(draws=2, points=16, held=20, steps=5))


def test_the_quick_form_reports_every_weighting(tiny):
    result = kernels(Options(quick=True))
    assert [row[0] for row in result.tables[0].rows] == [*lab.FIXED, lab.TUNED, lab.LEARNED, FULL]
    assert [claim.holds for claim in result.claims[:3]] == [True] * 3
    again = kernels(Options(quick=True))
    assert [c.measured for c in again.claims] == [c.measured for c in result.claims]


def test_points_of_the_users_own_are_read_by_name_and_checked(tiny, tmp_path):
    path = tmp_path / "points.csv"
    rows = [f"{i},{i * 0.5 + 0.01 * i * i},{i}" for i in range(14)]
    path.write_text("y,x,other\n" + "\n".join(rows) + "\n")
    result = kernels(Options(quick=True, file=path))
    drawn = np.array(result.figures[0].series[0][1])
    assert np.allclose(drawn, [i * 0.5 + 0.01 * i * i for i in range(14)])
    assert INVERSE in [row[0] for row in result.tables[0].rows]
    path.write_text("x,y\n1,2\n2,three\n" + "\n".join(f"{i},1" for i in range(20)))
    with pytest.raises(UserError, match=r"points\.csv:3: x and y must be numbers, got 'three'"):
        kernels(Options(quick=True, file=path))
    path.write_text("x,y\n1,2\n")
    with pytest.raises(UserError, match="1 points, at least 12 are needed"):
        kernels(Options(quick=True, file=path))
    with pytest.raises(UserError, match="no file at"):
        kernels(Options(quick=True, file=tmp_path / "none.csv"))
