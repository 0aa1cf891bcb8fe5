"""The table's ranks and verdicts, on costs made up so that the right answer is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.evaluation.comparison import Comparison, Row, mean, ranked, verdict
from regard.evaluation.estimates import mean_over_seeds
from regard.evaluation.language_modeling import TokenLosses
from regard.evaluation.translation import corpus_metrics


def measured(per_symbol, *, noise=0.02, seed=0, impossible=0):
    """400 records of 8 symbols whose costs scatter around the given one."""
    random = np.random.default_rng(seed)
    symbols = np.full(400, 8.0)
    nats = symbols * (per_symbol + noise * random.standard_normal(400))
    return TokenLosses(nats, symbols, symbols, symbols, impossible, 0, 400)


def row(model, per_symbol, *, seconds=60.0, parameters=100_000, **options):
    cost = measured(per_symbol, seed=len(model), **options)
    value = math.inf if cost.impossible else float(cost.nats.sum() / cost.symbols.sum())
    return Row(model, parameters, seconds, 1e4, 1 << 28, cost, (value,), (Path(model),))


def told(*rows, curves=None):
    return verdict(ranked(rows), curves)


def test_attention_wins_where_it_is_surely_better():
    words = told(row("transformer", 1.9), row("lstm", 2.0), row("bigram", 2.4, seconds=1))
    assert words.startswith("Use transformer:") and "the best of 3" in words
    assert "lstm, the next, is worse by 0.09" in words and "does not pay" not in words


def test_of_those_that_cannot_be_told_apart_the_cheapest_is_recommended():
    rows = row("transformer", 2.0, noise=0.4), row("gru", 2.001, noise=0.4, seconds=20)
    words = told(*rows, row("unigram", 2.8, seconds=1))
    assert "transformer and gru cannot be told apart" in words or "gru and transformer" in words
    assert "use gru, the cheapest of them (20 s" in words


def test_the_verdict_can_go_against_the_transformer():
    words = told(row("transformer", 2.2), row("kneser-ney", 2.0, seconds=2), row("lstm", 2.3))
    assert words.startswith("Use kneser-ney:")
    assert "The transformer is worse by 0.2" in words and "attention does not pay" in words


def test_a_cheap_row_that_loses_little_is_named():
    words = told(row("transformer", 2.0, seconds=600), row("map", 2.05, seconds=2))
    assert "map is 2.5% worse and trains 300 times faster." in words


@pytest.mark.parametrize(("gain", "words"), [(0.1, "would help"), (0.001, "would hardly help")])
def test_the_curve_says_whether_more_data_would_help(gain, words):
    curve = {"transformer": [(1000, 2.0 + 2 * gain), (2000, 2.0 + gain), (4000, 2.0)]}
    assert words in told(row("transformer", 2.0), row("lstm", 2.5), curves=curve)


def test_what_is_impossible_is_last_and_never_recommended():
    rows = ranked([row("bigram", 1.0, impossible=3), row("unigram", 2.8)])
    assert [r.model for r in rows] == ["unigram", "bigram"]
    assert rows[1].rank == 2 and "bigram holds some of it impossible" in verdict(rows)
    assert "none can be recommended" in told(row("bigram", 1.0, impossible=1))


def test_a_rank_counts_the_rows_that_are_surely_better():
    rows = ranked([row("a", 2.0), row("bb", 2.1), row("ccc", 2.1005), row("dddd", 2.3)])
    assert [r.rank for r in rows] == [1, 2, 2, 4]


def test_seeds_are_averaged_unit_by_unit_and_documents_hold_no_infinity():
    several = [measured(2.0, seed=1), measured(2.2, seed=2)]
    assert np.allclose(mean(several).nats, (several[0].nats + several[1].nats) / 2)
    rows = ranked([row("bigram", 1.0, impossible=3), row("unigram", 2.8)])
    table = Comparison("test", 3200, 400, rows, verdict(rows))
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert document["rows"][1]["metrics"]["nats_per_symbol"]["infinite"] is True
    assert {"model", "metrics", "rank", "parameters", "train_seconds"} <= set(document["rows"][0])
    assert "| 1. | unigram |" in table.to_markdown()


@pytest.mark.parametrize("values", [(math.inf, math.inf), (math.inf, 2.0), (math.nan, 2.0)])
def test_seeds_of_an_infinite_figure_have_no_deviation_and_the_table_shows_infinity(values):
    """statistics.stdev of infinities is an AttributeError: the table was lost after training."""
    endless = replace(row("bigram", 1.0, impossible=3), values=values)
    finite = replace(row("unigram", 2.8), values=(2.75, 2.85))
    rows = ranked([endless, finite])
    table = Comparison("test", 3200, 400, rows, verdict(rows))
    assert endless.spread is None and finite.spread == pytest.approx(0.1 / math.sqrt(2))
    assert table.to_json()["rows"][1]["sd_over_seeds"] is None
    unigram, bigram = (line[2] for line in table.cells()[1])
    assert "±" in unigram and bigram.startswith("infinite")


REFERENCES = [f"the {a} cat sees a {b} dog in {a} {b}" for a in "abcdefgh" for b in "ijklmnop"]


def judged(share, seed=0):
    """BLEU of translations of which a share is right and the rest has only its first words."""
    right = np.random.default_rng(seed).random(len(REFERENCES)) < share
    pairs = zip(REFERENCES, right, strict=True)
    return corpus_metrics(
        [text if ok else f"{text[:13]} horse ran" for text, ok in pairs], REFERENCES
    )


def translator(model, share, per_symbol, *, seed=0, epochs=2.0, seconds=60.0):
    cost, found = measured(per_symbol, seed=len(model)), judged(share, seed)
    values, runs = (found["bleu"].value,), (Path(model),)
    rest = {"judged": found, "tokens_per_second": 2e3, "epochs": epochs, "ranked_by": "bleu"}
    return Row(model, 1000, seconds, 1e4, 1 << 28, cost, values, runs, **rest)


def test_translators_are_ranked_by_bleu_and_not_by_bits():
    rows = [
        translator("ibm1", 0.1, 1.0, seconds=1),
        translator("rnn", 0.3, 3.0),
        translator("rnn-attention", 0.6, 2.0),
        translator("transformer", 0.95, 1.5),
    ]
    table = ranked(rows)
    assert [row.model for row in table] == ["transformer", "rnn-attention", "rnn", "ibm1"]
    assert [row.rank for row in table] == [1, 2, 3, 4]
    words = verdict(table)
    best = rows[3].judged["bleu"].value
    assert words.startswith(f"Use transformer: BLEU {best:.2f} [") and "the best of 4" in words
    gap = best - rows[2].judged["bleu"].value
    assert f"rnn-attention, the next, is worse by {gap:.2f} [" in words
    gain = rows[2].judged["bleu"].value - rows[1].judged["bleu"].value
    assert f"Attention gives the recurrence {gain:.2f} [" in words
    assert "By what the references cost, ibm1 is better, -0.5" in words
    assert "not surely better than word for word" not in words and "does not pay" not in words


def test_what_the_numbers_do_not_say_is_not_said_of_translators():
    """Equal ones are a tie, and who is no better than a table of words is named."""
    rows = translator("ibm1", 0.5, 1.0, seconds=1), translator("rnn", 0.5, 2.0)
    table = ranked([*rows, translator("rnn-attention", 0.5, 2.0), translator("transformer", 0, 3)])
    assert [row.rank for row in table] == [1, 1, 1, 4]
    words = verdict(table)
    assert "cannot be told apart here (95%): use ibm1, the cheapest of them (1 s" in words
    assert "recurrence 0.00 [0.00, 0.00] over a bottleneck, no difference that 95% sup" in words
    assert "The transformer is worse by" in words and "attention does not pay" in words
    assert "rnn, rnn-attention and transformer are not surely better than word for word." in words


def test_nothing_is_concluded_of_rows_that_had_no_time():
    words = told(translator("ibm1", 0.5, 1.0), translator("transformer", 0, 3.0, epochs=0.04))
    assert "transformer had too little time to see all of the data once (the least: 4.0%)" in words
    assert "more --minutes" in words and "does not pay" not in words


def test_the_table_of_translators_has_their_figures_with_intervals():
    rows = ranked([translator("transformer", 0.9, 1.5), translator("ibm1", 0.2, 2.5)])
    table = Comparison("test", 3200, 400, rows, verdict(rows), sentences=len(REFERENCES))
    columns, lines = table.cells()
    assert columns[2:7] == [
        *("BLEU [95%]", "chrF [95%]", "exact % [95%]", "bits/symbol [95%]", "bits/token")
    ]
    assert columns[7:] == ["parameters", "tokens/s", "sentences/s", "trained", "memory"]
    exact = rows[0].figures["exact"]
    assert lines[0][4] == f"{exact.value:.1f} [{exact.low:.1f}, {exact.high:.1f}]"
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert document["ranked_by"] == "bleu" and document["sentences"] == len(REFERENCES)
    assert {"bleu", "chrf", "exact", "bits_per_symbol"} <= document["rows"][0]["metrics"].keys()
    assert "tok:13a" in document["signatures"]["bleu"]
    text = table.to_markdown()
    assert "the first 64 translated" in text and document["signatures"]["chrf"] in text


def test_judgements_of_seeds_are_averaged_resample_by_resample():
    one, two = judged(0.3, seed=1), judged(0.7, seed=2)
    both = mean_over_seeds([one, two])
    for name in ("bleu", "chrf", "exact"):
        assert both[name].value == pytest.approx((one[name].value + two[name].value) / 2)
        assert np.allclose(both[name].samples, (one[name].samples + two[name].samples) / 2)
    low, high = both["exact"].figure().low, both["exact"].figure().high
    assert low < both["exact"].value < high
