"""Metrics of classes against their definitions written out slowly, and against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from regard.errors import UserError
from regard.evaluation.bootstrap import RESAMPLES, draw_weights, metrics_by_fold, pool_folds
from regard.evaluation.classification import (
    BINS,
    Ranking,
    best_threshold,
    classification_report,
    multilabel_report,
    position_report,
)


def close(a, b):
    return a == pytest.approx(b, rel=1e-12, abs=1e-12)


def values(found):
    return {name: one.value for name, one in found.items()}


def pairs_won(scores, positive):
    """AUROC by all pairs."""
    ups, downs = scores[positive], scores[~positive]
    gaps = ups[:, None] - downs[None, :]
    return np.mean((gaps > 0) + 0.5 * (gaps == 0))


def precision_summed(scores, positive):
    """Average precision: the sum of (R_n - R_{n-1}) P_n over thresholds from above."""
    total, recall_before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        recall = (chosen & positive).sum() / positive.sum()
        total += (recall - recall_before) * (chosen & positive).sum() / chosen.sum()
        recall_before = recall
    return total


def covariance_form(predicted, truths, classes):
    """Gorodkin's correlation as sums of covariances of the indicators of each class."""
    x, y = (np.eye(classes)[a] - np.eye(classes)[a].mean(0) for a in (predicted, truths))
    return (x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum())


def f1_of(predicted, truths, c):
    both = ((predicted == c) & (truths == c)).sum()
    return 2 * both / ((predicted == c).sum() + (truths == c).sum())


def calibration(probabilities, truths):
    error, sure = 0.0, probabilities.max(1)
    for b in range(BINS):
        there = (sure > b / BINS) & (sure <= (b + 1) / BINS)
        right = probabilities.argmax(1)[there] == truths[there]
        error += abs(right.sum() - sure[there].sum())
    return error / len(truths)


def problem(n, classes, seed, coarse=False):
    """Probabilities with ties and truths with a rare last class."""
    random = np.random.default_rng(seed)
    share = np.append(np.full(classes - 1, 1.0), 0.1)
    truths = random.choice(classes, n, p=share / share.sum())
    logits = random.normal(size=(n, classes)) + 1.5 * np.eye(classes)[truths]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if coarse:  # 64ths, which sum to one exactly, and tie
        whole = np.floor(probabilities * 64)
        whole[:, 0] += 64 - whole.sum(1)
        probabilities = (whole + 1) / (64 + classes)
    return probabilities, truths


@pytest.mark.parametrize(
    ("classes", "coarse"), [(2, False), (2, True), (3, False), (3, True), (7, True)]
)
def test_every_metric_is_its_definition(classes, coarse):
    probabilities, truths = problem(230, classes, classes, coarse)
    found = values(classification_report(probabilities, truths, probabilities=True).estimates)
    predicted = probabilities.argmax(1)
    assert close(found["accuracy"], (predicted == truths).mean())
    assert close(found["error"], (predicted != truths).mean())
    assert close(found["mcc"], covariance_form(predicted, truths, classes))
    assert close(found["log_loss"], -np.log(probabilities[range(230), truths]).mean())
    assert close(found["ece"], calibration(probabilities, truths))
    f1 = [f1_of(predicted, truths, c) for c in range(classes)]
    assert close(found["f1_macro"], np.mean(f1))
    which = [1] if classes == 2 else range(classes)
    precision = "average_precision" if classes == 2 else "average_precision_macro"
    for name, oracle in (("auroc", pairs_won), (precision, precision_summed)):
        each = [oracle(probabilities[:, c], truths == c) for c in which]
        assert close(found[name], np.mean(each))


@pytest.mark.parametrize("classes", [2, 4])
def test_scikit_learn_agrees(classes):
    probabilities, truths = problem(300, classes, 5, coarse=True)
    found = values(classification_report(probabilities, truths, probabilities=True).estimates)
    predicted = probabilities.argmax(1)
    which = [1] if classes == 2 else range(classes)
    precision = "average_precision" if classes == 2 else "average_precision_macro"
    ranked = {
        "auroc": sklearn_metrics.roc_auc_score,
        precision: sklearn_metrics.average_precision_score,
    }
    for name, theirs in ranked.items():
        assert close(
            found[name], np.mean([theirs(truths == c, probabilities[:, c]) for c in which])
        )
    assert close(found["accuracy"], sklearn_metrics.accuracy_score(truths, predicted))
    assert close(found["mcc"], sklearn_metrics.matthews_corrcoef(truths, predicted))
    assert close(found["f1_macro"], sklearn_metrics.f1_score(truths, predicted, average="macro"))
    assert close(found["log_loss"], sklearn_metrics.log_loss(truths, probabilities))


