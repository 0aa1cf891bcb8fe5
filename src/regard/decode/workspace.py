"""The memory that batches are decoded in, one after another, and the recorded step beside it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.decode.graphs import Graph
from regard.decode.replay import Replay, pays
from regard.layers.state import State
from regard.models.language_model import LanguageModel

RECORD_AT = 1  # steps after which a step is recorded on a CPU
STEPS = 16  # steps that must remain for capturing a CUDA graph, some 50 ms, to pay
BLOCK = 128  # capacities on a GPU are multiples of this: few different shapes


class Step(Protocol):
    """One decoding step, recorded: appends a token (B,) to each row and returns logits (B, V)."""

    ids: Tensor  # (B, 1)

    def __call__(self, ids: Tensor) -> Tensor: ...


def device_of(model: nn.Module) -> torch.device:
    """Where the model's tensors are; a model without any is on the CPU."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


class Workspace:
    """The memory that one batch after another is decoded in.

    A state whose step was recorded serves again for the next batch of the same shape, so that a
    thousand batches cost one recording.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.device = model, device_of(model)
        self.state: State | None = None
        self.step: Step | None = None
        self.search: Any = None  # what beam search keeps beside the state

    def start(self, rows: int, capacity: int) -> State:
        """An empty state for `rows` of at most `capacity` tokens."""
        if self.device.type == "cuda":  # few different shapes, and aligned ones
            capacity = -(-capacity // BLOCK) * BLOCK
        state = self.state
        kept = self.step is not None or self.search is not None
        if kept and state is not None and state.shape == (rows, capacity):
            state.reset()
            return state
        self.state, self.step, self.search = self.model.start(rows, capacity), None, None
        return self.state

    def captures(self, left: int) -> bool:
        """Are `left` steps to come worth capturing as a CUDA graph?"""
        return self.device.type == "cuda" and self.model.steps_alike and left >= STEPS

    def recorded(self, grown: int, left: int) -> Step | None:
        """The step of the state as it now stands, if it is worth recording: `grown` were taken and
        `left` are to come.
        """
        state = self.state
        assert state is not None
        if self.step is not None and len(self.step.ids) == state.batch:
            state.fix(self.device)
            return self.step
        self.step = None  # if there is one, it was recorded with other rows: greedily, not in beams
        if self.captures(left):
            self.step = Graph(self.model, state, self.device)
        elif self.device.type == "cpu" and grown == RECORD_AT and pays(self.model, state, left):
            self.step = Replay(self.model, state)
        return self.step
