"""Ranks and verdicts of the table, on made-up losses of which the correct result is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.data.targets import Targets
from regard.evaluation import METRICS, register_metric
from regard.evaluation.bootstrap import RESAMPLES, mean_over_seeds
from regard.evaluation.comparison import Comparison, Row, rank_rows, write_verdict
from regard.evaluation.language_modeling import TokenLosses
from regard.evaluation.predictions import Predictions
from regard.evaluation.translation import score_translations


def token_losses(per_symbol, *, noise=0.02, seed=0, impossible=0):
    """400 records of 8 symbols whose losses scatter around the given one."""
    random = np.random.default_rng(seed)
    symbols = np.full(400, 8.0)
    nats = symbols * (per_symbol + noise * random.standard_normal(400))
    return TokenLosses(nats, symbols, symbols, symbols, impossible, 0, 400)


def row(model, per_symbol, *, seconds=60.0, parameters=100_000, **options):
    losses = token_losses(per_symbol, seed=len(model), **options)
    value = losses.per_symbol.value
    return Row(model, parameters, seconds, 1e4, 1 << 28, losses, (value,), (Path(model),))


def verdict_on(*rows, curves=None):
    return write_verdict(rank_rows(rows), curves)


def test_attention_wins_where_it_is_significantly_better():
    words = verdict_on(row("transformer", 1.9), row("lstm", 2.0), row("bigram", 2.4, seconds=1))
    assert words.startswith("Use transformer:") and "the best of 3" in words
    assert "lstm, the next, is worse by 0.14" in words and "does not pay" not in words


def test_the_better_estimate_is_recommended_and_the_cheapest_that_is_as_good_is_named():
    rows = row("transformer", 1.98, noise=0.4), row("gru", 2.001, noise=0.4, seconds=19)
    words = verdict_on(*rows, row("unigram", 2.8, seconds=1))
    assert words.startswith("Use transformer:") and "gru cannot be told apart from it" in words
    assert "is the cheapest of them: it takes 19.0 s instead of 60.0 s" in words


def test_the_verdict_can_go_against_the_transformer():
    words = verdict_on(row("transformer", 2.2), row("kneser-ney", 2.0, seconds=2), row("lstm", 2.3))
    assert words.startswith("Use kneser-ney:")
    assert "The transformer is worse by 0.2" in words and "s of training" in words


def test_a_cheap_row_that_loses_little_is_named():
    words = verdict_on(row("transformer", 2.0, seconds=600), row("map", 2.05, seconds=2))
    assert "map is 2.5% worse and trains 300 times faster." in words


@pytest.mark.parametrize(("gain", "words"), [(0.1, "would help"), (0.001, "would hardly help")])
def test_the_curve_says_whether_more_data_would_help(gain, words):
    curve = {"transformer": [(1000, 2.0 + 2 * gain), (2000, 2.0 + gain), (4000, 2.0)]}
    assert words in verdict_on(row("transformer", 2.0), row("lstm", 2.5), curves=curve)


def test_an_infinite_loss_is_last_and_never_recommended():
    rows = rank_rows([row("bigram", 1.0, impossible=3), row("unigram", 2.8)])
    assert [r.model for r in rows] == ["unigram", "bigram"]
    assert (
        rows[1].rank == 2
        and "bigram gives 3 held-out symbols probability 0, so its loss is infinite"
        in write_verdict(rows)
    )
    assert "none can be recommended" in verdict_on(row("bigram", 1.0, impossible=1))


def test_a_rank_counts_the_rows_that_are_significantly_better():
    rows = rank_rows([row("a", 2.0), row("bb", 2.1), row("ccc", 2.1005), row("dddd", 2.3)])
    assert [r.rank for r in rows] == [1, 2, 2, 4]


def test_documents_hold_no_infinity():
    rows = rank_rows([row("bigram", 1.0, impossible=3), row("unigram", 2.8)])
    table = Comparison("test", 3200, 400, rows, write_verdict(rows))
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert document["rows"][1]["metrics"]["nats_per_symbol"]["infinite"] is True
    assert {"model", "metrics", "rank", "parameters", "train_seconds"} <= set(document["rows"][0])
    assert "| 1. | unigram |" in table.to_markdown()


@pytest.mark.parametrize("values", [(math.inf, math.inf), (math.inf, 2.0), (math.nan, 2.0)])
def test_seeds_of_an_infinite_loss_have_no_deviation_and_the_table_shows_infinity(values):
    """statistics.stdev of infinities is an AttributeError: the table was lost after training."""
    infinite = replace(row("bigram", 1.0, impossible=3), values=values)
    finite = replace(row("unigram", 2.8), values=(2.75, 2.85))
    rows = rank_rows([infinite, finite])
    table = Comparison("test", 3200, 400, rows, write_verdict(rows))
    assert infinite.spread is None and finite.spread == pytest.approx(0.1 / math.sqrt(2))
    assert table.to_json()["rows"][1]["sd_over_seeds"] is None
    unigram, bigram = (line[2] for line in table.table()[1])
    assert "±" in unigram and bigram.startswith("infinite")


def test_an_infinite_loss_of_a_fraction_of_the_data_has_no_number_in_the_document():
    """`compare --scaling` with a bigram ended in a traceback when it wrote compare.json."""
    rows = rank_rows([row("bigram", 2.0)])
    curves = {"bigram": [(1000, math.inf), (2000, 2.0)]}
    table = Comparison("test", 3200, 400, rows, "", curves)
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    values = [point["bits_per_symbol"] for point in document["scaling"]["bigram"]]
    assert values == [None, 2.0]


REFERENCES = [f"the {a} cat sees a {b} dog in {a} {b}" for a in "abcdefgh" for b in "ijklmnop"]


def scored(share, seed=0):
    """BLEU of translations of which a share is correct and the rest has only its first words."""
    correct = np.random.default_rng(seed).random(len(REFERENCES)) < share
    pairs = zip(REFERENCES, correct, strict=True)
    return score_translations(
        [text if ok else f"{text[:13]} horse ran" for text, ok in pairs], REFERENCES
    )


def translator(model, share, per_symbol, *, seed=0, epochs=2.0, seconds=60.0):
    losses, quality = token_losses(per_symbol, seed=len(model)), scored(share, seed)
    values, runs = (quality["bleu"].value,), (Path(model),)
    rest = {"quality": quality, "tokens_per_second": 2e3, "epochs": epochs, "ranked_by": "bleu"}
    return Row(model, 1000, seconds, 1e4, 1 << 28, losses, values, runs, **rest)


def test_translators_are_ranked_by_bleu_and_not_by_bits():
    rows = [
        translator("ibm1", 0.1, 1.0, seconds=1),
        translator("rnn", 0.3, 3.0),
        translator("rnn-attention", 0.6, 2.0),
        translator("transformer", 0.95, 1.5),
    ]
    table = rank_rows(rows)
    assert [row.model for row in table] == ["transformer", "rnn-attention", "rnn", "ibm1"]
    assert [row.rank for row in table] == [1, 2, 3, 4]
    words = write_verdict(table)
    best = rows[3].quality["bleu"].value
    assert words.startswith(f"Use transformer: BLEU {best:.2f} [") and "the best of 4" in words
    gap = best - rows[2].quality["bleu"].value
    assert f"rnn-attention, the next, is worse by {gap:.2f} [" in words
    gain = rows[2].quality["bleu"].value - rows[1].quality["bleu"].value
    assert f"Attention gives the recurrence {gain:.2f} [" in words
    assert "By the loss of the references ibm1 is better, -0.7" in words
    assert (
        "not significantly better than word for word" not in words and "does not pay" not in words
    )


def test_equal_translators_are_a_tie_and_those_no_better_than_the_baseline_are_named():
    rows = translator("ibm1", 0.5, 1.0, seconds=1), translator("rnn", 0.5, 2.0)
    table = rank_rows(
        [*rows, translator("rnn-attention", 0.5, 2.0), translator("transformer", 0, 3)]
    )
    assert [row.rank for row in table] == [1, 1, 1, 4]
    words = write_verdict(table)
    assert words.startswith("Use ibm1: BLEU 57.90")
    assert "rnn and rnn-attention cannot be told apart from it (95%)" in words
    assert "recurrence 0.00 [0.00, 0.00] over a bottleneck, no difference that 95% sup" in words
    assert "The transformer is worse by" in words and "s of training" in words
    assert (
        "rnn, rnn-attention and transformer are not significantly better than word for word."
        in words
    )


def test_nothing_is_concluded_of_rows_that_had_no_time():
    words = verdict_on(translator("ibm1", 0.5, 1.0), translator("transformer", 0, 3.0, epochs=0.04))
    assert "transformer had too little time to see all of the data once (the least: 4.0%)" in words
    assert "more --minutes" in words and "does not pay" not in words


def test_the_table_of_translators_has_metrics_with_intervals():
    rows = rank_rows([translator("transformer", 0.9, 1.5), translator("ibm1", 0.2, 2.5)])
    table = Comparison("test", 3200, 400, rows, write_verdict(rows), sentences=len(REFERENCES))
    columns, lines = table.table()
    assert columns[2:7] == [
        *("BLEU [95%]", "chrF [95%]", "exact % [95%]", "bits/symbol [95%]", "bits/token")
    ]
    assert columns[7:] == ["parameters", "tokens/s", "sentences/s", "trained", "memory"]
    exact = rows[0].metrics()["exact"]
    assert lines[0][4] == f"{exact.value:.1f} [{exact.low:.1f}, {exact.high:.1f}]"
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert document["ranked_by"] == "bleu" and document["sentences"] == len(REFERENCES)
    assert {"bleu", "chrf", "exact", "bits_per_symbol"} <= document["rows"][0]["metrics"].keys()
    assert "tok:13a" in document["signatures"]["bleu"]
    text = table.to_markdown()
    assert "the first 64 translated" in text and document["signatures"]["chrf"] in text


def test_metrics_of_seeds_are_averaged_resample_by_resample():
    one, two = scored(0.3, seed=1), scored(0.7, seed=2)
    both = mean_over_seeds([one, two])
    for name in ("bleu", "chrf", "exact"):
        assert both[name].value == pytest.approx((one[name].value + two[name].value) / 2)
        assert np.allclose(both[name].samples, (one[name].samples + two[name].samples) / 2)
    low, high = both["exact"].metric().low, both["exact"].metric().high
    assert low < both["exact"].value < high


TRUTHS = np.random.default_rng(7).integers(0, 2, 150)


def classes(task, scores, truths, classes, name="kind"):
    scores = np.asarray(scores, np.float64)
    targets = Targets(task, (name,), (classes,))
    return Predictions(task, scores, truths, np.ones(len(scores), np.int64), targets)


def classifier(model, share, seed, *, seconds=10.0):
    """A row that predicts this share of the records correctly, and which ones."""
    truths = TRUTHS
    right = np.random.default_rng(seed).random(len(truths)) < share
    scores = np.eye(2)[np.where(right, truths, 1 - truths)]
    predictions = classes("label", scores, truths, ("no", "yes"))
    quality = predictions.estimates
    values, runs = (quality["accuracy"].value,), (Path(model),)
    rest = {"quality": quality, "ranked_by": "accuracy", "predictions": predictions}
    return Row(model, 1000, seconds, 0.0, 1, None, values, runs, **rest), right


def test_ranks_are_those_of_a_paired_bootstrap_done_plainly():
    made = [
        classifier("transformer", 0.7, 1),
        classifier("logistic", 0.92, 2),
        classifier("svm", 0.9, 3),
    ]
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
        assert next(r.rank for r in rank_rows(rows) if r.model == ours.model) == 1 + better
    words = write_verdict(rank_rows(rows))
    assert words.startswith("Use svm") and "logistic cannot be told apart from it" in words
    assert "The transformer is worse by" in words and "s of training" in words


def test_models_no_better_than_the_commonest_class_are_named():
    rows = [classifier("majority", 0.6, 1, seconds=0.1)[0], classifier("transformer", 0.62, 2)[0]]
    words = write_verdict(rank_rows([*rows, classifier("logistic", 0.97, 3)[0]]))
    assert words.startswith("Use logistic: accuracy 0.9")
    assert "transformer is not significantly better than predicting the most common class." in words


def test_rows_without_a_defined_metric_are_not_ranked():
    predictions = classes("labels", np.ones((6, 1)), np.zeros((6, 1), np.int64), ("0", "1"), "x")
    rest = {"quality": predictions.estimates, "predictions": predictions, "ranked_by": "auroc"}
    names = ("cnn", "svm")
    rows = rank_rows([Row(n, 1, 1.0, 0.0, 1, None, (math.nan,), (Path(n),), **rest) for n in names])
    words = write_verdict(rows)
    assert words == "The models cannot be ranked: AUROC undefined (all truths are of one class)."
    table = Comparison("test", 60, 6, rows, words, task="labels")
    assert json.loads(json.dumps(table.to_json(), allow_nan=False))["ranked_by"] == "auroc"
    assert "6 test records" in table.to_markdown()


def test_columns_are_the_metrics_of_the_report_and_the_one_that_ranks_is_first():
    table = Comparison("test", 60, 150, (classifier("svm", 0.9, 1)[0],), "", task="label")
    columns, ((*_, memory),) = table.table()
    assert columns[2] == "accuracy [95%]" and memory == "0 MB"
    assert {"F1 (yes)", "MCC", "AUROC", "ECE", "macro F1"} <= set(columns)
    assert "records/s" in columns and "log loss" not in columns
    assert table.target_table() == ([], [])


def test_several_targets_have_a_table_of_their_own():
    random = np.random.default_rng(1)
    truths = random.integers(0, 2, (40, 2))
    targets = Targets("labels", ("a", "b"), (("0", "1"), ("0", "1")))
    lengths = np.ones(40, np.int64)
    predictions = Predictions(
        "labels", truths + random.normal(size=(40, 2)), truths, lengths, targets
    )
    quality, ranked_by = predictions.estimates, predictions.report.ranked_by
    rest = {"quality": quality, "ranked_by": ranked_by, "predictions": predictions}
    row = Row("cnn", 1, 1.0, 0.0, 1, None, (quality[ranked_by].value,), (Path("cnn"),), **rest)
    table = Comparison("test", 60, 40, (row,), "", task="labels")
    columns, lines = table.target_table()
    assert columns == ["model", "AUROC (a)", "AUROC (b)"]
    assert lines == [["cnn", *(str(quality[f"auroc ({name})"].metric()) for name in "ab")]]
    assert "mean AUROC [95%]" in table.table()[0] and "mean F1 (1)" in table.table()[0]


def test_a_registered_metric_is_a_column_of_the_table(monkeypatch):
    monkeypatch.setitem(METRICS, "label", dict(METRICS["label"]))
    register_metric("label", "half", title="one half")(
        lambda classes: classes.estimate(np.full(1 + RESAMPLES, 0.5))
    )
    row = classifier("svm", 0.9, 1)[0]
    assert row.cells()["one half"] == "0.500"
    assert row.to_json()["metrics"]["half"] == {"value": 0.5, "low": 0.5, "high": 0.5}


def test_a_tied_row_with_much_better_probabilities_is_named():
    def calibrated(model, ece):
        one = row(model, 2.0)
        estimate = replace(one.losses.per_symbol, value=ece, samples=np.full(RESAMPLES, ece))
        return replace(one, quality={"ece": estimate})

    words = verdict_on(calibrated("nb-svm", 0.6), calibrated("logit", 0.04))
    best, other = ("nb-svm", "logit") if words.startswith("Use nb-svm") else ("logit", "nb-svm")
    said = (
        "The probabilities of nb-svm are badly calibrated (ECE 0.60); use logit where they matter"
    )
    assert (said in words) == (best == "nb-svm") and other in words
    close = verdict_on(calibrated("nb-svm", 0.06), calibrated("logit", 0.04))
    assert "calibrated" not in close