@pytest.mark.parametrize(("classes", "positive"), [(2, 0), (2, 1), (4, 2)])
def test_metrics_of_the_positive_class_equal_scikit_learn_and_name_it(classes, positive):
    probabilities, truths = problem(300, classes, 6, coarse=True)
    names = ["quiet", "loud", "middle", "none"][:classes]
    found = classification_report(
        probabilities, truths, probabilities=True, positive=positive, names=names
    ).metrics()
    predicted = probabilities.argmax(1)
    here, said = truths == positive, predicted == positive
    for name, theirs in (
        ("f1", sklearn_metrics.f1_score(here, said)),
        ("precision", sklearn_metrics.precision_score(here, said)),
        ("recall", sklearn_metrics.recall_score(here, said)),
        (
            "average_precision",
            sklearn_metrics.average_precision_score(here, probabilities[:, positive]),
        ),
    ):
        assert close(found[name].value, theirs)
        assert found[name].to_json()["class"] == names[positive]
    for name in ("f1", "precision", "recall"):
        theirs = getattr(sklearn_metrics, f"{name}_score")(truths, predicted, average="macro")
        assert close(found[f"{name}_macro"].value, theirs)
        assert "class" not in found[f"{name}_macro"].to_json()
    plain = classification_report(probabilities, truths, probabilities=True).metrics()
    assert close(found["auroc"].value, plain["auroc"].value)  # of two, that of both


