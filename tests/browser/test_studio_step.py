"""The screen *Step* in the studio: a run, an input, a token chosen, and what stays."""

from __future__ import annotations

import pytest

pytest.importorskip("studio_server")
from studio_server import MARKUP

pytestmark = pytest.mark.browser


def title(page):
    return page.inner_text(".panel h4.title")


def test_a_token_is_chosen_and_the_stage_stays(studio_tab):
    page = studio_tab.show("step?run=names&text=ada")
    page.wait_for_selector(".stepper")
    assert page.locator("button.token").all_inner_texts()[-3:] == ["a", "d", "a"]
    page.click(".toggle button:has-text('stages')")
    page.select_option(".stepper select", index=1)  # after the last token
    before = title(page)
    page.click("button.token:text-is('d')")
    page.wait_for_selector("button.token.chosen:text-is('d')")
    assert "position=3" in page.evaluate("location.hash")
    assert page.get_attribute(".toggle button:has-text('stages')", "aria-pressed") == "true"
    assert before.startswith("Counts") and page.locator(".crumbs").inner_text() == "After d"
    assert page.evaluate("document.activeElement.textContent") == "d"  # the keyboard goes on
    assert studio_tab.serious() == []
    answer = studio_tab.studio.call("step", "trace", run="names", text="ada", position=3)
    shown = page.inner_text(".stepper .controls output")
    stages = [one for one in answer["figure"]["data"]["stages"] if one["shown"]]
    assert shown.endswith(f"of {len(stages)}")


def test_typing_moves_to_the_last_token_and_mistakes_are_told(studio_tab):
    page = studio_tab.show("step?run=names&text=ada&position=2")
    page.wait_for_selector(".stepper")
    page.get_by_label("Input", exact=False).fill(MARKUP)
    page.wait_for_selector("button.token.chosen:text-is('>')")
    page = studio_tab.show("step?run=names&text=ada&position=99")
    page.wait_for_selector("[role=alert]:has-text('position must be from 1 to 4')")
    page = studio_tab.show("step?run=labels")
    page.wait_for_selector("button.token.chosen:text-is('any input')")  # it is not read
    assert not page.locator("[role=alert]").count()
