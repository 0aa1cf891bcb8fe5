"""Groups of vectors that point the same way: k-means on the sphere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 50  # at most; most clouds settle sooner

Floats = NDArray[np.float64]


def clusters(vectors: Floats, count: int, seed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """The group (N,) of each vector (N, D) of length 1, and the groups' centres (K, D), at length 1
    too: Dhillon & Modha 2001 (doi:10.1023/A:1007612920971).

    It begins at vectors that are far from one another (k-means++: Arthur & Vassilvitskii 2007). The
    same seed gives the same groups; there are fewer than `count` where vectors coincide.
    """
    random = np.random.default_rng(seed)
    chosen = [int(random.integers(len(vectors)))]
    near = vectors @ vectors[chosen[0]]  # (N,) to the nearest centre
    while len(chosen) < count:
        away = np.maximum(1 - near, 0.0)
        away[away < 1e-9] = 0.0
        if not away.any():
            break
        chosen.append(int(random.choice(len(vectors), p=away / away.sum())))
        near = np.maximum(near, vectors @ vectors[chosen[-1]])
    centres = vectors[chosen]
    groups = np.full(len(vectors), -1)
    for _ in range(ROUNDS):
        before, groups = groups, (vectors @ centres.T).argmax(1)
        if np.array_equal(before, groups):
            break
        for k in range(len(centres)):
            own = vectors[groups == k].sum(0)
            if own.any():
                centres[k] = own / np.linalg.norm(own)
    return groups, centres
