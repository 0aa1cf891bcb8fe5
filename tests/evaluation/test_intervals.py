"""Bootstrap intervals: they hold the truth about as often as they promise."""

import math

import numpy as np
import pytest

from regard.evaluation.bootstrap import UNITS, join, paired_interval, ratio_interval


def test_the_value_is_the_ratio_of_sums_not_the_mean_of_ratios():
    value, low, high = ratio_interval(np.array([1.0, 9.0]), np.array([1.0, 3.0]))
    assert value == 10 / 4
    assert low <= value <= high
    assert (low, high) == (1.0, 3.0)  # either unit may be drawn twice


def test_the_interval_has_the_width_that_theory_gives():
    """For equal denominators the ratio is a mean, with a standard error of s / √n."""
    values = np.random.default_rng(5).normal(3.0, 2.0, 4000)
    value, low, high = ratio_interval(values, np.ones(4000))
    error = values.std() / math.sqrt(4000)
    assert value == pytest.approx(values.mean())
    assert low == pytest.approx(value - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(value + 1.96 * error, abs=0.15 * error)


def test_the_interval_covers_the_truth_about_95_times_in_100():
    """Records of random length whose cost per symbol is 2: the ratio of expectations."""
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(100):
        lengths = random.integers(1, 20, 120).astype(float)
        costs = lengths * 2.0 + random.normal(0, 1.5, 120) * np.sqrt(lengths)
        _, low, high = ratio_interval(costs, lengths)
        covered += low <= 2.0 <= high
    assert 88 <= covered <= 99


def test_a_paired_difference_is_far_tighter_than_two_intervals():
    random = np.random.default_rng(2)
    lengths = random.integers(1, 20, 500).astype(float)
    hard = random.gamma(2.0, 1.0, 500) * lengths  # shared by both models
    ours, theirs = hard + 0.1 * lengths, hard + random.normal(0, 0.05, 500)
    value, low, high = paired_interval(ours, theirs, lengths)
    assert value == pytest.approx((ours.sum() - theirs.sum()) / lengths.sum())
    assert 0 < low < 0.1 < high
    _, alone_low, alone_high = ratio_interval(ours, lengths)
    assert high - low < 0.05 * (alone_high - alone_low)


def test_a_model_against_itself_differs_by_nothing():
    values = np.random.default_rng(0).random(50)
    assert paired_interval(values, values, np.ones(50)) == (0.0, 0.0, 0.0)


def test_swapping_the_two_turns_the_sign_and_nothing_else():
    random = np.random.default_rng(1)
    a, b, n = random.random(80), random.random(80), np.ones(80)
    value, low, high = paired_interval(a, b, n)
    assert paired_interval(b, a, n) == pytest.approx((-value, -high, -low))


def test_many_units_are_joined_with_their_neighbours_and_nothing_is_lost():
    values = np.arange(2 * UNITS + 3, dtype=float)
    joined = join(values)
    assert len(joined) == UNITS and joined.sum() == values.sum()
    assert joined[0] == 0 + 1
    short = np.arange(5.0)
    assert join(short) is short


def test_the_same_data_always_gives_the_same_interval():
    values = np.random.default_rng(3).random(40)
    assert ratio_interval(values, np.ones(40)) == ratio_interval(values, np.ones(40))
