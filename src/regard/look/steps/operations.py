"""How one stage of a step-through follows from others: each operation computes its output from
arrays in double precision, the oracle for what the model itself computed, and names itself for the
page, which takes single numbers apart (`assets/step_terms.js`).

Inputs and outputs are vectors (n,) or tables (m, n), one row for each position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def as_array(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class Operation:
    """An operation; its fields are its settings."""

    op: ClassVar[str]

    def compute(self, *inputs: Array) -> Array:
        """Return the output."""
        raise NotImplementedError

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        """Return how much each row of an input matters, for pages that cannot hold all of them;
        None: all rows are alike; below 0: not at all.
        """
        return None

    def data(self) -> dict[str, Any]:
        """Return the name and the settings, for the page."""
        return {"op": self.op} | {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class GivenNumbers(Operation):
    """Nothing before it: a parameter, the input, or what other positions hold."""

    op = "given"


@dataclass(frozen=True)
class Opaque(Operation):
    """Computed by the model and not taken apart."""

    op = "opaque"


@dataclass(frozen=True)
class Gather(Operation):
    """A row of a table: y = W[row]."""

    op = "gather"
    row: int

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0][self.row])

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        return np.where(np.arange(len(inputs[0])) == self.row, 1.0, -1.0)  # no other row is read


@dataclass(frozen=True)
class Dot(Operation):
    """y_i = Σ_k x_k W_ik, and a bias if there is a third input."""

    op = "dot"

    def compute(self, *inputs: Array) -> Array:
        x, matrix, *bias = inputs
        return as_array(x @ matrix.T + (bias[0] if bias else 0.0))

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        sizes = np.abs(np.where(np.isfinite(output), output, 0.0))
        return as_array(sizes.reshape(-1, sizes.shape[-1]).max(0)) if which == 1 else None


@dataclass(frozen=True)
class RowDots(Operation):
    """y_j = Σ_k X_jk v_k: every row of a table with one vector."""

    op = "row_dots"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0] @ inputs[1])

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        return as_array(np.abs(np.where(np.isfinite(output), output, 0.0))) if which == 0 else None


@dataclass(frozen=True)
class Mix(Operation):
    """y_i = Σ_j w_j X_ji: rows, each by its weight."""

    op = "mix"

    def compute(self, *inputs: Array) -> Array:
        weights, rows = inputs
        return as_array(weights @ np.where(weights[:, None] == 0, 0.0, rows))

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        return np.abs(inputs[0]) if which == 1 else None


@dataclass(frozen=True)
class Columns(Operation):
    """y_c = Σ_s A_sc B_sc: a weighted sum over rows with weights of its own in every column."""

    op = "columns"

    def compute(self, *inputs: Array) -> Array:
        return as_array((inputs[0] * inputs[1]).sum(0))

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        return as_array(np.abs(inputs[0] * inputs[1]).sum(1))


@dataclass(frozen=True)
class Add(Operation):
    """y = a + b + …; a single row is added to each row of a table."""

    op = "add"

    def compute(self, *inputs: Array) -> Array:
        total = inputs[0]
        for one in inputs[1:]:
            total = total + one
        return total


@dataclass(frozen=True)
class Subtract(Operation):
    """y = a − b."""

    op = "subtract"

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] - inputs[1]


@dataclass(frozen=True)
class Multiply(Operation):
    """y_i = a_i b_i."""

    op = "multiply"

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] * inputs[1]


@dataclass(frozen=True)
class Products(Operation):
    """y_i = a_i b_i + c_i d_i."""

    op = "products"

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] * inputs[1] + inputs[2] * inputs[3]


@dataclass(frozen=True)
class Scale(Operation):
    """y_i = x_i · factor; `words` is the factor as a formula."""

    op = "scale"
    factor: float
    words: str = ""

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] * self.factor


@dataclass(frozen=True)
class Complement(Operation):
    """y_i = 1 − x_i."""

    op = "complement"

    def compute(self, *inputs: Array) -> Array:
        return 1 - inputs[0]


@dataclass(frozen=True)
class Part(Operation):
    """Some consecutive entries of a vector, or columns of a table."""

    op = "part"
    start: int
    stop: int

    def compute(self, *inputs: Array) -> Array:
        return inputs[0][..., self.start : self.stop]


@dataclass(frozen=True)
class Join(Operation):
    """Vectors one after the other."""

    op = "join"

    def compute(self, *inputs: Array) -> Array:
        return np.concatenate(inputs)


@dataclass(frozen=True)
class Entries(Operation):
    """y_i = x_j with j the i-th of `places`, counted row by row; 0 where that is −1."""

    op = "entries"
    places: tuple[int, ...]

    def compute(self, *inputs: Array) -> Array:
        places = np.array(self.places, dtype=np.int64)
        return np.where(places < 0, 0.0, inputs[0].reshape(-1)[np.maximum(places, 0)])


@dataclass(frozen=True)
class Stack(Operation):
    """Vectors as the rows of a table."""

    op = "stack"

    def compute(self, *inputs: Array) -> Array:
        return np.stack(inputs)


@dataclass(frozen=True)
class SumRows(Operation):
    """y_c = Σ_r X_rc, and a bias if there is a second input."""

    op = "sum_rows"

    def compute(self, *inputs: Array) -> Array:
        rows, *bias = inputs
        return as_array(rows.sum(0) + (bias[0] if bias else 0.0))


@dataclass(frozen=True)
class MeanRows(Operation):
    """y_c = Σ_r X_rc / n, over the n rows of a table."""

    op = "mean_rows"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0].mean(0))


@dataclass(frozen=True)
class Combine(Operation):
    """y = c₁ a + c₂ b + …; an input of one number counts in every entry. `words` are the factors as
    formulas.
    """

    op = "combine"
    factors: tuple[float, ...]
    words: tuple[str, ...]

    def compute(self, *inputs: Array) -> Array:
        total = inputs[0] * self.factors[0]
        for factor, one in zip(self.factors[1:], inputs[1:], strict=True):
            total = total + factor * one
        return as_array(total)


@dataclass(frozen=True)
class Mean(Operation):
    """The mean of the numbers of a vector that are known."""

    op = "mean"

    def compute(self, *inputs: Array) -> Array:
        known = inputs[0][~np.isnan(inputs[0])]
        return np.array([known.sum() / max(len(known), 1)])


@dataclass(frozen=True)
class Deviation(Operation):
    """√(mean((x − m)²) + ε), over the numbers of a vector that are known."""

    op = "deviation"
    eps: float

    def compute(self, *inputs: Array) -> Array:
        x, mean = inputs
        known = x[~np.isnan(x)]
        return np.sqrt([((known - mean) ** 2).sum() / max(len(known), 1) + self.eps])


@dataclass(frozen=True)
class ZScore(Operation):
    """y_i = (x_i − m) / d, of numbers m and d; what is missing stays so."""

    op = "z_score"

    def compute(self, *inputs: Array) -> Array:
        return (inputs[0] - inputs[1]) / inputs[2]


@dataclass(frozen=True)
class RowNorms(Operation):
    """y_r = |X_r|, the length of each row of a table."""

    op = "row_norms"

    def compute(self, *inputs: Array) -> Array:
        return as_array(np.linalg.norm(inputs[0], axis=1))


@dataclass(frozen=True)
class ColumnDeviations(Operation):
    """y_c = √(mean((X_rc − mean_c)²)), over the rows of a table."""

    op = "column_deviations"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0].std(0))


@dataclass(frozen=True)
class PairDistances(Operation):
    """Y_rs = |X_r − X_s|, between all rows of a table."""

    op = "pair_distances"

    def compute(self, *inputs: Array) -> Array:
        return as_array(np.linalg.norm(inputs[0][:, None] - inputs[0], axis=-1))


@dataclass(frozen=True)
class BinShares(Operation):
    """The share of numbers in each of `bins` equal parts from 0 to `largest`; larger ones are in
    the last.
    """

    op = "histogram"
    bins: int
    largest: float

    def compute(self, *inputs: Array) -> Array:
        index = np.clip(
            (inputs[0].ravel() / self.largest * self.bins).astype(int), 0, self.bins - 1
        )
        return np.bincount(index, minlength=self.bins) / len(index)


@dataclass(frozen=True)
class CoulombMatrix(Operation):
    """Y_rr = z_r^2.4 / 2 and Y_rs = z_r z_s / d_rs, of charges z at distances d."""

    op = "coulomb"

    def compute(self, *inputs: Array) -> Array:
        charges, gaps = inputs
        apart = np.where(np.eye(len(gaps)) > 0, 1.0, np.maximum(gaps, CLOSEST))
        matrix = charges[:, None] * charges / apart
        np.fill_diagonal(matrix, charges**2.4 / 2)
        return as_array(matrix)


CLOSEST = 1e-3  # atoms are no nearer to each other


@dataclass(frozen=True)
class AbsoluteDistance(Operation):
    """y_j = Σ_k |x_k − X_jk|, to every row of a table."""

    op = "absolute_distance"

    def compute(self, *inputs: Array) -> Array:
        return as_array(np.abs(inputs[0] - inputs[1]).sum(1))

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        return as_array(1 / (1 + output)) if which == 1 else None  # the nearest ones


@dataclass(frozen=True)
class ExceedingShares(Operation):
    """The share of steps at which convolutions of a series X (T, C) exceed thresholds. The filters
    are all choices of three weights of 2 among nine, the others being −1; each reads the sum of
    some columns. There is a threshold for each dilation, level and filter, in this order, and a row
    of columns for each dilation and filter.
    """

    op = "exceeding"
    dilations: tuple[int, ...]
    margin: float

    def compute(self, *inputs: Array) -> Array:
        x, thresholds, chosen = (as_array(one) for one in inputs)
        count, shares = len(chosen) // len(self.dilations), []
        levels = thresholds.reshape(len(self.dilations), -1, count)
        filters = np.array([[2.0 if k in three else -1.0 for k in range(9)] for three in THREES])
        for number, dilation in enumerate(self.dilations):
            summed = x @ chosen[number * count : (number + 1) * count].T  # (T, filters)
            padded = np.pad(summed, ((4 * dilation, 4 * dilation), (0, 0)))
            rows = np.arange(len(x))[:, None] + dilation * np.arange(9)  # (T, 9)
            outputs = np.einsum("tkf,fk->tf", padded[rows], filters)
            shares.append((outputs > levels[number][:, None] + self.margin).mean(1).ravel())
        return np.concatenate(shares)


THREES = tuple(combinations(range(9), 3))  # where the weights of 2 are


@dataclass(frozen=True)
class Differences(Operation):
    """y_i = x_{i+1} − x_i."""

    op = "differences"

    def compute(self, *inputs: Array) -> Array:
        return np.diff(inputs[0])


@dataclass(frozen=True)
class Sort(Operation):
    """The numbers of a vector, the least first."""

    op = "sort"

    def compute(self, *inputs: Array) -> Array:
        return np.sort(inputs[0])


@dataclass(frozen=True)
class Autocorrelations(Operation):
    """y = Σ_t x_t x_{t−lag} / Σ_t x_t², for each lag; 0 if the vector is not so long."""

    op = "autocorrelations"
    lags: tuple[int, ...]

    def compute(self, *inputs: Array) -> Array:
        x = inputs[0]
        power = max(float((x**2).sum()), LEAST)
        sums = [(x[lag:] * x[: max(0, len(x) - lag)]).sum() for lag in self.lags]
        return as_array(sums) / power


LEAST = 1e-9  # of a divisor


@dataclass(frozen=True)
class LargestOfBands(Operation):
    """The largest number of each band: between two `edges`, which count from 1."""

    op = "bands"
    edges: tuple[int, ...]

    def compute(self, *inputs: Array) -> Array:
        return as_array([inputs[0][a - 1 : b - 1].max() for a, b in pairwise(self.edges)])


@dataclass(frozen=True)
class Total(Operation):
    """y = Σ_k x_k + b."""

    op = "total"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0].sum() + inputs[1])


@dataclass(frozen=True)
class Leaves(Operation):
    """What the leaf of each tree says that features x lead to. The nodes (M, 4) of all trees are a
    feature, a threshold, a node and a value: a node leads to its node if the feature is at most the
    threshold, otherwise to the one after that; a leaf leads to itself. Features are counted twice:
    what is missing is below every threshold at first, then above.
    """

    op = "leaves"
    roots: tuple[int, ...]

    def paths(self, x: Array, nodes: Array) -> list[list[int]]:
        """Return the nodes of each tree from its root to the leaf."""
        paths = []
        features = np.r_[np.nan_to_num(x, nan=-np.inf), np.nan_to_num(x, nan=np.inf)]
        for root in self.roots:
            path = [root]
            while int(nodes[path[-1], 2]) != path[-1]:
                feature, threshold, child, _ = nodes[path[-1]]
                path.append(int(child) + int(features[int(feature)] > threshold))
            paths.append(path)
        return paths

    def compute(self, *inputs: Array) -> Array:
        x, nodes = inputs
        return as_array([nodes[path[-1], 3] for path in self.paths(x, nodes)])

    def needed(self, which: int, inputs: list[Array], output: Array) -> Array | None:
        if which == 0:
            return None
        needed = np.full(len(inputs[1]), -1.0)
        needed[[node for path in self.paths(*inputs) for node in path]] = 1.0
        return needed


@dataclass(frozen=True)
class Rescale(Operation):
    """y_i = x_i a + b, of numbers a and b."""

    op = "rescale"

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] * inputs[1] + inputs[2]


@dataclass(frozen=True)
class MovingAverage(Operation):
    """The mean of each number and its neighbors within `width`; the first and the last number stand
    for those beyond them.
    """

    op = "moving_average"
    width: int

    def compute(self, *inputs: Array) -> Array:
        padded = np.pad(inputs[0], self.width // 2, mode="edge")
        return as_array(np.lib.stride_tricks.sliding_window_view(padded, self.width).mean(-1))


@dataclass(frozen=True)
class Occurrences(Operation):
    """How often each n-gram stands among ids: `ngrams` are the ids of each, and the first place
    where it may begin and the one after the last.
    """

    op = "occurrences"
    ngrams: tuple[tuple[tuple[int, ...], int, int], ...]

    def compute(self, *inputs: Array) -> Array:
        ids = inputs[0].astype(int).tolist()
        return as_array(
            [
                sum(tuple(ids[at : at + len(ngram)]) == ngram for at in range(first, stop))
                for ngram, first, stop in self.ngrams
            ]
        )


@dataclass(frozen=True)
class MaskOut(Operation):
    """The first input where the second is 1, −∞ where it is 0."""

    op = "mask"

    def compute(self, *inputs: Array) -> Array:
        return np.where(inputs[1] > 0, inputs[0], -np.inf)


@dataclass(frozen=True)
class Softmax(Operation):
    """y_j = e^(s_j) / Σ_k e^(s_k)."""

    op = "softmax"

    def compute(self, *inputs: Array) -> Array:
        (scores,) = inputs
        top = scores.max()
        powers = np.exp(scores - (top if np.isfinite(top) else 0.0))
        return as_array(powers / max(powers.sum(), np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class LogSoftmax(Operation):
    """y_j = z_j − ln Σ_k e^(z_k)."""

    op = "log_softmax"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0] - np.logaddexp.reduce(inputs[0]))


@dataclass(frozen=True)
class Normalize(Operation):
    """y_i = x_i / Σ_k x_k."""

    op = "normalize"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0] / inputs[0].sum())


@dataclass(frozen=True)
class RootMeanSquareNorm(Operation):
    """y_i = g_i x_i / sqrt(mean(x²) + ε)."""

    op = "rms"
    eps: float

    def compute(self, *inputs: Array) -> Array:
        x, gain = inputs
        return as_array(x / np.sqrt((x**2).mean() + self.eps) * gain)


@dataclass(frozen=True)
class LayerNormalization(Operation):
    """y_i = g_i (x_i − mean(x)) / sqrt(variance(x) + ε) + b_i; without b if it has no bias."""

    op = "layer_norm"
    eps: float

    def compute(self, *inputs: Array) -> Array:
        x, gain, *bias = inputs
        centred = x - x.mean()
        return as_array(
            centred / np.sqrt((centred**2).mean() + self.eps) * gain + (bias[0] if bias else 0.0)
        )


@dataclass(frozen=True)
class Unit(Operation):
    """y = x / |x|; of a table, each row."""

    op = "unit"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0] / np.linalg.norm(inputs[0], axis=-1, keepdims=True))


@dataclass(frozen=True)
class Standardize(Operation):
    """y_i = (x_i − mean_i) / deviation_i, and 0 where x_i is missing."""

    op = "standardize"

    def compute(self, *inputs: Array) -> Array:
        x, mean, deviation = inputs
        return np.where(np.isnan(x), 0.0, (x - mean) / deviation)


@dataclass(frozen=True)
class Rotate(Operation):
    """y_i = x_i cos_i + x_j sin_i, with j the coordinate that i is paired with, half of the width
    away, and the sign of the rotation in the sine.
    """

    op = "rotate"

    def compute(self, *inputs: Array) -> Array:
        x, cosine, sine = inputs
        return x * cosine + np.roll(x, len(x) // 2) * sine


@dataclass(frozen=True)
class SquaredDistance(Operation):
    """y_j = |q − k_j|²."""

    op = "squared_distance"

    def compute(self, *inputs: Array) -> Array:
        return as_array(((inputs[0] - inputs[1]) ** 2).sum(-1))


@dataclass(frozen=True)
class Largest(Operation):
    """y_c = max_j X_jc over the rows of a table."""

    op = "largest"

    def compute(self, *inputs: Array) -> Array:
        return as_array(inputs[0].max(0))


@dataclass(frozen=True)
class Discount(Operation):
    """y_v = (n_v − D(n_v)) / Σ n, with discounts of counts of 1, 2 and more."""

    op = "discount"

    def compute(self, *inputs: Array) -> Array:
        counts, discounts = inputs
        paid = np.r_[0.0, discounts][np.minimum(counts, 3).astype(int)]
        return as_array((counts - paid) / max(counts.sum(), 1.0))


@dataclass(frozen=True)
class LinearAt(Operation):
    """y = x · factor + shift in every entry: a value in the units of the data."""

    op = "restore"
    factor: float
    shift: float

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] * self.factor + self.shift


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x), without overflow."""
    return as_array(np.exp(-np.logaddexp(0.0, -x)))


