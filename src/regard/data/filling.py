"""From layouts to tensors: ids, what follows them, and which belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.columns import Array
from regard.data.packing import Layout
from regard.data.shards import Shard, TokenTable
from regard.errors import UserError
from regard.layers.source import Source

IGNORE = -1  # a target that is not scored; models/language_model.py uses the same value

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Spans:
    """Sequences as stretches of `shard.ids`: inputs start ... start + length - 1.

    `source` has as many stretches of `shard.source.ids`, where there are pairs.
    """

    starts: Ints
    lengths: Ints
    skip: Ints | None = None  # targets at the front that are context only
    source: Spans | None = None

    @classmethod
    def of_pairs(cls, shard: Shard, records: Ints) -> Spans:
        """Whole records, `<S>` to the last symbol, and their sources, first symbol to `<E>`; of
        tokens that are numbers, `<S>` to the last.
        """
        assert shard.source is not None
        starts = shard.offsets[records]
        begins = shard.source.offsets[records] + (shard.source.ids.ndim == 1)
        source = cls(begins, shard.source.offsets[records + 1] - begins)
        return cls(starts, shard.offsets[records + 1] - 1 - starts, source=source)

    @property
    def sizes(self) -> Ints:
        """Positions that each sequence takes, with its source."""
        return self.lengths if self.source is None else self.lengths + self.source.lengths

    def take(self, which: slice | Array) -> Spans:
        """Some of the sequences."""
        skip = None if self.skip is None else self.skip[which]
        source = self.source and self.source.take(which)
        return Spans(self.starts[which], self.lengths[which], skip, source)

    def parts(self, most: int) -> Iterator[Spans]:
        """In order, as many sequences at a time as take `most` positions, one at least."""
        ends = np.cumsum(self.sizes)
        begin = done = 0
        while begin < ends.size:
            stop = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
            yield self.take(slice(begin, stop))
            begin, done = stop, int(ends[stop - 1])


class _Cells(NamedTuple):
    """One entry per position that holds something."""

    members: Ints  # how often each is repeated is how long it is
    within: Ints  # its sequence
    read: Ints  # where it comes from in the ids
    place: Ints  # where it goes in the flat rectangle


def _cells(layout: Layout, spans: Spans) -> _Cells:
    starts, lengths = spans.starts[layout.members], spans.lengths[layout.members]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    place = np.repeat(layout.row * layout.width + layout.column, lengths) + within
    return _Cells(lengths, within, np.repeat(starts, lengths) + within, place)


class Filler:
    """Turns layouts of spans into tensors."""

    def __init__(self, shard: Shard, tokenizer: TokenTable) -> None:
        if shard.vocab_size != tokenizer.vocab_size:
            raise UserError(
                f"{shard.path} was written with {shard.vocab_size} tokens, "
                f"this tokenizer has {tokenizer.vocab_size}; build the shard again"
            )
        if not shard.records:
            raise UserError(f"{shard.path} holds no records")
        self.ids, self.offsets = np.asarray(shard.ids), np.asarray(shard.offsets)
        self.source_ids = None if shard.source is None else np.asarray(shard.source.ids)
        self.start, self.pad = tokenizer.start, tokenizer.pad
        self.symbols = torch.tensor(np.asarray(tokenizer.symbols), dtype=torch.int64)
        self.symbols[tokenizer.end] = 1

    def fill(self, layout: Layout, spans: Spans) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """(B, T) ids, targets, segments and positions of the targets in the shard."""
        lengths, within, read, place = _cells(layout, spans)
        shape = (layout.n_rows, layout.width)
        ids = np.full(shape, self.pad, dtype=np.int64)
        targets, positions = np.full((2, *shape), IGNORE, dtype=np.int64)
        ids.ravel()[place] = self.ids[read]
        following = self.ids[read + 1].astype(np.int64)
        scored = np.ones(read.size, dtype=bool)
        # `<S>` is never predicted; some vocabularies have one marker for `<S>` and `<E>`, so an id
        # alone does not tell: it is `<S>` where a record begins.
        maybe = np.flatnonzero(following == self.start)
        begins = self.offsets[np.searchsorted(self.offsets, read[maybe] + 1)]
        scored[maybe] = begins != read[maybe] + 1
        if spans.skip is not None:
            scored &= within >= np.repeat(spans.skip[layout.members], lengths)
        targets.ravel()[place] = np.where(scored, following, IGNORE)
        positions.ravel()[place] = np.where(scored, read + 1, -1)
        segments = None
        if layout.segment is not None:
            segments = np.zeros(shape, dtype=np.int64)
            segments.ravel()[place] = np.repeat(layout.segment, lengths)
        numbers = None if segments is None else torch.from_numpy(segments)
        return (
            torch.from_numpy(ids),
            torch.from_numpy(targets),
            numbers,
            torch.from_numpy(positions),
        )

    def source(self, layout: Layout, spans: Spans) -> Source | None:
        """(B, S) ids, or (B, S, V) numbers, and segments of the sources beside a layout; None where
        there are none.
        """
        if layout.beside is None or spans.source is None or self.source_ids is None:
            return None
        beside = layout.beside
        lengths, _, read, place = _cells(beside, spans.source)
        # padding is id 0, which every vocabulary has; the segments tell it
        numbered = self.source_ids.ndim == 2
        size = beside.n_rows, beside.width, *self.source_ids.shape[1:]
        ids = np.zeros(size, self.source_ids.dtype if numbered else np.int64)
        segments = np.zeros(size[:2], np.int64)
        ids.reshape(-1, *size[2:])[place] = self.source_ids[read]
        which = np.ones_like(beside.row) if beside.segment is None else beside.segment
        segments.ravel()[place] = np.repeat(which, lengths)
        return Source(torch.from_numpy(ids), torch.from_numpy(segments))
