"""Where a motif may be, and where to begin looking for it: windows, and enriched patterns.

The patterns are spaced dyads (van Helden et al. 2000, Nucleic Acids Research 28:1808), two short
words with a gap of 0 or more between them, ranked by how many more sequences hold them than the
background explains.

Finding motifs in sequences that are not aligned.

The model is ZOOPS of MEME (Bailey & Elkan 1994, ISMB 2:28): each sequence holds the motif zero or
one times, with probability q, at any position of either strand alike, and is background elsewhere.
EM finds motif and q from a start, and the starts make or break it: see `motif_seeds`. The most
enriched are run for a few steps, the best of those to the end; in between, the window moves and
grows or shrinks to the columns that pay for their parameters (BIC). Found sites are masked, and
the next motif is sought in the rest.

At order 0 each EM step raises the posterior `objective`. Higher orders (`MarkovMotif`) then start
from the sites of order 0; their nested prior is estimated along the way, so a step is kept only as
long as it raises the likelihood.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
    contexts,
    lookup,
    window_counts,
    window_sums,
)

WORD_CODES = 1 << 18  # dyads of one gap that are counted: three letters and three in DNA
WIDEST_GAP = 11  # as between the halves of the widest common dyads, such as GAL4's
SHARP = 0.7  # how sure a start is of its letters


@dataclass(frozen=True)
class Site:
    """One occurrence: the index of its sequence, its first position there, its strand (1 or -1),
    and the probability that the sequence holds the motif.
    """

    sequence: int
    position: int
    strand: int
    posterior: float


@dataclass
class Windows:
    """All windows of one width that may hold a motif, those of a sequence next to each other."""

    width: int
    starts: Ids  # (M,) in the flat digits
    null: Floats  # (M,) log-probability of the window under the background
    owner: Ids  # (M,) its sequence
    first: Ids  # (N,) where the windows of each sequence that has any begin
    group: Ids  # (M,) which of those
    many: Floats  # (N,) how many


class Collection:
    """Sequences laid end to end, each strand followed by one unknown letter."""

    def __init__(self, sequences: Sequence[Ids], background: Background, revcomp: bool) -> None:
        self.alphabet, self.background, self.revcomp = background.alphabet, background, revcomp
        size, order = self.alphabet.size, background.order
        table = lookup(background.conditionals, order)
        digits, null, self.runs = [], [], []
        at = 0
        for n, forward in enumerate(sequences):
            logs = table[contexts(forward, order, size)]
            for strand in (1, -1)[: 1 + revcomp]:
                own = forward if strand > 0 else self.alphabet.reverse_complement(forward)
                digits += [own, np.array([size])]
                null += [logs[::strand], np.zeros(1)]  # the background reads forward only
                self.runs.append((n, strand, at, len(forward)))
                at += len(forward) + 1
        self.digits: Ids = np.concatenate(digits) if digits else np.zeros(0, np.int64)
        self.null = np.concatenate([np.zeros(1), *null]).cumsum()
        self.run = np.repeat(np.arange(len(self.runs)), [length + 1 for *_, length in self.runs])
        self.owner = self.run // (1 + revcomp)
        self._codes: dict[int, Ids] = {}
        self._windows: dict[int, Windows] = {}

    def codes(self, order: int) -> Ids:
        """Every letter with its predecessors."""
        if order not in self._codes:
            self._codes[order] = contexts(self.digits, order, self.alphabet.size)
        return self._codes[order]

    def windows(self, width: int) -> Windows:
        """Those without an unknown or masked letter."""
        if width not in self._windows:
            unknown = np.concatenate([[0], (self.digits == self.alphabet.size).cumsum()])
            starts = np.flatnonzero(unknown[width:] == unknown[:-width])
            null = self.null[starts + width] - self.null[starts]
            owner = self.owner[starts]
            _, first, group, many = np.unique(
                owner, return_index=True, return_inverse=True, return_counts=True
            )
            found = Windows(width, starts, null, owner, first, group, many.astype(np.float64))
            self._windows[width] = found
        return self._windows[width]

    def site(self, start: int, width: int, posterior: float) -> Site:
        """A window of the flat digits in its sequence's own coordinates."""
        n, strand, begin, length = self.runs[self.run[start]]
        place = start - begin if strand > 0 else length - width - (start - begin)
        return Site(n, int(place), strand, posterior)


