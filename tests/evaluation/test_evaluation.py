"""The registry of metrics: what is registered appears in every report of its kind."""

import json
import math

import numpy as np
import pytest

from regard.evaluation import (
    METRICS,
    Metric,
    group_by_target,
    metric_title,
    register_metric,
    target_name,
    to_document,
)
from regard.evaluation.bootstrap import RESAMPLES
from regard.evaluation.classification import (
    classification_report,
    multilabel_report,
    position_report,
)
from regard.evaluation.regression import regression_report

LOGITS = np.random.default_rng(0).normal(size=(50, 3))
TRUTHS = np.random.default_rng(1).integers(0, 3, 50)


@pytest.fixture
def registry(monkeypatch):
    for kind, metrics in METRICS.items():
        monkeypatch.setitem(METRICS, kind, dict(metrics))


def test_a_registered_metric_appears_in_the_reports_of_its_kind(registry):
    @register_metric(("label", "position-label"), "top2", title="top-2 accuracy")
    def top2(classes):
        correct = (np.argsort(classes.scores)[:, -2:] == classes.truths[:, None]).any(1)
        return classes.estimate(classes.sum(correct) / classes.records)

    report = classification_report(LOGITS, TRUTHS)
    by_hand = [t in np.argsort(row)[-2:] for row, t in zip(LOGITS, TRUTHS, strict=True)]
    estimate = report.estimates["top2"]
    assert list(report.estimates)[-1] == "top2"
    assert estimate.value == pytest.approx(np.mean(by_hand)) and len(estimate.samples) == RESAMPLES
    assert estimate.title == "top-2 accuracy"
    assert estimate.in_table and not estimate.lower_is_better
    assert report.metrics()["top2"].low < estimate.value < report.metrics()["top2"].high
    positions = position_report(LOGITS, TRUTHS, np.full(10, 5)).estimates["top2"]
    assert positions.value == pytest.approx(estimate.value)
    assert "top2" not in multilabel_report(LOGITS, TRUTHS[:, None] == range(3)).estimates


def test_an_error_of_values_is_averaged_over_targets_in_standard_deviations(registry):
    @register_metric("value", "bias", title="bias", lower_is_better=True)
    def bias(values):
        return values.estimate(values.sum(values.predictions - values.truths) / values.records)

    truths = np.random.default_rng(2).normal(size=(30, 2))
    estimates = regression_report(truths + np.array([1.0, 4.0]), truths, scale=[1.0, 2.0]).estimates
    assert estimates["bias (1)"].value == pytest.approx(4.0)
    mean = estimates["bias_standardized_mean"]
    assert mean.value == pytest.approx(1.5) and mean.title == "mean standardized bias"


def test_a_metric_that_does_not_apply_is_absent(registry):
    register_metric("label", "never", title="never")(lambda classes: None)
    assert "never" not in classification_report(LOGITS, TRUTHS).estimates


def test_documents_group_targets_and_hold_no_infinity():
    metrics = {
        "loss": Metric(math.inf, math.inf, math.inf, impossible=3),
        target_name("f1", "a"): Metric(0.5, 0.25, 0.75, target="a", class_name="yes"),
        "r2": Metric(math.nan, math.nan, math.nan, undefined="all truths are equal"),
    }
    document = json.loads(json.dumps(to_document(metrics), allow_nan=False))
    assert document == {
        "loss": {"value": None, "infinite": True, "impossible": 3},
        "r2": {"value": None, "undefined": "all truths are equal"},
        "targets": {"a": {"f1": {"value": 0.5, "low": 0.25, "high": 0.75, "class": "yes"}}},
    }
    assert group_by_target(metrics)[1] == {"a": {"f1": metrics["f1 (a)"]}}
    assert metric_title("f1 (a)", metrics["f1 (a)"]) == "f1 (a) (yes)"
    assert metric_title("log_loss", metrics["loss"]) == "log loss"
    assert [str(metric) for metric in metrics.values()] == [
        *("infinite (3 impossible)", "0.5000 [0.2500, 0.7500]", "undefined (all truths are equal)"),
    ]
