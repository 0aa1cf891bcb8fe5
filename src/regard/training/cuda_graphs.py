"""Functions captured as CUDA graphs, and batches in few shapes and in pinned memory.

A step of a small model is a thousand kernels of a few microseconds, and launching them one by one
takes longer than running them. A CUDA graph launches them all at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.decoding.cuda_graphs import capturing

SHAPES = 8  # graphs of a function; calls with further shapes run without one
ROWS = 16  # rows are rounded up to multiples of a sixteenth of those of the first batch

Argument = Tensor | float | None
Shape = tuple[tuple[int, ...] | None, ...]


class CapturedWork:
    """A function of tensors on a GPU, captured as a CUDA graph for each shape of its arguments.

    The function works in place and returns a tensor; numbers are passed to it as tensors. The first
    call with a shape runs it without a graph, which completes its allocations; the second captures
    it. The result is valid until the next call.
    """

    def __init__(
        self, function: Callable[..., Tensor], device: torch.device, pool: Any = None
    ) -> None:
        """Functions that run one after the other may share a memory `pool`
        (torch.cuda.graph_pool_handle) for their temporary tensors.
        """
        self.function, self.device, self.pool = function, device, pool
        self.calls: Counter[Shape] = Counter()
        self.steady = True  # the graph of the last call was captured before
        self.graphs: dict[Shape, tuple[torch.cuda.CUDAGraph, list[Tensor | None], Tensor]] = {}

    def __call__(self, *arguments: Argument) -> Tensor:
        """Return the result of the function; tensors may be on the CPU, best in pinned memory."""
        shape = tuple(tuple(a.shape) if isinstance(a, Tensor) else None for a in arguments)
        self.calls[shape] += 1
        self.steady = self.calls[shape] > 2
        if shape not in self.graphs:
            inputs = [self._to_device(a) for a in arguments]
            if self.calls[shape] == 1 or len(self.graphs) == SHAPES:
                return self.function(*inputs)
            self.graphs[shape] = self._capture(inputs)
        graph, inputs, result = self.graphs[shape]
        for buffer, argument in zip(inputs, arguments, strict=True):
            if argument is buffer:
                continue
            if isinstance(argument, Tensor):
                buffer.copy_(argument, non_blocking=True)  # type: ignore[union-attr]
            elif argument is not None:
                buffer.fill_(argument)  # type: ignore[union-attr]  # a copy could block
        graph.replay()
        return result

    def release(self) -> None:
        """Free the memory of all graphs."""
        self.calls.clear()
        self.graphs.clear()

    def _to_device(self, argument: Argument) -> Tensor | None:
        if isinstance(argument, float):
            return torch.full((), argument, device=self.device)
        return None if argument is None else argument.to(self.device, non_blocking=True)

    def _capture(
        self, inputs: list[Tensor | None]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor | None], Tensor]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with capturing(graph, self.pool):
            result = self.function(*inputs)
        return graph, inputs, result


def pad_rows(batch: Batch, multiple: int, pad: int) -> Batch:
    """Return the batch with empty rows added up to a multiple of rows, so that few shapes occur;
    targets of records are unchanged.
    """
    more = -batch.ids.size(0) % multiple
    if not more:
        return batch

    def filled(x: Tensor | None, value: int) -> Tensor | None:
        return None if x is None else F.pad(x, (0, 0) * (x.dim() - 1) + (0, more), value=value)

    ids, targets, segments, sources, numbers = batch.tensors()
    each = batch.targets.shape == batch.ids.shape and not batch.targets.is_floating_point()
    return batch.with_tensors(
        filled(ids, pad),
        filled(targets, IGNORE) if each else targets,
        filled(segments, 0),
        filled(sources, pad),
        filled(numbers, 0),
    )


def pinned(batch: Batch) -> Batch:
    """Return the batch in pinned memory, from which copies to a GPU are asynchronous."""
    return batch.with_tensors(*(None if x is None else x.pin_memory() for x in batch.tensors()))
