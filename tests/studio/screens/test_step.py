"""The screen *Step*: what it answers, and the errors of wrong positions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from step_models import STEP_MODELS

from regard.errors import UsageError, UserError
from regard.studio.server import load_screens


@pytest.fixture
def screen():
    """The screen over a run of each family."""

    def pipeline(name):
        reader = STEP_MODELS[name]()
        reader.reads_source = "source" in reader.prepared.tensors
        ids = next(iter(reader.prepared.tensors.values()))
        tokenizer = reader.tokenizer  # of forecasters it has no texts
        reader.source_tokenizer = SimpleNamespace(
            text=getattr(tokenizer, "text", str), reads_text=ids.dim() == 2, cuttable=True
        )
        return reader

    return load_screens()["step"](SimpleNamespace(pipeline=pipeline))


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


def test_no_path_is_opened(screen):
    """A text for a model of images would name a file anywhere on the disk."""
    assert not screen.trace("vit, learned positions")["reads_text"]
    with pytest.raises(UserError, match="reads files"):
        screen.trace("vit, learned positions", text="/etc/passwd")
