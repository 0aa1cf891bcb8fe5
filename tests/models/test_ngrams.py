"""The table of n-grams against counting in dictionaries, with and without numba, at any order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import START, shard

from regard.models import ngrams
from regard.models import ngrams as tally
from regard.models.ngrams import ABSENT, UNSEEN, count

RECORDS = st.lists(st.lists(st.integers(2, 6), max_size=9), min_size=1, max_size=8)


def by_hand(records, order):
    """Every n-gram that ends at a symbol that follows another in its record."""
    found = Counter()
    for record in records:
        whole = [START, *record, 2]
        for end in range(1, len(whole)):
            for length in range(1, min(order, end + 1) + 1):
                found[tuple(whole[end + 1 - length : end + 1])] += 1
    return found


def spelled(table):
    """The n-grams of a table as tuples of symbols, in the order of its nodes."""
    names = [(x,) for x in range(table.vocab_size)]
    for parent, symbol in zip(table.parents.tolist(), table.symbols.tolist(), strict=True):
        names.append((*names[parent], symbol))
    return names


def as_dictionary(table):
    counts = torch.cat([table.unigrams, table.counts]).tolist()
    return {name: n for name, n in zip(spelled(table), counts, strict=True) if n}


def same(one, other):
    parts = ("unigrams", "codes", "counts")
    return (one.order, one.start) == (other.order, other.start) and all(
        torch.equal(getattr(one, part), getattr(other, part)) for part in parts
    )


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setattr(tally, "has_numba", lambda: False)
    monkeypatch.setattr(ngrams, "has_numba", lambda: False)


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
    assert same(table, count(shard(records, 7), order))


def test_with_and_without_numba_the_table_is_the_same(without_numba, monkeypatch):
    pytest.importorskip("numba")
    source = np.random.default_rng(0)
    records = [source.integers(2, 300, n).tolist() for n in source.integers(0, 400, 60)]
    for order in (1, 2, 4):
        slow = count(shard(records, 300), order, chunk=1000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tally, "has_numba", lambda: True)
            patch.setattr(ngrams, "has_numba", lambda: True)
            patch.setattr(tally, "FIRST", 4)  # a table that has to grow
            assert same(slow, count(shard(records, 300), order, chunk=1000))
        assert as_dictionary(slow) == by_hand(records, order)


def test_an_alphabet_of_words_needs_no_number_for_every_n_gram():
    source = np.random.default_rng(1)
    records = [(2 + source.zipf(1.5, 50) % 100_000).tolist() for _ in range(20)]
    table = count(shard(records, 100_002), 6)  # 17 bits a word: three and more do not fit together
    assert as_dictionary(table) == by_hand(records, 6)


@pytest.mark.parametrize("kind", [tally.DenseCounter, tally.SortedCounter, tally.HashedCounter])
def test_every_way_to_count_keys_gives_the_same(kind):
    if kind is tally.HashedCounter:
        pytest.importorskip("numba")
    source = np.random.default_rng(2)
    keys = source.integers(1, 5000, 40_000) * source.integers(1, 3, 40_000)
    table = kind(10_000) if kind is tally.DenseCounter else kind()
    for part in np.array_split(keys, 7):
        table.add(part)
    found, counts = table.result()
    expected, times = np.unique(keys, return_counts=True)
    assert np.array_equal(found, expected) and np.array_equal(counts, times)


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_links_lead_to_shorter_n_grams(records):
    table = count(shard(records, 7), 4)
    names = spelled(table)
    assert len(set(names)) == len(names)
    borders = table.borders()
    for length, (low, high) in enumerate(pairwise(borders), start=1):
        assert all(len(name) == length for name in names[low:high])
    for node, suffix in enumerate(table.suffixes().tolist(), start=7):
        assert names[suffix] == names[node][1:]
    assert table.firsts().tolist() == [name[0] for name in names]
    totals = table.totals(table.counts).tolist()
    counted = as_dictionary(table)
    for name, total in zip(names, totals, strict=True):
        if len(name) < 4:
            children = [(*name, x) for x in range(7)]
            assert total == sum(counted.get(child, 0) for child in children)
    assert same(table.cut(2), count(shard(records, 7), 2))


@settings(max_examples=25, deadline=None)
@given(RECORDS, st.lists(st.integers(-2, 6), min_size=1, max_size=12), st.data())
def test_contexts_are_the_symbols_before(records, ids, data):
    table = count(shard(records, 7), 4)
    names = {name: node for node, name in enumerate(spelled(table))}
    cuts = data.draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids)))
    segments = np.cumsum(cuts).tolist()
    found = table.contexts(torch.tensor([ids]), torch.tensor([segments]))
    assert len(found) == 3
    for length, nodes in enumerate(found, start=1):
        for at, node in enumerate(nodes[0].tolist()):
            begin = at + 1 - length
            past = ids[max(0, begin) : at + 1]
            if begin < 0 or min(past) < 0 or segments[begin] != segments[at]:
                assert node == ABSENT
            else:
                assert node == names.get(tuple(past), UNSEEN)


def test_threads_share_the_work(monkeypatch):
    records = np.random.default_rng(3).integers(2, 30, (300, 40)).tolist()
    data = shard(records, 30)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = count(data, 4, chunk=700)
        torch.set_num_threads(3)
        assert same(alone, count(data, 4, chunk=700))
    finally:
        torch.set_num_threads(before)
