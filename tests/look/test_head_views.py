"""The sections about heads and blocks: their numbers are those of the model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from page_parts import CLASSES, of, sections
from small_models import TOKENIZER, bigram, decoder, lstm, record

from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.look import head_views
from regard.look.head_views import EffectWords, HeadScores, name_layer
from regard.look.internals import ForwardTrace
from regard.look.language_page import language_page
from regard.look.page import Heatmap, Table
from regard.look.prediction_page import prediction_page

PARTS = ["What each head does here", "Logit lens"]


def page_of(model, text="abbacab"):
    ids = record(text)
    return language_page(model, TOKENIZER, ids, title="", continues=False)


def heatmap(page, title):
    (found,) = (x for x in of(page, Heatmap) if x.title.startswith(title))
    return found


def test_the_effect_of_a_head_is_in_bits_of_the_whole_text():
    model, ids = decoder(), record("abbacab")
    page = page_of(model)
    trace = ForwardTrace(model, TOKENIZER, ids, continues=False)
    bits = trace.surprise()[1].sum()
    edit = Edit.zero("block.1.attention.heads", (slice(None), 2))
    with torch.no_grad():
        logits = model.logits(torch.tensor([ids]), tap=Tap(edits=[edit]))[0]
    logs = logits.log_softmax(-1)[range(len(ids)), trace.targets]
    without = -float(logs.double().sum()) / math.log(2)
    shown = heatmap(page, "Without each head")
    assert shown.array()[1, 2] == pytest.approx(without - bits, abs=1e-4)
    assert shown.rows == ["layer 1", "layer 2"] and len(shown.columns) == 3
    (table,) = (t for t in of(page, Table) if t.columns[0] == "head")
    largest = np.abs(shown.array()).max()
    assert abs(table.rows[0][2]) == pytest.approx(largest, rel=1e-2)
    names = sections(page)
    assert names[names.index("How far back") + 1 :][:2] == PARTS


def test_the_lens_ends_with_the_models_own_probabilities():
    model, ids = decoder(), record("abbacab")
    page = page_of(model)
    with torch.no_grad():
        p = model.logits(torch.tensor([ids]))[0].softmax(-1)
    shown = heatmap(page, "Probability of the token that follows")
    targets = [*ids[1:], TOKENIZER.end]
    assert shown.rows == ["embedding", "after block 1", "after block 2"]
    assert shown.array()[-1] == pytest.approx(p[range(len(ids)), targets].numpy(), abs=1e-5)
    (table,) = (t for t in of(page, Table) if t.columns[0] == "position")
    for row, probabilities in zip(table.rows, p, strict=True):
        best = int(probabilities.argmax())
        assert row[-2] == f"{TOKENIZER.text(best)} {float(probabilities[best]):.2f}"


def test_models_without_heads_or_blocks_have_no_such_sections():
    for model in (lstm(), bigram()):
        assert not set(PARTS) & set(sections(page_of(model)))
    assert "Logit lens" in sections(page_of(decoder(mixers=("hyena",))))
    assert PARTS[0] not in sections(page_of(decoder(mixers=("hyena",))))
    ids = [TOKENIZER.start]
    page = language_page(decoder(), TOKENIZER, ids, title="", continues=True)  # nothing follows
    assert not set(PARTS) & set(sections(page))


def test_a_large_model_reads_the_beginning_only(monkeypatch):
    monkeypatch.setattr(head_views, "WORK", 1)
    monkeypatch.setattr(head_views, "FEWEST_TOKENS", 4)
    page = page_of(decoder())
    html = page.render()
    assert "the text, its first 4 tokens, costs" in html
    tokens = heatmap(page, "Probability of the token that follows").columns
    assert len(tokens) == 8  # the lens reads it once


def test_a_classifier_shows_its_class_after_each_block(make_predictor):
    predictor = make_predictor()
    page = prediction_page(predictor, "cabba", title="", held_out=None)
    shown = heatmap(page, "The prediction after each block")
    expected = sorted(predictor.predict_proba("cabba"), reverse=True)
    assert shown.array()[-1] == pytest.approx(expected, abs=1e-5)
    assert set(shown.columns) == set(CLASSES)
    effects = heatmap(page, "Without each head")
    model = predictor.model
    best = int(np.argmax(predictor.predict_proba("cabba")))
    edit = Edit.zero("block.0.attention.heads", (slice(None), 1))
    source = predictor.prepare("cabba").tensors["ids"]
    inputs = Inputs(source, torch.ones_like(source))
    with torch.no_grad():
        with_head, without = (
            model.predict(inputs, tap=Tap(edits=edits)).double().log_softmax(-1)[0, best]
            for edits in ([], [edit])
        )
    expected = float(with_head - without) / math.log(2)
    assert effects.array()[0, 1] == pytest.approx(expected, abs=1e-4)


def test_values_are_listed_after_each_block(make_predictor):
    page = prediction_page(make_predictor("value"), "cabba", title="", held_out=None)
    (table,) = (t for t in of(page, Table) if t.title == "The prediction after each block")
    value = make_predictor("value").predict("cabba")
    assert table.rows[-1][1] == pytest.approx(float(np.ravel(value)[0]), rel=1e-4)


def test_effects_are_told_both_ways():
    words = EffectWords("the text costs", "bits", " bits more", " bits less")
    assert words.tell(1.2345) == "the text costs 1.23 bits more"
    assert words.tell(-0.05) == "the text costs 0.05 bits less"
    assert name_layer("block.0.cross") == "layer 1, source"
    assert HeadScores(math.nan, math.nan).role == "mixed"
