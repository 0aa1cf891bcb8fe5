"""Every kind of page, and every screen of the studio, of data whose texts, labels, columns, files
and folders hold markup: no script of theirs runs, no request leaves, nothing serious is found by
axe-core, both themes have contrast and a phone is wide enough.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import torch
from conftest import AXE, StudioTab, Watched
from hostile_runs import IMAGE, LINK, NAME, QUOTED, RUNS, SCRIPT, text
from readable import faults_of
from studio_server import running

from regard.cli.look import live_page, page_of, step_page, strip_page
from regard.inspection import inspect_data
from regard.lab.distance import SMALL, report
from regard.lab.experiment import Proportion
from regard.look.data_page import data_page
from regard.look.page import Page
from regard.motif import SearchOptions, search
from regard.motif.page import motif_page
from regard.recipe import DataRecipe
from regard.tasks import LookRequest

pytestmark = pytest.mark.browser
INJECTED = """() => [...document.querySelectorAll('*')].filter(e =>
    [...e.attributes].some(a => /^on/i.test(a.name)
        || /href|src|action/i.test(a.name) && /^\\s*javascript:/i.test(a.value))
    || e.matches('iframe, object, embed, base, body script[src], img:not([src^="data:"])'))
    .map(e => e.outerHTML.slice(0, 200))"""
TOUCH = """() => [...document.querySelectorAll(
    'canvas, circle, .token, .node, .has-tip, .track, .thumb, td')].slice(0, 300).forEach(e => {
    const { x, y, width, height } = e.getBoundingClientRect();
    const place = { bubbles: true, clientX: x + width / 2, clientY: y + height / 2 };
    for (const type of ['pointerenter', 'pointermove', 'mousemove', 'focusin'])
        e.dispatchEvent(new PointerEvent(type, place));
})"""
SERIOUS = """() => axe.run().then(({ violations }) => violations
    .filter(one => ['serious', 'critical'].includes(one.impact))
    .flatMap(one => one.nodes.map(node => `${one.id}: ${node.html.slice(0, 200)}`)))"""

Maker = Callable[["Runs"], Page]


class Runs:
    """The hostile runs, each trained when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Path] = {}

    def __getitem__(self, name: str) -> Path:
        if name not in self.made:
            place = self.folder / name
            place.mkdir()
            self.made[name] = RUNS[name](place)
        return self.made[name]


def look(name: str, words: str = "", **options: str) -> Maker:
    return lambda runs: page_of(runs[name], LookRequest(text=words, **options), prior=False)


def steps(name: str, words: str = "") -> Maker:
    return lambda runs: step_page(runs[name], LookRequest(text=words), 0)


def live(name: str, words: str = "") -> Maker:
    return lambda runs: live_page(runs[name], words, {})


def data(name: str, task: str = "", **columns: str) -> Maker:
    """The page about the file that a run was trained on."""

    def make(runs: Runs) -> Page:
        runs[name]
        files = [path for path in (runs.folder / name).iterdir() if path.is_file()]
        recipe = DataRecipe(train=tuple(map(str, files)), **columns)
        return data_page(inspect_data(recipe, task), [path.name for path in files])

    return make


def prior(runs: Runs) -> Page:
    return page_of(runs["counts"], LookRequest(text="one two"), prior=True)


def strip(runs: Runs) -> Page | None:
    return strip_page(runs["compared"], LookRequest(text=text(500)))


def motif(runs: Runs) -> Page:
    runs["dna"]
    first, second = sorted((runs.folder / "dna").glob("*.fa"))
    return motif_page(
        search(first, SearchOptions(orders=(0,), background=second, minutes=0), print)
    )


def lab(runs: Runs) -> Page:
    accuracies = {
        name: {d: [Proportion(900 - d, 1000)] for d in SMALL.lessons.distances}
        for name in SMALL.models
    }
    return report(SMALL, accuracies, 0).page()


