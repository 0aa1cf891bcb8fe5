"""The memory and the time of a run: forecast before it starts, and replanned while it runs.

The memory of a step is measured on fake tensors, which have shapes and no numbers: `TensorMemory`
counts their storages, which is exact and the same on any machine. The sizes of the optimizer state
and of the update are added. A run that cannot fit is an error that names the key to lower.

The number of steps that fit into train.minutes follows from a few timed steps, which are undone
before training, and is planned again at the pace of the run. Only steady steps count: the first
ones allocate memory, compile kernels and capture CUDA graphs.
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

from regard.data.batching import Batch, sample
from regard.data.corpus import Corpus
from regard.errors import UserError
from regard.kernels.torch_private import (
    SHAPE_ERRORS,
    FakeTensorMode,
    TorchDispatchMode,
    tensors_in,
)
from regard.recipe import TrainRecipe
from regard.run import weights
from regard.training.objectives import chunk
from regard.training.optimizer import block_matrices
from regard.training.progress import clock, resident_bytes
from regard.training.step import Stepper, autocast

if TYPE_CHECKING:
    from regard.training.loop import Loop
    from regard.training.trainer import Trainer

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# oneDNN's recurrence on a CPU stores so many numbers for each state, position and layer for the
# backward pass, which fake tensors do not show
RECURRENT = 12


class TensorMemory(TorchDispatchMode):
    """Count the bytes of all tensors created inside this context: `live` now, `peak` at most.

    Memory inside kernels that fake tensors do not show is added; `inside` is its sum.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self.inside = 0
        self.known: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in tensors_in(output):
            self.note(tensor)
        if func.name() == "aten::mkldnn_rnn_layer" and not output[-1].numel():
            self.note(output[-1], RECURRENT * output[0].numel() * output[0].element_size())
        return output

    def note(self, tensor: Tensor, more: int = 0) -> None:
        """Count a tensor or, if it is known, `more` bytes for it."""
        storage = tensor.untyped_storage()
        key = id(storage)  # unique as long as the storage exists
        if key in self.known and not more:
            return
        if key not in self.known:
            weakref.finalize(storage, self._remove, key)
        size = more or storage.nbytes()
        self.known[key] = self.known.get(key, 0) + size
        self.inside += more
        self.live += size
        self.peak = max(self.peak, self.live)

    def _remove(self, key: int) -> None:
        self.live -= self.known.pop(key)


def peak_of(work: Callable[[], object]) -> int:
    """Return the peak memory in bytes of the tensors that a function creates."""
    memory = TensorMemory()
    with memory:
        work()
    return memory.peak


def memory_of(device: torch.device) -> int:
    """Return the memory in bytes of a device; of a CPU, what this process may use."""
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
        return 1 << 62  # unknown: no limit


