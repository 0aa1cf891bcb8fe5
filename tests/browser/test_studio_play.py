"""The studio's screens Play, Errors and Embeddings in Chromium: numbers are those of Python, cells
open their records, a lasso selects, and markup stays text.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("starlette")
from studio_page import MARKUP, make_runs, serving

import regard
from regard.decoding import Sample
from regard.look.sampling_steps import sampling_steps

pytestmark = pytest.mark.browser

SCREENS = ["play?run=names", "play?run=pairs", "errors?run=labels", "embeddings?run=labels"]
PLANE = "document.querySelector('.plane').plane"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="module")
def sessions(runs):
    with serving(runs) as sessions:
        yield sessions


@pytest.fixture
def show(browser_page, sessions):
    """Opens a screen by its address, and waits until nothing is loading."""
    browser_page.page.context.set_offline(False)
    browser_page.page.goto(sessions.link())
    browser_page.page.wait_for_selector("main h1")

    def open_screen(address, ready):
        browser_page.page.evaluate("address => (location.hash = '#/' + address)", address)
        browser_page.page.wait_for_selector(ready)
        browser_page.settle()
        return browser_page.page

    yield open_screen
    assert browser_page.errors == []
    outside = [url for url in browser_page.requests if f"127.0.0.1:{sessions.port}/" not in url]
    assert [url for url in outside if not url.startswith(("blob:", "data:"))] == []
    assert browser_page.page.locator("main img").count() == 0  # markup stays text


def until(page, expression, argument=None):
    """Wait until an expression of the page is true: its policy lets Playwright evaluate no text."""
    for _ in range(200):
        if page.evaluate(f"argument => Boolean({expression})", argument):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never true: {expression}; {page.locator('main').text_content()[:400]}")


def shown_numbers(page):
    rows = page.locator(".filters tbody tr")
    values = rows.locator(".after").evaluate_all("cells => cells.map(c => Number(c.dataset.value))")
    return rows.locator("button").all_text_contents(), values


def slide(page, name, value):
    page.get_by_label(re.compile(f"^{name}")).evaluate(
        "(input, value) => { input.value = value;"
        " input.dispatchEvent(new Event('input', { bubbles: true })); }",
        value,
    )


def test_sliders_change_the_distribution_to_the_numbers_of_python(show, runs):
    page = show("play?run=names&text=on", ".filters tbody tr")
    generator = regard.load(runs / "names")
    for temperature, top_p in ((0.5, 1.0), (1.5, 0.7), (1.0, 0.3)):
        slide(page, "Temperature", temperature)
        slide(page, "Top-P", top_p)
        sample = Sample(temperature, 0, top_p, 0)
        prompt = generator.prompt_ids("on")
        ((one,),) = generator.generate_ids([prompt], sample, max_new=40)
        step = sampling_steps(generator, prompt, one.ids, sample)[0]
        expected = generator.continuations("on", sample, copies=4, max_new=40)
        until(
            page,
            "[...document.querySelectorAll('.samples bdi')].every((one, i) =>"
            " one.textContent.replace(/ …$/, '') === argument[i])"
            " && !document.querySelector('.columns.busy')",
            [one.text for one in expected],
        )
        tokens, values = shown_numbers(page)
        assert values == pytest.approx(step.after, abs=1e-4)
        assert len(tokens) == len(step.tokens)


def test_a_sample_is_read_step_by_step_and_a_token_can_be_chosen(show):
    page = show("play?run=names&text=on", ".filters tbody tr")
    whole = page.locator(".samples bdi").first.text_content()
    assert page.locator(".line").text_content().startswith("on")
    page.get_by_role("button", name="next token").click()
    until(page, "document.querySelector('.line').textContent.length === 4")
    assert whole.startswith(page.locator(".line").text_content().rstrip("▏"))
    token = page.locator(".filters tbody tr:not(.drawn):not(.cut) th button").first
    name = token.text_content()
    token.click()
    until(
        page, "document.querySelector('.samples bdi b').textContent === argument", whole[:3] + name
    )
    page.get_by_role("button", name=re.compile("take back")).click()
    until(page, "document.querySelector('.samples bdi b').textContent === argument", whole[:3])


def test_a_tree_grows(show):
    page = show("play?run=names&mode=beam&text=on", ".beam-tree svg .node")
    nodes = page.locator(".beam-tree svg .node")
    full = nodes.count()
    page.get_by_role("button", name="start").click()
    until(page, "document.querySelectorAll('.beam-tree .node').length < argument", full)
    first = nodes.count()
    page.get_by_role("button", name="next step").click()
    until(page, "document.querySelectorAll('.beam-tree .node').length > argument", first)
    page.get_by_role("button", name="all").click()
    until(page, "document.querySelectorAll('.beam-tree .node').length === argument", full)
    assert first < nodes.count() == full


def test_a_beginning_is_kept_and_another_token_leads_on(show):
    page = show("play?run=pairs&text=one+two", ".words button")
    page.get_by_label(re.compile("^Beginning")).fill("drei")
    until(page, "document.querySelector('.target').textContent.startsWith('drei')")
    assert page.locator(".words .given").count() > 0
    place = page.locator(".words .given").count()
    page.locator(".words button").nth(place).click()
    other = page.locator(".others button").nth(1)
    name = other.text_content().rsplit(" ", 1)[0].strip()
    other.click()
    until(
        page,
        "document.querySelectorAll('.words button')[argument[0]]?.textContent === argument[1]",
        [place, name],
    )
    assert page.locator(".target").text_content().startswith("drei")
    until(page, "document.querySelector('.ribbons path') !== null")  # drawn in the next frame


def test_cells_open_their_records_and_records_open_in_read(show):
    page = show("errors?run=labels", ".errors tbody tr")
    cells = page.locator(".matrix button")
    counts = [int(text or 0) for text in cells.all_text_contents()]
    assert len(counts) == 4 and sum(counts) > 0
    for i in np.flatnonzero(counts):
        cells.nth(int(i)).click()
        until(
            page,
            "document.querySelector('#records .readout').textContent.startsWith(argument + ' of')",
            counts[i],
        )
        rows = page.locator(".errors tbody tr")
        assert rows.count() == min(counts[i], 25)
        cells.nth(int(i)).click()
    page.get_by_label("Search").fill(MARKUP)
    texts = page.locator(".errors .text")
    until(
        page,
        "[...document.querySelectorAll('.errors .text')].some(one =>"
        " one.textContent.includes(argument))",
        MARKUP,
    )
    assert texts.count() < sum(counts)
    button = page.locator(".errors tbody button").first
    number = int(re.search(r"\d+", button.get_attribute("aria-label"))[0]) - 1
    button.click()
    assert page.evaluate("location.hash") == f"#/read?run=labels&record={number}"


def test_losses_have_their_unit_and_an_endless_pattern_is_stopped(show, browser_page):
    page = show("errors?run=labels", ".errors tbody tr")
    assert "loss in bits" in page.locator(".errors thead th").all_inner_texts()
    assert page.get_by_label("Sort by").locator("option").first.inner_text() == "loss in bits"
    before = page.locator(".errors tbody tr").count()
    page.get_by_label("Search").fill("/(?:.|.|.|.)*!!/")  # 4^n ways to read n letters
    page.wait_for_selector("#records [role=alert]:has-text('takes more than 2 seconds')")
    page.get_by_label("Search").fill("")
    page.wait_for_selector("#records [role=alert]", state="detached")
    assert page.locator(".errors tbody tr").count() == before
    refused = [text for text in browser_page.errors if "status of 400" in text]
    assert refused and browser_page.errors == refused  # the console says so, too
    browser_page.errors.clear()
    for name, unit in (("names", "loss in bits per token"), ("pairs", "loss in bits per token")):
        page = show(f"errors?run={name}", ".errors tbody tr")
        assert unit in page.locator(".errors thead th").all_inner_texts()


def test_points_are_chosen_walked_to_circled_and_searched(show):
    page = show("embeddings?run=labels", ".plane canvas")
    box = page.locator(".plane canvas").bounding_box()
    places = np.array(page.evaluate(f"{PLANE}.places()"))
    page.mouse.click(box["x"] + places[0][0], box["y"] + places[0][1])
    page.wait_for_selector(".near li")
    chosen = page.evaluate(f"{PLANE}.seen().chosen")
    assert np.abs(places[chosen] - places[0]).max() < 1  # equal texts are at one place
    middle = np.median(places, axis=0)
    left = [[0, 0], [middle[0], 0], [middle[0], box["height"]], [0, box["height"]]]
    page.get_by_role("button", name="lasso").click()
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.mouse.down()
    for x, y in left[1:]:
        page.mouse.move(box["x"] + x, box["y"] + min(y, box["height"] - 1), steps=4)
    page.mouse.up()
    expected = int((places[:, 0] < middle[0] - 0.5).sum())
    until(page, "document.querySelector('.readout').textContent.includes('selected')")
    selected = int(re.search(r"(\d+) selected", page.locator(".readout").text_content())[1])
    assert abs(selected - expected) <= (np.abs(places[:, 0] - middle[0]) < 1.5).sum()
    with page.expect_download() as download:
        page.get_by_role("button", name="save as CSV").click()
    assert len(download.value.path().read_text().splitlines()) == selected + 1
    page.get_by_label("Search").fill("/^one/")
    until(page, "document.querySelector('.readout').textContent.includes('match')")
    page.locator(".plane canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, f"{PLANE}.seen().chosen !== argument", chosen)


@pytest.mark.parametrize("address", SCREENS)
def test_screens_fit_a_phone_in_the_dark_and_have_no_serious_fault(show, browser_page, address):
    from pathlib import Path

    page = browser_page.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    show(address, ".samples li, .errors tbody tr, .plane canvas")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    axe = Path(__file__).parent / "vendor/axe-core/axe.min.js"
    page.evaluate(axe.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []


CLOUD = """async (dimensions) => {
  const { canvasPlane, seriesColours } = await import("/look.js");
  const points = Float32Array.from({ length: 20000 * dimensions }, () => Math.random());
  const names = Array.from({ length: 20000 }, (_, i) => `record ${i}`);
  const plane = canvasPlane({ points, dimensions, names, circle() {} });
  document.querySelector("main").append(plane.box);
  plane.update({ palette: seriesColours, code: (i) => i % 6 });
  await new Promise((done) => setTimeout(done, 200));
  const times = [];
  for (let k = 0; k < 12; k++) {
    plane.box.plane.view.x = k / 100;
    const start = performance.now();
    plane.box.plane.draw();
    times.push(performance.now() - start);
  }
  const before = plane.box.plane.places()[7];
  const key = new KeyboardEvent("keydown", { key: "ArrowRight", shiftKey: true, bubbles: true });
  plane.box.querySelector("canvas").dispatchEvent(key);
  plane.box.plane.draw();
  return { fastest: Math.min(...times), moved: plane.box.plane.places()[7][0] !== before[0] };
}"""


@pytest.mark.parametrize("dimensions", [2, 3])
def test_twenty_thousand_points_are_drawn_within_a_frame_and_space_turns(show, dimensions):
    page = show("embeddings?run=labels", ".plane canvas")
    drawn = page.evaluate(CLOUD, dimensions)
    assert drawn["fastest"] < 33  # milliseconds, beside other work of the machine
    assert drawn["moved"] == (dimensions == 3)
