"""Layouts against a plain best fit, and bounds on what they waste."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.collate import bucket, choose_row, lay_out, pack, padding_share

some_lengths = st.lists(st.integers(1, 23), min_size=1, max_size=40).map(
    lambda xs: np.array(xs, dtype=np.int64)
)


def cells(layout, lengths):
    """Every (row, column) that a layout uses, sequence by sequence."""
    for member, row, column in zip(layout.members, layout.row, layout.column, strict=True):
        for step in range(lengths[member]):
            yield int(row), int(column) + step


def best_fit_decreasing(lengths, width):
    """What is left free in every row, by scanning all rows for each sequence."""
    free = []
    for length in sorted(lengths.tolist(), reverse=True):
        fitting = [space for space in free if space >= length]
        if fitting:
            free[free.index(min(fitting))] -= length
        else:
            free.append(width - length)
    return free


@settings(max_examples=80, deadline=None)
@given(lengths=some_lengths, extra=st.integers(0, 30))
def test_packing_is_best_fit_decreasing_and_nothing_overlaps(lengths, extra):
    layout = pack(lengths, int(lengths.max()) + extra)
    used = list(cells(layout, lengths))
    assert sorted(layout.members) == list(range(lengths.size))
    assert len(set(used)) == len(used) == lengths.sum()
    assert max(column for _, column in used) < layout.width
    free = [layout.width - sum(row == r for row, _ in used) for r in range(layout.n_rows)]
    assert sorted(free) == sorted(best_fit_decreasing(lengths, layout.width))
    for row in range(layout.n_rows):  # segments count from 1, left to right
        inside = layout.row == row
        in_order = layout.segment[inside][np.argsort(layout.column[inside])]
        assert in_order.tolist() == list(range(1, inside.sum() + 1))


@settings(max_examples=80, deadline=None)
@given(lengths=some_lengths)
def test_buckets_hold_every_sequence_once_sorted_and_waste_little(lengths):
    layouts = bucket(lengths)
    members = np.concatenate([layout.members for layout in layouts])
    assert sorted(members) == list(range(lengths.size))
    assert np.all(np.diff(lengths[members]) <= 0)
    for layout in layouts:
        assert layout.width == lengths[layout.members].max()
        assert layout.row.tolist() == list(range(layout.n_rows))
        assert not layout.column.any()
        assert layout.segment is None
    assert padding_share(layouts, int(lengths.sum())) < 0.05


def test_a_few_odd_lengths_join_their_neighbours():
    lengths = np.array([20] * 100 + [19, 18] + [10] * 100 + [9])
    assert [(x.width, x.n_rows) for x in bucket(lengths)] == [(20, 102), (10, 101)]


@settings(max_examples=50, deadline=None)
@given(lengths=some_lengths, row=st.sampled_from([0, 23, 50]), most=st.integers(0, 200))
def test_parts_respect_the_limit_and_lose_nothing(lengths, row, most):
    whole, parts = lay_out(lengths, row, 0), lay_out(lengths, row, most)
    members = [m for part in parts for m in part.members]
    assert sorted(members) == list(range(lengths.size))
    assert sum(p.n_rows for p in parts) == sum(w.n_rows for w in whole)
    for part in parts:
        assert not most or part.n_rows == 1 or part.n_rows * part.width <= most
        used = list(cells(part, lengths))
        assert len(set(used)) == len(used)
        assert {r for r, _ in used} == set(range(part.n_rows))


def test_nothing_to_lay_out_gives_no_layout():
    assert lay_out(np.empty(0, dtype=np.int64), 8, 100) == []


def test_the_row_is_the_shortest_that_wastes_little():
    rng = np.random.default_rng(0)
    names = [rng.integers(3, 16, size=512) for _ in range(4)]
    row = choose_row(names, longest=15, limit=1024)
    shares = {
        width: padding_share([pack(x, width) for x in names], int(sum(x.sum() for x in names)))
        for width in (16, 24, 32, 48, 64)
    }
    assert row == min(width for width, share in shares.items() if share < 0.03)


@pytest.mark.parametrize("limit", [40, 41, 1000])
def test_the_row_falls_back_on_the_best_within_the_limit(limit):
    awkward = [np.array([33])]  # no row wastes under 3%: the shortest candidate wastes least
    assert choose_row(awkward, longest=33, limit=limit) == 40
    assert choose_row(awkward, longest=33, limit=34) == 34