GB = 1 << 30
SHORT, BRIEF, SMALL = 50, 0.5, 16 << 20  # no forecast below these steps, minutes and numbers
UPDATE = 4  # copies of the largest stack of matrices in memory during an update of Muon
HOLES = 1.5  # fragmentation, measured with glibc's allocator: benchmarks/forecast.py
LARGE = 1 << 24  # n_layers · d_model² from which a model may be too large to create
USABLE = 0.95  # share of the memory that a run may need


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The memory of a step in bytes, by use, and its time once that is known."""

    parameters: int  # how many, not bytes
    weights: int
    state: int  # of the optimizer
    activations: int  # of a micro-batch, with the gradients computed in its backward pass
    gradients: int  # accumulated over several micro-batches
    inside: int  # the part of the activations inside kernels, which is not fragmented
    update: int  # what the update of the weights needs besides weights and state
    base: int  # of the process before training; 0 on a GPU
    positions: int  # of a micro-batch
    rows: int  # of a micro-batch
    seconds_per_step: float | None = None
    seconds: float | None = None

    @property
    def tensors(self) -> int:
        """The peak memory of tensors."""
        return self.weights + self.state + max(self.activations + self.gradients, self.update)

    @property
    def memory(self) -> int:
        """The peak memory of the run; on a CPU more than its tensors, by fragmentation."""
        if not self.base:
            return self.tensors
        return self.base + round(HOLES * (self.tensors - self.inside)) + self.inside

    def line(self) -> str:
        """Return the forecast as a line."""
        memory = f"forecast: {size(self.memory)} of memory"
        if self.seconds_per_step is None or self.seconds is None:
            return memory
        return f"{memory}, {self.seconds_per_step:.3g} s a step, {clock(self.seconds)} in all"

    def facts(self) -> dict[str, Any]:
        """Return the forecast for regard.json."""
        sizes = {
            "memory_bytes": self.memory,
            "base_bytes": self.base,
            "activation_bytes": self.activations,
        }
        times = {"seconds_per_step": self.seconds_per_step, "seconds": self.seconds}
        return sizes | {key: round(x, 4) for key, x in times.items() if x is not None}

    def timed(self, per_step: float, seconds: float) -> Forecast:
        """Return the forecast with its time."""
        return dataclasses.replace(self, seconds_per_step=per_step, seconds=seconds)

    def check(self, recipe: TrainRecipe, config: Any, device: torch.device) -> None:
        """Raise a UserError that says what to lower, if the device has not enough memory."""
        has = memory_of(device)
        if self.memory <= USABLE * has:
            return
        free = USABLE * has - (self.memory - self.activations)
        if free <= 0:
            what = f"{self.parameters:,} weights alone, with their optimizer, need "
            what += f"{size(self.memory - self.activations)}"
            advice = f"lower model.d_model, now {config.d_model}"
            if recipe.init_from:
                advice = "the run that training starts from is too large for it"
        else:
            what = f"{self.positions:,} positions at once need {size(self.activations)}"
            smaller = "" if recipe.init_from else ", or model.d_model"  # which is that of the run
            most = int(free / self.activations * self.rows) * (self.positions // self.rows)
            advice = f"lower model.max_len, now {config.max_len:,}{smaller}"
            if most:
                key = "micro_tokens" if recipe.micro_tokens <= recipe.batch_tokens else ""
                advice = f"lower train.{key or 'batch_tokens'} to {most:,}{smaller}"
        where = "this machine" if device.type == "cpu" else str(device)
        raise UserError(
            f"this run would need about {size(self.memory)}, and {where} has {size(has)}: "
            f"{what}; {advice}"
        )


def check_weights(make: Callable[[], nn.Module], config: Any, device: torch.device) -> None:
    """Raise a UserError, before a model is created, if its weights alone need too much memory."""
    if getattr(config, "n_layers", 1) * getattr(config, "d_model", 1) ** 2 < LARGE:
        return
    with torch.device("meta"):
        count = sum(p.numel() for p in make().parameters())
    least = 3 * 4 * count  # weights, their gradients, and one number of state for each
    has = memory_of(device)
    if least > USABLE * has:
        where = "this machine" if device.type == "cpu" else str(device)
        raise UserError(
            f"{count:,} weights with their gradients and optimizer need {size(least)} at least, "
            f"and {where} has {size(has)}: lower model.d_model, now {config.d_model:,}, or "
            f"model.n_layers, now {config.n_layers}"
        )


def size(count: float) -> str:
    """Return a number of bytes as text."""
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 2**20:.0f} MB"


def forecast_run(
    model: Any, batches: Sequence[Batch], recipe: TrainRecipe, stepper: Stepper
) -> Forecast | None:
    """Return the memory of a step on these micro-batches; None if the run is short and small, or if
    the computation of the model depends on the numbers in tensors.
    """
    largest = max(batches, key=lambda batch: batch.ids.numel())
    wide = sum(len(p) for p in model.parameters() if p.dim() == 2)
    short = recipe.steps < SHORT if recipe.steps else recipe.minutes < BRIEF
    if short and largest.ids.shape[:2].numel() * wide < SMALL:
        return None
    memory = trace(model, largest, stepper)
    if memory is None:
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
        activations=memory.peak * each // 4 - each * count + logits,
        inside=memory.inside * each // 4,
        gradients=each * count if len(batches) > 1 or stepper.captures else 0,
        update=each * (count + update),
        base=resident_bytes() - each * count if stepper.device.type == "cpu" else 0,
        positions=positions,
        rows=len(largest.ids),
    )


def trace(model: Any, batch: Batch, stepper: Stepper) -> TensorMemory | None:
    """Return the memory of a model, a batch and the gradient of its loss, measured on fake tensors;
    None if that is impossible.
    """
    memory = TensorMemory()
    shapes = [None if x is None else (x.shape, x.dtype) for x in batch.tensors()]
    try:
        with torch.random.fork_rng(devices=[]), FakeTensorMode(), memory:
            copy: Any = type(model)(model.vocab_size, model.config).train()
            objective = stepper.make_objective(copy, None)
            tensors = [None if x is None else torch.zeros(x[0], dtype=x[1]) for x in shapes]
            with autocast(stepper.precision, torch.device("cpu")):
                loss, _ = objective(*tensors)
            loss.backward()
    except SHAPE_ERRORS:
        return None
    return memory


WARMING = {"cpu": 1, "cuda": 3}  # steps before any is timed
TIMED = 2  # the fewest steps to time
STEADY = 2.0  # a step that takes so many times the fastest one is not steady yet
UNSTEADY = 3.0  # steps that take so many times the lower quartile do not count
SHORT_STEP = 0.1  # seconds of a step, below which threads wait a good part of it for each other
PATIENCE = 4.0  # steps may take so many times the time of calibration to become steady
TOKENS = 16384  # training tokens that are scored to time a validation; on a GPU ...
MANY_TOKENS = 65536  # ... so many
SAVING, CLOSING = 0.05, 0.5  # seconds reserved for each checkpoint, and for intervals and reports
CLOSING_SHARE = 0.02  # share of the time, likewise
TRANSLATING_SHARE = 0.1  # share of the time for translating held-out sentences
REPLANNED = (0.1, 0.4, 0.8)  # shares of the remaining time after which steps are replanned ...
SEEN = 3  # ... from at least so many steady steps
OVER, OVER_SECONDS = 0.03, 2.0  # training ends at once if the time is exceeded by more
FINAL_TOKENS = 1 << 16  # tokens of each held-out split that are always evaluated at the end ...
FINAL_SHARE = 0.1  # ... or this share of the tokens trained on, about 7% of the time ...
FINAL_TIME = 0.07  # ... but each for at most this share of the time


@dataclass
class Clock:
    """The time limit of a run: `seconds` from `began` (time.monotonic)."""

    began: float
    seconds: float
    marks: list[float] = field(default_factory=list)  # when the steps are replanned

    @property
    def left(self) -> float:
        """Seconds until the time is over; negative afterwards."""
        return self.began + self.seconds - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the time is clearly exceeded."""
        return self.left < -OVER * self.seconds - OVER_SECONDS

    def start(self) -> None:
        """Set the marks in the remaining time."""
        now, left = time.monotonic(), max(0.0, self.left)
        self.marks = [now + share * left for share in REPLANNED]

    def passes_mark(self) -> bool:
        """Return whether the next mark has passed; True once for each mark."""
        passed = bool(self.marks) and time.monotonic() >= self.marks[0]
        self.marks = self.marks[passed:]
        return passed


