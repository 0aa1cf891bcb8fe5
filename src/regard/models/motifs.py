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

`discover` finds motifs in sequences that are not aligned. The model is ZOOPS of MEME (Bailey &
Elkan 1994, ISMB 2:28): each sequence contains the motif zero or one times, with probability q, at
any position of either strand with equal probability, and is background elsewhere. EM fits motif and
q from a starting point, and the result depends on it. The starting points are spaced dyads (van
Helden et al. 2000, Nucleic Acids Research 28:1808), two short words with a gap of 0 or more between
them, ranked by how many more sequences contain them than the background explains. The most enriched
run for a few steps, the best of those to the end; in between, the window moves and grows or shrinks
to the columns that are worth their parameters (BIC). Sites are then masked, and the next motif is
searched in the rest.

At order 0 each EM step raises the posterior `objective`. Higher orders (`MarkovMotif`) start from
the sites of order 0. Their nested prior is estimated along the way, so a step is accepted only if
it raises the likelihood.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
        background: Background | None = None,
    ) -> Self:
        """Fit counts of codes (W, E), as `count_codes` returns them."""
        check_pseudocount("beta", beta)
        check_pseudocount("gamma", gamma)
        orders = split_orders(counts, order, alphabet.size)
        for m, n in enumerate(orders):
            n[:m] = 0  # contexts that reach outside the motif
        background = background or Background.uniform(alphabet)
        alphas = [beta * gamma**k for k in range(order + 1)]
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


WORD_CODES = 1 << 18  # dyads of one gap that are counted: two words of three letters in DNA
WIDEST_GAP = 11  # as between the halves of the widest common dyads, such as GAL4's
SHARP = 0.7  # weight of the letters of a dyad in a starting point
PSEUDOCOUNT = 1.0  # of a column at order 0
PRIOR = 1.0  # of q: one sequence with the motif and one without
SEEDS, FIRST_STEPS, FINALISTS = 40, 4, 5  # starting points, steps of each, those run to the end
SEED_LETTERS = 200_000  # a sample of so many letters ranks starting points as well as all
STEPS, TOLERANCE = 100, 1e-5  # EM steps at most; a gain in nats per sequence too small to go on
NEGLIGIBLE = 1e-8  # a posterior too small to count


@dataclass(frozen=True)
class Site:
    """An occurrence: the index of its sequence, its first position there, its strand (1 or -1), and
    the probability that the sequence contains the motif.
    """

    sequence: int
    position: int
    strand: int
    posterior: float


@dataclass
class MotifWindows:
    """All windows of one width that may contain a motif, those of a sequence contiguous."""

    width: int
    starts: Ids  # (M,) in the flat digits
    null: Floats  # (M,) log-probability of the window under the background
    owner: Ids  # (M,) its sequence
    first: Ids  # (N,) index of the first window of each sequence that has any
    group: Ids  # (M,) index into these N sequences
    counts: Floats  # (N,) windows of each


class Collection:
    """Sequences concatenated, each strand followed by one unknown letter."""

    def __init__(self, sequences: Sequence[Ids], background: Background, revcomp: bool) -> None:
        self.alphabet, self.background, self.revcomp = background.alphabet, background, revcomp
        size, order = self.alphabet.size, background.order
        table = tabulate_logs(background.conditionals, order)
        digits, null, self.runs = [], [], []
        start = 0
        for n, forward in enumerate(sequences):
            logs = table[encode_contexts(forward, order, size)]
            for strand in (1, -1)[: 1 + revcomp]:
                letters = forward if strand > 0 else self.alphabet.reverse_complement(forward)
                digits += [letters, np.array([size])]
                null += [logs[::strand], np.zeros(1)]  # of the forward strand
                self.runs.append((n, strand, start, len(forward)))
                start += len(forward) + 1
        self.digits: Ids = np.concatenate(digits) if digits else np.zeros(0, np.int64)
        self.null = np.concatenate([np.zeros(1), *null]).cumsum()
        self.run = np.repeat(np.arange(len(self.runs)), [length + 1 for *_, length in self.runs])
        self.owner = self.run // (1 + revcomp)
        self._codes: dict[int, Ids] = {}
        self._windows: dict[int, MotifWindows] = {}

    def codes(self, order: int) -> Ids:
        """Return the code of each letter with its predecessors."""
        if order not in self._codes:
            self._codes[order] = encode_contexts(self.digits, order, self.alphabet.size)
        return self._codes[order]

    def windows(self, width: int) -> MotifWindows:
        """Return the windows without an unknown or masked letter."""
        if width not in self._windows:
            unknown = np.concatenate([[0], (self.digits == self.alphabet.size).cumsum()])
            starts = np.flatnonzero(unknown[width:] == unknown[:-width])
            null = self.null[starts + width] - self.null[starts]
            owner = self.owner[starts]
            _, first, group, counts = np.unique(
                owner, return_index=True, return_inverse=True, return_counts=True
            )
            self._windows[width] = MotifWindows(
                width, starts, null, owner, first, group, counts.astype(np.float64)
            )
        return self._windows[width]

    def site(self, start: int, width: int, posterior: float) -> Site:
        """Return the site of a window that starts at this index of the flat digits."""
        n, strand, first, length = self.runs[self.run[start]]
        position = start - first if strand > 0 else length - width - (start - first)
        return Site(n, int(position), strand, posterior)


