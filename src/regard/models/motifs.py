"""Letters as digits, and the tables that motif models count and look up.

Everything is one gather: letters are digits in base A + 1 (the extra digit is an unknown letter, or
one outside), a letter with its k predecessors is a code in base A + 1, and a model is a table of
logarithms over (W positions, E codes). An unknown letter costs nothing and shortens the contexts
that would have read it, which is exact marginalising at order 0.

Motifs: position weight matrices and Bayesian Markov models of short, aligned sequences.

A position weight matrix has one distribution per position, P_j(a), and reads positions as
independent. `MarkovMotif` conditions position j on the k letters before it, P_j(a | context): the
Bayesian Markov model of Siebert & Söding 2016 (BaMM, Nucleic Acids Research 44:6055), in which
order k − 1 at the same position is the Dirichlet prior of order k:

    p_k(a | context) = (n(context a) + α_k p_{k−1}(a | shorter context)) / (n(context) + α_k)

with α_k = β γ^k, so that contexts seen often speak for themselves and rare ones fall back. Below
order 0 stands a base distribution. A position has no context outside its motif.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import UsageError, UserError

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Letters = Sequence[str] | NDArray[np.integer[Any]]  # W letters each: texts, or digits (N, W)

MOST_CODES = 1 << 25  # entries of one table: 256 MB


@dataclass(frozen=True)
class MotifAlphabet:
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


DNA = MotifAlphabet("ACGT", complement="TGCA", wild="NRYSWKMBDHVX")
RNA = MotifAlphabet("ACGU", complement="UGCA", wild="NRYSWKMBDHVX")
PROTEIN = MotifAlphabet("ACDEFGHIKLMNPQRSTVWY", wild="BJOUXZ*")


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
    on_rank0, found = counts.shape[:-1], []
    for m in range(order + 1):
        last = counts.reshape(*on_rank0, -1, *[size + 1] * (m + 1)).sum(axis=len(on_rank0))
        known = last[(..., *[slice(size)] * (m + 1))]
        found.append(known.reshape(*on_rank0, size**m, size))
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


__all__ = [
    "DNA",
    "PROTEIN",
    "RNA",
    "Background",
    "MarkovMotif",
    "Motif",
    "MotifAlphabet",
    "MotifClassifier",
    "PositionWeightMatrix",
    "Scan",
]

BETA, GAMMA = 7.0, 3.0  # strength of the prior, α_k = β γ^k: defaults of the authors' BaMMmotif2


class Background:
    """What sequences look like without a motif: a homogeneous Markov model of any order."""

    def __init__(self, alphabet: MotifAlphabet, conditionals: Sequence[Floats]) -> None:
        self.alphabet = alphabet
        self.conditionals = tuple(conditionals)  # orders 0 to k, each (A^m, A)

    @classmethod
    def uniform(cls, alphabet: MotifAlphabet = DNA) -> Self:
        """Every letter alike, whatever came before."""
        return cls.of(np.full(alphabet.size, 1 / alphabet.size), alphabet)

    @classmethod
    def of(cls, frequencies: ArrayLike, alphabet: MotifAlphabet = DNA) -> Self:
        """Order 0 with these frequencies, brought to sum 1."""
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
        """MAP of texts or digits, with prior strength `alpha` at every order, uniform at the
        bottom.
        """
        check_order(order, alphabet.size, 1)
        size = alphabet.size
        counts = np.zeros((size + 1) ** (order + 1))
        for sequence in sequences:
            digits = alphabet.encode(sequence) if isinstance(sequence, str) else sequence
            for strand in [
                digits,
                *([alphabet.reverse_complement(digits)] if both_strands else []),
            ]:
                counts += np.bincount(contexts(strand, order, size), minlength=len(counts))
        base = np.full(size, 1 / size)
        return cls(alphabet, estimate(by_order(counts, order, size), [alpha] * (order + 1), base))

    @property
    def order(self) -> int:
        """How many letters back it reads."""
        return len(self.conditionals) - 1

    @property
    def frequencies(self) -> Floats:
        """(A,) letters by themselves."""
        return np.asarray(self.conditionals[0][0])

    def positional(self, width: int) -> list[Floats]:
        """The same model as a motif's conditionals (W, A^m, A): no context outside the window."""
        size, found = self.alphabet.size, []
        for m in range(self.order + 1):
            rows = [self.conditionals[min(m, j)] for j in range(width)]
            found.append(np.stack([np.tile(r, (size**m // len(r), 1)) for r in rows]))
        return found


class Scan(NamedTuple):
    """Windows of a sequence: first position on the forward strand (M,), strand 1 or -1, score."""

    positions: Ids
    strands: NDArray[np.int8]
    scores: Floats


class Motif:
    """A model of windows of width W, judged against a background; see the two kinds below."""

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
        """W."""
        return len(self.conditionals[0])

    @property
    def order(self) -> int:
        """How many letters back a position reads."""
        return len(self.conditionals) - 1

    @cached_property
    def probabilities(self) -> Floats:
        """(W, A): how often each letter stands at each position, contexts summed out."""
        size, contexts_ = self.alphabet.size, self.alphabet.size**self.order
        state, found = np.full(contexts_, 1 / contexts_), []
        for conditional in self.conditionals[-1]:
            joint = state[:, None] * conditional  # (A^k, A)
            found.append(joint.sum(axis=0))
            state = joint.reshape(size, -1).sum(axis=0) if self.order else np.ones(1)
        return np.array(found)

    @cached_property
    def log_odds(self) -> Floats:
        """(W, E) log of motif over background, natural, for every code; E as in `contexts` of the
        larger of the two orders. At order 0 the first A columns are the usual matrix.
        """
        order = max(self.order, self.background.order)
        check_order(order, self.alphabet.size, self.width)
        ours = lookup(self.conditionals, order)
        theirs = lookup(self.background.positional(self.width), order)
        impossible = np.isneginf(ours) & np.isneginf(theirs)
        return np.where(impossible, -np.inf, ours - np.where(impossible, 0, theirs))

    def log_likelihood(self, windows: Letters) -> Floats:
        """log P(window), (N,)."""
        return self._sums(lookup(self.conditionals, self.order), self.order, windows)

    def score(self, windows: Letters) -> Floats:
        """log P(window) / P(window | background), (N,), in nats."""
        return self._sums(self.log_odds, max(self.order, self.background.order), windows)

    def _sums(self, table: Floats, order: int, windows: Letters) -> Floats:
        digits = self.alphabet.aligned(windows)  # (N, W)
        if digits.shape[1] != self.width:
            raise UserError(f"windows must have {self.width} letters, got {digits.shape[1]}")
        codes = contexts(digits, order, self.alphabet.size)
        return window_sums(table, codes.ravel(), np.arange(len(digits)) * self.width)

    def scan(
        self, sequence: str | Ids, both_strands: bool = True, threshold: float = -np.inf
    ) -> Scan:
        """The score of every window of at least `threshold`: forward strand first, each from the
        left. A window on the other strand is scored as its reverse complement.
        """
        digits = self.alphabet.encode(sequence) if isinstance(sequence, str) else sequence
        order = max(self.order, self.background.order)
        starts = np.arange(max(0, len(digits) - self.width + 1))
        scores = []
        for strand in [digits, *([self.alphabet.reverse_complement(digits)] * both_strands)]:
            scores.append(
                window_sums(self.log_odds, contexts(strand, order, self.alphabet.size), starts)
            )
        if both_strands:
            scores[1] = scores[1][::-1]
        strands = np.repeat(np.array([1, -1], np.int8)[: len(scores)], len(starts))
        positions, found = np.tile(starts, len(scores)), np.concatenate(scores)
        kept = found >= threshold
        return Scan(positions[kept], strands[kept], found[kept])

    def sample(self, n: int, random: np.random.Generator) -> Ids:
        """n windows drawn from the model, as digits (n, W)."""
        size, drawn = self.alphabet.size, np.zeros((n, self.width), np.int64)
        context = np.zeros(n, np.int64)
        for j, conditional in enumerate(self.conditionals[-1]):
            ladder = conditional.cumsum(axis=1)[context]  # (n, A)
            drawn[:, j] = (random.random((n, 1)) * ladder[:, -1:] >= ladder).sum(axis=1)
            context = (context * size + drawn[:, j]) % size**self.order
        return drawn

    @property
    def consensus(self) -> str:
        """The most probable letter of each position."""
        return "".join(self.alphabet.letters[i] for i in self.probabilities.argmax(axis=1))

    def information(self, *, against_background: bool = False) -> Floats:
        """(W,) bits: log₂ A − entropy (Schneider & Stephens 1990, Nucleic Acids Research 18:6097),
        or relative entropy to the background's frequencies.
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
        """From aligned sequences of one length; unknown letters are not counted."""
        digits = alphabet.aligned(sequences)
        counts = tally(digits, 0, alphabet.size)[:, : alphabet.size]
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
        """From counts (W, A): P_j(a) = (n_j(a) + α b(a)) / (N_j + α), b the background's letters.
        With α = 0 this takes probabilities as well.
        """
        values = np.asarray(counts, np.float64)
        check_strength("pseudocount", pseudocount)
        if values.ndim != 2 or values.shape[1] != alphabet.size or not len(values):
            raise UsageError(f"counts must be (W, {alphabet.size}), got {values.shape}")
        if not np.isfinite(values).all() or (values < 0).any():
            raise UsageError("counts must be finite and 0 or more")
        background = background or Background.uniform(alphabet)
        found = estimate([values[:, None]], [pseudocount], background.frequencies)
        return cls(alphabet, found, background, float(values.sum(axis=1).max()))


class MarkovMotif(Motif):
    """Positions that read their predecessors: P_j(a | the k letters before)."""

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
        weights: Floats | None = None,
    ) -> Self:
        """From aligned sequences of one length, each counted `weights` (N,) times."""
        digits = alphabet.aligned(sequences)
        check_order(order, alphabet.size, digits.shape[1])
        counts = tally(digits, order, alphabet.size, weights)
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
        """From counts of codes (W, E), as `tally` makes them."""
        alphas = strengths(order, beta, gamma)
        split = by_order(counts, order, alphabet.size)
        for m, n in enumerate(split):
            n[:m] = 0  # a context that reaches outside the motif
        background = background or Background.uniform(alphabet)
        found = estimate(split, alphas, background.frequencies)
        return cls(alphabet, found, background, float(split[0].sum(axis=(1, 2)).max()))


class MotifClassifier:
    """Aligned sequences to labels: one motif per label, log P(x | label) + log P(label)."""

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
        """Labels are sorted; the letters of all sequences together are every motif's prior."""
        digits = self.alphabet.aligned(sequences)
        if len(labels) != len(digits):
            raise UserError(f"{len(digits)} sequences need as many labels, got {len(labels)}")
        self.classes = tuple(sorted(set(labels)))
        if len(self.classes) < 2:
            raise UserError(f"two or more different labels are needed, got {self.classes}")
        where = {label: i for i, label in enumerate(self.classes)}
        index = np.array([where[label] for label in labels])
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

    def log_posteriors(self, sequences: Letters) -> Floats:
        """log P(label | x), (N, C)."""
        if not self.motifs:
            raise UsageError("this classifier has not been fitted")
        digits = self.alphabet.aligned(sequences)
        joint = np.stack([m.log_likelihood(digits) for m in self.motifs], axis=1) + self.log_priors
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))

    def decision_function(self, sequences: Letters) -> Floats:
        """Log-odds: of the second label against the first, (N,), or of each against the rest,
        (N, C).
        """
        logs = self.log_posteriors(sequences)
        if len(self.classes) == 2:
            return np.asarray(logs[:, 1] - logs[:, 0])
        rest = [np.logaddexp.reduce(np.delete(logs, i, 1), axis=1) for i in range(logs.shape[1])]
        return np.asarray(logs - np.stack(rest, axis=1))

    def predict(self, sequences: Letters) -> list[Any]:
        """The most probable label of each."""
        return [self.classes[i] for i in self.log_posteriors(sequences).argmax(axis=1)]
