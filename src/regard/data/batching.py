"""Batches as a pure function of the step number: nothing is stored, any step is one call away.

A record `<S> a b c <E>` asks four questions: inputs `<S> a b c`, targets `a b c <E>`. An item is
such a sequence of at most `max_len` inputs: a whole record, a window of a long one, or a window of
running text. Where a model keeps the records of a row apart (`packs`), the items of a step are
packed whole into rows of one length; otherwise they go into rectangles of similar length
(`packing`). Evaluation (`windows`) lays out the same way and scores every symbol exactly once.

Records that have a source (pairs) are never cut: an item is a pair, its target and its source lie
in the same row of two rectangles, and a source `a b c` is read as `a b c <E>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from regard.data.filling import IGNORE as IGNORE
from regard.data.filling import Filler, Ints, Spans
from regard.data.order import Order, draw
from regard.data.packing import (
    Layout,
    choose_row,
    choose_rows,
    lay_out,
    lay_out_pairs,
    padding_share,
    rectangles,
)
from regard.data.shards import Shard, TokenTable
from regard.errors import UsageError, UserError
from regard.layers.source import Source

RUNNING = 8  # records longer than this many times max_len, on average, are windowed as running text
LONGEST_ROW = 1024  # packing never makes rows longer than this, or than max_len
SAMPLED_STEPS = 4  # laid out at construction, to choose the row length and to measure padding ...
SAMPLED_ITEMS = 1 << 14  # ... but no more items than this, beyond the first step
AHEAD = 8  # evaluation lays out this many batches together, so that lengths find their like
POOL = 32  # steps whose pairs are sorted by length together, where they cannot be packed
POOLS = 2  # the stream of random words that shuffles those steps
SHIFTS = 1  # the stream of random words that moves the windows of running text (0 is the order)


@dataclass(frozen=True, eq=False)
class Batch:
    """A micro-batch: (B, T) `ids` and the `targets` that follow them, IGNORE where not scored.

    `segments` (B, T) numbers the records of a row from 1, 0 being padding; None where rows hold one
    sequence each, padded on the right. `items` are the item numbers inside, `tokens` and `symbols`
    count scored targets and the raw symbols they stand for. `source` has what the records of each
    row answer, where they come in pairs.
    """

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    items: Ints
    tokens: int
    symbols: int
    source: Source | None = None  # of the targets, where there are pairs

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Ids, targets, segments and the source's ids and segments: what an objective takes."""
        source = (None, None) if self.source is None else (self.source.ids, self.source.segments)
        return (self.ids, self.targets, self.segments, *source)

    def with_tensors(self, *tensors: Tensor | None) -> Batch:
        """The same batch with other `tensors`."""
        ids, targets, segments, sources, numbers = tensors
        assert ids is not None and targets is not None
        source = None if sources is None or numbers is None else Source(sources, numbers)
        return replace(self, ids=ids, targets=targets, segments=segments, source=source)


@dataclass(frozen=True, eq=False)
class EvalBatch:
    """Like Batch; `positions` (B, T) is where each scored target stands in `shard.ids`, else -1."""

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    positions: Tensor
    source: Source | None = None


