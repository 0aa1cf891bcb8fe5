import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import splits
from regard.data.splits import (
    SplitCounts,
    assign,
    bucket,
    cut_points,
    distinct,
    find,
    hashes,
    leaks,
    sides_of,
)
from regard.errors import UsageError

WORDS = st.lists(st.sampled_from(["a", "b", "c", "ä", "", "aa", "ab", "x\ny"]), max_size=30)


def batched(texts, size=3):
    return [texts[i : i + size] for i in range(0, len(texts), size)]


def test_a_bucket_is_the_same_in_every_process():
    code = "from regard.data.splits import bucket; print(bucket('anna'), bucket('anna', 7))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == [str(bucket("anna")), str(bucket("anna", 7))]
    assert bucket("anna") != bucket("anna", 7) != bucket("anna", -7)


def test_a_bucket_is_the_scaled_hash_and_never_one():
    value = int(hashes(["anna"])[0])
    assert bucket("anna") == pytest.approx(value / 2**64, abs=2**-50)
    assert sides_of(np.array([0, 2**64 - 1], np.uint64), 0.3, 0.6).tolist() == [2, 0]


def test_sides_are_even_and_follow_the_bucket():
    texts = [str(i) for i in range(20_000)]
    sides = assign(texts, 0.2, 0.1)
    assert sides.dtype == np.uint8
    share = np.bincount(sides, minlength=3) / len(texts)
    assert share == pytest.approx([0.7, 0.2, 0.1], abs=4 * 0.5 / len(texts) ** 0.5)
    expected = [
        2 if bucket(t) < 0.1 else 1 if bucket(t) < 0.30000000000000004 else 0 for t in texts
    ]
    assert sides.tolist() == expected


@given(WORDS, st.floats(0, 0.49), st.floats(0, 0.49))
def test_copies_never_straddle_whatever_the_order_or_company(texts, valid, test):
    sides = dict(zip(texts, assign(texts, valid, test).tolist(), strict=True))
    backwards = assign(texts[::-1], valid, test).tolist()
    assert [sides[text] for text in reversed(texts)] == backwards


def test_no_texts_have_no_sides():
    assert assign([], 0.1, 0.1).tolist() == []


@given(st.integers(0, 10**12), st.floats(0, 0.49), st.floats(0, 0.49))
def test_cuts_are_in_order_and_as_long_as_asked(total, valid, test):
    a, b = cut_points(total, valid, test)
    assert 0 <= a <= b <= total
    assert abs((b - a) - total * valid) <= 1
    assert abs((total - b) - total * test) <= 1


@pytest.mark.parametrize(("valid", "test"), [(-0.1, 0), (0, 1), (0.5, 0.5), (float("nan"), 0)])
def test_impossible_fractions_are_refused(valid, test):
    for split in (lambda: cut_points(7, valid, test), lambda: assign(["a"], valid, test)):
        with pytest.raises(UsageError, match=r"data\.\w+_fraction"):
            split()


@settings(max_examples=60)
@given(WORDS, WORDS)
def test_leaks_are_what_sets_of_strings_say(train, other):
    seen = set(train)
    leak = leaks(batched(train), batched(other, 4))
    leaked = [text for text in other if text in seen]
    assert (leak.records, leak.distinct, leak.total) == (len(leaked), len(set(leaked)), len(other))
    assert list(leak.examples) == list(dict.fromkeys(leaked))[:5]


@settings(max_examples=60)
@given(WORDS, st.integers(1, 9))
def test_counts_are_what_a_counter_says(texts, pending):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "PENDING", pending)  # so that batches are merged again and again
        counts = SplitCounts()
        for batch in batched(texts):
            counts.add(batch)
    values, times = counts.result()
    expected = {int(hashes([text])[0]): n for text, n in Counter(texts).items()}
    assert dict(zip(values.tolist(), times.tolist(), strict=True)) == expected
    assert (np.diff(values.astype(object)) > 0).all()
    assert counts.total == len(texts)


def test_planted_leaks_are_counted_exactly_among_many():
    train = [f"record {i}" for i in range(5_000)]
    other = [f"other {i}" for i in range(700)] + train[10:31] + train[10:15]
    leak = leaks(batched(train, 999), batched(other, 100))
    assert (leak.records, leak.distinct, leak.total) == (26, 21, 726)
    assert leak.examples == tuple(train[10:15])


def test_wanted_hashes_are_found_without_reading_on():
    def batches():
        yield ["a", "b"]
        yield ["c", "a"]
        raise AssertionError("read on")

    wanted = hashes(["c", "a"]).tolist()
    assert find(batches(), wanted) == dict(zip(wanted, ["c", "a"], strict=True))


def test_distinct_hashes_rise():
    assert distinct([["b", "a"], [], ["a"]]).tolist() == sorted(hashes(["a", "b"]).tolist())