_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS: dict[str, tuple[str, Callable[[Array], Array]]] = {  # formula, function
    "relu": ("max(0, x)", lambda x: np.maximum(x, 0.0)),
    "relu2": ("max(0, x)²", lambda x: np.maximum(x, 0.0) ** 2),
    "gelu": (
        "x σ(1.5958 (x + 0.044715 x³))",
        lambda x: x * sigmoid(1.5957691216057308 * (x + 0.044715 * x**3)),
    ),
    "gelu_exact": ("x Φ(x)", lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2)))),
    "silu": ("x σ(x)", lambda x: x * sigmoid(x)),
    "sigmoid": ("σ(x) = 1 / (1 + e⁻ˣ)", sigmoid),
    "tanh": ("tanh x", np.tanh),
    "exp": ("eˣ", np.exp),
    "log": ("ln x", np.log),
    "sqrt": ("√x", np.sqrt),
    "negative": ("−x", np.negative),
    "present": ("1 if x > 0, otherwise 0", lambda x: (x > 0).astype(np.float64)),
    "cube": ("x³", lambda x: x**3),
    "fourth": ("x⁴", lambda x: x**4),
    "size": ("|x|", np.abs),
    "below_zero": ("1 if x < 0, otherwise 0", lambda x: (x < 0).astype(np.float64)),
    "log_count": ("1 + ln x", lambda x: 1 + np.log(x)),
}