def test_of_a_class_that_is_never_predicted_precision_is_zero():
    found = classification_report([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    assert found.estimates["precision"].value == found.estimates["f1"].value == 0.0
    assert close(found.estimates["precision_macro"].value, 3 / 8)  # 3/4 and 0
    with pytest.raises(ValueError, match="positive must be from 0 to 1, got 2"):
        classification_report([[2.0, 0.0]], [0], positive=2)


def test_several_labels_have_their_metrics_and_means():
    random = np.random.default_rng(3)
    truths = random.integers(0, 2, (60, 2))
    logits = random.normal(size=(60, 2)) + truths
    metrics = multilabel_report(
        logits, truths, positive=[1, 0], classes=[("0", "1"), ("no", "yes")], names=["a", "b"]
    ).metrics()
    for column, (name, sign, of) in enumerate((("a", 1, "1"), ("b", -1, "no"))):
        here = truths[:, column] == (sign > 0)
        expected = precision_summed(sign * logits[:, column], here)
        metric = metrics[f"average_precision ({name})"]
        assert close(metric.value, expected)
        assert (metric.target, metric.class_name) == (name, of)
        assert close(metrics[f"auroc ({name})"].value, pairs_won(sign * logits[:, column], here))
    means = np.mean([metrics[f"auroc ({name})"].value for name in "ab"])
    assert close(metrics["auroc_mean"].value, means) and "auroc" not in metrics
    assert metrics["f1_mean"].class_name == ""  # of different classes


def test_for_two_classes_the_correlation_is_pearsons():
    probabilities, truths = problem(150, 2, 3)
    found = classification_report(probabilities, truths, probabilities=True)
    assert close(found.estimates["mcc"].value, np.corrcoef(probabilities.argmax(1), truths)[0, 1])
    assert found.metrics()["f1"] == found.classes[1]["f1"].metric()
    assert close(found.estimates["f1"].value, f1_of(probabilities.argmax(1), truths, 1))


def test_logits_and_probabilities_give_the_same():
    probabilities, truths = problem(120, 3, 9)
    shifted = np.log(probabilities) + np.linspace(-900, 900, 120)[:, None]  # any constant per row
    one = classification_report(probabilities, truths, probabilities=True).metrics()
    two = classification_report(shifted, truths).metrics()
    for name, metric in one.items():
        assert (metric.value, metric.low) == pytest.approx((two[name].value, two[name].low))


def test_logits_too_sure_for_probabilities_are_still_ranked():
    """1 / (1 + e^-z) is 1 for all of these: probabilities would tie and give 0.5."""
    found = classification_report(
        [[0.0, 60.0], [0.0, 50.0], [0.0, 70.0], [0.0, 40.0]], [1, 0, 1, 0]
    )
    assert found.estimates["auroc"].value == 1.0


def test_confusion_and_reliability_add_up():
    probabilities, truths = problem(400, 3, 1)
    found = classification_report(probabilities, truths, probabilities=True)
    predicted = probabilities.argmax(1)
    for t in range(3):
        for p in range(3):
            assert found.confusion[t, p] == ((truths == t) & (predicted == p)).sum()
    bins = found.reliability
    assert bins.counts.sum() == 400 and len(bins.edges) == BINS + 1
    there = bins.counts > 0
    inside = (bins.edges[:-1] < bins.confidence) & (bins.confidence <= bins.edges[1:])
    assert inside[there].all() and np.isnan(bins.accuracy[~there]).all()
    right = (bins.counts * bins.accuracy)[there].sum()
    assert right == pytest.approx((predicted == truths).sum())
    gap = (bins.counts * np.abs(bins.accuracy - bins.confidence))[there].sum() / 400
    assert gap == pytest.approx(found.estimates["ece"].value)


def test_the_interval_of_calibration_holds_its_value():
    """Resampled noise would lift every |gap|: the value could lie below all of its samples."""
    random = np.random.default_rng(0)
    truths = random.integers(0, 10, 300)
    logits = random.normal(size=(300, 10)) + np.eye(10)[truths]  # calibrated by Bayes's rule
    metric = classification_report(logits, truths).metrics()["ece"]
    assert 0 <= metric.low < metric.value < metric.high


def test_a_ranking_under_weights_is_that_of_repeated_records():
    random = np.random.default_rng(4)
    scores, positive = random.integers(0, 12, 60) / 4, random.random(60) < 0.3
    weights = random.multinomial(60, np.full(60, 1 / 60), size=5).astype(float)
    for row, (auroc, precision) in zip(weights, Ranking(scores, positive)(weights), strict=True):
        drawn = np.repeat(np.arange(60), row.astype(int))
        assert close(auroc, pairs_won(scores[drawn], positive[drawn]))
        assert close(precision, precision_summed(scores[drawn], positive[drawn]))


def test_samples_are_the_metrics_of_the_resampled_records():
    probabilities, truths = problem(90, 3, 2, coarse=True)
    found = classification_report(probabilities, truths, probabilities=True).estimates
    random = np.random.default_rng(0)
    for i in range(4):
        drawn = random.integers(0, 90, 90)
        same = classification_report(
            probabilities[drawn], truths[drawn], probabilities=True
        ).estimates
        for name in set(found) - {"ece"}:  # whose bins keep their signs
            assert close(found[name].samples[i], same[name].value)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(-8, 8), st.booleans()), min_size=2, max_size=30))
def test_only_the_order_of_scores_matters(records):
    scores = np.array([s for s, _ in records], dtype=float)
    positive = np.array([p for _, p in records])
    ones = np.ones((1, len(records)))
    plain = Ranking(scores, positive)(ones)
    np.testing.assert_array_equal(plain, Ranking(np.exp(scores) + 3 * scores, positive)(ones))
    back = np.arange(len(records))[::-1]
    np.testing.assert_allclose(plain, Ranking(scores[back], positive[back])(ones), rtol=1e-12)
    turned = Ranking(-scores, ~positive)(ones)[0, 0]  # both classes and the order exchanged
    np.testing.assert_allclose(plain[0, 0], turned, rtol=1e-12)


def test_one_class_only_is_undefined_with_a_reason():
    found = classification_report([[0.2, 0.1], [0.3, 0.9], [0.0, 1.0]], [1, 1, 1]).metrics()
    for name in ("auroc", "average_precision", "mcc"):
        told = {"value": None, "undefined": "all truths are of one class"}
        assert found[name].to_json() == told | ({"class": "1"} if "precision" in name else {})
    assert str(found["auroc"]) == "undefined (all truths are of one class)"
    assert found["accuracy"].value == 2 / 3


