"""One decoding step as a CUDA graph: a GPU goes from token to token without waiting for Python.

The step is run once while its operations are noted; those that read nothing that changes from step
to step (gains joined, masks of ones, tables) keep that first result. The rest is captured, with the
small kernels of `kernels` where they are faster. The model is written once; nothing here knows what
a Transformer is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.decode.operations import tensors
from regard.layers.state import State
from regard.models.language_model import LanguageModel


class Rehearsal(TorchDispatchMode):
    """Runs a step with fast kernels and notes every result; a second run takes what is constant
    from the first.
    """

    def __init__(self, kernels: dict[Any, Any], first: Rehearsal | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = kernels
        self.noted: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.constant = [] if first is None else first.noted
        self.same: list[bool] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        at = len(self.noted)
        if self.constant and self.same[at]:
            out = self.constant[at][3]
        else:
            kernel = self.kernels.get(func)
            out = kernel(*args, **(kwargs or {})) if kernel is not None else None
            out = func(*args, **(kwargs or {})) if out is None else out
        self.noted.append((func, args, kwargs or {}, out))
        return out


def constant(
    noted: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]], ids: Tensor
) -> list[bool]:
    """Which operations read nothing that changes between steps, given that `ids` does."""
    changing = {ids.untyped_storage().data_ptr()}
    for func, args, _, _ in noted:  # caches and lengths: written in place
        if func._schema.is_mutable:
            changing.add(args[0].untyped_storage().data_ptr())
    same = []
    for _, args, kwargs, out in noted:
        read = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
        same.append(not read & changing)
        if not same[-1]:
            changing |= {t.untyped_storage().data_ptr() for t in tensors(out)}
    return same


class Graph:
    """The step of `model` that extends `state`, which is fixed and already holds the prompt."""

    def __init__(self, model: LanguageModel, state: State, device: torch.device) -> None:
        self.state = state
        state.fix(device)
        assert isinstance(state.length, Tensor)
        self.ids = torch.zeros(state.batch, 1, dtype=torch.int64, device=device)
        try:
            from regard.decode.kernels import KERNELS
        except ImportError:  # no Triton for this platform: PyTorch's own kernels
            KERNELS = {}
        before = state.length.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), Rehearsal(KERNELS) as first:
            model.extend(self.ids, None, state)
        torch.cuda.current_stream().wait_stream(aside)
        state.longest -= 1
        second = Rehearsal(KERNELS, first)
        second.same = constant(first.noted, self.ids)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"), second:
            self.logits = model.extend(self.ids, None, state)  # (B, V)
        # Those were rehearsals: what they wrote is written over by the first step.
        state.longest -= 1
        state.length.copy_(before)
        self.kept = [out for same, (*_, out) in zip(second.same, second.noted, strict=True) if same]

    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; the logits (B, V)."""
        self.state.check(1)
        self.ids.copy_(ids[:, None])
        self.graph.replay()
        self.state.longest += 1
        return self.logits.clone()
