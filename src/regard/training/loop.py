"""Training loops: the same steps in the same order, however often they are stopped and resumed.

A checkpoint has no position in the data and no random state: the batch of a step is a pure function
of its number, and every step seeds torch from (seed, step, rank). It stores the weights, the
optimizer and a few running sums, none of which depends on the number of processes.

`EMLoop` is expectation maximization, in one process on the CPU. A step of EM is a pass over all the
data. Validation, the best weights, metrics, checkpoints, Ctrl-C and resuming are those of `Loop`.
Training ends after train.steps passes, or when a pass improves the objective by next to nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from regard.data.batching import sample
from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.decoding.constraints import ForbiddenTransitions
from regard.errors import UserError
from regard.evaluation.language_modeling import (
    BATCH_TOKENS,
    MeanLoss,
    Stopped,
    log_probs,
    symbol_loss,
    truncate_shard,
)
from regard.models.hidden_markov import EMModel
from regard.recipe import Recipe, TrainRecipe, to_toml
from regard.run import RECIPE, WEIGHTS, MetricsLog, weights, write_config
from regard.storage import adapter, check_names, read_tensors, write_tensors, write_text
from regard.training import checkpoint
from regard.training.distributed import ALONE, NoMetrics, ProcessGroup
from regard.training.progress import Interrupt, Reporter, Status, resident_bytes
from regard.training.throughput import CLOSING, SEEN, Clock, Pace, final_parts

COUNT = "count"  # the name of a tensor in a checkpoint, next to the sums


Filming = Callable[[int], object]  # takes the frame of a film at a step, as `FilmWriter.take`
Listening = Callable[[MetricsLog, int], AbstractContextManager[None]]  # as of `loggers.listening`


class WeightAverage:
    """The mean of the weights at the last validations of a run (Vaswani et al. 2017, section 6.1).

    The last checkpoints oscillate around a better point; we average them.
    """

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0
        self.sums: dict[str, Tensor] = {}

    def wants(self, left: int, every: int) -> bool:
        """Return whether to add the weights with `left` steps to go, validated `every` steps."""
        return self.last > 1 and left < self.last * every

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Add the weights of a model."""
        for name, value in weights(model).items():
            if name in self.sums:
                self.sums[name] += value
            else:
                self.sums[name] = value.double()
        self.count += 1

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """Give the model the mean weights, and its former ones afterwards."""
        former = {name: value.clone() for name, value in weights(model).items()}
        model.load_state_dict({n: x / self.count for n, x in self.sums.items()}, strict=False)
        try:
            yield
        finally:
            model.load_state_dict(former, strict=False)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        return {**self.sums, COUNT: torch.tensor(self.count)}

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Restore the state that `tensors` returned."""
        self.count = int(tensors[COUNT])
        self.sums = {n: x.to(device) for n, x in tensors.items() if n != COUNT}


EVALUATIONS = 20  # validations in a run, unless the recipe sets their interval ...
FEWEST = 8  # ... or they would take too long: then at least so many
VALIDATION_SHARE = 0.15  # tokens validated per token trained: about 5% of the time
RECORDS = 200  # records in a validation, unless that would be too long: an accuracy is then +-0.035
LOGGED = 200  # training lines in metrics.jsonl, about
CLEARLY, WORSE = 2.0, 3  # overfitting: standard errors above the best, in consecutive validations
ANNEALING = 0.5  # steps in which the learning rate then falls, as a share of those to the best
BUSY = 2.0  # short steps that take so many times as long as usual have too many threads
RECENT = 50  # steps whose median counts
SAME = 0.02  # a new number of steps that differs by a smaller share is ignored
CHECKS = 100  # how often many processes agree on the time during a run


def seed_of(*numbers: int) -> int:
    """Return a 63-bit seed from numbers, the same on every machine."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class LoopState:
    """The state of a run besides tensors; saved with every checkpoint."""

    step: int = 0
    best: float | None = None  # validation nats per symbol
    best_step: int = 0
    stale: int = 0  # validations since the best
    due: bool = False  # the weights of this step are still to be validated
    nats: float = 0.0  # summed since the last logged line ...
    symbols: int = 0  # ... and over how many symbols
    seconds: float = 0.0  # spent training, over all sessions
    symbols_read: int = 0  # over all sessions
    metrics: int = 0  # bytes of metrics.jsonl
    steps: int = 0  # replanned during the run; 0 = those of the recipe
    sampled: int = 0  # tokens that a validation reads; 0 until the first one
    timed: bool = False  # the minutes decide the number of steps
    worse: int = 0  # consecutive validations that are clearly worse than the best
    annealed: bool = False  # the best weights were restored
    threads: int = 0  # that compute on the CPU; 0 = as many as PyTorch has

    def __post_init__(self) -> None:
        counts = (self.step, self.steps, self.best_step, self.stale, self.symbols, self.threads)
        if min(*counts, self.symbols_read, self.metrics, self.seconds) < 0:
            raise ValueError("what was counted must not be negative")


