"""Laying out sequences of different lengths in rectangles, with little padding.

Either packed whole into rows of one length, several to a row (best-fit decreasing: Johnson 1973,
"Near-optimal bin packing algorithms"), or bucketed: one to a row, in few rectangles whose rows have
similar lengths. Lengths go in, places come out; nothing here knows what the sequences hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PACKED = 0.03  # a share of padding that packed rows should stay below
BUCKETED = 0.05  # and one that rectangles of similar length always stay below

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


def _split(layout: Layout, most: int) -> list[Layout]:
    """The rows of a layout, a part at a time."""
    rows = max(1, most // layout.width) if most else layout.n_rows
    if rows >= layout.n_rows:
        return [layout]
    parts = []
    for first in range(0, layout.n_rows, rows):
        inside = (layout.row >= first) & (layout.row < first + rows)
        segment = None if layout.segment is None else layout.segment[inside]
        n_rows = min(rows, layout.n_rows - first)
        row, column = layout.row[inside] - first, layout.column[inside]
        parts.append(Layout(layout.width, n_rows, layout.members[inside], row, column, segment))
    return parts


def lay_out(lengths: Ints, row: int, most: int) -> list[Layout]:
    """Packed into rows of length `row` (0: bucketed), in parts of at most `most` positions.

    A part has one row at least; `most` = 0 sets no limit.
    """
    whole = ([pack(lengths, row)] if row else bucket(lengths)) if lengths.size else []
    return [part for layout in whole for part in _split(layout, most)]


def padding_share(layouts: Sequence[Layout], real: int) -> float:
    """The share of positions that hold nothing, given how many hold something."""
    return 1 - real / sum(layout.width * layout.n_rows for layout in layouts)


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
