"""Counting models as stages, against counts made by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from small_models import RECORDS
from step_models import STEP_MODELS, language_model

from regard.look.steps import trace_steps

DATA = ["abbacabbaba", *RECORDS]


def column(stage, token):
    return stage.values[list(stage.columns).index(token)]


def test_a_bigram_divides_counts():
    trace = trace_steps(STEP_MODELS["bigram"](), position=2)  # after "a"
    assert trace.tokens[1] == "a"
    follows = Counter(
        text[i + 1 : i + 2] or "<E>" for text in DATA for i in range(len(text)) if text[i] == "a"
    )
    counts, p = trace.find("After a › Counts"), trace.find("After a › Probabilities")
    for token in ("a", "b", "c", "<E>"):
        assert column(counts, token) == follows[token]
        assert column(p, token) == pytest.approx(follows[token] / sum(follows.values()))


def test_kneser_ney_goes_from_no_context_to_the_longest():
    trace = trace_steps(STEP_MODELS["kneser-ney"](), position=4)
    levels = list(dict.fromkeys(s.path[0] for s in trace.stages if s.shown))
    assert levels[0] == "Without context" and levels[1] == "After b"
    assert levels[-2:] == ["Output", "Sampling"]
    for level in levels[:-2]:
        p = next(s for s in trace.stages if s.path == (level,) and s.title == "Probabilities")
        assert p.values.sum() == pytest.approx(1) and p.measured
    lower = trace.find("After b › Lower order")
    assert lower.inputs[0].where == "Without context › Probabilities"
    before = Counter(
        {(text[i - 1] if i else "<S>", text[i]) for text in DATA for i in range(len(text))}
    )
    kinds = sum(1 for pair in before if pair[1] == "b")
    assert column(trace.find("Without context › Counts"), "b") == kinds  # symbols before it


def test_a_prior_adds_counts():
    trace = trace_steps(STEP_MODELS["mean"](), position=2)
    both, one = trace.find("After a › Counts and prior"), trace.find("After a › One more")
    assert column(one, "b") == 1 and column(one, "<S>") == 0
    assert column(both, "b") > column(trace.find("After a › Counts"), "b") + 1
    assert trace.find("After a › Probabilities").values.sum() == pytest.approx(1)


def test_what_never_occurs_leaves_it_to_the_shorter_context():
    pipeline = language_model(STEP_MODELS["kneser-ney"]().model, "acc")
    trace = trace_steps(pipeline)  # no record has "cc"
    unseen, shorter = trace.find("After c c › Probabilities"), trace.find("After c › Probabilities")
    assert "the shorter one decides" in unseen.formula and unseen.inputs[0] is shorter
    np.testing.assert_array_equal(unseen.values, shorter.values)


def test_the_forward_pass_of_a_hidden_markov_model():
    """Against the recursion written out."""
    pipeline = STEP_MODELS["hmm"]()
    model, trace = pipeline.model, trace_steps(pipeline)
    ids = pipeline.prepared.tensors["ids"][0].tolist()
    state = model.initial.numpy()
    for symbol in ids[1:]:
        joint = state * model.emission[symbol].numpy()
        state = joint / joint.sum() @ model.transition.numpy()
    np.testing.assert_allclose(trace.find("Token 6: c › Next state").values, state, atol=1e-12)
    p = trace.find("Probabilities of the next token").values
    np.testing.assert_allclose(p, model.emission.numpy() @ state, atol=1e-12)
    with torch.no_grad():
        posterior = model.posterior(pipeline.prepared.tensors["ids"])[0, -1].numpy()
    found = trace.find("Token 6: c › State, given the symbol").values
    np.testing.assert_allclose(found, posterior, atol=1e-12)
