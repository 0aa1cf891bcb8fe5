"""The page about a translator in headless Chromium."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.evaluation.translation import HeadAlignment
from regard.look.language_page import SourceTarget
from regard.look.translation_page import translation_page
from regard.models.encoder_decoder import EncoderDecoder, modern
from regard.models.ibm_model1 import IBM1Config, IBM1Translator
from regard.models.recurrent import AttentiveSeq2Seq, RecurrentSeq2Seq
from regard.pipelines.translator import Translator
from regard.tokenizers import Words

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)> </script> &amp;"
PAIRS = [("the red house", "das rote haus"), ("the tree", "der baum"), (MARKUP, MARKUP)]
BEFORE, AFTER = ["Translation", "Alignment", "Surprise"], ["Beam search", "The model"]
SECTIONS = {
    EncoderDecoder: [*BEFORE, "Attention", *AFTER],
    AttentiveSeq2Seq: [*BEFORE, "Hidden state", *AFTER],
    RecurrentSeq2Seq: ["Translation", "Surprise", "Hidden state", *AFTER],
    IBM1Translator: [*BEFORE, *AFTER],
}


def make_translator(family):
    torch.manual_seed(0)
    tokenizer = Words.train([text for pair in PAIRS for text in pair])
    size, maker = tokenizer.vocab_size, Translator(None, tokenizer)
    if family is IBM1Translator:
        model = IBM1Translator(size, IBM1Config(max_len=12))
        model.fit(maker.pairs(*zip(*PAIRS, strict=True)), None, print)
    elif family is EncoderDecoder:
        config = dataclasses.replace(modern(2, 24), n_heads=3, n_kv_heads=3, d_head=8, max_len=12)
        model = EncoderDecoder(size, config)
    else:
        preset = next(iter(family.PRESETS.values()))
        model = family(size, dataclasses.replace(preset(1, 9), max_len=12))
    return Translator(model.eval(), tokenizer)


@pytest.mark.parametrize("family", SECTIONS, ids=lambda family: family.__name__)
def test_every_translator_draws_without_an_error_or_a_request(family, tmp_path, browser_page):
    translator = make_translator(family)
    source, target = (translator.tokenizer.encode(text).tolist() for text in (MARKUP, "der baum"))
    heads = (
        HeadAlignment([[0.1, 0.2, 0.3], [0.4, 0.9, 0.6]], 7) if family is EncoderDecoder else None
    )
    page = translation_page(
        translator,
        SourceTarget(source, target, reference=source),
        title=f"translates {MARKUP}",
        facts=[("model", family.__name__)],
        alignment=heads,
        beams=2,
    )
    path = page.write(tmp_path / "look.html")
    shown = browser_page.open(path)
    assert shown.locator("h2").all_text_contents() == SECTIONS[family]
    assert shown.locator(".undrawn").count() == 0
    assert shown.locator("td").nth(1).text_content() == MARKUP
    assert shown.locator("main img").count() == 0
    if family is EncoderDecoder:
        across = shown.locator(".attention").first
        assert across.locator(".detail h4").text_content() == "layer 2, head 2"  # that aligns
        across.get_by_role("button", name="arcs").click()
        browser_page.settle()
        words = across.locator(".side.keys-looked-at .token").all_text_contents()
        assert words[-1] == "<E>" and len(words) == len(source) + 1
        assert len(across.locator(".side.queries .token").all_text_contents()) == 3
        shown.get_by_role("button", name="within the source").click()
        browser_page.settle()
        assert shown.locator(".attention .detail h4").text_content() == "layer 1, head 1"
    assert shown.locator("details").get_attribute("open") is None
    shown.locator("summary").click()
    assert shown.locator("dd").last.text_content() == family.__name__
    if "Alignment" in SECTIONS[family]:
        assert shown.locator(".ribbons path").count() > 0
        shown.locator(".ribbons .word").last.hover()
        assert "comes from: " in shown.locator(".tip").text_content()
    for width in (1100, 390):
        shown.set_viewport_size({"width": width, "height": 800})
        browser_page.settle()
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert browser_page.errors == []
    assert browser_page.requests == [path.as_uri()]


def test_a_marked_cell_is_outlined(tmp_path, browser_page):
    from regard.look.page import Heatmap, Page

    page = Page("marks")
    page.add(Heatmap([[1.0, 0.0]], ["q"], ["a", "b"], scale="weights", marks=[(0, 1)]))
    shown = browser_page.open(page.write(tmp_path / "marks.html"))
    corner = """() => { const c = document.querySelector('.map canvas'), g = c.getContext('2d');
        const y = c.height - 2, at = x => Array.from(g.getImageData(c.width - x, y, 1, 1).data);
        return [at(57), at(19)] }"""  # the lower edges of both cells, 38 pixels wide
    plain, marked = shown.evaluate(corner)
    assert marked == [0xD9, 0x48, 0x0F, 255] and plain == [0x22, 0x26, 0x5E, 255]
    assert browser_page.errors == []
