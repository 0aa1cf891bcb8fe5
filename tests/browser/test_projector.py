"""The projector of word vectors in headless Chromium."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.page import Page, Projector

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)>"
PLACES = "document.querySelector('.plane').plane.places()"  # of the points on the canvas, in pixels
SEEN = "document.querySelector('.plane').plane.seen()"


def places(shown):
    return np.array(shown.evaluate(PLACES))


def where(shown, point):
    """Return where a point is on the screen."""
    box = shown.locator(".plane canvas").bounding_box()
    x, y = places(shown)[point]
    return box["x"] + x, box["y"] + y


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
    assert len(places(shown)) == 20
    assert shown.evaluate(f"[{SEEN}.chosen, ...{SEEN}.marked]") == [
        0,
        1,
        2,
        3,
    ]  # and its neighbours
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
    browser_page.settle()
    shown.mouse.click(*where(shown, 3))
    assert shown.locator(".projector .readout").text_content() == "word3"
    shown.locator(".projector input").fill("nothing")
    shown.keyboard.press("Tab")
    assert "no such word" in shown.locator(".projector .readout").text_content()
    shown.set_viewport_size({"width": 390, "height": 800})
    browser_page.settle()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser_page.errors == [] and browser_page.requests == [path.as_uri()]


def test_the_map_of_words_can_be_enlarged_moved_searched_and_read_by_keys(tmp_path, browser_page):
    grid = np.array([[x, y] for y in range(5) for x in range(6)], float)
    words = [f"{'un' * (i % 3 == 0)}word{i}" for i in range(30)]
    page = Page("words")
    page.add(
        Projector(
            words=words,
            planes={"t-SNE": grid},
            groups=["a"] * 30,
            neighbours=[[(i + 1) % 30] for i in range(30)],
            similarities=[[0.5]] * 30,
            chosen=14,
            queries=[0, 29],
            title="Words",
        )
    )
    shown = browser_page.open(page.write(tmp_path / "words.html"))
    plane, names = shown.locator(".plane canvas"), shown.locator(".plane .dot-name")
    named = names.all_text_contents()
    assert {"unword0", "word29", "word14", "unword15"} <= set(named)  # the queries, and its nearest
    boxes = [name.bounding_box() for name in names.all()]
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            apart = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            assert apart or abs(one["y"] - other["y"]) >= 12  # no name covers another
    plane.focus()
    shown.keyboard.press("ArrowRight")
    assert shown.locator(".projector .readout").text_content() == words[15]
    shown.keyboard.press("ArrowUp")
    assert shown.locator(".projector .readout").text_content() == words[21]  # y grows upwards
    before = np.ptp(places(shown)[:, 0])
    shown.keyboard.press("+")
    shown.keyboard.press("+")
    browser_page.settle()
    wide = places(shown)
    assert np.ptp(wide[:, 0]) == pytest.approx(2.25 * before, rel=1e-3)
    box = plane.bounding_box()
    shown.mouse.move(box["x"] + 200, box["y"] + 150)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 240, box["y"] + 150, steps=3)
    shown.mouse.up()
    browser_page.settle()
    assert (places(shown) - wide)[:, 0] == pytest.approx(40, abs=1.5)
    shown.locator(".projector .zoom button").last.click()
    shown.locator(".projector input").fill("/^un.*[05]$/")
    wanted = [word for word in words if word.startswith("un") and word[-1] in "05"]
    assert f"{len(wanted)} of 30 words match" in shown.locator(".projector .readout").text_content()
    browser_page.settle()
    assert shown.evaluate(f"[...{SEEN}.found].length") == len(wanted)
    assert set(wanted) <= set(names.all_text_contents())
    shown.locator(".projector input").fill("/(/")
    assert "0 of 30 words match" in shown.locator(".projector .readout").text_content()
    assert browser_page.errors == []
