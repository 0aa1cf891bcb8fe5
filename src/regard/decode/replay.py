"""One decoding step on a CPU, recorded once and replayed with the fastest kernels there are.

At batch 1 a small model spends its time between the operations, not in them; a large one reads all
its weights for every token and waits for memory. So a step is run once while its operations are
noted. A fixed state always works on the same memory, so views stay valid, what depends on weights
alone is done already, and the rest is called again on the very same arrays: products by whichever
library reads the weights fastest, the rest by NumPy where it has the operation (a tenth of the
overhead) and by PyTorch where it has not. The model is written once; nothing here knows what a
Transformer is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.decode.operations import ALWAYS, MAKERS, WIDE, by_torch, tensors
from regard.decode.products import Call
from regard.layers.state import State
from regard.models.language_model import LanguageModel

OVERHEAD = 1 << 23  # weights times rows up to which a step is overhead rather than arithmetic
WEIGHTS = 1 << 29  # weights up to which memory for a packed copy of them, 2 GB, is taken
STEPS = 24  # steps that must remain for recording, some milliseconds, to pay


Noted = list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]  # operation, arguments, result


class Recorder(TorchDispatchMode):
    """Notes every operation, with the tensors it really read and wrote."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.noted: Noted = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here; saying so spares the import of the compiler, a second."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = self.run(func, args, kwargs or {})
        self.noted.append((func, args, kwargs or {}, out))
        return out

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation's result."""
        return func(*args, **kwargs)


class Replay:
    """The step of `model` that extends `state`, which is fixed and already holds the prompt.

    Weights must stay as they are: some are kept in another layout.
    """

    def __init__(self, model: LanguageModel, state: State) -> None:
        state.check(1)  # what is done between steps is no part of one
        state.fix()
        self.state = state
        self.ids = torch.zeros(state.batch, 1, dtype=torch.int64)
        assert isinstance(state.length, Tensor)
        with Recorder() as recorder:
            self.logits = model.extend(self.ids, None, state)  # (B, V)
        # That was a rehearsal: what it wrote is written over by the first step.
        state.length.sub_(1)
        state.longest -= 1
        self.calls = self._calls(recorder.noted)

    def _calls(self, noted: Sequence[tuple[Any, Any, Any, Any]]) -> list[Call]:
        """What must be done again at every step, in order."""
        calls: list[Call] = []
        changing = {self.ids.untyped_storage().data_ptr()}
        for func, args, _, _ in noted:  # caches and lengths: written in place, different every time
            if func._schema.is_mutable:
                changing.add(args[0].untyped_storage().data_ptr())
        for func, args, kwargs, out in noted:
            read = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
            if not read & changing:
                continue  # the same every time
            written = {t.untyped_storage().data_ptr() for t in tensors(out)}
            changing |= written
            if written <= read and not func._schema.is_mutable:
                continue  # a view: the memory is there already
            wide = isinstance(out, Tensor) and out.numel() > WIDE
            maker = ALWAYS.get(func) or (None if wide else MAKERS.get(func))
            call = maker(self.state, out, *args, **kwargs) if maker is not None else None
            calls.append(call or by_torch(func, args, kwargs, out))
        return calls

    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; the logits (B, V), valid until the next call."""
        self.state.check(1)
        self.ids.copy_(ids[:, None])
        with np.errstate(over="ignore"):  # exp of a large number is infinite, and 1 / that is 0
            for call in self.calls:
                call()
        self.state.longest += 1
        return self.logits


def pays(model: LanguageModel, state: State, steps: int) -> bool:
    """Is the model one whose steps can be recorded, and are there enough of them to gain from it?

    Small models always gain; larger ones where oneDNN is there to read their weights.
    """
    if not model.steps_alike or steps < STEPS:
        return False
    parameters = list(model.parameters())
    if not all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters):
        return False
    weights = sum(p.numel() for p in parameters)
    small = weights * state.batch <= OVERHEAD
    return small or (weights <= WEIGHTS and torch.backends.mkldnn.is_available())