def test_predicting_one_class_always_has_no_correlation():
    found = classification_report(np.tile([1.0, 0.0, 0.0], (6, 1)), [0, 1, 2, 0, 1, 2])
    assert found.estimates["mcc"].value == 0.0
    assert found.estimates["auroc"].value == 0.5
    assert found.classes[1]["f1"].value == 0.0


def test_a_class_that_never_occurs_is_left_out_of_the_means():
    probabilities = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.1, 0.8, 0.1]])
    found = classification_report(probabilities, [0, 1, 1, 0], probabilities=True)
    assert found.classes[2]["f1"].metric().undefined
    assert found.classes[2]["recall"].metric().undefined
    assert found.estimates["f1_macro"].value == 0.5
    assert close(
        found.estimates["auroc"].value,
        pairs_won(probabilities[:, 0], np.array([1, 0, 0, 1]) > 0) / 2
        + pairs_won(probabilities[:, 1], np.array([0, 1, 1, 0]) > 0) / 2,
    )


def test_a_truth_of_probability_0_makes_the_log_loss_infinite():
    sure, unsure = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.full((3, 2), 0.5)
    found = classification_report(sure, [0, 1, 1], probabilities=True).estimates["log_loss"]
    assert found.metric().to_json() == {"value": None, "infinite": True, "impossible": 1}
    other = classification_report(unsure, [0, 1, 1], probabilities=True).estimates["log_loss"]
    assert found.verdict(other) == "worse" and other.verdict(found) == "better"


def test_columns_with_gaps_are_evaluated_on_the_records_that_have_them():
    random = np.random.default_rng(8)
    truths = (random.random((160, 4)) < [0.5, 0.1, 0.3, 0.0]).astype(float)
    truths[random.random(truths.shape) < 0.3] = np.nan
    chances = np.round(random.random((160, 4)) * 0.6 + 0.2 * np.nan_to_num(truths), 2)
    found = multilabel_report(chances, truths, probabilities=True)
    both = []
    for c in range(4):
        there = ~np.isnan(truths[:, c])
        p, t = chances[there, c], truths[there, c].astype(int)
        alone = classification_report(np.stack([1 - p, p], axis=1), t, probabilities=True).estimates
        mine = found.columns[c].estimates
        assert {n: v for n, v in values(mine).items() if v == v} == {
            n: v for n, v in values(alone).items() if v == v
        }
        both += [values(alone)] if c < 3 else []
    assert found.columns[3].estimates["auroc"].metric().undefined
    for name, one in found.means.items():
        assert close(one.value, np.mean([column[name.removesuffix("_mean")] for column in both]))
        metric = one.metric()
        assert metric.low <= metric.value <= metric.high
    whole = np.where(np.isnan(truths), -1, truths).astype(int)
    assert values(multilabel_report(chances, whole, probabilities=True).means) == values(
        found.means
    )


def test_the_logit_of_a_column_is_of_one_against_zero():
    logits, truths = np.array([[2.0], [-1.0], [0.5]]), np.array([[1], [0], [0]])
    found = multilabel_report(logits, truths).means["log_loss_mean"].value
    chances = 1 / (1 + np.exp(-logits[:, 0]))
    assert found == pytest.approx(-np.log([chances[0], 1 - chances[1], 1 - chances[2]]).mean())


def test_without_any_column_of_both_classes_the_means_are_undefined():
    found = multilabel_report([[0.1, 2.0], [0.3, 1.0]], [[1, -1], [1, -1]])
    assert str(found.metrics()["auroc_mean"]) == "undefined (no column has both classes)"
    assert str(found.columns[1].estimates["accuracy"].metric()) == "undefined (no truth is known)"
    assert found.columns[0].estimates["accuracy"].value == 1.0


