"""Errors of records against plain Python, and slices against scipy and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from regard.data.targets import Targets
from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import score
from regard.evaluation.predictions import Predictions
from regard.evaluation.record_errors import (
    FEWEST,
    RecordErrors,
    compare_slices,
    errors_of_predictions,
    errors_of_tokens,
    has_word,
    length_bins,
    newcombe,
    slice_members,
    welch,
    wilson,
)

RANDOM = np.random.default_rng(0)
TARGETS = {
    "label": Targets("label", ("sort",), (("a", "b", "c"),)),
    "labels": Targets("labels", ("x", "y"), (("0", "1"), ("0", "1"))),
    "value": Targets("value", ("size",)),
    "position-label": Targets("position-label", ("where",), (("X", "Y", "Z"),)),
}


def errors_of(task, scores, truths, lengths=None):
    count = len(scores) if lengths is None else len(lengths)
    lengths = np.ones(count, np.int64) if lengths is None else np.array(lengths)
    predictions = Predictions(task, scores, truths, lengths, TARGETS[task])
    names = [str(i) for i in range(count)]
    return predictions, errors_of_predictions(predictions, "test", np.arange(count), names, lengths)


@pytest.mark.parametrize(
    ("task", "scores", "truths", "lengths"),
    [
        ("label", RANDOM.normal(size=(6, 3)), np.array([0, 1, 2, 1, 0, 2], np.int32), None),
        ("labels", RANDOM.normal(size=(5, 2)), RANDOM.integers(0, 2, (5, 2)).astype(np.int8), None),
        ("position-label", RANDOM.normal(size=(7, 3)), np.array([-1, 0, 1, -1, 2, 2, -1]), [4, 3]),
    ],
)
def test_the_loss_of_each_record_is_that_of_training(task, scores, truths, lengths):
    predictions, errors = errors_of(task, scores, truths, lengths)
    sums, counts = predictions.losses()
    np.testing.assert_allclose(errors.losses, sums / counts / math.log(2), rtol=1e-9)
    assert errors.loss_name == "loss in bits"


def test_a_class_is_predicted_with_its_confidence_and_an_unknown_truth_is_no_error():
    scores = np.log([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.3, 0.2]])
    _, errors = errors_of("label", scores, np.array([0, 1, -1], np.int32))
    assert errors.predictions == ["a", "c", "a"] and errors.truths == ["a", "b", ""]
    np.testing.assert_allclose(errors.confidences, [0.7, 0.6, 0.5])
    assert errors.correct[:2].tolist() == [1, 0] and math.isnan(errors.correct[2])
    np.testing.assert_allclose(errors.losses[:2], [-math.log2(0.7), -math.log2(0.3)])
    assert errors.score[0] == "accuracy" and errors.score[2]


def test_values_are_off_by_an_absolute_error_in_their_unit():
    _, errors = errors_of("value", np.array([[2.5], [1.0]]), np.array([[2.0], [np.nan]]))
    assert errors.losses[0] == 0.5 and math.isnan(errors.losses[1])
    assert errors.predictions == ["2.5", "1"] and errors.truths == ["2", ""]
    assert errors.score == ("absolute error", errors.losses, False)


def test_a_language_model_has_bits_per_token_and_an_impossible_token_makes_them_infinite():
    from regard.models.ngrams import Bigram, CountConfig
    from regard.tokenizers import Characters

    tokenizer = Characters.train(["abc"])
    model = Bigram(tokenizer.vocab_size, CountConfig())
    model.fit(shard_of(["aab", "ab"], tokenizer), None, print)
    texts = ["ab", "c", "aab"]
    shard = shard_of(texts, tokenizer)
    errors = errors_of_tokens(model, shard, tokenizer, "test", np.arange(3))
    expected = [-r.total / len(r.tokens) / math.log(2) for r in score(model, tokenizer, texts)]
    np.testing.assert_allclose(errors.losses, expected, rtol=1e-6)
    assert list(errors.texts) == texts and math.isinf(errors.losses[1])


def test_the_interval_of_a_share_is_wilsons():
    for successes, count in ((0, 5), (3, 3), (7, 20), (950, 1000)):
        interval = stats.binomtest(successes, count).proportion_ci(method="wilson")
        assert wilson(successes, count) == pytest.approx((interval.low, interval.high))
    assert wilson(0, 0) == (0, 1)


def test_the_difference_of_means_is_welchs():
    ours, others = RANDOM.normal(1, 2, 20), RANDOM.normal(0, 1, 50)
    interval = stats.ttest_ind(ours, others, equal_var=False).confidence_interval()
    assert welch(ours, others) == pytest.approx((interval.low, interval.high))


def test_the_difference_of_shares_is_that_of_newcombes_example():
    # Newcombe 1998, table II (a): 56/70 and 48/80, method 10
    ours, others = np.repeat([1.0, 0.0], [56, 14]), np.repeat([1.0, 0.0], [48, 32])
    assert newcombe(ours, others) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_slices_have_the_counts_and_means_of_plain_python():
    values = np.array([1.0, 0, 1, 1, 0, 1, np.nan])
    cells = ["x", "x", "y", "y", "y", "z", "z"]
    members = {("column", name): np.array([c == name for c in cells]) for name in "xyz"}
    slices = {one.name: one for one in compare_slices(values, members, more_is_better=True)}
    for name, one in slices.items():
        mine = [v for v, c in zip(values, cells, strict=True) if c == name and v == v]
        assert one.count == len(mine) and one.mean == pytest.approx(sum(mine) / len(mine))
        assert one.low <= one.mean <= one.high
    assert [one.name for one in compare_slices(values, members, more_is_better=True)] == list("xyz")


def test_three_wrong_records_are_not_called_worse_and_many_are():
    def verdicts(count):
        values = np.concatenate([np.zeros(count), np.ones(200)])
        inside = np.arange(len(values)) < count
        members = {("word", "with"): inside, ("word", "without"): ~inside}
        found = compare_slices(values, members, more_is_better=True)
        return {one.name: one.verdict for one in found}

    assert verdicts(3) == {"with": "", "without": ""}
    assert verdicts(FEWEST) == {"with": "worse", "without": "better"}


def test_of_slices_of_noise_few_are_called_worse():
    random, wrong = np.random.default_rng(1), 0
    for _ in range(100):
        values, groups = random.normal(size=200), random.integers(0, 8, 200)
        members = {("group", str(k)): groups == k for k in range(8)}
        wrong += any(one.verdict for one in compare_slices(values, members, more_is_better=False))
    assert wrong <= 12  # 5 expected


def test_slices_are_by_label_length_column_and_word():
    texts = ["a cat", "the Cat!", "catalog", "a dog", "dog", "dogs here"]
    errors = RecordErrors(
        "test",
        np.arange(6),
        texts,
        np.arange(6.0),
        "bits",
        np.array([5, 8, 7, 5, 3, 9]),
        truths=["cat", "cat", "", "dog", "dog", "dog"],
        columns={"from": ["x", "x", "y", "y", "x", "x"], "id": list("123456")},
    )
    members = slice_members(errors, ["cat", ""])
    assert members["true label", "cat"].tolist() == [True, True] + [False] * 4
    assert members["from", "y"].tolist() == [False, False, True, True, False, False]
    assert members["word", "with “cat”"].tolist() == [True, True] + [False] * 4
    assert members["word", "without “cat”"].sum() == 4
    bins = [inside for (group, _), inside in members.items() if group == "tokens"]
    assert np.sum(bins, axis=0).tolist() == [1] * 6  # each record has one length


def test_lengths_are_cut_into_classes_of_similar_size():
    lengths = np.arange(1, 101)
    assert {name: int(one.sum()) for name, one in length_bins(lengths).items()} == {
        "1 to 25": 25,
        "26 to 50": 25,
        "51 to 75": 25,
        "76 to 100": 25,
    }
    assert length_bins(np.full(5, 3)) == {} and length_bins(np.zeros(0, np.int64)) == {}


def test_a_word_is_not_a_part_of_another():
    assert has_word("The CAT sat", "cat") and has_word("cat", "cat") and has_word("(cat)", "cat")
    assert not has_word("concatenate cats", "cat") and has_word("cats cat", "cat")
    assert has_word("a?b", "?") and not has_word("", "a")
