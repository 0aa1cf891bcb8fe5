"""The projector of word vectors in headless Chromium."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.page import Page, Projector

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)>"


def test_words_can_be_searched_and_chosen_without_an_error_or_a_request(tmp_path, browser_page):
    random = np.random.default_rng(0)
    words = [*(f"word{i}" for i in range(29)), MARKUP]
    neighbours = [[(i + k) % 30 for k in (1, 2, 3)] for i in range(30)]
    page = Page("words")
    page.add(
        Projector(
            words=words,
            planes={"t-SNE": random.normal(size=(20, 2)), "PCA": random.normal(size=(20, 2))},
            axes={"PCA": ("one", "two")},
            groups=["red" if i % 2 else "blue" for i in range(20)],
            neighbours=neighbours,
            similarities=[[0.9, 0.8, 0.7]] * 30,
            title="Words",
        )
    )
    path = page.write(tmp_path / "words.html")
    shown = browser_page.open(path)
    listed = shown.locator(".projector .near li")
    assert shown.locator(".undrawn").count() == 0 and shown.locator("main img").count() == 0
    assert shown.locator(".projector circle.dot").count() == 20
    assert shown.locator(".projector circle.marked").count() == 4  # word0 and its neighbours
    shown.locator(".projector input").fill("WORD7")
    browser_page.settle()
    assert listed.all_text_contents() == ["word80.900", "word90.800", "word100.700"]
    listed.first.locator("button").click()
    assert shown.locator(".projector .readout").text_content() == "word8"
    shown.locator(".projector input").fill("word25")
    assert "not among the points" in shown.locator(".projector .readout").text_content()
    shown.locator(".projector .toggle button").nth(1).click()
    browser_page.settle()
    assert "across: one; up: two" in shown.locator(".projector").text_content()
    shown.locator(".projector .zoom button").last.click()
    dot = shown.locator(".projector circle.dot").nth(3).bounding_box()
    shown.mouse.click(dot["x"] + 3, dot["y"] + 3)
    assert shown.locator(".projector .readout").text_content() == "word3"
    shown.locator(".projector input").fill("nothing")
    shown.keyboard.press("Tab")
    assert "no such word" in shown.locator(".projector .readout").text_content()
    shown.set_viewport_size({"width": 390, "height": 800})
    browser_page.settle()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser_page.errors == [] and browser_page.requests == [path.as_uri()]
