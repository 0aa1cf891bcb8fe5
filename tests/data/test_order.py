"""The order is a law, not a list: permutations, seeking, and no visible pattern."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import batching as module
from regard.data.batching import Order, draw


def epoch_of(n, seed, epoch):
    return Order(n, seed)(np.arange(epoch * n, (epoch + 1) * n))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 10**9),
)
def test_every_epoch_is_a_permutation(n, seed, epoch):
    assert sorted(epoch_of(n, seed, epoch).tolist()) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 4**6 - 1, 4**6, 4**6 + 1, 2**13, 50_021])
def test_sizes_around_powers_of_two_are_permuted_too(n):
    assert np.array_equal(np.sort(epoch_of(n, 5, 3)), np.arange(n))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), n=st.integers(1, 50), seed=st.integers(0, 99))
def test_seeking_gives_what_streaming_gives(data, n, seed):
    stream = Order(n, seed)(np.arange(4 * n))
    some = data.draw(st.lists(st.integers(0, 4 * n - 1), max_size=9))
    assert Order(n, seed)(np.array(some, dtype=np.int64)).tolist() == [stream[p] for p in some]


def test_blocks_do_not_show_and_the_shape_is_kept(monkeypatch):
    positions = np.arange(60).reshape(3, 4, 5) + 1_000
    whole = Order(17, 2)(positions)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert whole.shape == (3, 4, 5)
    assert whole.dtype == np.int64
    assert np.array_equal(Order(17, 2)(positions), whole)


def test_epochs_and_seeds_differ():
    orders = [epoch_of(30, seed, epoch) for seed in range(4) for epoch in range(5)]
    assert len({tuple(order.tolist()) for order in orders}) == 20


def test_huge_data_sets_are_ordered_without_storing_anything():
    n = 3 * 2**40 + 1
    items = Order(n, 1)(np.arange(2 * n, 2 * n + 5_000))
    assert items.min() >= 0
    assert items.max() < n
    assert len(set(items.tolist())) == 5_000
    assert abs(items.mean() / n - 0.5) < 4 / np.sqrt(12 * 5_000)


@pytest.mark.parametrize("n", [2, 3, 5, 11, 100])
def test_the_first_item_of_an_epoch_is_uniform(n):
    epochs = 200 * n
    for firsts in (
        Order(n, 7)(np.arange(epochs) * n),
        np.array([Order(n, seed)(np.array([0]))[0] for seed in range(20 * n)]),
    ):
        expected = firsts.size / n
        chi = ((np.bincount(firsts, minlength=n) - expected) ** 2 / expected).sum()
        assert chi < (n - 1) + 5 * np.sqrt(2 * (n - 1)) + 5


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_every_permutation_of_a_few_items_is_equally_likely(n):
    every = {order: i for i, order in enumerate(permutations(range(n)))}
    epochs = 100 * len(every)
    orders = Order(n, 3)(np.arange(epochs * n)).reshape(epochs, n)
    counts = np.bincount([every[tuple(o)] for o in orders.tolist()], minlength=len(every))
    chi = ((counts - 100) ** 2 / 100).sum()
    assert chi < len(every) + 5 * np.sqrt(2 * len(every)) + 5


def test_neighbours_are_uncorrelated_within_and_across_epochs():
    n = 10_007
    epochs = [epoch_of(n, 11, epoch) for epoch in range(3)]
    for order in epochs:
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4 / np.sqrt(n)
        assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 4 / np.sqrt(n)
        assert np.count_nonzero(np.abs(np.diff(order)) == 1) < 20  # 2 expected
    for before, after in pairwise(epochs):
        assert abs(np.corrcoef(before, after)[0, 1]) < 4 / np.sqrt(n)


def test_drawn_words_depend_on_seed_counter_and_stream():
    words = [
        draw(seed, np.array([counter]), stream=stream).item()
        for seed in range(3)
        for counter in range(4)
        for stream in range(5)
    ]
    assert len(set(words)) == 60
    bits = np.unpackbits(draw(0, np.arange(4_096)).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(bits.size)


def test_mistakes_name_the_value():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        Order(0, 1)
    with pytest.raises(ValueError, match="positions must be at least 0, got -3"):
        Order(4, 1)(np.array([2, -3]))