def final_parts(
    recipe: TrainRecipe, corpus: Corpus, steps: int, most: float = math.inf
) -> dict[str, int]:
    """Return the most tokens of each held-out split to evaluate on at the end of training.

    The reported split of labelled records is evaluated completely, up to `most` tokens, since
    models are compared by all of their predictions.
    """
    parts = {}
    usual = max(FINAL_TOKENS, round(steps * recipe.batch_tokens * FINAL_SHARE))
    for name in ("valid", "test"):
        shard = corpus.split(name)
        if shard is not None:
            reported = name == "test" or corpus.test is None
            wanted = most if reported and corpus.targets is not None else min(usual, most)
            parts[name] = int(min(wanted, shard.tokens))
    return parts


@dataclass(frozen=True)
class Pace:
    """The seconds of a step and of a scored token."""

    loop: Loop
    per_step: float
    per_token: float

    def cost(self, steps: int, done: int = 0) -> float:
        """Return the seconds of the steps after `done`, with validations and checkpoints."""
        loop = self.loop
        corpus, size = loop.corpus, loop.world.size
        every, part = loop.validations(steps)
        evaluations = -(-steps // every) - done // every
        validated = evaluations * min(part, corpus.valid.tokens) if corpus.valid else 0
        final = sum(loop.final_parts(steps, self).values())
        # language models read each token twice at the end, in the first process only
        scored = validated / size + (1 if corpus.targets else 2) * final
        return (steps - done) * self.per_step + scored * self.per_token + SAVING * evaluations

    def observed(self, steps: list[float], tokens: list[float]) -> Pace:
        """Return the pace from times of a run: the mean of its steady `steps`, and the median of
        the times of a token in validations and in calibration.
        """
        per_token = sorted([*tokens, self.per_token / self.loop.world.size])[len(tokens) // 2]
        return replace(
            self, per_step=steady_mean(steps), per_token=per_token * self.loop.world.size
        )

    def measurable(self, clock: Clock) -> float:
        """Return how many tokens of each held-out split there is time for at the end."""
        return max(FINAL_TOKENS / 8, FINAL_TIME * clock.seconds / max(self.per_token, 1e-12))

    def closing(self, seconds: float) -> float:
        """Return the seconds reserved for intervals, reports and translations."""
        corpus = self.loop.corpus
        translates = corpus.source_tokenizer is not None and corpus.targets is None
        return CLOSING + (CLOSING_SHARE + translates * TRANSLATING_SHARE) * seconds

    def steps_within(self, clock: Clock, done: int = 0) -> int:
        """Return how many steps fit, including those `done`; at least one more."""
        seconds = clock.left - self.closing(clock.seconds)
        low, high = done + 1, 1 << 40  # cost(low) may be too much, cost(high) is
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.cost(middle, done) <= seconds
            low, high = (middle, high) if fits else (low, middle)
        return self.loop.world.share(low)


def measure(trainer: Trainer, seconds: float) -> Pace:
    """Return the pace of a trainer, from steps that take about `seconds`.

    The steps are undone. All processes take them; the times are those of the first one.
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
    """Return the mean seconds of a step, from step `first` on, once their times are steady."""
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
    """Return the mean time without outliers: steps that captured or compiled a new shape."""
    usual = sorted(times)[len(times) // 4]
    steady = [taken for taken in times if taken <= UNSTEADY * usual]
    return sum(steady) / len(steady)


def seconds_per_token(trainer: Trainer) -> float:
    """Return the seconds of scoring a token, once its kernels are compiled."""
    train, on_gpu = trainer.corpus.train, trainer.device.type == "cuda"
    most = MANY_TOKENS if on_gpu else min(TOKENS, 2 * trainer.recipe.batch_tokens)
    part = sample(train, most, trainer.recipe.seed, block=trainer.block)
    if on_gpu:
        trainer.cost(part)
    start = time.monotonic()
    trainer.cost(part)
    return (time.monotonic() - start) * trainer.world.size / part.tokens
