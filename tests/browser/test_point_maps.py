"""Point clouds in headless Chromium: they turn, and a click shows what a token looks at."""

import numpy as np
import pytest

from regard.look.page import Page, PointMaps

pytestmark = pytest.mark.browser


def write_page(tmp_path):
    random = np.random.default_rng(0)
    points = random.normal(size=(24, 3))
    weights = random.dirichlet(np.ones(7), size=(4, 7))  # <S> and six tokens, four heads
    heads = PointMaps(
        points=points,
        owners=[i % 6 for i in range(24)],
        maps=weights[:, :, 1:],
        names=[f"head {i}" for i in range(4)],
        title="Attention",
        across=2,
        aside=weights[:, :, 0],
        kinds=["C"] * 24,
    )
    single = PointMaps(
        points=np.column_stack((points[:6, :2], np.zeros(6))),
        owners=list(range(6)),
        maps=random.normal(size=(1, 1, 6)),
        names=["left out"],
        title="Left out",
        scale="diverging",
        unit="logits",
    )
    page = Page("point clouds")
    page.section("Point clouds", "Two of them.")
    page.add(heads, single)
    return page.write(tmp_path / "page.html")


def pixels(tab):
    return tab.evaluate("document.querySelector('.point-maps canvas').toDataURL()")


def test_a_point_cloud_turns_and_tokens_can_be_chosen(browser_page, tmp_path):
    tab = browser_page.open(write_page(tmp_path))
    assert (
        tab.locator(".point-maps").count() == 2 and tab.locator(".point-maps .thumb").count() == 4
    )
    first = tab.locator(".point-maps").first
    canvas, readout = first.locator(".view canvas").first, first.locator(".readout")
    assert "what <S> looks at" in readout.inner_text() and "goes to <S>" in readout.inner_text()
    before = pixels(tab)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(*middle)
    tab.mouse.down()
    tab.mouse.move(middle[0] + 60, middle[1] + 20)
    tab.mouse.up()
    browser_page.settle()
    assert pixels(tab) != before and "what <S>" in readout.inner_text()  # a drag chooses nothing
    tab.mouse.click(*middle)
    browser_page.settle()
    assert "what token" in readout.inner_text()
    first.locator(".thumb").nth(2).click()
    assert "head 2" in readout.inner_text()
    first.get_by_role("button", name="<S>").click()
    assert "what <S>" in readout.inner_text()
    before = pixels(tab)
    canvas.focus()
    tab.keyboard.press("ArrowLeft")
    browser_page.settle()
    assert pixels(tab) != before
    assert not browser_page.errors and not [r for r in browser_page.requests if "file:" not in r]
