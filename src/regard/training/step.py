"""A training step: device and precision, the gradient of micro-batches, the update of the weights.

On a GPU both are captured as CUDA graphs, and the host reads only two numbers of a step: the loss
and the norm of the gradient, which decide whether the update is made.

A step of a small model is a thousand kernels of a few microseconds, and launching them one by one
takes longer than running them. A CUDA graph launches them all at once.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batching import IGNORE, Batch
from regard.decoding.cuda_graphs import capturing
from regard.errors import UserError
from regard.kernels.torch_private import foreach_copy_, undo_compile
from regard.recipe import TrainRecipe
from regard.training.distributed import ALONE, ProcessGroup, keeping
from regard.training.optimizer import Optimizer


def choose_device(name: str, world: ProcessGroup = ALONE) -> torch.device:
    """Return the device of that name; `auto` is a GPU if there is one. A missing GPU is an error.
    Each process of a group has the GPU of its local rank.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(
            f"device: {name!r} is not a device; use auto, cpu, cuda or cuda:1"
        ) from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device: {name!r} is not supported; use auto, cpu, cuda or cuda:1")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if world.size > 1 and device.index is not None:
            raise UserError(
                f"device: {name} is one GPU, but {world.size} processes train; use cuda or "
                "auto, and each takes its own"
            )
        if world.size > 1:
            device = torch.device("cuda", world.local)
        if (device.index or 0) >= count:
            raise UserError(
                f"device: {device} asked for, but this machine has {count} CUDA devices"
            )
    return device


def idle(device: torch.device, world: ProcessGroup = ALONE) -> str:
    """Return how to use all GPUs, if only one of several is used; otherwise ""."""
    count = torch.cuda.device_count()
    if device.type != "cuda" or device.index is not None or count < 2 or world.size > 1:
        return ""
    return (
        f"one of this machine's {count} GPUs is used; for all of them: "
        f"torchrun --nproc-per-node {count} -m regard train, and the same arguments"
    )


def choose_precision(recipe: TrainRecipe, device: torch.device) -> str:
    """Return fp32, bf16 (autocast, GPU only) or fp64 (for exact checks)."""
    if recipe.precision != "auto":
        if recipe.precision == "bf16" and device.type != "cuda":
            raise UserError("train.precision: bf16 is for a GPU; this run is on the CPU, use fp32")
        return recipe.precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context manager for forward passes."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()


