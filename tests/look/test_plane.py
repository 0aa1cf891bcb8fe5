"""The plane: principal components against the covariance, t-SNE against its own definition."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.projection import distances, divergence, neighbourhoods, principal, tsne


def cloud(n=40, d=7, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.arange(1, d + 1)


def test_components_are_eigenvectors_of_the_covariance():
    x = cloud()
    values, vectors = np.linalg.eigh(np.cov(x.T))
    points, directions, shares = principal(x, 3)
    np.testing.assert_allclose(shares, values[::-1][:3] / values.sum())
    for i, direction in enumerate(directions):
        expected = vectors[:, -1 - i]
        assert abs(direction @ expected) == pytest.approx(1)
        assert direction[np.abs(direction).argmax()] > 0  # the sign is fixed
    np.testing.assert_allclose(points, (x - x.mean(0)) @ directions.T)
    np.testing.assert_allclose(np.cov(points.T), np.diag(values[::-1][:3]), atol=1e-9)


def test_fewer_directions_than_asked_for_are_filled_with_zeros():
    points, directions, shares = principal(np.array([[1.0], [2.0], [4.0]]))
    assert points.shape == (3, 2) and (points[:, 1] == 0).all() and (directions[1] == 0).all()
    assert shares.tolist() == [1, 0]
    assert principal(np.ones((4, 3)))[2].tolist() == [0, 0]  # no variance at all


def test_distances_are_squared_and_never_negative():
    a, b = cloud(5), cloud(4, seed=1)
    by_hand = [[((p - q) ** 2).sum() for q in b] for p in a]
    np.testing.assert_allclose(distances(a, b), by_hand)
    assert distances(a + 1e6, a + 1e6).min() >= 0


@pytest.mark.parametrize("perplexity", [2.0, 11.5, 30.0])
def test_every_row_has_the_perplexity_asked_for(perplexity):
    x = cloud(60)
    x[0] *= 50  # one far away from all others
    p = neighbourhoods(distances(x, x), perplexity)
    assert (np.diag(p) == 0).all()
    np.testing.assert_allclose(p.sum(1), 1)
    for row in p:
        kept = row[row > 0]
        assert np.exp(-(kept * np.log(kept)).sum()) == pytest.approx(perplexity, abs=1e-4)


def test_a_row_is_a_gaussian_of_its_distances():
    x = cloud(30)
    squares = distances(x, x)
    p = neighbourhoods(squares, 5.0)
    for i in (0, 7):
        others = np.delete(np.arange(30), i)
        slope = np.diff(np.log(p[i, others])) / -np.diff(squares[i, others])
        np.testing.assert_allclose(slope, slope[0], rtol=1e-6)  # one precision for the whole row


def test_equal_distances_have_no_other_perplexity_and_a_wrong_one_is_refused():
    flat = 1.0 - np.eye(6)
    np.testing.assert_allclose(neighbourhoods(flat, 3.0), flat / 5)
    with pytest.raises(ValueError, match="below N - 1 = 5"):
        neighbourhoods(flat, 5.0)


def test_the_gradient_is_that_of_the_divergence():
    random = np.random.default_rng(0)
    conditional = neighbourhoods(distances(*[cloud(9)] * 2), 3.0)
    p = (conditional + conditional.T) / 18
    y = random.normal(size=(9, 2))
    value, gradient = divergence(p, y)
    close = 1 / (1 + ((y[:, None] - y[None]) ** 2).sum(-1))
    np.fill_diagonal(close, 0)
    q = close / close.sum()
    by_hand = sum(
        p[i, j] * np.log(p[i, j] / q[i, j]) for i in range(9) for j in range(9) if p[i, j] > 0
    )
    assert value == pytest.approx(by_hand)
    for i, k in np.ndindex(9, 2):
        step = np.zeros_like(y)
        step[i, k] = 1e-6
        slope = (divergence(p, y + step)[0] - divergence(p, y - step)[0]) / 2e-6
        assert gradient[i, k] == pytest.approx(slope, abs=1e-7)


def test_planted_clusters_stay_together_and_nothing_is_random():
    random = np.random.default_rng(3)
    label = np.repeat([0, 1, 2], 50)
    x = random.normal(size=(150, 10)) + 4 * random.normal(size=(3, 10))[label]
    y = tsne(x)
    squares = distances(y, y)
    np.fill_diagonal(squares, np.inf)
    near = squares.argsort(1)[:, :10]
    assert (label[near] == label[:, None]).mean() > 0.95
    assert (tsne(x) == y).all()
    p = neighbourhoods(distances(x, x), 30.0)
    p = (p + p.T) / 300
    assert divergence(p, y)[0] < 0.7 * divergence(p, principal(x)[0])[0]


def test_few_or_equal_points_are_drawn_and_too_few_refused():
    for x in (cloud(5), np.ones((8, 3))):
        y = tsne(x)
        assert y.shape == (len(x), 2) and np.isfinite(y).all()
    with pytest.raises(ValueError, match="at least 5 points, got 4"):
        tsne(cloud(4))