def score_dyads(data: Collection, widest: int) -> Iterator[tuple[Floats, Ids, int]]:
    """Yield for every gap the enrichment of each pair of words, (codes,); the letters of each pair,
    (codes, 2h); the gap.
    """
    size = data.alphabet.size
    half = max(h for h in (1, 2, 3) if h == 1 or size ** (2 * h) <= WORD_CODES)
    half = min(half, widest // 2)
    powers = size ** np.arange(half)[::-1]
    words = np.arange(size**half)[:, None] // powers % size  # (words, h)
    pairs = np.concatenate(
        [np.repeat(words, len(words), axis=0), np.tile(words, (len(words), 1))], axis=1
    )
    starts = data.windows(half).starts
    values = np.full(len(data.digits), -1, np.int64)  # the word at each position, or -1
    values[starts] = data.digits[starts[:, None] + np.arange(half)] @ powers
    single = word_logs(data.background, words)
    for gap in range(min(WIDEST_GAP, widest - 2 * half) + 1):
        step = half + gap
        first, second = values[:-step], values[step:]
        mask = (first >= 0) & (second >= 0) & (data.run[:-step] == data.run[step:])
        pair = first[mask] * len(words) + second[mask]
        logs = np.add.outer(single, single).ravel() if gap else word_logs(data.background, pairs)
        yield enrichment(pair, data.owner[:-step][mask], np.exp(logs)), pairs, gap


def word_logs(background: Background, letters: Ids) -> Floats:
    """Return log P of words (words, h) under the background, each without context."""
    order, size = background.order, background.alphabet.size
    table = tabulate_logs(background.positional(letters.shape[1]), order)
    codes = encode_contexts(letters, order, size)
    return window_sums(table, codes.ravel(), np.arange(len(letters)) * letters.shape[1])


def enrichment(pair: Ids, owner: Ids, p: Floats) -> Floats:
    """Return the number of sequences that contain each pattern, less the expected number, in
    standard deviations of the binomial: a sequence of M positions contains a pattern of probability
    p with probability 1 − e^(−M p).
    """
    size = len(p)
    observed = np.bincount(np.unique(owner * size + pair) % size, minlength=size)
    lengths, counts = np.unique(np.bincount(owner), return_counts=True)
    expected, variance = np.zeros(size), np.zeros(size)
    for length, count in zip(lengths, counts, strict=True):
        contains = -np.expm1(-length * p)
        expected += count * contains
        variance += count * contains * (1 - contains)
    return np.asarray((observed - expected) / np.sqrt(variance + 1e-9))


def find_seeds(data: Collection, narrowest: int, widest: int, most: int) -> list[Floats]:
    """Return starting points as columns (W, A), the most enriched dyads first; of a dyad and its
    reverse complement, which occur in the same sequences, only one.
    """
    dyads: list[tuple[float, tuple[int, ...], int]] = []
    for z, letters, gap in score_dyads(data, widest):
        best = np.argsort(-z, kind="stable")[: 2 * most]
        dyads += [(-float(z[i]), tuple(letters[i].tolist()), gap) for i in best if z[i] > 0]
    size = data.alphabet.size
    starts: list[Floats] = []
    patterns = set()
    for _, word, gap in sorted(dyads):
        half = len(word) // 2
        pattern = (*word[:half], *[size] * gap, *word[half:])
        other = pattern
        if data.revcomp:
            other = tuple(data.alphabet.reverse_complement(np.array(pattern)).tolist())
        if other not in patterns and len(starts) < most:
            patterns.add(pattern)
            width = min(max(len(pattern) + 4, narrowest), widest)
            starts.append(pattern_columns(pattern, width, data.background.frequencies))
    return starts


def pattern_columns(pattern: Sequence[int], width: int, background: Floats) -> Floats:
    """Return columns (W, A) with a pattern of digits in the middle."""
    columns = np.tile(background, (width, 1))
    for j, digit in enumerate(pattern, (width - len(pattern)) // 2):
        if digit < len(background):
            columns[j] *= 1 - SHARP
            columns[j, digit] += SHARP
    return columns


@dataclass(frozen=True)
class DiscoveredMotif:
    """A motif, its sites, and the share of sequences that contain it.

    `log_likelihood_ratio` is against the background, in nats. Motifs are ranked by `score`: the
    ratio of order 0 less half the logarithm of the number of sites for each parameter (BIC).
    """

    motif: Motif
    sites: tuple[Site, ...]
    share: float
    log_likelihood_ratio: float
    score: float


@dataclass
class MotifFit:
    """EM of a motif and q (`share`), in place. `expect` sets the posteriors, the log-likelihood
    ratio to the background and the objective, in nats.
    """

    data: Collection
    motif: Motif
    share: float = 0.5
    posteriors: Floats = field(default_factory=lambda: np.zeros(0))  # (M,)
    log_likelihood: float = -np.inf
    objective: float = -np.inf

    @property
    def windows(self) -> MotifWindows:
        """The windows of the motif's width."""
        return self.data.windows(self.motif.width)

    def expect(self) -> None:
        """Compute the posterior of every window: q / M · P(window | motif) / P(window | background)
        against 1 − q for no motif, M being the number of windows of the sequence.
        """
        w, motif = self.windows, self.motif
        if not len(w.starts):
            self.posteriors, self.log_likelihood, self.objective = np.zeros(0), 0.0, 0.0
            return
        table = tabulate_logs(motif.conditionals, motif.order)
        scores = window_sums(table, self.data.codes(motif.order), w.starts) - w.null
        top = np.maximum(np.maximum.reduceat(scores, w.first), 0.0)  # (N,)
        ratios = np.exp(scores - top[w.group])
        motif_evidence = self.share / w.counts * np.add.reduceat(ratios, w.first)
        evidence = motif_evidence + (1 - self.share) * np.exp(-top)
        self.posteriors = ratios * (self.share / w.counts / evidence)[w.group]
        self.log_likelihood = float((np.log(evidence) + top).sum())
        self.objective = self.log_likelihood + self.log_prior()

    def log_prior(self) -> float:
        """Return the log-prior of q and of an order 0 motif's columns, up to constants."""
        share = PRIOR * (np.log(self.share) + np.log1p(-self.share))
        weights = PSEUDOCOUNT * self.data.background.frequencies
        with np.errstate(divide="ignore"):
            columns = weights * np.log(self.motif.conditionals[0][:, 0])  # (W, A)
        return float(share + columns.sum())

    def maximise(self, order: int = 0) -> None:
        """Set motif and q from the posteriors, by counting."""
        w, size, codes = self.windows, self.data.alphabet.size, self.data.codes(order)
        mask = self.posteriors > NEGLIGIBLE
        starts, weights = w.starts[mask], self.posteriors[mask]
        counts = window_counts(codes, starts, weights, (w.width, (size + 1) ** (order + 1)))
        self.motif = self.make_motif(counts, order)
        self.share = float((weights.sum() + PRIOR) / (len(w.first) + 2 * PRIOR))

    def make_motif(self, counts: Floats, order: int) -> Motif:
        """Return the motif of counts of codes (W, E)."""
        alphabet, background = self.data.alphabet, self.data.background
        if order:
            return MarkovMotif.of_counts(counts, alphabet, order=order, background=background)
        return PositionWeightMatrix.of_counts(
            counts[:, : alphabet.size], alphabet, pseudocount=PSEUDOCOUNT, background=background
        )

    @property
    def tolerance(self) -> float:
        """The gain in nats that is too small to go on."""
        return TOLERANCE * max(100, len(self.windows.first))

    def run(self, steps: int) -> None:
        """Run EM at order 0 until a step gains too little; end with the posteriors of the motif."""
        self.expect()
        for _ in range(steps):
            previous = self.objective
            self.maximise()
            self.expect()
            if self.objective - previous < self.tolerance:
                break

    def settle(self, narrowest: int, widest: int) -> None:
        """Run EM at order 0 to the end, and move the window until it stays."""
        for _ in range(4):
            self.run(STEPS)
            if not self.refocus(narrowest, widest):
                return
        self.run(STEPS)

    def raise_order(self, order: int) -> None:
        """Run EM at a higher order from the present posteriors, while the likelihood grows."""
        best = -np.inf
        while True:
            previous = self.motif, self.share, self.posteriors, self.log_likelihood
            self.maximise(order)
            self.expect()
            if self.log_likelihood - best < self.tolerance and np.isfinite(best):
                self.motif, self.share, self.posteriors, self.log_likelihood = previous
                return
            best = self.log_likelihood

    def at_order(self, order: int) -> DiscoveredMotif:
        """Return the motif, raised to this order."""
        score = self.score
        if order:
            self.raise_order(order)
        return DiscoveredMotif(self.motif, self.sites(), self.share, self.log_likelihood, score)

    def refocus(self, narrowest: int, widest: int) -> bool:
        """Move the window to the columns that gain most for their parameters, given the present
        posteriors; return whether it moved.
        """
        data, w = self.data, self.windows
        size, mask = data.alphabet.size, self.posteriors > 1e-3
        starts, weights = w.starts[mask], self.posteriors[mask]
        offsets = np.arange(-widest, w.width + widest)
        index = starts + offsets[:, None]  # (columns, sites)
        inside = np.clip(index, 0, len(data.digits) - 1)
        same = (inside == index) & (data.run[inside] == data.run[starts])
        digits = np.where(same, data.digits[inside], size)
        counts = np.array([np.bincount(d, weights, size + 1) for d in digits])
        first, width = best_run(self.column_gains(counts[:, :size]), narrowest, widest)
        if (offsets[first], width) == (0, w.width):
            return False
        self.motif = self.make_motif(counts[first : first + width], 0)
        return True

    def column_gains(self, counts: Floats) -> Floats:
        """Return the log-likelihood ratio of each column (columns, A) to the background, less the
        penalty of its parameters, in nats.
        """
        background = self.data.background.frequencies
        total = counts.sum(axis=1, keepdims=True)
        p = (counts + PSEUDOCOUNT * background) / (total + PSEUDOCOUNT)
        ratio = (counts * np.log(p / background)).sum(axis=1)
        return np.asarray(ratio - self.penalty(len(background) - 1))

    def penalty(self, parameters: int) -> float:
        """Return half the logarithm of the number of sites per parameter (Schwarz 1978)."""
        return 0.5 * parameters * float(np.log(max(2.0, self.posteriors.sum())))

    @property
    def score(self) -> float:
        """The log-likelihood ratio less the penalty of q and of the parameters of order 0."""
        columns = self.motif.width * (self.data.alphabet.size - 1)
        return self.log_likelihood - self.penalty(columns + 1)

    def sequence_scores(self, n: int) -> Floats:
        """Return the log-odds that each of n sequences contains the motif, (n,): log(q r + 1 − q),
        r being the mean likelihood ratio of its windows, 0 without any.
        """
        w, scores = self.windows, np.zeros(n)
        table = tabulate_logs(self.motif.conditionals, self.motif.order)
        if len(w.starts):
            logs = window_sums(table, self.data.codes(self.motif.order), w.starts) - w.null
            top = np.maximum.reduceat(logs, w.first)  # (N,)
            sums = np.add.reduceat(np.exp(logs - top[w.group]), w.first)
            scores[w.owner[w.first]] = np.exp(np.log(sums / w.counts) + top)
        return np.log(self.share * scores + 1 - self.share)

    def sites(self) -> tuple[Site, ...]:
        """Return the best window of each sequence that probably contains the motif."""
        w = self.windows
        if not len(w.starts):
            return ()
        contains = np.minimum(np.add.reduceat(self.posteriors, w.first), 1.0)  # (N,)
        best = np.lexsort((-self.posteriors, w.group))[w.first]
        return tuple(
            self.data.site(int(w.starts[i]), w.width, float(p))
            for i, p in zip(best, contains, strict=True)
            if p > 0.5
        )


def best_run(gains: Floats, narrowest: int, widest: int) -> tuple[int, int]:
    """Return start and width of the run of columns with the greatest sum, the first and narrowest
    of equals.
    """
    sums = np.concatenate([[0.0], gains.cumsum()])
    widths = range(narrowest, min(widest, len(gains)) + 1)
    firsts = [int(np.argmax(sums[width:] - sums[:-width])) for width in widths]
    totals = [sums[i + width] - sums[i] for i, width in zip(firsts, widths, strict=True)]
    best = int(np.argmax(totals))
    return firsts[best], widths[best]


def fit_motif(
    data: Collection, sample: Collection, starts: Sequence[Motif], narrowest: int, widest: int
) -> MotifFit | None:
    """Return the best motif of order 0 from any of the starting points, or None without one. They
    are compared on a sample.
    """
    candidates = []
    for motif in starts:
        fit = MotifFit(sample, motif)
        fit.run(FIRST_STEPS)
        candidates.append(fit)
    candidates.sort(key=lambda fit: -fit.score)
    finalists = candidates[:FINALISTS]
    for fit in finalists:
        fit.settle(narrowest, widest)
    if not finalists:
        return None
    best = max(finalists, key=lambda fit: fit.score)
    if data is not sample:
        best = MotifFit(data, best.motif, best.share)
        best.settle(narrowest, widest)
    return best


def find_starts(data: Collection, narrowest: int, widest: int) -> list[Motif]:
    """Return the most enriched dyads as motifs."""
    return [
        PositionWeightMatrix.of_counts(
            columns, data.alphabet, pseudocount=0.0, background=data.background
        )
        for columns in find_seeds(data, narrowest, widest, SEEDS)
    ]


def draw_sample(digits: Sequence[Ids], seed: int) -> list[int]:
    """Return the indices of sequences of SEED_LETTERS letters in all, drawn at random, in order."""
    order = np.random.default_rng(seed).permutation(len(digits))
    letters = np.cumsum([len(digits[i]) for i in order])
    return sorted(order[: 1 + int(np.searchsorted(letters, SEED_LETTERS))].tolist())


def fit_background(digits: Sequence[Ids], alphabet: MotifAlphabet, revcomp: bool) -> Background:
    """Return a background of order 2, or of order 0 where contexts of many letters are too rare."""
    order = 2 if alphabet.size <= 8 else 0
    return Background.fit(digits, alphabet, order=order, both_strands=revcomp)


def discover(
    sequences: Sequence[str],
    width: int | tuple[int, int] = (6, 20),
    *,
    order: int = 0,
    n_motifs: int = 1,
    revcomp: bool = True,
    seed: int = 0,
    start: Motif | None = None,
    background: Background | None = None,
    alphabet: MotifAlphabet = DNA,
) -> list[DiscoveredMotif]:
    """Find at most `n_motifs` motifs of a width, or of any width in a range; the best score first.

    By default the background is fitted to the sequences, at order 2. `revcomp` searches both
    strands. `seed` selects the sequences that rank the starting points if there are many; nothing
    else is random. `start`, if given, is the starting point of the first motif.
    """
    narrowest, widest = (width, width) if isinstance(width, int) else width
    if not 2 <= narrowest <= widest:
        raise UsageError(f"width must be 2 or more, or a range (from, to) of such, got {width}")
    if n_motifs < 1:
        raise UsageError(f"n_motifs must be 1 or more, got {n_motifs}")
    if revcomp and not alphabet.complement:
        raise UsageError(f"the alphabet {alphabet.letters} has one strand: use revcomp=False")
    check_order(order, alphabet.size, widest)
    digits = [alphabet.encode(sequence) for sequence in sequences]
    if not any(len(d) >= narrowest for d in digits):
        raise UserError(f"no sequence has {narrowest} letters or more: nothing to search")
    widest = min(widest, max(len(d) for d in digits))
    if background is None:
        background = fit_background(digits, alphabet, revcomp)
    if background.alphabet != alphabet or any((c <= 0).any() for c in background.conditionals):
        raise UsageError("the background must be of the same alphabet and allow every letter")
    subset = draw_sample(digits, seed)
    motifs: list[DiscoveredMotif] = []
    while len(motifs) < n_motifs:
        data = sample = Collection(digits, background, revcomp)
        if len(subset) < len(digits):
            sample = Collection([digits[i] for i in subset], background, revcomp)
        starts = [start] if start and not motifs else find_starts(sample, narrowest, widest)
        fit = fit_motif(data, sample, starts, narrowest, widest)
        if fit is None:
            break
        found = fit.at_order(order)
        motifs.append(found)
        if not found.sites:
            break
        for site in found.sites:
            digits[site.sequence][site.position : site.position + fit.motif.width] = alphabet.size
    return sorted(motifs, key=lambda motif: -motif.score)


def refit(data: Collection, start: Motif, orders: Sequence[int]) -> list[DiscoveredMotif]:
    """Return a motif of order 0 fitted to other sequences, at several orders."""
    fit = MotifFit(data, start)
    fit.run(STEPS)
    return [replace(fit).at_order(order) for order in orders]
