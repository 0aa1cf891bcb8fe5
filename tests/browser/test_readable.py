"""The checks that every page passes find the faults that they are for."""

from __future__ import annotations

import pytest
from readable import faults_of

from regard.look.page import Lines, Page, Table, Text

pytestmark = pytest.mark.browser


@pytest.fixture
def page_with(tmp_path, browser_page):
    """Opens a page with this style added; afterwards nothing is open."""

    def show(style):
        page = Page("Title", "subtitle")
        page.section("Section", "note")
        page.add(Text("words"), Table(["a", "b"], [["x", 1]], highlight=[0]))
        page.add(Lines([(f"series {i}", [1, 2], [i, i + 1]) for i in range(7)]))
        path = page.write(tmp_path / "page.html")
        path.write_text(path.read_text().replace("</style>", f"{style}</style>"))
        browser_page.open(path)
        return faults_of(browser_page)

    yield show
    browser_page.page.goto("about:blank")


def test_a_page_without_faults_has_none(page_with):
    assert page_with("") == []


def test_faint_text_is_found_in_the_theme_that_has_it(page_with):
    faults = page_with("@media (prefers-color-scheme: dark) { .note { color: #555; } }")
    assert [fault.split(" ")[:3] for fault in faults] == [["dark:", "text", "“note”"]]


def test_text_that_is_faint_by_its_opacity_or_on_its_own_background_is_found(page_with):
    assert any("“words”" in fault for fault in page_with("p { opacity: 0.4; }"))
    assert any("“x”" in fault for fault in page_with("td { background: #777 !important; }"))


def test_pale_curves_are_found(page_with):
    assert "light: stroke of .curve" in page_with(".curve { stroke: #ddd; }")[0]


def test_classes_that_red_green_blind_readers_confuse_are_found(page_with):
    old = "--series: #0a6ca8, #c8560e, #14876a, #a8497f, #b98000, #5a5fc0, #6b6f76"
    faults = page_with(f":root {{ {old} !important; }}")
    assert any("light, deuteranopia" in f and "'#a8497f', '#6b6f76'" in f for f in faults)


def test_what_is_wider_than_a_phone_is_found(page_with):
    assert page_with("table { min-width: 50rem; } .scroll { overflow: visible; }") == [
        "816 pixels wide on a phone"
    ]


def test_a_clipped_table_fades_at_the_edge_where_there_is_more(browser_page, tmp_path):
    page = Page("Title")
    page.add(Table([f"metric {i}" for i in range(9)], [["0.123 [0.100, 0.140]"] * 9]))
    browser_page.page.set_viewport_size({"width": 390, "height": 800})
    tab = browser_page.open(page.write(tmp_path / "page.html"))
    box = tab.locator(".scroll")

    def classes():
        return set(box.get_attribute("class").split()) - {"scroll"}

    assert classes() == {"more-right"} and box.get_attribute("tabindex") == "0"
    for left, faded in ((100, {"more-left", "more-right"}), (9999, {"more-left"})):
        box.evaluate("(e, left) => { e.scrollLeft = left }", left)
        browser_page.settle()
        assert classes() == faded


def test_a_table_of_sentences_is_a_list_on_a_phone(browser_page, tmp_path):
    sentence = "a sentence of more than thirty-two characters"
    page = Page("Title")
    page.add(Table(["", "claim", "measured"], [["fails", sentence, sentence]], warn=[0]))
    browser_page.page.set_viewport_size({"width": 390, "height": 800})
    tab = browser_page.open(page.write(tmp_path / "page.html"))
    boxes = [tab.locator("td").nth(i).bounding_box() for i in range(3)]
    assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"] and boxes[2]["width"] > 300
    assert tab.locator("td").nth(1).get_attribute("data-name") == "claim"
    assert tab.locator("tr.warn").count() == 1 and tab.locator("tr.highlight").count() == 0
    tab.set_viewport_size({"width": 1100, "height": 800})
    browser_page.settle()
    tops = {tab.locator("td").nth(i).bounding_box()["y"] for i in range(3)}
    assert len(tops) == 1
