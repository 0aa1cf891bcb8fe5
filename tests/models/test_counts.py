"""Uniform, unigram and bigram against counting by hand; what all tables of counts share."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import START, shard

from regard.layers.attention import Tap
from regard.models import counts
from regard.models.counts import Bigram, CountConfig, Uniform, Unigram
from regard.models.language_model import IGNORE
from regard.run import weights

V = 7
RECORDS = st.lists(st.lists(st.integers(3, 6), max_size=9), min_size=1, max_size=8)


def fitted(family, records, size=V):
    model = family(size, CountConfig())
    model.fit(shard(records, size), None, print)
    return model


def score(model, a, b):
    return float(model.score(torch.tensor([[a]]), torch.tensor([[b]])))


@settings(max_examples=30, deadline=None)
@given(RECORDS)
def test_a_bigram_is_relative_frequencies(records):
    model, table = fitted(Bigram, records), Counter()
    for record in records:
        whole = [START, *record, 2]
        table.update(pairwise(whole))
    for a in range(V):
        total = sum(table[a, b] for b in range(V))
        for b in range(V):
            if not total:  # never followed: anything may, but <S>
                expected = -math.inf if b == START else -math.log(V - 1)
            else:
                expected = math.log(table[a, b] / total) if table[a, b] else -math.inf
            assert score(model, a, b) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert model.totals.tolist() == [sum(table[a, b] for b in range(V)) for a in range(V)]


@settings(max_examples=30, deadline=None)
@given(RECORDS)
def test_a_unigram_is_relative_frequencies_of_what_follows(records):
    model = fitted(Unigram, records)
    table = Counter(x for record in records for x in [*record, 2])
    for b in range(V):
        expected = math.log(table[b] / table.total()) if table[b] else -math.inf
        assert score(model, 4, b) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_uniform_is_all_tokens_but_the_start():
    model = fitted(Uniform, [[3, 4], [5]])
    found = model.logits(torch.tensor([[3, 6]])).exp()
    assert found[0, :, START].tolist() == [0, 0]
    assert found.sum(-1)[0].tolist() == pytest.approx([1, 1])
    assert found[0, 0, 3] == found[0, 1, 6] == pytest.approx(1 / (V - 1))


def test_a_constraint_renormalises_what_is_left():
    model = fitted(Bigram, [[3, 4, 3, 4, 3, 5, 3, 6]])

    def forbid_one(logits, previous):
        return logits.index_fill(-1, torch.tensor([4]), -torch.inf)

    found = model.score(torch.tensor([[3]]), torch.tensor([[5]]), constrain=forbid_one)
    assert float(found) == pytest.approx(math.log(0.5), rel=1e-6)


def test_scoring_works_in_chunks(monkeypatch):
    model = fitted(Bigram, [[3, 4, 3, 3, 4, 4]])
    x = torch.randint(3, 5, (3, 5))
    targets = x.clone()
    targets[1, 2:] = IGNORE
    keep = lambda logits, previous: logits  # noqa: E731
    whole = model.score(x, targets, constrain=keep)
    torch.testing.assert_close(model.score(x, targets), whole)
    monkeypatch.setattr(counts, "CHUNK", 4)
    torch.testing.assert_close(model.score(x, targets, constrain=keep), whole)


@pytest.mark.parametrize("family", [Uniform, Unigram, Bigram])
def test_a_model_that_has_counted_nothing_guesses_evenly(family):
    assert score(family(5, CountConfig()), 2, 3) == pytest.approx(-math.log(5))


def test_logits_can_be_tapped_and_no_table_of_all_pairs_is_stored():
    model = fitted(Bigram, [[3, 4, 5]], size=5000)
    tap = Tap(["logits"])
    logits = model.logits(torch.tensor([[3]]), tap=tap)
    assert torch.equal(tap.found["logits"], logits)
    assert sum(t.numel() for t in weights(model).values()) < 3 * 5000


def test_codes_out_of_order_are_refused():
    model = fitted(Bigram, [[3, 4, 5]])
    state = model.state_dict()
    state["codes"] = state["codes"].flip(0)
    with pytest.raises(RuntimeError, match="codes must be sorted"):
        Bigram(V, CountConfig()).load_state_dict(state)


def test_a_text_cannot_be_scored_at_once_with_nothing():
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        CountConfig(max_len=0)
