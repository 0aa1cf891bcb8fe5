"""Motifs found in sequences that are not aligned, by expectation–maximization.

The model is ZOOPS of MEME (Bailey & Elkan 1994, ISMB 2:28): each sequence contains the motif zero
or one times, with probability q, at any position of either strand with equal probability, and is
background elsewhere. EM fits motif and q from a starting point, and the result depends on it. The
starting points are spaced dyads (van Helden et al. 2000, Nucleic Acids Research 28:1808), two short
words with a gap of 0 or more between them, ranked by how many more sequences contain them than the
background explains. The most enriched run for a few steps, the best of those to the end, on a
sample if there are many letters; in between, the window moves and grows or shrinks to the columns
that are worth their parameters (BIC). Sites are then masked, and the next motif is searched in the
rest.

At order 0 each EM step raises the posterior `objective`. Higher orders (`MarkovMotif`) start from
the sites of order 0. Their nested prior is estimated along the way, so a step is accepted only if
it raises the likelihood. They take few steps: if a motif is weak, more of them would raise the
likelihood by what is regular in the background (`benchmarks/motif_discovery.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from regard.errors import UsageError, UserError
from regard.models.motifs import (
    DNA,
    Background,
    Floats,
    Ids,
    MarkovMotif,
    Motif,
    MotifAlphabet,
    PositionWeightMatrix,
    check_order,
    encode_contexts,
    tabulate_logs,
    window_counts,
    window_sums,
)

WORD_CODES = 1 << 18  # dyads of one gap that are counted: two words of three letters in DNA
WIDEST_GAP = 11  # as between the halves of the widest common dyads, such as GAL4's
RAISING_STEPS = 2  # of EM at a higher order: more would go on to model the background
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
            return MarkovMotif.of_counts(
                counts,
                alphabet,
                order=order,
                pseudocount=PSEUDOCOUNT,
                background=background,
            )
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
        """Run a few steps of EM at a higher order from the present posteriors, while the likelihood
        grows.
        """
        best = -np.inf
        for _ in range(RAISING_STEPS):
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
        motif = fit.at_order(order)
        motifs.append(motif)
        if not motif.sites:
            break
        for site in motif.sites:
            digits[site.sequence][site.position : site.position + fit.motif.width] = alphabet.size
    return sorted(motifs, key=lambda motif: -motif.score)


def refit(data: Collection, start: Motif, orders: Sequence[int]) -> list[DiscoveredMotif]:
    """Return a motif of order 0 fitted to other sequences, at several orders."""
    fit = MotifFit(data, start)
    fit.run(STEPS)
    return [replace(fit).at_order(order) for order in orders]
