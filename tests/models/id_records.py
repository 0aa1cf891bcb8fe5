"""Shards in memory from lists of ids, as tests want them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regard.data.shards import Shard

START, END = 1, 2


def shard(records, vocab_size, kind="records"):
    """Records of ids, the markers put around each."""
    whole = [[START, *record, END] for record in records]
    ids = np.array([x for record in whole for x in record], dtype=np.min_scalar_type(vocab_size))
    offsets = np.cumsum([0, *(len(record) for record in whole)])
    return Shard(
        path=Path("memory"), kind=kind, ids=ids, offsets=offsets, vocab_size=vocab_size,
        records=len(whole), tokens=len(ids), symbols=len(ids) - len(whole), bytes=len(ids),
    )  # fmt: skip
