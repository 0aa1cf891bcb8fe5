"""Neural models on made-up sequences: the trainer's own step, on batches without a run folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard.data.batching import Batch
from regard.errors import UserError
from regard.models.language_model import NeuralLanguageModel
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.train.distributed import ALONE
from regard.train.loop import seed_of
from regard.train.schedule import factor
from regard.train.step import Stepper


def practise(
    name: str,
    vocab_size: int,
    config: Any,
    recipe: TrainRecipe,
    batch_of: Callable[[int], Batch],
    told: Callable[[Batch], None] = lambda batch: None,
) -> NeuralLanguageModel:
    """A new model of a family after recipe.steps steps, step i on `batch_of(i)`, ready to be asked.

    On the CPU, so that the same seed gives the same model; `told` hears of each batch that is done.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(recipe.seed))
        model: NeuralLanguageModel = family(name)(vocab_size, config)
        stepper = Stepper(model.train(), recipe, forbidden=None, world=ALONE)
        for step in range(recipe.steps):
            torch.manual_seed(seed_of(recipe.seed, step))
            batch = batch_of(step)
            stepper.gradient([batch], batch.symbols)
            norm = stepper.norm()
            if not bool(torch.isfinite(norm)):
                raise UserError(f"{name}: step {step}: the gradient is not finite")
            rate = factor(recipe.schedule, step, recipe.steps, recipe.warmup)
            stepper.optimizer.set_rates(rate)
            stepper.update(norm)
            told(batch)
    return model.eval()