def test_positions_are_evaluated_together_and_resampled_by_sequence():
    random = np.random.default_rng(6)
    lengths = random.integers(0, 30, 40)
    truths = random.integers(-1, 3, lengths.sum())  # -1: not known
    logits = random.normal(size=(len(truths), 3)) + np.eye(4)[truths][:, :3]
    found = position_report(logits, truths, lengths)
    known = truths >= 0
    predicted, right = logits.argmax(1)[known], truths[known]
    assert close(found.estimates["accuracy"].value, (predicted == right).mean())
    assert close(found.estimates["mcc"].value, covariance_form(predicted, right, 3))
    for c in range(3):
        assert close(found.classes[c]["recall"].value, (predicted[right == c] == c).mean())
        assert close(found.classes[c]["f1"].value, f1_of(predicted, right, c))
    alone = values(classification_report(logits[known], right).estimates)
    ranked = {"auroc", "average_precision_macro"}  # positions are not ranked
    assert alone.keys() - found.estimates.keys() == ranked
    for name, one in found.estimates.items():
        assert one.value == pytest.approx(alone[name], rel=1e-12)
    drawn = np.random.default_rng(0).integers(0, 40, 40)
    starts = np.cumsum(lengths) - lengths
    chosen = np.concatenate([np.arange(starts[i], starts[i] + lengths[i]) for i in drawn])
    same = position_report(logits[chosen], truths[chosen], lengths[drawn]).estimates["f1_macro"]
    assert close(found.estimates["f1_macro"].samples[0], same.value)


def test_positions_that_go_together_widen_the_interval():
    """Each sequence wholly right or wholly wrong: the interval is that of 50 sequences."""
    right = np.random.default_rng(1).random(50) < 0.7
    truths = np.ones(5000, dtype=int)
    scores = np.repeat(np.stack([~right, right], axis=1).astype(float), 100, axis=0)
    together = position_report(scores, truths, np.full(50, 100)).metrics()["accuracy"]
    apart = position_report(scores, truths, np.ones(5000)).metrics()["accuracy"]
    assert together.high - together.low == pytest.approx(10 * (apart.high - apart.low), rel=0.2)


def test_nothing_known_at_any_position_is_undefined():
    found = position_report(np.zeros((3, 2)), [-1, -1, -100], [3])
    assert {str(one) for one in found.metrics().values()} == {"undefined (no truth is known)"}


def test_the_same_data_give_the_same_interval_and_differ_by_nothing():
    probabilities, truths = problem(100, 3, 7)
    one, two = (
        classification_report(probabilities, truths, probabilities=True).estimates for _ in range(2)
    )
    for name in one:
        assert len(one[name].samples) == RESAMPLES
        assert one[name].metric() == two[name].metric()
        gap = one[name].minus(two[name])
        assert (gap.value, gap.low, gap.high) == (0.0, 0.0, 0.0)


def test_a_better_model_is_found_in_pairs():
    """Noise that both share makes the intervals wide, but not that of the difference."""
    random = np.random.default_rng(3)
    truths = random.integers(0, 2, 300)
    shared = 2.0 * truths - 1 + random.normal(0, 1.5, 300)
    good = np.stack([np.zeros(300), shared], axis=1)
    bad = np.stack([np.zeros(300), shared + random.normal(0, 0.8, 300)], axis=1)
    ours, theirs = (
        classification_report(good, truths).estimates,
        classification_report(bad, truths).estimates,
    )
    gap, alone = ours["auroc"].minus(theirs["auroc"]), ours["auroc"].metric()
    assert 0 < gap.low < gap.value < gap.high
    assert gap.high - gap.low < 0.8 * (alone.high - alone.low)
    assert ours["auroc"].verdict(theirs["auroc"]) == "better"
    assert ours["log_loss"].verdict(theirs["log_loss"]) == "better"  # where less is better
    assert theirs["log_loss"].verdict(ours["log_loss"]) == "worse"


def test_other_records_are_not_compared():
    one = classification_report([[0.0, 1.0], [1.0, 0.0]], [1, 0]).estimates["accuracy"]
    two = classification_report([[0.0, 1.0], [1.0, 0.0]], [0, 1]).estimates["accuracy"]
    with pytest.raises(UserError, match="same records"):
        one.minus(two)


def test_a_difference_to_what_is_undefined_is_undefined():
    one = classification_report([[0.0, 1.0], [1.0, 0.0]], [1, 1]).estimates["auroc"]
    assert one.verdict(one) == "undefined (all truths are of one class)"


