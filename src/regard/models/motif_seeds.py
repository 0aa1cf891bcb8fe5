"""Where a motif may be, and where to begin looking for it: windows, and enriched patterns.

The patterns are spaced dyads (van Helden et al. 2000, Nucleic Acids Research 28:1808), two short
words with a gap of 0 or more between them, ranked by how many more sequences hold them than the
background explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.models.motif_tables import Floats, Ids, contexts, lookup, window_sums
from regard.models.motifs import Background

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
