"""Compiled counting loops against their numpy twins."""

from __future__ import annotations

import numpy as np
import pytest

from regard.models.motifs import count_windows, sum_windows
from regard.models.ngrams import count_predecessors

counting = pytest.importorskip("regard.kernels.counting", exc_type=ImportError)


def test_rolled_codes_are_the_digits_of_the_last_ids():
    random = np.random.default_rng(1)
    ids, starts = random.integers(0, 6, 50), np.array([0, 9, 10, 30])
    depth = count_predecessors(50, starts)
    out = np.empty(50, np.int64)
    counting.roll_codes(ids, starts, 7, 3, 49, out)
    for i in range(50):
        digits = [int(x) + 1 for x in ids[i - min(2, depth[i]) : i + 1]]
        assert out[i] == int("".join(map(str, digits)), 7)


@pytest.mark.parametrize("slots", [8, 1024])
def test_a_hash_table_counts_keys_until_it_is_half_full(slots):
    keys = np.random.default_rng(2).integers(1, 1000, 300)
    table = np.zeros(2 * slots, np.int64)
    shift = 65 - slots.bit_length()
    done, used = counting.insert_keys(keys, 0, table, 0, shift)
    assert done == 300 or 2 * used == slots
    larger = np.zeros(8 * slots, np.int64)
    counting.move_keys(table, larger, shift - 2)
    expected = dict(zip(*np.unique(keys[:done], return_counts=True), strict=True))
    for entries in (table, larger):
        pairs = entries.reshape(-1, 2)
        assert dict(pairs[pairs[:, 0] > 0].tolist()) == expected


def test_sums_and_counts_of_windows_have_the_bits_of_numpy():
    random = np.random.default_rng(3)
    table, codes = random.normal(size=(7, 25)), random.integers(0, 25, 500)
    starts, weights = random.integers(0, 494, 300), random.random(300)
    np.testing.assert_array_equal(
        counting.window_sums(table, codes, starts), sum_windows(table, codes, starts)
    )
    np.testing.assert_array_equal(
        counting.window_counts(codes, starts, weights, np.zeros((7, 25))),
        count_windows(codes, starts, weights, np.zeros((7, 25))),
    )
