"""Laying out sequences of different lengths in rectangles, with little padding.

Either packed whole into rows of one length, several to a row (best-fit decreasing: Johnson 1973,
"Near-optimal bin packing algorithms"), or bucketed: one to a row, in few rectangles whose rows have
similar lengths. Lengths go in, places come out; nothing here knows what the sequences hold.

Sequences in pairs go into two rectangles with the same rows, the second beside the first, and both
should hold little padding: rows are balanced (longest first, each where it leaves most room on the
fuller side: Graham 1969, "Bounds on multiprocessing timing anomalies", in two dimensions), or
rectangles are cut where most padding goes.

From layouts to tensors: ids, what follows them, and which belong together.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Array, Shard, TokenTable
from regard.errors import UserError
from regard.layers.embeddings import Inputs

PACKED = 0.03  # a share of padding that packed rows should stay below
BUCKETED = 0.05  # and one that rectangles of similar length always stay below
MISFIT = 0.01  # and what two widths may waste because their ratio is not that of the sequences
ABREAST = (8, 14)  # sequences in a row of pairs, about: at least, and less than
STEP = 8  # widths of pairs are multiples of this, so that few shapes occur

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where sequences go in one (n_rows, width) rectangle: one entry per sequence in each array."""

    width: int
    n_rows: int
    members: Ints  # which of the sequences laid out together
    row: Ints
    column: Ints  # of the first position
    segment: Ints | None  # number in the row, from 1; None: one sequence a row
    beside: Layout | None = None  # of the seconds of pairs: the same members in the same rows

    @property
    def area(self) -> int:
        """Positions, of both rectangles where there are two."""
        return self.n_rows * self.width + (self.beside.area if self.beside else 0)


def pack(lengths: Ints, width: int) -> Layout:
    """Whole sequences into rows of `width`, each into the fullest row it fits, longest first."""
    members = np.argsort(-lengths, kind="stable")
    row, column, segment = [], [], []
    spaces: list[int] = []  # free positions of the open rows, ascending ...
    rows: list[int] = []  # ... and which rows they are
    count: list[int] = []  # sequences in every row
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
    """Sequences into few rectangles of similar length, longest first, with little padding.

    Begins with one rectangle per length and joins the two neighbours that cost least, as long as
    padding stays below BUCKETED of all positions.
    """
    order = np.argsort(-lengths, kind="stable")
    tops, counts = np.unique(lengths, return_counts=True)  # ascending
    real, padding = int(lengths.sum()), 0
    while tops.size > 1:
        costs = counts[:-1] * np.diff(tops)  # of padding each group up to the next
        cheapest = int(costs.argmin())
        padding += int(costs[cheapest])
        if padding >= BUCKETED * (real + padding):
            break
        counts[cheapest + 1] += counts[cheapest]
        tops, counts = np.delete(tops, cheapest), np.delete(counts, cheapest)
    groups = np.split(order, np.cumsum(counts[::-1])[:-1])
    widths = tops[::-1].tolist()
    return [_rectangle(group, width) for group, width in zip(groups, widths, strict=True)]


def _rectangle(members: Ints, width: int) -> Layout:
    """One sequence a row."""
    rows = np.arange(members.size)
    return Layout(width, members.size, members, rows, np.zeros_like(rows), None)


