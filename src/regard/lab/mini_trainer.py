"""Models on made-up sequences, without a run folder: the trainer's own step on batches, and passes
of expectation maximisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard.data.batching import Batch
from regard.data.shards import Shard
from regard.errors import UserError
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.language_model import NeuralLanguageModel
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.training.distributed import ALONE
from regard.training.em_loop import EMState
from regard.training.loop import seed_of
from regard.training.optimizer import factor
from regard.training.step import Stepper

Watch = Callable[[int, float, NeuralLanguageModel], None]  # step, nats per symbol, model


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
    return teach(lambda: family(name)(vocab_size, config), recipe, batch_of, told)


def teach(
    build: Callable[[], NeuralLanguageModel],
    recipe: TrainRecipe,
    batch_of: Callable[[int], Batch],
    told: Callable[[Batch], None] = lambda batch: None,
    watch: Watch = lambda step, nats, model: None,
) -> NeuralLanguageModel:
    """The same of any model; `watch` sees each step's loss, and gradients before they are used."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(recipe.seed))
        model = build()
        stepper = Stepper(model.train(), recipe, forbidden=None, world=ALONE)
        for step in range(recipe.steps):
            torch.manual_seed(seed_of(recipe.seed, step))
            batch = batch_of(step)
            nats = stepper.gradient([batch], batch.symbols)
            norm = stepper.norm()
            if not bool(torch.isfinite(norm)):
                raise UserError(f"{type(model).__name__}: step {step}: the gradient is not finite")
            watch(step, float(nats.sum()) / batch.symbols, model)
            rate = factor(recipe.schedule, step, recipe.steps, recipe.warmup)
            stepper.optimizer.set_rates(rate)
            stepper.update(norm)
            told(batch)
    return model.eval()


def pass_over(
    shard: Shard,
    config: HiddenMarkovConfig,
    passes: int,
    seed: int,
    told: Callable[[], None] = lambda: None,
) -> HiddenMarkov:
    """A hidden Markov model after so many passes, or fewer when nothing more is gained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = HiddenMarkov(shard.vocab_size, config)
    gained = EMState()
    for _ in range(passes):
        gained.add(model.improve(shard).objective)
        told()
        if gained.converged:
            break
    return model
