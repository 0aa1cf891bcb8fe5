"""Motifs: position weight matrices and Bayesian Markov models of short, aligned sequences.

A position weight matrix has one distribution per position, P_j(a), and positions are independent.
`MarkovMotif` conditions position j on the k letters before it, P_j(a | context): the Bayesian
Markov model of Siebert & Söding 2016 (BaMM, Nucleic Acids Research 44:6055), in which order k − 1
at the same position is the Dirichlet prior of order k:

    p_k(a | context) = (n(context a) + α_k p_{k−1}(a | shorter context)) / (n(context) + α_k)

with α_k = β γ^k, so that frequent contexts have their own estimates and rare ones fall back on
shorter ones. Below order 0 is a base distribution. A position has no context outside its motif.

Letters are digits in base A + 1, the extra digit being an unknown letter or one outside the
sequence. A letter with its k predecessors is a code in base A + 1, and a model is a table of
logarithms (W positions, E codes), so every computation is one gather. An unknown letter has
logarithm 0 and shortens the contexts it is part of, which is exact marginalisation at order 0.

`motif_discovery` finds motifs in sequences that are not aligned.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import UsageError, UserError
from regard.kernels import has_numba

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Letters = Sequence[str] | NDArray[np.integer[Any]]  # W letters each: texts, or digits (N, W)

MOST_CODES = 1 << 25  # entries of one table: 256 MB
BETA, GAMMA = 7.0, 3.0  # of the prior, α_k = β γ^k: defaults of the authors' BaMMmotif2


@dataclass(frozen=True)
class MotifAlphabet:
    """The letters of a kind of sequence, and their complements if there are two strands.

    Letters in `wild` (such as N in DNA) are unknown. Case is ignored unless the alphabet uses it.
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
        """The number of letters A, which is also the digit of an unknown letter."""
        return len(self.letters)

    @cached_property
    def _digits(self) -> dict[str, int]:
        digits = {c: self.size for c in self.wild} | {c: i for i, c in enumerate(self.letters)}
        other_case = {c.swapcase(): digit for c, digit in digits.items()}
        return other_case | digits

    def encode(self, sequence: str) -> Ids:
        """Return the digits (T,) of a sequence."""
        digits = np.array([self._digits.get(c, -1) for c in sequence], np.int64)
        if (digits < 0).any():
            index = int(np.argmin(digits))
            raise UserError(
                f"{sequence[index]!r} at position {index + 1} is not a letter of this alphabet: "
                f"{self.letters}" + (f", or unknown: {self.wild}" if self.wild else "")
            )
        return digits

    def encode_aligned(self, sequences: Letters) -> Ids:
        """Return the digits (N, W) of sequences of one length; digits are checked and returned."""
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
        """Return the other strand, in its own direction, along the last axis."""
        if not self.complement:
            raise UsageError(f"the alphabet {self.letters!r} has no complement, so one strand only")
        partner = [self.letters.index(c) for c in self.complement] + [self.size]
        return np.array(partner)[digits][..., ::-1]

    def strands(self, digits: Ids, both: bool) -> list[Ids]:
        """Return the sequence, and with `both` its reverse complement."""
        return [digits, self.reverse_complement(digits)] if both else [digits]


DNA = MotifAlphabet("ACGT", complement="TGCA", wild="NRYSWKMBDHVX")
RNA = MotifAlphabet("ACGU", complement="UGCA", wild="NRYSWKMBDHVX")
PROTEIN = MotifAlphabet("ACDEFGHIKLMNPQRSTVWY", wild="BJOUXZ*")


def encode_contexts(digits: Ids, order: int, size: int) -> Ids:
    """Return each letter with its `order` predecessors along the last axis as one code in base
    A + 1; letters before the start are unknown.
    """
    codes = digits.copy()
    for distance in range(1, order + 1):
        earlier = np.full_like(digits, size)
        earlier[..., distance:] = digits[..., :-distance]
        codes += earlier * (size + 1) ** distance
    return codes


def split_orders(counts: Floats, order: int, size: int) -> list[Floats]:
    """Return counts of codes (..., E) as counts (..., A^m, A) of contexts and letters of each order
    m from 0 to k.
    """
    shape, orders = counts.shape[:-1], []
    for m in range(order + 1):
        grid = counts.reshape(*shape, -1, *[size + 1] * (m + 1)).sum(axis=len(shape))
        known = grid[(..., *[slice(size)] * (m + 1))]
        orders.append(known.reshape(*shape, size**m, size))
    return orders


