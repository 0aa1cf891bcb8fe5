"""Vectors in the plane: principal components against the covariance, t-SNE and k-means on planted
clusters.
"""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.projection import cluster, principal_components, spread, tsne


def random_vectors(n=40, d=7, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.arange(1, d + 1)


def planted_clusters():
    """Three clusters of 50 vectors each, and the number of each."""
    random, labels = np.random.default_rng(3), np.repeat([0, 1, 2], 50)
    return random.normal(size=(150, 10)) + 4 * random.normal(size=(3, 10))[labels], labels


def test_components_are_eigenvectors_of_the_covariance():
    x = random_vectors()
    values, vectors = np.linalg.eigh(np.cov(x.T))
    points, directions, shares = principal_components(x, 3)
    np.testing.assert_allclose(shares, values[::-1][:3] / values.sum())
    for i, direction in enumerate(directions):
        assert abs(direction @ vectors[:, -1 - i]) == pytest.approx(1)
        assert direction[np.abs(direction).argmax()] > 0  # the sign is fixed
    np.testing.assert_allclose(points, (x - x.mean(0)) @ directions.T)
    np.testing.assert_allclose(np.cov(points.T), np.diag(values[::-1][:3]), atol=1e-9)


def test_directions_that_do_not_exist_are_zeros():
    points, directions, shares = principal_components(np.array([[1.0], [2.0], [4.0]]))
    assert points.shape == (3, 2) and (points[:, 1] == 0).all() and (directions[1] == 0).all()
    assert shares.tolist() == [1, 0]
    assert principal_components(np.ones((4, 3)))[2].tolist() == [0, 0]  # no variance at all


def test_tsne_keeps_planted_clusters_together_and_is_deterministic():
    x, labels = planted_clusters()
    y = tsne(x)
    distances = np.linalg.norm(y[:, None] - y[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argsort(1)[:, :10]
    assert (labels[nearest] == labels[:, None]).mean() > 0.95
    assert (tsne(x) == y).all()


def test_few_or_equal_points_are_drawn_and_too_few_are_refused():
    for x in (random_vectors(5), np.ones((8, 3))):
        y = tsne(x)
        assert y.shape == (len(x), 2) and np.isfinite(y).all()
    with pytest.raises(ValueError, match="at least 5 points, got 4"):
        tsne(random_vectors(4))


def test_kmeans_finds_planted_clusters_and_is_deterministic():
    x, labels = planted_clusters()
    groups, centres = cluster(x, 3)
    assert centres.shape == (3, 10)
    assert all(len(set(groups[labels == k])) == 1 for k in range(3)) and len(set(groups)) == 3
    assert np.array_equal(groups, cluster(x, 3)[0])
    groups, centres = cluster(np.ones((5, 1)), 3)
    assert set(groups) == {0} and len(centres) == 1  # equal vectors are one cluster


def test_spread_indices_reach_from_the_first_to_the_last():
    assert spread(9, 3).tolist() == [0, 4, 8] and spread(2, 5).tolist() == [0, 1]
