"""The screens Read and Compare in a browser: what they show is what Python computes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("starlette")
from studio_page import serving

import regard
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.look.activation_search import open_index
from regard.pipelines import load
from regard.training.film import Film

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
NAMES = ["ada", "bea", "cleo", "dora", "emma", "fay", "gina", "hope", "ida", "june"]
HEADS = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16}
SMALL = {"n_layers": 2, "d_model": 32, "max_len": 64, "dropout": 0.0, **HEADS}
LONG = "adabeacleodoraemmafayginahopeidajune" + "juneidahopeginafayem"  # fits in the context
FRAMES = """() => new Promise(done => {
    const [box, times] = [document.querySelector('.editor'), []];
    const step = (now) => {
        times.push(now);
        box.scrollTop += 40;
        times.length < 61 ? requestAnimationFrame(step) : done(60000 / (times[60] - times[0]));
    };
    requestAnimationFrame(step);
})"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A language model of names, and one of running text with a long held-out document."""
    folder = tmp_path_factory.mktemp("reading")
    names, book, held_out = (folder / name for name in ("names.txt", "book.txt", "held_out.txt"))
    names.write_text("\n".join(a + b for a in NAMES for b in NAMES) + "\n")
    line = " ".join(NAMES) + ".\n"
    book.write_text(line * 200)
    held_out.write_text(line * 1200)  # 55,200 characters
    model = {"name": "transformer", **SMALL}
    steps = {"steps": 10, "batch_tokens": 512}
    regard.train(names, folder / "runs" / "names", model=model, train=steps, seed=1, progress=False)
    options = {"tokenizer": "characters", "data": {"format": "text"}, "progress": False}
    regard.train(
        book, folder / "runs" / "book", model="bigram", valid=book, test=held_out, **options
    )
    table = folder / "kinds.csv"
    rows = [f"{a}{b},{'early' if a < 'e' else 'late'}" for a in NAMES for b in NAMES]
    table.write_text("\n".join(["name,kind", *rows]) + "\n")
    filmed = steps | {"steps": 12, "eval_every": 4, "film": True}
    options = {"target": "kind", "train": filmed, "seed": 1, "progress": False}
    regard.train(table, folder / "runs" / "kinds", model=model, **options)
    options = {"task": "masked", "train": steps | {"film": True}, "seed": 1, "progress": False}
    regard.train(names, folder / "runs" / "masked", model=model, **options)
    return folder / "runs"


@pytest.fixture(scope="module")
def address(runs):
    """A studio over these runs: a function that returns a link."""
    with serving(runs) as sessions:
        yield sessions.link


@pytest.fixture(scope="module")
def context(chromium, address):
    """A browser that is signed in."""
    context = chromium.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    page.goto(address())
    page.wait_for_selector("nav")
    yield context
    context.close()


