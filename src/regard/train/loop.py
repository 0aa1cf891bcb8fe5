"""The training loop: the same steps, in the same order, however often it is stopped and resumed.

Nothing about the position in the data or the random numbers is stored: a step's batch is a pure
function of its number, and every step seeds torch from (seed, step, rank). What is stored are
weights, optimizer and a few running sums. Nothing of it depends on how many processes train.
"""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch, Loader
from regard.data.corpus import Corpus
from regard.data.masking import Masked, MaskedLoader
from regard.data.questions import Asked, QuestionLoader
from regard.data.shards import Shard
from regard.decode.constraints import Forbidden
from regard.errors import UserError
from regard.models.assessor import NeuralAssessor
from regard.models.language_model import NeuralLanguageModel
from regard.recipe import Recipe, TrainRecipe
from regard.run import WEIGHTS, Metrics, check_names, weights, write_tensors
from regard.train import checkpoint
from regard.train.average import Average
from regard.train.distributed import ALONE, Unwritten, World, empty
from regard.train.forecast import foresee
from regard.train.progress import Reporter, Status
from regard.train.schedule import factor
from regard.train.signals import Interrupt
from regard.train.step import Stepper, may_capture
from regard.train.validation import (
    BATCH_TOKENS,
    Stopped,
    beginning,
    cost_per_answer,
    log_probs,
    nats_per_symbol,
)

EVALUATIONS = 20  # validations in a run, unless the recipe says how often
VALIDATION_SHARE = 0.15  # tokens validated per token trained: about 5% of the time
LOGGED = 200  # training lines in metrics.jsonl, about
FINAL_TOKENS = 1 << 16  # of each held-out side are always measured at the end ...
FINAL_SHARE = 0.1  # ... or this share of the tokens trained on, about 7% of the time


