"""The table's ranks and verdicts, on costs made up so that the right answer is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from regard.evaluate.comparison import Comparison, Row, mean, ranked, verdict
from regard.evaluate.report import Measured


def measured(per_symbol, *, noise=0.02, seed=0, impossible=0):
    """400 records of 8 symbols whose costs scatter around the given one."""
    random = np.random.default_rng(seed)
    symbols = np.full(400, 8.0)
    nats = symbols * (per_symbol + noise * random.standard_normal(400))
    return Measured(nats, symbols, symbols, symbols, impossible, 0, 400)


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
