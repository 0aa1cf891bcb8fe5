"""A training step: the gradient of micro-batches, and the update of the weights.

On a GPU both are captured as CUDA graphs, and the host reads only two numbers of a step: the loss
and the norm of the gradient, which decide whether the update is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.kernels.torch_private import foreach_copy_, undo_compile
from regard.recipe import TrainRecipe
from regard.training.cuda_graphs import ROWS, CapturedWork, pad_rows, pinned
from regard.training.distributed import ProcessGroup, keeping
from regard.training.optimizer import Optimizer
from regard.training.precision import autocast, choose_device, choose_precision

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
