"""The page about a caption: a map for every word, each with the word above it."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.look.language_page import SourceTarget
from regard.look.translation_page import caption_page
from regard.models.encoder_decoder import Captioner, modern_captioner
from regard.pipelines.translator import Translator
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches

pytestmark = pytest.mark.browser


def test_every_word_has_its_map(tmp_path, browser_page):
    image = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    words, patches = TOKENIZERS["words"].train(["a <b> c d"]), Patches.train([image], patch=4)
    torch.manual_seed(0)
    shape = {"source_vocab": patches.vocab_size, "max_len": 8, **patches.model_config}
    model = Captioner(
        words.vocab_size, dataclasses.replace(modern_captioner(1, 32), **shape)
    ).eval()
    pair = SourceTarget(patches.encode_batch([image])[0], words.encode("c <b> a").tolist())
    page = caption_page(Translator(model, words, patches), pair, title="Noise", beams=2)
    tab = browser_page.open(page.write(tmp_path / "look.html"))
    first = tab.locator(".choices .image-maps")
    names = first.locator(".heads .over, .heads .head")
    above = names.all_inner_texts()
    assert above[0].strip() == "c" and above[-1] == "<E>"
    thumbs, readout = first.locator(".thumb"), first.locator(".readout")
    assert thumbs.count() == len(above) > 3
    view = first.locator("canvas[role=img]").last
    before = view.evaluate("canvas => canvas.toDataURL()")
    thumbs.nth(1).click()
    assert (
        readout.inner_text().startswith(above[1].strip()) and "goes to <S>" in readout.inner_text()
    )
    assert view.evaluate("canvas => canvas.toDataURL()") != before
    column, label = thumbs.nth(1).bounding_box(), names.nth(1).bounding_box()
    assert column["x"] <= label["x"] + label["width"] / 2 <= column["x"] + column["width"]
    assert not browser_page.errors and not [r for r in browser_page.requests if "http" in r]
