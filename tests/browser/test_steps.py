"""The step-through in headless Chromium: the numbers on the screen are Python's, and every number
is what its terms give; keys, sliders, phones.
"""

from __future__ import annotations

import numpy as np
import pytest
from step_models import STEP_MODELS

from regard.decoding.sampling import Sample
from regard.look.page import Page
from regard.look.steps import trace_steps
from regard.look.steps.operations import KeepTopK, KeepTopP, Scale, Softmax, Temper
from regard.look.steps.page import StepThrough, steps_page
from regard.look.steps.stages import StepTrace, Tracer

pytestmark = pytest.mark.browser

FAMILIES = (
    "decoder",
    "lstm",
    "gru",
    "hyena",
    "kneser-ney",
    "hmm",
    "encoder–decoder",
    "vit, rotary positions",
    "points",
    "series",
    "forecaster",
    "pixels",
    "statistics of molecules",
    "coulomb",
    "statistics of series",
    "rocket",
    "statistics of steps",
    "masked series",
    "cca",
    "contrastive images",
    "cbow",
    "skipgram",
    "ibm1",
    "nearest caption",
    "majority",
    "pwm",
    "markov",
    "naive bayes",
    "logistic of weighted counts",
    "logistic of windows",
    "cnn classifier",
    "cnn over series",
    "cnn over images",
    "seasonal naive",
    "drift with quantiles",
    "smoothing",
    "ridge on lags",
    "boosting",
    "nlinear",
    "dlinear",
)
PLACES = 50  # of each family, drawn at random
READ = """places => places.map(([stage, place]) => {
    document.querySelector('.stepper').steps.goTo(stage, place);
    return [document.querySelector('.number-box output').textContent,
            document.querySelector('.number-box h4').textContent];
})"""
# The value that the terms of every number give, beside the number itself.
EXPLAINED = """() => {
    const { stages, explain } = document.querySelector('.stepper').steps;
    return stages.flatMap(stage => {
        const size = stage.shape.reduce((a, b) => a * b, 1), found = [];
        for (let i = 0; i < size; i += Math.max(1, Math.floor(size / 12))) {
            const made = explain(stage, i);
            if (made) found.push([String(stage.get(i)), String(made.value), stage.title]);
        }
        return found;
    });
}"""


def number(text):
    return float(text.replace("−", "-").replace("∞", "inf").replace("missing", "nan"))


@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_on_the_screen_are_those_of_python(name, tmp_path, browser_page):
    pipeline = STEP_MODELS[name]()
    position = min(3, len(trace_steps(pipeline).tokens))
    trace = trace_steps(pipeline, position=position)
    written = steps_page(pipeline, position=position).write(tmp_path / "steps.html")
    page = browser_page.open(written)
    draw = np.random.default_rng(0)
    shown = [i for i, stage in enumerate(trace.stages) if stage.shown]
    places = []
    for i in draw.choice(shown, PLACES):
        places.append([int(i), int(draw.integers(trace.stages[i].values.size))])
    for (i, place), (text, title) in zip(places, page.evaluate(READ, places), strict=True):
        stage, expected = trace.stages[i], trace.stages[i].values.flatten()[place]
        assert title.startswith(stage.title)
        np.testing.assert_allclose(number(text), expected, atol=1e-4, err_msg=stage.where)
    explained = page.evaluate(EXPLAINED)
    made = [stage.values.size for stage in trace.stages if stage.inputs]
    assert len(explained) >= min(50, sum(min(size, 12) for size in made))
    for value, made, title in explained:
        if value != "NaN" and made != "NaN":  # rows that no number on the page needs
            got, terms = (float(x.replace("Infinity", "inf")) for x in (value, made))
            np.testing.assert_allclose(terms, got, atol=1e-4, rtol=1e-5, err_msg=title)
    assert browser_page.errors == [] and len(browser_page.requests) == 1


@pytest.fixture
def stepper(tmp_path, browser_page):
    page = browser_page.open(steps_page(STEP_MODELS["decoder"]()).write(tmp_path / "steps.html"))
    page.locator(".stepper").focus()
    return page


def where(page):
    return page.locator(".controls output").first.text_content()


def test_keys_step_zoom_and_play(stepper, browser_page):
    page, press = stepper, stepper.keyboard.press
    assert where(page) == "part 1 of 15"
    press("ArrowRight")
    assert where(page) == "part 2 of 15"
    press("ArrowUp")
    assert where(page) == "block 2 of 5"
    for _ in range(3):
        press("ArrowDown")
    assert where(page) == "number 1 of 12"
    press("ArrowRight")
    assert where(page) == "number 2 of 12"
    assert "number 2 =" in page.locator(".number-box h4").text_content()
    press("ArrowUp")
    press("End")
    assert page.locator(".panel h4.title").text_content().startswith("Sample")
    press("Home")
    assert where(page).startswith("stage 1 of")
    press("ArrowLeft")
    assert where(page).startswith("stage 1 of")  # nothing is before it
    press("Space")
    assert page.get_by_role("button", name="Pause").count() == 1
    press("Space")
    assert page.get_by_role("button", name="Play").count() == 1
    assert browser_page.errors == []


