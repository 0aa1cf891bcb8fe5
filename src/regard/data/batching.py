"""Training and evaluation batches; any batch is a pure function of the seed and the step number.

`Order` is the order of the data: epoch e is a pseudo-random permutation of the items, keyed by
(seed, e). It is a Feistel network over an even power of two, applied again to values outside [0, n)
("cycle walking": Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). A Feistel
network is a bijection for any round function (Luby and Rackoff 1988, "How to construct pseudorandom
permutations from pseudorandom functions"); this one uses the finaliser of splitmix64 (Steele, Lea
and Flood 2014, "Fast splittable pseudorandom number generators").

`TokenLoader` is for language models: inputs `<S> a b c` have the targets `a b c <E>`. An item has
at most `max_len` inputs: a record, a window of a long record, or a window of running text. Items
are packed into rows of one length if the model supports it, and otherwise bucketed. Pairs are never
cut: the target and its source `a b c <E>` are in the same row of two rectangles. `windows` yields
the batches of an evaluation, which scores every symbol once.

`sample` selects part of a shard for validation: records drawn at random and stratified by their
targets, or evenly spaced blocks of running text.

`LabelledLoader` is for labelled records, `<S> a b c <E>`, or `<S> a b <E> c d <E>` for two texts.
Records longer than `max_len` are truncated, of two texts the longer first. If a record has several
views, each epoch uses one.

`MaskedLoader` is for masked language models: 15% of the tokens are targets; of those, 80% are
replaced by `<mask>`, 10% by a random token, and 10% are unchanged (Devlin et al. 2019,
arXiv:1810.04805, section 3.1). They are drawn anew every time a record is shown (Liu et al. 2019,
arXiv:1907.11692, section 4.1), depending on the seed and the position in the stream of samples
only. Markers and unknown tokens are never targets. Records longer than `max_len` are cut into
pieces of equal length.

Lay out sequences of different lengths in rectangles with little padding, and fill tensors.

Sequences are either packed, several to a row of one length (best-fit decreasing: Johnson 1973,
"Near-optimal bin packing algorithms"), or bucketed: one to a row, in few rectangles of similar
lengths. A `Layout` depends on lengths only.

Pairs of sequences go into two rectangles with the same rows. Packed rows are balanced (longest pair
first, into the row that is least full then: Graham 1969, "Bounds on multiprocessing timing
anomalies", in two dimensions); rectangles are split where this saves most padding.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Array, Shard, TokenTable
from regard.errors import UsageError, UserError
from regard.layers.embeddings import Inputs
from regard.tokenizers import Tokenizer

PACKED = 0.03  # share of padding that packed rows should stay below
BUCKETED = 0.05  # share of padding that rectangles of similar lengths always stay below
MISFIT = 0.01  # share that two widths may waste because of their ratio
PAIRS_PER_ROW = (8, 14)  # about: at least, and fewer than
STEP = 8  # widths of pairs are multiples of this, to have few shapes

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of sequences in a (n_rows, width) rectangle; arrays have one entry per sequence."""

    width: int
    n_rows: int
    members: Ints  # indices of the sequences
    row: Ints
    column: Ints  # of the first position
    segment: Ints | None  # number in the row, from 1; None: one sequence per row
    beside: Layout | None = None  # of the second sequences of pairs, in the same rows

    @property
    def positions(self) -> Ints:
        """Index of the first token of each sequence in the flat rectangle."""
        return self.row * self.width + self.column

    @property
    def area(self) -> int:
        """Number of positions, of both rectangles for pairs."""
        return self.n_rows * self.width + (self.beside.area if self.beside else 0)


def pack(lengths: Ints, width: int) -> Layout:
    """Pack sequences into rows of `width`, longest first, each into the fullest row it fits."""
    members = np.argsort(-lengths, kind="stable")
    row, column, segment = [], [], []
    spaces: list[int] = []  # free positions of the open rows, ascending
    rows: list[int] = []  # the numbers of these rows
    count: list[int] = []  # sequences per row
    for length in lengths[members].tolist():
        at = bisect_left(spaces, length)
        if at == len(spaces):
            space, chosen = width, len(count)
            count.append(0)
        else:
            space, chosen = spaces.pop(at), rows.pop(at)
        count[chosen] += 1
        row.append(chosen)
        column.append(width - space)
        segment.append(count[chosen])
        if space > length:
            at = bisect_left(spaces, space - length)
            spaces.insert(at, space - length)
            rows.insert(at, chosen)
    return Layout(width, len(count), members, np.array(row), np.array(column), np.array(segment))


def bucket(lengths: Ints) -> list[Layout]:
    """Put sequences into few rectangles of similar lengths, longest first.

    Starts with one rectangle per length and merges the two neighbours that add the least padding,
    while padding stays below BUCKETED of all positions.
    """
    order = np.argsort(-lengths, kind="stable")
    widths, counts = np.unique(lengths, return_counts=True)  # ascending
    n_tokens, padding = int(lengths.sum()), 0
    while widths.size > 1:
        added = counts[:-1] * np.diff(widths)  # by padding each group to the next width
        best = int(added.argmin())
        padding += int(added[best])
        if padding >= BUCKETED * (n_tokens + padding):
            break
        counts[best + 1] += counts[best]
        widths, counts = np.delete(widths, best), np.delete(counts, best)
    groups = np.split(order, np.cumsum(counts[::-1])[:-1])
    sizes = zip(groups, widths[::-1].tolist(), strict=True)
    return [_rectangle(group, width) for group, width in sizes]


def _rectangle(members: Ints, width: int) -> Layout:
    """Return the layout with one sequence per row."""
    rows = np.arange(members.size)
    return Layout(width, members.size, members, rows, np.zeros_like(rows), None)


