"""Classifiers that count against their formulas in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from id_records import END, START, labelled, marked, shard

from regard.errors import UserError
from regard.models.class_counts import ClassMarkov, Majority, MarkovConfig, PWMClassifier, PwmConfig
from regard.models.supervised import FittedConfig
from regard.tokenizers import Characters, Words

V = 8


def ignore(line):
    assert line


def fit(model, records, targets):
    model.fit(labelled(records, targets, V), None, ignore)
    return model


def test_majority_predicts_class_frequencies():
    targets = np.array([0, 2, 2, 1, 2], np.int32)
    model = fit(Majority(V, FittedConfig(n_outputs=3)), [[3]] * 5, targets)
    p = model.predict(marked([[3], [4, 5]])).exp()
    np.testing.assert_allclose(p, [[1 / 5, 1 / 5, 3 / 5]] * 2)


def test_majority_predicts_the_mean_of_known_values():
    targets = np.array([[1, 5], [np.nan, 6], [4, 10]], np.float32)
    model = fit(Majority(V, FittedConfig(task="value", n_outputs=2)), [[3]] * 3, targets)
    np.testing.assert_allclose(model.predict(marked([[3]])), [[2.5, 7]])


def test_majority_is_not_certain_of_a_label_that_all_have():
    targets = np.array([[1, 0, 1], [1, 1, -1]], np.int8)
    model = fit(Majority(V, FittedConfig(task="labels", n_outputs=3)), [[3], [4]], targets)
    np.testing.assert_allclose(model.predict(marked([[3]])).sigmoid()[0], [2 / 2.5, 0.5, 1 / 1.5])


def test_majority_predicts_the_same_at_each_position():
    targets = np.array([-1, 0, 1, -1, -1, 1, -1], np.dtype("<i2"))
    config = FittedConfig(task="position-label", n_outputs=2)
    p = fit(Majority(V, config), [[3, 4], [5]], targets).predict(marked([[3, 4]])).exp()
    assert p.shape == (1, 4, 2)
    np.testing.assert_allclose(p[0, :, 1], [2 / 3] * 4)


def test_weight_matrices_are_their_formula():
    records, targets = [[3, 4], [3, 5], [6, 4]], np.array([0, 0, 1], np.int32)
    model = fit(PWMClassifier(V, PwmConfig(n_outputs=2, pseudocount=2.0)), records, targets)
    tokens = Counter(x for r in records for x in r)
    base = {x: (tokens[x] + 1 / V) / (6 + 1) for x in range(V)}
    for record in ([3, 4], [6, 6], [7, 5]):
        logs = []
        for members in (records[:2], records[2:]):
            p = math.log(len(members) / 3)
            for j, x in enumerate(record):
                p += math.log((sum(r[j] == x for r in members) + 2 * base[x]) / (len(members) + 2))
            logs.append(p)
        expected = torch.tensor(logs, dtype=torch.float64).log_softmax(0)
        torch.testing.assert_close(model.predict(marked([record]))[0], expected)


def test_weight_matrices_need_sequences_of_one_length():
    model, targets = PWMClassifier(V, PwmConfig(n_outputs=2)), np.array([0, 1], np.int32)
    with pytest.raises(UserError, match="all of one length: record 2 has 1 tokens, others 2"):
        fit(model, [[3, 4], [3]], targets)
    fit(model, [[3, 4], [4, 5]], targets)
    with pytest.raises(UserError, match="a sequence has 3 tokens, others 2"):
        model.predict(marked([[3, 4, 5]]))


def test_chains_are_their_formula():
    """Order 2: P(b | a) = (n(ab) + α₂ P(b)) / (n(a) + α₂), P(b) = (n(b) + α₁ / 7) / (N + α₁)."""
    records, targets = [[3, 4, 3], [4, 4], [5, 3]], np.array([0, 0, 1], np.int32)
    model = fit(ClassMarkov(V, MarkovConfig(n_outputs=2, order=2)), records, targets)
    for record in ([3, 4], [5, 5, 3], [6]):
        logs = []
        for label, members in ((0, records[:2]), (1, records[2:])):
            one, two = (float(a) for a in model.chains[label].alphas)
            texts = [[START, *r, END] for r in members]
            pairs = Counter(p for t in texts for p in pairwise(t))
            single = Counter(x for t in texts for x in t[1:])
            total = math.log(len(members) / 3)
            for a, b in pairwise([START, *record, END]):
                p = (single[b] + one / (V - 1)) / (sum(single.values()) + one)
                after = sum(n for (x, _), n in pairs.items() if x == a)
                total += math.log((pairs[a, b] + two * p) / (after + two))
            logs.append(total)
        expected = torch.tensor(logs, dtype=torch.float64).log_softmax(0)
        scores = model.predict(marked([record]))[0]
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


def corpus(train, test, vocab_size=V):
    tokenizer = Characters.train(["ab"])
    tokenizer.vocab_size = vocab_size
    return SimpleNamespace(
        train=shard(train, V), valid=None, test=shard(test, V), tokenizer=tokenizer
    )


def test_comparisons_leave_unsuitable_families_out():
    aligned, uneven = corpus([[3, 4], [5, 6]], [[3, 3]]), corpus([[3, 4], [5, 6]], [[3]])
    assert PWMClassifier.unsuitable(aligned) == ""
    assert PWMClassifier.unsuitable(uneven) == "records are of different lengths"
    assert ClassMarkov.unsuitable(aligned) == Majority.unsuitable(uneven) == ""
    assert "more than 64 tokens" in ClassMarkov.unsuitable(corpus([[3]], [[3]], vocab_size=65))


def test_texts_of_as_many_words_are_not_aligned():
    """Sentences of eight words had a matrix, and a new one of four words was an error."""
    sentences = corpus([[3, 4], [5, 6]], [[3, 3]])
    sentences.tokenizer = Words.train(["a cat sat", "the dog ran"])
    assert "words" in PWMClassifier.unsuitable(sentences)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (PwmConfig, {"pseudocount": -1.0}, "pseudocount must be finite and 0 or more"),
        (FittedConfig, {"max_len": 0}, "max_len must be at least 1"),
        (MarkovConfig, {"n_outputs": 20_000}, "n_outputs must be from 1 to 10000"),
    ],
)
def test_invalid_options_are_named(config, options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)
