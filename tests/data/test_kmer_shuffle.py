"""Shuffles that keep k-mer counts, against the enumeration of all orders."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.kmer_shuffle import shuffle_kmers
from regard.errors import UsageError


def kmers(digits, k):
    return Counter(tuple(digits[i : i + k]) for i in range(len(digits) - k + 1))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 4), st.integers(0, 9))
def test_all_kmer_counts_are_kept(letters, k, seed):
    digits = np.array(letters, np.int64)
    shuffled = shuffle_kmers(digits, k, 4, np.random.default_rng(seed))
    assert len(shuffled) == len(digits)
    for j in range(1, k + 1):
        assert kmers(shuffled.tolist(), j) == kmers(letters, j)


@pytest.mark.parametrize(("letters", "k"), [("0102102", 2), ("00110100", 3), ("0012", 1)])
def test_every_order_is_equally_probable(letters, k):
    digits = np.array(list(map(int, letters)))
    wanted = kmers(digits.tolist(), k)
    edge = k - 1  # letters at both ends that stay, since the words there do
    ends = digits[:edge].tolist(), digits[len(digits) - edge :].tolist()
    orders = {
        order
        for order in itertools.permutations(digits.tolist())
        if kmers(order, k) == wanted
        and (list(order[:edge]), list(order[len(order) - edge :])) == ends
    }
    random, draws = np.random.default_rng(0), 400 * len(orders)
    seen = Counter(tuple(shuffle_kmers(digits, k, 3, random).tolist()) for _ in range(draws))
    assert set(seen) == orders
    assert len(orders) > 1
    chi = sum((n - 400) ** 2 / 400 for n in seen.values())
    assert chi < len(orders) + 4 * (2 * len(orders)) ** 0.5


def test_k_is_checked():
    with pytest.raises(UsageError, match="k must be 1 or more"):
        shuffle_kmers(np.zeros(5, np.int64), 0, 4, np.random.default_rng(0))
