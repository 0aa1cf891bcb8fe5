"""Hard-margin problems over matrices: the smallest W with <A, W> ≥ 1 for every A, by its norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.errors import missing_extra

Array = NDArray[np.float64]


def frobenius(constraints: Array) -> Array:
    """min |W|_F with <A, W> ≥ 1 for every A (N, D, D): least distance programming by non-negative
    least squares (Lawson & Hanson 1974, chapter 23).
    """
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    flat = constraints.reshape(len(constraints), -1)  # (N, D²)
    matrix = np.concatenate([flat.T, np.ones((1, len(flat)))])
    target = np.append(np.zeros(flat.shape[1]), 1.0)
    weights, left = nnls(matrix, target, maxiter=50 * len(flat))
    rest = target - matrix @ weights
    if left < 1e-9:
        raise ValueError("the tokens cannot be separated: the constraints contradict one another")
    return np.asarray(-rest[:-1] / rest[-1]).reshape(constraints.shape[1:])


def nuclear(constraints: Array, passes: int = 80) -> Array:
    """min |W|_* under the same constraints, by reweighting (Mohan & Fazel 2012, JMLR 13:3441): each
    pass minimises tr(Wᵀ (W₀W₀ᵀ + ε)^(-1/2) W), the Frobenius problem in other coordinates.
    """
    w, epsilon = frobenius(constraints), 1.0
    for _ in range(passes):
        values, vectors = np.linalg.eigh(w @ w.T + epsilon * np.eye(len(w)))
        root = (vectors * values**0.25) @ vectors.T  # (W₀W₀ᵀ + ε)^(1/4)
        w = root @ frobenius(root @ constraints)  # <A, root U> = <root A, U>
        epsilon = max(0.6 * epsilon, 1e-10)
    return w


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two matrices."""
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))
