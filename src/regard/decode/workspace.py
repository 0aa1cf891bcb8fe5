"""The memory that batches are decoded in, and the recorded step beside it.

Several threads may decode with one model at the same time. Memory is never shared between them: a
batch borrows it from a pool and returns it at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from regard.decode.graphs import CAPTURES, Graph
from regard.decode.replay import Replay, pays
from regard.layers.state import State
from regard.models.language_model import LanguageModel

RECORD_AT = 1  # steps after which a step is recorded on a CPU
STEPS = 16  # steps that must remain for capturing a CUDA graph, some 50 ms, to pay
BLOCK = 128  # capacities on a GPU are multiples of this: few different shapes
IDLE = 16  # items that a pool keeps for later calls, at most

Item = TypeVar("Item")


class Step(Protocol):
    """One decoding step, recorded: appends a token (B,) to each row and returns logits (B, V)."""

    ids: Tensor  # (B, 1)

    def __call__(self, ids: Tensor) -> Tensor: ...


def device_of(model: nn.Module) -> torch.device:
    """Where the model's tensors are; a model without any is on the CPU."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def computing(device: torch.device) -> Iterator[None]:
    """On a GPU, one thread at a time computes: CUDA graphs are captured, replayed and destroyed
    while no other thread works. Calls of a thread may be nested. On a CPU nobody waits.
    """
    with CAPTURES if device.type == "cuda" else nullcontext():
        yield


class Pool(Generic[Item]):
    """Items that one caller uses at a time. There are as many as there were callers at once."""

    def __init__(self, make: Callable[[], Item]) -> None:
        self.make = make
        self.idle: list[Item] = []
        self.lock = Lock()

    @contextmanager
    def borrow(self, fits: Callable[[Item], bool]) -> Iterator[Item]:
        """An item for the caller alone: one that `fits`, else any that is idle, else a new one.

        The item of a call that fails is dropped.
        """
        with self.lock:
            found = [item for item in self.idle if fits(item)] or self.idle[:1]
            if found:
                self.idle.remove(found[-1])
        item = found[-1] if found else self.make()
        yield item
        with self.lock:
            if len(self.idle) < IDLE:
                self.idle.append(item)


class Workspace:
    """The memory that batches are decoded in; any number of threads may use it at the same time.

    A slot whose step was recorded serves again for the next batch of the same shape, so that a
    thousand batches cost one recording.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.device = model, device_of(model)
        self.slots = Pool(lambda: Slot(model, self.device))

    @contextmanager
    def slot(self, rows: int, capacity: int) -> Iterator[Slot]:
        """A slot for one batch, if there is one a slot that has decoded this shape before."""
        shape = rows, padded(capacity, self.device)
        with self.slots.borrow(lambda slot: slot.shape == shape) as slot:
            yield slot


def padded(capacity: int, device: torch.device) -> int:
    """The capacity of a state: on a GPU rounded up, to few different shapes, and aligned ones."""
    return -(-capacity // BLOCK) * BLOCK if device.type == "cuda" else capacity


class Slot:
    """The memory of one batch at a time: its state, and the step that was recorded for it."""

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self.model, self.device = model, device
        self.state: State | None = None
        self.step: Step | None = None
        self.search: Any = None  # what beam search keeps beside the state

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and capacity of the state that can be used again, if there is one."""
        kept = self.step is not None or self.search is not None
        return self.state.shape if kept and self.state is not None else None

    def start(self, rows: int, capacity: int) -> State:
        """An empty state for `rows` of at most `capacity` tokens."""
        capacity = padded(capacity, self.device)
        if self.state is not None and self.shape == (rows, capacity):
            self.state.reset()
            return self.state
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
