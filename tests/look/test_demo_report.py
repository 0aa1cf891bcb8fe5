"""Sections of the demonstration's report, against counting by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from regard.data.batching import Order
from regard.evaluation.eval_data import shard_of
from regard.look.demo_report import (
    SEED,
    add_counts,
    add_lengths,
    add_posterior,
    count_arriving,
    count_transitions,
)
from regard.look.page import Heatmap, Lines, Page
from regard.tokenizers import Characters

RECORDS = ["anna", "ben", "bea", "nan", "abe", "ann", "ebba", "bab"] * 5
TOKENIZER = Characters.train(RECORDS)
SHARD = shard_of(RECORDS, TOKENIZER)


def test_transitions_are_counted_within_records_only():
    counts = count_transitions(SHARD, TOKENIZER.vocab_size)
    slow = np.zeros_like(counts)
    for i in range(SHARD.records):
        for a, b in itertools.pairwise(SHARD.record(i)):
            slow[a, b] += 1
    assert (counts == slow).all()


def test_the_posterior_is_that_of_a_flat_prior_and_the_records_so_far():
    page = Page("x")
    add_posterior(page, SHARD, TOKENIZER)
    chart = page.components[0]
    assert isinstance(chart, Lines)
    (name, records_seen, means), (low, high) = chart.series[0], next(iter(chart.bands.values()))
    tokenizer, shard = TOKENIZER, SHARD
    names = [tokenizer.text(i) for i in range(tokenizer.vocab_size)]
    after, before = (names.index(part) for part in name[2:-1].split(" | "))
    order = Order(shard.records, SEED)(np.arange(shard.records))
    assert records_seen[-1] == shard.records
    for records, mean in zip(records_seen, means, strict=True):
        pairs = [p for i in order[: int(records)] for p in itertools.pairwise(shard.record(i))]
        n, total = pairs.count((before, after)), sum(a == before for a, _ in pairs)
        assert mean == pytest.approx((1 + n) / (tokenizer.vocab_size - 1 + total))
    assert all(a <= m <= b for a, m, b in zip(low, means, high, strict=True))


def test_records_do_not_arrive_as_a_sorted_file_has_them():
    """The first tenth of a sorted list is all of one letter, and says nothing of the others."""
    records = ["ab"] * 500 + ["ba"] * 500
    tokenizer = Characters.train(records)
    shard = shard_of(records, tokenizer)
    a, b = tokenizer.encode("ab").tolist()
    hits, all_ = count_arriving(shard, tokenizer.start, a)
    assert (all_ == np.arange(1, 1001)).all()
    assert hits[-1] == 500 and 30 < hits[99] < 70
    ended, out = count_arriving(shard, b, tokenizer.end)
    assert (ended == hits).all() and (out == all_).all()  # b ends what a begins


def test_lengths_beyond_those_held_out_are_counted_and_not_drawn():
    page = Page("x")
    add_lengths(page, [2, 3, 3, 4], {"babbling": [3, 50, 50, 2]})
    chart, table = page.components
    assert [list(ys) for _, _, ys in chart.series] == [
        [0, 0, 0.25, 0.5, 0.25],
        [0, 0, 0.25, 0.25, 0],
    ]
    assert [list(row) for row in table.rows] == [
        ["held out", 3, "2 to 3", "0.0%"],
        ["babbling", 3, "2 to 50", "50.0%"],
    ]


def test_counts_are_drawn_with_the_markers():
    page = Page("x")
    add_counts(page, SHARD, TOKENIZER)
    (heatmap,) = page.components
    assert isinstance(heatmap, Heatmap) and heatmap.rows[0] == "<S>" and "<E>" in heatmap.columns
    assert heatmap.array().sum() == sum(len(record) + 1 for record in RECORDS)
