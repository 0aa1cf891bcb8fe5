"""The order of the data as a keyed bijection: nothing is shuffled or stored, every position is
one call away.

The stream of samples is endless. Epoch e is a pseudo-random permutation of the items, keyed by
(seed, e): a Feistel network over an even power of two, with values that fall outside [0, n) sent
through again until they fall inside ("cycle walking": Black and Rogaway 2002, "Ciphers with
arbitrary finite domains"). A Feistel network is a bijection whatever its round function (Luby and
Rackoff 1988, "How to construct pseudorandom permutations from pseudorandom functions"); ours is
built from the finaliser of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
number generators").

Batches as a pure function of the step number: nothing is stored, any step is one call away.

A record `<S> a b c <E>` asks four questions: inputs `<S> a b c`, targets `a b c <E>`. An item is
such a sequence of at most `max_len` inputs: a whole record, a window of a long one, or a window of
running text. Where a model keeps the records of a row apart (`packs`), the items of a step are
packed whole into rows of one length; otherwise they go into rectangles of similar length
(`packing`). Evaluation (`windows`) lays out the same way and scores every symbol exactly once.

Records that have a source (pairs) are never cut: an item is a pair, its target and its source lie
in the same row of two rectangles, and a source `a b c` is read as `a b c <E>`.

Samples of a shard: what a validation reads when reading all of it would take too long.

Records are drawn by the seed and stratified by their targets, so that a table sorted by label gives
the same mixture of classes as a shuffled one. Of running text, evenly spaced blocks are read.

Batches of labelled records: whole sequences, one to a row, and what is asked of each.

A record is read as `<S> a b c <E>`, two texts as `<S> a b <E> c d <E>`. Sequences of like length
stand together (`packing`), and any step is one call away, as in `batching`. What is longer than
max_len is cut: of two texts, the longer first. Of several views of a record, training takes one,
and another in the next pass.

Batches for masked pre-training: some tokens are hidden, and the rest is to say which they were.

Of every hundred tokens 15 are asked. Of those, 80% are shown as `<mask>`, 10% as any other token
and 10% as they are, so that a model may not rely on what it sees (Devlin et al. 2019,
arXiv:1810.04805, section 3.1). Which, is drawn anew each time that a record is shown (Liu et al.
2019, arXiv:1907.11692, section 4.1), each token for itself, from the seed and the record's place in
the stream of samples alone: any step is one call away, in however many processes. Markers and
unknown tokens are never asked. What is longer than max_len is cut into pieces of equal length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.collate import (
    IGNORE,
    Collator,
    Ints,
    Layout,
    Spans,
    choose_row,
    choose_rows,
    lay_out,
    lay_out_pairs,
    padding_share,
    rectangles,
)
from regard.data.shards import Array, Shard, TokenTable
from regard.errors import UsageError, UserError
from regard.layers.embeddings import Inputs
from regard.tokenizers import Tokenizer

Words = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the increment of splitmix64
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # the multipliers of splitmix64's finaliser
WORD = 0xFFFFFFFFFFFFFFFF
ROUNDS = 6  # Luby and Rackoff ask for 4; two more since the halves of small domains have few bits
HALF = 3  # bits at least in each half: with fewer, not all permutations of 4 or 5 items are likely
BLOCK = 1 << 14  # positions worked on at once: all temporaries stay in the processor's cache


def _mix(words: Words) -> Words:
    """The finaliser of splitmix64, a bijection of 64-bit words; overwrites its argument."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(MIX[0])
    words ^= words >> np.uint64(27)
    words *= np.uint64(MIX[1])
    words ^= words >> np.uint64(31)
    return words


def draw(seed: int, counters: Ints, *, stream: int = 0) -> Words:
    """Pseudo-random 64-bit words of the shape of `counters`: a pure function of all arguments.

    Different streams of one seed have nothing to do with each other.
    """
    key = np.array([seed & WORD], dtype=np.uint64)
    key = _mix(_mix(key + np.uint64(GOLDEN)) + np.uint64((stream * GOLDEN) & WORD))
    return _mix(counters.astype(np.uint64) * np.uint64(GOLDEN) + key)


