"""The training loop of neural models, by gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.batching import Batch, LabelledExamples
from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.decoding.constraints import ForbiddenTransitions
from regard.errors import UserError
from regard.evaluation.scoring import MeanLoss
from regard.recipe import Recipe
from regard.training.distributed import ALONE, ProcessGroup, empty
from regard.training.loop import Loop, seed_of
from regard.training.optimizer import factor
from regard.training.progress import Reporter
from regard.training.step import Stepper, may_capture
from regard.training.throughput import forecast_run
from regard.training.validation import loss_per_target


class Trainer(Loop):
    """Train a neural model on a corpus by gradient descent, in a run folder."""

    def __init__(
        self,
        model: Any,
        corpus: Corpus,
        recipe: Recipe,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: ForbiddenTransitions | None = None,
        world: ProcessGroup = ALONE,
    ) -> None:
        train = recipe.train
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=world)
        self.task = recipe.build_task()
        captured = model.static_shapes and may_capture(train, world)
        self.loader = self.task.loader(model, corpus, recipe, captured=captured)
        self.stepper = Stepper(
            model,
            train,
            lambda placed, rule=forbidden: self.task.objective(placed, corpus, recipe, rule),
            world=world,
            static=self.loader.few_shapes and model.static_shapes,
        )
        self.device, self.optimizer = self.stepper.device, self.stepper.optimizer
        self.ahead: tuple[int, list[Batch]] = (-1, [])  # a step and its batches, made beforehand
        self.plan(train.steps)
        batches = self.loader.step(0, world.rank, world.size)
        self.forecast = forecast_run(model, batches, train, self.stepper) if batches else None
        if self.forecast is not None:
            self.forecast.check(train, model.config, self.device)
        self.compile(train.steps)

    def compile(self, steps: int) -> bool:
        """Compile the model if the recipe says so or it is worth it; return whether it did."""
        before = self.stepper.compiled
        if failed := self.stepper.compile_for(self.batches(0)[0], steps):
            self.reporter.warn(f"torch.compile failed ({failed}); going on without it")
        return self.stepper.compiled and not before

    def symbol_loss(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        return super().cost(shard, stop)

    def target_loss(self, examples: LabelledExamples, stop: Callable[[], object]) -> MeanLoss:
        objective = self.stepper.objective
        return loss_per_target(objective, examples, self.device, stop=stop, world=self.world)

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        loss: MeanLoss = self.task.validation_loss(self, shard, stop)
        return loss

    def restore_best(self) -> None:
        super().restore_best()
        self.stepper.optimizer.forget()

    @property
    def steady(self) -> bool:
        return self.stepper.steady

    def batches(self, step: int) -> list[Batch]:
        """Return the batches of this process in a step; an empty one if it has no part in it."""
        if self.ahead[0] == step:
            return self.ahead[1]
        tokenizer = self.corpus.tokenizer
        batches = self.loader.step(step, self.world.rank, self.world.size)
        batches = batches or [empty(tokenizer.start, self.corpus.train.ids.shape[1:])]
        return self.stepper.prepared(batches, tokenizer.pad)

    def gradient(self, step: int) -> tuple[Tensor, int]:
        """Compute the gradient of a step; return the loss of each process and all symbols."""
        rank = () if self.world.first else (self.world.rank,)
        torch.manual_seed(seed_of(self.recipe.seed, step, *rank))
        batches = self.batches(step)
        symbols = max(1, self.world.total(sum(batch.symbols for batch in batches)))
        return self.stepper.gradient(batches, symbols), symbols

    def take_step(self, step: int) -> tuple[float, int]:
        """Update the weights, the same in all processes, unless the gradient is not finite."""
        nats, symbols = self.gradient(step)
        norm = self.stepper.norm()
        wait = self.stepper.tell(nats, norm)
        # while the device computes:
        rate = factor(self.recipe.schedule, step, self.steps, self.recipe.warmup)
        self.stepper.optimizer.set_rates(rate)
        if self.device.type == "cuda":
            self.ahead = step + 1, self.batches(step + 1)
        nats, length = wait()
        if not bool(torch.isfinite(nats).all() & torch.isfinite(length)):
            raise self.not_finite(step, nats)
        self.stepper.update(norm)
        return float(nats.double().sum()), symbols

    def not_finite(self, step: int, nats: Tensor) -> UserError:
        """Return an error that names the step, the first tensor that is not finite, and the records
        of the step.
        """
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

    def facts(self) -> dict[str, Any]:
        loader, stepper = self.loader, self.stepper
        return super().facts() | {
            "epochs": round(self.progress.step / loader.steps_per_epoch, 3),
            "padding": round(loader.padding, 4),
            "windowed_records": loader.windowed,
            "device": str(self.device),
            "processes": self.world.size,
            "precision": stepper.precision,
            "compile_seconds": round(stepper.compile_seconds, 1),
            **({} if self.forecast is None else {"forecast": self.forecast.facts()}),
        }
