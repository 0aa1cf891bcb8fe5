"""Memory that tensors hold: counted while work is done, and what a machine has of it.

Counting storages as they come and go is exact and the same every time, on any machine; what a
system reports of a process is neither. Work may also be done on fake tensors, which have shapes and
no numbers: then nothing is held, and the count is the same.

What a run will need, before it starts: memory, and once a few steps were timed, time.

The memory of a step is found by taking it on fake tensors, which have shapes and no numbers: the
model says itself what it keeps for the way back, whatever its mixers and lengths are. Optimizer
state and the update are added by the sizes of the matrices. What cannot fit is refused, with the
key to lower.

How many steps fit into some minutes: a few are taken to see, and undone, before training begins,
and the number is planned again from the run's own pace once a part of the time has passed.

Only steady steps count: the first ones allocate memory, compile kernels and capture CUDA graphs.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.data.batching import Batch, sample
from regard.data.corpus import Corpus
from regard.errors import UserError
from regard.recipe import TrainRecipe
from regard.run import weights
from regard.training.objectives import chunk
from regard.training.optimizer import block_matrices
from regard.training.precision import autocast
from regard.training.progress import clock, resident_bytes
from regard.training.step import Learner, Stepper, objective_of

if TYPE_CHECKING:
    from regard.training.loop import Loop
    from regard.training.trainer import Trainer

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# oneDNN's recurrence on a CPU keeps, of every position and layer, so many numbers for each of its
# states for the way back, of which fake tensors know nothing
RECURRENT = 12


class TensorMemory(TorchDispatchMode):
    """Counts the bytes of all tensors made inside of it: `live` now, `peak` at most. What fake
    tensors hide is added, `inside` in all.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self.inside = 0
        self.known: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, Tensor):
                self.note(one)
        if func.name() == "aten::mkldnn_rnn_layer" and not made[-1].numel():
            self.note(made[-1], RECURRENT * made[0].numel() * made[0].element_size())
        return made

    def note(self, tensor: Tensor, more: int = 0) -> None:
        """A tensor exists, with so many bytes beside it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known and not more:
            return
        if key not in self.known:
            weakref.finalize(storage, self._gone, key)
        size = more or storage.nbytes()
        self.known[key] = self.known.get(key, 0) + size
        self.inside += more
        self.live += size
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int) -> None:
        self.live -= self.known.pop(key)


def peak_of(work: Callable[[], object]) -> int:
    """Bytes of tensors that some work makes, at most at once."""
    held = TensorMemory()
    with held:
        work()
    return held.peak


def memory_of(device: torch.device) -> int:
    """Bytes that a device has in all; of a CPU, that this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limits = [_physical()]
    for name in LIMITS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 62  # not known: nothing is refused


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