class Order:
    """Position p >= 0 in the endless stream of samples -> item in [0, n); epoch p // n permutes."""

    def __init__(self, n: int, seed: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n
        self.seed = seed
        self.half = max(HALF, ((n - 1).bit_length() + 1) // 2)  # bits in each half of the network

    def __call__(self, positions: Ints) -> Ints:
        """Items at these positions, of the same shape."""
        positions = np.asarray(positions, dtype=np.int64)
        if positions.size and positions.min() < 0:
            raise ValueError(f"positions must be at least 0, got {positions.min()}")
        flat = positions.ravel()
        items = np.empty_like(flat)
        for start in range(0, flat.size, BLOCK):
            items[start : start + BLOCK] = self._block(flat[start : start + BLOCK])
        return items.reshape(positions.shape)

    def _block(self, positions: Ints) -> Ints:
        epochs = positions // self.n
        values = (positions - epochs * self.n).astype(np.uint64)
        first = int(epochs[0])
        if np.all(epochs == first):  # one key for all: numpy broadcasts it for free
            epochs = np.array([first], dtype=np.int64)
        keys = draw(self.seed, epochs)
        values = self._feistel(values, keys)
        outside = np.flatnonzero(values >= np.uint64(self.n))
        while outside.size:  # each time a quarter of them or more come home: the domain is < 4n
            walked = self._feistel(values[outside], keys if keys.size == 1 else keys[outside])
            values[outside] = walked
            outside = outside[walked >= np.uint64(self.n)]
        return values.astype(np.int64)

    def _feistel(self, values: Words, keys: Words) -> Words:
        """A keyed permutation of [0, 4^half)."""
        half = np.uint64(self.half)
        top = np.uint64(64 - self.half)
        left, right = values >> half, values & np.uint64((1 << self.half) - 1)
        for number in range(ROUNDS):
            word = right ^ (keys + np.uint64((number * GOLDEN) & WORD))
            word *= np.uint64(MIX[0])
            word ^= word >> np.uint64(32)
            word *= np.uint64(MIX[1])
            word >>= top
            word ^= left
            left, right = right, word
        return (left << half) | right


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
    source: Inputs | None = None  # of the targets, where there are pairs

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Ids, targets, segments and the source's ids and segments: what an objective takes."""
        source = (None, None) if self.source is None else (self.source.ids, self.source.segments)
        return (self.ids, self.targets, self.segments, *source)

    def with_tensors(self, *tensors: Tensor | None) -> Batch:
        """The same batch with other `tensors`."""
        ids, targets, segments, sources, numbers = tensors
        assert ids is not None and targets is not None
        source = None if sources is None or numbers is None else Inputs(sources, numbers)
        return replace(self, ids=ids, targets=targets, segments=segments, source=source)


@dataclass(frozen=True, eq=False)
class EvalBatch:
    """Like Batch; `positions` (B, T) is where each scored target stands in `shard.ids`, else -1."""

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    positions: Tensor
    source: Inputs | None = None


class TokenLoader:
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
        supports_packing: bool,
        micro_tokens: int = 0,
        max_ratio: float = 0.0,
        few: bool = False,
    ) -> None:
        _at_least_one(max_len=max_len, batch_tokens=batch_tokens)
        self._filler = Collator(shard, tokenizer)
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
        if shard.source is not None and shard.source.cuttable and not (supports_packing or few):
            self._pool = max(1, min(POOL, self.items // self.items_per_step))
        steps = range(max(1, min(SAMPLED_STEPS, SAMPLED_ITEMS // self.items_per_step)))
        samples = [self.spans(self._positions(step))[1] for step in steps]
        self._rows = 0, 0
        if supports_packing and not self.running:
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
            if not source.cuttable:  # images are never too long
                sides[1] += 1
                fits = sides[0] <= self.max_len
            else:
                fits = sides.max(axis=0) <= self.max_len
            if max_ratio and source.cuttable:
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
    supports_packing: bool,
) -> Iterator[EvalBatch]:
    """Batches of at most `batch_tokens` positions (one row at least) that score every target once.

    What is longer than `max_len` goes through windows that advance by `stride`: the first scores
    all its targets, later ones only those not scored before. Running text is one stream. A pair is
    never cut: one with a side longer than `max_len` makes a batch of its own.
    """
    _at_least_one(max_len=max_len, stride=stride, batch_tokens=batch_tokens)
    if stride > max_len:
        raise UsageError(f"stride must lie in [1, max_len = {max_len}], got {stride}")
    filler = Collator(shard, tokenizer)
    return _evaluate(
        shard, filler, max_len, stride, batch_tokens, supports_packing and shard.kind != "text"
    )


def _evaluate(
    shard: Shard,
    filler: Collator,
    max_len: int,
    stride: int,
    batch_tokens: int,
    supports_packing: bool,
) -> Iterator[EvalBatch]:
    longest = min(max_len, max(int(lengths.max()) - 1 for _, lengths in shard.lengths()))
    limit = max(longest, min(batch_tokens, max(LONGEST_ROW, max_len)))
    rows = 0, 0
    numbered = shard.source is not None and not shard.source.cuttable
    for whole in _eval_spans(shard, max_len, stride, AHEAD * batch_tokens):
        for spans in _apart(whole, max_len, numbered):
            if supports_packing and not any(rows):
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


DRAWN = 5  # the stream of random words that orders records before some are taken


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


WIDTHS = 6  # of batches, where shapes are to be few
LABELLED_AHEAD = 1 << 16  # records that are measured in order of length, at a time


class LabelledExamples:
    """The records of a shard as rows that fit into max_len, ready to be filled into batches; with
    `first`, of several views of a record the first alone.
    """

    def __init__(
        self, shard: Shard, tokenizer: TokenTable | None, max_len: int, *, first: bool = False
    ) -> None:
        if shard.targets is None:
            raise ValueError("nothing is asked of the records of this shard")
        if not shard.cuttable:
            max_len = max(max_len, int(np.diff(shard.offsets).max(initial=1)))
        self.shard, self.max_len = shard, max_len
        self.pad = tokenizer.pad if tokenizer else 0  # segments say what is padding
        self.ids, self.targets = np.asarray(shard.ids), np.asarray(shard.targets)
        self.positional = shard.aligned
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
        for first in range(0, len(chosen), LABELLED_AHEAD):
            some = chosen[first : first + LABELLED_AHEAD]
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


class LabelledLoader:
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
        supports_packing: bool = False,
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
        if few and supports_packing:
            longest = int(self.asked.sizes.max())
            limit = max(longest, min(LONGEST_ROW, micro_tokens or LONGEST_ROW))
            self.row = choose_row(sizes, longest=longest, limit=limit)
        parts = [part for rows in samples for part in self._layouts(rows)]
        self.padding = padding_share(parts, sum(int(part.sum()) for part in sizes))

    def questions(self, shard: Shard, max_len: int, seed: int) -> LabelledExamples:
        """What is asked, ready to be filled into batches."""
        return LabelledExamples(shard, self.table, max_len)

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


SHARE = 0.15  # of the tokens are asked
HIDDEN, SHOWN = 0.8, 0.9  # shares of these below which one is a mask, and any other token
MASKS, OTHERS = 3, 4  # streams of random words: which tokens are asked, what some are shown as


class Masked(LabelledExamples):
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


class MaskedLoader(LabelledLoader):
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
