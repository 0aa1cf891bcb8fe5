"""Training in one process on the CPU, and its use by expectation maximization (EM).

A step of EM is a pass over all the data. Validation, the best weights, metrics, checkpoints, Ctrl-C
and resuming are those of `loop.Loop`. Training ends after train.steps passes, or when a pass
improves the objective by next to nothing.
"""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.corpus import Corpus
from regard.decoding.constraints import ForbiddenTransitions
from regard.evaluation.scoring import truncate_shard
from regard.models.hidden_markov import EMModel
from regard.recipe import Recipe, to_toml
from regard.run import RECIPE, weights, write_config
from regard.storage import write_text
from regard.training.distributed import ALONE
from regard.training.loop import EVALUATIONS, Loop
from regard.training.progress import Reporter
from regard.training.throughput import CLOSING, Clock


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
