"""The bootstrap: intervals cover the truth as often as they promise, and pairs are compared."""

import math

import numpy as np
import pytest

from regard.errors import UserError
from regard.evaluation import Metric, bootstrap
from regard.evaluation.bootstrap import (
    RESAMPLES,
    UNITS,
    BootstrapEstimate,
    CountedSums,
    Folds,
    Resamples,
    digest,
    draw_weights,
    join_neighbors,
    mean_over_seeds,
    resample_sums,
    sum_shuffled,
)


def mean(sums, counts):
    """The estimate of a ratio of sums."""
    return CountedSums(np.stack([sums, counts], axis=1), digest(counts)).mean(0, "")


def test_the_value_is_the_ratio_of_sums_not_the_mean_of_ratios():
    metric = mean(np.array([1.0, 9.0]), np.array([1.0, 3.0])).metric()
    assert metric.value == 10 / 4
    assert (metric.low, metric.high) == (1.0, 3.0)  # either unit may be drawn twice


def test_the_interval_has_the_width_that_theory_gives():
    """For equal denominators the ratio is a mean, with a standard error of s / √n."""
    values = np.random.default_rng(5).normal(3.0, 2.0, 4000)
    metric = mean(values, np.ones(4000)).metric()
    error = values.std() / math.sqrt(4000)
    assert metric.value == pytest.approx(values.mean())
    assert metric.low == pytest.approx(metric.value - 1.96 * error, abs=0.15 * error)
    assert metric.high == pytest.approx(metric.value + 1.96 * error, abs=0.15 * error)


def test_the_interval_covers_the_truth_about_95_times_in_100():
    """Records of random length whose loss per symbol is 2: the ratio of expectations."""
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(100):
        lengths = random.integers(1, 20, 120).astype(float)
        losses = lengths * 2.0 + random.normal(0, 1.5, 120) * np.sqrt(lengths)
        low, high = mean(losses, lengths).interval
        covered += low <= 2.0 <= high
    assert 88 <= covered <= 99


def test_a_paired_difference_is_far_tighter_than_two_intervals():
    random = np.random.default_rng(2)
    lengths = random.integers(1, 20, 500).astype(float)
    difficulty = random.gamma(2.0, 1.0, 500) * lengths  # shared by both models
    ours = mean(difficulty + 0.1 * lengths, lengths)
    theirs = mean(difficulty + random.normal(0, 0.05, 500), lengths)
    gap, alone = ours.minus(theirs), ours.metric()
    assert gap.value == pytest.approx(ours.value - theirs.value)
    assert 0 < gap.low < 0.1 < gap.high
    assert gap.high - gap.low < 0.05 * (alone.high - alone.low)
    swapped = theirs.minus(ours)
    assert (swapped.value, swapped.low) == pytest.approx((-gap.value, -gap.high))
    same = ours.minus(ours)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


def test_only_estimates_of_the_same_records_are_compared():
    one, two = (mean(np.ones(3), np.array([1.0, 1.0, n])) for n in (1, 2))
    with pytest.raises(UserError, match="same records"):
        one.minus(two)


def estimate(value, samples=(1.0, 2.0, 3.0), **options):
    return BootstrapEstimate(value, np.array(samples), "data", **options)


def test_a_verdict_depends_on_the_direction_of_the_metric():
    high, low = estimate(5.0, (4.0, 5.0, 6.0)), estimate(1.0, (0.0, 1.0, 2.0))
    assert high.verdict(low) == "better" and low.verdict(high) == "worse"
    loss = estimate(5.0, (4.0, 5.0, 6.0), lower_is_better=True)
    assert loss.verdict(low) == "worse"
    assert high.verdict(high) == "no difference that 95% supports"
    assert estimate(math.nan, undefined="why").verdict(low) == "undefined (why)"
    infinite = estimate(math.inf, lower_is_better=True, impossible=2)
    assert infinite.verdict(loss) == "worse" and loss.verdict(infinite) == "better"
    assert infinite.verdict(infinite) == "both give probability 0 to some of the data"


def test_another_unit_keeps_value_and_interval():
    one = estimate(2.0)
    squared = one.convert(lambda x: x**2)
    assert squared.value == 4.0 and squared.samples.tolist() == [1.0, 4.0, 9.0]
    assert squared.interval == tuple(x**2 for x in one.interval)


def test_seeds_are_averaged_resample_by_resample():
    both = mean_over_seeds([{"a": estimate(1.0)}, {"a": estimate(3.0, (3.0, 4.0, 5.0))}])["a"]
    assert both.value == 2.0 and both.samples.tolist() == [2.0, 3.0, 4.0]
    undefined = {"a": estimate(math.nan, undefined="why")}
    assert mean_over_seeds([{"a": estimate(1.0)}, undefined])["a"].undefined == "why"


def test_the_sum_of_records_is_that_of_their_units():
    random = np.random.default_rng(4)
    units, values = random.integers(0, 7, 30), random.random(30)
    sums = Resamples("", units, 7).sum(values)
    draws = np.concatenate(list(draw_weights(7)))  # (1 + RESAMPLES, 7)
    np.testing.assert_allclose(sums, draws[:, units] @ values)
    assert sums[0] == pytest.approx(values.sum()) and len(sums) == 1 + RESAMPLES


def test_many_units_are_joined_with_their_neighbours_and_nothing_is_lost():
    values = np.arange(2 * UNITS + 3, dtype=float)
    joined = join_neighbors(values)
    assert len(joined) == UNITS and joined.sum() == values.sum()
    assert joined[0] == 0 + 1
    short = np.arange(5.0)
    assert join_neighbors(short) is short


def test_a_sorted_file_does_not_widen_the_interval():
    """Beyond UNITS records neighbours are resampled together, so that they are shuffled first."""
    ordered = np.sort(np.random.default_rng(7).normal(size=5 * UNITS))
    sums = sum_shuffled(np.stack([ordered, np.ones_like(ordered)], axis=1))
    samples = sums[1:, 0] / sums[1:, 1]
    assert samples.std() == pytest.approx(ordered.std() / math.sqrt(5 * UNITS), rel=0.1)


def test_weights_are_the_draws_of_sums():
    weights = np.concatenate(list(draw_weights(37)))
    assert weights.shape == (1 + RESAMPLES, 37) and (weights.sum(1) == 37).all()
    assert (weights[0] == 1).all()
    numbers = np.random.default_rng(2).integers(0, 50, 37).astype(float)
    np.testing.assert_array_equal(weights[1:] @ numbers, resample_sums(numbers))


def test_few_weights_are_in_memory_at_once(monkeypatch):
    weights = np.concatenate(list(draw_weights(50)))
    monkeypatch.setattr(bootstrap, "CELLS", 170)
    chunks = list(draw_weights(50))
    assert {len(chunk) for chunk in chunks} == {3, 1}
    np.testing.assert_array_equal(np.concatenate(chunks), weights)


def test_folds_have_a_mean_and_a_deviation_where_they_are_defined():
    folds = Folds(tuple(Metric(x, x, x) for x in (1.0, 3.0, math.nan)))
    assert (folds.mean, folds.sd) == (2.0, math.sqrt(2))
    one = Folds((Metric(1.0, 1.0, 1.0), Metric(math.inf, math.inf, math.inf)))
    assert one.to_json()["mean"] is None and one.to_json()["sd"] is None
