"""Batches of labelled records: whole sequences, one to a row, and what is asked of each.

A record is read as `<S> a b c <E>`, two texts as `<S> a b <E> c d <E>`. Sequences of like length
stand together (`packing`), and any step is one call away, as in `batching`. What is longer than
max_len is cut: of two texts, the longer first. Of several views of a record, training takes one,
and another in the next pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import LONGEST_ROW, Batch
from regard.data.columns import Array
from regard.data.filling import IGNORE, Ints
from regard.data.order import Order
from regard.data.packing import Layout, choose_row, lay_out, padding_share, rectangles
from regard.data.shards import Shard, TokenTable

WIDTHS = 6  # of batches, where shapes are to be few
AHEAD = 1 << 16  # records that are measured in order of length, at a time


class Asked:
    """The records of a shard as rows that fit into max_len, ready to be filled into batches; with
    `first`, of several views of a record the first alone.
    """

    def __init__(
        self, shard: Shard, tokenizer: TokenTable | None, max_len: int, *, first: bool = False
    ) -> None:
        if shard.targets is None:
            raise ValueError("nothing is asked of the records of this shard")
        if shard.ids.ndim == 2:  # an image is never cut
            max_len = max(max_len, int(np.diff(shard.offsets).max(initial=1)))
        self.shard, self.max_len = shard, max_len
        self.pad = tokenizer.pad if tokenizer else 0  # segments say what is padding
        self.ids, self.targets = np.asarray(shard.ids), np.asarray(shard.targets)
        self.positional = len(self.targets) == shard.tokens and self.targets.ndim == 1
        self.positional &= self.targets.dtype == np.dtype("<i2")
        offsets, every = np.asarray(shard.offsets), shard.views if first else 1
        self.starts, self.lengths = offsets[:-1:every], np.diff(offsets)[::every]  # (R,)
        if every > 1:
            self.targets = self.targets[::every]
        self.second: tuple[Ints, Ints] | None = None
        if shard.source is not None:
            others = np.asarray(shard.source.offsets)
            begins, lengths = others[:-1] + 1, np.diff(others) - 1  # without `<S>`
            over = np.maximum(self.lengths + lengths - max_len, 0)
            kept = np.minimum(self.lengths, np.maximum(max_len // 2, self.lengths - over))
            self.second = begins, np.minimum(lengths, max_len - kept)
            self.whole = self.lengths + lengths
            self.lengths = kept
        else:
            self.whole, self.lengths = self.lengths, np.minimum(self.lengths, max_len)
        self.sizes: Ints = self.lengths if self.second is None else self.lengths + self.second[1]
        self.cut = int(np.count_nonzero(self.whole > self.sizes))

    def fill(self, records: Ints, layout: Layout) -> Batch:
        """One rectangle of some records, which the layout numbers from 0; `items` has them row by
        row, as the targets are that they have as a whole.
        """
        order = np.lexsort((layout.column, layout.row))
        chosen = records[layout.members[order]]  # (N,)
        shape = layout.n_rows, layout.width
        numbers = self.ids.shape[1:]  # () or (V,)
        ids = np.full((*shape, *numbers), self.pad, self.ids.dtype if numbers else np.int64)
        segments = np.zeros(shape, np.int64)
        here = (layout.row * layout.width + layout.column)[order]
        number = np.ones_like(here) if layout.segment is None else layout.segment[order]
        read, place = stretch(self.starts[chosen], self.lengths[chosen], here)
        ids.reshape(-1, *numbers)[place] = self.ids[read]
        segments.ravel()[place] = np.repeat(number, self.lengths[chosen])
        if self.second is not None and self.shard.source is not None:
            begins, lengths = (x[chosen] for x in self.second)
            more, after = stretch(begins, lengths, here + self.lengths[chosen])
            ids.ravel()[after] = self.shard.source.ids[more]
            segments.ravel()[after] = np.repeat(number, lengths)
        targets = self._targets(chosen, shape, read, place)
        asked = int(np.count_nonzero(known(targets)))
        return Batch(
            ids=torch.from_numpy(ids),
            targets=torch.from_numpy(targets),
            segments=torch.from_numpy(segments),
            items=chosen,
            tokens=asked,
            symbols=asked,
        )

    def _targets(self, chosen: Ints, shape: tuple[int, int], read: Ints, place: Ints) -> Array:
        """(N,) classes, (N, n) labels or values, or (B, T) classes of positions."""
        if self.positional:
            found = np.full(shape, IGNORE, np.int64)
            found.ravel()[place] = self.targets[read]
            return found
        found = self.targets[chosen]
        return found.astype(np.float32 if found.dtype.kind == "f" else np.int64)

    def batches(self, batch_tokens: int, records: Ints | None = None) -> Iterator[Batch]:
        """Every record once, or each of these; those of like length together."""
        chosen = np.arange(len(self.sizes)) if records is None else records
        for first in range(0, len(chosen), AHEAD):
            some = chosen[first : first + AHEAD]
            some = some[np.argsort(-self.sizes[some], kind="stable")]
            for layout in lay_out(self.sizes[some], 0, max(batch_tokens, self.max_len)):
                yield self.fill(some, layout)


def stretch(begins: Ints, lengths: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Where the tokens of (N,) stretches come from, and where they go, end to end."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(begins, lengths) + within, np.repeat(places, lengths) + within


def known(targets: Array | Tensor) -> NDArray[np.bool_]:
    """Which targets are there: neither IGNORE, nor gaps, nor of a class training does not have."""
    found = np.asarray(targets)
    return ~np.isnan(found) if found.dtype.kind == "f" else found >= 0


class QuestionLoader:
    """The training batches of a labelled shard: a pure function of the data, the arguments and the
    step. `batch_tokens` is about how many tokens a step holds, `micro_tokens` how many positions,
    padding included, one micro-batch may hold. A GPU likes `few` shapes better than little padding:
    then a step is one rectangle, in one of WIDTHS widths, or, where a model `packs`, the sequences
    share rows of one length.
    """

    running, dropped = False, 0

    def __init__(
        self,
        shard: Shard,
        tokenizer: TokenTable,
        *,
        max_len: int,
        batch_tokens: int,
        seed: int,
        micro_tokens: int = 0,
        few: bool = False,
        packs: bool = False,
    ) -> None:
        self.micro_tokens, self.views, self.seed = micro_tokens, shard.views, seed
        self.few, self.row = few, 0
        self.table = tokenizer
        self.asked = self.questions(shard, max_len, seed)
        self.items = len(self.asked.sizes) // shard.views
        self.windowed = self.asked.cut
        mean = float(self.asked.sizes.mean())
        self.items_per_step = min(self.items, max(1, round(batch_tokens / mean)))
        self.order = Order(self.items, seed)
        samples = [self._rows(self._positions(n)) for n in range(4)]
        sizes = [self.asked.sizes[rows] for rows in samples]
        if few and packs:
            longest = int(self.asked.sizes.max())
            limit = max(longest, min(LONGEST_ROW, micro_tokens or LONGEST_ROW))
            self.row = choose_row(sizes, longest=longest, limit=limit)
        parts = [part for rows in samples for part in self._layouts(rows)]
        self.padding = padding_share(parts, sum(int(part.sum()) for part in sizes))

    def questions(self, shard: Shard, max_len: int, seed: int) -> Asked:
        """What is asked, ready to be filled into batches."""
        return Asked(shard, self.table, max_len)

    @property
    def steps_per_epoch(self) -> float:
        """How many steps see every record once."""
        return self.items / self.items_per_step

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of step n on one of `world` processes."""
        records = self._rows(self._positions(n, rank, world))
        return [self.asked.fill(records, layout) for layout in self._layouts(records)]

    def records_of(self, n: int, rank: int = 0, world: int = 1) -> list[int]:
        """The numbers of the records of step n, ascending."""
        return sorted(self.order(self._positions(n, rank, world)).tolist())

    def _positions(self, n: int, rank: int = 0, world: int = 1) -> Ints:
        first = n * self.items_per_step
        return np.arange(first + rank, first + self.items_per_step, world)

    def _rows(self, positions: Ints) -> Ints:
        """The records at these positions, each in the view that this pass shows of it."""
        records = self.order(positions)
        if self.views == 1:
            return records
        mixed = records * 2_654_435_761 + (positions // self.items + self.seed) * 40_503
        return records * self.views + (mixed >> 13) % self.views

    def _layouts(self, records: Ints) -> list[Layout]:
        sizes = self.asked.sizes[records]
        if not self.few or self.row or not len(sizes):
            return lay_out(sizes, self.row, self.micro_tokens)
        longest = int(self.asked.sizes.max())
        unit = -(-longest // WIDTHS)
        width = min(longest, -(-int(sizes.max()) // unit) * unit)
        return rectangles(len(sizes), width, self.micro_tokens)
