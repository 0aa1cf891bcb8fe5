"""One decoding step as a CUDA graph: a GPU goes from token to token without waiting for Python.

The step runs once while its operators are recorded. Those that read nothing that changes from step
to step (concatenated gains, masks of ones, tables) keep that first result. The rest is captured,
with the kernels of `kernels/decode.py` where they are faster. Nothing here depends on the model.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.decoding.cpu_replay import OperatorRecorder, Record, changing_storages, storages
from regard.layers.cache import DecodeState
from regard.models.language_model import LanguageModel

try:
    from regard.kernels.decode import kernels
except ImportError:  # without Triton

    def kernels(rows: int, lengths: Tensor) -> dict[Any, Callable[..., Any]]:
        return {}


# One thread captures at a time, and none replays meanwhile: PyTorch captures on one stream for
# all threads, and garbage is not collected until the capture ends.
CAPTURE_LOCK = threading.RLock()


class KernelDispatch(OperatorRecorder):
    """Runs a step with fast kernels and records every result; `constants`, results of an earlier
    run by their index, are not computed again.
    """

    def __init__(self, state: DecodeState, constants: dict[int, Any] | None = None) -> None:
        super().__init__()
        assert isinstance(state.length, Tensor)
        self.kernels: dict[Any, Callable[..., Any]] = kernels(state.rows, state.length)
        self.constants = constants or {}
        self.pending: Any = None  # an operator that waits for the next: see kernels/decode.py

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        constant = self.constants.get(len(self.records))
        if constant is not None:
            return constant
        pending = self.pending
        if pending is not None:
            if func.is_view and not storages(args) & storages(pending.result):
                return func(*args, **kwargs)  # a view of another tensor need not wait
            self.pending = None
            fused = pending.fuse(func, args, kwargs)
            if fused is not None:
                return fused
            pending.flush()
        kernel = self.kernels.get(func)
        out = kernel(*args, **kwargs) if kernel is not None else None
        if out is None:
            return func(*args, **kwargs)
        if isinstance(out, Tensor):
            return out
        self.pending = out
        return out.result

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self.pending is not None:
            self.pending.flush()


def find_constants(records: list[Record], changing_input: Tensor) -> dict[int, Any]:
    """Return the results that read nothing that changes between steps, by index.

    Views are left out: they cost nothing.
    """
    changing = changing_storages(records, changing_input)
    constants = {}
    for index, (_, args, kwargs, out) in enumerate(records):
        read, written = storages((args, kwargs)), storages(out)
        if read & changing:
            changing |= written
        elif not written <= read:
            constants[index] = out
    return constants


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """Capture what is launched inside into the graph, its memory in the `pool` or its own.

    Garbage collection waits: destroying an older graph would end the capture. Other threads may
    compute, but not capture or replay.
    """
    with CAPTURE_LOCK:
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                yield
        finally:
            if collects:
                gc.enable()


class CapturedStep:
    """Work that advances every row of a state by one token, as a CUDA graph.

    The state is fixed from now on. `work` runs once before it is captured: the caller must undo
    what it writes besides the next position of the state.
    """

    def __init__(
        self, work: Callable[[], Tensor], state: DecodeState, device: torch.device, changing: Tensor
    ) -> None:
        """`changing` is an input that differs from step to step."""
        self.state, self.work = state, work  # the graph reads tensors that the work refers to
        state.check(1)  # deferred work is no part of a step
        state.fix(device)
        assert isinstance(state.length, Tensor)
        before = state.length.clone()
        with CAPTURE_LOCK:  # another thread may be capturing on the side stream
            self._capture(work, changing)
        state.length.copy_(before)

    def _capture(self, work: Callable[[], Tensor], changing: Tensor) -> None:
        state, side = self.state, torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), KernelDispatch(state) as first:
            work()
        torch.cuda.current_stream().wait_stream(side)
        state.longest -= 1
        self.constants = find_constants(first.records, changing)  # the graph reads them
        self.graph = torch.cuda.CUDAGraph()
        with capturing(self.graph), KernelDispatch(state, self.constants):
            self.result = work()
        state.longest -= 1

    def __call__(self) -> Tensor:
        """Run the work and return its result, always in the same memory."""
        self.state.check(1)
        with CAPTURE_LOCK:
            self.graph.replay()
        self.state.longest += 1
        return self.result


class GraphStep:
    """The step of a model that extends a state with the prompt, as a CUDA graph."""

    def __init__(self, model: LanguageModel, state: DecodeState, device: torch.device) -> None:
        self.ids = torch.zeros(state.batch, 1, dtype=torch.int64, device=device)
        self.captured = CapturedStep(
            lambda: model.step(self.ids, None, state), state, device, self.ids
        )

    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; return the logits (B, V), in half precision valid
        until the next call.
        """
        self.ids.copy_(ids[:, None])
        logits = self.captured()
        # In half precision the engine converts them, which is a copy.
        return logits.clone() if logits.dtype == torch.float32 else logits
