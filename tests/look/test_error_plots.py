"""Plots of errors: confusion, reliability, AUROC and values, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from regard.data.targets import Targets
from regard.evaluation.predictions import Predictions
from regard.look import error_plots
from regard.look.error_plots import add_errors, jeffreys_interval
from regard.look.page import Bars, Heatmap, Lines, Page, Scatter, Text

CLASSES = ("high", "low", "middle")
LABEL = Targets("label", ("kind",), (CLASSES,))


def plots(task, scores, truths, targets, lengths=None):
    """The components that are added for predictions."""
    lengths = np.ones(len(truths), np.int64) if lengths is None else lengths
    page = Page("errors")
    add_errors(page, Predictions(task, scores, truths, lengths, targets), "these", "Errors")
    return page.components


@pytest.mark.parametrize("task", ["label", "position-label"])
def test_confusion_and_reliability_are_counted(task):
    random = np.random.default_rng(0)
    scores, truths = random.normal(size=(60, 3)), random.integers(-1, 3, 60)
    targets = Targets(task, ("kind",), (CLASSES,))
    lengths = np.full(6, 10) if task == "position-label" else None
    confusion, reliability = plots(task, scores, truths, targets, lengths)
    assert isinstance(confusion, Heatmap) and isinstance(reliability, Lines)
    by_hand = np.zeros((3, 3))
    np.add.at(by_hand, (truths[truths >= 0], scores.argmax(1)[truths >= 0]), 1)
    assert (confusion.array() == by_hand).all() and confusion.marks == [(0, 0), (1, 1), (2, 2)]
    assert confusion.unit == ("positions" if lengths is not None else "records")
    (name, confidence, accuracy), (_, x, y) = reliability.series
    assert x == y and len(confidence) == len(accuracy) and name.startswith("calibration error")
    low, high = reliability.bands[name]
    assert all(a <= b <= c for a, b, c in zip(low, accuracy, high, strict=True))


def test_unknown_truths_alone_are_not_drawn():
    (text,) = plots("label", np.zeros((4, 3)), np.full(4, -1), LABEL)
    assert isinstance(text, Text) and "known of none" in text.text


def test_of_many_classes_the_most_frequent_are_drawn(monkeypatch):
    monkeypatch.setattr(error_plots, "MOST_CLASSES", 2)
    truths = np.array([0, 2, 2, 1, 2, 0])
    confusion, _ = plots("label", np.eye(3)[truths], truths, LABEL)
    assert confusion.rows == ["high", "middle"] and "2 most frequent of 3" in confusion.title
    assert confusion.array().tolist() == [[2, 0], [0, 3]]


def test_labels_have_a_bar_each_unless_undefined():
    targets = Targets("labels", ("a", "b"), (("0", "1"), ("0", "1")))
    scores = np.array([[2.0, 1.0], [1.0, 1.0], [-1.0, 1.0], [-2.0, 1.0]])
    truths = np.array([[1, 1], [1, 1], [0, 1], [0, 1]])
    bars, reliability = plots("labels", scores, truths, targets)
    assert isinstance(bars, Bars) and bars.labels == ["a"] and bars.values == [1]
    assert [name.split(",")[0] for name, _, _ in reliability.series] == [
        "a",
        "b",
        "confidence = accuracy",
    ]
    assert not reliability.bands


def test_values_are_drawn_against_the_truth_without_gaps():
    targets = Targets("value", ("x", "y"), deviations=(1.0, 1.0))
    scores = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    truths = np.array([[1.5, np.nan], [np.nan, np.nan], [2.5, np.nan]], np.float32)
    (scatter,) = plots("value", scores, truths, targets)
    assert isinstance(scatter, Scatter) and scatter.diagonal
    assert scatter.array().tolist() == [[1.5, 1.0], [2.5, 3.0]]
    assert "RMSE 0.5" in scatter.title


def test_intervals_are_jeffreys_and_include_none_and_all():
    low, high = jeffreys_interval(np.array([10, 10, 10]), np.array([0.0, 0.3, 1.0]))
    assert low[0] == 0 and high[2] == 1
    assert (low[1], high[1]) == pytest.approx(beta(3.5, 7.5).ppf([0.025, 0.975]))
