"""The page of an experiment in headless Chromium."""

from __future__ import annotations

import pytest

from regard.lab import Gallery, GalleryEntry
from regard.lab.distance import SMALL, report
from regard.lab.experiment import Claim, Proportion, Result
from regard.look.page import Lines

pytestmark = pytest.mark.browser


def test_the_page_of_an_experiment_draws_its_figure_and_sets_a_failed_claim_apart(
    tmp_path, browser_page
):
    accuracies = {
        name: {d: [Proportion(900 - d, 1000)] for d in SMALL.lessons.distances}
        for name in SMALL.models
    }
    page = browser_page.open(report(SMALL, accuracies, 0).page().write(tmp_path / "lab.html"))
    assert browser_page.errors == []
    sections = page.locator("h2").all_text_contents()
    assert sections[0] == "Question" and sections[-2:] == ["Claims", "Measured"]
    figures = page.locator("section").evaluate_all(
        "all => all.map((s) => s.querySelectorAll('.lines, .heatmap').length)"
    )
    assert len(sections) > 3 and max(figures[1:-2]) == 1  # one figure per section
    words = page.locator(".component.lines svg").first.locator("text").all_text_contents()
    assert {"2", "8", "32", "chance"} <= set(words)
    assert page.locator("tr.warn", has_text="a weight matrix relates nothing").count() == 1
    assert page.locator("tr.warn", has_text="of one size").count() == 0


def test_the_gallery_draws_every_figure_and_leads_to_every_page(tmp_path, browser_page):
    claims = [Claim("a claim", "at most 1", "2", False)]
    figure = Lines(
        [("dots", [1.0, 2.0], [1.0, 3.0]), ("line", [1.0, 2.0], [2.0, 1.0])], dots=["dots"]
    )
    result = Result(
        title="T",
        answer="Yes.",
        question="Q",
        reading="R.",
        claims=claims,
        tables=[],
        figures=[figure],
    )
    result.page().write(tmp_path / "kernels.html")
    entry = GalleryEntry(name="kernels", seconds=1.0, result=result)
    gallery = Gallery([entry], tmp_path / "index.html")
    page = browser_page.open(gallery.page().write(gallery.index))
    assert browser_page.errors == []
    chart = page.locator(".component.lines svg").first
    assert chart.locator("path.curve").count() == 1 and chart.locator("circle").count() == 4
    assert page.locator("tr.warn", has_text="a claim").count() == 1
    assert page.get_by_text("Yes.").count() >= 1  # the answer stands before the figures
    page.get_by_text("the whole experiment").click()
    assert page.title() == "T" and browser_page.errors == []
    assert all(url.startswith(("file:", "data:")) for url in browser_page.requests)
