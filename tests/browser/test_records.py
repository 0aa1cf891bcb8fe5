"""Pages about records in headless Chromium: answers, cells that open their records, molecules."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.page import (
    Answer,
    Confusion,
    MoleculeMaps,
    Page,
    RecordList,
    Scatter,
    ShownRecord,
    ValueRange,
)

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)>"
PATHS = [("M 10,10 L 40,40", False, 2.0), ("M 38,38 L 42,38 L 42,42 Z", True, 0.0)]


def record(text, truth, predicted, **more):
    names = ["coil", "helix", "strand"]
    words = {"prediction": f"predicted {names[predicted]}", "truth": f"true {names[truth]}"}
    picture = {"text": text, "mono": True} | more
    cells, is_error = [(truth, predicted)], truth != predicted
    return ShownRecord(picture=picture, cells=cells, is_error=is_error, **words)


def write_page(tmp_path):
    counts = [[64_000, 1_234, 0], [12_345, 1_234_567, 7], [1, 2, 3]]
    pictures = [
        {"pixels": "AP8A/w==", "size": [2, 2, 1]},
        {"points": [[0, 0, 0], [1, 1, 1], [1, 0, 2]]},
        {"curves": [[0, 1, None, 2]]},
        {"paths": PATHS, "size": [50, 50]},
        {"track": [("A", "H", "H"), ("C", "H", "E"), ("D", None, "H")]},
    ]
    records = [record(f"wrong {i}", 1, 0, **picture) for i, picture in enumerate(pictures)]
    records += [record(f"more {i}", 2, 1) for i in range(6)] + [record(MARKUP, 0, 0)]
    page = Page("records")
    page.section("Prediction")
    options = [("helix", 0.9993), ("coil", 0.0003169), (MARKUP, 1e-7)]
    page.add(
        Answer(
            headline="helix",
            detail="99.9%",
            verdict="wrong",
            notes=["The true target is coil."],
            options=options,
            predicted=[0],
            truth=[1],
            picture=pictures[0],
        ),
        ValueRange(
            edges=[0, 1, 2], counts=[3, 4], value=0.5, low=0.1, high=0.9, truth=1.5, title="place"
        ),
    )
    classes = ["coil", "helix", "strand"]
    page.add(
        Confusion(
            counts=counts, classes=classes, records=records, note="11 are wrong", unit="positions"
        )
    )
    page.add(
        MoleculeMaps(
            maps=np.array([[[0.5, np.nan]], [[-1.0, 0.25]]]),
            names=["exchanged", "gradient"],
            scale="diverging",
            unit="logits",
            paths=PATHS,
            size=(50.0, 50.0),
            atoms=[("C", 10.0, 10.0), ("Cl", 40.0, 40.0)],
        )
    )
    page.add(RecordList(records=records[:2], note="two", title="A list"))
    return page.write(tmp_path / "page.html")


def test_the_answer_stands_in_percent_with_its_verdict(browser_page, tmp_path):
    tab = browser_page.open(write_page(tmp_path))
    answer = tab.locator(".answer")
    assert answer.locator(".head").inner_text().split("\n")[-3:] == ["helix", "99.9%", "wrong"]
    assert answer.locator(".number").all_text_contents() == ["99.9%", "0.03%", "<0.01%"]
    assert "true" in answer.locator(".name").nth(1).inner_text()
    wide = [bar.bounding_box()["width"] for bar in answer.locator(".fill").all()]
    track = answer.locator(".bar").first.bounding_box()["width"]
    assert wide[0] == pytest.approx(0.9993 * track, rel=0.01) and wide[1] < 2
    assert answer.locator("canvas.pixels").count() == 1 and tab.locator("main img").count() == 0
    assert "predicted 0.5" in tab.locator(".value-range").inner_text()


def test_a_cell_opens_its_records(browser_page, tmp_path):
    tab = browser_page.open(write_page(tmp_path))
    matrix = tab.locator(".confusion")
    cells, items = matrix.locator("button.cell"), matrix.locator(".records li")
    shown = ["64k", "1,234", "", "12.3k", "1.2M", "7", "1", "2", "3"]
    assert cells.all_text_contents() == shown
    for cell in cells.all():  # every number fits its cell
        assert cell.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert matrix.locator(".readout").inner_text() == "11 are wrong" and items.count() == 8
    matrix.get_by_role("button", name="show 3 more").click()
    assert items.count() == 11
    cells.nth(3).click()  # true helix, predicted coil
    assert items.count() == 5 and "12,345 positions" in matrix.locator(".readout").inner_text()
    kinds = ["canvas.pixels", "canvas[aria-label='point cloud']", "svg[aria-label=series]"]
    for i, kind in enumerate([*kinds, "svg.structure", ".track .wrong"]):
        assert items.nth(i).locator(kind).count() == 1
    cells.nth(3).press("ArrowRight")
    assert cells.nth(4).evaluate("e => e === document.activeElement")
    assert "1,234,567 positions" in tab.locator(".tip").inner_text()
    cells.nth(0).press("Enter")
    assert items.locator("bdi").inner_text() == MARKUP
    matrix.get_by_role("button", name="all wrong ones").click()
    assert items.count() == 8
    assert browser_page.errors == [] and len(browser_page.requests) == 1


def test_atoms_are_coloured_and_read_out(browser_page, tmp_path):
    tab = browser_page.open(write_page(tmp_path))
    views = tab.locator(".molecule-maps svg")
    assert views.count() == 2 and views.first.locator("path.ink").count() == 2
    fills = [
        view.locator("circle.atom").first.evaluate("e => getComputedStyle(e).fill")
        for view in views.all()
    ]
    assert fills[0] != fills[1] and views.first.locator("circle.unknown").count() == 1
    hits = views.first.locator("circle[tabindex]")
    hits.first.focus()
    assert tab.locator(".tip").inner_text() == "C (atom 1)\n+0.5 logits"
    hits.first.press("ArrowRight")
    assert tab.locator(".tip").inner_text() == "Cl (atom 2)\nno change of it is a molecule"


def test_nothing_overflows_on_a_phone_in_either_theme(browser_page, tmp_path):
    tab = browser_page.open(write_page(tmp_path))
    for dark in ("light", "dark"):
        tab.emulate_media(color_scheme=dark)
        for width in (1400, 390):
            tab.set_viewport_size({"width": width, "height": 800})
            browser_page.settle()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert browser_page.errors == []


def test_many_groups_have_names_and_points_are_reached_by_keys(browser_page, tmp_path):
    groups = [str(i % 10) for i in range(30)]
    points = np.array([[i % 10, i // 10] for i in range(30)], float)
    order = [str(i) for i in range(10)]
    page = Page("points")
    page.add(Scatter(points, [f"text {i}" for i in range(30)], groups, order=order, title="s"))
    tab = browser_page.open(page.write(tmp_path / "page.html"))
    assert tab.locator(".scatter .keys button").all_text_contents() == order
    assert tab.locator(".scatter .group-name").all_text_contents() == order
    drawing = tab.locator(".scatter svg")
    drawing.focus()
    drawing.press("ArrowLeft")
    drawing.press("ArrowLeft")
    assert tab.locator(".tip").inner_text() == "8\ntext 28"
    drawing.press("ArrowUp")  # nothing is above the last row
    drawing.press("ArrowDown")
    assert tab.locator(".tip").inner_text() == "8\ntext 18"
    assert browser_page.errors == []
