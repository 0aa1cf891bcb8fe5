"""Batches as a pure function of the step number: nothing is stored, any step is one call away.

A record `<S> a b c <E>` asks four questions: inputs `<S> a b c`, targets `a b c <E>`. An item is
such a sequence of at most `max_len` inputs: a whole record, a window of a long one, or a window of
running text. Where a model keeps the records of a row apart (`packs`), the items of a step are
packed whole into rows of one length; otherwise they go into rectangles of similar length
(`packing`). Evaluation (`windows`) lays out the same way and scores every symbol exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.order import Order, draw
from regard.data.packing import Layout, choose_row, lay_out, padding_share
from regard.data.shards import Shard, TokenTable
from regard.errors import UsageError, UserError

IGNORE = -1  # a target that is not scored; models/language_model.py uses the same value
RUNNING = 8  # records longer than this many times max_len, on average, are windowed as running text
LONGEST_ROW = 1024  # packing never makes rows longer than this, or than max_len
SAMPLED_STEPS = 4  # laid out at construction, to choose the row length and to measure padding ...
SAMPLED_ITEMS = 1 << 14  # ... but no more items than this, beyond the first step
AHEAD = 8  # evaluation lays out this many batches together, so that lengths find their like
SHIFTS = 1  # the stream of random words that moves the windows of running text (0 is the order)

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    """A micro-batch: (B, T) `ids` and the `targets` that follow them, IGNORE where not scored.

    `segments` (B, T) numbers the records of a row from 1, 0 being padding; None where rows hold one
    sequence each, padded on the right. `items` are the item numbers inside, `tokens` and `symbols`
    count scored targets and the raw symbols they stand for.
    """

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    items: Ints
    tokens: int
    symbols: int


@dataclass(frozen=True, eq=False)
class EvalBatch:
    """Like Batch; `positions` (B, T) is where each scored target stands in `shard.ids`, else -1."""

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    positions: Tensor


@dataclass(frozen=True, eq=False)
class Spans:
    """Sequences as stretches of `shard.ids`: inputs start ... start + length - 1."""

    starts: Ints
    lengths: Ints
    skip: Ints | None = None  # targets at the front that are context only


class _Filler:
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
        self.start, self.pad = tokenizer.start, tokenizer.pad
        self.symbols = torch.tensor(np.asarray(tokenizer.symbols), dtype=torch.int64)
        self.symbols[tokenizer.end] = 1

    def fill(self, layout: Layout, spans: Spans) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """(B, T) ids, targets, segments and positions of the targets in the shard."""
        starts, lengths = spans.starts[layout.members], spans.lengths[layout.members]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source = np.repeat(starts, lengths) + within
        place = np.repeat(layout.row * layout.width + layout.column, lengths) + within
        shape = (layout.n_rows, layout.width)
        ids = np.full(shape, self.pad, dtype=np.int64)
        targets, positions = np.full((2, *shape), IGNORE, dtype=np.int64)
        ids.ravel()[place] = self.ids[source]
        following = self.ids[source + 1].astype(np.int64)
        scored = np.ones(source.size, dtype=bool)
        # `<S>` is never predicted; some vocabularies have one marker for `<S>` and `<E>`, so an id
        # alone does not tell: it is `<S>` where a record begins.
        maybe = np.flatnonzero(following == self.start)
        begins = self.offsets[np.searchsorted(self.offsets, source[maybe] + 1)]
        scored[maybe] = begins != source[maybe] + 1
        if spans.skip is not None:
            scored &= within >= np.repeat(spans.skip[layout.members], lengths)
        targets.ravel()[place] = np.where(scored, following, IGNORE)
        positions.ravel()[place] = np.where(scored, source + 1, -1)
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


class Loader:
    """The training batches of a shard: a pure function of the data, the arguments and the step.

    `batch_tokens` is about how many inputs a step holds, `micro_tokens` (0: no limit) how many
    positions, padding included, one micro-batch may hold. A step's gradient is the sum over its
    micro-batches, on all ranks, divided by the sum of their symbols.
    """

    items: int  # per epoch
    items_per_step: int  # the same in every step, and never more than an epoch
    windowed: int  # records cut because they have more than max_len inputs
    running: bool  # are items windows of running text, on a grid that moves every epoch?
    row: int  # the length of packed rows; 0 where nothing is packed
    padding: float  # share of positions that hold nothing, measured on the first steps

    def __init__(
        self,
        shard: Shard,
        tokenizer: TokenTable,
        *,
        max_len: int,
        batch_tokens: int,
        seed: int,
        packs: bool,
        micro_tokens: int = 0,
    ) -> None:
        _at_least_one(max_len=max_len, batch_tokens=batch_tokens)
        self._filler = _Filler(shard, tokenizer)
        self.shard, self.max_len, self.seed = shard, max_len, seed
        self.micro_tokens = micro_tokens
        inputs = shard.tokens - shard.records
        self.running = shard.kind == "text" or inputs > RUNNING * max_len * shard.records
        longest = min(max_len, self._index())
        if micro_tokens < 0 or 0 < micro_tokens < longest:
            raise UsageError(
                f"micro_tokens must be 0 or at least {longest}, the length of the longest "
                f"sequence, got {micro_tokens}"
            )
        mean = longest if self.running else inputs / self.items
        self.items_per_step = min(self.items, max(1, round(batch_tokens / mean)))
        self.order = Order(self.items, seed)
        steps = range(max(1, min(SAMPLED_STEPS, SAMPLED_ITEMS // self.items_per_step)))
        samples = [self.spans(self._positions(step))[1].lengths for step in steps]
        self.row = 0
        if packs and not self.running:
            limit = max(LONGEST_ROW, max_len)
            limit = min(limit, micro_tokens or limit)
            self.row = choose_row(samples, longest=longest, limit=limit)
        layouts = [part for x in samples for part in lay_out(x, self.row, micro_tokens)]
        self.padding = padding_share(layouts, sum(int(lengths.sum()) for lengths in samples))

    @property
    def steps_per_epoch(self) -> float:
        """How many steps see every item once."""
        return self.items / self.items_per_step

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of step n on one of `world` processes.

        Over all ranks, a step holds the same items whatever `world` is; a rank beyond the number
        of items gets an empty list.
        """
        items, spans = self.spans(self._positions(n, rank, world))
        batches = []
        for layout in lay_out(spans.lengths, self.row, self.micro_tokens):
            ids, targets, segments, _ = self._filler.fill(layout, spans)
            scored = targets[targets != IGNORE]
            symbols = int(self._filler.symbols[scored].sum())
            members = items[layout.members]
            batches.append(
                Batch(
                    ids=ids,
                    targets=targets,
                    segments=segments,
                    items=members,
                    tokens=scored.numel(),
                    symbols=symbols,
                )
            )
        return batches

    def records_of(self, n: int, rank: int = 0, world: int = 1) -> list[int]:
        """The numbers of the records that step n reads from, ascending."""
        _, spans = self.spans(self._positions(n, rank, world))
        first = self.shard.record_of(spans.starts).tolist()
        last = self.shard.record_of(spans.starts + spans.lengths - 1).tolist()
        return sorted({r for a, b in zip(first, last, strict=True) for r in range(a, b + 1)})

    def spans(self, positions: Ints) -> tuple[Ints, Spans]:
        """Positions in the endless stream of samples -> item numbers, and where they lie."""
        items = self.order(positions)
        offsets = self.shard.offsets
        if self.running:
            words = draw(self.seed, positions // self.items, stream=SHIFTS)
            shifts = (words % np.uint64(self._shifts)).astype(np.int64)
            starts = items * self.max_len + shifts
            return items, Spans(starts, np.minimum(self.max_len, self.shard.tokens - 1 - starts))
        if self._pieces is None:
            starts = offsets[items]
            return items, Spans(starts, offsets[items + 1] - 1 - starts)
        records = np.searchsorted(self._pieces, items, side="right") - 1
        starts = offsets[records] + (items - self._pieces[records]) * self.max_len
        return items, Spans(starts, np.minimum(self.max_len, offsets[records + 1] - 1 - starts))

    def _positions(self, n: int, rank: int = 0, world: int = 1) -> Ints:
        if n < 0 or not 0 <= rank < world:
            raise ValueError(
                f"step must be at least 0 and rank in [0, world), "
                f"got step {n}, rank {rank} and world {world}"
            )
        first = n * self.items_per_step
        return np.arange(first + rank, first + self.items_per_step, world)

    def _index(self) -> int:
        """Count the items; the inputs of the longest record, or of the whole running text."""
        shard, max_len = self.shard, self.max_len
        longest, self.windowed = 0, 0
        for _, lengths in shard.lengths():
            longest = max(longest, int(lengths.max()) - 1)
            self.windowed += int(np.count_nonzero(lengths - 1 > max_len))
        self._pieces: Ints | None = None  # (R + 1,) items before each record; None: one each
        if self.running:
            # Full windows for every shift of the grid; with this many shifts every token is seen.
            self.items = max(1, shard.tokens // max_len - 1)
            self._shifts = max(1, shard.tokens - self.items * max_len)
            return shard.tokens - 1
        self.items = shard.records
        if self.windowed:
            self._pieces = np.zeros(shard.records + 1, dtype=np.int64)
            for first, lengths in shard.lengths():
                cuts = self._pieces[first + 1 : first + 1 + lengths.size]
                cuts[:] = -(-(lengths - 1) // max_len)
            np.cumsum(self._pieces, out=self._pieces)
            self.items = int(self._pieces[-1])
        return longest


def _at_least_one(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")


def windows(
    shard: Shard,
    tokenizer: TokenTable,
    *,
    max_len: int,
    stride: int,
    batch_tokens: int,
    packs: bool,
) -> Iterator[EvalBatch]:
    """Batches of at most `batch_tokens` positions (one row at least) that score every target once.

    What is longer than `max_len` goes through windows that advance by `stride`: the first scores
    all its targets, later ones only those not scored before. Running text is one stream.
    """
    _at_least_one(max_len=max_len, stride=stride, batch_tokens=batch_tokens)
    if stride > max_len:
        raise UsageError(f"stride must lie in [1, max_len = {max_len}], got {stride}")
    filler = _Filler(shard, tokenizer)
    return _evaluate(shard, filler, max_len, stride, batch_tokens, packs and shard.kind != "text")


def _evaluate(
    shard: Shard, filler: _Filler, max_len: int, stride: int, batch_tokens: int, packs: bool
) -> Iterator[EvalBatch]:
    longest = min(max_len, max(int(lengths.max()) - 1 for _, lengths in shard.lengths()))
    limit = max(longest, min(batch_tokens, max(LONGEST_ROW, max_len)))
    row = 0
    for spans in _eval_spans(shard, max_len, stride, AHEAD * batch_tokens):
        if packs and not row:
            row = choose_row([spans.lengths], longest=longest, limit=limit)
        for layout in lay_out(spans.lengths, row, batch_tokens):
            ids, targets, segments, positions = filler.fill(layout, spans)
            yield EvalBatch(ids=ids, targets=targets, segments=segments, positions=positions)


def _eval_spans(shard: Shard, max_len: int, stride: int, most: int) -> Iterator[Spans]:
    """Windows that score every target once, in order, about `most` inputs at a time."""
    stream = [(0, np.array([shard.tokens]))]  # running text: as if it were one record
    for first, sizes in stream if shard.kind == "text" else shard.lengths():
        inputs = sizes - 1
        counts = 1 + -(-np.maximum(inputs - max_len, 0) // stride)  # windows of each record
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(shard.offsets[first : first + sizes.size], counts) + number * stride
        lengths = np.minimum(max_len, np.repeat(inputs, counts) - number * stride)
        skip = np.where(number > 0, max_len - stride, 0)
        ends = np.cumsum(lengths)
        begin = done = 0
        while begin < lengths.size:
            stop = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
            part = slice(begin, stop)
            yield Spans(starts[part], lengths[part], skip[part])
            begin, done = stop, int(ends[stop - 1])
