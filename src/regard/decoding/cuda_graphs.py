"""One decoding step as a CUDA graph: a GPU goes from token to token without waiting for Python.

The step is run once while its operations are noted; those that read nothing that changes from step
to step (gains joined, masks of ones, tables) keep that first result. The rest is captured, with the
small kernels of `kernels` where they are faster. The model is written once; nothing here knows what
a Transformer is.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.decoding.cpu_replay import Noted, Recorder, tensors
from regard.layers.cache import DecodeState
from regard.models.language_model import LanguageModel

try:
    from regard.kernels.decode import kernels
except ImportError:  # no Triton here: PyTorch's own kernels

    def kernels(state: DecodeState) -> dict[Any, Callable[..., Any]]:
        """None."""
        return {}


# One thread captures at a time, and none replays meanwhile: PyTorch captures on one stream for
# all threads, and garbage is not collected until the capture ends.
CAPTURES = threading.RLock()


class PendingProduct(Protocol):
    """A product that has not been computed yet; its memory is there."""

    result: Tensor

    def joined(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The operation after it, computed together with it, if that can be."""

    def flush(self) -> None:
        """Compute it."""


class Rehearsal(Recorder):
    """Runs a step with fast kernels and notes every result; a second run takes what is `constant`
    from the first.

    A product waits for the operation after it, with which it may be one kernel.
    """

    def __init__(self, state: DecodeState, constant: dict[int, Any] | None = None) -> None:
        super().__init__()
        self.kernels: dict[Any, Callable[..., Any]] = kernels(state)
        self.constant = constant or {}
        self.waiting: PendingProduct | None = None

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation by the fastest kernel there is, unless its result is known."""
        known = self.constant.get(len(self.noted))
        if known is not None:
            return known
        waiting = self.waiting
        if waiting is not None:
            if passes(func, args, waiting.result):
                return func(*args, **kwargs)
            self.waiting = None
            joined = waiting.joined(func, args, kwargs)
            if joined is not None:
                return joined
            waiting.flush()
        kernel = self.kernels.get(func)
        out = kernel(*args, **kwargs) if kernel is not None else None
        if out is None:
            return func(*args, **kwargs)
        if isinstance(out, Tensor):
            return out
        self.waiting = out
        return out.result

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self.waiting is not None:
            self.waiting.flush()


def passes(func: Any, args: tuple[Any, ...], waiting: Tensor) -> bool:
    """Is the operation a view of something else, which need not wait for `waiting`?"""
    returns = func._schema.returns
    view = bool(returns) and returns[0].alias_info is not None and not func._schema.is_mutable
    memory = waiting.untyped_storage().data_ptr()
    return view and all(t.untyped_storage().data_ptr() != memory for t in tensors(args))


def constant(noted: Noted, changes: Tensor) -> dict[int, Any]:
    """The results that read nothing that changes between steps, as `changes` does, by place.

    Views are not among them: they cost nothing.
    """
    changing = {changes.untyped_storage().data_ptr()}
    for func, args, _, _ in noted:  # caches and lengths: written in place
        if func._schema.is_mutable:
            changing.add(args[0].untyped_storage().data_ptr())
    same = {}
    for place, (_, args, kwargs, out) in enumerate(noted):
        read = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
        written = {t.untyped_storage().data_ptr() for t in tensors(out)}
        if read & changing:
            changing |= written
        elif not written <= read:
            same[place] = out
    return same


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """What is launched inside goes into the graph, its memory into the `pool`, or one of its own.

    No garbage is collected meanwhile: an older graph in it, destroyed now, would end the capture.
    Other threads may go on computing, but not capture or replay.
    """
    with CAPTURES:
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                yield
        finally:
            if collects:
                gc.enable()


class CapturedStep:
    """Work that feeds every row of a state one token, as a CUDA graph.

    The state is fixed from now on. `work` runs once before it is captured: what it writes besides
    the next place of the state, its caller puts right.
    """

    def __init__(
        self, work: Callable[[], Tensor], state: DecodeState, device: torch.device, changing: Tensor
    ) -> None:
        """`changing` is a tensor that differs from step to step; so does all that is written."""
        self.state, self.work = state, work  # kept: the graph reads what the work refers to
        state.check(1)  # what is done between steps is no part of one
        state.fix(device)
        assert isinstance(state.length, Tensor)
        before = state.length.clone()
        with CAPTURES:  # the stream beside may be the one that another thread captures on
            self._capture(work, changing)
        state.length.copy_(before)

    def _capture(self, work: Callable[[], Tensor], changing: Tensor) -> None:
        """Run the work aside, then again into the graph."""
        state, aside = self.state, torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), Rehearsal(state) as first:
            work()
        torch.cuda.current_stream().wait_stream(aside)
        state.longest -= 1
        self.constant = constant(first.noted, changing)  # kept: the graph reads them
        self.graph = torch.cuda.CUDAGraph()
        with (
            capturing(self.graph),
            Rehearsal(state, self.constant),
        ):
            self.result = work()
        state.longest -= 1

    def __call__(self) -> Tensor:
        """Do it again; the result's memory is that of last time."""
        self.state.check(1)
        with CAPTURES:
            self.graph.replay()
        self.state.longest += 1
        return self.result


class Graph:
    """The step of `model` that extends `state`, which is fixed and already holds the prompt."""

    def __init__(self, model: LanguageModel, state: DecodeState, device: torch.device) -> None:
        self.ids = torch.zeros(state.batch, 1, dtype=torch.int64, device=device)
        self.captured = CapturedStep(
            lambda: model.extend(self.ids, None, state), state, device, self.ids
        )

    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; the logits (B, V), in bf16 valid until the next
        call.
        """
        self.ids.copy_(ids[:, None])
        logits = self.captured()
        # In half precision the engine makes a copy of its own.
        return logits.clone() if logits.dtype == torch.float32 else logits
