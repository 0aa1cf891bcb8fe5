"""A model beside its corpus: lengths by a test of fit, and the entropy rate by simulation."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from regard.evaluation.eval_data import shard_of
from regard.look.corpus_views import (
    EXPECTED,
    add_entropy_rate,
    add_lengths,
    class_edges,
    entropy_rate,
    fit_lengths,
    stationary,
)
from regard.look.page import Bars, Lines, Page
from regard.models.ngrams import Bigram, CountConfig
from regard.tokenizers import Characters

TEXTS = ["abba", "ab", "aab", "b", "abab", "ba"]
TOKENIZER = Characters.train(TEXTS)


@pytest.fixture
def bigram():
    model = Bigram(TOKENIZER.vocab_size, CountConfig())
    model.fit(shard_of(TEXTS, TOKENIZER), None, print)
    return model


def test_lengths_of_one_distribution_are_seldom_told_apart_and_others_are():
    rng = np.random.default_rng(0)
    draws = [rng.poisson(6, (2, 300)) + 1 for _ in range(200)]
    p = np.array([fit_lengths(a, b).p for a, b in draws])
    assert 0.01 < (p < 0.05).mean() < 0.1  # the size of the test
    other = fit_lengths(rng.geometric(1 / 7, 300), rng.poisson(6, 3000) + 1)
    assert other.p < 1e-6 and "other lengths" in other.verdict
    assert "p < 1e-12" in fit_lengths(np.full(300, 2), np.full(300, 9)).verdict
    same = fit_lengths(np.full(20, 4), np.full(50, 4))
    assert same.p == 1.0 and same.degrees == 0 and "No difference" in same.verdict


def test_classes_of_lengths_hold_enough_of_the_smaller_sample():
    rng = np.random.default_rng(1)
    small, large = rng.poisson(5, 60), rng.poisson(5, 4000)
    edges = class_edges(small, large)
    pooled = np.histogram(np.concatenate([small, large]), edges)[0] * 60 / 4060
    assert (pooled >= EXPECTED - 1e-9).all() and len(pooled) > 3
    assert edges[0] <= min(small.min(), large.min()) and edges[-1] > max(small.max(), large.max())
    fit = fit_lengths(small, large)
    table = [np.histogram(x, edges)[0] for x in (small, large)]
    assert fit.p == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)


def test_the_entropy_rate_is_what_the_chain_spends_on_its_own_texts(bigram):
    rate = entropy_rate(bigram, TOKENIZER.start)
    # counted by hand: the chain's probabilities are its counts
    pairs = [(a, b) for text in TEXTS for a, b in zip("<" + text, text + ">", strict=True)]
    bits = 0.0
    for a, b in pairs:
        row = [y for x, y in pairs if x == a]
        bits -= math.log2(row.count(b) / len(row))
    assert rate.training == pytest.approx(bits / len(pairs))
    assert rate.rate == pytest.approx(rate.training, abs=1e-6)
    assert entropy_rate(torch.nn.Linear(2, 2), 0) is None


def test_a_chain_that_ends_begins_again_in_its_first_state():
    p = torch.tensor([[0.0, 0.5], [0.25, 0.25]], dtype=torch.float64)
    weights = stationary(p, 1 - p.sum(1), 0)
    closed = p + torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    assert torch.allclose(weights @ closed, weights) and float(weights.sum()) == pytest.approx(1)


def test_the_page_has_both_with_their_numbers(bigram):
    page = Page("t")
    add_lengths(page, fit_lengths(np.array([2, 3, 3]), np.array([3, 3, 4]), unfinished=1))
    metric = {"value": None, "impossible": 2}
    run = SimpleNamespace(metadata={"metrics": {"test": {"bits_per_symbol": metric}}})
    add_entropy_rate(page, entropy_rate(bigram, TOKENIZER.start), run)
    lines, *_, bars, _ = page.components
    assert isinstance(lines, Lines) and isinstance(bars, Bars)
    assert [sum(ys) for _, _, ys in lines.series] == pytest.approx([1.0, 1.0])
    assert bars.labels == ["entropy rate", "cross-entropy, training"]
    assert "did not end" in page.render() and "infinite (2 impossible)" in page.render()
