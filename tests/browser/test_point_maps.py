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


# Width and height of what differs from the paper, as shares of a canvas without the axes below.
INK = r"""canvas => {
  const paper = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  let [left, right, top, bottom] = [width, 0, height, 0];
  for (let i = 0; i < 4 * width * (height - 60); i += 4) {
    const gap = Math.hypot(...paper.map((c, k) => c - data[i + k]));
    if (data[i + 3] < 90 || gap < 40) continue;
    const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  }
  return [(right - left) / width, (bottom - top) / height];
}"""


def test_a_cloud_fills_its_canvas_and_values_of_zero_are_seen(browser_page, tmp_path):
    points = np.random.default_rng(1).uniform(5, 6, size=(60, 3))  # far from the origin
    zero = PointMaps(
        points=points, owners=list(range(60)), maps=np.zeros((1, 1, 60)), names=["zero"],
        scale="diverging",
    )  # fmt: skip
    page = Page("zero")
    page.add(zero)
    tab = browser_page.open(page.write(tmp_path / "page.html"))
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        browser_page.settle()
        assert max(tab.locator(".point-maps .view canvas").evaluate(INK)) > 0.8
    assert not browser_page.errors


def test_copies_of_a_cloud_turn_and_zoom_together(browser_page, tmp_path):
    points = np.random.default_rng(0).normal(size=(20, 3))
    copies = [
        PointMaps(
            points=points, owners=list(range(20)), maps=np.full((1, 1, 20), share), names=["m"]
        )
        for share in (0.5, 0.25)
    ]
    page = Page("copies")
    page.add(*copies)
    tab = browser_page.open(page.write(tmp_path / "page.html"))
    other = "document.querySelectorAll('.point-maps .view canvas')[1].toDataURL()"
    before = tab.evaluate(other)
    tab.locator(".point-maps canvas").first.press("ArrowLeft")
    turned = tab.evaluate(other)
    assert turned != before
    tab.locator(".point-maps").first.get_by_role("button", name="larger").click()
    assert tab.evaluate(other) != turned
    tab.locator(".point-maps canvas").first.press("-")
    assert not browser_page.errors
