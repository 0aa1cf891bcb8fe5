"""Pages about classifiers that count or are linear, and about masked tokens, in Chromium."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.evaluation.masked_tokens import encode_masked
from regard.look.language_page import masked_page
from regard.look.prediction_page import prediction_page
from regard.models.class_counts import ClassMarkov, MarkovConfig, PWMClassifier, PwmConfig
from regard.models.encoder import MaskedLM, modern_masked
from regard.models.linear import LinearConfig, LinearSvm
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Characters, Nucleotides

pytestmark = pytest.mark.browser

FAMILIES = {
    "svm": (LinearSvm, LinearConfig(order=2, places="each", weighting="counts", strength=1.0)),
    "pwm": (PWMClassifier, PwmConfig(pseudocount=1.0)),
    "markov": (ClassMarkov, MarkovConfig(order=3)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_pages_about_fitted_classifiers_draw_without_an_error(name, tmp_path, browser_page):
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("ACGT"), 60)) for _ in range(40)]
    texts = [
        text[:20] + "TATAAT" * (i % 2) + text[20 + 6 * (i % 2) :] for i, text in enumerate(texts)
    ]
    tokenizer = Nucleotides.train(texts)
    family, config = FAMILIES[name]
    config = dataclasses.replace(config, n_outputs=2, max_len=64)
    predictor = Predictor(
        family(tokenizer.vocab_size, config),
        tokenizer,
        Targets("label", ("kind",), (("no", "<b>yes</b>"),)),
    )
    shard = predictor.shard(texts)
    shard = dataclasses.replace(shard, targets=np.arange(40, dtype=np.int32) % 2)
    predictor.model.fit(shard, None, lambda line: None)
    page = prediction_page(predictor, texts[1], title="fitted", held_out=("test", shard))
    shown = browser_page.open(page.write(tmp_path / "look.html"))
    assert shown.locator(".undrawn").count() == 0 and shown.locator("main b").count() == 0
    for width in (1280, 390):
        shown.set_viewport_size({"width": width, "height": 800})
        browser_page.settle()
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    text = shown.locator("main").inner_text()
    if name == "svm":
        assert "TA at 21" in text and "second text" not in text
    if name == "pwm":
        letters = shown.locator(".logo text.letter").all_text_contents()
        assert letters and set(letters) <= set("ACGT")
    if name == "markov":
        assert "P(next | before)" in text
    assert browser_page.errors == []


def test_a_page_about_masks_draws_without_an_error(tmp_path, browser_page):
    torch.manual_seed(0)
    tokenizer = Characters.train(["abcdef <>"])
    config = dataclasses.replace(
        modern_masked(1, 16), n_heads=2, n_kv_heads=2, d_head=4, max_len=16
    )
    model = MaskedLM(tokenizer.vocab_size, config).eval()
    page = masked_page(model, tokenizer, encode_masked("ab <mask>c<b>d", tokenizer), title="masks")
    shown = browser_page.open(page.write(tmp_path / "look.html"))
    assert shown.locator(".undrawn").count() == 0 and shown.locator("main b").count() == 0
    assert "<mask> at position 4" in shown.locator("main").inner_text()
    assert browser_page.errors == []
