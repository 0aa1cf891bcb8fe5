"""Many numbers as two: principal components, and neighbourhoods by t-SNE.

Principal components are exact, by the singular values of the centred vectors. t-SNE (van der Maaten
& Hinton 2008, "Visualizing data using t-SNE") is exact too, without trees or samples: every pair of
N points counts, which a thousand of them can afford. It begins at the principal components (Kobak &
Berens 2019, doi:10.1038/s41467-019-13056-x), so that nothing is random.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PERPLEXITY = 30.0  # neighbours that count, as in the paper's experiments
STEPS, EARLY = 500, 150  # of the descent, and those at first that pull clusters together ...
EXAGGERATION = 12.0  # ... by so much, as in the authors' later code (van der Maaten 2014)
MOMENTA = 0.5, 0.8  # while exaggerated, and after
SLOWEST = 50.0  # the least learning rate; else N / EXAGGERATION (Belkina et al. 2019)
SPREAD = 1e-4  # standard deviation of where it begins
HALVINGS = 64  # of the interval that a row's precision lies in

Floats = NDArray[np.float64]


def principal(vectors: Floats, count: int = 2) -> tuple[Floats, Floats, Floats]:
    """Vectors (N, D) along their first `count` principal directions: coordinates (N, count), the
    directions (count, D), and each one's share of the variance (count,).

    The sign of a direction is that of its largest entry, so that it does not depend on the machine;
    where there are fewer directions than asked for, the rest are zeros.
    """
    x = np.asarray(vectors, np.float64)
    x = x - x.mean(0)
    _, sizes, rows = np.linalg.svd(x, full_matrices=False)
    directions, shares = np.zeros((count, x.shape[1])), np.zeros(count)
    found = min(count, len(sizes))
    largest = np.take_along_axis(rows, np.abs(rows).argmax(1)[:, None], 1)
    directions[:found] = (rows * np.where(largest < 0, -1.0, 1.0))[:found]
    shares[:found] = (sizes**2 / max(float((sizes**2).sum()), np.finfo(float).tiny))[:found]
    return x @ directions.T, directions, shares


def distances(a: Floats, b: Floats) -> Floats:
    """(N, M) squared distances of (N, D) from (M, D)."""
    found: Floats = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * (a @ b.T)
    return np.maximum(found, 0.0, out=found)


def neighbourhoods(squares: Floats, perplexity: float) -> Floats:
    """(N, N) probability that row i has j as its neighbour: a Gaussian of squared distances whose
    width gives every row this perplexity, 2 to its entropy in bits. The diagonal is 0.

    Equal distances all around allow no other perplexity than N − 1, which they then have.
    """
    n = len(squares)
    if not 1 <= perplexity < n - 1:
        raise ValueError(f"perplexity must be at least 1 and below N - 1 = {n - 1}: {perplexity}")
    away = ~np.eye(n, dtype=bool)
    near = squares[away].reshape(n, n - 1)
    near = near - near.min(1, keepdims=True)  # a row's Gaussian may be scaled as one likes
    mean = near.mean(1, keepdims=True)
    near = near / np.where(mean > 0, mean, 1.0)
    low, high = np.full(n, -60.0), np.full(n, 60.0)  # logarithm of the precision
    target = math.log(perplexity)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        costs = near * np.exp(middle)[:, None]
        weights = np.exp(-costs)
        total = weights.sum(1)
        entropy = np.log(total) + (weights * costs).sum(1) / total
        wide = entropy > target  # too many neighbours: sharpen
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    found = np.zeros((n, n))
    found[away] = (weights / total[:, None]).ravel()
    return found


def divergence(p: Floats, y: Floats) -> tuple[float, Floats]:
    """KL(P ‖ Q) in nats of joint probabilities (N, N) and of points (N, 2), whose similarities Q
    have a Student's t of one degree of freedom, and its gradient (N, 2): equations 4 and 5.
    """
    close = 1 / (1 + distances(y, y))
    np.fill_diagonal(close, 0.0)
    q = close / close.sum()
    there = p > 0
    value = float((p[there] * np.log(p[there] / np.maximum(q[there], 1e-300))).sum())
    return value, _gradient(p, close, y)


def _gradient(p: Floats, close: Floats, y: Floats) -> Floats:
    pull = (p - close / close.sum()) * close
    return np.asarray(4 * (pull.sum(1)[:, None] * y - pull @ y))


def tsne(vectors: Floats, *, perplexity: float = PERPLEXITY, steps: int = STEPS) -> Floats:
    """(N, 2) points of vectors (N, D) such that neighbours stay neighbours; at least five.

    A perplexity that so few points do not have is lowered to a third of them.
    """
    x = np.asarray(vectors, np.float64)
    n = len(x)
    if n < 5:
        raise ValueError(f"neighbourhoods need at least 5 points, got {n}")
    conditional = neighbourhoods(distances(x, x), min(perplexity, (n - 1) / 3))
    p = (conditional + conditional.T) / (2 * n)
    y = principal(x)[0]
    y = y / max(float(y[:, 0].std()), 1e-300) * SPREAD
    rate = max(n / EXAGGERATION, SLOWEST)
    step, gains = np.zeros_like(y), np.ones_like(y)
    for t in range(steps):
        early = t < EARLY
        close = 1 / (1 + distances(y, y))
        np.fill_diagonal(close, 0.0)
        gradient = _gradient(p * EXAGGERATION if early else p, close, y)
        against = np.sign(gradient) != np.sign(step)  # still going down (Jacobs 1988)
        gains = np.maximum(np.where(against, gains + 0.2, gains * 0.8), 0.01)
        step = MOMENTA[not early] * step - rate * gains * gradient
        y = y + step
        y -= y.mean(0)
    return y
