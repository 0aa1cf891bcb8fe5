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


def test_the_map_of_words_can_be_enlarged_moved_searched_and_read_by_keys(tmp_path, browser_page):
    places = np.array([[x, y] for y in range(5) for x in range(6)], float)
    words = [f"{'un' * (i % 3 == 0)}word{i}" for i in range(30)]
    page = Page("words")
    page.add(
        Projector(
            words=words,
            planes={"t-SNE": places},
            groups=["a"] * 30,
            neighbours=[[(i + 1) % 30] for i in range(30)],
            similarities=[[0.5]] * 30,
            chosen=14,
            queries=[0, 29],
            title="Words",
        )
    )
    shown = browser_page.open(page.write(tmp_path / "words.html"))
    plane, names = shown.locator(".plane svg"), shown.locator(".plane .dot-name")
    named = names.all_text_contents()
    assert {"unword0", "word29", "word14", "unword15"} <= set(named)  # the queries, and its nearest
    boxes = [name.bounding_box() for name in names.all()]
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            apart = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            assert apart or abs(one["y"] - other["y"]) >= 12  # no name covers another
    assert not [t for t in shown.locator(".plane text").all_text_contents() if t.isdigit()]
    plane.focus()
    shown.keyboard.press("ArrowRight")
    assert shown.locator(".projector .readout").text_content() == words[15]
    shown.keyboard.press("ArrowUp")
    assert shown.locator(".projector .readout").text_content() == words[21]  # y grows upwards
    before = [dot.bounding_box()["x"] for dot in shown.locator("circle.dot").all()]
    shown.keyboard.press("+")
    shown.keyboard.press("+")
    wide = [dot.bounding_box()["x"] for dot in shown.locator("circle.dot").all()]
    assert max(wide) - min(wide) > 2 * (max(before) - min(before))
    box = plane.bounding_box()
    shown.mouse.move(box["x"] + 200, box["y"] + 150)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 240, box["y"] + 150, steps=3)
    shown.mouse.up()
    moved = [dot.bounding_box()["x"] for dot in shown.locator("circle.dot").all()]
    assert np.subtract(moved, wide) == pytest.approx(40, abs=1.5)
    shown.locator(".projector .zoom button").last.click()
    shown.locator(".projector input").fill("/^un.*[05]$/")
    wanted = [word for word in words if word.startswith("un") and word[-1] in "05"]
    assert f"{len(wanted)} of 30 words match" in shown.locator(".projector .readout").text_content()
    assert shown.locator("circle.found").count() > 0
    assert set(wanted) <= set(names.all_text_contents())
    shown.locator(".projector input").fill("/(/")
    assert "0 of 30 words match" in shown.locator(".projector .readout").text_content()
    assert browser_page.errors == []