@contextlib.contextmanager
def settings(recipe: TrainRecipe, device: torch.device) -> Iterator[None]:
    """Set global options of torch for a run, and restore them afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    threads = torch.get_num_threads()
    try:
        if device.type == "cuda":
            exact = recipe.precision == "fp32"  # otherwise TF32 is allowed
            torch.set_float32_matmul_precision("highest" if exact else "high")
            torch.backends.cudnn.allow_tf32 = not exact  # convolutions and recurrences
            if recipe.deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.use_deterministic_algorithms(True)
        # make it the current device, so that nothing is allocated on another GPU
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn
        torch.set_num_threads(threads)


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


PAYS = 4e15  # floating-point operations from which compiling (half a minute) is worth it


def may_capture(recipe: TrainRecipe, world: ProcessGroup) -> bool:
    """Return whether steps of few shapes can be captured; processes that communicate cannot."""
    return choose_device(recipe.device, world).type == "cuda" and world.size == 1


class Stepper:
    """Update the weights of a model, in one process or in a group."""

    def __init__(
        self,
        model: Any,
        recipe: TrainRecipe,
        objective: Callable[..., nn.Module],
        *,
        world: ProcessGroup,
        static: bool = False,
    ) -> None:
        """`objective` builds the module of the loss from the model on its device. `static` says
        that batches have few shapes even though records are not packed.
        """
        self.recipe, self.world, self.make_objective = recipe, world, objective
        self.static = static or model.supports_packing
        self.device = choose_device(recipe.device, world)
        self.precision = choose_precision(recipe, self.device)
        self.model = model.to(self.device)
        if self.precision == "fp64":
            self.model.double()
        self.objective = world.spread(objective(self.model).to(self.device), self.device)
        self.optimizer = Optimizer(self.model, recipe)
        self.compile_seconds = 0.0
        self.compiled = False
        self.captures = may_capture(recipe, world) and self.static
        self.begin: Callable[..., Tensor] = self._begin
        self.accumulate: Callable[..., Tensor] = self._accumulate
        self.norm: Callable[[], Tensor] = self._norm
        self.update: Callable[..., Tensor] = self._update
        self.captured: list[CapturedWork] = []
        if self.captures:
            pool = torch.cuda.graph_pool_handle()
            works = (self._begin, self._accumulate, self._norm, self._update)
            self.captured = [CapturedWork(work, self.device, pool) for work in works]
            self.begin, self.accumulate, self.norm, self.update = self.captured

    def release(self) -> None:
        """Free the memory of captured steps."""
        for work in self.captured:
            work.release()
        self.optimizer.clear()  # gradients are in that memory, too
        if self.captured:  # a pool whose graphs are gone cannot be used again
            pool = torch.cuda.graph_pool_handle()
            for work in self.captured:
                work.pool = pool
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def steady(self) -> bool:
        """Whether the last step met no new shape and captured nothing."""
        return all(work.steady for work in self.captured)

    def how(self) -> str:
        """Return device, precision and compilation, in words."""
        parts = [str(self.device), self.precision]
        if self.compiled:
            parts.append(f"compiled in {self.compile_seconds:.0f} s")
        if self.captures:
            parts.append("steps captured as CUDA graphs")
        return ", ".join(parts)

    def compile_for(self, batch: Batch, steps: int) -> str:
        """Compile the model, once, if the recipe says so or `steps` are enough to be worth it;
        return why that failed, or "".
        """
        size = sum(p.numel() for p in self.model.parameters())
        work = 6.0 * size * self.recipe.batch_tokens * steps
        auto = self.device.type == "cuda" and self.static and work >= PAYS
        if (
            self.compiled
            or self.recipe.compile == "off"
            or (self.recipe.compile == "auto" and not auto)
        ):
            return ""
        began = time.monotonic()
        self.release()
        try:
            self.model.compile()
            self.gradient([batch], 1)
        except Exception as error:  # any failure of the compiler: eager mode works
            undo_compile(self.model)
            lines = str(error).strip().splitlines()
            return lines[0] if lines else type(error).__name__
        finally:
            self.optimizer.clear()
        self.compiled, self.compile_seconds = True, time.monotonic() - began
        return ""

    def prepared(self, batches: list[Batch], pad: int) -> list[Batch]:
        """Return the batches for the device: on a GPU in few shapes and in pinned memory."""
        if self.device.type == "cpu":
            return batches
        if self.captures:
            multiple = max(1, batches[0].ids.size(0) // ROWS)
            batches = [pad_rows(batch, multiple, pad) for batch in batches]
        return [pinned(batch) for batch in batches]

    def gradient(self, batches: list[Batch], symbols: int) -> Tensor:
        """Compute the gradient of the loss of batches per symbol; return the loss by process."""
        world = self.world
        total = torch.zeros(world.size, device=self.device, dtype=torch.float64)
        scale = world.size / symbols  # the gradient is a mean over processes
        for number, batch in enumerate(batches):
            add = self.accumulate if number else self.begin
            with keeping(self.objective, number < len(batches) - 1):
                total[world.rank] += add(scale, *batch.tensors())
        return world.sum(total)

    def _begin(self, scale: Tensor | float, *tensors: Tensor | None) -> Tensor:
        """Compute the gradient of one batch; with CUDA graphs, always in the same memory."""
        former = self.gradients()
        self.optimizer.clear()
        nats = self._accumulate(scale, *tensors)
        if self.captures and former:
            new = self.gradients()
            both = [p for p in former if p in new]
            foreach_copy_([former[p] for p in both], [new[p] for p in both])
            for p in former:
                p.grad = former[p] if p in new else former[p].zero_()
        return nats

    def _accumulate(self, scale: Tensor | float, *tensors: Tensor | None) -> Tensor:
        moved = [None if x is None else x.to(self.device, non_blocking=True) for x in tensors]
        with autocast(self.precision, self.device):
            loss, nats = self.objective(*moved)
        (loss * scale).backward()
        return nats  # type: ignore[no-any-return]

    def _norm(self) -> Tensor:
        return nn.utils.get_total_norm(self.gradients().values())

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of the parameters that have one."""
        return {p: p.grad for p in self.model.parameters() if p.grad is not None}

    def _update(self, norm: Tensor) -> Tensor:
        if self.recipe.clip:
            nn.utils.clip_grads_with_norm_(self.gradients(), self.recipe.clip, norm)
        self.optimizer.step()
        return norm

    def tell(self, nats: Tensor, norm: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
        """Return a function that waits for both on the host; until it is called, the host is free
        while the device works.
        """
        if self.device.type == "cpu":
            return lambda: (nats, norm)
        both = torch.cat((nats, norm[None])).to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()

        def wait() -> tuple[Tensor, Tensor]:
            event.synchronize()
            return both[:-1], both[-1]

        return wait
