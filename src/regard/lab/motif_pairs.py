"""Sequences with two motifs that belong together: whether they agree is the label.

DNA of A and T holds a motif of G and C twice, each time as one of two variants with the same
letters in another order. The label says whether both are the same variant: the exclusive or of two
coin tosses, so that neither motif alone tells anything, nor does any letter's frequency, and only
what relates the two can be right. The motifs are easy to find on purpose: distance is what is
asked about.

A model reads `<S> letters ?` and is asked for the label that follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import IGNORE, Batch
from regard.data.shards import Shard
from regard.models.motifs import DNA

START, ASK, DIFFERENT, SAME = range(DNA.size, DNA.size + 4)  # after the ids of A, C, G, T
VOCABULARY = DNA.size + 4
BACKGROUND = DNA.encode("AT")
VARIANTS = np.stack([DNA.encode("GGCC"), DNA.encode("CCGG")])  # (2, W)
WIDTH = VARIANTS.shape[1]
SLACK = 8  # places by which the pair is moved at random

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """(N, L) letters with a pair of motifs each, where the pair begins (N,), and (N,) labels."""

    letters: Ids
    begins: Ids
    labels: NDArray[np.bool_]  # are both motifs the same variant?

    @property
    def ids(self) -> Ids:
        """(N, L + 2): as models read them, from `<S>` to the question."""
        return np.pad(self.letters, ((0, 0), (1, 1)), constant_values=((0, 0), (START, ASK)))

    @property
    def aligned(self) -> Ids:
        """(N, L - SLACK): from the first letter of the first motif to the last of the second."""
        width = self.letters.shape[1] - SLACK
        return np.take_along_axis(self.letters, self.begins[:, None] + np.arange(width), axis=1)

    def batch(self) -> Batch:
        """Only the label is asked for, after the question."""
        ids, many = torch.from_numpy(self.ids), len(self.labels)
        targets = torch.full_like(ids, IGNORE)
        targets[:, -1] = torch.from_numpy(np.where(self.labels, SAME, DIFFERENT))
        return Batch(ids, targets, None, np.arange(many), many, many)

    def shard(self, label: bool) -> Shard:
        """The sequences with this label, as records in memory; the question ends them."""
        ids = self.ids[self.labels == label]
        records, length = ids.shape
        return Shard(
            path=Path("memory"),
            kind="records",
            ids=ids.ravel(),
            offsets=np.arange(records + 1) * length,
            vocab_size=VOCABULARY,
            records=records,
            tokens=ids.size,
            symbols=records * (length - 1),
            bytes=records * (length - 2),
        )


def length_of(distance: int) -> int:
    """Letters in a sequence whose motifs are so far apart."""
    return int(distance - 1 + 2 * WIDTH + SLACK)


def draw(distance: int, many: int, random: np.random.Generator) -> Pairs:
    """Sequences in which the second motif begins `distance` letters after the last of the first;
    as many of one label as of the other, or one more.
    """
    if distance < 1 or many < 1:
        raise ValueError(f"distance and many must be 1 or more, got {distance} and {many}")
    letters = random.choice(BACKGROUND, (many, length_of(distance)))  # (N, L)
    labels = random.permutation(many) % 2 == 1
    first = random.integers(0, 2, many)  # which variant
    second = np.where(labels, first, 1 - first)
    begins = random.integers(0, SLACK + 1, many)
    within = begins[:, None] + np.arange(WIDTH)  # (N, W)
    np.put_along_axis(letters, within, VARIANTS[first], axis=1)
    np.put_along_axis(letters, within + WIDTH - 1 + distance, VARIANTS[second], axis=1)
    return Pairs(letters, begins, labels)