class Loader:
    """The training batches of a shard: a pure function of the data, the arguments and the step.

    `batch_tokens` is about how many inputs a step holds, `micro_tokens` (0: no limit) how many
    positions, padding included, one micro-batch may hold. A step's gradient is the sum over its
    micro-batches, on all ranks, divided by the sum of their symbols. Of pairs, `batch_tokens`
    counts the targets and `micro_tokens` both sides; `max_ratio` (0: none) is how many times the
    tokens of its shorter side the longer may have. Pairs of which all sources have one length may
    be asked for in `few` shapes: a step is then one rectangle, always of the same width.
    """

    items: int  # per epoch
    items_per_step: int  # on average, never more than an epoch; the same in every step but of pools
    windowed: int  # records cut because they have more than max_len inputs
    dropped: int  # pairs left out: a side has more than max_len tokens, or max_ratio the other's
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
        max_ratio: float = 0.0,
        few: bool = False,
    ) -> None:
        _at_least_one(max_len=max_len, batch_tokens=batch_tokens)
        self._filler = Filler(shard, tokenizer)
        self.shard, self.max_len, self.seed = shard, max_len, seed
        self.micro_tokens = micro_tokens
        inputs = shard.tokens - shard.records
        long = shard.kind == "text" or inputs > RUNNING * max_len * shard.records
        self.running = long and shard.source is None
        self.windowed = self.dropped = 0
        self._pieces: Ints | None = None  # (R + 1,) items before each record; None: one each
        self._kept: Ints | None = None  # the records of the items; None: all of them
        self._widths = 0, 0  # of both sides, where those of all steps are the same
        if shard.source is not None:
            inputs, sides = self._index_pairs(shard.source, max_ratio)
            longest, widths = sum(sides), (-(-sides[0] // 8) * 8, sides[1])
            self._widths = widths if few else (0, 0)
        else:
            longest = min(max_len, self._index())
        if micro_tokens < 0 or 0 < micro_tokens < longest:
            raise UsageError(
                f"micro_tokens must be 0 or at least {longest}, the length of the longest "
                f"{'sequence' if shard.source is None else 'target and source'}, got {micro_tokens}"
            )
        mean = longest if self.running else inputs / self.items
        self.items_per_step = min(self.items, max(1, round(batch_tokens / mean)))
        self.order = Order(self.items, seed)
        self._pool, self._pooled = 1, (-1, list[Ints]())
        # of texts alone: pictures take far more room than what is said of them
        if shard.source is not None and shard.source.ids.ndim == 1 and not (packs or few):
            self._pool = max(1, min(POOL, self.items // self.items_per_step))
        steps = range(max(1, min(SAMPLED_STEPS, SAMPLED_ITEMS // self.items_per_step)))
        samples = [self.spans(self._positions(step))[1] for step in steps]
        self._rows = 0, 0
        if packs and not self.running:
            limit = max(LONGEST_ROW, max_len)
            limit = min(limit, micro_tokens or limit)
            self._rows = _choose_rows(samples, longest=longest, limit=limit)
        self.row = self._rows[0]
        layouts = [part for x in samples for part in self._layouts(x)]
        self.padding = padding_share(layouts, sum(int(spans.sizes.sum()) for spans in samples))

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
        for layout in self._layouts(spans):
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
                    source=self._filler.source(layout, spans),
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
        if self.shard.source is not None:
            records = items if self._kept is None else self._kept[items]
            return items, Spans.of_pairs(self.shard, records)
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
        if self._pool > 1:
            return self._alike(n)[rank::world]
        first = n * self.items_per_step
        return np.arange(first + rank, first + self.items_per_step, world)

    def _alike(self, n: int) -> Ints:
        """The positions of a step whose pairs have like lengths: those of a pool of steps, in order
        of length, are shared out to have like sums, and the steps of the pool then shuffled.
        """
        number, place = divmod(n, self._pool)
        if self._pooled[0] != number:
            size = self._pool * self.items_per_step
            positions = np.arange(number * size, (number + 1) * size)
            _, spans = self.spans(positions)
            assert spans.source is not None
            order = np.lexsort((spans.source.lengths, spans.lengths))
            ends = np.cumsum(spans.sizes[order])
            cuts = np.searchsorted(ends, ends[-1] * np.arange(1, self._pool) / self._pool)
            parts = np.split(positions[order], cuts)
            if not all(part.size for part in parts):
                parts = np.array_split(positions[order], self._pool)
            steps = np.arange(number * self._pool, (number + 1) * self._pool)
            shuffled = np.argsort(draw(self.seed, steps, stream=POOLS))
            self._pooled = number, [parts[i] for i in shuffled.tolist()]
        return self._pooled[1][place]

    def _layouts(self, spans: Spans) -> list[Layout]:
        width, beside = self._widths
        if width and spans.lengths.size:
            return rectangles(spans.lengths.size, width, self.micro_tokens, beside)
        return _lay_out(spans, self._rows, self.micro_tokens)

    def _index(self) -> int:
        """Count the items; the inputs of the longest record, or of the whole running text."""
        shard, max_len = self.shard, self.max_len
        longest = 0
        for _, lengths in shard.lengths():
            longest = max(longest, int(lengths.max()) - 1)
            self.windowed += int(np.count_nonzero(lengths - 1 > max_len))
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

    def _index_pairs(self, source: Shard, max_ratio: float) -> tuple[int, list[int]]:
        """Choose the pairs; the inputs of their targets, and the longest target and source."""
        kept, inputs, longest = [], 0, np.zeros(2, dtype=np.int64)
        for (first, targets), (_, sources) in zip(
            self.shard.lengths(), source.lengths(), strict=True
        ):
            sides = np.stack([targets, sources]) - 1  # with one marker each
            if source.ids.ndim == 2:  # pictures are never too long
                sides[1] += 1
                fits = sides[0] <= self.max_len
            else:
                fits = sides.max(axis=0) <= self.max_len
            if max_ratio and source.ids.ndim == 1:
                symbols = np.maximum(sides - 1, 1)
                fits &= symbols.max(axis=0) <= max_ratio * symbols.min(axis=0)
            kept.append(first + np.flatnonzero(fits))
            inputs += int(sides[0, fits].sum())
            longest = np.maximum(longest, sides[:, fits].max(axis=1, initial=0))
        records = np.concatenate(kept)
        self.items, self.dropped = records.size, self.shard.records - records.size
        if not self.items:
            raise UserError(
                f"none of the {self.dropped:,} training pairs is left: each has a side of more "
                f"than model.max_len = {self.max_len} tokens"
                + (f" or of more than {max_ratio:g} times the other's" if max_ratio else "")
            )
        self._kept = records if self.dropped else None
        return inputs, longest.tolist()


def _choose_rows(samples: Sequence[Spans], *, longest: int, limit: int) -> tuple[int, int]:
    """Widths of packed rows, of targets and of their sources (0: there are none)."""
    sources = [spans.source.lengths for spans in samples if spans.source is not None]
    targets = [spans.lengths for spans in samples]
    if not sources:
        return choose_row(targets, longest=longest, limit=limit), 0
    firsts, seconds = (np.concatenate(side) for side in (targets, sources))
    return choose_rows(firsts, seconds, limit=limit)


def _lay_out(spans: Spans, rows: tuple[int, int], most: int) -> list[Layout]:
    """Packed into rows of these widths (0, 0: bucketed), `most` positions at a time."""
    if spans.source is None:
        return lay_out(spans.lengths, rows[0], most)
    return lay_out_pairs(spans.lengths, spans.source.lengths, rows, most)


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
    all its targets, later ones only those not scored before. Running text is one stream. A pair is
    never cut: one with a side longer than `max_len` makes a batch of its own.
    """
    _at_least_one(max_len=max_len, stride=stride, batch_tokens=batch_tokens)
    if stride > max_len:
        raise UsageError(f"stride must lie in [1, max_len = {max_len}], got {stride}")
    filler = Filler(shard, tokenizer)
    return _evaluate(shard, filler, max_len, stride, batch_tokens, packs and shard.kind != "text")


def _evaluate(
    shard: Shard, filler: Filler, max_len: int, stride: int, batch_tokens: int, packs: bool
) -> Iterator[EvalBatch]:
    longest = min(max_len, max(int(lengths.max()) - 1 for _, lengths in shard.lengths()))
    limit = max(longest, min(batch_tokens, max(LONGEST_ROW, max_len)))
    rows = 0, 0
    numbered = shard.source is not None and shard.source.ids.ndim == 2
    for whole in _eval_spans(shard, max_len, stride, AHEAD * batch_tokens):
        for spans in _apart(whole, max_len, numbered):
            if packs and not any(rows):
                rows = _choose_rows([spans], longest=longest, limit=limit)
            for layout in _lay_out(spans, rows, batch_tokens):
                ids, targets, segments, positions = filler.fill(layout, spans)
                source = filler.source(layout, spans)
                yield EvalBatch(
                    ids=ids, targets=targets, segments=segments, positions=positions, source=source
                )


def _apart(spans: Spans, max_len: int, numbered: bool) -> Iterator[Spans]:
    """Those that fit together, then every pair by itself that does not fit in `max_len`; sources
    that are `numbered`, not texts, always fit.
    """
    if spans.source is None:
        yield spans
        return
    sources = np.zeros_like(spans.lengths) if numbered else spans.source.lengths
    long = np.maximum(spans.lengths, sources) > max_len
    if not long.all():
        yield spans.take(~long)
    for i in np.flatnonzero(long):
        yield spans.take(slice(i, i + 1))


def _eval_spans(shard: Shard, max_len: int, stride: int, most: int) -> Iterator[Spans]:
    """Windows that score every target once, in order, about `most` inputs at a time."""
    stream = [(0, np.array([shard.tokens]))]  # running text: as if it were one record
    for first, sizes in stream if shard.kind == "text" else shard.lengths():
        if shard.source is not None:
            yield from Spans.of_pairs(shard, np.arange(first, first + sizes.size)).parts(most)
            continue
        inputs = sizes - 1
        counts = 1 + -(-np.maximum(inputs - max_len, 0) // stride)  # windows of each record
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(shard.offsets[first : first + sizes.size], counts) + number * stride
        lengths = np.minimum(max_len, np.repeat(inputs, counts) - number * stride)
        skip = np.where(number > 0, max_len - stride, 0)
        yield from Spans(starts, lengths, skip).parts(most)
