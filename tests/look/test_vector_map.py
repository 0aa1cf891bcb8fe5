"""Maps of vectors: components against numpy, planted clusters, neighbours by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from regard.errors import UsageError
from regard.look import vector_map
from regard.look.vector_map import (
    components,
    lay_out,
    nearest_vectors,
    place_by_neighbours,
    unit_vectors,
)


def planted(count=200, width=12, seed=0):
    random, groups = np.random.default_rng(seed), np.arange(count) % 4
    return (random.normal(size=(count, width)) + 6 * random.normal(size=(4, width))[groups]).astype(
        np.float32
    ), groups


@pytest.mark.parametrize("count", [20, 400])  # both solvers
def test_components_are_those_of_the_covariance(count):
    x = planted(count)[0]
    values, vectors = np.linalg.eigh(np.cov(x.T.astype(np.float64)))
    points, shares = components(x, 3)
    np.testing.assert_allclose(shares, values[::-1][:3] / values.sum(), rtol=1e-5)
    expected = (x - x.mean(0)) @ vectors[:, ::-1][:, :3]
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-3)


def test_a_layout_of_neighbours_keeps_clusters_together_beyond_its_sample(monkeypatch):
    monkeypatch.setattr(vector_map, "SAMPLE", {2: 100, 3: 100})
    x, groups = planted()
    laid = lay_out(x, "t-SNE")
    distances = np.linalg.norm(laid.points[:, None] - laid.points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (groups[distances.argsort(1)[:, :5]] == groups[:, None]).mean() > 0.97
    assert "100 of the 200" in laid.note and laid.axes == ["", ""]
    assert (lay_out(x, "t-SNE").points == laid.points).all()


def test_other_vectors_lie_between_their_nearest():
    known, points = np.array([[0.0], [1.0], [9.0]]), np.array([[0.0, 0], [1, 0], [9, 9]])
    placed = place_by_neighbours(known, points, np.array([[1.0]]))
    np.testing.assert_allclose(placed, [[1, 0]], atol=1e-6)


def test_three_dimensions_and_few_equal_vectors():
    assert lay_out(planted()[0], dimensions=3).points.shape == (200, 3)
    laid = lay_out(np.ones((6, 2), np.float32), "t-SNE")
    assert laid.points.shape == (6, 2) and np.isfinite(laid.points).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing", 2), "layout must be one of principal components, t-SNE, got 'nothing'"),
        (("t-SNE", 4), "dimensions must be 2 or 3, got 4"),
    ],
)
def test_a_wrong_layout_is_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        lay_out(planted()[0], *arguments)
    with pytest.raises(UsageError, match="at least 5 points, got 4"):
        lay_out(np.ones((4, 2), np.float32))


def test_neighbours_are_those_of_brute_force():
    x = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    x[7] = x[3]  # equal vectors: the one with the lower number first
    unit = unit_vectors(x)
    for index in (0, 3, 20):
        cosines = [
            float(x[i] @ x[index] / np.linalg.norm(x[i]) / np.linalg.norm(x[index]))
            for i in range(50)
        ]
        order = sorted((i for i in range(50) if i != index), key=lambda i: -cosines[i])[:8]
        found = nearest_vectors(unit, index, 8)
        assert [i for i, _ in found] == order
        np.testing.assert_allclose([c for _, c in found], [cosines[i] for i in order], atol=1e-6)
    assert (unit_vectors(np.zeros((2, 3), np.float32)) == 0).all()