def forecast_run(
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


def trace(model: Learner, batch: Batch, recipe: TrainRecipe, precision: str) -> TensorMemory | None:
    """Bytes of tensors, at most at once, of a model, a batch, and the gradient of its loss, found
    without holding them.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    held = TensorMemory()
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


WARMING = {"cpu": 1, "cuda": 3}  # steps taken before any is timed
TIMED = 2  # steps timed at least
STEADY = 2.0  # a step that takes so many times the fastest one is not yet steady
UNSTEADY = 3.0  # steps that take so many times the lower quartile are left out
PATIENCE = 4.0  # times the time for calibration that steps may take to become steady
TOKENS = 16384  # of training that are scored to time a validation; on a GPU ...
MANY_TOKENS = 65536  # ... so many
SAVING, CLOSING = 0.05, 0.5  # seconds set aside for each checkpoint, and for intervals and reports
CLOSING_SHARE = 0.02  # of the time, likewise
TRANSLATING_SHARE = 0.1  # of the time, for translating held-out sentences
REPLANNED = (0.1, 0.4, 0.8)  # shares of the time left after which the steps are planned again ...
SEEN = 3  # ... from so many steady steps, at least
OVER, OVER_SECONDS = 0.03, 2.0  # how far the time may be exceeded before training ends where it is
FINAL_TOKENS = 1 << 16  # of each held-out split are always measured at the end ...
FINAL_SHARE = 0.1  # ... or this share of the tokens trained on, about 7% of the time ...
FINAL_TIME = 0.07  # ... but not for longer than this share of the time there is, each


@dataclass
class Clock:
    """The time a run may take: `seconds` from `began` (time.monotonic) on."""

    began: float
    seconds: float
    marks: list[float] = field(default_factory=list)  # when the steps are planned again

    @property
    def left(self) -> float:
        """Seconds until the time is over; negative afterwards."""
        return self.began + self.seconds - time.monotonic()

    @property
    def over(self) -> bool:
        """Has the time passed, and a little more?"""
        return self.left < -OVER * self.seconds - OVER_SECONDS

    def start(self) -> None:
        """Training begins: set the marks in the time that is left."""
        now, left = time.monotonic(), max(0.0, self.left)
        self.marks = [now + share * left for share in REPLANNED]

    def passes_mark(self) -> bool:
        """Is it time to plan again? True once for each mark."""
        passed = bool(self.marks) and time.monotonic() >= self.marks[0]
        self.marks = self.marks[passed:]
        return passed


def final_parts(
    recipe: TrainRecipe, corpus: Corpus, steps: int, most: float = math.inf
) -> dict[str, int]:
    """How many tokens of each held-out split are measured when training ends, at most.

    Of labelled records, the split that is reported is measured whole, since models are compared by
    their predictions for all of it, unless it has more than `most` tokens.
    """
    parts = {}
    usual = max(FINAL_TOKENS, round(steps * recipe.batch_tokens * FINAL_SHARE))
    for name in ("valid", "test"):
        shard = corpus.side(name)
        if shard is not None:
            reported = name == "test" or corpus.test is None
            wanted = most if reported and corpus.targets is not None else min(usual, most)
            parts[name] = int(min(wanted, shard.tokens))
    return parts


@dataclass(frozen=True)
class Pace:
    """What a step and a scored token take, in seconds, and so a run."""

    loop: Loop
    per_step: float
    per_token: float

    def cost(self, steps: int, done: int = 0) -> float:
        """Seconds of a run of so many steps with all that is measured and saved, after `done`."""
        loop = self.loop
        corpus, size = loop.corpus, loop.world.size
        every, part = loop.validations(steps)
        evaluations = -(-steps // every) - done // every
        validated = evaluations * min(part, corpus.valid.tokens) if corpus.valid else 0
        final = sum(loop.final_parts(steps, self).values())
        # language models read each token twice at the end; the first process alone does
        scored = validated / size + (1 if corpus.targets else 2) * final
        return (steps - done) * self.per_step + scored * self.per_token + SAVING * evaluations

    def observed(self, steps: list[float], tokens: list[float]) -> Pace:
        """The pace of a run that is under way: the mean of its steady `steps`, and the median of
        what a token took in its validations and in calibration.
        """
        per_token = sorted([*tokens, self.per_token / self.loop.world.size])[len(tokens) // 2]
        return replace(
            self, per_step=steady_mean(steps), per_token=per_token * self.loop.world.size
        )

    def measurable(self, clock: Clock) -> float:
        """How many tokens of each held-out split the end of a run has time for."""
        return max(FINAL_TOKENS / 8, FINAL_TIME * clock.seconds / max(self.per_token, 1e-12))

    def closing(self, seconds: float) -> float:
        """Seconds set aside for what comes after all measurements."""
        corpus = self.loop.corpus
        translates = corpus.source_tokenizer is not None and corpus.targets is None
        return CLOSING + (CLOSING_SHARE + translates * TRANSLATING_SHARE) * seconds

    def steps_within(self, clock: Clock, done: int = 0) -> int:
        """How many steps fit, of which some are done; one more at least."""
        seconds = clock.left - self.closing(clock.seconds)
        low, high = done + 1, 1 << 40  # cost(low) may be too much, cost(high) is
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.cost(middle, done) <= seconds
            low, high = (middle, high) if fits else (low, middle)
        return self.loop.world.share(low)


def measure(trainer: Trainer, seconds: float) -> Pace:
    """How fast a trainer is, on steps that take about `seconds`, or a few.

    They are undone: afterwards the trainer is what it was. All processes take them; the clock of
    the first one counts.
    """
    before = {name: value.clone() for name, value in weights(trainer.model).items()}
    planned = trainer.steps
    trainer.plan(1_000_000)
    trainer.model.train()
    warming = WARMING.get(trainer.device.type, 1)
    for step in range(warming):
        trainer.take_step(step)
    pace = Pace(trainer, steady_step(trainer, warming, seconds), seconds_per_token(trainer))
    trainer.model.load_state_dict(before, strict=False)
    trainer.stepper.optimizer.forget()
    trainer.plan(planned)
    return pace


def steady_step(trainer: Trainer, first: int, seconds: float) -> float:
    """Mean seconds of a step, from step `first` on, once steps take about the same time."""
    world, times = trainer.world, list[float]()
    began = time.monotonic()

    def enough() -> bool:
        spent = time.monotonic() - began
        if len(times) < TIMED or spent < seconds:
            return False
        return max(times[-TIMED:]) <= STEADY * min(times) or spent > PATIENCE * seconds

    steady: list[float] = []
    while not world.share(enough()):
        start = time.monotonic()
        trainer.take_step(first + len(times))
        times.append(time.monotonic() - start)
        steady += times[-1:] if trainer.steady else []
    return steady_mean(steady or times)


def steady_mean(times: list[float]) -> float:
    """The mean of what is not far above the rest: steps that met a new shape, and captured or
    compiled it, are no measure of those to come.
    """
    usual = sorted(times)[len(times) // 4]
    steady = [taken for taken in times if taken <= UNSTEADY * usual]
    return sum(steady) / len(steady)


def seconds_per_token(trainer: Trainer) -> float:
    """How long scoring a token takes, once whatever a GPU needs for it is compiled."""
    train, on_gpu = trainer.corpus.train, trainer.device.type == "cuda"
    most = MANY_TOKENS if on_gpu else min(TOKENS, 2 * trainer.recipe.batch_tokens)
    part = sample(train, most, trainer.recipe.seed, block=trainer.block)
    if on_gpu:
        trainer.cost(part)
    start = time.monotonic()
    trainer.cost(part)
    return (time.monotonic() - start) * trainer.world.size / part.tokens
