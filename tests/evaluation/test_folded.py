"""Answers of folds put together, kept and ranked: against plain loops over the same numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from regard.api import plan
from regard.data.corpus import prepare
from regard.data.targets import Targets
from regard.errors import UserError
from regard.evaluation.bootstrap import RESAMPLES
from regard.evaluation.comparison import Comparison, Row, ranked, verdict
from regard.evaluation.predictions import (
    Predictions,
    StoredPredictions,
    join_folds,
    load_predictions,
    store_predictions,
    targets_of,
)
from regard.registry import TASKS
from regard.training.comparison_runs import default_models


def fold(classes, scores, truths, task="label", names=("kind",)):
    scores = np.asarray(scores, np.float64)
    lengths = np.ones(len(scores), np.int64)
    return StoredPredictions(
        Predictions(task, scores, np.asarray(truths), lengths), Targets(task, names, classes), 1
    )


def test_a_class_that_a_training_part_lacks_is_impossible_there():
    one = fold((("a", "b", "c"),), [[2, 1, 0], [0, 1, 2]], [0, 2])
    two = fold((("a", "c"),), [[0.5, 0.2], [0.1, 3.0], [1.0, 0.0]], [0, 1, -1])
    whole = join_folds([one, two])
    assert whole.targets.classes == (("a", "b", "c"),) and whole.records == 5
    assert whole.answered.truths.tolist() == [0, 2, 0, 2, -1] and whole.unknown == 1
    assert whole.answered.scores[2].tolist() == [0.5, -math.inf, 0.2]
    found = whole.answered.estimates
    assert found["accuracy"].value == 1.0  # of the four whose class some training part has
    probabilities = [np.exp(row) / np.exp(row).sum() for row in ([2, 1, 0], [0, 1, 2])]
    probabilities += [np.exp(row) / np.exp(row).sum() for row in ([0.5, 0.2], [0.1, 3.0])]
    by_hand = -np.mean(np.log([p[i] for p, i in zip(probabilities, (0, 2, 0, 1), strict=True)]))
    assert found["log_loss"].value == pytest.approx(by_hand)


def test_a_label_of_one_form_in_training_is_missing_there():
    names, both = ("x", "y"), (("0", "1"), ("0", "1"))
    one = fold(both, [[1.0, -1.0], [-1.0, 1.0]], [[1, 0], [0, 1]], "labels", names)
    two = fold((("0", "1"), ("1",)), [[2.0, 9.0]], [[1, 0]], "labels", names)
    whole = join_folds([one, two]).answered
    assert whole.truths.tolist() == [[1, 0], [0, 1], [1, -1]]
    assert whole.scores[2].tolist() == [2.0, 0.0]


def test_values_and_positions_are_put_one_after_the_other():
    one = fold((), [[1.0], [2.0]], [[1.5], [np.nan]], "value", ("v",))
    two = fold((), [[3.0]], [[5.0]], "value", ("v",))
    found = join_folds([one, two]).answered.estimates
    assert found["rmse"].value == pytest.approx(math.sqrt((0.25 + 4) / 2))
    parts = [
        StoredPredictions(Predictions("position-label", np.eye(2)[t] * 3, np.array(t),
        np.array([len(t)])),
             Targets("position-label", ("p",), (classes,)), 1.0)
        for t, classes in (([0, 1, 1], ("H", "L")), ([1, 0], ("E", "L")))
    ]  # fmt: skip
    whole = join_folds(parts)
    assert whole.targets.classes == (("H", "L", "E"),)
    assert whole.answered.truths.tolist() == [0, 1, 1, 1, 2]
    assert whole.answered.lengths.tolist() == [3, 2]
    assert whole.answered.estimates["accuracy"].value == 1.0


def test_a_fold_of_one_record_whose_class_is_unknown_has_no_figure():
    found = fold((("a", "b"),), [[1.0, 0.0]], [-1]).answered.figures()
    assert found["accuracy"].to_json() == {"value": None, "undefined": "no truth is known"}


def test_answers_are_kept_bit_by_bit_and_damage_is_told(tmp_path):
    said = fold((("a", "b"),), np.random.default_rng(0).normal(size=(5, 2)), [0, 1, -1, 0, 1])
    store_predictions(tmp_path, said.answered, 0.25)
    with pytest.raises(UserError, match="does not say what is asked"):
        targets_of(tmp_path)
    told = {"task": "label", "names": ["kind"], "classes": [["a", "b"]]}
    (tmp_path / "regard.json").write_text(json.dumps({"data": {"targets": told}}))
    again = load_predictions(tmp_path)
    assert again.targets == said.targets and again.seconds == 0.25
    assert np.array_equal(again.answered.scores, said.answered.scores)
    assert np.array_equal(again.answered.truths, said.answered.truths)
    (tmp_path / "answers.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"answers\.safetensors is damaged"):
        load_predictions(tmp_path)


@pytest.mark.parametrize(
    ("texts", "left_out"),
    [(["abcd", "bcda", "cdab", "dabc"], []), (["abcd", "abc", "a", "ab"], ["pwm"])],
)
def test_rows_that_the_data_do_not_allow_are_left_out_and_named(tmp_path, texts, left_out):
    lines = [f"{text[i % 2 :]}{text[: i % 2]}\t{'pq'[i % 2]}" for i in range(10) for text in texts]
    (tmp_path / "some.tsv").write_text("\n".join(["text\tkind", *lines]) + "\n")
    recipe, _ = plan([tmp_path / "some.tsv"], data={"input": "text", "target": "kind"})
    corpus, said = prepare(recipe.data, recipe.tokens, tmp_path, str, task="label"), []
    rows = default_models("label", corpus, said.append)
    assert rows[0] == "majority" and rows[-1] == "transformer" and "markov" in rows
    assert [line.split()[0] for line in said] == left_out
    assert ("pwm" in rows) == (not left_out)
    for task in ("labels", "value", "position-label"):
        some = default_models(task, corpus, said.append)
        assert set(some) <= set(TASKS[task]) and {"majority", "logistic", "transformer"} <= set(
            some
        )


TRUTHS = np.random.default_rng(7).integers(0, 2, 150)


def row(model, share, seed, *, seconds=10.0, truths=TRUTHS):
    """A row that is right about this share of the records."""
    right = np.random.default_rng(seed).random(len(truths)) < share
    scores = np.eye(2)[np.where(right, truths, 1 - truths)]
    told = fold((("no", "yes"),), scores, truths)
    judged = told.answered.estimates
    values, runs = (judged["accuracy"].value,), (Path(model),)
    rest = {"judged": judged, "ranked_by": "accuracy", "answers": told}
    return Row(model, 1000, seconds, 0.0, 1, None, values, runs, **rest), right


def test_ranks_are_those_of_a_paired_bootstrap_done_plainly():
    made = [row("transformer", 0.7, 1), row("logistic", 0.92, 2), row("svm", 0.9, 3)]
    rows, rights = [one for one, _ in made], [right for _, right in made]
    random = np.random.default_rng(0)
    drawn = [random.integers(0, len(TRUTHS), len(TRUTHS)) for _ in range(RESAMPLES)]
    for ours, mine in zip(rows, rights, strict=True):
        better = 0
        for theirs, other in zip(rows, rights, strict=True):
            gaps = [mine[some].mean() - other[some].mean() for some in drawn]
            low, high = np.quantile(gaps, [0.025, 0.975])
            gap = theirs.behind(ours)
            assert (gap.low, gap.high) == pytest.approx((low, high))
            better += high < 0
        assert next(r.rank for r in ranked(rows) if r.model == ours.model) == 1 + better
    words = verdict(ranked(rows))
    assert "svm and logistic cannot be told apart here (95%)" in words
    assert "The transformer is worse by" in words and "attention does not pay" in words


def test_who_is_no_better_than_the_commonest_class_is_named():
    rows = [row("majority", 0.6, 1, seconds=0.1)[0], row("transformer", 0.62, 2)[0]]
    words = verdict(ranked([*rows, row("logistic", 0.97, 3)[0]]))
    assert words.startswith("Use logistic: accuracy 0.9")
    assert "transformer is not surely better than saying the same of every record." in words


def test_rows_that_nothing_ranks_are_not_ranked():
    alike = np.zeros(6, np.int64)
    tagged = fold((("0", "1"),), np.ones((6, 1)), alike[:, None], "labels", ("x",))
    rest = {"judged": tagged.answered.estimates, "ranked_by": "auroc", "answers": tagged}
    rows = ranked([Row(name, 1, 1.0, 0.0, 1, None, (math.nan,), (Path(name),), **rest)
                   for name in ("cnn", "svm")])  # fmt: skip
    words = verdict(rows)
    assert words == "The models cannot be ranked: AUROC undefined (all truths are of one class)."
    table = Comparison("test", 60, 6, rows, words, task="labels")
    assert json.loads(json.dumps(table.to_json(), allow_nan=False))["ranked_by"] == "auroc"
    assert "6 test records" in table.to_markdown()
