"""Every stage of every family, recomputed by its stated formula; and what a check finds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from step_models import STEP_MODELS

from regard.look.steps import check_stages, replay, trace_steps
from regard.look.steps.operations import Add, Dot, Opaque, Softmax
from regard.look.steps.stages import Next, StepTrace, Tracer, Ways, as_floats, chain, error_of

LEAST_MEASURED = {"uniform": 1, "mlp": 2}  # stages that the model itself computed


@pytest.mark.parametrize("name", STEP_MODELS)
def test_stages_are_what_their_formulas_say(name):
    """From each stage's inputs, and from parameters and the input alone: the model's own numbers,
    to 1e-5 of the largest.
    """
    for place in (1, 2, 4):
        torch.manual_seed(0)
        pipeline = STEP_MODELS[name]()
        position = min(place, len(trace_steps(pipeline).tokens))
        trace = trace_steps(pipeline, position=position)
        errors, chained = check_stages(trace), replay(trace)
        worst = max((*errors, *chained), key=lambda error: error.relative)
        assert worst.relative < 1e-5, worst.stage.where
        assert len(chained) >= LEAST_MEASURED.get(name, 1)
        assert trace.position == position - 1


def test_opaque_stages_are_those_of_linear_attention_alone():
    for name, make in STEP_MODELS.items():
        stages = trace_steps(make()).stages
        opaque = [stage for stage in stages if isinstance(stage.how, Opaque)]
        assert bool(opaque) == (name == "linear attention"), name


def test_every_activation_of_a_decoder_is_a_stage():
    """Nothing that the model hands to a tap is left out: blocks, heads, norms, logits."""
    pipeline = STEP_MODELS["decoder"]()
    trace = trace_steps(pipeline, position=4)
    measured = [stage.values for stage in trace.stages if stage.measured]
    ids = pipeline.prepared.tensors["ids"]
    from regard.layers.tap import Tap

    tap = Tap(["*"])
    with torch.no_grad():
        pipeline.model.logits(ids, tap=tap)
    missing = []
    for name, value in tap.activations.items():
        row = as_floats(value[0])
        wanted = [one[3] for one in row] if row.ndim == 3 else [row[3]]
        for one in wanted:
            if not any(x.shape == one.shape and np.array_equal(x, one) for x in measured):
                missing.append(name)
    assert missing == []


def small_trace():
    t = Tracer(StepTrace(["a"], 0), {})
    x = t.given("x", [1.0, -2.0])
    w = t.given("w", [[1.0, 0.5], [2.0, 0.0], [0.0, 1.0]])
    y = t.step("y", Dot(), x, w)
    t.step("p", Softmax(), y, measured=np.exp([0, 2, -2]) / np.exp([0, 2, -2]).sum())
    return t.trace


def test_a_wrong_number_is_found():
    trace = small_trace()
    assert max(error.absolute for error in check_stages(trace)) < 1e-15
    assert [error.stage.title for error in replay(trace)] == ["p"]
    trace.stages[-1] = dataclasses.replace(trace.stages[-1], values=np.array([0.5, 0.25, 0.25]))
    errors = {error.stage.title: error.absolute for error in check_stages(trace)}
    assert errors["y"] == 0 and errors["p"] > 0.1
    assert replay(trace)[0].relative > 0.1


def test_infinities_must_agree():
    stage = dataclasses.replace(small_trace().stages[2], values=np.array([0.0, -np.inf, 1.0]))
    assert error_of(stage, np.array([0.0, -np.inf, 1.5])).absolute == 0.5
    assert error_of(stage, np.array([0.0, 2.0, 1.0])).absolute == np.inf
    assert error_of(stage, np.array([0.0, np.nan, 1.0])).absolute == np.inf
    with pytest.raises(ValueError, match="shape"):
        error_of(stage, np.zeros(2))


def test_a_chain_measures_its_last_step_and_levels_name_stages():
    t = Tracer(StepTrace(["a"], 0), {"block.0.q": torch.tensor([[1.0, 2.0]])})
    with t.level("Block 1", "block.0") as inner:
        x = inner.given("x", [1.0, 1.0])
        steps = [Next("one", Add(), (x,)), Next("two", Add(), (x,))]
        last = chain(inner, x, steps, inner.tapped("q", 0))
        assert inner.has("q") and inner.tapped("k") is None
    assert [stage.measured for stage in t.trace.stages] == [False, False, True]
    assert last.where == "Block 1 › two" and last.values.tolist() == [1, 2]
    assert t.trace.find("one").values.tolist() == [2, 2]
    assert chain(t, x, []) is x


def test_ways_follow_the_bases_of_a_class():
    ways = Ways()

    @ways.register(int)
    def of_int(value):
        return "int"

    assert ways.find(True) is of_int and ways.find("text") is None
