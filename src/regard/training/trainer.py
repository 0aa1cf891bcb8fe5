"""The loop by gradients: a neural model, its batches, and steps down the slope of its loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import (
    Batch,
    LabelledExamples,
    LabelledLoader,
    Masked,
    MaskedLoader,
    TokenLoader,
)
from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.decoding.constraints import ForbiddenTransitions
from regard.errors import UserError
from regard.models.heads import HEADS
from regard.models.language_model import NeuralLanguageModel
from regard.models.supervised import NeuralSupervisedModel
from regard.recipe import Recipe
from regard.training.distributed import ALONE, ProcessGroup, empty
from regard.training.loop import Loop, seed_of
from regard.training.optimizer import factor
from regard.training.progress import Reporter
from regard.training.step import Stepper, may_capture
from regard.training.throughput import forecast_run
from regard.training.validation import MeanLoss, loss_per_target


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
        forbidden: ForbiddenTransitions | None = None,
        world: ProcessGroup = ALONE,
    ) -> None:
        train = recipe.train
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=world)
        weights = class_weights(corpus) if train.balance else None
        self.loader = self.load(recipe)
        # of texts, windows of running ones have one length
        few = not isinstance(model, NeuralLanguageModel) or self.loader.running
        alike = few and model.static_shapes
        self.stepper = Stepper(
            model, train, forbidden=forbidden, world=world, weights=weights, alike=alike
        )
        self.device, self.optimizer = self.stepper.device, self.stepper.optimizer
        self.ahead: tuple[int, list[Batch]] = (-1, [])  # the batches of a step, made beforehand
        self.plan(train.steps)
        found = self.loader.step(0, world.rank, world.size)
        self.forecast = forecast_run(model, found, train, self.stepper) if found else None
        if self.forecast is not None:
            self.forecast.check(train, model.config, self.device)
        self.compile(train.steps)

    def compile(self, steps: int) -> bool:
        """Compile the model where the recipe asks for it or so many steps repay it; was it done?"""
        before = self.stepper.compiled
        if failed := self.stepper.compile_for(self.batches(0)[0], steps):
            self.reporter.warn(f"torch.compile failed ({failed}); going on without it")
        return self.stepper.compiled and not before

    def load(self, recipe: Recipe) -> TokenLoader | LabelledLoader:
        """The batches of the corpus."""
        model, corpus, train = self.model, self.corpus, recipe.train
        longest = (1 if corpus.source_tokenizer is None else 2) * model.config.max_len
        if corpus.train.source is not None and not corpus.train.source.cuttable:
            longest += int(np.diff(corpus.train.source.offsets).max())  # pictures are never cut
        shared: dict[str, Any] = {
            "max_len": model.config.max_len,
            "batch_tokens": train.batch_tokens,
            "seed": train.seed,
            "micro_tokens": max(train.micro_tokens, longest),
        }
        captured = model.static_shapes and may_capture(train, self.world)
        if isinstance(model, NeuralSupervisedModel):
            shared |= {"few": captured, "supports_packing": model.supports_packing}
            if model.task == "masked":
                return MaskedLoader(corpus.train, corpus.tokenizer, share=train.mask, **shared)
            return LabelledLoader(corpus.train, corpus.tokenizer, **shared)
        return TokenLoader(
            corpus.train,
            corpus.tokenizer,
            supports_packing=model.supports_packing,
            few=captured and not isinstance(model, NeuralLanguageModel),
            max_ratio=recipe.data.max_ratio,
            **shared,
        )

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        """See Loop; of labelled records, what an answer costs."""
        if not isinstance(self.model, NeuralSupervisedModel):
            return super().cost(shard, stop)
        tokenizer, most = self.corpus.tokenizer, self.model.config.max_len
        masked = self.model.task == "masked"
        asked = (
            Masked(shard, tokenizer, most)
            if masked
            else LabelledExamples(shard, tokenizer, most, first=True)
        )
        objective = self.stepper.objective
        return loss_per_target(objective, asked, self.device, stop=stop, world=self.world)

    def restore_best(self) -> None:
        """See Loop: with an optimizer that has seen nothing yet."""
        super().restore_best()
        self.stepper.optimizer.forget()

    @property
    def steady(self) -> bool:
        """See Loop."""
        return self.stepper.steady

    def batches(self, step: int) -> list[Batch]:
        """This process's part of a step; one that asks nothing where there is none for it."""
        if self.ahead[0] == step:
            return self.ahead[1]
        tokenizer = self.corpus.tokenizer
        found = self.loader.step(step, self.world.rank, self.world.size)
        features = self.corpus.train.ids.shape[1:]
        return self.stepper.prepared(found or [empty(tokenizer.start, features)], tokenizer.pad)

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

    def facts(self) -> dict[str, Any]:
        """See Loop."""
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


def class_weights(corpus: Corpus) -> Tensor | None:
    """(C,) so that every class counts as much as any other, and a record 1 on average."""
    targets = corpus.targets
    if targets is None or not HEADS[targets.task].class_weights:
        return None
    found = np.asarray(corpus.train.targets)
    counts = np.bincount(found[found >= 0], minlength=len(targets.classes[0]))
    return torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