def dyads(data: Collection, widest: int) -> Iterator[tuple[Floats, Ids, int]]:
    """For every gap: how far the number of sequences that hold each pair of words lies above what
    the background explains, (codes,); the letters of each pair, (codes, 2h); the gap.
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
    values = np.full(len(data.digits), -1, np.int64)  # the word at each place, -1 for none
    values[starts] = data.digits[starts[:, None] + np.arange(half)] @ powers
    alone = word_logs(data.background, words)
    for gap in range(min(WIDEST_GAP, widest - 2 * half) + 1):
        step = half + gap
        first, second = values[:-step], values[step:]
        here = (first >= 0) & (second >= 0) & (data.run[:-step] == data.run[step:])
        pair = first[here] * len(words) + second[here]
        logs = np.add.outer(alone, alone).ravel() if gap else word_logs(data.background, pairs)
        yield above_expected(pair, data.owner[:-step][here], np.exp(logs)), pairs, gap


def word_logs(background: Background, letters: Ids) -> Floats:
    """log P of words (words, h) under the background, by itself before each word."""
    order, size = background.order, background.alphabet.size
    table = lookup(background.positional(letters.shape[1]), order)
    codes = contexts(letters, order, size)
    return window_sums(table, codes.ravel(), np.arange(len(letters)) * letters.shape[1])


def above_expected(pair: Ids, owner: Ids, chance: Floats) -> Floats:
    """Sequences that hold each pattern, less their expected number, in standard deviations of the
    binomial: a sequence of M places holds a pattern of chance p with probability 1 − e^(−M p).
    """
    held = np.bincount(np.unique(owner * len(chance) + pair) % len(chance), minlength=len(chance))
    lengths, many = np.unique(np.bincount(owner), return_counts=True)
    expected, variance = np.zeros(len(chance)), np.zeros(len(chance))
    for length, times in zip(lengths, many, strict=True):
        p = -np.expm1(-length * chance)
        expected += times * p
        variance += times * p * (1 - p)
    return np.asarray((held - expected) / np.sqrt(variance + 1e-9))


def seeds(data: Collection, narrowest: int, widest: int, most: int) -> list[Floats]:
    """Starts as columns (W, A), the most enriched dyads first; of a dyad and its reverse
    complement, which stand in the same sequences, one.
    """
    found: list[tuple[float, tuple[int, ...], int]] = []
    for z, letters, gap in dyads(data, widest):
        best = np.argsort(-z, kind="stable")[: 2 * most]
        found += [(-float(z[i]), tuple(letters[i].tolist()), gap) for i in best if z[i] > 0]
    size = data.alphabet.size
    starts: list[Floats] = []
    seen = set()
    for _, word, gap in sorted(found):
        half = len(word) // 2
        pattern = (*word[:half], *[size] * gap, *word[half:])
        other = pattern
        if data.revcomp:
            other = tuple(data.alphabet.reverse_complement(np.array(pattern)).tolist())
        if other not in seen and len(starts) < most:
            seen.add(pattern)
            width = min(max(len(pattern) + 4, narrowest), widest)
            starts.append(columns(pattern, width, data.background.frequencies))
    return starts


def columns(pattern: Sequence[int], width: int, background: Floats) -> Floats:
    """A pattern of digits in the middle of a window, rather sure of its letters: (W, A)."""
    found = np.tile(background, (width, 1))
    for j, digit in enumerate(pattern, (width - len(pattern)) // 2):
        if digit < len(background):
            found[j] *= 1 - SHARP
            found[j, digit] += SHARP
    return found


__all__ = ["Discovered", "Site", "discover"]

PSEUDOCOUNT = 1.0  # of a column while order 0 is refined
PRIOR = 1.0  # of q: one sequence with the motif and one without
SEEDS, FIRST_STEPS, FINALISTS = 40, 4, 5  # starts tried, steps of each, starts run to the end
SEED_SEQUENCES = 1000  # a sample of more tells the starts apart as well
STEPS, CLOSE = 100, 1e-3  # EM steps at most; nats gained that are no longer worth one
NEGLIGIBLE = 1e-12  # a posterior too small to count


@dataclass(frozen=True)
class Discovered:
    """A motif, where it is, and what it explains: `log_likelihood_ratio` against the background,
    nats, and `score`, by which motifs are ranked: that of its order 0 less half the logarithm of
    the sites for each parameter (BIC).
    """

    motif: Motif
    sites: tuple[Site, ...]
    share: float
    log_likelihood_ratio: float
    score: float


@dataclass
class Fit:
    """A motif and q on the way: EM in place. `expect` sets the posteriors, the log-likelihood
    ratio to the background and the posterior objective of both as they stand, in nats.
    """

    data: Collection
    motif: Motif
    share: float = 0.5
    posteriors: Floats = field(default_factory=lambda: np.zeros(0))  # (M,)
    log_likelihood: float = -np.inf
    objective: float = -np.inf

    @property
    def windows(self) -> Windows:
        """Of the motif's width."""
        return self.data.windows(self.motif.width)

    def expect(self) -> None:
        """Posterior of every window: q / M · P(window | motif) / P(window | background) against
        1 − q for none, M the windows of the sequence.
        """
        w, motif = self.windows, self.motif
        if not len(w.starts):
            self.posteriors, self.log_likelihood, self.objective = np.zeros(0), 0.0, 0.0
            return
        table = lookup(motif.conditionals, motif.order)
        scores = window_sums(table, self.data.codes(motif.order), w.starts) - w.null
        top = np.maximum(np.maximum.reduceat(scores, w.first), 0.0)  # (N,)
        raised = np.exp(scores - top[w.group])
        some = self.share / w.many * np.add.reduceat(raised, w.first)
        evidence = some + (1 - self.share) * np.exp(-top)
        self.posteriors = raised * (self.share / w.many / evidence)[w.group]
        self.log_likelihood = float((np.log(evidence) + top).sum())
        self.objective = self.log_likelihood + self.log_prior()

    def log_prior(self) -> float:
        """Of q, and of an order 0 motif's columns, up to constants."""
        share = PRIOR * (np.log(self.share) + np.log1p(-self.share))
        weights = PSEUDOCOUNT * self.data.background.frequencies
        with np.errstate(divide="ignore"):
            columns = weights * np.log(self.motif.conditionals[0][:, 0])  # (W, A)
        return float(share + columns.sum())

    def maximise(self, order: int = 0) -> None:
        """Motif and q from the posteriors, by counting."""
        w, size, codes = self.windows, self.data.alphabet.size, self.data.codes(order)
        kept = self.posteriors > NEGLIGIBLE
        starts, weights = w.starts[kept], self.posteriors[kept]
        most = (size + 1) ** (order + 1)
        counts = window_counts(codes, starts, weights, (w.width, most))
        self.motif = self.of_counts(counts, order)
        self.share = float((weights.sum() + PRIOR) / (len(w.first) + 2 * PRIOR))

    def of_counts(self, counts: Floats, order: int) -> Motif:
        """The motif of counts of codes (W, E)."""
        alphabet, background = self.data.alphabet, self.data.background
        if order:
            return MarkovMotif.of_counts(counts, alphabet, order=order, background=background)
        return PositionWeightMatrix.of_counts(
            counts[:, : alphabet.size], alphabet, pseudocount=PSEUDOCOUNT, background=background
        )

    def run(self, steps: int) -> None:
        """EM of order 0, until a step is not worth it; ends with the posteriors of its motif."""
        self.expect()
        for _ in range(steps):
            before = self.objective
            self.maximise()
            self.expect()
            if self.objective - before < CLOSE:
                break

    def raise_order(self, order: int) -> None:
        """EM of a higher order from the posteriors at hand, as long as the likelihood grows."""
        best = -np.inf
        while True:
            kept = self.motif, self.share, self.posteriors, self.log_likelihood
            self.maximise(order)
            self.expect()
            if self.log_likelihood - best < CLOSE and np.isfinite(best):
                self.motif, self.share, self.posteriors, self.log_likelihood = kept
                return
            best = self.log_likelihood

    def refocus(self, narrowest: int, widest: int) -> bool:
        """Move the window to the run of columns that explains most for its parameters, seen from
        the posteriors at hand; false where it stays.
        """
        data, w = self.data, self.windows
        size, kept = data.alphabet.size, self.posteriors > 1e-3
        starts, weights = w.starts[kept], self.posteriors[kept]
        offsets = np.arange(-widest, w.width + widest)
        at = starts + offsets[:, None]  # (columns, sites)
        inside = np.clip(at, 0, len(data.digits) - 1)
        same = (inside == at) & (data.run[inside] == data.run[starts])
        digits = np.where(same, data.digits[inside], size)
        counts = np.array([np.bincount(d, weights, size + 1) for d in digits])
        begin, width = best_run(self.gains(counts[:, :size]), narrowest, widest)
        if (offsets[begin], width) == (0, w.width):
            return False
        self.motif = self.of_counts(counts[begin : begin + width], 0)
        return True

    def gains(self, counts: Floats) -> Floats:
        """What each column (columns, A) explains beyond the background, less the cost of its
        parameters, in nats.
        """
        background = self.data.background.frequencies
        total = counts.sum(axis=1, keepdims=True)
        p = (counts + PSEUDOCOUNT * background) / (total + PSEUDOCOUNT)
        explained = (counts * np.log(p / background)).sum(axis=1)
        return np.asarray(explained - self.cost(len(background) - 1))

    def cost(self, parameters: int) -> float:
        """Half the logarithm of the number of sites for each (Schwarz 1978)."""
        return 0.5 * parameters * float(np.log(max(2.0, self.posteriors.sum())))

    @property
    def score(self) -> float:
        """The likelihood ratio less what the parameters of order 0 and q cost."""
        columns = self.motif.width * (self.data.alphabet.size - 1)
        return self.log_likelihood - self.cost(columns + 1)

    def sites(self) -> tuple[Site, ...]:
        """The best window of each sequence that rather holds the motif than not."""
        w = self.windows
        if not len(w.starts):
            return ()
        held = np.minimum(np.add.reduceat(self.posteriors, w.first), 1.0)  # (N,)
        best = np.lexsort((-self.posteriors, w.group))[w.first]
        return tuple(
            self.data.site(int(w.starts[i]), w.width, float(p))
            for i, p in zip(best, held, strict=True)
            if p > 0.5
        )


