"""Batches for masked pre-training: some tokens are hidden, and the rest is to say which they were.

Of every hundred tokens 15 are asked. Of those, 80% are shown as `<mask>`, 10% as any other token
and 10% as they are, so that a model may not rely on what it sees (Devlin et al. 2019,
arXiv:1810.04805, section 3.1). Which, is drawn anew each time that a record is shown (Liu et al.
2019, arXiv:1907.11692, section 4.1), each token for itself, from the seed and the record's place in
the stream of samples alone: any step is one call away, in however many processes. Markers and
unknown tokens are never asked. What is longer than max_len is cut into pieces of equal length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regard.data.batching import Batch
from regard.data.columns import Array
from regard.data.filling import IGNORE, Ints
from regard.data.order import draw
from regard.data.packing import Layout
from regard.data.questions import Asked, QuestionLoader, stretch
from regard.data.shards import Shard
from regard.tokens import Tokenizer

SHARE = 0.15  # of the tokens are asked
HIDDEN, SHOWN = 0.8, 0.9  # shares of these below which one is a mask, and any other token
MASKS, OTHERS = 3, 4  # streams of random words: which tokens are asked, what some are shown as


class Masked(Asked):
    """The records of a shard, whole or in pieces, with some tokens hidden.

    Without `draws` a record is always shown with the same masks: so validation does it, with the
    share and the seed that stand here, whatever a run is trained with.
    """

    def __init__(
        self,
        shard: Shard,
        tokenizer: Tokenizer,
        max_len: int,
        *,
        share: float = SHARE,
        seed: int = 0,
    ) -> None:
        nothing = np.zeros(shard.records, np.int32)  # is asked of a record as a whole
        super().__init__(replace(shard, targets=nothing, views=1), tokenizer, max_len)
        self.share, self.seed, self.mask = share, seed, tokenizer.mask
        if self.second is None:
            self.starts, self.lengths = pieces(np.asarray(shard.offsets), max_len)
            self.sizes, self.cut = self.lengths, 0
            self.targets = np.zeros(len(self.sizes), np.int32)
        self.plain = np.ones(tokenizer.vocab_size, bool)  # (V,) which tokens may be asked
        self.plain[list(tokenizer.names)] = False
        self.others = np.flatnonzero(self.plain)

    def fill(self, records: Ints, layout: Layout, draws: Ints | None = None) -> Batch:
        """See Asked; `draws` (N,) number the occasions on which these records are shown."""
        batch = super().fill(records, layout)
        numbers = (records if draws is None else draws)[layout.members]
        here = layout.row * layout.width + layout.column
        words, places = stretch(numbers * self.max_len, self.sizes[records[layout.members]], here)
        which = np.zeros(batch.ids.shape, np.int64)  # of the random words, of every position
        which.ravel()[places] = words
        ids, targets = self.hide(batch.ids.numpy(), which)
        asked = int(np.count_nonzero(targets >= 0))
        return replace(
            batch,
            ids=torch.from_numpy(ids),
            targets=torch.from_numpy(targets),
            tokens=asked,
            symbols=asked,
        )

    def hide(self, ids: Array, places: Ints) -> tuple[Array, Array]:
        """(B, T) ids as they are shown by the random words at these (B, T) places of the stream,
        and the (B, T) tokens that are asked, IGNORE elsewhere.
        """
        chance = (draw(self.seed, places, stream=MASKS) >> np.uint64(11)) * 2.0**-53
        asked = self.plain[ids] & (chance < self.share)
        how = chance / self.share  # uniform in [0, 1) where a token is asked
        words = draw(self.seed, places, stream=OTHERS) % np.uint64(len(self.others))
        other = self.others[words.astype(np.int64)]
        shown = np.where(asked & (how < SHOWN), other, ids)
        shown = np.where(asked & (how < HIDDEN), self.mask, shown)
        return shown, np.where(asked, ids, IGNORE)


def pieces(offsets: Ints, most: int) -> tuple[Ints, Ints]:
    """Starts and lengths of records that begin at (R + 1,) offsets, those longer than `most` in as
    few pieces as will do, equal but for one token.
    """
    whole = np.diff(offsets)
    count = np.maximum(1, -(-whole // most))
    record = np.repeat(np.arange(len(whole)), count)
    within = np.arange(len(record)) - np.repeat(np.cumsum(count) - count, count)
    each, over = (whole // count)[record], (whole % count)[record]
    starts = offsets[:-1][record] + within * each + np.minimum(within, over)
    return starts, each + (within < over)


class MaskedLoader(QuestionLoader):
    """The training batches of a shard whose tokens are to be filled in: see QuestionLoader."""

    asked: Masked

    def __init__(self, shard: Shard, tokenizer: Tokenizer, *, share: float, **options: Any) -> None:
        self.share, self.tokenizer = share, tokenizer
        super().__init__(replace(shard, views=1), tokenizer, **options)

    def questions(self, shard: Shard, max_len: int, seed: int) -> Masked:
        """See QuestionLoader."""
        return Masked(shard, self.tokenizer, max_len, share=self.share, seed=seed)

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """See QuestionLoader."""
        positions = self._positions(n, rank, world)
        records = self._rows(positions)
        return [self.asked.fill(records, part, positions) for part in self._layouts(records)]
