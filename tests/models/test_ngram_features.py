"""n-gram features against counting by hand, alone and in padded batches."""

from __future__ import annotations

import math
import time
from collections import Counter

import numpy as np
import pytest
import torch
from id_records import END, START, labelled, padded

from regard.errors import UsageError
from regard.models import linear
from regard.models.linear import (
    LinearConfig,
    Logistic,
    check_codes,
    count_ngrams,
    decode_ngram,
    inverse_frequency,
    keep_codes,
    list_codes,
    list_ngrams,
    tally_codes,
    tf_idf,
)
from regard.models.supervised import Budget, read_batches

V = 9


def texts(seed, count, low=0, high=8):
    random = np.random.default_rng(seed)
    return [random.integers(3, V, n).tolist() for n in random.integers(low, high, count)]


def row(one, two=None):
    return [START, *one, END, *([*two, END] if two is not None else [])]


def by_hand(one, two, order):
    """Counts of (text, n-gram): no n-gram has a marker inside, and one marker alone is none."""
    counts = Counter()
    for number, text in enumerate([[START, *one, END], [END, *two, END]] if two else [row(one)]):
        for n in range(1, order + 1):
            for i in range(len(text) - n + 1):
                gram = tuple(text[i : i + n])
                if n > 1 or gram[0] not in (START, END):
                    counts[number, gram] += 1
    return counts


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_n_grams_are_those_counted_by_hand(order, paired):
    ones, twos = texts(1, 12), texts(2, 12, low=1)
    rows = [row(a, b if paired else None) for a, b in zip(ones, twos, strict=True)]
    index, codes = list_ngrams(padded(rows, width=25), order, V, START, END)
    for number, (a, b) in enumerate(zip(ones, twos, strict=True)):
        grams = [decode_ngram(code, V) for code in codes[index == number].tolist()]
        assert all(gram.position is None for gram in grams)
        counts = Counter((int(gram.second), gram.ids) for gram in grams)
        assert counts == by_hand(a, b if paired else None, order)


def test_n_grams_at_positions_decode_to_their_positions():
    index, codes = list_ngrams(padded([row([3, 4, 3])]), 2, V, START, END, n_positions=6)
    grams = {(gram.ids, gram.position) for gram in (decode_ngram(c, V, 6) for c in codes.tolist())}
    assert grams == {
        ((3,), 1), ((4,), 2), ((3,), 3),
        ((START, 3), 0), ((3, 4), 1), ((4, 3), 2), ((3, END), 3),
    }  # fmt: skip
    assert index.tolist() == [0] * 7


@pytest.fixture
def counted():
    """A matrix of counts and the same as a dense array, one row and one column being empty."""
    random = np.random.default_rng(4)
    table = random.integers(0, 3, (7, 5)) * (random.random((7, 5)) < 0.5)
    table[3] = 0
    rows, columns = (torch.from_numpy(x) for x in np.nonzero(table))
    times = torch.from_numpy(table[table > 0])
    vocabulary = torch.tensor([2, 3, 5, 7, 11])
    codes = torch.cat([vocabulary[columns].repeat_interleave(times), torch.tensor([4, 99])])
    rows = torch.cat([rows.repeat_interleave(times), torch.tensor([0, 6])])
    return count_ngrams(rows, codes, vocabulary, 7), table.astype(float)


def test_known_codes_are_counted_and_others_are_not(counted):
    counts, table = counted
    np.testing.assert_array_equal(counts.toarray(), table)


def test_without_known_codes_the_matrix_has_no_columns():
    some = torch.tensor([0, 1])
    assert count_ngrams(some, some, torch.zeros(0, dtype=torch.int64), 3).shape == (3, 0)


def test_tf_idf_is_its_formula(counted):
    counts, table = counted
    idf = [math.log(8 / (1 + np.count_nonzero(column))) + 1 for column in table.T]
    np.testing.assert_allclose(inverse_frequency(counts), idf)
    weighted = tf_idf(counts, inverse_frequency(counts)).toarray()
    for ours, row in zip(weighted, table, strict=True):
        plain = [(1 + math.log(n)) * w if n else 0 for n, w in zip(row, idf, strict=True)]
        np.testing.assert_allclose(ours, np.array(plain) / (math.hypot(*plain) or 1))


def test_orders_whose_codes_do_not_fit_into_63_bits_are_refused():
    check_codes(3, 50_000)
    with pytest.raises(UsageError, match=r"model.order must be at most 3 with 50,000"):
        check_codes(4, 50_000)


def test_ten_thousand_records_are_read_in_well_under_a_second():
    random = np.random.default_rng(5)
    records = [random.integers(3, V, 20).tolist() for _ in range(10_000)]
    data = labelled(records, np.zeros(len(records), np.int32), V)
    started = time.perf_counter()
    sizes = [len(list_ngrams(source, 2, V, START, END)[0]) for _, source in read_batches(data, 11)]
    assert time.perf_counter() - started < 2
    assert sum(sizes) == 10_000 * (10 + 10)  # `<S>` and ten tokens: ten of one, ten of two


@pytest.mark.parametrize("lookup", [0, 1 << 20])
def test_counts_of_several_batches_are_those_of_one(monkeypatch, lookup):
    monkeypatch.setattr(linear, "LOOKUP", lookup)
    random = np.random.default_rng(6)
    rows, codes = torch.tensor(random.integers(0, 7, 90)), torch.tensor(random.integers(0, 40, 90))
    first = rows < 3
    parts = [
        tally_codes(rows[first], codes[first], 3, 50),
        tally_codes(rows[~first] - 3, codes[~first], 4, 50),
    ]
    found = list_codes(parts, 50)
    assert found.tolist() == sorted(set(codes.tolist()))
    kept = found[::2].copy()
    assert found.dtype == np.int64
    expected = count_ngrams(rows, codes, torch.from_numpy(kept), 7)
    np.testing.assert_array_equal(keep_codes(parts, kept, 50).toarray(), expected.toarray())


def test_rare_n_grams_are_left_out_if_all_do_not_fit_into_memory(monkeypatch):
    monkeypatch.setattr(linear, "MAX_COEFFICIENTS", 2 * 20)
    records = texts(8, 50, low=4)
    targets = np.array([len(one) % 2 for one in records], np.int32)
    model = Logistic(V, LinearConfig(n_outputs=2, order=2, weighting="counts", strength=1.0))
    lines = []
    model.fit(labelled(records, targets, V), None, lines.append, Budget(lines.append))
    assert 0 < len(model.codes) <= 20
    (line,) = (line for line in lines if "do not fit into memory" in line)
    assert "fewer than" in line
