"""Dirichlet priors against exact fractions, numerical integration and mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import START, shard

from regard.models import dirichlet_ngram
from regard.models.dirichlet_ngram import (
    DirichletNGram,
    DirichletNGramConfig,
    NGramLevel,
    cumulative,
    evidence,
    quantile,
    strongest,
)

V = 6
RECORDS = st.lists(st.lists(st.integers(3, 5), max_size=9), min_size=1, max_size=8)


def fitted(records, valid=None, size=V, **options):
    model = DirichletNGram(size, DirichletNGramConfig(**options))
    said = []
    model.fit(shard(records, size), shard(valid, size) if valid else None, said.append)
    return model, said


def exact(records, context, x, order, alpha, prior, ones):
    """The estimate in fractions, from the definition."""
    context = tuple(context)[-(order - 1) :] if order > 1 else ()
    if x == START:
        return Fraction(0)
    length, seen, total = len(context) + 1, 0, 0
    for record in records:
        whole = (START, *record, 2)
        for end in range(max(1, length - 1), len(whole)):
            if whole[end + 1 - length : end] == context:
                total += 1
                seen += whole[end] == x
    expected = Fraction(1, V - 1)
    if prior == "hierarchical" and context:
        expected = exact(records, context[1:], x, order, alpha, prior, ones)
    whole = total + alpha + ones * (V - 1)
    return (seen + ones + alpha * expected) / whole if whole else expected


@settings(max_examples=40, deadline=None)
@given(
    RECORDS,
    st.integers(1, 4),
    st.sampled_from([0, 0.5, 3]),
    st.sampled_from(["hierarchical", "symmetric"]),
    st.sampled_from(["map", "mean"]),
    st.lists(st.integers(2, 5), min_size=1, max_size=5),
)
def test_estimates_are_the_fractions_of_the_definition(records, order, alpha, prior, how, ids):
    model, _ = fitted(records, order=order, alpha=alpha, prior=prior, estimate=how)
    text = [START, *ids]
    found = model.logits(torch.tensor([text])).double().exp()[0]
    for t in range(len(text)):
        want = [
            exact(records, text[: t + 1], x, order, Fraction(alpha), prior, int(how == "mean"))
            for x in range(V)
        ]
        assert sum(want) == 1
        assert found[t].tolist() == pytest.approx([float(w) for w in want], rel=1e-5, abs=1e-9)
    targets = torch.tensor([[*ids, 2]])
    wanted = model.logits(torch.tensor([text])).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(model.score(torch.tensor([text]), targets), wanted)


def test_without_prior_it_is_maximum_likelihood_and_with_nothing_else_the_prior():
    records = [[3, 4, 3, 3, 5], [4, 4]]
    weak, _ = fitted(records, order=2, alpha=1e-9)
    strong, _ = fitted(records, order=2, alpha=1e12)
    x = torch.tensor([[3]])
    assert weak.logits(x)[0, 0, [3, 4, 5, 2]].exp().tolist() == pytest.approx(
        [1 / 3] * 3 + [0], abs=1e-6
    )
    counted = torch.tensor([0, 0, 2, 3, 3, 1]) / 9
    weakest, _ = fitted(records, order=1, alpha=0)
    assert weakest.logits(x)[0, 0].exp().tolist() == pytest.approx(counted.tolist())
    assert strong.logits(x)[0, 0].exp().tolist() == pytest.approx([0.2, 0, 0.2, 0.2, 0.2, 0.2])


def level(counts, prior, contexts=None):
    """One order of contexts, each a row of counts over all symbols that can follow."""
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
def test_the_strength_found_is_the_best_of_a_fine_grid(counts, ones):
    one = level(counts, [[0.6, 0.3, 0.1]] * len(counts))
    value = evidence(one, ones)
    best = max(value(math.exp(log)) for log in np.arange(*dirichlet_ngram.LOGS, 0.05))
    assert value(strongest(one, ones)) >= best - 1e-3 * max(1, abs(best))


def test_the_evidence_of_map_is_the_product_of_its_predictions_one_after_the_other():
    symbols, prior, alpha = [0, 1, 0, 0, 2, 1, 0], [0.5, 0.3, 0.2], 1.7
    total, counts = 0.0, [0, 0, 0]
    for n, x in enumerate(symbols):
        total += math.log((counts[x] + alpha * prior[x]) / (n + alpha))
        counts[x] += 1
    assert evidence(level([counts], [prior]), 0)(alpha) == pytest.approx(total)


def test_an_order_left_open_is_chosen_and_said():
    source = np.random.default_rng(0)
    chain = [3, 4]
    for _ in range(6000):  # the symbol before the last, most of the time
        chain.append(chain[-2] if source.random() < 0.8 else int(source.integers(3, 6)))
    pieces = [chain[i : i + 60] for i in range(0, 6000, 60)]
    for valid, how in ((pieces[80:], "validation"), (None, "left out")):
        model, said = fitted(pieces[:80], valid)
        assert model.order == model.config.order == 3
        assert len(model.alphas) == 3 and len(said) == 1
        assert "order 3 of 1 to 4" in said[0] and how in said[0]
        again, _ = fitted(pieces[:80], order=3)
        assert torch.equal(again.codes, model.codes) and torch.equal(again.alphas, model.alphas)


def test_a_symbol_left_out_is_predicted_as_if_it_had_not_been_counted():
    records = [[3, 4, 3], [4, 3], [3]]
    model, _ = fitted(records, order=2, alpha=0.5)
    total, many = 0.0, 0
    for which, record in enumerate(records):
        whole = [START, *record, 2]
        for t in range(1, len(whole)):
            # the same data with this one event taken out, by subtracting it from the counts
            rest = [r for i, r in enumerate(records) if i != which]
            seen = sum(b == whole[t] for r in [*rest, record] for b in [*r, 2]) - 1
            pairs = [(a, b) for r in [*rest, record] for a, b in zip([START, *r], [*r, 2])]  # noqa: B905
            both = pairs.count((whole[t - 1], whole[t])) - 1
            before = sum(a == whole[t - 1] for a, _ in pairs) - 1
            lower = (seen + 0.5 / (V - 1)) / (len(pairs) - 1 + 0.5)
            total += math.log((both + 0.5 * lower) / (before + 0.5))
            many += 1
    assert list(model.left_out())[1] == pytest.approx(total / many)


@pytest.mark.parametrize("prior", ["hierarchical", "symmetric"])
def test_intervals_are_quantiles_of_the_posterior(prior):
    records = [[3, 4, 3, 3, 5], [4, 4, 3]]
    model, _ = fitted(records, order=2, alpha=2.0, prior=prior)
    lower, _ = fitted(records, order=1, alpha=2.0)
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
    for kind in (np.uint8, np.uint16, np.int64):  # as tokenizers and shards give them
        ids = np.array([4, 3, 4], kind)
        assert model.interval(ids[:2], ids[2]) == model.interval([4, 3], 4)
        asked = torch.from_numpy(ids)
        assert model.interval(asked[:2], asked[2]) == model.interval([4, 3], 4)
    with pytest.raises(ValueError, match=r"symbol must be from 0 to \d+, got -1"):
        model.interval([4, 3], -1)
    assert model.interval([], 4) == pytest.approx(lower.interval([], 4))
    low, high = model.interval([5], 5)  # never seen: wide
    assert 0 < low < 0.02 and high > 0.4


@settings(max_examples=60, deadline=None)
@given(st.floats(1, 500), st.floats(1, 5000), st.floats(0.0001, 0.9999))
def test_the_beta_distribution_is_mpmaths(a, b, probability):
    x = quantile(probability, a, b)
    assert cumulative(x, a, b) == pytest.approx(probability, rel=1e-8)
    assert cumulative(x, a, b) == pytest.approx(
        float(mpmath.betainc(a, b, 0, x, regularized=True)), rel=1e-9, abs=1e-12
    )


def test_the_beta_distribution_at_its_ends_and_with_many_counts():
    assert cumulative(0, 2, 3) == 0 and cumulative(1, 2, 3) == 1
    a, b = 2_000_000.0, 38_000_000.0
    sd = math.sqrt(0.05 * 0.95 / (a + b))
    assert quantile(0.975, a, b) == pytest.approx(0.05 + 1.96 * sd, rel=1e-5)
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        quantile(1.5, 1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 65}, "order must be from 0 to 64, got 65"),
        ({"alpha": math.inf}, "alpha must be a number, got inf"),
        ({"max_len": 0}, "max_len must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DirichletNGramConfig(**options)
