"""Letters as digits, and the tables that motif models count and look up.

Everything is one gather: letters are digits in base A + 1 (the extra digit is an unknown letter, or
one outside), a letter with its k predecessors is a code in base A + 1, and a model is a table of
logarithms over (W positions, E codes). An unknown letter costs nothing and shortens the contexts
that would have read it, which is exact marginalising at order 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError, UserError

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Letters = Sequence[str] | NDArray[np.integer[Any]]  # W letters each: texts, or digits (N, W)

MOST_CODES = 1 << 25  # entries of one table: 256 MB


@dataclass(frozen=True)
class Alphabet:
    """Letters of a kind of sequence; `complement` pairs with them where strands exist.

    Letters in `wild` (such as N in DNA) are read as unknown. Case is ignored where the alphabet
    does not use it.
    """

    letters: str
    complement: str = ""
    wild: str = ""

    def __post_init__(self) -> None:
        if len(self.letters) < 2 or len(set(self.letters)) != len(self.letters):
            raise UsageError(f"an alphabet needs two or more different letters: {self.letters!r}")
        if self.complement and sorted(self.complement) != sorted(self.letters):
            raise UsageError(f"the complement of {self.letters!r} cannot be {self.complement!r}")

    @property
    def size(self) -> int:
        """A, which is also the digit of an unknown letter."""
        return len(self.letters)

    @cached_property
    def _digits(self) -> NDArray[np.int64]:
        """From code points to digits; -1 is a letter that does not belong."""
        pairs = [(c, self.size) for c in self.wild] + [(c, i) for i, c in enumerate(self.letters)]
        table = np.full(max(ord(c) for c, _ in pairs) + 34, -1, np.int64)
        given = {c for c, _ in pairs}
        for c, digit in pairs:
            for other in (c.lower(), c.upper()):
                if len(other) == 1 and other not in given and ord(other) < len(table):
                    table[ord(other)] = digit
            table[ord(c)] = digit
        return table

    def encode(self, sequence: str) -> Ids:
        """(T,) digits."""
        points = np.frombuffer(sequence.encode("utf-32-le", "surrogatepass"), "<u4")
        digits = self._digits[np.minimum(points, len(self._digits) - 1)]
        digits = np.where(points < len(self._digits), digits, -1)
        if (digits < 0).any():
            at = int(np.argmin(digits))
            raise UserError(
                f"{sequence[at]!r} at position {at + 1} is not a letter of this alphabet: "
                f"{self.letters}" + (f", or unknown: {self.wild}" if self.wild else "")
            )
        return digits

    def aligned(self, sequences: Letters) -> Ids:
        """(N, W) digits of sequences of one length; digits pass through, checked."""
        if isinstance(sequences, np.ndarray):
            if sequences.ndim != 2 or (sequences.size and not self._fits(sequences)):
                raise UsageError(f"digits must be (N, W), from 0 to {self.size}")
            return sequences.astype(np.int64)
        widths = {len(sequence) for sequence in sequences}
        if len(widths) > 1:
            raise UserError(f"sequences must have one length, got {min(widths)} to {max(widths)}")
        if not widths or not min(widths):
            raise UserError("no sequences, or empty ones: nothing to align")
        return self.encode("".join(sequences)).reshape(len(sequences), -1)

    def _fits(self, digits: NDArray[np.integer[Any]]) -> bool:
        return int(digits.min()) >= 0 and int(digits.max()) <= self.size

    def reverse_complement(self, digits: Ids) -> Ids:
        """The other strand, read in its own direction, along the last axis."""
        if not self.complement:
            raise UsageError(f"the alphabet {self.letters!r} has no complement, so one strand only")
        partner = [self.letters.index(c) for c in self.complement] + [self.size]
        return np.array(partner)[digits][..., ::-1]


DNA = Alphabet("ACGT", complement="TGCA", wild="NRYSWKMBDHVX")
RNA = Alphabet("ACGU", complement="UGCA", wild="NRYSWKMBDHVX")
PROTEIN = Alphabet("ACDEFGHIKLMNPQRSTVWY", wild="BJOUXZ*")


def contexts(digits: Ids, order: int, size: int) -> Ids:
    """Each letter with its `order` predecessors along the last axis as one code in base A + 1;
    what lies before the start is unknown.
    """
    codes = digits.copy()
    for back in range(1, order + 1):
        earlier = np.full_like(digits, size)
        earlier[..., back:] = digits[..., :-back]
        codes += earlier * (size + 1) ** back
    return codes


def by_order(counts: Floats, order: int, size: int) -> list[Floats]:
    """Counts of codes (..., E) as n(context, letter) of orders 0 to k, each (..., A^m, A)."""
    lead, found = counts.shape[:-1], []
    for m in range(order + 1):
        last = counts.reshape(*lead, -1, *[size + 1] * (m + 1)).sum(axis=len(lead))
        known = last[(..., *[slice(size)] * (m + 1))]
        found.append(known.reshape(*lead, size**m, size))
    return found


def estimate(counts: list[Floats], alphas: Sequence[float], base: Floats) -> tuple[Floats, ...]:
    """MAP of every order, each the prior of the next: (n + α p) / (N + α); 0 / 0 is the prior."""
    found: list[Floats] = []
    prior = np.broadcast_to(base, counts[0].shape)
    for n, alpha in zip(counts, alphas, strict=True):
        if found:  # a context's oldest letter is its most significant digit
            prior = np.concatenate([found[-1]] * n.shape[-1], axis=-2)
        total = n.sum(axis=-1, keepdims=True) + alpha
        found.append(
            np.where(total > 0, (n + alpha * prior) / np.where(total > 0, total, 1), prior)
        )
    return tuple(found)


def lookup(conditionals: Sequence[Floats], order: int) -> Floats:
    """log p over all codes of `order`, (..., E): each reads as much context as is known, up to the
    order of the conditionals; an unknown letter has logarithm 0.
    """
    size = conditionals[0].shape[-1]
    codes = np.arange((size + 1) ** (order + 1))
    digits = [codes // (size + 1) ** back % (size + 1) for back in range(order + 1)]
    logs = np.zeros((*conditionals[0].shape[:-2], len(codes)))
    known, context = digits[0] < size, np.zeros_like(codes)
    with np.errstate(divide="ignore"):
        for m, conditional in enumerate(conditionals):
            if m:
                known = known & (digits[m] < size)
                context = context + digits[m] * size ** (m - 1)
            logs[..., known] = np.log(conditional[..., context[known], digits[0][known]])
    return logs


def window_sums(table: Floats, codes: Ids, starts: Ids) -> Floats:
    """Σ_j table[j, codes[start + j]] for each start: (M,)."""
    return kernels(len(starts) * len(table))[0](table, codes, starts)


def window_counts(codes: Ids, starts: Ids, weights: Floats, shape: tuple[int, int]) -> Floats:
    """The weights of the windows that have a code at a position: (W, E)."""
    return kernels(len(starts) * shape[0])[1](codes, starts, weights, np.zeros(shape))


Kernels = tuple[Callable[[Floats, Ids, Ids], Floats], Callable[[Ids, Ids, Floats, Floats], Floats]]


def kernels(work: int) -> Kernels:
    """Sums and counts, compiled where numba is installed and the work is worth it. All add in the
    same order, so that the bits are the same.
    """
    return (compiled() if work >= 1 << 18 else None) or (plain_sums, plain_counts)


def plain_sums(table: Floats, codes: Ids, starts: Ids) -> Floats:
    """`window_sums` in NumPy."""
    total = np.zeros(len(starts))
    for j, row in enumerate(table):
        total += row[codes[starts + j]]
    return total


def plain_counts(codes: Ids, starts: Ids, weights: Floats, into: Floats) -> Floats:
    """`window_counts` in NumPy."""
    for j, row in enumerate(into):
        row += np.bincount(codes[starts + j], weights, len(row))
    return into


@cache
def compiled() -> Kernels | None:
    """Both as machine code, or None without numba."""
    try:
        import numba
    except ImportError:
        return None

    def sums(table: Floats, codes: Ids, starts: Ids) -> Floats:
        total = np.empty(len(starts))
        for i in range(len(starts)):
            found = 0.0
            for j in range(len(table)):
                found += table[j, codes[starts[i] + j]]
            total[i] = found
        return total

    def counts(codes: Ids, starts: Ids, weights: Floats, into: Floats) -> Floats:
        for i in range(len(starts)):
            for j in range(len(into)):
                into[j, codes[starts[i] + j]] += weights[i]
        return into

    make = numba.njit(nogil=True)
    return make(sums), make(counts)


def strengths(order: int, beta: float, gamma: float) -> list[float]:
    """α_k = β γ^k of orders 0 to k."""
    check_strength("beta", beta)
    check_strength("gamma", gamma)
    return [beta * gamma**k for k in range(order + 1)]


def check_strength(name: str, value: float) -> None:
    """Raise unless it can be the strength of a prior."""
    if not 0 <= value < np.inf:
        raise UsageError(f"{name} must be 0 or more, got {value}")


def check_order(order: int, size: int, width: int) -> None:
    """Raise where a table would not fit."""
    if order < 0 or (size + 1) ** (order + 1) * width > MOST_CODES:
        raise UsageError(
            f"order {order} with {size} letters and width {width} is negative or too large a table"
        )


def tally(digits: Ids, order: int, size: int, weights: Floats | None = None) -> Floats:
    """(W, E) how often each code stands at each position of digits (N, W)."""
    many, width = digits.shape
    if weights is None:
        weights = np.ones(many)
    codes = contexts(digits, order, size).ravel()
    shape = width, (size + 1) ** (order + 1)
    return window_counts(codes, np.arange(many) * width, weights, shape)
