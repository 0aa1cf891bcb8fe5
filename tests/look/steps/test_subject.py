"""What can be stepped through, and the errors of what cannot."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from step_models import STEP_MODELS, Reader, language_model
from torch import nn

from regard import load
from regard.errors import UsageError, UserError
from regard.look.steps import register_steps, trace_steps
from regard.look.steps.subject import FAMILIES, FAMILY_MODULES
from regard.registry import MODELS, resolve


def test_positions_count_from_one_and_the_last_is_the_default():
    pipeline = STEP_MODELS["bigram"]()
    assert trace_steps(pipeline).position == 5 and trace_steps(pipeline, position=1).position == 0
    with pytest.raises(UsageError, match=r"position must be from 1 to 6 .*, got 7"):
        trace_steps(pipeline, position=7)


def test_a_cut_input_is_said_to_be_cut():
    model = STEP_MODELS["decoder"]().model
    full = trace_steps(language_model(model, "ab" * 11 + "a"))
    assert full.notes == ["At most 24 tokens are read: a longer input is cut."]
    short = language_model(model, "ab")
    assert trace_steps(short).notes == []
    short.forbidden = object()
    assert trace_steps(short).notes == [
        "Transitions that the data rule out are not forbidden here."
    ]


def test_unknown_models_and_long_inputs_are_refused_in_words():
    pipeline = Reader(nn.Linear(1, 1), {"ids": torch.zeros(1, 2)}, lambda tap: torch.zeros(1))
    with pytest.raises(UserError, match="a Linear cannot be stepped through"):
        trace_steps(pipeline)
    bigram = STEP_MODELS["bigram"]().model
    long = Reader(bigram, {"ids": torch.zeros(1, 2000)}, lambda tap: torch.zeros(1))
    with pytest.raises(UserError, match="2,000 positions are too many"):
        trace_steps(long)


def test_other_families_register_their_own():
    class Mine(nn.Module):
        config = SimpleNamespace(max_len=8)

    @register_steps(Mine)
    def mine(subject):
        t = subject.start(["one"])
        t.given("all there is", subject.output, shown=True)

    pipeline = Reader(Mine(), {"ids": torch.zeros(1, 1)}, lambda tap: torch.full((1,), 7.0))
    trace = trace_steps(pipeline)
    assert trace.find("all there is").values.tolist() == [7] and trace.tokens == ["one"]


def test_a_held_out_record_of_masked_tokens_is_read(masked_proteins):
    """It has no targets, and was refused with an error of ours."""
    pipeline = load(masked_proteins)
    trace = trace_steps(pipeline, record=1, position=2)
    _, shard = pipeline.held_out()[:2]
    assert trace.find("Ids").values.tolist() == shard.record(1).tolist()
    assert trace.stages[-1].values.sum() == pytest.approx(1)


def test_every_model_of_the_registry_can_be_stepped_through():
    for name in FAMILY_MODULES:
        import_module(f"regard.look.steps.{name}")
    missing = [
        entry.name
        for entry in MODELS.entries
        if str(entry.target).startswith("regard.")
        and not any(base in FAMILIES.functions for base in resolve(entry.target).__mro__)
    ]
    assert missing == []