class ExtraState(Protocol):
    """The state of an optimizer, or of what a loop has in its place."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""


class Loop(ABC):
    """Train a model in a run folder: steps, validations and checkpoints, until done or interrupted.

    Subclasses define a step and its state.
    """

    optimizer: ExtraState

    def __init__(
        self,
        model: Any,
        corpus: Corpus,
        recipe: TrainRecipe,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: ForbiddenTransitions | None,
        world: ProcessGroup,
    ) -> None:
        self.model, self.corpus, self.recipe, self.world = model, corpus, recipe, world
        self.metric = model.loss_metric
        self.items = self.metric.items  # that the speed counts
        self.run_folder, self.reporter, self.constrain = run, reporter, forbidden
        self.repeated = world.size > 1  # a launcher may send a signal twice
        self.signal = 0  # that interrupted the run
        self.listening: Listening = lambda metrics, step: contextlib.nullcontext()
        self.filming: Filming = lambda step: None
        self.progress = LoopState()
        self.average = WeightAverage(recipe.average_last)
        self.sample: Shard | None = None  # what validations read, drawn at the first of them
        self.clock: Clock | None = None  # of a run whose minutes decide the number of steps
        self.pace: Pace | None = None  # the result of calibration, likewise
        self.short_step = math.inf  # the usual seconds of a step, if threads were chosen by it
        self.recent_seconds = deque[float](maxlen=RECENT)  # of the last steps, likewise
        self.step_seconds: list[float] = []  # of the steps since planning, if there is a clock
        self.token_seconds: list[float] = []  # of each validation

    @abstractmethod
    def take_step(self, step: int) -> tuple[float, int]:
        """Update the weights once; return the summed loss before it and its number of symbols."""

    def count_read(self, symbols: int) -> int:
        """Return how much data the last step read, whose loss is summed over `symbols`."""
        return symbols

    def better(self, value: float | None) -> bool:
        """Return whether a model with this (finite) validation loss replaces the stored one."""
        best = self.progress.best
        return best is None or (value is not None and value < best)

    def plan(self, steps: int) -> None:
        """Set the number of steps, and with it the intervals to validate, save and log."""
        self.steps = steps
        self.eval_every, _ = self.validations(steps)
        self.checkpoint_every = self.recipe.checkpoint_every or self.eval_every
        self.log_every = max(1, steps // LOGGED)

    def validations(self, steps: int) -> tuple[int, int]:
        """Return the steps between two validations of a run of `steps` steps, and the most tokens
        that each reads.

        A validation reads at least RECORDS records, unless that is more than an eighth of what the
        run trains on; if validations take long, there are fewer of them rather than smaller ones.
        """
        recipe, valid = self.recipe, self.corpus.valid
        trained = steps * recipe.batch_tokens
        mean = valid.tokens / max(1, valid.records) if valid and valid.has_records else 0.0
        least = max(BATCH_TOKENS, round(min(RECORDS * mean, trained / 8)))
        if every := recipe.eval_every:
            return every, max(least, round(every * recipe.batch_tokens * VALIDATION_SHARE))
        share = VALIDATION_SHARE * trained
        tokens = max(least, round(share / EVALUATIONS))
        read = min(tokens, valid.tokens) if valid else tokens
        count = min(EVALUATIONS, max(FEWEST, int(share / read)))
        return max(1, steps // count), tokens

    def final_parts(self, steps: int, pace: Pace | None = None) -> dict[str, int]:
        """Return the most tokens of each held-out split to evaluate on after `steps` steps."""
        pace = pace or self.pace
        most = pace.measurable(self.clock) if pace and self.clock else math.inf
        return final_parts(self.recipe, self.corpus, steps, most)

    @property
    def block(self) -> int:
        """Tokens of running text that a validation reads at a time: a window and its target."""
        return int(self.model.config.max_len) + 1

    def first_not_finite(self) -> str:
        """Return the name of the first parameter, else gradient, with NaN or infinity."""
        named = list(self.model.named_parameters())
        tensors = [(name, p.detach()) for name, p in named]
        tensors += [(f"the gradient of {name}", p.grad) for name, p in named if p.grad is not None]
        names = (name for name, x in tensors if not bool(torch.isfinite(x).all()))
        return next(names, "the loss")

    def validate(self, stop: Callable[[], object] = bool) -> MeanLoss | None:
        """Return the mean loss on a fixed sample of the validation set.

        Processes share the work; the result does not depend on their number.
        """
        if self.corpus.valid is None:
            return None
        if self.sample is None:
            p = self.progress
            p.sampled = p.sampled or self.validations(self.steps)[1]
            self.sample = sample(self.corpus.valid, p.sampled, self.recipe.seed, block=self.block)
        return self.cost(self.sample, stop)

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        """Return the mean loss on a shard."""
        tokenizer = self.corpus.tokenizer
        stride = self.model.config.max_len  # windows without overlap are the cheapest
        values, scored = log_probs(
            self.model,
            shard,
            tokenizer,
            stride=stride,
            constrain=self.constrain,
            stop=stop,
            world=self.world,
        )
        return symbol_loss(values, scored, shard, tokenizer)

    def resume(self) -> bool:
        """Load the newest intact checkpoint in all processes; return whether there is one."""
        restored = self.world.together(self._restore)
        if len(set(self.world.exchange(self.progress.step))) > 1:
            raise UserError(f"not every process finds the same checkpoint in {self.run_folder}")
        return restored

    def _restore(self) -> bool:
        newest = checkpoint.newest(self.run_folder, self.reporter.warn)
        if newest is None:
            return False
        tensors, state = newest
        try:
            check_names(self.run_folder, set(tensors["model"]), set(weights(self.model)))
            self.model.load_state_dict(tensors["model"], strict=False)
            self.optimizer.load(tensors["optimizer"])
            if "average" in tensors:
                self.average.load(tensors["average"], next(self.model.parameters()).device)
            self.progress = adapter(LoopState).validate_python(state)
            if self.progress.steps:
                self.plan(self.progress.steps)
            if self.progress.threads:
                torch.set_num_threads(self.progress.threads)
        except (KeyError, TypeError, RuntimeError, ValueError):
            raise UserError(
                f"the checkpoint in {self.run_folder} does not fit its recipe.toml: was it changed?"
            ) from None
        return True

    def save(self, metrics: MetricsLog) -> None:
        """Write a checkpoint; it does not depend on the number of processes."""

        def write() -> None:
            self.progress.metrics = metrics.offset()
            groups = {"model": weights(self.model), "optimizer": self.optimizer.tensors()}
            if self.average.count:
                groups["average"] = self.average.tensors()
            checkpoint.save(self.run_folder, self.progress.step, groups, asdict(self.progress))

        self.world.on_rank0(write)

    def run(self) -> str:
        """Train; return "done", "early", or "interrupted" after a checkpoint was written."""
        keep = self.progress.metrics
        metrics = MetricsLog(self.run_folder, keep=keep) if self.world.first else NoMetrics()
        self.model.train()
        if self.clock is not None:
            self.clock.start()
        try:
            with (
                self.listening(metrics, self.progress.step),
                Interrupt(repeated=self.repeated) as interrupt,
            ):
                # the only point at which processes agree to stop, all after the same step
                return self._run(metrics, lambda: self.world.agree(interrupt.asked))
        finally:
            self.reporter.stop()
            metrics.close()

    def _run(self, metrics: MetricsLog, interrupted: Callable[[], int]) -> str:
        p, began, first = self.progress, time.monotonic(), self.progress.step
        spent, read_before = p.seconds, p.symbols_read
        patience = self.recipe.patience
        if not p.step and not p.due:
            self.world.on_rank0(lambda: self.filming(0))
        while (p.step < self.steps or p.due) and not (patience and p.stale >= patience):
            if not p.due:
                start = time.monotonic()
                nats, symbols = self.take_step(p.step)
                p.step += 1
                p.nats, p.symbols = p.nats + nats, p.symbols + symbols
                p.symbols_read += self.count_read(symbols)
                elapsed = time.monotonic() - began
                p.seconds = spent + elapsed
                rate = (p.symbols_read - read_before) / max(elapsed, 1e-9)
                self.report(nats / symbols, rate, elapsed / (p.step - first), p.step - first)
                self.log(metrics, rate)
                self.keep_time(time.monotonic() - start)
                p.due = p.step % self.eval_every == 0 or p.step == self.steps
            if p.due:
                p.due = not self.evaluate(metrics, interrupted)
            last = not p.due and (p.step == self.steps or (patience and p.stale >= patience))
            number = interrupted()
            if last or number or p.step % self.checkpoint_every == 0:
                self.save(metrics)
            if number and not last:
                self.signal = number
                return "interrupted"
        return "done" if p.step == self.steps else "early"

    @property
    def steady(self) -> bool:
        """Whether the time of the last step is representative of those to come."""
        return True

    def keep_time(self, seconds: float) -> None:
        """Record the time of a step of a run whose minutes decide: replan the steps at the marks of
        the clock, and end now if the time is over.
        """
        clock, p = self.clock, self.progress
        if clock is None:
            return
        if self.steady:
            self.step_seconds.append(seconds)
            self.recent_seconds.append(seconds)
        if p.threads > 1 and p.step % RECENT == 0:
            self.check_threads()
        if self.world.size > 1 and p.step % max(1, self.steps // CHECKS):
            return  # processes do not synchronize after every step
        marked = len(self.step_seconds) >= SEEN and clock.passes_mark()
        over, marked = self.world.share((clock.over, marked))
        if over:
            p.steps = self.steps = p.step
        elif marked:
            self.replan(clock)

    def replan(self, clock: Clock) -> None:
        """Plan how many steps fit into the remaining time, at the pace of those so far."""
        p = self.progress
        if self.pace is None or p.annealed:
            return
        self.pace = self.pace.observed(self.step_seconds, self.token_seconds)
        self.step_seconds = []
        steps = self.pace.steps_within(clock, p.step)
        if abs(steps - self.steps) > SAME * self.steps:
            self.plan(steps)
            p.steps = steps

    def check_threads(self) -> None:
        """Go on with half of the threads if short steps have become much slower: other programs
        compute, too, and threads wait for each other after every operation.
        """
        p, recent, usual = self.progress, self.recent_seconds, self.short_step
        if len(recent) < RECENT:
            return
        seconds = median(recent)
        if not usual:  # the first steps since there are fewer threads
            self.short_step = seconds
        elif seconds >= BUSY * usual:
            p.threads //= 2
            torch.set_num_threads(p.threads)
            self.reporter.say(
                f"steps take {seconds / usual:.1f} times as long as before, as if other programs "
                f"compute, too: going on with {p.threads} of {2 * p.threads} threads"
            )
            self.short_step, self.step_seconds = 0.0, []
            recent.clear()

    def log(self, metrics: MetricsLog, rate: float) -> None:
        """Log the mean loss since the last line, at the planned intervals."""
        p = self.progress
        if p.step % self.log_every == 0 or p.step == self.steps:
            read = {"items": self.items, "read": p.symbols_read}
            timings = {"seconds": p.seconds, "read_per_second": rate}
            values = self.named(p.nats / p.symbols) | self.step_values() | read | timings
            metrics.log("train", **values, memory_bytes=self.memory_bytes())
            p.nats, p.symbols = 0.0, 0

    def named(self, loss: float) -> dict[str, Any]:
        """Return the step and a mean loss under its true name, for metrics.jsonl."""
        metric = self.metric
        value = metric.value(loss)
        return {
            "step": self.progress.step,
            "metric": metric.name,
            "unit": metric.unit,
            "value": value,
        }

    def step_values(self) -> dict[str, float]:
        """Return what else is known of the last step: its learning rate, the gradient norm."""
        return {}

    def memory_bytes(self) -> int:
        """Return the memory that this process holds."""
        return resident_bytes()

    def evaluate(self, metrics: MetricsLog, interrupted: Callable[[], int]) -> bool:
        """Validate, store the best model and log; return False if a signal interrupted it."""
        p, start = self.progress, time.monotonic()
        try:
            loss = self.validate(interrupted)
        except Stopped:
            return False
        if self.sample is not None:
            self.token_seconds.append((time.monotonic() - start) / self.sample.tokens)
        if loss is not None and math.isnan(loss.value):
            raise UserError(
                f"step {p.step}: validation gives no number "
                f"({self.first_not_finite()} is not finite); training stopped. Try a lower train.lr"
            )
        # forbidden transitions can make it infinite: then the last model is as good as any
        better = self.better(loss.value if loss and math.isfinite(loss.value) else None)
        p.stale = 0 if better else p.stale + 1
        self.note(metrics, "valid", loss, better)
        self.world.on_rank0(lambda: self.filming(p.step))
        if loss is not None and self.overfits(loss):
            self.anneal(metrics)
        if self.average.wants(self.steps - p.step, self.eval_every):
            self.average.add(self.model)
            if p.step == self.steps:
                self.try_average(metrics)
        return True

    def overfits(self, loss: MeanLoss) -> bool:
        """Return whether the last validations of a run whose minutes decide were all clearly worse
        than the best, so that more steps at this learning rate do not help.
        """
        p = self.progress
        if p.best is None or loss.error is None or not p.timed or p.annealed:
            return False
        p.worse = p.worse + 1 if loss.value > p.best + CLEARLY * loss.error else 0
        return p.worse >= WORSE and self.steps - p.step > ANNEALING * p.best_step

    def anneal(self, metrics: MetricsLog) -> None:
        """Restore the best weights and let the learning rate fall to its end in half as many steps
        as led to them.
        """
        p = self.progress
        self.restore_best()
        p.annealed, p.steps = True, p.step + max(1, round(ANNEALING * p.best_step))
        self.plan(p.steps)
        metrics.log("anneal", step=p.step, best_step=p.best_step, seconds=p.seconds)
        self.reporter.say(
            f"validation has become worse since step {p.best_step:,}: training goes on from there "
            f"and ends at step {p.steps:,}; longer training would not help"
        )

    def restore_best(self) -> None:
        """Load the weights of the best validation."""
        best = read_tensors(self.run_folder / WEIGHTS)
        self.model.load_state_dict(best, strict=False)

    def note(self, metrics: MetricsLog, event: str, loss: MeanLoss | None, better: bool) -> None:
        """Log a validation; write the model if it is better than the stored one."""
        p = self.progress
        if better:
            p.best = loss.value if loss and math.isfinite(loss.value) else None
            p.best_step = p.step
            self.world.on_rank0(
                lambda: write_tensors(self.run_folder / WEIGHTS, weights(self.model))
            )
        if loss is not None:
            error = {key: self.metric.error(loss.value, x) for key, x in loss.to_json().items()}
            metrics.log(event, **self.named(loss.value), **error, best=better, seconds=p.seconds)

    def try_average(self, metrics: MetricsLog) -> None:
        """Store the mean of the last weights if it is better than the best."""
        p = self.progress
        with self.average.inside(self.model):
            loss = self.validate()
            if loss is not None and math.isfinite(loss.value):
                self.note(metrics, "average", loss, p.best is None or loss.value < p.best)

    def report(self, nats: float, rate: float, per_step: float, done: int) -> None:
        """Show the best validation so far or, before there is one, the loss of the last step; and
        the time that is left once 20 steps, or a tenth of the run, were timed.
        """
        p, metric = self.progress, self.metric
        known = done >= min(20, max(1, self.steps // 10))
        left = per_step * (self.steps - p.step) if known else None
        what, loss = ("training", nats) if p.best is None else ("validation", p.best)
        detail = f"{what} {metric.show(metric.value(loss))}"
        self.reporter.show(Status("step", p.step, self.steps, self.items, rate, left, detail))

    def facts(self) -> dict[str, Any]:
        """Return facts about the run for regard.json."""
        p = self.progress
        return {
            "parameters": sum(x.numel() for x in self.model.parameters()),
            "steps": p.step,
            "best_step": p.best_step,
            "train_seconds": round(p.seconds, 3),
            "symbols_per_second": round(p.symbols_read / p.seconds, 1) if p.seconds else None,
            "threads": p.threads or torch.get_num_threads(),
        }


class SingleLoop(Loop):
    """Train the model of a recipe in a run folder, in one process on the CPU."""

    step_name: ClassVar[str] = "step"  # in messages

    @abstractmethod
    def within(self, seconds: float) -> int:
        """Return how many steps fit into some seconds; the model is left unchanged."""

    @abstractmethod
    def intent(self) -> str:
        """Return what will be trained, in words."""

    def fit(
        self, recipe: Recipe, *, new: bool, began: float
    ) -> tuple[int, str, int, dict[str, Any]]:
        """Train, `new` or from a checkpoint; return the planned steps, the outcome, the signal that
        interrupted it, and facts for regard.json. `began` is when train.minutes started.
        """
        if not recipe.train.steps:
            self.clock = Clock(began, recipe.train.minutes * 60)
            recipe = recipe.replace(train={"steps": self.within(self.clock.left - CLOSING)})
            write_text(self.run_folder / RECIPE, to_toml(recipe))
            self.plan(recipe.train.steps)
        write_config(self.run_folder, recipe.model.name, self.model, recipe.task.name)
        intent = self.intent()
        resumed = not new and self.resume()
        where = f", from {self.step_name} {self.progress.step:,}" if resumed else ""
        self.reporter.say(f"training {intent} on cpu{where}")
        outcome = self.run()
        return self.progress.steps or recipe.train.steps, outcome, self.signal, self.facts()

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"device": "cpu"}


CONVERGED = 1e-5  # a pass that improves the objective by a smaller share is the last
PASSES = 100  # at most, if the recipe sets minutes and not steps
TIMED = 1 << 18  # tokens that one pass is timed on
OVERHEAD = 1.15  # time with validating and saving, relative to the passes alone


class EMState:
    """The last two values of the objective."""

    def __init__(self) -> None:
        self.values = torch.full((2,), -torch.inf, dtype=torch.float64)

    def add(self, value: float) -> None:
        """Add the objective of the last pass."""
        self.values = torch.stack([self.values[1], torch.tensor(value, dtype=torch.float64)])

    @property
    def converged(self) -> bool:
        """Whether the last pass improved the objective by next to nothing."""
        before, now = self.values.tolist()
        return bool(now - before < CONVERGED * abs(before))

    def tensors(self) -> dict[str, Tensor]:
        return {"objectives": self.values}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.values = tensors["objectives"]


class EMLoop(SingleLoop):
    """Train a model by expectation maximization."""

    model: EMModel
    optimizer: EMState
    step_name = "pass"

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: ForbiddenTransitions | None = None,
    ) -> None:
        model = recipe.family(corpus.tokenizer.vocab_size, recipe.model.config)
        # a step reads all data; the size of validations follows from that
        train = dataclasses.replace(recipe.train, batch_tokens=max(1, corpus.train.tokens))
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=ALONE)
        self.optimizer = EMState()
        self.plan(train.steps)

    def plan(self, steps: int) -> None:
        """Set the most passes; validate after each, unless the recipe sets the interval."""
        self.steps, self.log_every = steps, 1
        self.eval_every = self.recipe.eval_every or 1
        self.checkpoint_every = self.recipe.checkpoint_every or max(1, steps // EVALUATIONS)

    def take_step(self, step: int) -> tuple[float, int]:
        """Make one pass; it is the last if it has converged."""
        result = self.model.improve(self.corpus.train)
        self.optimizer.add(result.objective)
        self._end_if_converged(step + 1)
        return -result.log_likelihood, max(1, self.corpus.train.symbols)

    def _restore(self) -> bool:
        restored = super()._restore()
        self._end_if_converged(self.progress.step)
        return restored

    def _end_if_converged(self, step: int) -> None:
        if step and self.optimizer.converged:
            self.steps = step

    def within(self, seconds: float) -> int:
        """Return how many passes fit, at most PASSES, by timing one on a part of the data."""
        before = {name: value.clone() for name, value in weights(self.model).items()}
        train = self.corpus.train
        part = truncate_shard(train, TIMED)
        began = time.monotonic()
        self.model.improve(part)
        each = OVERHEAD * (time.monotonic() - began) * train.tokens / part.tokens
        self.model.load_state_dict(before)
        return int(max(1, min(PASSES, seconds / each)))

    def intent(self) -> str:
        size = sum(x.numel() for x in self.model.parameters())
        symbols = self.corpus.train.symbols
        return f"{size:,} parameters by at most {self.steps:,} passes over {symbols:,} symbols"

    def facts(self) -> dict[str, Any]:
        more = {"epochs": self.progress.step, "converged": self.optimizer.converged}
        return super().facts() | more