def pack_pairs(firsts: Ints, seconds: Ints, rows: tuple[int, int], most: int) -> Layout:
    """Whole pairs into rows of about these two widths, as few as will do, equally full.

    A row is wider where the longest sequence needs it, and no wider than `most` for both (0: no
    limit) unless it must be. Widths are the fullest row's, rounded up.
    """
    room = _room(rows, (int(firsts.max()), int(seconds.max())), most)
    unit = room[0] * room[1]  # both sides in one unit: a row is full at this weight
    order = np.argsort(-np.maximum(firsts * room[1], seconds * room[0]), kind="stable")
    lengths = firsts[order], seconds[order]
    weights = np.stack([lengths[0] * room[1], lengths[1] * room[0]])
    n_rows = -(-int(weights.sum(axis=1).max()) // unit)
    row, fullest = _balance(weights, n_rows)
    while fullest > unit:  # a row for every pair would do: each fits alone
        n_rows = min(order.size, n_rows + max(1, n_rows // 64))
        row, fullest = _balance(weights, n_rows)
    one, two = (_side(order, *side, row, n_rows) for side in zip(lengths, room, strict=True))
    return replace(one, beside=two)


def _room(rows: tuple[int, int], longest: tuple[int, int], most: int) -> tuple[int, int]:
    """Two widths in the proportion of `rows` that hold the longest sequences."""
    scale = max(1.0, *(x / row for x, row in zip(longest, rows, strict=True)))
    one, two = (_round_up(row * scale) for row in rows)
    if most and one + two > most:
        one = max(longest[0], min(most * rows[0] // sum(rows), most - longest[1]))
        two = max(longest[1], most - one)
    return one, two


def _round_up(width: float) -> int:
    return STEP * math.ceil(width / STEP)


def _balance(weights: Ints, n_rows: int) -> tuple[Ints, int]:
    """The row of every pair, in turn: where its fuller side is then least full; and the fullest."""
    full = np.zeros((2, n_rows), dtype=np.int64)
    row = np.empty(weights.shape[1], dtype=np.int64)
    for i, (one, two) in enumerate(weights.T.tolist()):
        chosen = int(np.maximum(full[0] + one, full[1] + two).argmin())
        full[0, chosen] += one
        full[1, chosen] += two
        row[i] = chosen
    return row, int(full.max())


def _side(members: Ints, lengths: Ints, room: int, row: Ints, n_rows: int) -> Layout:
    """One rectangle of pairs whose rows are known, none empty; rounded up where there is room."""
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(lengths[order])
    first = np.searchsorted(row[order], np.arange(n_rows))  # of every row
    begins = ends - lengths[order]
    column, segment = np.empty_like(row), np.empty_like(row)
    column[order] = begins - begins[first][row[order]]
    segment[order] = 1 + np.arange(row.size) - first[row[order]]
    width = min(room, _round_up(int((column + lengths).max())))
    return Layout(width, n_rows, members, row, column, segment)


def bucket_pairs(firsts: Ints, seconds: Ints) -> list[Layout]:
    """Pairs, one to a row, into few rectangles of similar lengths, with little padding.

    Begins with one rectangle for all and cuts one in two, by the lengths of one side, where that
    saves most, until padding is below BUCKETED of all positions.
    """
    lengths = np.stack([firsts, seconds])
    whole = np.arange(firsts.size)
    real, area = int(lengths.sum()), whole.size * int(lengths.max(axis=1).sum())
    cuts = [_best_cut(lengths, whole, 0)]
    while area - real >= BUCKETED * area:
        saved, number, (low, high) = heapq.heappop(cuts)
        area += saved
        heapq.heappush(cuts, _best_cut(lengths, low, 2 * number + 1))
        heapq.heappush(cuts, _best_cut(lengths, high, 2 * number + 2))
    parts = [np.concatenate(halves) for _, _, halves in cuts]
    widths = [lengths[:, part].max(axis=1).tolist() for part in parts]
    found = sorted(zip(widths, parts, strict=True), key=lambda x: x[0], reverse=True)
    return [
        replace(_rectangle(part, one), beside=_rectangle(part, two)) for (one, two), part in found
    ]


def _best_cut(lengths: Ints, part: Ints, number: int) -> tuple[int, int, tuple[Ints, Ints]]:
    """What cutting a rectangle in two adds to the area at best, its number, and the two parts."""
    best = 0, number, (part, part[:0])
    for side in range(2):
        order = part[np.argsort(lengths[side, part], kind="stable")]
        up = np.maximum.accumulate(lengths[:, order], axis=1).sum(axis=0)  # widths of the low part
        down = np.maximum.accumulate(lengths[:, order[::-1]], axis=1).sum(axis=0)[::-1]
        at = np.arange(1, order.size)
        areas = at * up[:-1] + (order.size - at) * down[1:]
        if order.size > 1 and (added := int(areas.min()) - order.size * int(up[-1])) < best[0]:
            cut = int(areas.argmin()) + 1
            best = added, number, (order[:cut], order[cut:])
    return best


def _split(layout: Layout, most: int) -> list[Layout]:
    """The rows of a layout, a part at a time."""
    rows = max(1, most * layout.n_rows // layout.area) if most else layout.n_rows
    if rows >= layout.n_rows:
        return [layout]
    return [_rows(layout, first, rows) for first in range(0, layout.n_rows, rows)]


def _rows(layout: Layout, first: int, count: int) -> Layout:
    """Some rows of a layout."""
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
    """Packed into rows of length `row` (0: bucketed), in parts of at most `most` positions.

    A part has one row at least; `most` = 0 sets no limit.
    """
    whole = ([pack(lengths, row)] if row else bucket(lengths)) if lengths.size else []
    return [part for layout in whole for part in _split(layout, most)]


def rectangles(count: int, width: int, most: int, beside: int = 0) -> list[Layout]:
    """So many sequences, one to a row of this width, in parts like `lay_out`; of pairs, the seconds
    in rows of the width `beside`.
    """
    members = np.arange(count)
    seconds = _rectangle(members, beside) if beside else None
    return _split(replace(_rectangle(members, width), beside=seconds), most)


def lay_out_pairs(firsts: Ints, seconds: Ints, rows: tuple[int, int], most: int) -> list[Layout]:
    """Pairs, packed into rows of about these widths (0, 0: bucketed), in parts like `lay_out`."""
    if not firsts.size:
        return []
    packed = [pack_pairs(firsts, seconds, rows, most)] if any(rows) else []
    whole = packed or bucket_pairs(firsts, seconds)
    return [part for layout in whole for part in _split(layout, most)]


def padding_share(layouts: Sequence[Layout], real: int) -> float:
    """The share of positions that hold nothing, given how many hold something."""
    return 1 - real / sum(layout.area for layout in layouts)


def choose_rows(firsts: Ints, seconds: Ints, *, limit: int) -> tuple[int, int]:
    """Two widths for rows of pairs of these lengths, as `pack_pairs` wants them.

    Pairs that are all alike have a row each. Otherwise they are the shortest of those ABREAST whose
    proportion wastes less than MISFIT, or else the pair that wastes least; the wider is at most
    `limit`, rounded up.
    """
    alone = _round_up(int(firsts.max())), _round_up(int(seconds.max()))
    if firsts.sum() + seconds.sum() > (1 - PACKED) * firsts.size * sum(alone):
        return alone
    shorter, longer = sorted((float(firsts.mean()), float(seconds.mean())))
    found: list[tuple[float, int, int]] = []
    least, most = (_round_up(min(limit, n * longer)) for n in ABREAST)
    for wide in range(least, max(least + 1, most), STEP):
        narrow = max(STEP, _round_up(wide * shorter / longer))
        waste = 1 - (longer + shorter) * wide / (longer * (wide + narrow))
        found.append((waste, wide, narrow))
        if waste < MISFIT:
            break
    _, wide, narrow = found[-1] if found[-1][0] < MISFIT else min(found)
    return (wide, narrow) if firsts.mean() == longer else (narrow, wide)


def choose_row(samples: Sequence[Ints], *, longest: int, limit: int) -> int:
    """The shortest row length that packs these samples of lengths with padding below PACKED.

    Candidates are the longest sequence, rounded up, times 1, 1.5, 2, 3, 4, 6 … up to `limit`; if
    none will do, the one with the least padding. Long rows cost attention, so shorter ones win.
    """
    real = sum(int(lengths.sum()) for lengths in samples)
    least = min(limit, -(-longest // 8) * 8)
    found: list[tuple[float, int]] = []
    for row in (width << k for k in range(limit.bit_length()) for width in (least, least * 3 // 2)):
        if row > limit and found:
            break
        padding = padding_share([pack(lengths, row) for lengths in samples], real)
        if padding < PACKED:
            return row
        found.append((padding, row))
    return min(found)[1]


IGNORE = -1  # a target that is not scored; models/language_model.py uses the same value


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
        begins = shard.source.offsets[records] + shard.source.cuttable
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


class Collator:
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

    def source(self, layout: Layout, spans: Spans) -> Inputs | None:
        """(B, S) ids, or (B, S, V) numbers, and segments of the sources beside a layout; None where
        there are none.
        """
        if layout.beside is None or spans.source is None or self.source_ids is None:
            return None
        beside = layout.beside
        lengths, _, read, place = _cells(beside, spans.source)
        # padding is id 0, which every vocabulary has; the segments tell it
        features = self.source_ids.shape[1:]
        size = beside.n_rows, beside.width, *features
        ids = np.zeros(size, self.source_ids.dtype if features else np.int64)
        segments = np.zeros(size[:2], np.int64)
        ids.reshape(-1, *size[2:])[place] = self.source_ids[read]
        which = np.ones_like(beside.row) if beside.segment is None else beside.segment
        segments.ravel()[place] = np.repeat(which, lengths)
        return Inputs(torch.from_numpy(ids), torch.from_numpy(segments))
