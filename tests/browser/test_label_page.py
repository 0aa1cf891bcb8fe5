"""The page about labels in headless Chromium."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.look.prediction_page import prediction_page
from regard.models.encoder import EncoderModel, modern
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Nucleotides

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)>"


def test_a_page_about_dna_draws_without_an_error_or_a_request(tmp_path, browser_page):
    torch.manual_seed(0)
    tokenizer = Nucleotides.train(["ACGT"])
    config = dataclasses.replace(modern(2, 16), n_heads=2, n_kv_heads=2, d_head=4, n_outputs=3)
    classes = ("no", "yes", MARKUP)
    model = EncoderModel(tokenizer.vocab_size, config).eval()
    predictor = Predictor(model, tokenizer, Targets("label", (MARKUP,), (classes,)))
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("ACGT"), 20)) for _ in range(40)]
    shard = predictor.shard(texts)
    shard = dataclasses.replace(shard, targets=random.integers(0, 3, 40).astype(np.int32))
    page = prediction_page(
        predictor, texts[3][:12], title=f"labels of {MARKUP}", held_out=("test", shard)
    )
    path = page.write(tmp_path / "look.html")
    shown = browser_page.open(path)
    assert shown.locator(".undrawn").count() == 0 and shown.locator("main img").count() == 0
    for dark in ("light", "dark"):
        shown.emulate_media(color_scheme=dark)
        for width in (1280, 390):
            shown.set_viewport_size({"width": width, "height": 800})
            browser_page.settle()
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.locator(".scatter").first.locator("circle.dot").count() == 41
    assert shown.locator(".scatter").first.locator("circle.marked").count() == 9
    shown.locator(".scatter .keys button").first.click()  # hides the most frequent class
    browser_page.settle()
    assert shown.locator(".scatter").first.locator("circle.dot").count() < 41
    letters = shown.locator(".logo").first.locator("text.letter").all_text_contents()
    assert letters and set(letters) <= set("ACGT")
    token = shown.locator(".surprise .token").nth(2)
    token.scroll_into_view_if_needed()
    token.hover()
    assert "logits" in shown.locator(".tip").text_content()
    assert browser_page.errors == []
    assert browser_page.requests == [path.as_uri()]
