"""Predictions of folds joined, stored and read again, against plain loops over the same numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from regard.data.targets import Targets
from regard.errors import UserError
from regard.evaluation.predictions import (
    INTERVALS,
    PREDICTIONS,
    Predictions,
    join_folds,
    load_intervals,
    load_predictions,
    read_targets,
    store_intervals,
    store_predictions,
)


def fold(classes, scores, truths, task="label", names=("kind",), lengths=None):
    scores, truths = np.asarray(scores, np.float64), np.asarray(truths)
    lengths = np.ones(len(scores), np.int64) if lengths is None else np.array(lengths)
    return Predictions(task, scores, truths, lengths, Targets(task, names, classes), 1.0)


def test_a_class_that_a_training_part_lacks_is_impossible_there():
    one = fold((("a", "b", "c"),), [[2, 1, 0], [0, 1, 2]], [0, 2])
    two = fold((("a", "c"),), [[0.5, 0.2], [0.1, 3.0], [1.0, 0.0]], [0, 1, -1])
    joined = join_folds([one, two])
    assert joined.targets.classes == (("a", "b", "c"),) and joined.records == 5
    assert joined.truths.tolist() == [0, 2, 0, 2, -1] and joined.unknown == 1
    assert joined.scores[2].tolist() == [0.5, -math.inf, 0.2] and joined.seconds == 2.0
    estimates = joined.estimates
    assert estimates["accuracy"].value == 1.0  # of the four whose class some training part has
    rows = ([2, 1, 0], [0, 1, 2], [0.5, 0.2], [0.1, 3.0])
    probabilities = [np.exp(row) / np.exp(row).sum() for row in rows]
    by_hand = -np.mean(np.log([p[i] for p, i in zip(probabilities, (0, 2, 0, 1), strict=True)]))
    assert estimates["log_loss"].value == pytest.approx(by_hand)


def test_a_label_of_one_value_in_training_is_missing_there():
    names, both = ("x", "y"), (("0", "1"), ("0", "1"))
    one = fold(both, [[1.0, -1.0], [-1.0, 1.0]], [[1, 0], [0, 1]], "labels", names)
    two = fold((("0", "1"), ("1",)), [[2.0, 9.0]], [[1, 0]], "labels", names)
    joined = join_folds([one, two])
    assert joined.truths.tolist() == [[1, 0], [0, 1], [1, -1]]
    assert joined.scores[2].tolist() == [2.0, 0.0]


def test_values_and_positions_are_concatenated():
    one = fold((), [[1.0], [2.0]], [[1.5], [np.nan]], "value", ("v",))
    two = fold((), [[3.0]], [[5.0]], "value", ("v",))
    estimates = join_folds([one, two]).estimates
    assert estimates["rmse"].value == pytest.approx(math.sqrt((0.25 + 4) / 2))
    parts = [
        fold((classes,), np.eye(2)[t] * 3, t, "position-label", ("p",), [len(t)])
        for t, classes in (([0, 1, 1], ("H", "L")), ([1, 0], ("E", "L")))
    ]
    joined = join_folds(parts)
    assert joined.targets.classes == (("H", "L", "E"),)
    assert joined.truths.tolist() == [0, 1, 1, 1, 2]
    assert joined.lengths.tolist() == [3, 2]
    assert joined.estimates["accuracy"].value == 1.0


def test_a_fold_of_one_record_whose_class_is_unknown_has_no_metric():
    metrics = fold((("a", "b"),), [[1.0, 0.0]], [-1]).metrics()
    assert metrics["accuracy"].to_json() == {"value": None, "undefined": "no truth is known"}


def test_the_first_records_keep_their_positions():
    scores = np.stack([np.arange(9), -np.arange(9)], axis=1)
    predictions = fold((("a", "b"),), scores, np.arange(9) % 2, "position-label", lengths=[2, 4, 3])
    short = predictions.first(2)
    assert short.records == 2 and len(short.scores) == len(short.truths) == 6
    assert short.scores[-1, 0] == 5


def test_predictions_are_stored_bit_by_bit_and_damage_is_an_error(tmp_path):
    random = np.random.default_rng(0)
    predictions = fold((("a", "b"),), random.normal(size=(5, 2)), [0, 1, -1, 0, 1])
    store_predictions(tmp_path, replace(predictions, seconds=0.25))
    with pytest.raises(UserError, match="does not say what this run predicts"):
        read_targets(tmp_path)
    targets = {"task": "label", "names": ["kind"], "classes": [["a", "b"]]}
    (tmp_path / "regard.json").write_text(json.dumps({"data": {"targets": targets}}))
    stored = load_predictions(tmp_path)
    assert stored.targets == predictions.targets and stored.seconds == 0.25
    assert np.array_equal(stored.scores, predictions.scores)
    assert np.array_equal(stored.truths, predictions.truths)
    (tmp_path / PREDICTIONS).write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"predictions\.safetensors is damaged"):
        load_predictions(tmp_path)


def test_intervals_of_values_hold_their_share_and_few_errors_give_none(tmp_path):
    """By hand: of 99 errors the 90th is not passed by 90 of 100 new ones."""
    random = np.random.default_rng(0)
    truths = random.normal(size=(99, 2))
    errors = np.abs(random.normal(size=99))
    truths[19:, 1] = np.nan  # 19 known values
    scores = np.stack([truths[:, 0] + errors * random.choice([-1, 1], 99), np.zeros(99)], 1)
    targets = Targets("value", ("a", "b"))
    predictions = Predictions("value", scores, truths, np.ones(99, np.int64), targets)
    store_intervals(tmp_path, predictions)
    intervals = load_intervals(tmp_path)
    assert intervals["level"] == 0.9 and intervals["records"] == 99
    assert set(intervals["reach"]) == {"a"}
    assert intervals["reach"]["a"] == pytest.approx(np.sort(errors)[89])
    (tmp_path / INTERVALS).write_text('{"level": "x"}')
    with pytest.raises(UserError, match=f"{INTERVALS} is damaged"):
        load_intervals(tmp_path)
    assert load_intervals(tmp_path / "none") is None