def best_run(gains: Floats, narrowest: int, widest: int) -> tuple[int, int]:
    """Start and width of the run of columns with the greatest sum; the first and narrowest of
    equals.
    """
    sums = np.concatenate([[0.0], gains.cumsum()])
    widths = range(narrowest, min(widest, len(gains)) + 1)
    firsts = [int(np.argmax(sums[width:] - sums[:-width])) for width in widths]
    totals = [sums[i + width] - sums[i] for i, width in zip(firsts, widths, strict=True)]
    best = int(np.argmax(totals))
    return firsts[best], widths[best]


def best_fit(data: Collection, sample: Collection, narrowest: int, widest: int) -> Fit | None:
    """The best motif of order 0, or None where nothing is enriched."""
    tried = []
    for columns in seeds(sample, narrowest, widest, SEEDS):
        motif = PositionWeightMatrix.of_counts(
            columns, data.alphabet, pseudocount=0.0, background=data.background
        )
        fit = Fit(sample, motif)
        fit.run(FIRST_STEPS)
        tried.append(fit)
    tried.sort(key=lambda fit: -fit.score)
    best: Fit | None = None
    for start in tried[:FINALISTS]:
        fit = Fit(data, start.motif, start.share)
        for _ in range(4):
            fit.run(STEPS)
            if not fit.refocus(narrowest, widest):
                break
        else:
            fit.run(STEPS)
        if best is None or fit.score > best.score:
            best = fit
    return best


