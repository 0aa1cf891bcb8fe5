"""The pages of `regard demo` and `regard compare`, on a desk and on a phone."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch

from regard.api import train_recipe
from regard.bundled import NAMES
from regard.demos import demo
from regard.planning import plan_recipe
from regard.run import RECIPE
from regard.storage import write_json
from regard.training import comparison_runs
from regard.training.launcher import Launcher
from regard.training.progress import Reporter

pytestmark = pytest.mark.browser

TINY = ["train.steps=3", "train.batch_tokens=256", "data.test_fraction=0.2"]
MODELS = ["uniform", "bigram", "map", "kneser-ney", "hmm", "lstm", "transformer"]
WIDTHS = {"desk": 1280, "phone": 390}
SECTIONS = ["The verdict", "The table", "Learning", "Surprise"]
REPORT = [
    *SECTIONS,
    "Samples",
    "Counting",
    "Bayes",
    "Lengths",
    "Attention",
    "How far back",
    "What each head does here",
    "Logit lens",
    "Next symbol",
    "Beam search",
]


def trained_here(one, told, launcher):
    """Train in this process: starting a fresh one takes longer than three steps."""
    recipe, _ = plan_recipe([one.run / RECIPE])
    train_recipe(recipe, one.run, resume=True)
    write_json(one.run / comparison_runs.MEMORY, {"peak_memory_bytes": 1})
    told(one, "training")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a demonstration leaves behind."""
    place = tmp_path_factory.mktemp("demo")
    names = place / "names.txt"
    names.write_text("".join(NAMES.read_text().splitlines(keepends=True)[::300]))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.setattr(Launcher, "start", lambda self: None)
        patch.setattr(comparison_runs, "train", trained_here)
        options = {"models": MODELS, "assignments": TINY, "reporter": Reporter(quiet=True)}
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # models this small only wait for a second one
        try:
            return demo(place / "runs", 1.0, names=names, **options)
        finally:
            torch.set_num_threads(threads)


def opened(browser_page, folder, name, place):
    browser_page.page.set_viewport_size({"width": WIDTHS[place], "height": 800})
    return browser_page.open(folder / name)


@pytest.mark.parametrize("place", WIDTHS)
@pytest.mark.parametrize("name, sections", [("report.html", REPORT), ("compare.html", SECTIONS)])
def test_every_panel_is_drawn_within_the_page(browser_page, folder, name, sections, place):
    page = opened(browser_page, folder, name, place)
    assert page.locator("h2").all_text_contents() == sections
    assert page.locator(".undrawn").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[place]
    boxes = "s => s.every(e => e.getBoundingClientRect().height > 20)"
    assert page.locator(".component").evaluate_all(boxes)
    assert page.locator(".table tbody tr").first.locator("td").count() == 7
    assert page.locator(".surprise .panel").count() == len(MODELS)
    assert browser_page.errors == []
    assert browser_page.requests == [(folder / name).as_uri()]


@pytest.mark.parametrize("place", WIDTHS)
def test_what_is_wide_scrolls_in_its_own_box(browser_page, folder, place):
    page = opened(browser_page, folder, "report.html", place)
    escaped = page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter((e) => {
          if (e.getBoundingClientRect().right <= innerWidth + 1) return false;
          for (let p = e.parentElement; p; p = p.parentElement)
            if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX)) return false;
          return true;
        }).map((e) => e.className.baseVal ?? e.className)"""
    )
    assert escaped == []


def test_the_report_shows_every_figure(browser_page, folder):
    page = opened(browser_page, folder, "report.html", "desk")
    assert page.locator(".attention .thumb").count() == 4  # two layers of two heads
    assert page.locator(".attention .beside .map").count() == 2  # scores and weights
    page.get_by_role("button", name="arcs").click()
    assert page.locator(".arcs .queries .token").count() > 3
    header = page.locator(".table").nth(1).locator("th").all_text_contents()
    assert header == ["uniform", "bigram", "map", "lstm", "transformer"]
    assert page.locator(".table").nth(1).locator("tbody tr").count() == 15
    assert (
        "shuffled" in page.locator("section", has_text="posterior of one transition").inner_text()
    )
    assert page.locator(".distribution .fill.cut").count() > 0  # top-K and top-P cut something
    assert page.locator(".beam-tree .node.best").count() > 1
    assert browser_page.errors == []


def test_the_report_follows_a_dark_screen(browser_page, folder):
    browser_page.page.emulate_media(color_scheme="dark")
    page = opened(browser_page, folder, "report.html", "desk")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(20, 22, 26)"
    assert browser_page.errors == []
