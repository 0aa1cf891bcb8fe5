"""The bigram against counting by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.models import counts
from regard.models.counts import Bigram, BigramConfig


def fitted(pairs, size):
    model = Bigram(size, BigramConfig())
    previous, following = np.array(pairs).T
    model.count([(previous[:3], following[:3]), (previous[3:], following[3:])])
    return model


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=4, max_size=60))
def test_probabilities_are_relative_frequencies(pairs):
    model, table = fitted(pairs, 7), Counter(pairs)
    totals = Counter(a for a, _ in pairs)
    for a in range(7):
        for b in range(7):
            score = float(model.score(torch.tensor([[a]]), torch.tensor([[b]])))
            if not totals[a]:
                assert math.isclose(score, -math.log(7), rel_tol=1e-6)  # never seen: any may follow
            elif not table[a, b]:
                assert score == -math.inf  # zeros stay zeros
            else:
                assert math.isclose(
                    score, math.log(table[a, b] / totals[a]), rel_tol=1e-5, abs_tol=1e-6
                )


def test_the_sparse_way_counts_like_the_dense_one(monkeypatch):
    pairs = np.random.default_rng(1).integers(0, 50, (500, 2)).tolist()
    dense = fitted(pairs, 50)
    sparse = Bigram(5000, BigramConfig())
    previous, following = np.array(pairs).T
    sparse.count([(previous[:99], following[:99]), (previous[99:], following[99:])])
    assert torch.equal(sparse.counts, dense.counts)
    assert torch.equal(sparse.codes // 5000 * 50 + sparse.codes % 5000, dense.codes)


def test_a_constraint_renormalises_what_is_left():
    model = fitted([(0, 1), (0, 1), (0, 2), (0, 3)], 4)

    def forbid_one(logits, previous):
        return logits.index_fill(-1, torch.tensor([1]), -torch.inf)

    score = model.score(torch.tensor([[0]]), torch.tensor([[2]]), constrain=forbid_one)
    assert math.isclose(float(score), math.log(0.5), rel_tol=1e-6)


def test_scoring_works_in_chunks(monkeypatch):
    model = fitted([(0, 1), (1, 0), (0, 0), (1, 1)], 2)
    x = torch.randint(0, 2, (3, 5))
    keep = lambda logits, previous: logits  # noqa: E731
    whole = model.score(x, x, constrain=keep)
    monkeypatch.setattr(counts, "CHUNK", 4)
    torch.testing.assert_close(model.score(x, x, constrain=keep), whole)


def test_an_empty_bigram_guesses_evenly():
    model = Bigram(5, BigramConfig())
    assert model.score(torch.tensor([[2]]), torch.tensor([[3]])).item() == pytest.approx(
        -math.log(5)
    )
