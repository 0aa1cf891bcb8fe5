"""The page about a language model in headless Chromium."""

from __future__ import annotations

import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.look.language_page import language_page
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.ngrams import (
    Bigram,
    CountConfig,
    DirichletNGram,
    DirichletNGramConfig,
    KneserNey,
    KneserNeyConfig,
)
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.tokenizers import Characters, Words

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)> </script><b>bold</b> &amp;"
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    monkeypatch.setattr("regard.look.language_page.LONGEST", 13)


def model_of(name, tokenizer):
    torch.manual_seed(0)
    size = tokenizer.vocab_size
    if name == "transformer":
        return Decoder(size, DecoderConfig(**SHAPE, max_len=64)).eval()
    if name == "lstm":
        return LSTMModel(size, RecurrentConfig(n_layers=1, d_model=9)).eval()
    if name == "hmm":
        hidden = HiddenMarkov(size, HiddenMarkovConfig(n_states=11))
        hidden.marker.fill_(tokenizer.start)
        return hidden
    counting = {
        "bigram": (Bigram, CountConfig()),
        "map": (DirichletNGram, DirichletNGramConfig(order=4)),
        "kneser-ney": (KneserNey, KneserNeyConfig()),
    }
    family, config = counting[name]
    counted = family(size, config)
    counted.fit(shard_of(["abracadabra"], tokenizer), None, print)
    return counted


def write(path, name, text, tokenizer, **options):
    """The page of a fresh model of this family about a record."""
    ids = [tokenizer.start, *tokenizer.encode(text).tolist()]
    page = language_page(
        model_of(name, tokenizer), tokenizer, ids, title=f"{name} reads {text}", **options
    )
    return page.write(path / "look.html")


SECTIONS = {
    "transformer": ["Attention", "Mask and reach"],
    "lstm": ["Hidden state"],
    "bigram": ["Transition table"],
    "map": ["Priors and posteriors", "Longest n-grams"],
    "kneser-ney": ["Discounts", "Longest n-grams"],
    "hmm": ["Hidden states", "States"],
}


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_every_family_draws_without_an_error_or_a_request(name, tmp_path, browser_page):
    tokenizer = Characters.train(["abracadabra", "zcz"])
    path = write(tmp_path, name, "abczc", tokenizer, facts=[("model", name)], continues=False)
    page = browser_page.open(path)
    titles = page.locator("h2").all_text_contents()
    assert titles == [
        "The model",
        "Surprise",
        "Next symbol",
        *SECTIONS[name],
        "Beam search",
        "Samples",
    ]
    assert page.locator(".undrawn").count() == 0
    assert page.locator(".surprise .token").all_text_contents() == [*"abczc", "<E>"]
    assert page.locator(".samples li").count() == 10
    assert page.locator(".beam-tree .node").count() > 5
    page.set_viewport_size({"width": 390, "height": 800})
    browser_page.settle()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser_page.errors == []
    assert browser_page.requests == [path.as_uri()]


def test_choosing_a_head_changes_the_large_map(tmp_path, browser_page):
    tokenizer = Characters.train(["abc"])
    page = browser_page.open(write(tmp_path, "transformer", "abcab", tokenizer, continues=False))
    large = page.locator(".attention .detail")
    picture = "canvas => canvas.toDataURL()"
    assert large.locator("h4").text_content() == "layer 1, head 1"
    before = large.locator(".map canvas").last.evaluate(picture)
    page.locator(".attention .thumb").nth(4).click()
    browser_page.settle()
    assert large.locator("h4").text_content() == "layer 2, head 2"
    assert large.locator(".map canvas").last.evaluate(picture) != before
    large.get_by_role("button", name="arcs").click()
    browser_page.settle()
    assert large.locator(".side.queries .token").all_text_contents() == ["<S>", *"abcab"]
    assert browser_page.errors == []


def test_the_sliders_cut_the_next_symbols(tmp_path, browser_page):
    tokenizer = Characters.train(["abc"])
    page = browser_page.open(write(tmp_path, "transformer", "abc", tokenizer, continues=False))
    line = page.locator(".distribution .kept-line")
    assert line.text_content().startswith("4 of 4 symbols kept")  # a, b, c and <E>
    slider = page.locator(".distribution input[data-name=top-K]")
    slider.evaluate("s => { s.value = 0; s.dispatchEvent(new Event('input')); }")
    assert line.text_content().startswith("1 of 4 symbols kept")
    assert page.locator(".distribution .fill.cut").count() == 3
    assert browser_page.errors == []


def test_markup_in_the_text_stays_text(tmp_path, browser_page):
    tokenizer = Words.train([MARKUP])
    path = write(tmp_path, "transformer", MARKUP, tokenizer, continues=False)
    page = browser_page.open(path)
    assert page.locator("h1").text_content() == f"transformer reads {MARKUP}"
    shown = "".join(page.locator(".surprise .token").all_text_contents())
    assert shown.lstrip("·") == MARKUP.replace(" ", "·") + "<E>"  # words carry the space before
    assert page.locator("main img, main b").count() == 0
    assert browser_page.errors == []
    assert browser_page.requests == [path.as_uri()]
