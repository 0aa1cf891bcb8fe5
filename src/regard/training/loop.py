"""The mean of the weights at the last validations of a run (Vaswani et al. 2017, section 6.1).

Steps near the end go to and fro around a place that is better than each of them.

The training loop: the same steps, in the same order, however often it is stopped and resumed.

Nothing about the position in the data or the random numbers is stored: a step's batch is a pure
function of its number, and every step seeds torch from (seed, step, rank). What is stored are
weights, optimizer and a few running sums. Nothing of it depends on how many processes train.
"""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from regard.data.batching import sample
from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.decoding.constraints import ForbiddenTransitions
from regard.errors import UserError
from regard.recipe import TrainRecipe
from regard.run import WEIGHTS, Metrics, check_names, read_tensors, weights, write_tensors
from regard.storage import adapter
from regard.training import checkpoint
from regard.training.distributed import NoMetrics, ProcessGroup
from regard.training.progress import Interrupt, Reporter, Status
from regard.training.throughput import SEEN, Clock, Pace, final_parts
from regard.training.validation import BATCH_TOKENS, MeanLoss, Stopped, log_probs, nats_per_symbol

COUNT = "count"  # among the tensors of a checkpoint, beside the sums


class WeightAverage:
    """Sums of weights, over the last `last` validations of a run that are known beforehand."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0
        self.sums: dict[str, Tensor] = {}

    def wants(self, left: int, every: int) -> bool:
        """Does a validation with so many steps left count, where there is one `every` so many?"""
        return self.last > 1 and left < self.last * every

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Count the weights as they are."""
        for name, value in weights(model).items():
            if name in self.sums:
                self.sums[name] += value
            else:
                self.sums[name] = value.double()
        self.count += 1

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """The model has the mean of what was added for weights, and its own again afterwards."""
        own = {name: value.clone() for name, value in weights(model).items()}
        model.load_state_dict({n: x / self.count for n, x in self.sums.items()}, strict=False)
        try:
            yield
        finally:
            model.load_state_dict(own, strict=False)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""
        return {**self.sums, COUNT: torch.tensor(self.count)}

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take back what `tensors` gave."""
        self.count = int(tensors[COUNT])
        self.sums = {n: x.to(device) for n, x in tensors.items() if n != COUNT}


EVALUATIONS = 20  # validations in a run, unless the recipe says how often ...
FEWEST = 8  # ... or they would take too long: then so many at least
VALIDATION_SHARE = 0.15  # tokens validated per token trained: about 5% of the time
RECORDS = 200  # records in a validation, unless that would be too long: an accuracy is then +-0.035
LOGGED = 200  # training lines in metrics.jsonl, about
CLEARLY, WORSE = 2.0, 3  # standard errors above the best, in so many validations in a row
ANNEALING = 0.5  # steps in which the learning rate then falls, of those that led to the best
SAME = 0.02  # a new plan of the steps that differs by less is the old one
CHECKS = 100  # times that many processes agree, during a run, on what the clock says


def seed_of(*numbers: int) -> int:
    """One 63-bit seed from several numbers, the same everywhere."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class Progress:
    """What a run remembers besides tensors; saved with every checkpoint, exactly."""

    step: int = 0
    best: float | None = None  # validation nats per symbol
    best_error: float | None = None  # its standard error
    best_step: int = 0
    stale: int = 0  # validations since the best
    due: bool = False  # is a validation of this step's weights still to come?
    nats: float = 0.0  # summed since the last logged line ...
    symbols: int = 0  # ... and over how many symbols
    seconds: float = 0.0  # spent training, over all sessions
    seen: int = 0  # symbols trained on
    metrics: int = 0  # bytes of metrics.jsonl
    steps: int = 0  # planned on the way; 0 = as many as the recipe says
    sampled: int = 0  # tokens that a validation reads; 0 until the first one
    timed: bool = False  # do minutes decide how many steps there are?
    worse: int = 0  # validations in a row that are clearly worse than the best
    annealed: bool = False  # has it gone back to the best weights?

    def __post_init__(self) -> None:
        counts = (self.step, self.steps, self.best_step, self.stale, self.symbols, self.seen)
        if min(*counts, self.metrics, self.seconds) < 0:
            raise ValueError("what was counted must not be negative")


class ExtraState(Protocol):
    """What a way of training remembers besides the weights."""

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""


