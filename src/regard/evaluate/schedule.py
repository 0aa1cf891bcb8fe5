"""Dividing the minutes of a comparison among its rows.

All of it counts: that a process starts, that a row is measured, that the table is put together.
Rows fitted in one go come first, and what they leave of their share goes to the neural rows, which
have equal shares. Where the minutes do not hold all rows, the first of KEPT that fit are chosen.
The others wait, and are left out if the time does not hold them at the end; before any of them,
points of scaling curves and later seeds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol, TypeVar

# Floors, the strongest of the cheap rows and the Transformer are what a verdict needs first.
KEPT = (
    *("majority", "ibm1", "nearest", "bigram", "logistic", "kneser-ney", "transformer"),
    *("naive-bayes", "nb-svm", "rnn-attention", "lstm", "cnn", "svm", "coulomb", "map", "gru"),
    *("pwm", "markov", "hmm", "rnn", "hyena", "mlp", "unigram", "uniform"),
)
START = 4.0  # seconds that a row takes beside its fitting, until the first has shown
SPAWN = 0.5  # of them, those before its own clock begins
COUNTING, NEURAL = 3.0, 8.0  # seconds of fitting that a row has at least
CLOSING, PER_ROW = 2.0, 0.1  # seconds for intervals and the page, and more for each row


class Planned(Protocol):
    """A run to be planned, as `rungs.Rung` is."""

    @property
    def model(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def fraction(self) -> float: ...

    @property
    def counts(self) -> bool: ...


One = TypeVar("One", bound=Planned)


def priority(one: Planned) -> tuple[bool, float, int, int]:
    """What is left out last comes first."""
    place = KEPT.index(one.model) if one.model in KEPT else len(KEPT)
    return one.fraction < 1, one.fraction, one.seed, place


@dataclass
class Schedule:
    """When a comparison ends (time.monotonic), and what its rows have taken so far."""

    end: float
    starts: list[float] = field(default_factory=list)  # seconds of rows beside their fitting

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    @property
    def start(self) -> float:
        """Seconds that a row takes beside its fitting."""
        return fmean(self.starts) if self.starts else START

    def need(self, row: Sequence[Planned]) -> float:
        """Seconds that a row, given as its folds, needs at least."""
        return self.start + len(row) * (COUNTING if row[0].counts else NEURAL)

    def holds(self, rows: Sequence[list[One]]) -> list[list[One]]:
        """Those of the rows that the time left holds, in the order given."""
        total, kept = 0.0, list[list[One]]()
        for row in sorted(rows, key=lambda row: priority(row[0])):
            if total + self.need(row) <= self.left:  # a cheaper row after it may still fit
                total += self.need(row)
                kept.append(row)
        return [row for row in rows if any(row is one for one in kept)]

    def minutes(self, row: Sequence[Planned], ahead: Sequence[Sequence[Planned]]) -> float:
        """For each fold of a row: what it needs, and an equal share of what the rows that are
        ahead, it among them, do not need. The clock of a single run begins when its process starts,
        that of a fold later.
        """
        spare = max(0.0, self.left - sum(self.need(one) for one in ahead))
        seconds = self.need(row) + spare / len(ahead)
        seconds -= SPAWN if len(row) == 1 else self.start
        return max(0.05, seconds / len(row) / 60)