def estimate_map(counts: list[Floats], alphas: Sequence[float], base: Floats) -> tuple[Floats, ...]:
    """Return the MAP estimates of every order, each the prior of the next: (n + α p) / (N + α), or
    the prior for 0 / 0.
    """
    estimates: list[Floats] = []
    prior = np.broadcast_to(base, counts[0].shape)
    for n, alpha in zip(counts, alphas, strict=True):
        if estimates:  # a context's oldest letter is its most significant digit
            prior = np.concatenate([estimates[-1]] * n.shape[-1], axis=-2)
        total = n.sum(axis=-1, keepdims=True) + alpha
        p = (n + alpha * prior) / np.where(total > 0, total, 1)
        estimates.append(np.where(total > 0, p, prior))
    return tuple(estimates)


def tabulate_logs(conditionals: Sequence[Floats], order: int) -> Floats:
    """Return log p of all codes of `order`, (..., E): each uses as much context as is known, up to
    the order of the conditionals; an unknown letter has logarithm 0.
    """
    size = conditionals[0].shape[-1]
    codes = np.arange((size + 1) ** (order + 1))
    digits = [codes // (size + 1) ** distance % (size + 1) for distance in range(order + 1)]
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
    """Return Σ_j table[j, codes[start + j]] for each start: (M,)."""
    if not use_numba(len(starts) * len(table)):
        return sum_windows(table, codes, starts)
    from regard.kernels import counting

    return np.asarray(counting.window_sums(table, codes, starts))


def window_counts(codes: Ids, starts: Ids, weights: Floats, shape: tuple[int, int]) -> Floats:
    """Return the total weight of the windows that have a code at a position: (W, E)."""
    if not use_numba(len(starts) * shape[0]):
        return count_windows(codes, starts, weights, np.zeros(shape))
    from regard.kernels import counting

    return np.asarray(counting.window_counts(codes, starts, weights, np.zeros(shape)))


def use_numba(work: int) -> bool:
    """Return whether a computation is large enough for compiled kernels, which have equal bits."""
    return work >= 1 << 18 and has_numba()


def sum_windows(table: Floats, codes: Ids, starts: Ids) -> Floats:
    """Return `window_sums` by numpy."""
    total = np.zeros(len(starts))
    for j, row in enumerate(table):
        total += row[codes[starts + j]]
    return total


def count_windows(codes: Ids, starts: Ids, weights: Floats, out: Floats) -> Floats:
    """Return `window_counts` by numpy, added to `out`."""
    for j, row in enumerate(out):
        row += np.bincount(codes[starts + j], weights, len(row))
    return out


def check_pseudocount(name: str, value: float) -> None:
    """Raise UsageError unless a number can be the concentration of a prior."""
    if not 0 <= value < np.inf:
        raise UsageError(f"{name} must be 0 or more, got {value}")


def check_order(order: int, size: int, width: int) -> None:
    """Raise UsageError if a table would be too large."""
    if order < 0 or (size + 1) ** (order + 1) * width > MOST_CODES:
        raise UsageError(
            f"order {order} with {size} letters and width {width} is negative or too large a table"
        )


def count_codes(digits: Ids, order: int, size: int) -> Floats:
    """Return how often each code occurs at each position of digits (N, W): (W, E)."""
    count, width = digits.shape
    codes = encode_contexts(digits, order, size).ravel()
    shape = width, (size + 1) ** (order + 1)
    return window_counts(codes, np.arange(count) * width, np.ones(count), shape)


class Background:
    """The model of sequences without a motif: a homogeneous Markov chain of any order."""

    def __init__(self, alphabet: MotifAlphabet, conditionals: Sequence[Floats]) -> None:
        self.alphabet = alphabet
        self.conditionals = tuple(conditionals)  # orders 0 to k, each (A^m, A)

    @classmethod
    def uniform(cls, alphabet: MotifAlphabet = DNA) -> Self:
        """Return the background in which all letters are equally probable."""
        return cls.of(np.full(alphabet.size, 1 / alphabet.size), alphabet)

    @classmethod
    def of(cls, frequencies: ArrayLike, alphabet: MotifAlphabet = DNA) -> Self:
        """Return the background of order 0 with these frequencies, normalised to sum 1."""
        values = np.asarray(frequencies, np.float64)
        good = values.shape == (alphabet.size,) and np.isfinite(values).all() and values.sum() > 0
        if not good or (values < 0).any():
            raise UsageError(f"frequencies must be {alphabet.size} numbers of 0 or more")
        return cls(alphabet, [values[None] / values.sum()])

    @classmethod
    def fit(
        cls,
        sequences: Sequence[str] | Sequence[Ids],
        alphabet: MotifAlphabet = DNA,
        *,
        order: int = 0,
        both_strands: bool = False,
        alpha: float = 1.0,
    ) -> Self:
        """Return the MAP estimate from texts or digits, with the concentration `alpha` at every
        order and a uniform base.
        """
        check_order(order, alphabet.size, 1)
        size = alphabet.size
        counts = np.zeros((size + 1) ** (order + 1))
        for sequence in sequences:
            digits = alphabet.encode(sequence) if isinstance(sequence, str) else sequence
            for strand in alphabet.strands(digits, both_strands):
                counts += np.bincount(encode_contexts(strand, order, size), minlength=len(counts))
        base = np.full(size, 1 / size)
        return cls(
            alphabet, estimate_map(split_orders(counts, order, size), [alpha] * (order + 1), base)
        )

    @property
    def order(self) -> int:
        """The number of letters of a context."""
        return len(self.conditionals) - 1

    @property
    def frequencies(self) -> Floats:
        """(A,) of the letters, without context."""
        return np.asarray(self.conditionals[0][0])

    def positional(self, width: int) -> list[Floats]:
        """Return the model as a motif's conditionals (W, A^m, A): no context outside the window."""
        size, conditionals = self.alphabet.size, []
        for m in range(self.order + 1):
            rows = [self.conditionals[min(m, j)] for j in range(width)]
            tiled = [np.tile(row, (size**m // len(row), 1)) for row in rows]
            conditionals.append(np.stack(tiled))
        return conditionals


class Scan(NamedTuple):
    """Windows of a sequence: first position on the forward strand, strand 1 or -1, score; (M,)."""

    positions: Ids
    strands: NDArray[np.int8]
    scores: Floats


class Motif:
    """A model of windows of width W, compared with a background."""

    def __init__(
        self,
        alphabet: MotifAlphabet,
        conditionals: Sequence[Floats],
        background: Background,
        sites: float,
    ) -> None:
        if background.alphabet != alphabet:
            raise UsageError("motif and background must have the same alphabet")
        self.alphabet, self.background, self.sites = alphabet, background, sites
        self.conditionals = tuple(conditionals)  # orders 0 to k, each (W, A^m, A)

    @property
    def width(self) -> int:
        """The number of positions W."""
        return len(self.conditionals[0])

    @property
    def order(self) -> int:
        """The number of letters of a context."""
        return len(self.conditionals) - 1

    @cached_property
    def probabilities(self) -> Floats:
        """(W, A) the probability of each letter at each position, summed over contexts."""
        size, n_contexts = self.alphabet.size, self.alphabet.size**self.order
        state, rows = np.full(n_contexts, 1 / n_contexts), []
        for conditional in self.conditionals[-1]:
            joint = state[:, None] * conditional  # (A^k, A)
            rows.append(joint.sum(axis=0))
            state = joint.reshape(size, -1).sum(axis=0) if self.order else np.ones(1)
        return np.array(rows)

    @cached_property
    def log_odds(self) -> Floats:
        """(W, E) natural log of motif over background for every code of the larger of the two
        orders. At order 0 the first A columns are the usual matrix.
        """
        order = max(self.order, self.background.order)
        check_order(order, self.alphabet.size, self.width)
        motif = tabulate_logs(self.conditionals, order)
        background = tabulate_logs(self.background.positional(self.width), order)
        impossible = np.isneginf(motif) & np.isneginf(background)
        return np.where(impossible, -np.inf, motif - np.where(impossible, 0, background))

    def log_likelihood(self, windows: Letters) -> Floats:
        """Return log P(window), (N,)."""
        return self._sums(tabulate_logs(self.conditionals, self.order), self.order, windows)

    def score(self, windows: Letters) -> Floats:
        """Return log P(window) / P(window | background), (N,), in nats."""
        return self._sums(self.log_odds, max(self.order, self.background.order), windows)

    def _sums(self, table: Floats, order: int, windows: Letters) -> Floats:
        digits = self.alphabet.encode_aligned(windows)  # (N, W)
        if digits.shape[1] != self.width:
            raise UserError(f"windows must have {self.width} letters, got {digits.shape[1]}")
        codes = encode_contexts(digits, order, self.alphabet.size)
        return window_sums(table, codes.ravel(), np.arange(len(digits)) * self.width)

    def scan(
        self, sequence: str | Ids, both_strands: bool = True, threshold: float = -np.inf
    ) -> Scan:
        """Return all windows with a score of at least `threshold`, the forward strand first, each
        from the left. A window on the other strand is scored as its reverse complement.
        """
        digits = self.alphabet.encode(sequence) if isinstance(sequence, str) else sequence
        order = max(self.order, self.background.order)
        starts = np.arange(max(0, len(digits) - self.width + 1))
        scores = []
        for strand in self.alphabet.strands(digits, both_strands):
            codes = encode_contexts(strand, order, self.alphabet.size)
            scores.append(window_sums(self.log_odds, codes, starts))
        if both_strands:
            scores[1] = scores[1][::-1]
        strands = np.repeat(np.array([1, -1], np.int8)[: len(scores)], len(starts))
        positions, values = np.tile(starts, len(scores)), np.concatenate(scores)
        mask = values >= threshold
        return Scan(positions[mask], strands[mask], values[mask])

    def sample(self, n: int, random: np.random.Generator) -> Ids:
        """Return n windows sampled from the model, as digits (n, W)."""
        size, digits = self.alphabet.size, np.zeros((n, self.width), np.int64)
        context = np.zeros(n, np.int64)
        for j, conditional in enumerate(self.conditionals[-1]):
            cumulative = conditional.cumsum(axis=1)[context]  # (n, A)
            threshold = random.random((n, 1)) * cumulative[:, -1:]
            digits[:, j] = (threshold >= cumulative).sum(axis=1)
            context = (context * size + digits[:, j]) % size**self.order
        return digits

    @property
    def consensus(self) -> str:
        """The most probable letter of each position."""
        return "".join(self.alphabet.letters[i] for i in self.probabilities.argmax(axis=1))

    def conditional_information(self) -> Floats:
        """Return the information of each position in bits, given the letters before it: (W,), log₂
        A − conditional entropy. At order 0 this is `information`.
        """
        size, rows = self.alphabet.size, []
        state = np.full(size**self.order, 1 / size**self.order)
        for conditional in self.conditionals[-1]:
            joint = state[:, None] * conditional  # (A^k, A)
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.where(conditional > 0, np.log2(conditional * size), 0.0)
            rows.append((joint * logs).sum())
            state = joint.reshape(size, -1).sum(axis=0) if self.order else np.ones(1)
        return np.array(rows)

    def information(self, *, against_background: bool = False) -> Floats:
        """Return the information of each position in bits, (W,): log₂ A − entropy (Schneider &
        Stephens 1990, Nucleic Acids Research 18:6097), or the relative entropy to the background.
        """
        p = self.probabilities
        q = self.background.frequencies if against_background else 1 / self.alphabet.size
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(p > 0, p * np.log2(p / q), 0.0).sum(axis=1))


class PositionWeightMatrix(Motif):
    """Independent positions: P_j(a)."""

    @classmethod
    def fit(
        cls,
        sequences: Letters,
        alphabet: MotifAlphabet = DNA,
        *,
        pseudocount: float = 1.0,
        background: Background | None = None,
    ) -> Self:
        """Fit aligned sequences of one length; unknown letters are not counted."""
        digits = alphabet.encode_aligned(sequences)
        counts = count_codes(digits, 0, alphabet.size)[:, : alphabet.size]
        return cls.of_counts(counts, alphabet, pseudocount=pseudocount, background=background)

    @classmethod
    def of_counts(
        cls,
        counts: ArrayLike,
        alphabet: MotifAlphabet = DNA,
        *,
        pseudocount: float = 1.0,
        background: Background | None = None,
    ) -> Self:
        """Fit counts (W, A): P_j(a) = (n_j(a) + α b(a)) / (N_j + α), b being the background. With
        α = 0 the counts may be probabilities.
        """
        values = np.asarray(counts, np.float64)
        check_pseudocount("pseudocount", pseudocount)
        if values.ndim != 2 or values.shape[1] != alphabet.size or not len(values):
            raise UsageError(f"counts must be (W, {alphabet.size}), got {values.shape}")
        if not np.isfinite(values).all() or (values < 0).any():
            raise UsageError("counts must be finite and 0 or more")
        background = background or Background.uniform(alphabet)
        p = estimate_map([values[:, None]], [pseudocount], background.frequencies)
        return cls(alphabet, p, background, float(values.sum(axis=1).max()))


class MarkovMotif(Motif):
    """Positions that depend on their predecessors: P_j(a | the k letters before)."""

    @classmethod
    def fit(
        cls,
        sequences: Letters,
        alphabet: MotifAlphabet = DNA,
        *,
        order: int = 2,
        beta: float = BETA,
        gamma: float = GAMMA,
        background: Background | None = None,
    ) -> Self:
        """Fit aligned sequences of one length; unknown letters are not counted."""
        digits = alphabet.encode_aligned(sequences)
        check_order(order, alphabet.size, digits.shape[1])
        counts = count_codes(digits, order, alphabet.size)
        return cls.of_counts(
            counts, alphabet, order=order, beta=beta, gamma=gamma, background=background
        )

    @classmethod
    def of_counts(
        cls,
        counts: Floats,
        alphabet: MotifAlphabet = DNA,
        *,
        order: int = 2,
        beta: float = BETA,
        gamma: float = GAMMA,
        pseudocount: float | None = None,
        background: Background | None = None,
    ) -> Self:
        """Fit counts of codes (W, E), as `count_codes` returns them. `pseudocount` is α_0, by
        default β.
        """
        check_pseudocount("beta", beta)
        check_pseudocount("gamma", gamma)
        orders = split_orders(counts, order, alphabet.size)
        for m, n in enumerate(orders):
            n[:m] = 0  # contexts that reach outside the motif
        background = background or Background.uniform(alphabet)
        first = beta if pseudocount is None else pseudocount
        alphas = [first, *(beta * gamma**k for k in range(1, order + 1))]
        p = estimate_map(orders, alphas, background.frequencies)
        return cls(alphabet, p, background, float(orders[0].sum(axis=(1, 2)).max()))


class MotifClassifier:
    """Classifies aligned sequences with one motif per label: log P(x | label) + log P(label)."""

    def __init__(
        self,
        order: int = 2,
        *,
        alphabet: MotifAlphabet = DNA,
        beta: float = BETA,
        gamma: float = GAMMA,
    ) -> None:
        self.order, self.alphabet, self.beta, self.gamma = order, alphabet, beta, gamma
        self.classes: tuple[Any, ...] = ()
        self.motifs: tuple[MarkovMotif, ...] = ()
        self.log_priors = np.zeros(0)

    def fit(self, sequences: Letters, labels: Sequence[Hashable]) -> Self:
        """Fit; the letter frequencies of all sequences are the base of every motif's prior."""
        digits = self.alphabet.encode_aligned(sequences)
        if len(labels) != len(digits):
            raise UserError(f"{len(digits)} sequences need as many labels, got {len(labels)}")
        self.classes = tuple(sorted(set(labels)))
        if len(self.classes) < 2:
            raise UserError(f"two or more different labels are needed, got {self.classes}")
        numbers = {label: i for i, label in enumerate(self.classes)}
        index = np.array([numbers[label] for label in labels])
        background = Background.fit(list(digits), self.alphabet)
        self.motifs = tuple(
            MarkovMotif.fit(
                digits[index == i],
                self.alphabet,
                order=self.order,
                beta=self.beta,
                gamma=self.gamma,
                background=background,
            )
            for i in range(len(self.classes))
        )
        self.log_priors = np.log(np.bincount(index) / len(index))
        return self

    def predict_log_proba(self, sequences: Letters) -> Floats:
        """Return log P(label | x), (N, C)."""
        if not self.motifs:
            raise UsageError("this classifier has not been fitted")
        digits = self.alphabet.encode_aligned(sequences)
        joint = np.stack([m.log_likelihood(digits) for m in self.motifs], axis=1) + self.log_priors
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))

    def decision_function(self, sequences: Letters) -> Floats:
        """Return the log-odds of the second label against the first, (N,), or of each against the
        rest, (N, C).
        """
        logs = self.predict_log_proba(sequences)
        if len(self.classes) == 2:
            return np.asarray(logs[:, 1] - logs[:, 0])
        rest = [np.logaddexp.reduce(np.delete(logs, i, 1), axis=1) for i in range(logs.shape[1])]
        return np.asarray(logs - np.stack(rest, axis=1))

    def predict(self, sequences: Letters) -> list[Any]:
        """Return the most probable label of each sequence."""
        return [self.classes[i] for i in self.predict_log_proba(sequences).argmax(axis=1)]
