"""Samples of a shard: what a validation reads when reading all of it would take too long.

Records are drawn by the seed and stratified by their targets, so that a table sorted by label gives
the same mixture of classes as a shuffled one. Of running text, evenly spaced blocks are read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.data.order import draw
from regard.data.shards import Shard

DRAWN = 5  # the stream of random words that orders records before some are taken

Ints = NDArray[np.int64]


def sample(shard: Shard, tokens: int, seed: int, *, block: int) -> Shard:
    """Return about `tokens` of a shard: records drawn by `seed`, or `block` tokens of running text
    at a time, evenly spaced. A shard that has no more is returned whole.
    """
    if tokens >= shard.tokens:
        return shard
    if shard.kind == "text":
        return blocks(shard, max(1, tokens // block), block)
    count = max(1, round(tokens * shard.records / shard.tokens / shard.views))
    chosen = np.sort(drawn_order(shard, seed)[:count])
    return shard.take((chosen[:, None] * shard.views + np.arange(shard.views)).ravel())


def drawn_order(shard: Shard, seed: int) -> Ints:
    """Return the numbers of all records, several views counting as one, in an order drawn by the
    seed: a sample is a beginning of it.

    In every beginning of that order each class has its share, rounded up or down: the k-th of the n
    records of a class, in random order, comes where (k - 1/2) / n of all records are before it.
    """
    every = shard.records // shard.views
    by_chance = draw(seed, np.arange(every), stream=DRAWN)
    label = _classes(shard, every)
    sorted_ = np.lexsort((by_chance, label))
    sizes = np.bincount(label)
    within = np.arange(every) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.empty(every)
    place[sorted_] = (within + 0.5) / np.repeat(sizes, sizes)
    return np.lexsort((by_chance, place))


def _classes(shard: Shard, every: int) -> Ints:
    """The class of every record: its row of labels; one class where most targets are different, as
    values are, or there are none, or one for each position.
    """
    targets = shard.targets
    if targets is None or len(targets) != shard.records:
        return np.zeros(every, np.int64)
    rows = np.asarray(targets[:: shard.views]).reshape(every, -1)
    found, label = np.unique(rows, axis=0, return_inverse=True)
    return np.zeros(every, np.int64) if 2 * len(found) > every else label.ravel()


def blocks(shard: Shard, count: int, size: int) -> Shard:
    """Return `count` blocks of `size` tokens of running text, evenly spaced.

    Each is read from its own first token on; that token is context and is not scored.
    """
    size = max(2, min(size, shard.tokens))
    room = shard.tokens - size
    starts = np.round((np.arange(count) + 0.5) * room / count).astype(np.int64)
    ids = np.concatenate([np.asarray(shard.ids[start : start + size]) for start in starts.tolist()])
    return replace(
        shard,
        kind="blocks",
        ids=ids,
        offsets=np.arange(count + 1) * size,
        records=count,
        tokens=len(ids),
        symbols=0,
        bytes=0,
    )
