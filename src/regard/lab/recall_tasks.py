"""Sequences that ask for what was said before: associative recall and induction.

Recall (Ba et al. 2016, arXiv:1610.06258; as a test of mixers Poli et al. 2023, arXiv:2302.10866):
pairs of a key and its value, in every sequence another value for each key; at the end a key, whose
value must be named. Since keys are said over and over, the last time was never long ago; in *far*
recall, which is ours, the key asked for is said in the first quarter of the sequence alone. So it
is in induction (Olsson et al. 2022, arXiv:2209.11895): random letters, a mark and some letter after
it; at the end the mark, after which that letter must be named.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from regard.data.batching import IGNORE, Batch

VOCABULARY = 30
KEYS = 14
VALUES = 15  # the letters KEYS, KEYS + 1, …
MARK = KEYS + VALUES
ALSO = 8  # questions on the way to a far one, at most: more would drown the last
RECALL, FAR, INDUCTION = "recall", "far recall", "induction"
TASKS = (RECALL, FAR, INDUCTION)


@dataclass(frozen=True)
class Lesson:
    """So many sequences of one task and length."""

    task: str  # of TASKS
    length: int  # positions, the question among them
    many: int

    def draw(self, random: np.random.Generator) -> Batch:
        """Sequences and what is asked: the last answer, and on the way those of keys that were said
        before, of far recall some.
        """
        if self.task == INDUCTION:
            return induction(self.length, self.many, random)
        return recall(self.length, self.many, random, far=self.task == FAR)


def recall(length: int, many: int, random: np.random.Generator, *, far: bool) -> Batch:
    """Pairs, then a key that was said among them; if far, in the first quarter, there as often as
    others and at least once, and not again.
    """
    pairs = (length - 1) // 2
    rows, early = np.arange(many), max(1, pairs // 4) if far else pairs
    values = KEYS + random.integers(0, VALUES, (many, KEYS))  # of each key, in each sequence
    asked = random.integers(0, KEYS, many)
    keys = (asked[:, None] + random.integers(1, KEYS, (many, pairs))) % KEYS  # never the one asked
    keys[:, :early] = random.integers(0, KEYS, (many, early))
    keys[rows, random.integers(0, early, many)] = asked
    ids = np.empty((many, 2 * pairs + 1), np.int64)
    ids[:, 0:-1:2], ids[:, 1::2], ids[:, -1] = keys, values[rows[:, None], keys], asked
    targets = np.full_like(ids, IGNORE)
    known = said_before(keys)
    if far:
        known &= random.random(keys.shape) < ALSO / pairs
    targets[:, 0:-1:2] = np.where(known, ids[:, 1::2], IGNORE)
    targets[:, -1] = values[rows, asked]
    return batch(ids, targets)


def said_before(keys: np.ndarray) -> np.ndarray:
    """(N, P) where a key occurs again."""
    found = np.zeros(keys.shape, bool)
    for key in range(KEYS):
        here = keys == key
        found |= here & (np.cumsum(here, axis=1) > 1)
    return found


def induction(length: int, many: int, random: np.random.Generator) -> Batch:
    """Random letters and a mark in their first quarter; the mark again."""
    rows = np.arange(many)
    ids = random.integers(0, MARK, (many, length))
    at = random.integers(0, max(1, length // 4), many)
    ids[rows, at] = ids[:, -1] = MARK
    targets = np.full_like(ids, IGNORE)
    targets[:, -1] = ids[rows, at + 1]
    return batch(ids, targets)


def batch(ids: np.ndarray, targets: np.ndarray) -> Batch:
    """As the trainer takes it."""
    many = int((targets != IGNORE).sum())
    return Batch(
        torch.from_numpy(ids), torch.from_numpy(targets), None, np.arange(len(ids)), many, many
    )
