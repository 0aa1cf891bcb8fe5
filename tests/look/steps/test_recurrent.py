"""Gates as stages, against the equations and the views of recurrent networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from step_models import STEP_MODELS

from regard.look.network_views import run_cells
from regard.look.steps import trace_steps


def last_layer(pipeline):
    model, ids = pipeline.model, pipeline.prepared.tensors["ids"]
    with torch.no_grad():
        x = model.embedding(ids)[0]
        initial = [vector[:, 0] for vector in model.cells.new_state(1, x).vectors]
        return run_cells(model.cells.cells, x, initial).values


@pytest.mark.parametrize(
    ("name", "gates"),
    [
        ("lstm", {"Input gate": "input gate", "Forget gate": "forget gate", "Cell": "cell"}),
        ("gru", {"Update gate": "update gate", "Reset gate": "reset gate"}),
        ("rnn", {}),
    ],
)
def test_gates_are_those_of_the_cells(name, gates):
    pipeline = STEP_MODELS[name]()
    values, trace = last_layer(pipeline), trace_steps(pipeline, position=4)
    for title, key in (gates | {"Hidden state": "output"}).items():
        stage = next(s for s in trace.stages if s.path[0] == "Layer 2" and s.title == title)
        np.testing.assert_allclose(stage.values, values[key][3].numpy(), atol=1e-6)


def test_the_state_before_is_that_of_the_token_before():
    pipeline = STEP_MODELS["lstm"]()
    one, two = (trace_steps(pipeline, position=n) for n in (3, 4))
    np.testing.assert_allclose(
        two.find("Layer 1 › Cell before").values, one.find("Layer 1 › Cell").values, atol=1e-7
    )
    assert not trace_steps(pipeline, position=1).find("Cell before").values.any()


def test_a_decoder_of_a_translator_attends_to_the_source():
    trace = trace_steps(STEP_MODELS["translator of bahdanau"](), position=2)
    weights = trace.find("Attention to the source › Weights").values
    assert weights.sum() == pytest.approx(1) and weights.shape == (7,)
    with pytest.raises(StopIteration):
        trace_steps(STEP_MODELS["recurrent translator"]()).find("Weights")


def test_a_layer_reads_from_both_ends():
    """The last position has no past from the end, the first none from the start."""
    pipeline = STEP_MODELS["lstm classifier"]()
    last, first = trace_steps(pipeline), trace_steps(pipeline, position=1)
    assert not last.find("Layer 1 › From the end › Cell before").values.any()
    assert last.find("Layer 1 › From the start › Cell before").values.any()
    assert not first.find("Layer 1 › From the start › Cell before").values.any()
    joined = last.find("Layer 1 › Both directions").values
    half = len(joined) // 2
    hidden = last.find("Layer 1 › From the start › Hidden state").values
    np.testing.assert_array_equal(joined[:half], hidden)
