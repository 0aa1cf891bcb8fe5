"""Occurrences of a known motif, with exact p-values.

A window's score is its log-odds against the background (`Motif.log_odds`), rounded to a whole
number of steps. Whole scores have an exact distribution under the background, by dynamic
programming over positions (Staden 1989, CABIOS 5:89; for Markov backgrounds and motifs one
distribution per context): the p-value of a window is the probability that a window of the
background scores as high or higher. Windows with an unknown letter have no p-value and are left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.models.motifs import (
    Background,
    Floats,
    Ids,
    Motif,
    PositionWeightMatrix,
    encode_contexts,
    tabulate_logs,
)

LEVELS = 10_000  # steps between the least and the greatest score
NEVER = -(1 << 24)  # steps of an impossible or unknown letter
CHUNK = 1 << 20  # letters that are scored at once
PSEUDOCOUNT = 0.1  # of a matrix with impossible letters, as in FIMO


def with_background(motif: Motif, background: Background) -> Motif:
    """Return a matrix with another background, and with pseudocounts where letters never occur."""
    return PositionWeightMatrix.of_counts(
        motif.probabilities * max(1.0, motif.sites),
        motif.alphabet,
        pseudocount=PSEUDOCOUNT,
        background=background,
    )


class ScoreDistribution:
    """The scores of a motif in whole steps, and how probable they are under its background.

    `table` (W, E) has the steps of every code, of `order` letters before; `survival` (S,) has the
    probability of a score of at least `least`, `least` + 1, and so on.
    """

    def __init__(self, motif: Motif, levels: int = LEVELS) -> None:
        if levels < 2:
            raise UsageError(f"levels must be 2 or more, got {levels}")
        self.motif, self.order = motif, max(motif.order, motif.background.order)
        logs, size = motif.log_odds, motif.alphabet.size
        known = np.arange(logs.shape[1]) % (size + 1) < size  # the letter itself
        finite = np.isfinite(logs) & known
        lows = np.where(finite, logs, np.inf).min(axis=1)
        highs = np.where(finite, logs, -np.inf).max(axis=1)
        span = max(float((highs - lows).sum()), float(np.abs(highs).sum()), 1e-6)
        self.step = span / levels  # nats
        steps = np.rint(np.where(finite, logs, 0) / self.step)
        self.table = np.where(finite, steps, NEVER).astype(np.int32)
        possible = np.where(finite, self.table, 1 << 24).min(axis=1)
        self.least = int(possible.sum())
        self.survival = self._survival(possible)

    def _survival(self, lows: NDArray[np.int32]) -> Floats:
        """Return P(score ≥ s) for s from `least` on; `lows` (W,) are the least steps."""
        motif, size, order = self.motif, self.motif.alphabet.size, self.order
        background = [np.exp(rows) for rows in self._background_logs()]
        spans = [int(row.max()) - int(low) for row, low in zip(self.table, lows, strict=True)]
        mass = np.ones((1, 1))  # (contexts, scores)
        for j in range(motif.width):
            known = min(j, order)  # letters of the context that are inside the window
            contexts = np.arange(size**known)
            codes = sum(
                (contexts // size**d % size) * (size + 1) ** (d + 1) for d in range(known)
            ) + sum(size * (size + 1) ** (d + 1) for d in range(known, order))
            following = min(j + 1, order)
            new = np.zeros((size**following, mass.shape[1] + spans[j]))
            for context, code in zip(contexts, np.broadcast_to(codes, contexts.shape), strict=True):
                for letter in range(size):
                    steps = int(self.table[j, code + letter])
                    if steps == NEVER:
                        continue
                    at = steps - int(lows[j])
                    row = (context * size + letter) % size**following
                    part = mass[context] * background[j][code + letter]
                    new[row, at : at + mass.shape[1]] += part
            mass = new
        return np.asarray(np.minimum(mass.sum(axis=0)[::-1].cumsum()[::-1], 1.0))

    def _background_logs(self) -> Floats:
        """Return log p of every code under the background, (W, E)."""
        return tabulate_logs(self.motif.background.positional(self.motif.width), self.order)

    def p_values(self, steps: NDArray[np.int32]) -> Floats:
        """Return the p-values of scores in whole steps; that of an impossible window is 1."""
        index = np.clip(steps.astype(np.int64) - self.least, 0, len(self.survival) - 1)
        return np.asarray(np.where(steps < self.least, 1.0, self.survival[index]))

    def threshold(self, p_value: float) -> int:
        """Return the least score in steps whose p-value is at most this."""
        return self.least + int(np.argmax(np.append(self.survival <= p_value, True)))

    def window_steps(self, digits: Ids) -> NDArray[np.int32]:
        """Return the score of every window of a strand, in whole steps."""
        codes = encode_contexts(digits, self.order, self.motif.alphabet.size)
        count = len(digits) - self.motif.width + 1
        total = np.zeros(max(0, count), np.int32)
        for j, row in enumerate(self.table):
            total += row[codes[j : j + len(total)]]
        return total


@dataclass(frozen=True, eq=False)
class Hits:
    """Windows of sequences with a p-value below a threshold: indices of sequences, first positions
    on the forward strand, strands (1 or -1), scores in nats, p-values; (M,) by sequence and
    position. `tested` windows were scored, of which `expected` are among them by chance; the best
    possible window has the least p-value.
    """

    sequences: Ids
    positions: Ids
    strands: Ids
    scores: Floats
    p_values: Floats
    tested: int
    expected: float
    least_p_value: float

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def q_values(self) -> Floats:
        """The least false discovery rate at which each is found, of all windows tested (Benjamini &
        Hochberg 1995); without the windows above the threshold it is an upper bound.
        """
        order = np.argsort(self.p_values, kind="stable")
        rates = self.p_values[order] * self.tested / np.arange(1, len(order) + 1)
        q = np.empty(len(order))
        q[order] = np.minimum(np.minimum.accumulate(rates[::-1])[::-1], 1.0)
        return q


def scan(
    motif: Motif,
    sequences: Sequence[Ids],
    *,
    p_value: float = 1e-4,
    both_strands: bool = True,
    levels: int = LEVELS,
) -> Hits:
    """Return the windows of sequences, given as digits, whose p-value is at most `p_value`."""
    if not 0 < p_value <= 1:
        raise UsageError(f"p_value must be above 0 and at most 1, got {p_value}")
    distribution = ScoreDistribution(motif, levels)
    lengths = np.array([len(digits) for digits in sequences], np.int64)
    firsts = np.cumsum(lengths + 1) - lengths - 1
    flat = np.full(int((lengths + 1).sum()), motif.alphabet.size, np.int64)
    for first, digits in zip(firsts.tolist(), sequences, strict=True):
        flat[first : first + len(digits)] = digits
    parts, tested, least = [], 0, distribution.threshold(p_value)
    for offset, digits in chunks(flat, motif.width):
        for number, strand in enumerate(motif.alphabet.strands(digits, both_strands)):
            steps = distribution.window_steps(strand)[:: -1 if number else 1]
            tested += int((steps > NEVER // 2).sum())
            at = np.flatnonzero(steps >= least)
            parts.append((at + offset, np.full(len(at), 1 - 2 * number), steps[at]))
    places, strands, steps = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((-strands, places))
    places, strands, steps = places[order], strands[order], steps[order]
    owner = np.searchsorted(firsts, places, side="right") - 1
    scores: Floats = steps.astype(np.float64) * distribution.step
    p_values = distribution.p_values(steps)
    possible = distribution.survival[distribution.survival > 0]
    expected = tested * float(possible[possible <= p_value].max(initial=0.0))
    least_p = float(possible.min())
    positions = places - firsts[owner]
    return Hits(owner, positions, strands, scores, p_values, tested, expected, least_p)


def chunks(flat: Ids, width: int) -> Iterator[tuple[int, Ids]]:
    """Yield parts of the letters such that every window is in exactly one, and where they begin."""
    for start in range(0, max(1, len(flat)), CHUNK):
        yield start, flat[start : start + CHUNK + width - 1]
