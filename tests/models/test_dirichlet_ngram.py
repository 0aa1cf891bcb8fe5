"""Dirichlet priors against exact fractions, numerical integration and mpmath."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import END, START, shard

from regard.models import ngrams, supervised
from regard.models.ngrams import (
    LOGS,
    DirichletNGram,
    DirichletNGramConfig,
    NGramLevel,
    best_concentration,
    evidence,
)
from regard.models.supervised import Budget

V = 6
RECORDS = st.lists(st.lists(st.integers(3, 5), max_size=9), min_size=1, max_size=8)


def make(records, valid=None, size=V, **options):
    """Return a fitted model and the lines that it logged."""
    model, lines = DirichletNGram(size, DirichletNGramConfig(**options)), []
    model.fit(shard(records, size), shard(valid, size) if valid else None, lines.append)
    return model, lines


def exact(records, context, x, order, alpha, prior, ones):
    """The estimate in fractions, from the definition."""
    context = tuple(context)[-(order - 1) :] if order > 1 else ()
    if x == START:
        return Fraction(0)
    length, count, total = len(context) + 1, 0, 0
    for record in records:
        text = (START, *record, END)
        for end in range(max(1, length - 1), len(text)):
            if text[end + 1 - length : end] == context:
                total += 1
                count += text[end] == x
    expected = Fraction(1, V - 1)
    if prior == "hierarchical" and context:
        expected = exact(records, context[1:], x, order, alpha, prior, ones)
    total += alpha + ones * (V - 1)
    return (count + ones + alpha * expected) / total if total else expected


@settings(max_examples=40, deadline=None)
@given(
    RECORDS,
    st.integers(1, 4),
    st.sampled_from([0, 0.5, 3]),
    st.sampled_from(["hierarchical", "symmetric"]),
    st.sampled_from(["map", "mean"]),
    st.lists(st.integers(2, 5), min_size=1, max_size=5),
)
def test_estimates_are_the_fractions_of_the_definition(records, order, alpha, prior, estimate, ids):
    model, _ = make(records, order=order, alpha=alpha, prior=prior, estimate=estimate)
    text, ones = [START, *ids], int(estimate == "mean")
    p = model.logits(torch.tensor([text])).double().exp()[0]
    for t in range(len(text)):
        expected = [
            exact(records, text[: t + 1], x, order, Fraction(alpha), prior, ones) for x in range(V)
        ]
        assert sum(expected) == 1
        assert p[t].tolist() == pytest.approx([float(q) for q in expected], rel=1e-5, abs=1e-9)
    targets = torch.tensor([[*ids, END]])
    expected = model.logits(torch.tensor([text])).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(model.score(torch.tensor([text]), targets), expected)


def test_a_weak_prior_gives_maximum_likelihood_and_a_strong_one_the_prior():
    records = [[3, 4, 3, 3, 5], [4, 4]]
    weak, _ = make(records, order=2, alpha=1e-9)
    strong, _ = make(records, order=2, alpha=1e12)
    x = torch.tensor([[3]])
    assert weak.logits(x)[0, 0, [3, 4, 5, 2]].exp().tolist() == pytest.approx(
        [1 / 3] * 3 + [0], abs=1e-6
    )
    counted = torch.tensor([0, 0, 2, 3, 3, 1]) / 9
    weakest, _ = make(records, order=1, alpha=0)
    assert weakest.logits(x)[0, 0].exp().tolist() == pytest.approx(counted.tolist())
    assert strong.logits(x)[0, 0].exp().tolist() == pytest.approx([0.2, 0, 0.2, 0.2, 0.2, 0.2])


def level(counts, prior):
    """Return one order of contexts, each a row of counts over all symbols that can follow."""
    counts = torch.tensor(counts)
    totals = counts.sum(1)
    return NGramLevel(
        order=2,
        counts=counts.flatten(),
        totals=totals[:, None].expand(counts.shape).flatten(),
        prior=torch.tensor(prior, dtype=torch.float64).flatten(),
        contexts=totals,
        possible=counts.size(1),
    )


def integral(exponents):
    """∫ θ₁^e₁ θ₂^e₂ θ₃^e₃ over the simplex, by the double-exponential rule in two dimensions."""
    k = np.arange(-140, 141) / 25
    s = np.pi * np.sinh(k)
    x, y = 1 / (1 + np.exp(-s)), 1 / (1 + np.exp(s))  # y = 1 - x, without cancelling
    weight = x * y * np.pi * np.cosh(k) / 25
    # θ = (x, y x', y y'), with the factor y of the change of variables
    outer = weight * x ** exponents[0] * y ** (exponents[1] + exponents[2] + 1)
    inner = weight * x ** exponents[1] * y ** exponents[2]
    return float((outer[:, None] * inner[None]).sum())


@pytest.mark.parametrize("ones", [0, 1])
@pytest.mark.parametrize("alpha", [0.7, 4.0])
def test_the_evidence_is_the_integral_of_the_likelihood(alpha, ones):
    counts, prior = [[2, 0, 12], [1, 1, 1]], [[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]]
    total = 0.0
    for n, p in zip(counts, prior, strict=True):
        a = [ones + alpha * q - 1 for q in p]
        both = [x + m for x, m in zip(a, n, strict=True)]
        total += math.log(integral(both) / integral(a))
    assert evidence(level(counts, prior), ones)(alpha) == pytest.approx(total, rel=1e-7)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=2, max_size=6),
    st.sampled_from([0, 1]),
)
def test_the_concentration_is_the_best_of_a_fine_grid(counts, ones):
    one = level(counts, [[0.6, 0.3, 0.1]] * len(counts))
    value = evidence(one, ones)
    best = max(value(math.exp(log)) for log in np.arange(*LOGS, 0.05))
    assert value(best_concentration(one, ones)) >= best - 1e-3 * max(1, abs(best))


def test_the_evidence_of_map_is_the_product_of_its_successive_predictions():
    symbols, prior, alpha = [0, 1, 0, 0, 2, 1, 0], [0.5, 0.3, 0.2], 1.7
    total, counts = 0.0, [0, 0, 0]
    for n, x in enumerate(symbols):
        total += math.log((counts[x] + alpha * prior[x]) / (n + alpha))
        counts[x] += 1
    assert evidence(level([counts], [prior]), 0)(alpha) == pytest.approx(total)


def test_an_open_order_is_chosen_and_logged():
    random = np.random.default_rng(0)
    chain = [3, 4]
    for _ in range(6000):  # the symbol before the last, most of the time
        chain.append(chain[-2] if random.random() < 0.8 else int(random.integers(3, 6)))
    pieces = [chain[i : i + 60] for i in range(0, 6000, 60)]
    for valid, method in ((pieces[80:], "validation"), (None, "left out")):
        model, lines = make(pieces[:80], valid)
        assert model.order == model.config.order == 3
        assert len(model.alphas) == 3 and len(lines) == 1
        assert "order 3 of 1 to 4" in lines[0] and method in lines[0]
        again, _ = make(pieces[:80], order=3)
        assert torch.equal(again.codes, model.codes) and torch.equal(again.alphas, model.alphas)


def test_leave_one_out_subtracts_each_symbol_from_the_counts():
    records = [[3, 4, 3], [4, 3], [3]]
    model, _ = make(records, order=2, alpha=0.5)
    pairs = [pair for record in records for pair in pairwise([START, *record, END])]
    logs = []
    for context, symbol in pairs:
        single = sum(b == symbol for _, b in pairs) - 1
        after = sum(a == context for a, _ in pairs) - 1
        lower = (single + 0.5 / (V - 1)) / (len(pairs) - 1 + 0.5)
        logs.append(math.log((pairs.count((context, symbol)) - 1 + 0.5 * lower) / (after + 0.5)))
    assert list(model.leave_one_out())[1] == pytest.approx(np.mean(logs))


def test_long_contexts_are_not_tried_if_counting_them_takes_too_long(monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock, count = Clock(), ngrams.count

    def slow_count(train, order):
        clock.now += 10.0 * order
        return count(train, order)

    for module in (supervised, ngrams):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(ngrams, "count", slow_count)
    period = np.random.default_rng(0).integers(3, 8, 15).tolist()
    text = shard([period * 20 for _ in range(10)], 8)
    unlimited, short = (DirichletNGram(8, DirichletNGramConfig()) for _ in range(2))
    unlimited.fit(text, text, lambda line: None)
    budget = Budget(lambda line: None, 70.0)
    short.fit(text, text, lambda line: None, budget)
    assert short.config.order <= 4 <= unlimited.config.order
    assert budget.reductions == ["orders above 4 are not tried"]


@pytest.mark.parametrize("prior", ["hierarchical", "symmetric"])
def test_intervals_are_quantiles_of_the_posterior(prior):
    records = [[3, 4, 3, 3, 5], [4, 4, 3]]
    model, _ = make(records, order=2, alpha=2.0, prior=prior)
    lower, _ = make(records, order=1, alpha=2.0)
    uniform = 1 / (V - 1)
    p = float(lower.logits(torch.tensor([[3]]))[0, 0, 4].exp())
    expected = p if prior == "hierarchical" else uniform
    a, b = 1 + 2 * expected + 1, 4 + 2 * (1 - expected) + 3  # 4 once in 4 times after 3
    for tail, got in zip((0.025, 0.975), model.interval([4, 3], 4), strict=True):
        assert float(mpmath.betainc(a, b, 0, got, regularized=True)) == pytest.approx(tail)
    a, b = 1 + 2 * uniform + 3, 4 + 2 * (1 - uniform) + 7
    for tail, got in zip((0.025, 0.975), lower.interval([3], 4), strict=True):
        assert float(mpmath.betainc(a, b, 0, got, regularized=True)) == pytest.approx(tail)
    assert model.interval([3], START) == (0.0, 0.0)
    for dtype in (np.uint8, np.uint16, np.int64):  # of tokenizers and shards
        ids = np.array([4, 3, 4], dtype)
        assert model.interval(ids[:2], ids[2]) == model.interval([4, 3], 4)
        tensor = torch.from_numpy(ids)
        assert model.interval(tensor[:2], tensor[2]) == model.interval([4, 3], 4)
    with pytest.raises(ValueError, match=r"symbol must be from 0 to \d+, got -1"):
        model.interval([4, 3], -1)
    assert model.interval([], 4) == pytest.approx(lower.interval([], 4))
    low, high = model.interval([5], 5)  # never counted: wide
    assert 0 < low < 0.02 and high > 0.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 65}, "order must be from 0 to 64, got 65"),
        ({"alpha": math.inf}, "alpha must be a number, got inf"),
        ({"max_len": 0}, "max_len must be at least 1, got 0"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DirichletNGramConfig(**options)