def discover(
    sequences: Sequence[str],
    width: int | tuple[int, int] = (6, 20),
    *,
    order: int = 0,
    n_motifs: int = 1,
    revcomp: bool = True,
    seed: int = 0,
    background: Background | None = None,
    alphabet: MotifAlphabet = DNA,
) -> list[Discovered]:
    """At most `n_motifs` motifs of a width, or of any in a range, the best score first.

    The background is that of the sequences themselves, of order 2, unless one is given. `revcomp`
    looks at both strands. `seed` chooses which sequences rank the starts where there are many;
    nothing else is random.
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
        lower = 2 if alphabet.size <= 8 else 0  # longer contexts of many letters are too rare
        background = Background.fit(digits, alphabet, order=lower, both_strands=revcomp)
    if background.alphabet != alphabet or any((c <= 0).any() for c in background.conditionals):
        raise UsageError("the background must be of the same alphabet and allow every letter")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(digits))[:SEED_SEQUENCES])
    found: list[Discovered] = []
    while len(found) < n_motifs:
        data = sample = Collection(digits, background, revcomp)
        if len(chosen) < len(digits):
            sample = Collection([digits[i] for i in chosen], background, revcomp)
        fit = best_fit(data, sample, narrowest, widest)
        if fit is None:
            break
        score = fit.score
        if order:
            fit.raise_order(order)
        sites = fit.sites()
        found.append(Discovered(fit.motif, sites, fit.share, fit.log_likelihood, score))
        if not sites:
            break
        for site in sites:
            digits[site.sequence][site.position : site.position + fit.motif.width] = alphabet.size
    return sorted(found, key=lambda one: -one.score)
