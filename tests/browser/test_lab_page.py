"""An experiment's page as a reader meets it, in headless Chromium."""

from __future__ import annotations

import pytest

from regard.lab.distance import SMALL, report
from regard.lab.result import Share

pytestmark = pytest.mark.browser


def test_the_page_of_an_experiment_draws_its_figure_and_sets_a_failed_claim_apart(
    tmp_path, browser_page
):
    found = {
        name: {d: [Share(900 - d, 1000)] for d in SMALL.lessons.distances} for name in SMALL.readers
    }
    page = browser_page.open(report(SMALL, found, 0).page().write(tmp_path / "lab.html"))
    assert browser_page.errors == []
    assert page.locator("h2").all_text_contents() == ["Question", "Figure", "Claims", "Measured"]
    words = page.locator(".component.lines svg").first.locator("text").all_text_contents()
    assert {"2", "8", "32", "chance"} <= set(words)
    assert page.locator("tr.highlight", has_text="a weight matrix relates nothing").count() == 1
    assert page.locator("tr.highlight", has_text="of one size").count() == 0
