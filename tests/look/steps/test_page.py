"""The step-through as data: nothing lost that a page holds, and room for what matters."""

from __future__ import annotations

import base64

import numpy as np
from step_models import STEP_MODELS

from regard.look.steps import trace_steps
from regard.look.steps.operations import Dot
from regard.look.steps.page import StepThrough, kept_rows, steps_page
from regard.look.steps.stages import StepTrace, Tracer


def unpacked(values):
    raw = np.frombuffer(base64.b64decode(values["f32"]), "<f4")
    return raw.reshape(values["shape"])


def test_data_hold_every_number_in_single_precision():
    trace = trace_steps(STEP_MODELS["decoder"](), position=4)
    data = StepThrough(trace).data()
    assert data["tokens"] == list(trace.tokens) and data["position"] == 3
    for stage, found in zip(trace.stages, data["stages"], strict=True):
        expected = stage.values if found["kept"] is None else stage.values[found["kept"]]
        np.testing.assert_array_equal(unpacked(found["values"]), expected.astype("f4"))
        assert [trace.stages[i] for i in found["inputs"]] == list(stage.inputs)
    assert data["sampling"] == STEP_MODELS["decoder"]().tokenizer.vocab_size
    table = next(s for s in data["stages"] if s["title"] == "embedding table")
    assert table["kept"] == [int(trace.find("Id").values[0])]  # no other row is read


def test_large_tables_keep_the_rows_of_the_largest_results():
    t = Tracer(StepTrace(["a"], 0), {})
    x = t.given("x", np.ones(4))
    w = t.given("w", np.arange(40.0).reshape(10, 4)[::-1])
    t.step("y", Dot(), x, w)
    assert kept_rows(t.trace)[id(w)] is None
    kept = kept_rows(t.trace, most=30)
    assert kept[id(w)] == [0, 1]  # the largest sums
    assert kept[id(x)] is None


def test_a_page_has_the_stages_in_words_without_its_script():
    page = steps_page(STEP_MODELS["lstm"](), position=3)
    html = page.render()
    assert page.title == "Step by step: “b”, 3 of 6"
    assert "Layer 2 › Forget gate" in html and "σ(sumᵢ)" in html
    assert "The first channel" in steps_page(STEP_MODELS["forecaster"]()).render()