PAGES: dict[str, Maker] = {
    "look, counts": look("counts", text(500)),
    "look, language model": look("language", text(500)),
    "look, masked": look("masked", f"{text(500)} <mask>"),
    "look, vectors": look("vectors"),
    "look, label": look("label", text(500), target=SCRIPT),
    "look, fitted": look("fitted", text(500)),
    "look, labels": look("labels", text(500)),
    "look, value": look("value", text(500)),
    "look, position-label": look("position_label", "<a>&<a>"),
    "look, translation": look("target", text(500)),
    "look, dna": look("dna"),
    "look, molecules": look("molecules"),
    "look, images": look("images"),
    "look, captions": look("captions"),
    "look, matching": look("matching", text(500)),
    "look, points": look("points"),
    "look, series": look("series"),
    "look, forecast": look("forecast"),
    "steps, counts": steps("counts", text(500)),
    "steps, language model": steps("language", text(500)),
    "steps, label": steps("label", text(500)),
    "steps, translation": steps("target", text(500)),
    "steps, images": steps("images"),
    "prior": prior,
    "strip of a comparison": strip,
    "data, language": data("language"),
    "data, label": data("label", target=IMAGE),
    "data, translation": data("target", "target", input=IMAGE, target=SCRIPT),
    "data, images": data("images"),
    "data, forecast": data("forecast", "forecast"),
    "motif": motif,
    "lab": lab,
    "live, counts": live("counts", text(500)),
    "live, language model": live("language", text(500)),
    "live, label": live("label", text(500)),
    "live, images": live("digits"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, rows_here):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Runs(tmp_path_factory.mktemp("hostile"))
    torch.set_num_threads(threads)


@pytest.fixture
def tab(chromium):
    """A tab that keeps what goes wrong in it."""
    context = chromium.new_context(viewport={"width": 1100, "height": 800}, offline=True)
    watched = Watched(context.new_page())
    watched.watch()
    yield watched
    context.close()


def faults(watched):
    """Return everything that is wrong with the page that is open."""
    page = watched.page
    page.evaluate(TOUCH)
    watched.settle()
    page.evaluate(AXE.read_text())
    serious = page.evaluate(SERIOUS)
    found = faults_of(watched)
    page.emulate_media(color_scheme="dark")
    phone = [f"dark, on a phone: {one}" for one in page.evaluate(SERIOUS)]
    return [*watched.errors, *page.evaluate(INJECTED), *serious, *found, *phone]


OFTEN = {  # the others by `make slow`
    "look, language model",
    "look, label",
    "look, images",
    "look, translation",
    "steps, language model",
    "strip of a comparison",
    "data, label",
    "live, language model",
}
SELDOM = [pytest.param(name, marks=pytest.mark.slow) for name in PAGES if name not in OFTEN]


@pytest.mark.parametrize("name", [*sorted(OFTEN), *SELDOM])
def test_a_page(name, runs, tab, tmp_path):
    check(tab, PAGES[name](runs).write(tmp_path / f"{NAME}.html"))


@pytest.mark.parametrize(
    "name", ["compared", pytest.param("compared_labels", marks=pytest.mark.slow)]
)
def test_the_page_of_a_comparison(name, runs, tab):
    check(tab, runs[name] / "compare.html")


def check(tab, path):
    """Open a page; nothing must be wrong with it, and nothing must leave it."""
    page = tab.open(path)
    assert page.locator(".undrawn").count() == 0
    assert faults(tab) == []
    assert {url for url in tab.requests if not url.startswith(("data:", "blob:"))} == {page.url}


QUOTED_TEXT = quote(text(500))
SCREENS = {  # a screen, a run, what else the address says, and what is there once it is drawn
    "runs": ("runs", "label", "", ".card table"),
    "runs, curves": ("runs", "language", "&chosen={chosen}", ".component.lines svg path"),
    "data": ("data", "label", "", "article .component table"),
    "data, records": ("data", "label", f"&view=records&text={quote(IMAGE)}", "td.record"),
    "read, language model": ("read", "language", f"&text={QUOTED_TEXT}", "[data-p]"),
    "read, masked": ("read", "masked", f"&text={QUOTED_TEXT}", "[data-p]"),
    "read, label": ("read", "label", "&record=0", ".component.answer"),
    "read, position-label": ("read", "position_label", "&record=1", ".component.heatmap canvas"),
    "read, translation": ("read", "target", "&record=0", "[data-p]"),
    "read, images": ("read", "images", "&record=0", ".image-maps canvas"),
    "step": ("step", "language", f"&text={QUOTED_TEXT}", ".stepper"),
    "compare, models": (
        "compare",
        "language",
        f"&text={QUOTED_TEXT}&other={{counts}}",
        "text=bits in all",
    ),
    "compare, rows": ("compare", "compared", f"&text={QUOTED_TEXT}", ".surprise"),
    "errors, label": ("errors", "label", "&text=javascript", ".slices"),
    "errors, value": ("errors", "value", "", ".slices"),
    "embeddings, label": ("embeddings", "label", "&point=0", ".near li"),
    "embeddings, vectors": ("embeddings", "vectors", "", ".plane canvas"),
    "play, language model": ("play", "language", f"&text={QUOTED_TEXT}", ".samples li"),
    "play, beams": ("play", "language", "&mode=beam&text=one", ".beam-tree svg"),
    "play, translation": ("play", "target", f"&text={QUOTED_TEXT}", ".ribbons path"),
    "play, masked": ("play", "masked", f"&text={QUOTED_TEXT} <mask>", ".filters, .expected-list"),
    "play, forecast": ("play", "forecast", "", ".component svg"),
    "train": ("train", "label", "&files={file}&target={column}", ".command code"),
    "lectures": ("lectures", "label", "", "td button"),
    "an error": ("read", "unknown", "", "[role=alert]"),
}


RARE_SCREENS = {  # by `make slow`
    "runs, curves",
    "data",
    "read, masked",
    "read, position-label",
    "compare, models",
    "errors, value",
    "embeddings, vectors",
    "play, beams",
    "play, masked",
    "play, forecast",
}


@pytest.fixture(scope="module")
def studio(runs):
    pytest.importorskip("starlette")
    for name in ("counts", "label"):
        runs[name]
    with running(runs.folder / "runs", runs.folder) as studio:
        yield studio


@pytest.fixture(scope="module")
def signed_in(chromium, studio):
    """A tab of the studio that all screens are opened in."""
    context = chromium.new_context(viewport={"width": 1100, "height": 800})
    tab = StudioTab(context.new_page(), studio=studio)
    tab.watch()
    tab.page.goto(studio.link())
    tab.page.wait_for_selector("main h1")
    yield tab
    context.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in RARE_SCREENS else ())
        for name in SCREENS
    ],
)
def test_a_screen_of_the_studio(name, signed_in, runs):
    screen, run, more, ready = SCREENS[name]
    if run in RUNS:
        runs[run]
    page = signed_in.page
    page.set_viewport_size({"width": 1100, "height": 800})
    page.emulate_media(color_scheme="light")
    signed_in.errors.clear()
    signed_in.requests.clear()
    named = {one: quote(f"{one}{NAME}") for one in (run, "counts")}
    named["chosen"] = quote(json.dumps([f"{run}{NAME}", f"label{NAME}"]))
    named |= {"file": quote(f"label/{NAME}.csv"), "column": quote(IMAGE)}
    signed_in.show(f"{screen}?run={named[run]}{more.format(**named)}")
    page.wait_for_selector(ready, state="attached")
    signed_in.rest()
    assert bool(page.locator("main [role=alert]").count()) == (name == "an error")
    assert faults(signed_in) == []
    home = f"http://{signed_in.studio.host}/"
    assert [one for one in signed_in.requests if not one.startswith((home, "data:", "blob:"))] == []


def test_what_markup_would_become_is_found(tab):
    """The check itself: each kind of markup in our data, written as HTML, is noticed."""
    tab.page.set_content(f"<title>t</title><body>{IMAGE}{QUOTED}<a href='{LINK}'>a</a>")
    found = " ".join(tab.page.evaluate(INJECTED))
    assert "<img" in found and "<svg" in found and LINK in found
    tab.page.wait_for_timeout(50)
    assert {"1", "3"} <= set(tab.errors)  # what it showed in dialogs