@pytest.fixture
def tab(context, address):
    """A tab of it; nothing may go wrong in it."""
    page, errors = context.new_page(), []
    page.on("console", lambda m: m.type == "error" and errors.append(m.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.root = address().partition("#")[0]
    yield page
    page.close()
    assert errors == []


def visit(tab, screen, ready="[data-bits]:not([data-bits=''])", **state):
    query = "&".join(f"{key}={value}" for key, value in state.items())
    tab.goto(f"{tab.root}#/{screen}?{query}")
    tab.wait_for_selector(ready)
    return tab


STATE = """() => {
    const [all, one] = [s => [...document.querySelectorAll(s)], s => document.querySelector(s)];
    const numbers = (e, names) => names.map(name => Number(e.dataset[name]));
    return {
        at: Number(one('[data-at]').dataset.at),
        bits: Number(one('[data-bits]').dataset.bits),
        p: Object.fromEntries(all('[data-p]').map(e => [e.dataset.token, Number(e.dataset.p)])),
        weights: all('[data-column]').map(e => numbers(e, ['column', 'weight'])),
    };
}"""
PAGE_IN_VIEW = """() => {
    const top = document.querySelector('.editor').getBoundingClientRect().top;
    const boxes = [...document.querySelectorAll('.editor .box')];
    boxes.find(box => box.getBoundingClientRect().top > top).id = 'seen';
}"""
COLOURED = """() => [...CSS.highlights].filter(([name]) => name.startsWith('bits'))
    .reduce((count, [, highlight]) => count + highlight.size, 0)"""
SERIOUS = """() => axe.run().then(found => found.violations
    .filter(one => ['serious', 'critical'].includes(one.impact))
    .map(one => `${one.id}: ${one.nodes[0].html}`))"""


def shown(tab):
    """Return what the page says of the position: bits, probabilities and weights."""
    tab.wait_for_function("() => !document.querySelector('.reads, .busy')")
    return tab.evaluate(STATE)


def test_numbers_at_fifty_places_are_those_of_python(tab, runs):
    pipeline, layer = load(runs / "names"), "block.1.attention"
    visit(tab, "read", run="names", text=LONG, at=0, layer=layer, head=1)
    tab.wait_for_selector("[data-p]")
    tap = Tap([f"{layer}.weights"])
    with torch.inference_mode():
        row = torch.tensor([pipeline.prompt_ids(LONG)])
        probabilities = pipeline.model.logits(row, tap=tap)[0].softmax(-1)
    weights = tap.activations[f"{layer}.weights"][0, 1]
    bits = np.array(pipeline.score(LONG)[1]) / -math.log(2)
    names = [pipeline.tokenizer.text(i) for i in range(pipeline.model.vocab_size)]
    tab.click(".editor .box")
    tab.keyboard.press("Control+Home")
    for at in range(50):
        tab.wait_for_selector(f"[data-at='{at}']")
        for part in ("ul", ".readout"):  # the answers for this position
            tab.wait_for_selector(f"{part}[data-of='{at}']")
        page = shown(tab)
        assert page["bits"] == pytest.approx(bits[at], abs=1e-4)
        assert len(page["p"]) == min(20, len(names))
        for name, p in page["p"].items():
            assert p == pytest.approx(float(probabilities[at, names.index(name)]), abs=1e-4)
        for column, weight in page["weights"]:
            assert weight == pytest.approx(float(weights[at, column]), abs=1e-4)
        tab.keyboard.press("ArrowRight")


def test_typing_redraws_and_a_click_inserts(tab, runs):
    pipeline = load(runs / "names")
    visit(tab, "read", run="names", text="ad")
    tab.click(".editor .box")
    tab.keyboard.press("Control+End")
    tab.keyboard.type("abea")
    tab.wait_for_selector("[data-at='6']")
    expected = -pipeline.score("adabea")[1][-1] / math.log(2)
    assert shown(tab)["bits"] == pytest.approx(expected, abs=1e-4)
    assert "text=adabea" in tab.url
    assert tab.evaluate(COLOURED) == 6
    tab.click("button[title='insert it here']:not([disabled])")
    tab.wait_for_selector("[data-at='7']")
    assert len(tab.text_content(".editor .box")) == 7


def test_a_line_break_is_one_symbol(tab):
    visit(tab, "read", run="book", text="ada.")
    tab.click(".editor .box")
    tab.keyboard.press("Control+End")
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => location.hash.includes('text=ada.%0A&')")
    tab.keyboard.type("b")
    tab.wait_for_function("() => location.hash.includes('text=ada.%0Ab&')")
    assert shown(tab)["at"] == 6


def test_a_head_that_is_off_changes_what_is_read(tab, runs):
    pipeline = load(runs / "names")
    visit(tab, "read", run="names", text="adabea", at=3)
    before = tab.get_attribute("[data-bits]", "data-bits")
    tab.get_by_label("layer 1, head 1", exact=True).uncheck()
    tab.wait_for_selector(f"[data-at]:not([data-bits='{before}'])")
    edit = Edit.zero("block.0.attention.heads", (slice(None), 0))
    with torch.inference_mode():
        row = torch.tensor([pipeline.prompt_ids("adabea")])
        logits = pipeline.model.logits(row, tap=Tap(edits=[edit]))[0, 3]
    token = int(pipeline.tokenizer.encode("b")[0])
    expected = -float(logits.log_softmax(-1)[token]) / math.log(2)
    assert shown(tab)["bits"] == pytest.approx(expected, abs=1e-4)
    tab.get_by_text("What is each head worth?").click()
    tab.wait_for_selector("[data-effect]")
    tab.get_by_text("After each block").click()
    tab.wait_for_selector("[data-lens]")
    last = float(tab.locator("[data-lens]").last.get_attribute("data-lens"))
    whole = -pipeline.score("adabea")[1][3] / math.log(2)  # of the model with all its heads
    assert last == pytest.approx(whole, abs=1e-4)


def masked_bits(pipeline, text, at, token, edits=()):
    """Return the bits of a token in place of a masked one."""
    tokenizer = pipeline.tokenizer
    ids = torch.tensor([[tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end]])
    ids[0, at + 1] = tokenizer.mask
    with torch.inference_mode():
        logits = pipeline.model(Inputs(ids, torch.ones_like(ids)), tap=Tap(edits=edits))
    return -float(logits[0, at + 1].log_softmax(-1)[token]) / math.log(2)


def test_heads_of_a_masked_model_are_worth_something_to_a_masked_token(tab, runs):
    pipeline = load(runs / "masked")
    visit(tab, "read", run="masked", text="adabea", at=3)
    token = int(pipeline.tokenizer.encode("b")[0])
    edit = Edit.zero("block.1.attention.heads", (slice(None), 1))
    whole = masked_bits(pipeline, "adabea", 3, token)
    without = masked_bits(pipeline, "adabea", 3, token, [edit])
    tab.get_by_text("What is each head worth?").click()
    tab.wait_for_selector("[data-effect]")
    shown = tab.get_attribute("[data-head='block.1.attention:1']", "data-effect")
    assert float(shown) == pytest.approx(whole - without, abs=1e-5)
    before = tab.get_attribute("[data-bits]", "data-bits")
    tab.get_by_label("layer 2, head 2", exact=True).uncheck()
    tab.wait_for_selector(f"[data-at]:not([data-bits='{before}'])")
    assert float(tab.get_attribute("[data-bits]", "data-bits")) == pytest.approx(without, abs=1e-4)
    tab.get_by_text("After each block").click()
    tab.wait_for_selector("[data-lens]")
    last = float(tab.locator("[data-lens]").last.get_attribute("data-lens"))
    assert last == pytest.approx(whole, abs=1e-4)


def test_a_mask_is_called_one(tab):
    visit(tab, "read", ready="[data-p]", run="masked", text="ada%3Cmask%3Eea", at=3)
    tab.get_by_text("What is each head worth?").click()
    tab.wait_for_selector("[data-effect]")
    tab.get_by_text("what it expects most here").first.wait_for()
    assert "<mask> (4)" in tab.text_content(".reading-text .readout")


def test_a_long_record_scrolls(tab):
    visit(tab, "read", run="book", record=0)
    assert tab.evaluate("document.querySelectorAll('.editor .page').length") > 20
    tab.wait_for_selector("text=50,000 tokens")
    assert tab.evaluate(FRAMES) >= 20  # on a busy machine; 60 on an idle one
    tab.evaluate("document.querySelector('.editor').scrollTop = 5000")
    tab.wait_for_timeout(300)
    tab.evaluate(PAGE_IN_VIEW)
    tab.click("#seen")
    tab.wait_for_function("() => Number(document.querySelector('[data-at]').dataset.at) > 1000")
    assert shown(tab)["bits"] >= 0  # read, too


def test_the_map_is_read_by_keyboard(tab, runs):
    pipeline, layer = load(runs / "names"), "block.0.attention"
    visit(
        tab,
        "read",
        ready=".tile-map",
        run="names",
        text="adabea",
        at=4,
        view="map",
        layer=layer,
        head=0,
    )
    tab.wait_for_selector("[data-cell='4,0']")
    tab.focus(".tile-map")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_selector("[data-cell='4,1']:not([data-weight='NaN'])")
    tap = Tap([f"{layer}.weights"])
    with torch.inference_mode():
        pipeline.model.logits(torch.tensor([pipeline.prompt_ids("adabea")]), tap=tap)
    weight = float(tab.get_attribute("[data-cell]", "data-weight"))
    assert weight == pytest.approx(float(tap.activations[f"{layer}.weights"][0, 0, 4, 1]), abs=1e-4)


PLACES = "() => document.querySelector('.film-map .plane').plane.places()"


def places(tab, points, everything):
    """Return how points (R, 2) lie on the page, if those of all frames fill the map."""
    width, height = tab.evaluate("""() => {
        const { clientWidth, clientHeight } = document.querySelector('.film-map canvas');
        return [clientWidth, clientHeight];
    }""")
    low, high = everything.min(0), everything.max(0)
    scale = 0.92 * min(width, height) / (high - low).max()
    x, y = (scale * (points - (low + high) / 2)).T
    return np.stack([width / 2 + x, height / 2 - y], 1)


def test_the_film_moves_records_and_shows_heads(tab, runs):
    film = Film.open(runs / "kinds")
    points = film.points.numpy()
    visit(tab, "read", ready=".film-map .plane canvas", run="kinds", text="adabea")
    slider = tab.get_by_role("slider", name="Step")
    for frame in (3, 2, 0):
        slider.focus()
        while tab.get_attribute("[data-shown]", "data-shown") != str(frame):
            tab.keyboard.press("ArrowLeft")
        tab.wait_for_timeout(600)  # until they are there
        expected = places(tab, points[frame], points.reshape(-1, 2))
        np.testing.assert_allclose(tab.evaluate(PLACES), expected, atol=0.5)
        bits = film.attention["block.1.attention"][frame, 1, 0]
        cell = tab.locator("[data-head-film='block.1.attention:1']")
        assert float(cell.get_attribute("data-value")) == pytest.approx(float(bits), abs=1e-4)
        shown = [float(e.get_attribute("data-film")) for e in tab.locator("[data-film]").all()]
        assert shown == pytest.approx([p for _, p in film.probabilities(frame, 0)], abs=1e-5)
    tab.focus(".film-map canvas")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => document.querySelector('.film-map .plane').plane.seen().chosen")
    tab.get_by_label("What a head does").select_option("previous")
    weight = film.attention["block.0.attention"][0, 1, 3]
    cell = tab.locator("[data-head-film='block.0.attention:1']")
    assert float(cell.get_attribute("data-value")) == pytest.approx(float(weight), abs=1e-4)
    cell.click()
    tab.wait_for_function("() => location.hash.includes('layer=block.0.attention&')")
    tab.get_by_role("button", name="Play").click()
    tab.wait_for_selector("[data-shown='3']")


def test_a_film_does_not_glide_where_motion_is_unwanted(tab):
    tab.emulate_media(reduced_motion="reduce")
    visit(tab, "read", ready=".film-map .plane canvas", run="kinds", text="adabea")
    before = tab.evaluate(PLACES)
    tab.get_by_role("slider", name="Step").focus()
    tab.keyboard.press("Home")
    tab.wait_for_selector("[data-shown='0']")
    frames = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
        requestAnimationFrame(() => done(document.querySelector('.film-map .plane').plane.places())
    ))))"""
    jumped = tab.evaluate(frames)
    tab.wait_for_timeout(500)
    assert jumped == tab.evaluate(PLACES) != before


def test_a_search_lists_what_excites_a_unit_and_opens_it(tab, runs):
    visit(tab, "read", run="names", text="adabea")
    tab.get_by_text("Which records excite a unit").click()
    part = tab.get_by_label("Layer and part")
    part.select_option("block.1.feedforward.hidden")
    tab.get_by_label("next unit").click()
    tab.get_by_role("button", name="Search the training data").click()
    tab.wait_for_selector("[data-record]", timeout=60_000)
    index = open_index(load(runs / "names"), "block.1.feedforward.hidden")
    rows = """rows => rows.map(row => ['record', 'position', 'value'].map(k => row.dataset[k]))"""
    for unit in (1, 0):
        shown = [list(map(float, row)) for row in tab.eval_on_selector_all("[data-record]", rows)]
        found = [[one.record, one.position, one.value] for one in index.search(unit)]
        np.testing.assert_allclose(shown, found, atol=1e-6)
        if unit:  # the index is there: the next unit needs no job
            tab.get_by_label("previous unit").click()
            best = index.search(0, 1)[0].value
            tab.wait_for_selector(f"[data-record][data-value='{best}']")
    best = index.search(0, 1)[0]
    tab.get_by_role("button", name=f"read record {best.record + 1} at").first.click()
    tab.wait_for_selector(f"[data-at='{best.position - 1}']")  # <S> is not shown
    text = index.tokenizer.decode_record(index.record(best.record))
    assert f"text={text}&" in tab.url + "&"


def test_two_models_side_by_side(tab):
    visit(tab, "compare", ready=".sides .surprise", run="names", other="book", text="ada")
    tab.wait_for_selector("text=bits in all")
    assert tab.locator(".sides > section").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_screens_fit_a_phone_and_can_be_heard(context, tab, scheme):
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    shown = (("read", "names", "[data-p]"), ("compare", "names", ".sides .surprise"))
    for screen, run, ready in (
        *shown,
        ("read", "kinds", ".head-film"),
        ("read", "masked", ".head-film"),
    ):
        visit(tab, screen, ready=ready, run=run, text="adabea")
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        tab.evaluate(AXE.read_text())
        assert tab.evaluate(SERIOUS) == []
