"""Bags of n-grams against counting by hand, alone and in padded batches."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import torch
from id_records import END, START, shard

from regard.errors import UsageError
from regard.layers.embeddings import Inputs
from regard.models.model_selection import batches
from regard.models.ngram_features import (
    SparseCounts,
    check_codes,
    concatenate,
    count_ngrams,
    ngrams_of,
    of_unit_length,
    rarity,
)

V = 9


def texts(seed, count, low=0, high=8):
    draw = np.random.default_rng(seed)
    return [draw.integers(3, V, n).tolist() for n in draw.integers(low, high, count)]


def row(one, two=None):
    return [START, *one, END, *([*two, END] if two is not None else [])]


def source_of(rows, width=0):
    width = width or max(map(len, rows))
    ids = torch.tensor([[*r, *[0] * (width - len(r))] for r in rows])
    segments = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    return Inputs(ids, segments)


def by_hand(one, two, order):
    """Counts of (text, n-gram): no n-gram has a marker inside, and one token is none."""
    counts = Counter()
    for number, text in enumerate([[START, *one, END], [END, *two, END]] if two else [row(one)]):
        for n in range(1, order + 1):
            for i in range(len(text) - n + 1):
                gram = tuple(text[i : i + n])
                if n > 1 or gram[0] not in (START, END):
                    counts[number, gram] += 1
    return counts


def named(code):
    """The text and n-gram of a code."""
    number, text = divmod(code, 2)
    digits = []
    while number:
        number, digit = divmod(number, V + 1)
        digits.append(digit - 1)
    return text, tuple(digits[::-1])


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_n_grams_are_those_counted_by_hand(order, paired):
    ones, twos = texts(1, 12), texts(2, 12, low=1)
    rows = [row(a, b if paired else None) for a, b in zip(ones, twos, strict=True)]
    at, codes = ngrams_of(source_of(rows, width=25), order, V, START, END)
    for number, (a, b) in enumerate(zip(ones, twos, strict=True)):
        got = Counter(named(code) for code in codes[at == number].tolist())
        assert got == by_hand(a, b if paired else None, order)


def dense(bags):
    table = np.zeros((len(bags), bags.width))
    table[bags.owners.numpy(), bags.columns.numpy()] = bags.values.numpy()
    return table


@pytest.fixture
def sparse():
    draw = np.random.default_rng(4)
    table = draw.integers(0, 3, (7, 5)) * (draw.random((7, 5)) < 0.5)
    table[3] = 0
    rows, columns = (torch.from_numpy(x) for x in np.nonzero(table))
    times = torch.from_numpy(table[table > 0])
    made = count_ngrams(rows.repeat_interleave(times), columns.repeat_interleave(times), 7, 5)
    return made, table.astype(float)


def test_a_sparse_matrix_does_what_a_dense_one_does(sparse):
    bags, table = sparse
    np.testing.assert_array_equal(dense(bags), table)
    weights = torch.randn(5, 3, dtype=torch.float64)
    np.testing.assert_allclose(bags.product(weights), table @ weights.numpy())
    np.testing.assert_array_equal(dense(bags.transposed()), table.T)
    np.testing.assert_array_equal(dense(bags.rows(torch.tensor([6, 3, 0]))), table[[6, 3, 0]])
    np.testing.assert_array_equal(dense(bags.part(2, 1)), table[:, 1:3])
    np.testing.assert_array_equal(dense(concatenate([bags, bags])), np.concatenate([table, table]))


def test_a_matrix_without_entries():
    none = torch.zeros(0, dtype=torch.int64)
    empty = count_ngrams(none, none, 3, 0)
    assert empty.product(torch.zeros(0, 2, dtype=torch.float64)).tolist() == [[0, 0]] * 3
    assert isinstance(empty.transposed(), SparseCounts) and len(empty.transposed()) == 0


def test_rows_of_unit_length_are_the_formula(sparse):
    bags, table = sparse
    idf = [math.log(8 / (1 + np.count_nonzero(column))) + 1 for column in table.T]
    np.testing.assert_allclose(rarity(bags), idf)
    got = dense(of_unit_length(bags, rarity(bags)))
    for ours, counts in zip(got, table, strict=True):
        plain = [(1 + math.log(n)) * w if n else 0 for n, w in zip(counts, idf, strict=True)]
        length = math.hypot(*plain)
        np.testing.assert_allclose(ours, np.array(plain) / (length or 1))


def test_more_n_grams_than_numbers_are_refused():
    check_codes(3, 50_000)
    with pytest.raises(UsageError, match=r"model.order must be at most 3 with 50,000"):
        check_codes(4, 50_000)


def test_records_of_a_shard_are_cut_where_batches_cut_them():
    """Ten thousand records pass in well under a second."""
    import time

    draw = np.random.default_rng(5)
    many = [draw.integers(3, V, 20).tolist() for _ in range(10_000)]
    held = dataclasses.replace(shard(many, V), targets=np.zeros(len(many), np.int32))
    began = time.perf_counter()
    sizes = [len(ngrams_of(source, 2, V, START, END)[0]) for _, source in batches(held, 11)]
    assert time.perf_counter() - began < 2
    assert sum(sizes) == 10_000 * (10 + 10)  # `<S>` and ten tokens: ten of one, ten of two
