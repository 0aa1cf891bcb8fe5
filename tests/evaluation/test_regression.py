"""Metrics of predicted values against their definitions, and against scikit-learn and scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from regard.errors import UserError
from regard.evaluation.bootstrap import pool_folds
from regard.evaluation.regression import Ranks, regression_report


def close(a, b):
    return a == pytest.approx(b, rel=1e-12, abs=1e-12)


def estimate(predicted, truths):
    return regression_report(predicted, truths).estimates


def ranks(numbers):
    """Mean ranks: how many are below, and half of those level."""
    below = (numbers[None, :] < numbers[:, None]).sum(1)
    level = (numbers[None, :] == numbers[:, None]).sum(1)
    return below + (level + 1) / 2


def spearman(x, y):
    return np.corrcoef(ranks(x), ranks(y))[0, 1]


def numbers(n, seed, ties=False):
    random = np.random.default_rng(seed)
    truths = random.normal(50.0, 3.0, n)
    predicted = truths + random.normal(0, 2.0, n)
    return (np.round(predicted), np.round(truths)) if ties else (predicted, truths)


@pytest.mark.parametrize("ties", [False, True])
def test_every_metric_is_its_definition(ties):
    predicted, truths = numbers(200, 1, ties)
    found = {name: one.value for name, one in estimate(predicted, truths).items()}
    error = predicted - truths
    assert close(found["rmse"], math.sqrt((error**2).mean()))
    assert close(found["mae"], np.abs(error).mean())
    assert close(found["r2"], 1 - (error**2).sum() / ((truths - truths.mean()) ** 2).sum())
    assert close(found["pearson"], np.corrcoef(predicted, truths)[0, 1])
    assert close(found["spearman"], spearman(predicted, truths))


def test_scikit_learn_agrees():
    predicted, truths = numbers(200, 2, ties=True)
    found = {name: one.value for name, one in estimate(predicted, truths).items()}
    assert close(found["rmse"], math.sqrt(sklearn_metrics.mean_squared_error(truths, predicted)))
    assert close(found["mae"], sklearn_metrics.mean_absolute_error(truths, predicted))
    assert close(found["r2"], sklearn_metrics.r2_score(truths, predicted))


def test_samples_are_the_metrics_of_the_resampled_records():
    predicted, truths = numbers(40, 3, ties=True)
    found = estimate(predicted, truths)
    random = np.random.default_rng(0)
    for i in range(4):
        drawn = random.integers(0, 40, 40)
        for name, one in estimate(predicted[drawn], truths[drawn]).items():
            assert close(found[name].samples[i], one.value)


def test_gaps_are_left_out_and_columns_averaged():
    predicted, truths = (
        np.stack(x, axis=1) for x in zip(numbers(90, 4), numbers(90, 5), strict=True)
    )
    truths[::3, 0] = np.nan
    predicted[0, 0] = np.nan  # no truth is known there
    found = regression_report(predicted, truths)
    for c in range(2):
        there = ~np.isnan(truths[:, c])
        alone = estimate(predicted[there, c], truths[there, c])
        for name, one in alone.items():
            assert close(found.columns[c][name].value, one.value)
    assert set(found.means) == {"r2_mean", "pearson_mean", "spearman_mean"}  # what has no unit
    for mean, one in found.means.items():
        columns = [column[mean.removesuffix("_mean")] for column in found.columns]
        assert close(one.value, np.mean([column.value for column in columns]))
        assert np.allclose(one.samples, np.mean([c.samples for c in columns], axis=0))
    assert found.metrics()["r2_mean"].low < found.metrics()["r2_mean"].high


def test_errors_of_different_units_are_averaged_only_after_division_by_the_deviation():
    """A mean of errors in g/mol and in log units was called RMSE."""
    predicted, truths = (
        np.stack(x, axis=1) for x in zip(numbers(90, 4), numbers(90, 5), strict=True)
    )
    predicted, truths = predicted * [1, 200], truths * [1, 200]
    scale = truths.std(0).tolist()
    found = regression_report(predicted, truths, scale=scale, names=["logS", "weight"]).metrics()
    errors = np.sqrt(((predicted - truths) ** 2).mean(0))
    for name, error in zip(("logS", "weight"), errors, strict=True):
        assert close(found[f"rmse ({name})"].value, error)
        assert found[f"rmse ({name})"].target == name
    assert close(found["rmse_standardized_mean"].value, np.mean(errors / scale))
    assert "rmse" not in found
    in_grams = regression_report(
        predicted * [1, 0.001], truths * [1, 0.001], scale=[scale[0], scale[1] / 1000]
    ).metrics()
    same = found["rmse_standardized_mean"]
    assert close(in_grams["rmse_standardized_mean"].value, same.value)  # whatever the unit
    assert close(in_grams["rmse_standardized_mean"].low, same.low)
    alike = regression_report(predicted, truths, scale=[0.0, scale[1]]).metrics()
    assert close(alike["rmse_standardized_mean"].value, errors[1] / scale[1])


def test_a_single_column_keeps_its_plain_names():
    predicted, truths = numbers(30, 4)
    found = regression_report(predicted[:, None], truths[:, None], scale=[2.0]).metrics()
    assert close(found["rmse"].value, estimate(predicted, truths)["rmse"].value)
    assert set(found) == {"rmse", "mae", "r2", "pearson", "spearman"}


@pytest.mark.parametrize(
    ("predicted", "truths", "undefined", "reason"),
    [
        ([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], {"r2", "pearson", "spearman"}, "all truths are equal"),
        ([0.1, 0.1, 0.1], [1.0, 2.0, 3.0], {"pearson", "spearman"}, "all predictions are equal"),
        ([1.0], [2.0], {"r2", "pearson", "spearman"}, "only one truth is known"),
        ([1.0, 2.0], [math.nan] * 2, {"rmse", "mae", "r2", "pearson", "spearman"}, "no truth"),
    ],
)
def test_an_undefined_metric_gives_the_reason(predicted, truths, undefined, reason):
    found = {name: one.metric() for name, one in estimate(predicted, truths).items()}
    assert {name for name, one in found.items() if one.undefined} == undefined
    assert all(reason in found[name].to_json()["undefined"] for name in undefined)


def test_predicting_the_mean_explains_nothing_and_worse_is_negative():
    truths = np.arange(5.0)
    assert estimate(np.full(5, 2.0), truths)["r2"].value == 0.0
    assert estimate(np.full(5, 4.0), truths)["r2"].value == -2.0


def test_without_a_column_that_defines_it_the_mean_is_undefined():
    found = regression_report(np.zeros((3, 2)), np.ones((3, 2)) * [1, 2], scale=[1, 1]).metrics()
    assert str(found["r2_mean"]) == "undefined (no column defines it)"
    assert found["mae_standardized_mean"].value == 1.5


def test_large_numbers_lose_nothing():
    predicted, truths = numbers(100, 6)
    plain, far = estimate(predicted, truths), estimate(predicted + 2.0**30, truths + 2.0**30)
    for name in ("r2", "pearson"):
        assert far[name].value == pytest.approx(plain[name].value, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 3)), min_size=1, max_size=20))
def test_weighted_ranks_are_those_of_repeated_numbers(records):
    numbers = np.array([x for x, _ in records], dtype=float)
    often = np.array([n for _, n in records])
    found = Ranks(numbers)(often[None].astype(float))[0]
    repeated = np.repeat(numbers, often)
    expected = 2 * (ranks(repeated) - (len(repeated) + 1) / 2)
    np.testing.assert_array_equal(np.repeat(found, often), expected)


@settings(max_examples=6, deadline=None)
@given(st.permutations(range(12)), st.integers(0, 5))
def test_metrics_do_not_depend_on_the_order_of_records_nor_spearman_on_scale(order, seed):
    predicted, truths = numbers(12, seed, ties=True)
    one, two = estimate(predicted, truths), estimate(predicted[order], truths[order])
    for name in one:
        assert one[name].value == pytest.approx(two[name].value, rel=1e-9, abs=1e-9)
    increasing = estimate(np.exp(predicted / 9), truths)["spearman"]
    np.testing.assert_array_equal(increasing.samples, one["spearman"].samples)


def test_the_interval_covers_the_truth_about_95_times_in_100():
    """Numbers of correlation 0.6, Spearman's (6 / π) asin(0.3) (Pearson 1907)."""
    random, covered = np.random.default_rng(9), {"pearson": 0, "spearman": 0, "rmse": 0}
    truth = {"pearson": 0.6, "spearman": 6 / math.pi * math.asin(0.3), "rmse": math.sqrt(0.8)}
    for _ in range(40):
        x, noise = random.normal(size=(2, 100))
        found = estimate(x, 0.6 * x + 0.8 * noise)
        for name in covered:
            metric = found[name].metric()
            covered[name] += metric.low <= truth[name] <= metric.high
    assert all(34 <= count <= 40 for count in covered.values())


