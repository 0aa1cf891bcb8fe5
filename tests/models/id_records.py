"""Shards and padded batches in memory, from lists of ids."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from regard.data.shards import Shard
from regard.layers.embeddings import Inputs

START, END = 1, 2


def shard(records, vocab_size, kind="records"):
    """Return records of ids, with markers around each, as a shard."""
    marked = [[START, *record, END] for record in records]
    ids = np.array([x for record in marked for x in record], dtype=np.min_scalar_type(vocab_size))
    offsets = np.cumsum([0, *(len(record) for record in marked)])
    return Shard(
        path=Path("memory"), kind=kind, ids=ids, offsets=offsets, vocab_size=vocab_size,
        records=len(marked), tokens=len(ids), symbols=len(ids) - len(marked), bytes=len(ids),
    )  # fmt: skip


def labelled(records, targets, vocab_size, seconds=None):
    """Return a labelled shard; classes of positions are int16."""
    made = shard(records, vocab_size)
    if seconds is not None:
        made = made.paired(shard(seconds, vocab_size))
    return dataclasses.replace(made, targets=targets, aligned=targets.dtype == np.dtype("<i2"))


def padded(rows, width=0, fill=0):
    """Return rows of ids, markers included, as a padded batch."""
    width = width or max(map(len, rows))
    ids = torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
    segments = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return Inputs(ids, segments)


def marked(records, width=0):
    """Return records without markers as a padded batch with markers."""
    return padded([[START, *record, END] for record in records], width)
