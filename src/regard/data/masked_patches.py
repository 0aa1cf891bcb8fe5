"""Series with hidden patches, to train a model that fills them in.

Neighboring patches are hidden together, in spans of one to four, so that a line between the known
values around a gap does not solve the task (He et al. 2022, arXiv:2111.06377, hide most of an image
for the same reason).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from regard.data.batching import (
    MASK_SHARE,
    MASKS,
    OTHERS,
    Batch,
    Ints,
    LabelledExamples,
    Layout,
    draw,
    known,
)
from regard.data.shards import Array, Shard
from regard.tokenizers import Tokenizer

SPAN = 4  # patches that are hidden together, at most
RESOLUTION = 2.0**-53


class MaskedPatches(LabelledExamples):
    """The records of a shard with hidden patches: their values are missing, and the targets are
    those values, NaN elsewhere.

    Without `draws` a record always has the same patches hidden: validation uses the default share
    and seed for all runs.
    """

    def __init__(
        self,
        shard: Shard,
        tokenizer: Tokenizer,
        max_len: int,
        *,
        share: float = MASK_SHARE,
        seed: int = 0,
    ) -> None:
        no_targets = np.zeros(shard.records, np.int32)
        super().__init__(
            replace(shard, targets=no_targets, aligned=False, views=1), tokenizer, max_len
        )
        self.share, self.seed = share, seed

    def fill(self, records: Ints, layout: Layout, draws: Ints | None = None) -> Batch:
        """Fill a layout; `draws` (N,) are the positions of the records in the stream of samples."""
        batch = super().fill(records, layout)
        occasions = (records if draws is None else draws)[layout.members]
        rows = np.empty(layout.n_rows, np.int64)
        rows[layout.row] = occasions
        assert batch.segments is not None
        inside = batch.segments.numpy() > 0
        hidden = self.choose(rows, inside)
        ids = batch.ids.numpy().copy()
        targets = np.full((*ids.shape[:2], ids.shape[2] - 1), np.nan, np.float32)
        targets[hidden] = ids[hidden][:, 1:]
        ids[hidden, 1:] = np.nan
        count = int(np.count_nonzero(known(targets)))
        return replace(
            batch,
            ids=torch.from_numpy(ids),
            targets=torch.from_numpy(targets),
            tokens=count,
            symbols=count,
        )

    def choose(self, occasions: Ints, inside: Array) -> Array:
        """Return which tokens (B, N) are hidden: never `<S>`, at least one patch of a series and,
        of two or more, not all.
        """
        count, length = inside.shape
        counters = occasions[:, None] * self.max_len + np.arange(length)
        uniform = (draw(self.seed, counters, stream=MASKS) >> np.uint64(11)) * RESOLUTION
        spans = 1 + (draw(self.seed, counters, stream=OTHERS) % np.uint64(SPAN)).astype(np.int64)
        starts = uniform < self.share / ((1 + SPAN) / 2)
        hidden = np.zeros((count, length), bool)
        for offset in range(SPAN):
            hidden[:, offset:] |= (starts & (spans > offset))[:, : length - offset]
        free = inside.copy()
        free[:, 0] = False
        hidden &= free
        order = np.where(free, uniform, 2.0)
        rows = np.arange(count)
        hidden[rows, order.argmin(1)] |= free.any(1)
        highest = np.where(free, uniform, -1.0).argmax(1)
        hidden[rows, highest] &= free.sum(1) < 2
        return hidden