def test_the_interval_of_auroc_covers_the_truth():
    """Normal scores one apart: AUROC is Φ(1 / √2)."""
    random, truth = np.random.default_rng(12), 0.5 * (1 + math.erf(0.5))
    covered = 0
    for _ in range(40):
        truths = np.arange(100) % 2
        scores = random.normal(size=100) + truths
        samples = np.concatenate(
            [Ranking(scores, truths == 1)(w)[:, 0] for w in draw_weights(100)][1:]
        )
        low, high = np.quantile(samples, [0.025, 0.975])
        covered += low <= truth <= high
    assert 34 <= covered <= 40


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=2, max_size=25),
    st.sampled_from(["mcc", "f1", "accuracy"]),
)
def test_no_other_threshold_is_better(records, by):
    scores = np.array([s / 10 for s, _ in records])
    truths = np.array([int(p) for _, p in records])
    if len(set(truths.tolist())) == 1:
        with pytest.raises(ValueError, match="both classes"):
            best_threshold(scores, truths, by)
        return

    def quality(threshold):
        said = (scores >= threshold).astype(int)
        if by == "f1":
            return f1_of(said, truths, 1)
        if by == "accuracy":
            return (said == truths).mean()
        return covariance_form(said, truths, 2) if len(set(said.tolist())) == 2 else 0.0

    best = max(quality(t) for t in np.append(scores, 2.0))
    assert quality(best_threshold(scores, truths, by)) == pytest.approx(best)


def test_a_threshold_decides_and_calibration_does_not_see_it():
    probabilities, truths = problem(200, 2, 11)
    at = best_threshold(probabilities[:, 1], truths, "f1")
    found = classification_report(probabilities, truths, probabilities=True, threshold=at)
    plain = classification_report(probabilities, truths, probabilities=True)
    assert close(found.estimates["f1"].value, f1_of(probabilities[:, 1] >= at, truths, 1))
    assert found.estimates["f1"].value >= plain.estimates["f1"].value
    for name in ("ece", "log_loss", "auroc"):
        assert found.estimates[name].value == plain.estimates[name].value
    column = multilabel_report(
        probabilities[:, 1:], truths[:, None], probabilities=True, thresholds=[at]
    )
    assert column.means["f1_mean"].value == found.estimates["f1"].value


def test_folds_are_pooled_or_listed():
    folds = [problem(60, 3, seed) for seed in range(4)]
    one = pool_folds(classification_report, folds, probabilities=True).estimates["accuracy"]
    each = [classification_report(*fold, probabilities=True).estimates for fold in folds]
    assert close(one.value, np.mean([fold["accuracy"].value for fold in each]))
    found = metrics_by_fold(each)["mcc"]
    assert [metric.value for metric in found.metrics] == [fold["mcc"].value for fold in each]
    assert close(found.mean, np.mean([fold["mcc"].value for fold in each]))
    assert close(found.sd, np.std([fold["mcc"].value for fold in each], ddof=1))
    assert found.to_json()["folds"][0]["low"] == each[0]["mcc"].metric().low


def test_a_fold_that_defines_nothing_is_left_out_of_the_mean():
    folds = [
        classification_report([[0.0, 1.0], [1.0, 0.0]], truths).estimates
        for truths in ([1, 0], [1, 1])
    ]
    found = metrics_by_fold(folds)["auroc"]
    assert found.mean == 1.0 and math.isnan(found.sd)
    assert found.to_json()["sd"] is None
    assert found.to_json()["folds"][1]["value"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classification_report([[0.1, 0.2]], [2]), "from 0 to 1, got 2"),
        (lambda: classification_report([[0.1, 0.2]], [0.5]), "whole numbers"),
        (lambda: classification_report([[0.1, 0.2]], [0, 1]), r"got \(1, 2\) and \(2,\)"),
        (lambda: classification_report([[0.1, 0.2]], [0], probabilities=True), "sum to 1"),
        (lambda: classification_report([[0.1, math.nan]], [0]), "NaN"),
        (lambda: classification_report(np.zeros((0, 2)), []), "no records"),
        (
            lambda: classification_report(np.zeros((2, 3)), [0, 1], threshold=0.4),
            "two classes, got 3",
        ),
        (lambda: multilabel_report([[0.1, 0.2]], [[0, 1, 0]]), "one shape"),
        (lambda: multilabel_report([[0.1]], [[0]], thresholds=[0.1, 0.2]), "got 2"),
        (lambda: position_report(np.zeros((4, 2)), [0, 1, 0, 1], [3]), "sum to the 4 positions"),
        (lambda: best_threshold([0.1, 0.2], [0, 1], by="recall"), "unknown by='recall'"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
