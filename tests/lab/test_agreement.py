"""Agreement: the grammar, what counting models can see, and claims by their numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from regard.lab import agreement
from regard.lab.agreement import FAMILIES, ID, NGRAM, VERB_IDS, Training
from regard.lab.experiment import Accuracies, Options, Proportion


def test_sentences_agree_whatever_stands_between():
    sentences = agreement.draw(2, 200, np.random.default_rng(0))
    plural = set(agreement.NOUN_IDS[:, 1].tolist()) | set(VERB_IDS[:, 1].tolist())
    for row, number in zip(sentences.ids, sentences.numbers, strict=True):
        assert (row[2] in plural) == (row[-2] in plural) == bool(number)
        assert row[0] == ID["<S>"] and row[-1] == ID["<E>"] and len(row) == 11
    nearest = np.isin(sentences.ids[:, -3], list(plural)) == sentences.numbers
    assert 0.35 < nearest.mean() < 0.65


def test_counting_models_agree_within_their_order_and_test_sentences_are_new():
    plan = dataclasses.replace(agreement.SMALL, phrases=(0, 1, 4), sentences=500, tested=150)
    parts = agreement.make_corpus(plan, 0)
    training = Training(plan, parts, 0)
    assert training.shard.records == 1500
    model = FAMILIES[NGRAM](training)
    tests = [
        agreement.draw_unseen(plan, m, part, 0) for m, part in zip(plan.phrases, parts, strict=True)
    ]
    known = {row.tobytes() for row in parts[2].ids}
    assert not any(row.tobytes() in known for row in tests[2].ids)
    values = [agreement.measure_agreement(model, test).value for test in tests]
    assert values[0] == 1 and values[1] > 0.95 and abs(values[2] - 0.5) < 0.15


def test_agreement_quick_form(monkeypatch):
    plan = dataclasses.replace(
        agreement.SMALL, phrases=(0, 4), sentences=60, steps=1, tested=40, iterations=1
    )
    monkeypatch.setattr(agreement, "SMALL", plan)
    monkeypatch.setattr(agreement, "CNN_CONTEXT", 8)
    result = agreement.agreement(Options(quick=True))
    assert [row[0] for row in result.tables[0].rows] == list(FAMILIES) and len(result.claims) == 8


@pytest.mark.parametrize("value", [1.0, 0.5])
def test_claims_follow_the_accuracies(value):
    distances = [agreement.distance_of(m) for m in (0, 1, 2, 8)]
    rows = {name: {d: Proportion(int(400 * value), 400) for d in distances} for name in FAMILIES}
    holds = [claim.holds for claim in agreement.claims(Accuracies(rows, 0.5))]
    chance, high = value == 0.5, value == 1
    assert holds == [chance, high, chance, high, chance, high, high, high]