def pack_pairs(firsts: Ints, seconds: Ints, rows: tuple[int, int], most: int) -> Layout:
    """Pack pairs into as few rows of about the given widths as possible, equally full.

    Rows are wider if the longest sequence requires it, but not wider than `most` for both (0: no
    limit) unless necessary. Widths are those of the fullest row, rounded up.
    """
    widths = _row_widths(rows, (int(firsts.max()), int(seconds.max())), most)
    unit = widths[0] * widths[1]  # weight of a full row, the same for both rectangles
    order = np.argsort(-np.maximum(firsts * widths[1], seconds * widths[0]), kind="stable")
    lengths = firsts[order], seconds[order]
    weights = np.stack([lengths[0] * widths[1], lengths[1] * widths[0]])
    n_rows = -(-int(weights.sum(axis=1).max()) // unit)
    row, fullest = _balance(weights, n_rows)
    while fullest > unit:  # ends at the latest with one pair per row
        n_rows = min(order.size, n_rows + max(1, n_rows // 64))
        row, fullest = _balance(weights, n_rows)
    first, second = (
        _layout_of_rows(order, *one, row, n_rows) for one in zip(lengths, widths, strict=True)
    )
    return replace(first, beside=second)


def _row_widths(rows: tuple[int, int], longest: tuple[int, int], most: int) -> tuple[int, int]:
    """Return two widths in the proportion of `rows` that fit the longest sequences."""
    scale = max(1.0, *(length / row for length, row in zip(longest, rows, strict=True)))
    first, second = (_round_up(row * scale) for row in rows)
    if most and first + second > most:
        first = max(longest[0], min(most * rows[0] // sum(rows), most - longest[1]))
        second = max(longest[1], most - first)
    return first, second


def _round_up(width: float) -> int:
    return STEP * math.ceil(width / STEP)


def _balance(weights: Ints, n_rows: int) -> tuple[Ints, int]:
    """Assign each pair to the row that is then least full; also return the fullest row's weight."""
    full = np.zeros((2, n_rows), dtype=np.int64)
    row = np.empty(weights.shape[1], dtype=np.int64)
    for i, (first, second) in enumerate(weights.T.tolist()):
        chosen = int(np.maximum(full[0] + first, full[1] + second).argmin())
        full[0, chosen] += first
        full[1, chosen] += second
        row[i] = chosen
    return row, int(full.max())


def _layout_of_rows(members: Ints, lengths: Ints, limit: int, row: Ints, n_rows: int) -> Layout:
    """Return one of the two layouts of pairs with known rows, at most `limit` wide."""
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(lengths[order])
    first = np.searchsorted(row[order], np.arange(n_rows))  # pair of every row
    starts = ends - lengths[order]
    column, segment = np.empty_like(row), np.empty_like(row)
    column[order] = starts - starts[first][row[order]]
    segment[order] = 1 + np.arange(row.size) - first[row[order]]
    width = min(limit, _round_up(int((column + lengths).max())))
    return Layout(width, n_rows, members, row, column, segment)


def bucket_pairs(firsts: Ints, seconds: Ints) -> list[Layout]:
    """Put pairs, one to a row, into few rectangles of similar lengths.

    Starts with one rectangle and splits the one where this saves most, by the lengths of one of the
    sequences, until padding is below BUCKETED of all positions.
    """
    lengths = np.stack([firsts, seconds])
    everything = np.arange(firsts.size)
    n_tokens, area = int(lengths.sum()), firsts.size * int(lengths.max(axis=1).sum())
    splits = [_best_split(lengths, everything, 0)]
    while area - n_tokens >= BUCKETED * area:
        added, number, (low, high) = heapq.heappop(splits)
        area += added
        heapq.heappush(splits, _best_split(lengths, low, 2 * number + 1))
        heapq.heappush(splits, _best_split(lengths, high, 2 * number + 2))
    parts = [np.concatenate(both) for _, _, both in splits]
    widths = [lengths[:, part].max(axis=1).tolist() for part in parts]
    sized = sorted(zip(widths, parts, strict=True), key=lambda x: x[0], reverse=True)
    return [
        replace(_rectangle(part, first), beside=_rectangle(part, second))
        for (first, second), part in sized
    ]


def _best_split(lengths: Ints, part: Ints, number: int) -> tuple[int, int, tuple[Ints, Ints]]:
    """Return the area that the best split adds (at most 0), the number, and both parts."""
    best = 0, number, (part, part[:0])
    for by in range(2):
        order = part[np.argsort(lengths[by, part], kind="stable")]
        # total widths of the part of shorter and of longer sequences, for each split
        low = np.maximum.accumulate(lengths[:, order], axis=1).sum(axis=0)
        high = np.maximum.accumulate(lengths[:, order[::-1]], axis=1).sum(axis=0)[::-1]
        sizes = np.arange(1, order.size)
        areas = sizes * low[:-1] + (order.size - sizes) * high[1:]
        if order.size > 1 and (added := int(areas.min()) - order.size * int(low[-1])) < best[0]:
            size = int(areas.argmin()) + 1
            best = added, number, (order[:size], order[size:])
    return best


def _split(layout: Layout, most: int) -> list[Layout]:
    """Split a layout into parts of at most `most` positions, with at least one row each."""
    rows = max(1, most * layout.n_rows // layout.area) if most else layout.n_rows
    if rows >= layout.n_rows:
        return [layout]
    return [_rows(layout, first, rows) for first in range(0, layout.n_rows, rows)]


def _rows(layout: Layout, first: int, count: int) -> Layout:
    """Return `count` rows of a layout."""
    inside = (layout.row >= first) & (layout.row < first + count)
    return Layout(
        layout.width,
        min(count, layout.n_rows - first),
        layout.members[inside],
        layout.row[inside] - first,
        layout.column[inside],
        None if layout.segment is None else layout.segment[inside],
        layout.beside and _rows(layout.beside, first, count),
    )


def lay_out(lengths: Ints, row: int, most: int) -> list[Layout]:
    """Pack sequences into rows of length `row` (0: bucket them).

    Layouts have at most `most` positions (0: no limit), but at least one row.
    """
    layouts = ([pack(lengths, row)] if row else bucket(lengths)) if lengths.size else []
    return [part for layout in layouts for part in _split(layout, most)]


def rectangles(count: int, width: int, most: int, second_width: int = 0) -> list[Layout]:
    """Lay out `count` sequences, one per row of this width, as in `lay_out`.

    `second_width` is the width of the second sequences of pairs (0: there are none).
    """
    members = np.arange(count)
    second = _rectangle(members, second_width) if second_width else None
    return _split(replace(_rectangle(members, width), beside=second), most)


def lay_out_pairs(firsts: Ints, seconds: Ints, rows: tuple[int, int], most: int) -> list[Layout]:
    """Pack pairs into rows of about these widths (0, 0: bucket them), as in `lay_out`."""
    if not firsts.size:
        return []
    packed = any(rows)
    layouts = [pack_pairs(firsts, seconds, rows, most)] if packed else bucket_pairs(firsts, seconds)
    return [part for layout in layouts for part in _split(layout, most)]


def padding_share(layouts: Sequence[Layout], n_tokens: int) -> float:
    """Return the share of padding, given the number of other positions."""
    return 1 - n_tokens / sum(layout.area for layout in layouts)


def choose_rows(firsts: Ints, seconds: Ints, *, limit: int) -> tuple[int, int]:
    """Return two row widths for `pack_pairs`.

    Pairs of similar lengths have a row each. Otherwise rows have about PAIRS_PER_ROW pairs: the
    shortest whose ratio of widths wastes less than MISFIT, or else those that waste least. The
    wider one is at most `limit`, rounded up.
    """
    single = _round_up(int(firsts.max())), _round_up(int(seconds.max()))
    if firsts.sum() + seconds.sum() > (1 - PACKED) * firsts.size * sum(single):
        return single
    shorter, longer = sorted((float(firsts.mean()), float(seconds.mean())))
    candidates: list[tuple[float, int, int]] = []
    least, most = (_round_up(min(limit, n * longer)) for n in PAIRS_PER_ROW)
    for wide in range(least, max(least + 1, most), STEP):
        narrow = max(STEP, _round_up(wide * shorter / longer))
        waste = 1 - (longer + shorter) * wide / (longer * (wide + narrow))
        candidates.append((waste, wide, narrow))
        if waste < MISFIT:
            break
    _, wide, narrow = candidates[-1] if candidates[-1][0] < MISFIT else min(candidates)
    return (wide, narrow) if firsts.mean() == longer else (narrow, wide)


def choose_row(samples: Sequence[Ints], *, longest: int, limit: int) -> int:
    """Return the shortest row length that packs these samples of lengths with padding below PACKED.

    Candidates are the longest sequence, rounded up, times 1, 1.5, 2, 3, 4, 6 … up to `limit`; if
    none fits, the one with the least padding. Short rows are preferred because attention is
    cheaper.
    """
    n_tokens = sum(int(lengths.sum()) for lengths in samples)
    least = min(limit, -(-longest // 8) * 8)
    candidates: list[tuple[float, int]] = []
    for row in (width << k for k in range(limit.bit_length()) for width in (least, least * 3 // 2)):
        if row > limit and candidates:
            break
        padding = padding_share([pack(lengths, row) for lengths in samples], n_tokens)
        if padding < PACKED:
            return row
        candidates.append((padding, row))
    return min(candidates)[1]


IGNORE = -1  # a target without a loss; models/language_model.py uses the same value


@dataclass(frozen=True, eq=False)
class Spans:
    """Sequences as spans of `shard.ids`: inputs start ... start + length - 1.

    For pairs, `source` has the spans of `shard.source.ids`.
    """

    starts: Ints
    lengths: Ints
    skip: Ints | None = None  # number of leading targets that are context only
    source: Spans | None = None

    @classmethod
    def of_pairs(cls, shard: Shard, records: Ints) -> Spans:
        """Return records from `<S>` to the last symbol, and sources from the first symbol to `<E>`.

        Sources of features include `<S>`.
        """
        assert shard.source is not None
        starts = shard.offsets[records]
        source_starts = shard.source.offsets[records] + shard.source.cuttable
        source = cls(source_starts, shard.source.offsets[records + 1] - source_starts)
        return cls(starts, shard.offsets[records + 1] - 1 - starts, source=source)

    @property
    def sizes(self) -> Ints:
        """Number of positions of each sequence, with its source."""
        return self.lengths if self.source is None else self.lengths + self.source.lengths

    def take(self, which: slice | Array) -> Spans:
        """Return some of the sequences."""
        skip = None if self.skip is None else self.skip[which]
        source = self.source and self.source.take(which)
        return Spans(self.starts[which], self.lengths[which], skip, source)

    def parts(self, most: int) -> Iterator[Spans]:
        """Yield consecutive sequences with at most `most` positions, at least one at a time."""
        ends = np.cumsum(self.sizes)
        first = start = 0
        while first < ends.size:
            stop = max(first + 1, int(np.searchsorted(ends, start + most, side="right")))
            yield self.take(slice(first, stop))
            first, start = stop, int(ends[stop - 1])


def expand_spans(starts: Ints, lengths: Ints, positions: Ints) -> tuple[Ints, Ints]:
    """Return the indices of all tokens of spans that begin at `starts`, and at `positions`."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + within, np.repeat(positions, lengths) + within


class Collator:
    """Fill tensors according to layouts of spans."""

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
        """Return (B, T) ids, targets, segments and positions of the targets in the shard."""
        starts, lengths = spans.starts[layout.members], spans.lengths[layout.members]
        read, flat = expand_spans(starts, lengths, layout.positions)
        shape = (layout.n_rows, layout.width)
        ids = np.full(shape, self.pad, dtype=np.int64)
        targets, positions = np.full((2, *shape), IGNORE, dtype=np.int64)
        ids.ravel()[flat] = self.ids[read]
        following = self.ids[read + 1].astype(np.int64)
        scored = np.ones(read.size, dtype=bool)
        # `<S>` is never predicted. Where `<S>` and `<E>` have the same id, it is `<S>` at the start
        # of a record.
        candidates = np.flatnonzero(following == self.start)
        next_starts = self.offsets[np.searchsorted(self.offsets, read[candidates] + 1)]
        scored[candidates] = next_starts != read[candidates] + 1
        if spans.skip is not None:
            scored &= read >= np.repeat(starts + spans.skip[layout.members], lengths)
        targets.ravel()[flat] = np.where(scored, following, IGNORE)
        positions.ravel()[flat] = np.where(scored, read + 1, -1)
        segments = None
        if layout.segment is not None:
            segments = torch.zeros(shape, dtype=torch.int64)
            segments.numpy().ravel()[flat] = np.repeat(layout.segment, lengths)
        return (
            torch.from_numpy(ids),
            torch.from_numpy(targets),
            segments,
            torch.from_numpy(positions),
        )

    def source(self, layout: Layout, spans: Spans) -> Inputs | None:
        """Return (B, S) ids, or (B, S, V) features, and segments of the sources, or None."""
        if layout.beside is None or spans.source is None or self.source_ids is None:
            return None
        second = layout.beside
        lengths = spans.source.lengths[second.members]
        read, flat = expand_spans(spans.source.starts[second.members], lengths, second.positions)
        # padding is id 0, which every vocabulary has; segments mark it
        features = self.source_ids.shape[1:]
        size = second.n_rows, second.width, *features
        ids = np.zeros(size, self.source_ids.dtype if features else np.int64)
        segments = np.zeros(size[:2], np.int64)
        ids.reshape(-1, *size[2:])[flat] = self.source_ids[read]
        segment = np.ones_like(second.row) if second.segment is None else second.segment
        segments.ravel()[flat] = np.repeat(segment, lengths)
        return Inputs(torch.from_numpy(ids), torch.from_numpy(segments))


Words = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the increment of splitmix64
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # the multipliers of splitmix64's finaliser
WORD_MASK = 0xFFFFFFFFFFFFFFFF
ROUNDS = 6  # Luby and Rackoff require 4; two more because small domains have few bits
MIN_HALF = 3  # bits in each half: with fewer, not all permutations of 4 or 5 items occur
BLOCK = 1 << 14  # positions processed at once, so that all temporaries fit into the CPU cache


def _mix(words: Words) -> Words:
    """Apply the finaliser of splitmix64, a bijection of 64-bit words, in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(MIX[0])
    words ^= words >> np.uint64(27)
    words *= np.uint64(MIX[1])
    words ^= words >> np.uint64(31)
    return words


def draw(seed: int, counters: Ints, *, stream: int = 0) -> Words:
    """Return pseudo-random 64-bit words of the shape of `counters`, a pure function of all
    arguments.

    Different streams of one seed are independent.
    """
    key = np.array([seed & WORD_MASK], dtype=np.uint64)
    key = _mix(_mix(key + np.uint64(GOLDEN)) + np.uint64((stream * GOLDEN) & WORD_MASK))
    return _mix(counters.astype(np.uint64) * np.uint64(GOLDEN) + key)


class Order:
    """Map positions p >= 0 in the stream of samples to items in [0, n); epoch p // n permutes."""

    def __init__(self, n: int, seed: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n
        self.seed = seed
        self.half = max(MIN_HALF, ((n - 1).bit_length() + 1) // 2)  # bits of each half

    def __call__(self, positions: Ints) -> Ints:
        """Return the items at these positions, in the same shape."""
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
        while outside.size:  # a quarter or more fall inside each time: the domain is < 4n
            permuted = self._feistel(values[outside], keys if keys.size == 1 else keys[outside])
            values[outside] = permuted
            outside = outside[permuted >= np.uint64(self.n)]
        return values.astype(np.int64)

    def _feistel(self, values: Words, keys: Words) -> Words:
        """Apply the keyed permutation of [0, 4^half)."""
        half = np.uint64(self.half)
        top = np.uint64(64 - self.half)
        left, right = values >> half, values & np.uint64((1 << self.half) - 1)
        for i in range(ROUNDS):
            word = right ^ (keys + np.uint64((i * GOLDEN) & WORD_MASK))
            word *= np.uint64(MIX[0])
            word ^= word >> np.uint64(32)
            word *= np.uint64(MIX[1])
            word >>= top
            word ^= left
            left, right = right, word
        return (left << half) | right


RUNNING = 8  # records longer than this times max_len, on average, are treated as running text
LONGEST_ROW = 1024  # packed rows are at most this long, or max_len
SAMPLED_STEPS = 4  # laid out at construction, to choose the row length and to measure padding
SAMPLED_ITEMS = 1 << 14  # at most, beyond the first step
AHEAD = 8  # evaluation batches laid out together, to group similar lengths
POOL = 32  # steps whose pairs are sorted by length together if they cannot be packed
# Streams of random words; the order of items is stream 0.
SHIFTS, POOLS, MASKS, OTHERS, SAMPLES = 1, 2, 3, 4, 5


@dataclass(frozen=True, eq=False)
class Batch:
    """A micro-batch: (B, T) `ids` and `targets`, IGNORE where there is no loss.

    `segments` (B, T) numbers the records of a row from 1, with 0 for padding; it is None if rows
    have one sequence each, padded on the right. `items` are the item numbers, `tokens` and
    `symbols` the numbers of scored targets and of their raw symbols. `source` has the sources of
    pairs.
    """

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    items: Ints
    tokens: int
    symbols: int
    source: Inputs | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return ids, targets, segments and the source's ids and segments."""
        source = (None, None) if self.source is None else (self.source.ids, self.source.segments)
        return (self.ids, self.targets, self.segments, *source)

    def with_tensors(self, *tensors: Tensor | None) -> Batch:
        """Return the same batch with other `tensors`."""
        ids, targets, segments, source_ids, source_segments = tensors
        assert ids is not None and targets is not None
        source = None
        if source_ids is not None and source_segments is not None:
            source = Inputs(source_ids, source_segments)
        return replace(self, ids=ids, targets=targets, segments=segments, source=source)


@dataclass(frozen=True, eq=False)
class EvalBatch:
    """Like Batch; `positions` (B, T) are the indices of scored targets in `shard.ids`, or -1."""

    ids: Tensor
    targets: Tensor
    segments: Tensor | None
    positions: Tensor
    source: Inputs | None = None


class TokenLoader:
    """Training batches of a shard, a pure function of the data, the arguments and the step.

    `batch_tokens` is the approximate number of inputs of a step, `micro_tokens` (0: no limit) the
    maximum number of positions of a micro-batch, with padding. The gradient of a step is the sum
    over its micro-batches, on all ranks, divided by the sum of their symbols. For pairs,
    `batch_tokens` counts targets, `micro_tokens` counts targets and sources, and `max_ratio` (0:
    none) limits the ratio of their lengths. With `few`, for sources of one length, a step is one
    rectangle, always of the same width.
    """

    items: int  # per epoch
    items_per_step: int  # on average if pairs are pooled
    windowed: int  # number of records with more than max_len inputs, which are cut
    dropped: int  # number of pairs left out: longer than max_len, or beyond max_ratio
    running: bool  # whether items are windows of running text, shifted in every epoch
    row: int  # length of packed rows; 0 if nothing is packed
    padding: float  # share of padding, measured on the first steps

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
        _check_positive(max_len=max_len, batch_tokens=batch_tokens)
        self._collator = Collator(shard, tokenizer)
        self.shard, self.max_len, self.seed = shard, max_len, seed
        self.micro_tokens = micro_tokens
        inputs = shard.tokens - shard.records
        long = shard.is_text or inputs > RUNNING * max_len * shard.records
        self.running = long and shard.source is None
        self.few_shapes = self.running or shard.source is not None
        self.windowed = self.dropped = 0
        self._pieces: Ints | None = None  # (R + 1,) items before each record; None: one each
        self._records: Ints | None = None  # the records of the items; None: all
        self._widths = 0, 0  # of targets and sources, if the same in all steps
        if shard.source is not None:
            inputs, (longest_target, longest_source) = self._index_pairs(shard.source, max_ratio)
            longest = longest_target + longest_source
            if few:
                self._widths = -(-longest_target // 8) * 8, longest_source
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
        # images are not pooled: they are far longer than their captions
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
        return self.items / self.items_per_step

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """Return the micro-batches of step n on one of `world` processes.

        Over all ranks, a step has the same items for any `world`; a rank beyond the number of items
        gets an empty list.
        """
        items, spans = self.spans(self._positions(n, rank, world))
        batches = []
        for layout in self._layouts(spans):
            ids, targets, segments, _ = self._collator.fill(layout, spans)
            scored = targets[targets != IGNORE]
            symbols = int(self._collator.symbols[scored].sum())
            members, source = items[layout.members], self._collator.source(layout, spans)
            batches.append(Batch(ids, targets, segments, members, scored.numel(), symbols, source))
        return batches

    def records_of(self, n: int, rank: int = 0, world: int = 1) -> list[int]:
        """Return the sorted numbers of the records of step n."""
        _, spans = self.spans(self._positions(n, rank, world))
        first = self.shard.record_of(spans.starts).tolist()
        last = self.shard.record_of(spans.starts + spans.lengths - 1).tolist()
        return sorted({r for a, b in zip(first, last, strict=True) for r in range(a, b + 1)})

    def spans(self, positions: Ints) -> tuple[Ints, Spans]:
        """Return the items at positions in the stream of samples, and their spans."""
        items = self.order(positions)
        offsets = self.shard.offsets
        if self.running:
            words = draw(self.seed, positions // self.items, stream=SHIFTS)
            shifts = (words % np.uint64(self._shifts)).astype(np.int64)
            starts = items * self.max_len + shifts
            return items, Spans(starts, np.minimum(self.max_len, self.shard.tokens - 1 - starts))
        if self.shard.source is not None:
            records = items if self._records is None else self._records[items]
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
            return self._pooled_step(n)[rank::world]
        first = n * self.items_per_step
        return np.arange(first + rank, first + self.items_per_step, world)

    def _pooled_step(self, n: int) -> Ints:
        """Return the positions of a step of pairs of similar lengths.

        The pairs of a pool of steps are sorted by length, divided into steps of similar total
        lengths, and the steps are shuffled.
        """
        number, index = divmod(n, self._pool)
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
        return self._pooled[1][index]

    def _layouts(self, spans: Spans) -> list[Layout]:
        if self._widths[0] and spans.lengths.size:
            return rectangles(
                spans.lengths.size, self._widths[0], self.micro_tokens, self._widths[1]
            )
        return _lay_out(spans, self._rows, self.micro_tokens)

    def _index(self) -> int:
        """Count the items; return the inputs of the longest record, or of running text."""
        shard, max_len = self.shard, self.max_len
        longest = 0
        for _, lengths in shard.lengths():
            longest = max(longest, int(lengths.max()) - 1)
            self.windowed += int(np.count_nonzero(lengths - 1 > max_len))
        if self.running:
            # All windows are full for every shift; with this many shifts every token occurs.
            self.items = max(1, shard.tokens // max_len - 1)
            self._shifts = max(1, shard.tokens - self.items * max_len)
            return shard.tokens - 1
        self.items = shard.records
        if self.windowed:
            self._pieces = np.zeros(shard.records + 1, dtype=np.int64)
            for first, lengths in shard.lengths():
                counts = self._pieces[first + 1 : first + 1 + lengths.size]
                counts[:] = -(-(lengths - 1) // max_len)
            np.cumsum(self._pieces, out=self._pieces)
            self.items = int(self._pieces[-1])
        return longest

    def _index_pairs(self, source: Shard, max_ratio: float) -> tuple[int, list[int]]:
        """Choose the pairs; return their total inputs, and the longest target and source."""
        chosen, inputs, longest = [], 0, np.zeros(2, dtype=np.int64)
        for (first, targets), (_, sources) in zip(
            self.shard.lengths(), source.lengths(), strict=True
        ):
            sizes = np.stack([targets, sources]) - 1  # (2, R), with one marker each
            if not source.cuttable:  # features are never too long
                sizes[1] += 1
                fits = sizes[0] <= self.max_len
            else:
                fits = sizes.max(axis=0) <= self.max_len
            if max_ratio and source.cuttable:
                symbols = np.maximum(sizes - 1, 1)
                fits &= symbols.max(axis=0) <= max_ratio * symbols.min(axis=0)
            chosen.append(first + np.flatnonzero(fits))
            inputs += int(sizes[0, fits].sum())
            longest = np.maximum(longest, sizes[:, fits].max(axis=1, initial=0))
        records = np.concatenate(chosen)
        self.items, self.dropped = records.size, self.shard.records - records.size
        if not self.items:
            raise UserError(
                f"none of the {self.dropped:,} training pairs is left: each has a side of more "
                f"than model.max_len = {self.max_len} tokens"
                + (f" or of more than {max_ratio:g} times the other's" if max_ratio else "")
            )
        self._records = records if self.dropped else None
        return inputs, longest.tolist()


def _choose_rows(samples: Sequence[Spans], *, longest: int, limit: int) -> tuple[int, int]:
    """Return the widths of packed rows of targets and of sources (0: there are none)."""
    sources = [spans.source.lengths for spans in samples if spans.source is not None]
    targets = [spans.lengths for spans in samples]
    if not sources:
        return choose_row(targets, longest=longest, limit=limit), 0
    firsts, seconds = (np.concatenate(lengths) for lengths in (targets, sources))
    return choose_rows(firsts, seconds, limit=limit)


def _lay_out(spans: Spans, rows: tuple[int, int], most: int) -> list[Layout]:
    """Pack spans into rows of these widths (0, 0: bucket them), `most` positions at a time."""
    if spans.source is None:
        return lay_out(spans.lengths, rows[0], most)
    return lay_out_pairs(spans.lengths, spans.source.lengths, rows, most)


def _check_positive(**values: int) -> None:
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
    """Yield batches of at most `batch_tokens` positions that score every target once.

    Sequences longer than `max_len` are read in windows that advance by `stride`: the first scores
    all its targets, later ones only those not scored before. Running text is one sequence. Pairs
    are never cut: one longer than `max_len` has a batch of its own. A batch has at least one row.
    """
    _check_positive(max_len=max_len, stride=stride, batch_tokens=batch_tokens)
    if stride > max_len:
        raise UsageError(f"stride must lie in [1, max_len = {max_len}], got {stride}")
    collator = Collator(shard, tokenizer)
    packing = supports_packing and not shard.is_text
    return _eval_batches(shard, collator, max_len, stride, batch_tokens, packing)


def _eval_batches(
    shard: Shard,
    collator: Collator,
    max_len: int,
    stride: int,
    batch_tokens: int,
    packing: bool,
) -> Iterator[EvalBatch]:
    longest = min(max_len, max(int(lengths.max()) - 1 for _, lengths in shard.lengths()))
    limit = max(longest, min(batch_tokens, max(LONGEST_ROW, max_len)))
    rows = 0, 0
    features = shard.source is not None and not shard.source.cuttable
    for many in _eval_spans(shard, max_len, stride, AHEAD * batch_tokens):
        for spans in _separate_long(many, max_len, features):
            if packing and not any(rows):
                rows = _choose_rows([spans], longest=longest, limit=limit)
            for layout in _lay_out(spans, rows, batch_tokens):
                yield EvalBatch(
                    *collator.fill(layout, spans), source=collator.source(layout, spans)
                )


def _separate_long(spans: Spans, max_len: int, features: bool) -> Iterator[Spans]:
    """Yield the pairs that fit in `max_len` together, then each other pair by itself.

    Sources of `features` always fit.
    """
    if spans.source is None:
        yield spans
        return
    sources = np.zeros_like(spans.lengths) if features else spans.source.lengths
    long = np.maximum(spans.lengths, sources) > max_len
    if not long.all():
        yield spans.take(~long)
    for i in np.flatnonzero(long):
        yield spans.take(slice(i, i + 1))


def _eval_spans(shard: Shard, max_len: int, stride: int, most: int) -> Iterator[Spans]:
    """Yield windows that score every target once, in order, about `most` inputs at a time."""
    text = [(0, np.array([shard.tokens]))]  # as one record
    for first, sizes in text if shard.is_text else shard.lengths():
        if shard.source is not None:
            yield from Spans.of_pairs(shard, np.arange(first, first + sizes.size)).parts(most)
            continue
        inputs = sizes - 1
        n_windows = 1 + -(-np.maximum(inputs - max_len, 0) // stride)
        window = np.arange(n_windows.sum()) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
        starts = np.repeat(shard.offsets[first : first + sizes.size], n_windows) + window * stride
        lengths = np.minimum(max_len, np.repeat(inputs, n_windows) - window * stride)
        skip = np.where(window > 0, max_len - stride, 0)
        yield from Spans(starts, lengths, skip).parts(most)


def sample(shard: Shard, tokens: int, seed: int, *, block: int) -> Shard:
    """Return about `tokens` tokens of a shard: records drawn at random, or evenly spaced blocks of
    `block` tokens of running text. A smaller shard is returned unchanged.
    """
    if tokens >= shard.tokens:
        return shard
    if shard.is_text:
        return blocks(shard, max(1, tokens // block), block)
    count = max(1, round(tokens * shard.records / shard.tokens / shard.views))
    chosen = np.sort(drawn_order(shard, seed)[:count])
    return shard.take((chosen[:, None] * shard.views + np.arange(shard.views)).ravel())


def drawn_order(shard: Shard, seed: int) -> Ints:
    """Return the numbers of all records in random order; several views count as one record.

    The order is stratified: in every prefix each class has its share, rounded up or down, because
    the k-th of the n records of a class, in random order, is placed at (k - 1/2) / n of all
    records.
    """
    n_records = shard.records // shard.views
    words = draw(seed, np.arange(n_records), stream=SAMPLES)
    classes = _classes(shard, n_records)
    by_class = np.lexsort((words, classes))
    sizes = np.bincount(classes)
    within = np.arange(n_records) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    quantile = np.empty(n_records)
    quantile[by_class] = (within + 0.5) / np.repeat(sizes, sizes)
    return np.lexsort((words, quantile))


def _classes(shard: Shard, n_records: int) -> Ints:
    """Return the class of every record, its row of targets.

    All have the same class if most targets differ, as values do, or targets are not one per record.
    """
    targets = shard.targets
    if targets is None or len(targets) != shard.records:
        return np.zeros(n_records, np.int64)
    rows = np.asarray(targets[:: shard.views]).reshape(n_records, -1)
    classes, index = np.unique(rows, axis=0, return_inverse=True)
    return np.zeros(n_records, np.int64) if 2 * len(classes) > n_records else index.ravel()


def blocks(shard: Shard, count: int, size: int) -> Shard:
    """Return `count` evenly spaced blocks of `size` tokens of running text.

    The first token of each is context and has no loss.
    """
    size = max(2, min(size, shard.tokens))
    last = shard.tokens - size
    starts = np.round((np.arange(count) + 0.5) * last / count).astype(np.int64)
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


WIDTHS = 6  # number of different batch widths with `few` shapes
LABELLED_AHEAD = 1 << 16  # records sorted by length at a time


class LabelledExamples:
    """The records of a shard, truncated to `max_len`, to fill into batches.

    With `first`, only the first of several views of a record is used.
    """

    def __init__(
        self, shard: Shard, tokenizer: TokenTable | None, max_len: int, *, first: bool = False
    ) -> None:
        if shard.targets is None:
            raise ValueError("nothing is asked of the records of this shard")
        if not shard.cuttable:
            max_len = max(max_len, int(np.diff(shard.offsets).max(initial=1)))
        self.shard, self.max_len = shard, max_len
        self.pad = tokenizer.pad if tokenizer else 0  # segments mark padding
        self.ids, self.targets = np.asarray(shard.ids), np.asarray(shard.targets)
        self.positional = shard.aligned
        offsets, step = np.asarray(shard.offsets), shard.views if first else 1
        self.starts, self.lengths = offsets[:-1:step], np.diff(offsets)[::step]  # (R,)
        if step > 1:
            self.targets = self.targets[::step]
        self.second: tuple[Ints, Ints] | None = None
        if shard.source is not None:
            second_offsets = np.asarray(shard.source.offsets)
            starts, lengths = second_offsets[:-1] + 1, np.diff(second_offsets) - 1  # without `<S>`
            excess = np.maximum(self.lengths + lengths - max_len, 0)
            shortened = np.maximum(max_len // 2, self.lengths - excess)
            self.whole = self.lengths + lengths
            self.lengths = np.minimum(self.lengths, shortened)
            self.second = starts, np.minimum(lengths, max_len - self.lengths)
        else:
            self.whole, self.lengths = self.lengths, np.minimum(self.lengths, max_len)
        self.sizes: Ints = self.lengths if self.second is None else self.lengths + self.second[1]
        self.cut = int(np.count_nonzero(self.whole > self.sizes))

    def fill(self, records: Ints, layout: Layout) -> Batch:
        """Fill a layout of the given records, which it numbers from 0.

        `items` are the records row by row, in the order of their targets.
        """
        order = np.lexsort((layout.column, layout.row))
        chosen = records[layout.members[order]]  # (N,)
        shape = layout.n_rows, layout.width
        features = self.ids.shape[1:]  # () or (V,)
        ids = np.full((*shape, *features), self.pad, self.ids.dtype if features else np.int64)
        segments = np.zeros(shape, np.int64)
        positions = layout.positions[order]
        segment = np.ones_like(positions) if layout.segment is None else layout.segment[order]
        read, flat = expand_spans(self.starts[chosen], self.lengths[chosen], positions)
        ids.reshape(-1, *features)[flat] = self.ids[read]
        segments.ravel()[flat] = np.repeat(segment, self.lengths[chosen])
        if self.second is not None and self.shard.source is not None:
            starts, lengths = (array[chosen] for array in self.second)
            after = positions + self.lengths[chosen]
            second_read, second_flat = expand_spans(starts, lengths, after)
            ids.ravel()[second_flat] = self.shard.source.ids[second_read]
            segments.ravel()[second_flat] = np.repeat(segment, lengths)
        targets = self._targets(chosen, shape, read, flat)
        count = int(np.count_nonzero(known(targets)))
        return Batch(
            torch.from_numpy(ids),
            torch.from_numpy(targets),
            torch.from_numpy(segments),
            items=chosen,
            tokens=count,
            symbols=count,
        )

    def _targets(self, chosen: Ints, shape: tuple[int, int], read: Ints, flat: Ints) -> Array:
        """Return (N,) classes, (N, n) labels or values, or (B, T) classes of positions."""
        if self.positional:
            targets = np.full(shape, IGNORE, np.int64)
            targets.ravel()[flat] = self.targets[read]
            return targets
        targets = self.targets[chosen]
        return targets.astype(np.float32 if targets.dtype.kind == "f" else np.int64)

    def batches(self, batch_tokens: int, records: Ints | None = None) -> Iterator[Batch]:
        """Yield all records, or the given ones, grouped by length."""
        chosen = np.arange(len(self.sizes)) if records is None else records
        for first in range(0, len(chosen), LABELLED_AHEAD):
            group = chosen[first : first + LABELLED_AHEAD]
            group = group[np.argsort(-self.sizes[group], kind="stable")]
            for layout in lay_out(self.sizes[group], 0, max(batch_tokens, self.max_len)):
                yield self.fill(group, layout)


def known(targets: Array | Tensor) -> NDArray[np.bool_]:
    """Whether targets are known: neither IGNORE, nor missing, nor a class without training data."""
    array = np.asarray(targets)
    return ~np.isnan(array) if array.dtype.kind == "f" else array >= 0


class LabelledLoader:
    """Training batches of a labelled shard, a pure function of its arguments and the step.

    `batch_tokens` is the approximate number of tokens of a step, `micro_tokens` the maximum number
    of positions of a micro-batch, with padding. With `few` shapes, as GPUs prefer, a step is one
    rectangle of one of WIDTHS widths or, if the model supports packing, sequences share rows of one
    length.
    """

    running, dropped, few_shapes = False, 0, True

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
        self.examples = self.make_examples(shard, max_len, seed)
        self.items = len(self.examples.sizes) // shard.views
        self.windowed = self.examples.cut
        mean = float(self.examples.sizes.mean())
        self.items_per_step = min(self.items, max(1, round(batch_tokens / mean)))
        self.order = Order(self.items, seed)
        samples = [self._rows(self._positions(n)) for n in range(4)]
        sizes = [self.examples.sizes[rows] for rows in samples]
        if few and supports_packing:
            longest = int(self.examples.sizes.max())
            limit = max(longest, min(LONGEST_ROW, micro_tokens or LONGEST_ROW))
            self.row = choose_row(sizes, longest=longest, limit=limit)
        parts = [part for rows in samples for part in self._layouts(rows)]
        self.padding = padding_share(parts, sum(int(part.sum()) for part in sizes))

    def make_examples(self, shard: Shard, max_len: int, seed: int) -> LabelledExamples:
        """Return the examples to fill into batches."""
        return LabelledExamples(shard, self.table, max_len)

    @property
    def steps_per_epoch(self) -> float:
        return self.items / self.items_per_step

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """Return the micro-batches of step n on one of `world` processes."""
        records = self._rows(self._positions(n, rank, world))
        return [self.examples.fill(records, layout) for layout in self._layouts(records)]

    def records_of(self, n: int, rank: int = 0, world: int = 1) -> list[int]:
        """Return the sorted numbers of the records of step n."""
        return sorted(self.order(self._positions(n, rank, world)).tolist())

    def _positions(self, n: int, rank: int = 0, world: int = 1) -> Ints:
        first = n * self.items_per_step
        return np.arange(first + rank, first + self.items_per_step, world)

    def _rows(self, positions: Ints) -> Ints:
        """Return the records at these positions, in the view for this epoch."""
        records = self.order(positions)
        if self.views == 1:
            return records
        mixed = records * 2_654_435_761 + (positions // self.items + self.seed) * 40_503
        return records * self.views + (mixed >> 13) % self.views

    def _layouts(self, records: Ints) -> list[Layout]:
        sizes = self.examples.sizes[records]
        if not self.few or self.row or not len(sizes):
            return lay_out(sizes, self.row, self.micro_tokens)
        longest = int(self.examples.sizes.max())
        unit = -(-longest // WIDTHS)
        width = min(longest, -(-int(sizes.max()) // unit) * unit)
        return rectangles(len(sizes), width, self.micro_tokens)


MASK_SHARE = 0.15  # of the tokens are targets
MASKED, REPLACED = 0.8, 0.9  # cumulative shares of these: masks, random tokens


class Masked(LabelledExamples):
    """The records of a shard, or pieces of them, with masked tokens.

    Without `draws` a record always has the same masks: validation uses the default share and seed
    for all runs.
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
        super().__init__(replace(shard, targets=no_targets, views=1), tokenizer, max_len)
        self.share, self.seed, self.mask = share, seed, tokenizer.mask
        if self.second is None:
            self.starts, self.lengths = pieces(np.asarray(shard.offsets), max_len)
            self.sizes, self.cut = self.lengths, 0
            self.targets = np.zeros(len(self.sizes), np.int32)
        self.plain = np.ones(tokenizer.vocab_size, bool)  # (V,) tokens that may be targets
        self.plain[list(tokenizer.names)] = False
        self.others = np.flatnonzero(self.plain)

    def fill(self, records: Ints, layout: Layout, draws: Ints | None = None) -> Batch:
        """Fill a layout; `draws` (N,) are the positions of the records in the stream of samples."""
        batch = super().fill(records, layout)
        occasions = (records if draws is None else draws)[layout.members]
        counters, flat = expand_spans(
            occasions * self.max_len, self.sizes[records[layout.members]], layout.positions
        )
        all_counters = np.zeros(batch.ids.shape, np.int64)  # of random words, by position
        all_counters.ravel()[flat] = counters
        ids, targets = self.hide(batch.ids.numpy(), all_counters)
        count = int(np.count_nonzero(targets >= 0))
        return replace(
            batch,
            ids=torch.from_numpy(ids),
            targets=torch.from_numpy(targets),
            tokens=count,
            symbols=count,
        )

    def hide(self, ids: Array, counters: Ints) -> tuple[Array, Array]:
        """Mask (B, T) ids with the random words of the given (B, T) counters.

        Returns the masked ids and the targets, IGNORE elsewhere.
        """
        uniform = (draw(self.seed, counters, stream=MASKS) >> np.uint64(11)) * 2.0**-53
        is_target = self.plain[ids] & (uniform < self.share)
        fraction = uniform / self.share  # uniform in [0, 1) for targets
        words = draw(self.seed, counters, stream=OTHERS) % np.uint64(len(self.others))
        random = self.others[words.astype(np.int64)]
        masked = np.where(is_target & (fraction < REPLACED), random, ids)
        masked = np.where(is_target & (fraction < MASKED), self.mask, masked)
        return masked, np.where(is_target, ids, IGNORE)


def pieces(offsets: Ints, most: int) -> tuple[Ints, Ints]:
    """Return starts and lengths of the records with (R + 1,) offsets.

    Those longer than `most` are cut into as few pieces as possible, equal up to one token.
    """
    lengths = np.diff(offsets)
    count = np.maximum(1, -(-lengths // most))
    record = np.repeat(np.arange(len(lengths)), count)
    within = np.arange(len(record)) - np.repeat(np.cumsum(count) - count, count)
    length, remainder = (lengths // count)[record], (lengths % count)[record]
    starts = offsets[:-1][record] + within * length + np.minimum(within, remainder)
    return starts, length + (within < remainder)


class MaskedLoader(LabelledLoader):
    """Training batches of a model that fills in what is masked; `masking` is the class of its
    examples.
    """

    examples: Any

    def __init__(
        self,
        shard: Shard,
        tokenizer: Tokenizer,
        *,
        share: float,
        masking: Any = Masked,
        **options: Any,
    ) -> None:
        self.share, self.tokenizer, self.masking = share, tokenizer, masking
        super().__init__(replace(shard, views=1), tokenizer, **options)

    def make_examples(self, shard: Shard, max_len: int, seed: int) -> Any:
        return self.masking(shard, self.tokenizer, max_len, share=self.share, seed=seed)

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        positions = self._positions(n, rank, world)
        records = self._rows(positions)
        return [self.examples.fill(records, part, positions) for part in self._layouts(records)]