class Loop(ABC):
    """Trains a language model in a run folder: steps, validations, checkpoints, until told to stop.

    What a step is and what it remembers, is for the subclass to say.
    """

    optimizer: ExtraState
    figure: ClassVar[str] = "nats_per_symbol"  # what is measured, in metrics.jsonl
    unit: ClassVar[str] = "symbol"  # what is read, in what is said meanwhile

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
        self.run_folder, self.reporter, self.constrain = run, reporter, forbidden
        self.repeated = world.size > 1  # may a signal come twice?
        self.signal = 0  # that interrupted the run
        self.progress = Progress()
        self.average = WeightAverage(recipe.average)
        self.sample: Shard | None = None  # what a validation reads, drawn when the first one comes
        self.clock: Clock | None = None  # of a run whose minutes decide how many steps it makes
        self.pace: Pace | None = None  # what calibration found, likewise
        self.step_seconds: list[float] = []  # of the steps since planning, while there is a clock
        self.token_seconds: list[float] = []  # of each validation

    @abstractmethod
    def take_step(self, step: int) -> tuple[float, int]:
        """One update of the weights; the nats before it and the symbols they are for."""

    def seen(self, symbols: int) -> int:
        """How much of the data the step has read whose nats are for so many symbols."""
        return symbols

    def better(self, value: float | None) -> bool:
        """Is a model of this (finite) validation to be kept, instead of the one that is?"""
        best = self.progress.best
        return best is None or (value is not None and value < best)

    def plan(self, steps: int) -> None:
        """Train for so many steps, and validate, save and log at the intervals that gives."""
        self.steps = steps
        self.eval_every, _ = self.validations(steps)
        self.checkpoint_every = self.recipe.checkpoint_every or self.eval_every
        self.log_every = max(1, steps // LOGGED)

    def validations(self, steps: int) -> tuple[int, int]:
        """Return how many steps lie between two validations of a run of so many steps, and how many
        tokens each reads at most.

        They are RECORDS records at least, unless that is more than an eighth of what the run trains
        on; where they take long, validations become fewer rather than smaller.
        """
        recipe, valid = self.recipe, self.corpus.valid
        trained = steps * recipe.batch_tokens
        mean = valid.tokens / max(1, valid.records) if valid and valid.kind == "records" else 0.0
        least = max(BATCH_TOKENS, round(min(RECORDS * mean, trained / 8)))
        if every := recipe.eval_every:
            return every, max(least, round(every * recipe.batch_tokens * VALIDATION_SHARE))
        share = VALIDATION_SHARE * trained
        tokens = max(least, round(share / EVALUATIONS))
        read = min(tokens, valid.tokens) if valid else tokens
        count = min(EVALUATIONS, max(FEWEST, int(share / read)))
        return max(1, steps // count), tokens

    def final_parts(self, steps: int, pace: Pace | None = None) -> dict[str, int]:
        """How many tokens of each held-out split are measured after so many steps, at most."""
        pace = pace or self.pace
        most = pace.measurable(self.clock) if pace and self.clock else math.inf
        return final_parts(self.recipe, self.corpus, steps, most)

    @property
    def block(self) -> int:
        """Tokens of running text that a validation reads at a time: a window, and its target."""
        return int(self.model.config.max_len) + 1

    def first_not_finite(self) -> str:
        """The first parameter, else gradient, that holds NaN or infinity; else the loss."""
        named = list(self.model.named_parameters())
        held = [(name, p.detach()) for name, p in named]
        held += [(f"the gradient of {name}", p.grad) for name, p in named if p.grad is not None]
        wrong = (name for name, x in held if not bool(torch.isfinite(x).all()))
        return next(wrong, "the loss")

    def validate(self, stop: Callable[[], object] = bool) -> MeanLoss | None:
        """Return the mean loss on a sample of the validation set, the same every time.

        The processes share the work; the result does not depend on how many they are.
        """
        if self.corpus.valid is None:
            return None
        if self.sample is None:
            p = self.progress
            p.sampled = p.sampled or self.validations(self.steps)[1]
            self.sample = sample(self.corpus.valid, p.sampled, self.recipe.seed, block=self.block)
        return self.cost(self.sample, stop)

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        """Nats per symbol of a shard."""
        tokenizer = self.corpus.tokenizer
        stride = self.model.config.max_len  # cold windows: the cheapest, and the same every time
        values, scored = log_probs(
            self.model,
            shard,
            tokenizer,
            stride=stride,
            constrain=self.constrain,
            stop=stop,
            world=self.world,
        )
        return nats_per_symbol(values, scored, shard, tokenizer)

    def resume(self) -> bool:
        """Take the newest whole checkpoint, the same in all processes; False if there is none."""
        found = self.world.together(self._restore)
        if len(set(self.world.exchange(self.progress.step))) > 1:
            raise UserError(f"not every process finds the same checkpoint in {self.run_folder}")
        return found

    def _restore(self) -> bool:
        found = checkpoint.newest(self.run_folder, self.reporter.warn)
        if found is None:
            return False
        tensors, state = found
        try:
            check_names(self.run_folder, set(tensors["model"]), set(weights(self.model)))
            self.model.load_state_dict(tensors["model"], strict=False)
            self.optimizer.load(tensors["optimizer"])
            if "average" in tensors:
                self.average.load(tensors["average"], next(self.model.parameters()).device)
            self.progress = adapter(Progress).validate_python(state)
            if self.progress.steps:
                self.plan(self.progress.steps)
        except (KeyError, TypeError, RuntimeError, ValueError):
            raise UserError(
                f"the checkpoint in {self.run_folder} does not fit its recipe.toml: was it changed?"
            ) from None
        return True

    def save(self, metrics: Metrics) -> None:
        """Write a checkpoint of this moment; it says nothing of how many processes there are."""

        def write() -> None:
            self.progress.metrics = metrics.offset()
            groups = {"model": weights(self.model), "optimizer": self.optimizer.tensors()}
            if self.average.count:
                groups["average"] = self.average.tensors()
            checkpoint.save(self.run_folder, self.progress.step, groups, asdict(self.progress))

        self.world.on_rank0(write)

    def run(self) -> str:
        """Train to the end; "done", "early", or "interrupted" with a checkpoint written."""
        keep = self.progress.metrics
        metrics = Metrics(self.run_folder, keep=keep) if self.world.first else NoMetrics()
        self.model.train()
        if self.clock is not None:
            self.clock.start()
        self.reporter.start(self.steps, self.progress.step)
        try:
            with Interrupt(repeated=self.repeated) as interrupt:
                # the one place where the processes agree to stop, each after the same step
                return self._run(metrics, lambda: self.world.agree(interrupt.asked))
        finally:
            self.reporter.stop()
            metrics.close()

    def _run(self, metrics: Metrics, asked: Callable[[], int]) -> str:
        p, began, first = self.progress, time.monotonic(), self.progress.step
        spent, seen = p.seconds, p.seen
        patience = self.recipe.patience
        while (p.step < self.steps or p.due) and not (patience and p.stale >= patience):
            if not p.due:
                start = time.monotonic()
                nats, symbols = self.take_step(p.step)
                p.step += 1
                p.nats, p.symbols = p.nats + nats, p.symbols + symbols
                p.seen += self.seen(symbols)
                elapsed = time.monotonic() - began
                p.seconds = spent + elapsed
                rate = (p.seen - seen) / max(elapsed, 1e-9)
                self.report(nats / symbols, rate, elapsed / (p.step - first), p.step - first)
                self.log(metrics, rate)
                self.keep_time(time.monotonic() - start)
                p.due = p.step % self.eval_every == 0 or p.step == self.steps
            if p.due:
                p.due = not self.evaluate(metrics, asked)
            last = not p.due and (p.step == self.steps or (patience and p.stale >= patience))
            number = asked()
            if last or number or p.step % self.checkpoint_every == 0:
                self.save(metrics)
            if number and not last:
                self.signal = number
                return "interrupted"
        return "done" if p.step == self.steps else "early"

    @property
    def steady(self) -> bool:
        """Did the last step take the time that those to come will take?"""
        return True

    def keep_time(self, seconds: float) -> None:
        """Take note of a step's time where the minutes decide: plan the steps again when it is time
        to, and end here when the time is over.
        """
        clock, p = self.clock, self.progress
        if clock is None:
            return
        if self.steady:
            self.step_seconds.append(seconds)
        if self.world.size > 1 and p.step % max(1, self.steps // CHECKS):
            return  # the processes do not ask each other after every step
        marked = len(self.step_seconds) >= SEEN and clock.passes_mark()
        over, marked = self.world.share((clock.over, marked))
        if over:
            p.steps = self.steps = p.step
        elif marked:
            self.replan(clock)

    def replan(self, clock: Clock) -> None:
        """Plan how many steps fit into the rest of the time, by the pace of those made so far."""
        p = self.progress
        if self.pace is None or p.annealed:
            return
        self.pace = self.pace.observed(self.step_seconds, self.token_seconds)
        self.step_seconds = []
        steps = self.pace.steps_within(clock, p.step)
        if abs(steps - self.steps) > SAME * self.steps:
            self.plan(steps)
            p.steps = steps

    def log(self, metrics: Metrics, rate: float) -> None:
        """A line of metrics.jsonl every so often, over the steps since the last."""
        p = self.progress
        if p.step % self.log_every == 0 or p.step == self.steps:
            mean = p.nats / p.symbols
            told = {"step": p.step, self.figure: mean, "symbols": p.seen, "seconds": p.seconds}
            metrics.log("train", **told, symbols_per_second=rate)
            p.nats, p.symbols = 0.0, 0

    def evaluate(self, metrics: Metrics, asked: Callable[[], int]) -> bool:
        """Validate, keep the best model, log; False if a signal cut it short."""
        p, start = self.progress, time.monotonic()
        try:
            found = self.validate(asked)
        except Stopped:
            return False
        if self.sample is not None:
            self.token_seconds.append((time.monotonic() - start) / self.sample.tokens)
        if found is not None and math.isnan(found.value):
            raise UserError(
                f"step {p.step}: validation gives no number "
                f"({self.first_not_finite()} is not finite); training stopped. Try a lower train.lr"
            )
        # forbidden transitions can make it infinite: then the last model is as good as any
        better = self.better(found.value if found and math.isfinite(found.value) else None)
        p.stale = 0 if better else p.stale + 1
        self.note(metrics, "valid", found, better)
        if found is not None and self.overfits(found):
            self.anneal()
        if self.average.wants(self.steps - p.step, self.eval_every):
            self.average.add(self.model)
            if p.step == self.steps:
                self.try_average(metrics)
        return True

    def overfits(self, found: MeanLoss) -> bool:
        """Has a run whose minutes decide been clearly worse than its best for several validations?
        More steps at this learning rate then lead away from it.
        """
        p = self.progress
        if p.best is None or found.error is None or not p.timed or p.annealed:
            return False
        p.worse = p.worse + 1 if found.value > p.best + CLEARLY * found.error else 0
        return p.worse >= WORSE and self.steps - p.step > ANNEALING * p.best_step

    def anneal(self) -> None:
        """Go back to the best weights and let the learning rate fall to its end from there, in half
        as many steps as led to them.
        """
        p = self.progress
        self.restore_best()
        p.annealed, p.steps = True, p.step + max(1, round(ANNEALING * p.best_step))
        self.plan(p.steps)
        self.reporter.say(
            f"validation has become worse since step {p.best_step:,}: training goes on from there "
            f"and ends at step {p.steps:,}; longer training would not help"
        )

    def restore_best(self) -> None:
        """Take back the weights of the best validation."""
        best = read_tensors(self.run_folder / WEIGHTS)
        self.model.load_state_dict(best, strict=False)

    def note(self, metrics: Metrics, event: str, found: MeanLoss | None, better: bool) -> None:
        """Log a validation; write the model if it is better than those before."""
        p = self.progress
        if better:
            known = found is not None and math.isfinite(found.value)
            p.best, p.best_error = found if known and found else (None, None)
            p.best_step = p.step
            self.world.on_rank0(
                lambda: write_tensors(self.run_folder / WEIGHTS, weights(self.model))
            )
        if found is not None:
            told = {"step": p.step, self.figure: found.value, **found.to_json()}
            metrics.log(event, **told, best=better, seconds=p.seconds)

    def try_average(self, metrics: Metrics) -> None:
        """Take the mean of the last weights instead where it is better."""
        p = self.progress
        with self.average.inside(self.model):
            found = self.validate()
            if found is not None and math.isfinite(found.value):
                self.note(metrics, "average", found, p.best is None or found.value < p.best)

    def report(self, nats: float, rate: float, per_step: float, done: int) -> None:
        """Tell the reporter; the ETA once 20 steps, or a tenth of the run, have been timed."""
        p = self.progress
        known = done >= min(20, max(1, self.steps // 10))
        eta = per_step * (self.steps - p.step) if known else None
        status = Status(p.step, self.steps, nats, rate, eta, p.best, p.best_error, self.unit)
        self.reporter.update(status)

    def facts(self) -> dict[str, Any]:
        """What the run was, for regard.json."""
        p = self.progress
        return {
            "parameters": sum(x.numel() for x in self.model.parameters()),
            "steps": p.step,
            "best_step": p.best_step,
            "train_seconds": round(p.seconds, 3),
            "symbols_per_second": round(p.seen / p.seconds, 1) if p.seconds else None,
            "threads": torch.get_num_threads(),
        }
