"""Warnings at the top of pages of models that should not be trusted."""

from __future__ import annotations

import json
import math

import pytest

from regard.look.page import Page
from regard.look.run_warnings import run_warnings
from regard.run import CONFIG, METADATA, Run


@pytest.fixture
def described(tmp_path):
    """Makes a run of which regard.json says this; its vocabulary has 16 tokens."""
    ngram = {"task": "next", "family": "bigram", "vocab_size": 16, "config": {}}
    (tmp_path / CONFIG).write_text(json.dumps(ngram))

    def make(metrics=None, split="test", **metadata):
        metadata["metrics"] = {split: metrics or {}}
        (tmp_path / METADATA).write_text(json.dumps(metadata))
        return Run(tmp_path)

    return make


def metric(value, low, high):
    return {"value": value, "low": low, "high": high}


def test_less_than_one_pass_over_the_data_is_said(described):
    (warning,) = run_warnings(described(epochs=0.031, steps=3))
    assert warning.startswith("This model is barely trained: it has seen 3.1%") and "3 steps" in (
        warning
    )
    assert run_warnings(described(epochs=1.0, steps=90)) == []
    assert run_warnings(described(epochs=None)) == []  # counting has no epochs


@pytest.mark.parametrize(
    ("name", "bad", "good", "words"),
    [
        (
            "mcc",
            metric(0.1, -0.02, 0.2),
            metric(0.1, 0.02, 0.2),
            "always predicting the same class",
        ),
        ("auroc", metric(0.5, 0.4, 0.6), metric(0.7, 0.6, 0.8), "guessing"),
        ("r2", metric(-0.4, -0.5, 0.0), metric(0.5, 0.4, 0.6), "always predicting the mean"),
        ("skill", metric(0.0, -0.1, 0.1), metric(0.3, 0.2, 0.4), "the naive forecast"),
    ],
)
def test_what_a_trivial_baseline_could_have_done_is_said(described, name, bad, good, words):
    (warning,) = run_warnings(described({name: bad}, split="valid"), "The encoder")
    assert warning.startswith("The encoder is not significantly better than") and words in warning
    assert "on the validation split" in warning and f"{bad['value']:.3f}" in warning
    (warning,) = run_warnings(described({"targets": {"size": {name: bad}}}))
    assert "for size on the test split" in warning
    assert run_warnings(described({name: good})) == []
    undefined = {"value": None, "undefined": "all truths are equal"}
    assert run_warnings(described({name: undefined})) == []


def test_a_uniform_distribution_is_the_baseline_of_tokens(described):
    uniform = math.log(16)
    (warning,) = run_warnings(described({"nats_per_token": metric(3, uniform + 0.01, 4)}))
    assert "4.01 bits per token or more, theirs 4.00" in warning
    assert run_warnings(described({"nats_per_token": metric(2, 1.9, 2.1)})) == []
    infinite = {"value": None, "infinite": True, "impossible": 3}
    assert run_warnings(described({"nats_per_token": infinite})) == []


def test_translations_that_share_nothing_with_their_references_are_said(described):
    (warning,) = run_warnings(described({"bleu": metric(0.1, 0.0, 0.2)}))
    assert "does not translate: its BLEU on the test split is 0.1 of 100" in warning
    (warning,) = run_warnings(described({"bleu": metric(4.2, 3.0, 5.0)}))
    assert "translates badly: its BLEU on the test split is 4.2 of 100" in warning
    assert run_warnings(described({"bleu": metric(12.0, 11.0, 13.0)})) == []


def test_a_page_warns_before_its_first_section():
    page = Page("Title", "facts")
    page.section("First")
    page.warn("<b>barely</b> trained")
    html = page.render()
    assert 0 < html.index("&lt;b&gt;barely&lt;/b&gt; trained") < html.index("First")
    assert 'class="notice" role="note"' in html