def seed_of(*numbers: int) -> int:
    """One 63-bit seed from several numbers, the same everywhere."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class Progress:
    """What a run remembers besides tensors; saved with every checkpoint, exactly."""

    step: int = 0
    best: float | None = None  # validation nats per symbol
    best_step: int = 0
    stale: int = 0  # validations since the best
    due: bool = False  # is a validation of this step's weights still to come?
    nats: float = 0.0  # summed since the last logged line ...
    symbols: int = 0  # ... and over how many symbols
    seconds: float = 0.0  # spent training, over all sessions
    seen: int = 0  # symbols trained on
    metrics: int = 0  # bytes of metrics.jsonl


class Memory(Protocol):
    """What a way of training remembers besides the weights."""

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""


class Loop(ABC):
    """Trains a language model in a run folder: steps, validations, checkpoints, until told to stop.

    What a step is and what it remembers, is for the subclass to say.
    """

    optimizer: Memory
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
        forbidden: Forbidden | None,
        world: World,
    ) -> None:
        self.model, self.corpus, self.recipe, self.world = model, corpus, recipe, world
        self.run_folder, self.reporter, self.constrain = run, reporter, forbidden
        self.repeated = world.size > 1  # may a signal come twice?
        self.signal = 0  # that interrupted the run
        self.progress = Progress()
        self.average = Average(recipe.average)

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
        self.eval_every = self.recipe.eval_every or max(1, steps // EVALUATIONS)
        self.checkpoint_every = self.recipe.checkpoint_every or self.eval_every
        self.log_every = max(1, steps // LOGGED)

    def first_not_finite(self) -> str:
        """The first parameter, else gradient, that holds NaN or infinity; else the loss."""
        named = list(self.model.named_parameters())
        held = [(name, p.detach()) for name, p in named]
        held += [(f"the gradient of {name}", p.grad) for name, p in named if p.grad is not None]
        wrong = (name for name, x in held if not bool(torch.isfinite(x).all()))
        return next(wrong, "the loss")

    def validate(self, stop: Callable[[], object] = bool) -> float | None:
        """Nats per symbol on (the beginning of) the validation set, the same part every time.

        The processes share the work; the figure does not depend on how many they are.
        """
        if self.corpus.valid is None:
            return None
        most = validation_tokens(self.recipe, self.steps)
        return self.cost(beginning(self.corpus.valid, most), stop)

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> float:
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
            self.progress = Progress(**state)
        except (KeyError, TypeError, RuntimeError, UserError):
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

        self.world.lead(write)

    def run(self) -> str:
        """Train to the end; "done", "early", or "interrupted" with a checkpoint written."""
        keep = self.progress.metrics
        metrics = Metrics(self.run_folder, keep=keep) if self.world.first else Unwritten()
        self.model.train()
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
                nats, symbols = self.take_step(p.step)
                p.step += 1
                p.nats, p.symbols = p.nats + nats, p.symbols + symbols
                p.seen += self.seen(symbols)
                elapsed = time.monotonic() - began
                p.seconds = spent + elapsed
                rate = (p.seen - seen) / max(elapsed, 1e-9)
                self.report(nats / symbols, rate, elapsed / (p.step - first), p.step - first)
                self.log(metrics, rate)
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
        p = self.progress
        try:
            value = self.validate(asked)
        except Stopped:
            return False
        if value is not None and math.isnan(value):
            raise UserError(
                f"step {p.step}: validation gives no number "
                f"({self.first_not_finite()} is not finite); training stopped. Try a lower train.lr"
            )
        # forbidden transitions can make it infinite: then the last model is as good as any
        finite = value if value is not None and math.isfinite(value) else None
        better = self.better(finite)
        p.stale = 0 if better else p.stale + 1
        self.note(metrics, "valid", value, better)
        if self.average.wants(self.steps - p.step, self.eval_every):
            self.average.add(self.model)
            if p.step == self.steps:
                self.try_average(metrics)
        return True

    def note(self, metrics: Metrics, event: str, value: float | None, better: bool) -> None:
        """Log a validation; write the model if it is better than those before."""
        p = self.progress
        if better:
            known = value is not None and math.isfinite(value)
            p.best, p.best_step = value if known else None, p.step
            self.world.lead(lambda: write_tensors(self.run_folder / WEIGHTS, weights(self.model)))
        if value is not None:
            told = {"step": p.step, self.figure: value, "best": better, "seconds": p.seconds}
            metrics.log(event, **told)

    def try_average(self, metrics: Metrics) -> None:
        """Take the mean of the last weights instead where it is better."""
        p = self.progress
        with self.average.inside(self.model):
            value = self.validate()
            if value is not None and math.isfinite(value):
                self.note(metrics, "average", value, p.best is None or value < p.best)

    def report(self, nats: float, rate: float, per_step: float, done: int) -> None:
        """Tell the reporter; the ETA once 20 steps, or a tenth of the run, have been timed."""
        p = self.progress
        known = done >= min(20, max(1, self.steps // 10))
        eta = per_step * (self.steps - p.step) if known else None
        self.reporter.update(Status(p.step, self.steps, nats, rate, eta, p.best, self.unit))


class Trainer(Loop):
    """Fits a neural language model to a corpus, in a run folder."""

    def __init__(
        self,
        model: NeuralLanguageModel,
        corpus: Corpus,
        recipe: Recipe,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: Forbidden | None = None,
        world: World = ALONE,
    ) -> None:
        train = recipe.train
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=world)
        weights = class_weights(corpus) if train.balance else None
        self.loader = self.load(recipe)
        # windows of running text are of one length; recurrences have kernels nobody captures
        running = isinstance(self.loader, Loader) and self.loader.running
        few = isinstance(model, NeuralAssessor) or (
            running and isinstance(model, NeuralLanguageModel)
        )
        alike = few and model.steps_alike
        self.stepper = Stepper(
            model, train, forbidden=forbidden, world=world, weights=weights, alike=alike
        )
        self.device, self.optimizer = self.stepper.device, self.stepper.optimizer
        self.ahead: tuple[int, list[Batch]] = (-1, [])  # the batches of a step, made beforehand
        self.plan(train.steps)
        found = self.loader.step(0, world.rank, world.size)
        self.forecast = foresee(model, found, train, self.stepper) if found else None
        if self.forecast is not None:
            self.forecast.check(train, model.config, self.device)
        if failed := self.stepper.compile_for(self.batches(0)[0], train.steps):
            reporter.warn(f"torch.compile failed ({failed}); going on without it")

    def load(self, recipe: Recipe) -> Loader | QuestionLoader:
        """The batches of the corpus."""
        model, corpus, train = self.model, self.corpus, recipe.train
        longest = (1 if corpus.source_tokenizer is None else 2) * model.config.max_len
        if corpus.train.source is not None and corpus.train.source.ids.ndim == 2:
            longest += int(np.diff(corpus.train.source.offsets).max())  # pictures are never cut
        shared: dict[str, Any] = {
            "max_len": model.config.max_len,
            "batch_tokens": train.batch_tokens,
            "seed": train.seed,
            "micro_tokens": max(train.micro_tokens, longest),
        }
        if isinstance(model, NeuralAssessor):
            few = model.steps_alike and may_capture(train, self.world)
            shared |= {"few": few, "packs": model.packs}
            if model.task == "masked":
                return MaskedLoader(corpus.train, corpus.tokenizer, share=train.mask, **shared)
            return QuestionLoader(corpus.train, corpus.tokenizer, **shared)
        return Loader(
            corpus.train,
            corpus.tokenizer,
            packs=model.packs,
            max_ratio=recipe.data.max_ratio,
            **shared,
        )

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> float:
        """See Loop; of labelled records, what an answer costs."""
        if not isinstance(self.model, NeuralAssessor):
            return super().cost(shard, stop)
        tokenizer, most = self.corpus.tokenizer, self.model.config.max_len
        masked = self.model.task == "masked"
        asked = (
            Masked(shard, tokenizer, most) if masked else Asked(shard, tokenizer, most, first=True)
        )
        objective = self.stepper.objective
        return cost_per_answer(objective, asked, self.device, stop=stop, world=self.world)

    def batches(self, step: int) -> list[Batch]:
        """This process's part of a step; one that asks nothing where there is none for it."""
        if self.ahead[0] == step:
            return self.ahead[1]
        tokenizer = self.corpus.tokenizer
        found = self.loader.step(step, self.world.rank, self.world.size)
        width = self.corpus.train.ids.shape[1] if self.corpus.train.ids.ndim == 2 else 0
        return self.stepper.prepared(found or [empty(tokenizer.start, width)], tokenizer.pad)

    def gradient(self, step: int) -> tuple[Tensor, int]:
        """Accumulate the gradient of one step; its nats, by process, and its symbols, in all."""
        rank = () if self.world.first else (self.world.rank,)
        torch.manual_seed(seed_of(self.recipe.seed, step, *rank))
        batches = self.batches(step)
        symbols = max(1, self.world.total(sum(batch.symbols for batch in batches)))
        return self.stepper.gradient(batches, symbols), symbols

    def take_step(self, step: int) -> tuple[float, int]:
        """One update, the same in all processes; none makes it if anything is not finite."""
        nats, symbols = self.gradient(step)
        norm = self.stepper.norm()
        told = self.stepper.tell(nats, norm)
        # while the device computes:
        rate = factor(self.recipe.schedule, step, self.steps, self.recipe.warmup)
        self.stepper.optimizer.set_rates(rate)
        if self.device.type == "cuda":
            self.ahead = step + 1, self.batches(step + 1)
        nats, length = told()
        if not bool(torch.isfinite(nats).all() & torch.isfinite(length)):
            raise self.not_finite(step, nats)
        self.stepper.update(norm)
        return float(nats.double().sum()), symbols

    def not_finite(self, step: int, nats: Tensor) -> UserError:
        """Say what is NaN or infinite first: step, tensor and the records read where it arose."""
        size = self.world.size
        ranks = (~torch.isfinite(nats)).nonzero().flatten().tolist() or range(size)
        records = sorted({r for rank in ranks for r in self.loader.records_of(step, rank, size)})
        shown = ", ".join(f"{r:,}" for r in records[:5]) + (" …" if len(records) > 5 else "")
        first = self.loader.step(step, ranks[0], size)[0]
        text = self.corpus.tokenizer.decode(first.ids[0, :60].numpy())
        return UserError(
            f"step {step}: {self.first_not_finite()} is not finite (loss {float(nats.sum())}); "
            "the update was not made. "
            f"Training records in this step: {shown}; the first read is {text!r}. "
            "Try a lower train.lr, or look at these records"
        )


def class_weights(corpus: Corpus) -> Tensor | None:
    """(C,) so that every class counts as much as any other, and a record 1 on average."""
    targets = corpus.targets
    if targets is None or targets.task not in ("label", "position-label"):
        return None
    found = np.asarray(corpus.train.targets)
    counts = np.bincount(found[found >= 0], minlength=len(targets.classes[0]))
    return torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)


def validation_tokens(recipe: TrainRecipe, steps: int) -> int:
    """How much of the validation set one validation reads at most."""
    every = recipe.eval_every or max(1, steps // EVALUATIONS)
    return max(BATCH_TOKENS, round(every * recipe.batch_tokens * VALIDATION_SHARE))


def final_tokens(recipe: TrainRecipe, steps: int) -> int:
    """How much of each held-out side is measured when training ends, at most."""
    return max(FINAL_TOKENS, round(steps * recipe.batch_tokens * FINAL_SHARE))
