"""Lay out sequences of different lengths in rectangles with little padding, and fill tensors.

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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Array, Shard, TokenTable
from regard.errors import UserError
from regard.layers.embeddings import Inputs

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
