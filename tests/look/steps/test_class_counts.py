"""Classifiers that count, against Bayes' rule written out."""

from __future__ import annotations

import numpy as np
import pytest
from step_models import STEP_MODELS, TEXT

from regard.look.steps import trace_steps


def test_the_most_frequent_class_has_one_answer():
    trace = trace_steps(STEP_MODELS["majority"]())
    shares = np.array([3, 3, 2]) / 8
    np.testing.assert_allclose(trace.find("Output › Probabilities").values, shares, atol=1e-12)
    assert len(trace.tokens) == 1
    labels = trace_steps(STEP_MODELS["majority of labels"]())
    np.testing.assert_allclose(labels.find("Probabilities").values, [0.5, 0.5])
    values = trace_steps(STEP_MODELS["mean of values"]()).find("Output › Value").values
    assert values == pytest.approx(np.mean([1, 5, 2.5, 3, 0.5, 7, 4]))


def test_a_weight_matrix_has_a_column_for_each_position():
    pipeline = STEP_MODELS["pwm"]()
    model, trace = pipeline.model, trace_steps(pipeline)
    ids = pipeline.prepared.tensors["ids"][0]
    total = model.bias.numpy() + sum(model.logs[j, ids[j + 1]].numpy() for j in range(len(TEXT)))
    np.testing.assert_allclose(trace.find("Output › Scores").values, total, atol=1e-12)
    p = np.exp(total) / np.exp(total).sum()
    np.testing.assert_allclose(trace.find("Output › Probabilities").values, p, atol=1e-9)
    assert list(trace.find("Logarithms").rows)[:2] == ["a at 1", "b at 2"]


def test_a_chain_of_every_class_follows_the_token():
    pipeline = STEP_MODELS["markov"]()
    trace = trace_steps(pipeline, position=3)  # <S> a b, then b
    ids = pipeline.prepared.tensors["ids"]
    expected = [
        chain.logits(ids)[0, 2].log_softmax(-1)[ids[0, 3]] for chain in pipeline.model.chains
    ]
    found = trace.find("All tokens › This token")
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    last = trace_steps(pipeline)  # nothing follows the last token: the one before it is followed
    assert last.notes == ["Each chain is followed to token 7, “<E>”."]
    np.testing.assert_allclose(last.find("Scores").values, trace.find("Scores").values)
