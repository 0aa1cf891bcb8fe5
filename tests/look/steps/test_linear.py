"""Sums over n-grams and over windows of tokens, against sums made by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from step_models import STEP_MODELS, TEXT, TEXTS, fitted

from regard.look.steps import trace_steps
from regard.models import linear


def by_name(stage):
    return dict(zip(stage.columns, stage.values.tolist(), strict=True))


def test_naive_bayes_adds_logarithms_of_frequencies():
    """Against the classifier written out with letters alone."""
    pipeline = fitted(linear.NaiveBayes, order=1, places="any", alpha=0.5)
    trace = trace_steps(pipeline)
    letters = sorted(set("".join(TEXTS)))
    scores = []
    for number in range(3):
        of_class = [text for i, text in enumerate(TEXTS) if i % 3 == number]
        counts = Counter("".join(of_class))
        total = sum(counts.values()) + 0.5 * len(letters)
        logs = {letter: math.log((counts[letter] + 0.5) / total) for letter in letters}
        prior = pipeline.model.bias[number].item()
        assert prior == pytest.approx(math.log(len(of_class) / len(TEXTS)), abs=0.1)
        scores.append(prior + sum(logs[letter] for letter in TEXT))
    assert by_name(trace.find("Input › Counts")) == dict(Counter(TEXT))
    np.testing.assert_allclose(trace.find("Output › Scores").values, scores, atol=1e-6)
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(trace.find("Output › Probabilities").values, p, atol=1e-6)
    assert trace.find("Output › Log-probabilities").measured


def test_weighted_counts_are_those_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [f"^{text}$" for text in TEXTS]
    vectorizer = TfidfVectorizer(
        analyzer=lambda text: (
            [c for c in text if c not in "^$"] + [text[i : i + 2] for i in range(len(text) - 1)]
        ),
        sublinear_tf=True,
    ).fit(texts)
    row = vectorizer.transform([f"^{TEXT}$"])
    expected = dict(
        zip(vectorizer.get_feature_names_out()[row.indices], row.data.tolist(), strict=True)
    )
    pipeline = fitted(linear.Logistic, weighting="tf-idf", order=2, places="any")
    features = by_name(trace_steps(pipeline).find("Features › Features"))
    written = {name.replace("<S>", "^").replace("<E>", "$"): x for name, x in features.items()}
    assert written.keys() == expected.keys()
    for name, value in written.items():
        assert value == pytest.approx(expected[name], abs=1e-6)


def test_a_count_is_that_of_its_text_or_its_position():
    trace = trace_steps(STEP_MODELS["logistic of aligned texts"]())
    names = list(trace.find("Input › Counts").columns)
    assert "a at 1" in names and "a at 2" not in names  # of "abbac"
    assert set(trace.find("Input › Counts").values.tolist()) == {1.0}


def test_a_text_without_known_ngrams_has_the_bias():
    pipeline = STEP_MODELS["n-grams that training never saw"]()
    trace = trace_steps(pipeline)
    np.testing.assert_allclose(trace.find("Scores").values, pipeline.model.bias.numpy())
    assert any("are not in the training records" in note for note in trace.notes)


def test_a_window_has_a_coefficient_for_each_distance():
    pipeline = STEP_MODELS["logistic of windows"]()
    model, trace = pipeline.model, trace_steps(pipeline, position=2)
    ids = pipeline.prepared.tensors["ids"][0]
    expected = model.bias.numpy().copy()
    for d in range(5):
        if 0 <= 1 + d - 2 < len(ids):
            expected += model.coefficients.view(5, -1, 3)[d, ids[1 + d - 2]].numpy()
    np.testing.assert_allclose(trace.find("Scores").values, expected, atol=1e-12)
    rows = trace.find("Coefficients of the window").rows
    assert list(rows) == ["<S> at -1", "a at +0", "b at +1", "b at +2"]


def test_values_stay_in_their_units():
    pipeline = STEP_MODELS["ridge"]()
    trace = trace_steps(pipeline)
    with torch.no_grad():
        expected = pipeline.prepared.run(None)[0].numpy()
    np.testing.assert_allclose(trace.find("Output › Value").values, expected, rtol=1e-9)
    assert trace.stages[-1].title == "Value" and list(trace.stages[-1].columns) == ["y"]
