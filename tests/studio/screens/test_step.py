"""The screen *Step*: what it answers, and the errors of wrong positions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from step_models import STEP_MODELS

from regard.errors import UsageError
from regard.studio.screens.step import Step


@pytest.fixture
def screen():
    """The screen over a run of each family."""

    def pipeline(name):
        reader = STEP_MODELS[name]()
        reader.reads_source = "source" in reader.prepared.tensors
        return reader

    return Step(SimpleNamespace(pipeline=pipeline))


def test_a_trace_is_a_figure_of_one_position(screen):
    answer = screen.actions()["trace"]("decoder", position=3)
    assert answer["position"] == 3 and answer["positions"] == 6 and not answer["reads_pairs"]
    component = answer["figure"]
    assert component["kind"] == "steps" and component["data"]["position"] == 2
    assert component["data"]["movable"] and len(component["data"]["stages"]) > 100


def test_pairs_and_notes_are_told(screen):
    assert screen.trace("encoder–decoder")["reads_pairs"]
    assert screen.trace("forecaster")["notes"] == ["The first channel is followed."]


def test_a_position_outside_is_the_users_mistake(screen):
    with pytest.raises(UsageError, match="position must be from 1 to 6"):
        screen.trace("decoder", position=9)
