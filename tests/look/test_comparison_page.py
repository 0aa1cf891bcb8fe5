"""The page of a comparison: its table, learning curves, errors, surprise and samples."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from regard.data.targets import Targets
from regard.evaluation.comparison import Comparison, Row
from regard.evaluation.predictions import Predictions
from regard.look.comparison_page import comparison_page
from regard.look.page import Confusion, Intervals, Lines, Sequences, Surprise, Table, Text
from regard.run import METRICS

TARGETS = Targets("label", ("kind",), (("no", "yes"),))


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


@pytest.fixture
def comparison(tmp_path):
    """Two classifiers of 20 records; one is right on all of them."""
    truths, rows = np.arange(20) % 2, []
    for name, share in (("perfect", 0), ("noisy", 5)):
        scores = np.eye(2)[np.where(np.arange(20) < share, 1 - truths, truths)] * 4
        predictions = Predictions("label", scores, truths, np.ones(20, np.int64), TARGETS)
        run = tmp_path / name
        run.mkdir()
        events = [
            {
                "event": "valid",
                "step": i,
                "seconds": 2.0 * i,
                "metric": "log_loss",
                "value": 1.0 - 0.1 * i,
            }
            for i in (1, 2)
        ]
        (run / METRICS).write_text("".join(json.dumps(event) + "\n" for event in events))
        estimates = dict(predictions.estimates)
        row = Row(
            model=name,
            parameters=10,
            train_seconds=1.0,
            symbols_per_second=5.0,
            peak_memory_bytes=1 << 20,
            losses=None,
            values=(estimates["accuracy"].value,),
            runs=(run,),
            quality=estimates,
            ranked_by="accuracy",
            predictions=predictions,
            rank=1 + (name == "noisy"),
        )
        rows.append(row)
    curves = {"perfect": [(10, 0.8), (20, 1.0)]}
    return Comparison("test", 60, 20, tuple(rows), "Use perfect.", curves, task="label")


def test_the_page_has_the_table_the_curves_and_the_errors_of_the_best(comparison):
    page = comparison_page(comparison, title="two models")
    assert page.subtitle == "2 models on 20 test records"  # the verdict names the best
    assert of(page, Text)[0].text == "Use perfect."
    quality, size = of(page, Table)
    assert quality.columns[1] == "model" and "accuracy [95%]" in quality.columns
    assert size.title == "Size and speed" and size.columns[2] == "parameters"
    assert list(quality.highlight) == [0] == list(size.highlight)
    training, data = of(page, Lines)[1:3]
    assert [list(xs) for _, xs, _ in training.series] == [[2.0, 4.0]] * 2
    assert training.y_label == "log loss" and data.y_label == "accuracy" and data.log_x
    (confusion,) = of(page, Confusion)
    assert confusion.array().tolist() == [[10, 0], [0, 10]]
    accuracy = next(bars for bars in of(page, Intervals) if bars.title.startswith("Accuracy"))
    assert accuracy.labels == ["perfect", "noisy"] and list(accuracy.values) == [1.0, 0.75]
    assert (accuracy.better, accuracy.highlight) == ("more", [0])
    cost = next(lines for lines in of(page, Lines) if lines.title == "Quality and cost")
    assert cost.log_x and [(name, xs, ys) for name, xs, ys in cost.series] == [
        ("perfect", [1.0], [1.0]),
        ("noisy", [1.0], [0.75]),
    ]
    assert "The best row: perfect" in page.render()


def test_a_row_of_infinite_loss_is_drawn(comparison):
    def charts(*values):
        rows = []
        for row, value in zip(comparison.rows, values, strict=True):
            rmse = replace(row.quality["accuracy"], value=value, lower_is_better=True)
            rows.append(replace(row, quality={**row.quality, "rmse": rmse}))
        page = comparison_page(replace(comparison, rows=tuple(rows)), title="two models")
        return [chart for chart in of(page, Intervals) if chart.title == "RMSE"]

    assert charts(math.inf, math.inf) == []  # nothing finite to compare them with
    (chart,) = charts(2.0, math.inf)
    assert chart.labels == ["perfect", "noisy"] and chart.values[1] == math.inf
    assert chart.better == "less"


def test_surprise_and_samples_are_shown_if_given(comparison):
    strip = (["a", "<E>"], [("perfect", [0.5, 1.0]), ("noisy", [1.5, 2.0])])
    samples = {"perfect": ["ab", "ba"]}
    page = comparison_page(comparison, title="two models", strip=strip, samples=samples)
    (surprise,), (listed,) = of(page, Surprise), of(page, Sequences)
    assert [name for name, _ in surprise.rows] == ["perfect", "noisy"]
    assert [text for text, _ in listed.samples] == ["ab", "ba"]
