"""What a run will need, before it starts: memory, and once a few steps were timed, time.

The memory of a step is found by taking it on fake tensors, which have shapes and no numbers: the
model says itself what it keeps for the way back, whatever its mixers and lengths are. Optimizer
state and the update are added by the sizes of the matrices. What cannot fit is refused, with the
key to lower.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.data.batching import Batch
from regard.errors import UserError
from regard.recipe import TrainRecipe
from regard.train.memory import Held, memory_of
from regard.train.objectives import chunk
from regard.train.optimizer import block_matrices
from regard.train.precision import autocast
from regard.train.progress import clock, resident_bytes
from regard.train.step import Learner, Stepper, objective_of

GB = 1 << 30
SHORT, BRIEF, SMALL = 50, 0.5, 16 << 20  # below these steps, minutes and numbers, nothing is told
UPDATE = 4  # copies of the largest stack of matrices that Muon's update holds at once
HOLES = 1.5  # measured, glibc's allocator: benchmarks/forecast.py
LARGE = 1 << 24  # n_layers · d_model² from which a model may be too large to make
ROOM = 0.95  # of the memory may be asked for


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Bytes of a step by what they are for, and once known, its seconds."""

    parameters: int  # how many, not bytes
    weights: int
    state: int  # of the optimizer
    activations: int  # what a micro-batch keeps, with the gradients that come up as it goes
    gradients: int  # that wait meanwhile, where several micro-batches are added up
    inside: int  # of the activations, what kernels keep in one piece
    update: int  # what the update of the weights needs beside weights and state
    base: int  # what the process holds anyway; 0 on a GPU
    positions: int  # of a micro-batch
    rows: int  # that they are cut into
    seconds_per_step: float | None = None
    seconds: float | None = None

    @property
    def tensors(self) -> int:
        """Bytes of tensors, at most at once."""
        return self.weights + self.state + max(self.activations + self.gradients, self.update)

    @property
    def memory(self) -> int:
        """Bytes that the run holds, at most at once. Of a process they are more than its tensors:
        what comes and goes leaves holes.
        """
        if not self.base:
            return self.tensors
        return self.base + round(HOLES * (self.tensors - self.inside)) + self.inside

    def line(self) -> str:
        """In words."""
        said = f"forecast: {size(self.memory)} of memory"
        if self.seconds_per_step is None or self.seconds is None:
            return said
        return f"{said}, {self.seconds_per_step:.3g} s a step, {clock(self.seconds)} in all"

    def facts(self) -> dict[str, Any]:
        """For regard.json."""
        found = {
            "memory_bytes": self.memory,
            "base_bytes": self.base,
            "activation_bytes": self.activations,
        }
        times = {"seconds_per_step": self.seconds_per_step, "seconds": self.seconds}
        return found | {key: round(x, 4) for key, x in times.items() if x is not None}

    def timed(self, per_step: float, seconds: float) -> Forecast:
        """The same, with how long it takes."""
        return dataclasses.replace(self, seconds_per_step=per_step, seconds=seconds)

    def check(self, recipe: TrainRecipe, config: Any, device: torch.device) -> None:
        """Refuse what the device has no memory for; say what to lower."""
        has = memory_of(device)
        if self.memory <= ROOM * has:
            return
        room = ROOM * has - (self.memory - self.activations)
        if room <= 0:
            what = f"{self.parameters:,} weights alone, with their optimizer, need "
            what += f"{size(self.memory - self.activations)}"
            advice = f"lower model.d_model, now {config.d_model}"
        else:
            what = f"{self.positions:,} positions at once need {size(self.activations)}"
            most = int(room / self.activations * self.rows) * (self.positions // self.rows)
            advice = f"lower model.max_len, now {config.max_len:,}, or model.d_model"
            if most:
                key = "micro_tokens" if recipe.micro_tokens <= recipe.batch_tokens else ""
                advice = f"lower train.{key or 'batch_tokens'} to {most:,}, or model.d_model"
        where = "this machine" if device.type == "cpu" else str(device)
        raise UserError(
            f"this run would need about {size(self.memory)}, and {where} has {size(has)}: "
            f"{what}; {advice}"
        )


def check_weights(make: Callable[[], nn.Module], config: Any, device: torch.device) -> None:
    """Refuse a model, before it is made, whose weights alone cannot be trained here."""
    if getattr(config, "n_layers", 1) * getattr(config, "d_model", 1) ** 2 < LARGE:
        return
    with torch.device("meta"):
        count = sum(p.numel() for p in make().parameters())
    least = 3 * 4 * count  # weights, their gradients, and one number of state for each
    has = memory_of(device)
    if least > ROOM * has:
        where = "this machine" if device.type == "cpu" else str(device)
        raise UserError(
            f"{count:,} weights with their gradients and optimizer need {size(least)} at least, "
            f"and {where} has {size(has)}: lower model.d_model, now {config.d_model:,}, or "
            f"model.n_layers, now {config.n_layers}"
        )


def size(count: float) -> str:
    """Bytes in words."""
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 2**20:.0f} MB"


def foresee(
    model: Learner, batches: Sequence[Batch], recipe: TrainRecipe, stepper: Stepper
) -> Forecast | None:
    """The memory of a step on these micro-batches; None of a run too short and small to ask, and of
    models that look at numbers before they know what to compute.
    """
    largest = max(batches, key=lambda batch: batch.ids.numel())
    wide = sum(len(p) for p in model.parameters() if p.dim() == 2)
    short = recipe.steps < SHORT if recipe.steps else recipe.minutes < BRIEF
    if short and largest.ids.shape[:2].numel() * wide < SMALL:
        return None
    held = trace(model, largest, recipe, stepper.precision)
    if held is None:
        return None
    matrices = block_matrices(model)[0] if recipe.optimizer == "muon" else []
    each = 8 if stepper.precision == "fp64" else 4
    count = sum(p.numel() for p in model.parameters())
    muon = sum(p.numel() for p in matrices)
    stacks = Counter({p.shape: 0 for p in matrices})
    for p in matrices:
        stacks[p.shape] += p.numel()
    update = muon + UPDATE * max(stacks.values(), default=0)
    positions = largest.ids.shape[:2].numel()
    logits = 0
    if stepper.device.type == "cuda" and hasattr(model, "head"):
        vocabulary = model.head.weight.size(0)
        logits = chunk(positions, vocabulary, stepper.device) * vocabulary * each // 2
    return Forecast(
        parameters=count,
        weights=each * count,
        state=each * (2 * count - muon),
        activations=held.peak * each // 4 - each * count + logits,
        inside=held.inside * each // 4,
        gradients=each * count if len(batches) > 1 or stepper.captures else 0,
        update=each * (count + update),
        base=resident_bytes() - each * count if stepper.device.type == "cpu" else 0,
        positions=positions,
        rows=len(largest.ids),
    )


def trace(model: Learner, batch: Batch, recipe: TrainRecipe, precision: str) -> Held | None:
    """Bytes of tensors, at most at once, of a model, a batch, and the gradient of its loss, found
    without holding them.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    held = Held()
    shapes = [None if x is None else (x.shape, x.dtype) for x in batch.tensors()]
    try:
        with torch.random.fork_rng(devices=[]), FakeTensorMode(), held:
            own: Any = type(model)(model.vocab_size, model.config).train()
            objective = objective_of(own, recipe, None, None)
            made = [None if x is None else torch.zeros(x[0], dtype=x[1]) for x in shapes]
            with autocast(precision, torch.device("cpu")):
                loss, _ = objective(*made)
            loss.backward()
    except (DataDependentOutputException, DynamicOutputShapeException):
        return None
    return held
