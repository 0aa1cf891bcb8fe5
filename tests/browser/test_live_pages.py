"""Live pages in Chromium: what is typed or drawn changes what is shown, as Python says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drawn_digits import DIGITS, images, train

from regard.data.targets import Targets
from regard.layers.tap import Edit, Tap
from regard.live.inputs import measure_ink
from regard.live.page import LiveModel, store
from regard.live.parts import LivePart, assets, live_part
from regard.look.page import Page
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.models.encoder import modern as modern_encoder
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Characters, Words

pytestmark = pytest.mark.browser

EVIL = "<img/src=x/onerror=alert(1)>"
TOKENIZER = Characters.train(["abcdefgh <>&\"'"])


def write(folder, pipeline, text, **screen):
    """Write the live page of a pipeline; return its file and the model with rounded weights."""
    stored = store(pipeline, None)
    reader = live_part(pipeline.source_tokenizer, pipeline)
    page = Page(f"{EVIL}, live", EVIL)
    page.add(LiveModel(stored.part, stored.tensors, reader, live_part(pipeline, text)))
    return page.write(folder / "live.html"), stored.pipeline


@pytest.fixture
def writer(tmp_path):
    """The page of a small language model that begins with "abc", and the model in it."""
    torch.manual_seed(0)
    model = Decoder(TOKENIZER.vocab_size, modern(2, 64)).eval()
    return write(tmp_path, Generator(model, TOKENIZER), "abc")


def shown_bars(page):
    """Return the next-token distribution as it is shown, by token."""
    names, numbers = (
        page.locator(f".distribution .bars .{kind}").all_text_contents()
        for kind in ("name", "number")
    )
    return dict(zip(names, numbers, strict=True))


@torch.no_grad()
def next_logits(pipeline, ids, **options):
    """Return the logits of the token after ids, -inf for those that are never generated."""
    logits = pipeline.model.logits(torch.tensor([ids]), **options)[0, -1]
    logits[pipeline.tokenizer.never_produced(pipeline.model.vocab_size)] = -torch.inf
    return logits


def expected_bars(pipeline, text, **options):
    """Return what Python says of the next token, as percentages by token."""
    logits = next_logits(pipeline, pipeline.prompt_ids(text), **options)
    return {TOKENIZER.text(i): 100 * float(p) for i, p in enumerate(logits.softmax(0)) if p > 0}


def assert_shown(page, wanted):
    shown = {name.replace("·", " "): text for name, text in shown_bars(page).items()}
    assert len(shown) == len(wanted)
    for name, p in wanted.items():
        low = shown[name] == "<0.1%"
        assert p < 0.06 if low else float(shown[name][:-1]) == pytest.approx(p, abs=0.051)


def test_typing_redraws_tokens_surprise_and_what_may_follow(browser_page, writer):
    file, pipeline = writer
    page = browser_page.open(file)
    assert_shown(page, expected_bars(pipeline, "abc"))
    page.locator("textarea").first.focus()
    page.keyboard.press("End")
    page.keyboard.type("a d")
    browser_page.settle()
    assert page.locator(".reading .letters").all_text_contents() == [*"abca·d", "…"]
    assert_shown(page, expected_bars(pipeline, "abca d"))
    bits = -sum(pipeline.score("abca d")[1][:-1]) / np.log(2)
    status = page.locator(".readout").first.text_content()
    assert f"6 tokens, {bits:.4g} bits" in status
    assert page.locator(".attention .thumb").count() == 4
    page.locator("textarea").first.fill("")
    browser_page.settle()
    assert_shown(page, expected_bars(pipeline, ""))
    page.locator("textarea").first.fill("abz" * 120)  # longer than the model reads, and unknown
    browser_page.settle()
    assert "Only the last 256 tokens are read" in page.locator(".readout").first.text_content()
    assert not browser_page.errors
    assert all(url.startswith("file:") for url in browser_page.requests)


def test_a_head_that_is_switched_off_and_a_patch_change_what_follows(browser_page, writer):
    file, pipeline = writer
    page = browser_page.open(file)
    plain = shown_bars(page)
    switch = page.get_by_role("button", name="switch off layer 2, head 1")
    switch.press("Enter")
    browser_page.settle()
    edit = Edit.zero("block.1.attention.heads", (slice(None), 0))
    assert shown_bars(page) != plain and switch.get_attribute("aria-pressed") == "true"
    assert_shown(page, expected_bars(pipeline, "abc", tap=Tap(edits=[edit])))
    effect = page.locator(".live .readout").last
    assert "moved by" in effect.text_content()
    switch.press("Enter")

    page.get_by_label("second input").fill("hgf")
    page.get_by_label("activation", exact=True).select_option(label="residual stream after layer 1")
    page.get_by_label("position", exact=True).select_option(label="4: c")
    page.get_by_label("patch it in").check()
    browser_page.settle()
    tap = Tap(["block.0.output"])
    with torch.inference_mode():
        pipeline.model.logits(torch.tensor([pipeline.prompt_ids("hgf")]), tap=tap)
    value = tap.activations["block.0.output"][:, 3]
    edit = Edit.replace("block.0.output", value, (slice(None), 3))
    assert_shown(page, expected_bars(pipeline, "abc", tap=Tap(edits=[edit])))
    page.get_by_label("patch it in").uncheck()
    assert shown_bars(page) == plain and "Nothing is changed" in effect.text_content()
    assert not browser_page.errors


def test_samples_follow_the_sliders(browser_page, writer):
    """With K = 1 all samples are what greedy decoding gives."""
    file, pipeline = writer
    page = browser_page.open(file)
    page.locator("input[data-name='top-K']").press("Home")
    page.get_by_role("button", name="Draw 10 samples").press("Enter")
    page.locator(".sequences li").nth(9).wait_for()
    texts = page.locator(".sequences bdi").all_text_contents()
    ids, tokenizer = pipeline.prompt_ids("abc"), pipeline.tokenizer
    for _ in range(60):
        if (best := int(next_logits(pipeline, ids).argmax())) == tokenizer.end:
            break
        ids.append(best)
    assert len(set(texts)) == 1 and texts[0].removesuffix("…") == tokenizer.decode(ids[1:])
    page.locator("input[data-name='top-K']").press("End")
    page.get_by_role("button", name="Draw 10 samples").click()
    for _ in range(100):  # samples come one by one
        if len(set(page.locator(".sequences bdi").all_text_contents())) > 5:
            break
        page.wait_for_timeout(50)
    assert len(set(page.locator(".sequences bdi").all_text_contents())) > 5
    assert not browser_page.errors


def test_markup_in_tokens_classes_and_texts_stays_text(browser_page, tmp_path):
    tokenizer = Words.train([f"{EVIL} </script> &lt;b&gt; word"])
    config = modern_encoder(1, 32)
    torch.manual_seed(0)
    model = EncoderModel(
        tokenizer.vocab_size, type(config)(**{**vars(config), "n_outputs": 2})
    ).eval()
    targets = Targets("label", (EVIL,), ((EVIL, "</script>b"),))
    file, pipeline = write(tmp_path, Predictor(model, tokenizer, targets), f"{EVIL} word")
    page = browser_page.open(file)
    page.locator("textarea").first.fill(f"{EVIL} </script> word {EVIL}")
    browser_page.settle()
    probabilities = pipeline.predict_proba(f"{EVIL} </script> word {EVIL}")
    assert f"{100 * max(probabilities):.1f}%" in page.locator(".answer .head").text_content()
    assert EVIL in page.locator(".answer").text_content()
    assert page.locator("img").count() == 0 and not browser_page.errors
    assert all(url.startswith("file:") for url in browser_page.requests)


@pytest.fixture(scope="module")
def digits_page(tmp_path_factory):
    model, patches = train()
    pixels, _ = images()
    size = {"height": 8, "width": 8, "patch": patches.patch}
    ink = measure_ink([image[..., 0].astype(float) for image in pixels[:500]])
    reader = LivePart("patches", size | {"ink": ink}, assets("drawing"))
    targets = Targets("label", ("digit",), (tuple("0123456789"),))
    predictor = Predictor(model, patches, targets)
    stored = store(predictor, None)
    page = Page("digits, live")
    page.add(LiveModel(stored.part, stored.tensors, reader, live_part(predictor, "")))
    return page.write(tmp_path_factory.mktemp("digits") / "live.html")


def draw(page, strokes):
    """Draw strokes on the board with the mouse."""
    box = page.locator(".board").first.bounding_box()
    for stroke in strokes:
        points = [
            (box["x"] + x / 100 * box["width"], box["y"] + y / 100 * box["height"])
            for x, y in stroke
        ]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=2)
        page.mouse.up()


def test_eight_of_ten_drawn_digits_are_recognized(browser_page, digits_page):
    page = browser_page.open(digits_page)
    right = 0
    for digit, strokes in DIGITS.items():
        page.get_by_role("button", name="Clear").first.click()
        draw(page, strokes)
        right += page.locator(".answer strong").text_content() == str(digit)
    assert right >= 8 and not browser_page.errors


def test_a_digit_is_drawn_with_the_keyboard(browser_page, digits_page):
    page = browser_page.open(digits_page)
    board = page.locator(".board").first
    board.focus()
    for key in ["ArrowUp"] * 6 + [" "] + ["ArrowDown"] * 12:
        page.keyboard.press(key)
    assert page.locator(".answer strong").text_content() == "1"