def test_a_number_leads_to_the_numbers_that_it_is_made_of(stepper):
    page = stepper
    page.evaluate(
        "() => { const s = document.querySelector('.stepper').steps;"
        " s.goTo(s.stages.findIndex(x => x.title === 'Scores'), 2); }"
    )
    assert "the sum of 4 terms" in page.locator(".total").text_content()
    first = page.locator(".terms button").first
    value = first.text_content()
    first.click()
    assert page.locator(".panel h4.title").text_content().startswith("Query, rotated")
    assert page.locator(".number-box output").text_content() == value
    frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(frame)  # sizes are observed in one frame and drawn in the next
    strip = page.locator(".output canvas")
    strip.focus()
    page.keyboard.press("ArrowRight")
    label = strip.get_attribute("aria-label")
    assert "number" in label and page.locator(".number-box output").text_content() in label


def test_a_stage_is_entered_at_the_class_that_is_predicted(tmp_path, browser_page):
    """The terms of a long sum: the largest first, and what the others add up to."""
    pipeline = STEP_MODELS["naive bayes"]()
    page = browser_page.open(steps_page(pipeline).write(tmp_path / "steps.html"))
    scores = next(s for s in trace_steps(pipeline).stages if s.title == "Scores")
    page.locator(".toggle button", has_text="stages").click()
    page.locator(".stepper select").select_option(label="Output")
    best = scores.columns[int(scores.values.argmax())]
    assert page.locator(".number-box h4").text_content().startswith(f"Scores, {best} (")
    shown = [number(x) for x in page.locator(".terms td.right").all_text_contents()]
    features, weights, bias = (x.values for x in scores.inputs)
    row = int(scores.values.argmax())
    terms = sorted([*(features * weights[row]), bias[row]], key=abs, reverse=True)
    np.testing.assert_allclose(np.abs(shown), np.abs(terms[:12]), atol=1e-5)
    total = page.locator(".total").text_content()
    rest = sum(terms) - sum(shown)
    assert f"the {len(terms) - 12} that are not listed add up to" in total
    found = number(total.split("add up to ")[1].split("show")[0])
    assert abs(found - rest) < 1e-3


def test_sliders_recompute_the_sample(stepper):
    """Against NumPy's stages, and against what decoding itself would draw."""
    page = stepper
    stages = trace_steps(STEP_MODELS["decoder"]()).stages
    logits = next(stage for stage in stages if stage.title == "Logits").values
    page.evaluate(
        "() => { const s = document.querySelector('.stepper').steps;"
        " s.goTo(s.stages.findIndex(x => x.title === 'Top-P'), 0); }"
    )
    size = len(logits)
    for name, value in (
        ("temperature", 0.5),
        ("top-K", np.log(5) / np.log(size)),
        ("top-P", 0.8),
        ("random number u", 0.7),
    ):
        page.locator(f"input[data-name='{name}']").evaluate(
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", float(value)
        )
    p = Softmax().compute(Temper(0.5).compute(logits))
    p = KeepTopP(0.8).compute(KeepTopK(5).compute(p))
    found = page.evaluate(
        "() => { const s = document.querySelector('.stepper').steps.stages.find(x => x.title === "
        "'Top-P'); return s.live; }"
    )
    np.testing.assert_allclose(found, p, atol=1e-6)
    token = STEP_MODELS["decoder"]().tokenizer.text(int(np.argmax(np.cumsum(p) > 0.7)))
    assert page.locator(".drawn strong").text_content() == token
    assert Sample(temperature=0.5, top_k=5, top_p=0.8).top_k == 5


def test_a_long_vector_takes_several_lines(tmp_path, browser_page):
    """Every cell can be pointed at, on a phone too, and the largest numbers are named."""
    names, values = [f"token {i}" for i in range(2000)], np.arange(2000.0)[::-1]
    t = Tracer(StepTrace(["a"], 0), {})
    with t.level("Output") as inner:
        inner.step("Logits", Scale(2.0), inner.given("x", values), columns=names)
    page = Page("steps")
    page.add(StepThrough(t.trace))
    opened = browser_page.open(page.write(tmp_path / "steps.html"))
    opened.set_viewport_size({"width": 390, "height": 800})
    opened.locator(".toggle button", has_text="stages").click()
    browser_page.settle()
    assert "largest: token 0 3998" in opened.locator(".output .line").text_content()
    strip = opened.locator(".output canvas")
    box = strip.bounding_box()
    assert box["width"] <= 390 and box["height"] > 20
    strip.hover(position={"x": 1, "y": 1})
    assert opened.locator(".number-box output").text_content() == "3998"
    strip.focus()
    opened.keyboard.press("ArrowDown")  # to the next line, some hundred numbers on
    assert number(opened.locator(".number-box output").text_content()) < 3900


def test_markup_in_names_stays_text(tmp_path, browser_page):
    trace = trace_steps(STEP_MODELS["decoder"]())
    trace.tokens = ["<img src=x onerror=alert(1)>"] * len(trace.tokens)
    page = Page("steps")
    page.add(StepThrough(trace))
    opened = browser_page.open(page.write(tmp_path / "steps.html"))
    assert opened.locator(".tokens").text_content().startswith("<img")
    assert browser_page.errors == [] and opened.locator("img").count() == 0
