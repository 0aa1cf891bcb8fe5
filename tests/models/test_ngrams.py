"""The table of n-grams against counting in dictionaries, with and without numba, at any order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import END, START, shard

from regard.models import ngrams
from regard.models.ngrams import ABSENT, UNSEEN, DenseCounter, HashedCounter, SortedCounter, count

RECORDS = st.lists(st.lists(st.integers(2, 6), max_size=9), min_size=1, max_size=8)


def by_hand(records, order):
    """Count every n-gram that ends at a symbol that follows another in its record."""
    counts = Counter()
    for record in records:
        text = [START, *record, END]
        for end in range(1, len(text)):
            for length in range(1, min(order, end + 1) + 1):
                counts[tuple(text[end + 1 - length : end + 1])] += 1
    return counts


def list_nodes(table):
    """Return the n-grams of a table as tuples of symbols, in the order of its nodes."""
    names = [(x,) for x in range(table.vocab_size)]
    for parent, symbol in zip(table.parents.tolist(), table.symbols.tolist(), strict=True):
        names.append((*names[parent], symbol))
    return names


def as_dictionary(table):
    counts = torch.cat([table.unigrams, table.counts]).tolist()
    return {name: n for name, n in zip(list_nodes(table), counts, strict=True) if n}


def equal(one, other):
    parts = ("unigrams", "codes", "counts")
    return (one.order, one.start) == (other.order, other.start) and all(
        torch.equal(getattr(one, part), getattr(other, part)) for part in parts
    )


@settings(max_examples=40, deadline=None)
@given(RECORDS, st.integers(1, 5), st.integers(1, 9))
def test_counts_are_those_of_a_dictionary(records, order, chunk):
    table = count(shard(records, 7), order, chunk=chunk)
    assert as_dictionary(table) == by_hand(records, order)
    assert table.start == START
    assert bool((table.codes.diff() > 0).all())


@settings(max_examples=25, deadline=None)
@given(RECORDS, st.integers(2, 5), st.integers(1, 4))
def test_n_grams_too_long_for_one_number_are_counted_in_more_passes(records, order, direct):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "LARGEST", 8 ** max(2, direct))
        table = count(shard(records, 7), order, chunk=5)
    assert equal(table, count(shard(records, 7), order))


def test_the_table_is_the_same_with_and_without_numba(monkeypatch):
    pytest.importorskip("numba")
    random = np.random.default_rng(0)
    records = [random.integers(2, 300, n).tolist() for n in random.integers(0, 400, 60)]
    for order in (1, 2, 4):
        monkeypatch.setattr(ngrams, "FIRST", 4)  # a hash table that has to grow
        fast = count(shard(records, 300), order, chunk=1000)
        monkeypatch.setattr(ngrams, "has_numba", lambda: False)
        assert equal(fast, count(shard(records, 300), order, chunk=1000))
        assert as_dictionary(fast) == by_hand(records, order)
        monkeypatch.undo()


def test_an_alphabet_of_words_needs_no_number_for_every_n_gram():
    random = np.random.default_rng(1)
    records = [(2 + random.zipf(1.5, 50) % 100_000).tolist() for _ in range(20)]
    table = count(shard(records, 100_002), 6)  # 17 bits a word: four do not fit into 63 bits
    assert as_dictionary(table) == by_hand(records, 6)


@pytest.mark.parametrize("make", [lambda: DenseCounter(10_000), SortedCounter, HashedCounter])
def test_all_counters_count_the_same(make):
    if make is HashedCounter:
        pytest.importorskip("numba")
    random = np.random.default_rng(2)
    keys = random.integers(1, 5000, 40_000) * random.integers(1, 3, 40_000)
    counter = make()
    for part in np.array_split(keys, 7):
        counter.add(part)
    unique, counts = counter.result()
    expected, times = np.unique(keys, return_counts=True)
    assert np.array_equal(unique, expected) and np.array_equal(counts, times)


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_links_lead_to_shorter_n_grams(records):
    table = count(shard(records, 7), 4)
    names = list_nodes(table)
    assert len(set(names)) == len(names)
    borders = table.borders()
    for length, (low, high) in enumerate(pairwise(borders), start=1):
        assert all(len(name) == length for name in names[low:high])
    for node, suffix in enumerate(table.suffixes().tolist(), start=7):
        assert names[suffix] == names[node][1:]
    assert table.first_symbols().tolist() == [name[0] for name in names]
    totals = table.totals(table.counts).tolist()
    counted = as_dictionary(table)
    for name, total in zip(names, totals, strict=True):
        if len(name) < 4:
            children = [(*name, x) for x in range(7)]
            assert total == sum(counted.get(child, 0) for child in children)
    assert equal(table.truncate(2), count(shard(records, 7), 2))


@settings(max_examples=25, deadline=None)
@given(RECORDS, st.lists(st.integers(-2, 6), min_size=1, max_size=12), st.data())
def test_contexts_are_the_symbols_before(records, ids, data):
    table = count(shard(records, 7), 4)
    names = {name: node for node, name in enumerate(list_nodes(table))}
    steps = data.draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids)))
    segments = np.cumsum(steps).tolist()
    contexts = table.contexts(torch.tensor([ids]), torch.tensor([segments]))
    assert len(contexts) == 3
    for length, nodes in enumerate(contexts, start=1):
        for end, node in enumerate(nodes[0].tolist()):
            start = end + 1 - length
            symbols = ids[max(0, start) : end + 1]
            if start < 0 or min(symbols) < 0 or segments[start] != segments[end]:
                assert node == ABSENT
            else:
                assert node == names.get(tuple(symbols), UNSEEN)


def test_counts_do_not_depend_on_the_number_of_threads():
    records = np.random.default_rng(3).integers(2, 30, (300, 40)).tolist()
    data = shard(records, 30)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = count(data, 4, chunk=700)
        torch.set_num_threads(3)
        assert equal(alone, count(data, 4, chunk=700))
    finally:
        torch.set_num_threads(before)
