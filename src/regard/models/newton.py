"""Linear models of many features, by a truncated Newton method.

`minimise` finds the weights W (O, F) and biases b (O,) of least

    Σ_rows loss(W x + b, y) + l2 / 2 · |W|²

Each Newton step is solved by conjugate gradients, which need products with x and its transpose but
no Hessian (Lin, Weng & Keerthi 2008, "Trust region Newton method for large-scale logistic
regression"), preconditioned by the diagonal of the Hessian (Hsia, Chiang & Lin 2018,
"Preconditioned conjugate gradient methods in truncated Newton frameworks"): n-grams of one token
are far more frequent than those of five. Scores are linear in the step, so a line search needs no
products. All outputs share the products; independent outputs have step sizes of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

Array = NDArray[Any]
MAX_STEPS = 200  # of Newton
MAX_PRODUCTS = 200  # with the Hessian, in each of them
FORCING = 0.1  # share of the gradient's norm that conjugate gradients leave
HALVINGS = 30  # of a step
ARMIJO = 1e-4  # the least decrease, as a share of that which the gradient promises


class RowLoss(ABC):
    """A loss of scores (R, O), summed over rows."""

    joint: ClassVar[bool] = False  # do the outputs depend on each other?
    bias_penalty: ClassVar[float] = 0.0  # on biases, in units of that on weights
    tolerance: ClassVar[float] = 2e-4  # of a final solution

    @abstractmethod
    def constant(self) -> Array:
        """Return the best scores (O,) that are equal for all rows."""

    @abstractmethod
    def value(self, scores: Array) -> Array:
        """Return the loss of each output (O,), or of all (1,) if they are joint."""

    @abstractmethod
    def derivatives(self, scores: Array) -> tuple[Array, Array]:
        """Return the first derivatives and the diagonal of the second ones, both (R, O)."""

    def curve(self, first: Array, second: Array, change: Array) -> Array:
        """Return the second derivatives times a change of the scores, (R, O)."""
        product: Array = second * change
        return product


@dataclass(frozen=True, eq=False)
class CrossEntropy(RowLoss):
    """Cross-entropy of classes that exclude each other, each of which occurs. `targets` are one-hot
    rows (R, O).
    """

    joint = True
    targets: Array

    def constant(self) -> Array:
        logs: Array = np.log(self.targets.mean(0, dtype=np.float64))
        return logs

    def value(self, scores: Array) -> Array:
        top = scores.max(1, keepdims=True)
        total = np.log(np.exp(scores - top).sum(1)) + top[:, 0]
        losses = total - np.einsum("ro,ro->r", scores, self.targets)
        return np.array([losses.sum(dtype=np.float64)])

    def derivatives(self, scores: Array) -> tuple[Array, Array]:
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return p - self.targets, p * (1 - p)

    def curve(self, first: Array, second: Array, change: Array) -> Array:
        p = first + self.targets
        product: Array = p * (change - np.einsum("ro,ro->r", p, change)[:, None])
        return product


@dataclass(frozen=True, eq=False)
class LabelEntropy(RowLoss):
    """Cross-entropy of labels; `signs` (R, O) are 1 for present, -1 for absent, 0 for unknown."""

    signs: Array

    def constant(self) -> Array:
        logs: Array = np.log((self.signs > 0).sum(0)) - np.log((self.signs < 0).sum(0))
        return logs

    def value(self, scores: Array) -> Array:
        losses = np.logaddexp(0, -self.signs * scores) * np.abs(self.signs)
        total: Array = losses.sum(0, dtype=np.float64)
        return total

    def derivatives(self, scores: Array) -> tuple[Array, Array]:
        error = 0.5 - 0.5 * np.tanh(0.5 * self.signs * scores)  # sigmoid(-sign · score)
        return -self.signs * error, np.abs(self.signs) * error * (1 - error)


@dataclass(frozen=True, eq=False)
class SquaredHinge(RowLoss):
    """The square of how far a score is from its side of the margin; signs of `LabelEntropy`. As in
    LIBLINEAR (Fan et al. 2008), biases are penalised, too.
    """

    bias_penalty = 1.0
    signs: Array

    def constant(self) -> Array:
        mean: Array = self.signs.sum(0) / np.abs(self.signs).sum(0)
        return mean

    def gaps(self, scores: Array) -> Array:
        """Return how far scores are from their side of the margin; 0 where unknown."""
        gaps: Array = np.maximum(1 - self.signs * scores, 0) * np.abs(self.signs)
        return gaps

    def value(self, scores: Array) -> Array:
        total: Array = np.square(self.gaps(scores)).sum(0, dtype=np.float64)
        return total

    def derivatives(self, scores: Array) -> tuple[Array, Array]:
        gaps = self.gaps(scores)
        return -2 * self.signs * gaps, (2 * (gaps > 0)).astype(scores.dtype)


@dataclass(frozen=True, eq=False)
class SquaredError(RowLoss):
    """Half the squared error of values (R, O); `mask` is 1, and 0 where a value is missing."""

    tolerance = 1e-6  # its solution is cheap
    values: Array
    mask: Array

    def constant(self) -> Array:
        mean: Array = (self.values * self.mask).sum(0) / self.mask.sum(0)
        return mean

    def value(self, scores: Array) -> Array:
        squares = np.square(scores - self.values) * self.mask
        total: Array = squares.sum(0, dtype=np.float64) / 2
        return total

    def derivatives(self, scores: Array) -> tuple[Array, Array]:
        return self.mask * (scores - self.values), self.mask


class Design:
    """Rows x (R, F), dense or sparse, with a constant feature behind the others. With `scales`
    (O, F), features are multiplied by these, other ones for each output.
    """

    def __init__(self, x: Any, dtype: Any, scales: Array | None) -> None:
        self.x = x.astype(dtype, copy=False)
        self.scales = None if scales is None else np.ascontiguousarray(scales, dtype)
        if isinstance(x, np.ndarray):
            self.squares = self.x**2
        else:
            parts = (self.x.data**2, self.x.indices, self.x.indptr)
            self.squares = csr_matrix(parts, shape=self.x.shape)

    def scores(self, w: Array) -> Array:
        """Return the scores (R, O) of weights and biases (O, F + 1)."""
        weights = w[:, :-1] if self.scales is None else self.scales * w[:, :-1]
        scores: Array = self.x @ weights.T
        scores += w[:, -1]
        return scores

    def gradient(self, first: Array) -> Array:
        """Return the sums of (R, O) over rows, times the features: (O, F + 1)."""
        return self.stack(self.x.T @ first, first, self.scales)

    def diagonal(self, second: Array) -> Array:
        """Return the sums of (R, O) over rows, times the squared features: (O, F + 1)."""
        scales = None if self.scales is None else self.scales**2
        return self.stack(self.squares.T @ second, second, scales)

    def stack(self, top: Array, rows: Array, scales: Array | None) -> Array:
        """Return (F, O), scaled, and the sums of (R, O): (O, F + 1)."""
        total = np.empty((rows.shape[1], len(top) + 1), rows.dtype)
        total[:, :-1] = top.T
        if scales is not None:
            total[:, :-1] *= scales
        total[:, -1] = rows.sum(0)
        return total


def inner_product(a: Array, b: Array, joint: bool) -> Array:
    """Return the inner product of each row of (O, F), (O,), or of all, (1,)."""
    products = np.array([one @ other for one, other in zip(a, b, strict=True)], np.float64)
    return products.sum(keepdims=True) if joint else products


@dataclass(eq=False)
class Newton:
    """The state of `minimise` at weights and biases w (O, F + 1). numpy is slow if the last axis,
    that of outputs, is short.
    """

    design: Design
    loss: RowLoss
    penalty: Array  # (F + 1,)
    w: Array
    scores: Array  # (R, O)
    value: Array = field(init=False)

    def __post_init__(self) -> None:
        self.value = self.objective(self.w, self.scores)

    def inner(self, a: Array, b: Array) -> Array:
        return inner_product(a, b, self.loss.joint)

    def objective(self, w: Array, scores: Array) -> Array:
        return self.loss.value(scores) + self.inner(w, self.penalty * w) / 2

    def differentiate(self) -> tuple[Array, Array]:
        """Compute the derivatives; return the squared norms of the gradient, twice what a step is
        expected to gain, and how much of that is rounding."""
        self.first, self.second = self.loss.derivatives(self.scores)
        self.gradient = self.design.gradient(self.first) + self.penalty * self.w
        smallest = np.finfo(self.w.dtype).eps
        self.diagonal = self.design.diagonal(self.second) + self.penalty + smallest
        rounding = smallest * (np.abs(self.value) + 1)
        return self.inner(self.gradient, self.gradient / self.diagonal), rounding

    def direction(self, active: Array, over: Callable[[], bool]) -> tuple[Array, Array]:
        """Return the step of the active outputs (O,), and how it changes the scores; a shorter one
        if the time is `over`.
        """
        step, change = np.zeros_like(self.w), np.zeros_like(self.scores)
        residual = self.gradient * -active[:, None].astype(self.w.dtype)
        search = residual / self.diagonal
        size = self.inner(residual, search)
        goal = FORCING**2 * size
        for _ in range(MAX_PRODUCTS):
            products = self.design.scores(search)
            curved = self.design.gradient(self.loss.curve(self.first, self.second, products))
            curved += self.penalty * search
            length = divide(size, self.inner(search, curved)).astype(step.dtype)
            step += length[:, None] * search
            change += length * products
            curved *= length[:, None]
            residual -= curved
            np.divide(residual, self.diagonal, out=curved)
            before, size = size, self.inner(residual, curved)
            size = np.where(size > goal, size, 0)  # 0: this output is done
            if not size.any() or over():
                break
            search *= divide(size, before).astype(step.dtype)[:, None]
            search += curved * (size > 0)[:, None]
        return step, change

    def move(self, active: Array, over: Callable[[], bool]) -> Array:
        """Take a step, halved until it decreases the objective; return which outputs moved."""
        step, change = self.direction(active, over)
        slope = ARMIJO * self.inner(self.gradient, step)
        length = active.astype(self.w.dtype)
        rounding = np.finfo(self.w.dtype).eps * np.abs(self.value)
        for _ in range(HALVINGS):
            w, scores = self.w + length[:, None] * step, self.scores + length * change
            value = self.objective(w, scores)
            good = value <= self.value + length * slope + rounding
            if good.all():
                break
            length = np.where(good, length, length / 2).astype(length.dtype)
        length = np.where(good, length, 0).astype(length.dtype)
        self.w += length[:, None] * step
        self.scores += length * change
        self.value = np.where(good, value, self.value)
        return active & (length > 0)


def divide(a: Array, b: Array) -> Array:
    """Return a / b, and 0 where b is not positive."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def minimise(
    x: Any,
    loss: RowLoss,
    l2: float,
    *,
    scales: Array | None = None,
    tol: float = 1e-5,
    dtype: Any = np.float64,
    over: Callable[[int], bool] = lambda step: False,
) -> tuple[Array, Array, bool]:
    """Return weights (O, F), biases (O,), and whether they converged: the gradient is at most `tol`
    times as long as at the best biases without weights, in the norm of the preconditioner.
    `scales` are (O, F).

    `over` is called often with the number of the current step; if it returns True, the solution so
    far is returned.
    """
    constant = loss.constant().astype(dtype)
    penalty = np.full(x.shape[1] + 1, l2, dtype)
    penalty[-1] *= loss.bias_penalty
    w = np.zeros((len(constant), len(penalty)), dtype)
    w[:, -1] = constant
    scores = np.tile(constant, (x.shape[0], 1))
    state = Newton(Design(x, dtype, scales), loss, penalty, w, scores)
    norm, rounding = state.differentiate()
    limit, converged = tol**2 * norm, False
    active = norm > rounding
    for step in range(1, MAX_STEPS + 1):
        if converged := not active.any():
            break
        active = state.move(active, partial(over, step))
        if over(step):
            break
        norm, rounding = state.differentiate()
        active &= norm > np.maximum(limit, rounding)
    w = state.w.astype(np.float64)
    return w[:, :-1], w[:, -1], converged