def test_models_are_compared_in_pairs():
    predicted, truths = numbers(150, 10)
    worse = predicted + np.random.default_rng(1).normal(0, 2.0, 150)
    ours, theirs = estimate(predicted, truths), estimate(worse, truths)
    gap = ours["rmse"].minus(theirs["rmse"])
    assert close(gap.value, ours["rmse"].value - theirs["rmse"].value)
    assert gap.low < gap.value < gap.high < 0
    for name in ("rmse", "r2", "spearman"):
        assert ours[name].verdict(theirs[name]) == "better"
        assert theirs[name].verdict(ours[name]) == "worse"
    with pytest.raises(UserError, match="same records"):
        ours["rmse"].minus(estimate(predicted, truths + 1)["rmse"])


def test_folds_are_pooled():
    folds = [numbers(30, seed) for seed in (1, 2, 3)]
    one = pool_folds(regression_report, folds).estimates["rmse"].value
    squares = [((a - b) ** 2).mean() for a, b in folds]
    assert close(one, math.sqrt(np.mean(squares)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate([1.0], [1.0, 2.0]), r"\(1,\) and truths \(2,\)"),
        (lambda: regression_report([[[1.0]]], [[[1.0]]]), r"\(N,\) or \(N, C\)"),
        (lambda: estimate([], []), "not empty"),
        (lambda: estimate([math.nan], [1.0]), "must be finite"),
        (lambda: estimate([1.0], [math.inf]), "finite or NaN"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