@dataclass(frozen=True)
class Apply(Operation):
    """y_i = f(x_i), f one of FUNCTIONS."""

    op = "apply"
    function: str

    def compute(self, *inputs: Array) -> Array:
        with np.errstate(divide="ignore"):
            return FUNCTIONS[self.function][1](inputs[0])

    def data(self) -> dict[str, Any]:
        return super().data() | {"words": FUNCTIONS[self.function][0]}


@dataclass(frozen=True)
class Temper(Operation):
    """y_i = z_i / temperature."""

    op = "temper"
    temperature: float

    def compute(self, *inputs: Array) -> Array:
        return inputs[0] / self.temperature


def keep(p: Array, chosen: NDArray[np.intp]) -> Array:
    """Return the probabilities of some symbols, scaled to sum to 1; the others have 0."""
    filtered = np.zeros_like(p)
    filtered[chosen] = p[chosen]
    return as_array(filtered / filtered.sum())


@dataclass(frozen=True)
class KeepTopK(Operation):
    """The K largest probabilities, scaled to sum to 1; ties to the earlier symbol."""

    op = "top_k"
    top_k: int

    def compute(self, *inputs: Array) -> Array:
        (p,) = inputs
        return keep(p, np.argsort(-p, kind="stable")[: self.top_k])


@dataclass(frozen=True)
class KeepTopP(Operation):
    """The fewest symbols that hold at least `top_p` of the probability, scaled to sum to 1."""

    op = "top_p"
    top_p: float

    def compute(self, *inputs: Array) -> Array:
        (p,) = inputs
        order = np.argsort(-p, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(p[order])[:-1]])
        return keep(p, order[(before < self.top_p) | (self.top_p >= 1)])


@dataclass(frozen=True)
class Draw(Operation):
    """F_i = p_1 + … + p_i; the sample is the first symbol whose F exceeds `u`."""

    op = "draw"
    u: float

    def compute(self, *inputs: Array) -> Array:
        return np.cumsum(inputs[0])
