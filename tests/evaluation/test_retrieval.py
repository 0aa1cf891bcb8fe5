"""Recall with ties against all orders one by one, and its bootstrap."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from regard.errors import UserError
from regard.evaluation.retrieval import (
    CUTOFFS,
    EmbeddedPairs,
    RetrievalResult,
    found_within,
    load_retrieval,
    store_retrieval,
)


def by_all_orders(scores, right, k):
    """Return the share of orders of equal scores in which a right candidate is among the first."""
    hits = total = 0
    for order in permutations(range(len(scores))):
        ranked = [scores[i] for i in order]
        if ranked == sorted(ranked, reverse=True):
            hits += any(right[i] for i in order[:k])
            total += 1
    return hits / total


@pytest.mark.parametrize("seed", range(12))
def test_recall_is_that_of_all_orders_of_equal_scores(seed, monkeypatch):
    random = np.random.default_rng(seed)
    scores, right = random.integers(0, 3, (1, 6)), random.random((1, 6)) < 0.4
    right[0, random.integers(6)] = True
    monkeypatch.setattr("regard.evaluation.retrieval.CUTOFFS", (1, 2, 4))
    recall = found_within(scores.astype(np.float32), right)[0]
    expected = [by_all_orders(scores[0].tolist(), right[0].tolist(), k) for k in (1, 2, 4)]
    np.testing.assert_allclose(recall, expected, atol=1e-12)


def test_equal_scores_have_the_recall_of_chance():
    right = np.eye(40, dtype=bool)
    recall = found_within(np.zeros((40, 40), np.float32), right)
    np.testing.assert_allclose(recall, np.tile([k / 40 for k in CUTOFFS], (40, 1)), atol=1e-12)


def test_any_text_of_a_source_is_right():
    eye = np.eye(3, dtype=np.float32)
    texts = np.stack([eye[0], eye[0] * 0.5, eye[1], eye[2]])
    pairs = np.array([[0, 0], [0, 1], [1, 2], [2, 3]])
    of_sources, of_texts = EmbeddedPairs(eye, texts, pairs, np.arange(4)).recall()
    assert of_sources.shape == (3, 3) and of_texts.shape == (4, 3)
    assert of_sources.min() == of_texts.min() == 1


def result():
    random = np.random.default_rng(1)
    owners = np.repeat(np.arange(30), 2)
    of_sources, of_texts = ((random.random((n, 3)) < 0.5) * 1.0 for n in (30, 60))
    return RetrievalResult(of_sources, of_texts, owners, np.array([0.03, 0.15, 0.3]), 1.5)


def test_metrics_are_the_means_of_their_queries_with_an_interval():
    metrics = result().metrics()
    assert metrics["text_recall_1"].value == pytest.approx(result().of_sources[:, 0].mean())
    assert metrics["source_recall_10"].value == pytest.approx(result().of_texts[:, 2].mean())
    six = [metrics[f"{what}_recall_{k}"].value for what in ("text", "source") for k in CUTOFFS]
    assert metrics["mean_recall"].value == pytest.approx(np.mean(six))
    assert metrics["mean_recall"].low < metrics["mean_recall"].value < metrics["mean_recall"].high
    assert next(iter(metrics)) == "mean_recall"  # which ranks models


def test_a_stored_result_comes_back(tmp_path):
    store_retrieval(tmp_path, result())
    loaded = load_retrieval(tmp_path)
    assert loaded.metrics() == result().metrics()
    assert (
        loaded.chance_line
        == "recall by chance: 0.0300 at 1, 0.1500 at 5, 0.3000 at 10, mean 0.1600"
    )


def test_recall_among_fewer_pairs_is_refused():
    with pytest.raises(UserError, match="different numbers of pairs"):
        result().first(3)
