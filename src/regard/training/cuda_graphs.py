"""Keeping a GPU busy: work captured as CUDA graphs, batches in few shapes and in pinned memory.

A small model's step is a thousand kernels of some microseconds, and launching them one by one takes
longer than running them. Captured once, they are launched as one.
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

SHAPES = 8  # graphs kept; a function that meets more shapes runs the others as they are
ROWS = 16  # rows are rounded up to multiples of a sixteenth of the first batch's

Argument = Tensor | float | None
Shape = tuple[tuple[int, ...] | None, ...]


class CapturedWork:
    """A function of tensors on a GPU that works in place and returns a tensor, captured once for
    each shape of its arguments. A number among them reaches it as a tensor.

    It runs as it is at a shape's first sight, which settles whatever it allocates, and is captured
    at the second. The result is valid until the next call.
    """

    def __init__(
        self, function: Callable[..., Tensor], device: torch.device, pool: Any = None
    ) -> None:
        """Functions that run one after the other may share a `pool` of memory
        (torch.cuda.graph_pool_handle): what one needs only while it runs, the next uses again.
        """
        self.function, self.device, self.pool = function, device, pool
        self.seen: Counter[Shape] = Counter()
        self.steady = True  # was the shape of the last call known, and its graph captured before?
        self.graphs: dict[Shape, tuple[torch.cuda.CUDAGraph, list[Tensor | None], Tensor]] = {}

    def __call__(self, *arguments: Argument) -> Tensor:
        """The function's result; tensors may be on the CPU, best in pinned memory."""
        shape = tuple(tuple(a.shape) if isinstance(a, Tensor) else None for a in arguments)
        self.seen[shape] += 1
        self.steady = self.seen[shape] > 2
        if shape not in self.graphs:
            held = [self._held(a) for a in arguments]
            if self.seen[shape] == 1 or len(self.graphs) == SHAPES:
                return self.function(*held)
            self.graphs[shape] = self._capture(held)
        graph, held, result = self.graphs[shape]
        for to, given in zip(held, arguments, strict=True):
            if given is to:
                continue
            if isinstance(given, Tensor):
                to.copy_(given, non_blocking=True)  # type: ignore[union-attr]
            elif given is not None:
                to.fill_(given)  # type: ignore[union-attr]  # no copy, which could wait
        graph.replay()
        return result

    def release(self) -> None:
        """Give back the memory of what was captured; shapes are new again."""
        self.seen.clear()
        self.graphs.clear()

    def _held(self, argument: Argument) -> Tensor | None:
        if isinstance(argument, float):
            return torch.full((), argument, device=self.device)
        return None if argument is None else argument.to(self.device, non_blocking=True)

    def _capture(
        self, held: list[Tensor | None]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor | None], Tensor]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with capturing(graph, self.pool):
            result = self.function(*held)
        return graph, held, result


def rounded(batch: Batch, multiple: int, pad: int) -> Batch:
    """The batch with empty rows added up to a multiple, so that few shapes occur; targets that are
    not of positions stay as they are.
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
    """The batch in memory from which a GPU copies while others work."""
    return batch.with_tensors(*(None if x is None else x.pin_memory() for x in batch.tensors()))
