"""Entropies by context against counting by hand, and the place of an alphabet among others."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.entropy import (
    MOST_CHARACTERS,
    CorpusSample,
    alphabet_rows,
    context_entropies,
    entropy_words,
    one_hot_memory,
)


def sample_of(texts, running=False):
    sample = CorpusSample(running)
    sample.add(texts)
    return sample


def entropy_by_hand(texts, order):
    """Return the mean of −log₂ P(symbol | context) over all symbols and ends."""
    pairs, contexts = Counter(), Counter()
    for text in texts:
        symbols = ["<S>", *text, "<E>"]
        for i in range(1, len(symbols)):
            context = tuple(symbols[max(0, i - order) : i]) if order else ()
            pairs[context, symbols[i]] += 1
            contexts[context] += 1
    bits = sum(n * math.log2(contexts[c] / n) for (c, _), n in pairs.items())
    return bits / pairs.total(), pairs.total() / len(contexts)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("abä😀", max_size=7), min_size=1, max_size=12))
def test_entropies_of_records_are_those_of_counting_by_hand(texts):
    for x in sample_of(texts).entropies():
        bits, per_context = entropy_by_hand(texts, x.order)
        assert x.bits == pytest.approx(bits, abs=1e-9)
        assert x.per_context == pytest.approx(per_context)


def test_running_text_has_no_ends_and_a_period_is_certain_after_one_symbol():
    entropies = sample_of(["abab" * 50, "abab" * 50], running=True).entropies()
    assert entropies[0].bits == pytest.approx(1.0)
    assert all(x.bits == pytest.approx(0.0, abs=1e-9) for x in entropies[1:])
    assert context_entropies(np.zeros(0, np.int64)) == ()


def test_rare_contexts_are_said_to_give_too_low_an_estimate():
    letters = np.random.default_rng(0).integers(0, 20, 3000)
    entropies = sample_of(["".join(chr(97 + i) for i in letters)]).entropies()
    assert [x.too_low for x in entropies] == [False, False, True, True]
    lines = entropy_words(entropies, sampled=True)
    assert lines[0].startswith("4.3") and "after 2 symbols too low" in lines[1]
    assert f"first {MOST_CHARACTERS:,}" in lines[2]


def test_a_sample_ends_where_it_is_full():
    sample = sample_of(["a" * MOST_CHARACTERS, "b"])
    sample.add(["c"])
    assert sample.full and sample.texts == ["a" * MOST_CHARACTERS]
    assert len(sample.symbols()) == MOST_CHARACTERS + 1
    assert sample_of(["a b", "b c"]).words() == 3


@pytest.mark.parametrize(("size", "place"), [(4, 1), (26, 2), (5_000, 3), (2_000_000, 5)])
def test_an_alphabet_has_its_place_by_size(size, place):
    rows = alphabet_rows(size)
    assert [i for i, row in enumerate(rows) if row.of_file] == [place]
    assert rows[place].size == f"{size:,}" and rows[place].bits == f"{math.log2(size):.1f}"
    assert [row.name for row in alphabet_rows(size, words=7) if row.of_file][-1] in (
        "words of this file",
        "characters of this file",
    )


def test_the_memory_of_one_hot_vectors_is_four_bytes_for_each_symbol_of_the_alphabet():
    assert one_hot_memory(26) == "0.1 MB" and one_hot_memory(10_000) == "40 MB"
    assert one_hot_memory(1_000_000) == "4 GB" and one_hot_memory(4, tokens=10**6) == "16 MB"
    assert alphabet_rows(26)[-1].one_hot == "40 MB to 4 GB"
