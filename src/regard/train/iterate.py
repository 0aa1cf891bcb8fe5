"""Training without gradients: passes over all the data, each of which improves the model.

The same loop as for gradients (`loop.Loop`): a pass is a step, so validation, the best weights,
metrics, checkpoints, Ctrl-C and resuming are the same. It ends after train.steps passes, or before
when a pass gains next to nothing.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.corpus import Corpus
from regard.decode.constraints import Forbidden
from regard.models.passes import IteratedModel
from regard.recipe import Recipe, to_toml
from regard.registry import family
from regard.run import RECIPE, weights, write_config, write_text
from regard.train.calibration import CLOSING
from regard.train.distributed import ALONE
from regard.train.loop import EVALUATIONS, Loop, seed_of
from regard.train.progress import Reporter
from regard.train.validation import beginning

CONVERGED = 1e-5  # a pass that raises its objective by less than this share of it is the last
PASSES = 100  # at most, where the recipe says minutes and not how many
TIMED = 1 << 18  # tokens that one pass is timed on
OVERHEAD = 1.15  # validating and saving, by the time of the passes alone


class Objectives:
    """The last two values of what the passes raise: all that is remembered besides the model."""

    def __init__(self) -> None:
        self.values = torch.full((2,), -torch.inf, dtype=torch.float64)

    def add(self, value: float) -> None:
        """The value that the newest pass has found."""
        self.values = torch.stack([self.values[1], torch.tensor(value, dtype=torch.float64)])

    @property
    def converged(self) -> bool:
        """Was the last gain next to nothing?"""
        before, now = self.values.tolist()
        return bool(now - before < CONVERGED * abs(before))

    def tensors(self) -> dict[str, Tensor]:
        """See loop.Memory."""
        return {"objectives": self.values}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """See loop.Memory."""
        self.values = tensors["objectives"]


class Iteration(Loop):
    """Fits a model by passes, in a run folder and in one process on the CPU."""

    model: IteratedModel
    optimizer: Objectives

    def __init__(
        self,
        model: IteratedModel,
        corpus: Corpus,
        recipe: Recipe,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: Forbidden | None = None,
    ) -> None:
        # a step reads everything: how much of the validation set is read follows from that
        train = dataclasses.replace(recipe.train, batch_tokens=max(1, corpus.train.tokens))
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=ALONE)
        self.optimizer = Objectives()
        self.plan(train.steps)

    def plan(self, steps: int) -> None:
        """At most so many passes; every one is validated, unless the recipe says otherwise."""
        self.steps, self.log_every = steps, 1
        self.eval_every = self.recipe.eval_every or 1
        self.checkpoint_every = self.recipe.checkpoint_every or max(1, steps // EVALUATIONS)

    def take_step(self, step: int) -> tuple[float, int]:
        """One pass; the last one if it has converged."""
        found = self.model.improve(self.corpus.train)
        self.optimizer.add(found.objective)
        self._end(step + 1)
        return -found.log_likelihood, max(1, self.corpus.train.symbols)

    def _restore(self) -> bool:
        restored = super()._restore()
        self._end(self.progress.step)
        return restored

    def _end(self, step: int) -> None:
        """Plan no pass after this one if it has converged."""
        if step and self.optimizer.converged:
            self.steps = step

    def facts(self) -> dict[str, Any]:
        """What the run was, for regard.json."""
        p = self.progress
        return {
            "parameters": sum(x.numel() for x in self.model.parameters()),
            "steps": p.step,
            "best_step": p.best_step,
            "train_seconds": round(p.seconds, 3),
            "symbols_per_second": round(p.seen / p.seconds, 1) if p.seconds else None,
            "epochs": p.step,
            "converged": self.optimizer.converged,
            "device": "cpu",
            "threads": torch.get_num_threads(),
        }


def iterate(
    recipe: Recipe,
    corpus: Corpus,
    run: Path,
    reporter: Reporter,
    *,
    forbidden: Forbidden | None,
    new: bool,
    began: float,
    repeated: bool = False,
) -> tuple[int, str, int, dict[str, Any]]:
    """Fit a model by passes, afresh or from a checkpoint: the passes planned, how it ended, the
    signal that did it, and facts for regard.json.

    `began` is when train.minutes began to count; `repeated` tells that a signal may come twice.
    """
    torch.manual_seed(seed_of(recipe.train.seed))
    model: IteratedModel = family(recipe.model.name)(
        corpus.tokenizer.vocab_size, recipe.model.config
    )
    if not recipe.train.steps:
        left = recipe.train.minutes * 60 - (time.monotonic() - began) - CLOSING
        recipe = recipe.replace(train={"steps": fitting(model, corpus, left)})
        write_text(run / RECIPE, to_toml(recipe))
    worker = Iteration(model, corpus, recipe, run, reporter, forbidden=forbidden)
    worker.repeated = repeated
    write_config(run, recipe.model.name, model)
    resumed = not new and worker.resume()
    size = sum(x.numel() for x in model.parameters())
    reporter.say(
        f"training {size:,} parameters by at most {recipe.train.steps:,} passes over "
        f"{corpus.train.symbols:,} symbols on cpu"
        + (f", from pass {worker.progress.step:,}" if resumed else "")
    )
    outcome = worker.run()
    return recipe.train.steps, outcome, worker.signal, worker.facts()


def fitting(model: IteratedModel, corpus: Corpus, seconds: float) -> int:
    """How many passes fit into `seconds`, at most PASSES; one is tried on a part, and undone."""
    before = {name: value.clone() for name, value in weights(model).items()}
    part = beginning(corpus.train, TIMED)
    began = time.monotonic()
    model.improve(part)
    each = OVERHEAD * (time.monotonic() - began) * corpus.train.tokens / part.tokens
    model.load_state_dict(before)
    return int(max(1, min(PASSES, seconds / each)))
