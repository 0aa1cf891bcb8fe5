"""Paired tests: p against the sign of resampled differences, Bayes factors against likelihoods."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from regard.evaluation.paired_tests import (
    bootstrap_p,
    describe_bayes_factor,
    describe_p,
    log10_bayes_factor,
)


def estimate(samples):
    return SimpleNamespace(samples=np.asarray(samples, float))


def losses(nats, impossible=0):
    return SimpleNamespace(nats=np.asarray(nats, float), impossible=impossible)


def test_p_is_small_where_resamples_agree_and_large_where_they_do_not():
    zero = estimate(np.zeros(999))
    assert bootstrap_p(estimate(np.full(999, -0.1)), zero) == pytest.approx(2 / 1000)
    mixed = estimate(np.r_[np.full(899, -1.0), np.full(100, 1.0)])
    assert bootstrap_p(mixed, zero) == pytest.approx(2 * 101 / 1000)
    assert bootstrap_p(zero, zero) == 1.0
    assert math.isnan(bootstrap_p(estimate([math.inf]), estimate([0.0])))
    assert describe_p(2 / 1000, 999) == "p < 0.002" and describe_p(0.2, 999) == "p = 0.2"


def test_p_of_equal_models_is_uniform():
    rng = np.random.default_rng(0)
    small = 0
    for _ in range(200):
        gaps = rng.normal(size=60)
        resampled = gaps[rng.integers(0, 60, (400, 60))].mean(1)
        small += bootstrap_p(estimate(resampled), estimate(np.zeros(400))) < 0.1
    assert 8 <= small <= 38  # 20 are expected


def test_the_bayes_factor_is_the_ratio_of_likelihoods():
    one, other = losses([1.0, 2.0]), losses([1.5, 2.5])
    ratio = math.exp(-3.0) / math.exp(-4.0)
    assert 10 ** log10_bayes_factor(one, other) == pytest.approx(ratio)
    assert log10_bayes_factor(other, one) == -log10_bayes_factor(one, other)
    assert log10_bayes_factor(one, losses([0.0], impossible=1)) == math.inf
    assert math.isnan(log10_bayes_factor(losses([0.0], 2), losses([0.0], 1)))
    assert "2.72 times" in describe_bayes_factor(math.log10(math.e), "a")
    assert "10^63 times more probable under a" in describe_bayes_factor(63.2, "a")
