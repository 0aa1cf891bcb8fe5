"""The loop in one process on the CPU: what training by passes and training word vectors share.

Training without gradients: passes over all the data, each of which improves the model.

The same loop as for gradients (`loop.Loop`): a pass is a step, so validation, the best weights,
metrics, checkpoints, Ctrl-C and resuming are the same. It ends after train.steps passes, or before
when a pass gains next to nothing.
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
from regard.models.hidden_markov import EMModel
from regard.recipe import Recipe, to_toml
from regard.registry import family
from regard.run import RECIPE, weights, write_config, write_text
from regard.training.distributed import ALONE
from regard.training.loop import EVALUATIONS, Loop
from regard.training.progress import Reporter
from regard.training.throughput import CLOSING, Clock
from regard.training.validation import beginning


class SingleLoop(Loop):
    """Fits the model of a recipe in a run folder, in one process on the CPU."""

    step_name: ClassVar[str] = "step"  # in what is said

    @abstractmethod
    def within(self, seconds: float) -> int:
        """How many steps fit into so many seconds; what is tried, is undone."""

    @abstractmethod
    def intent(self) -> str:
        """What will be done, in words."""

    def fit(
        self, recipe: Recipe, *, new: bool, began: float
    ) -> tuple[int, str, int, dict[str, Any]]:
        """Train, afresh or from a checkpoint: the steps planned, how it ended, the signal that did
        it, and facts for regard.json.

        `began` is when train.minutes began to count.
        """
        if not recipe.train.steps:
            self.clock = Clock(began, recipe.train.minutes * 60)
            recipe = recipe.replace(train={"steps": self.within(self.clock.left - CLOSING)})
            write_text(self.run_folder / RECIPE, to_toml(recipe))
            self.plan(recipe.train.steps)
        write_config(self.run_folder, recipe.model.name, self.model)
        intent = self.intent()
        resumed = not new and self.resume()
        where = f", from {self.step_name} {self.progress.step:,}" if resumed else ""
        self.reporter.say(f"training {intent} on cpu{where}")
        outcome = self.run()
        return self.progress.steps or recipe.train.steps, outcome, self.signal, self.facts()

    def facts(self) -> dict[str, Any]:
        """See Loop."""
        return super().facts() | {"device": "cpu"}


CONVERGED = 1e-5  # a pass that raises its objective by less than this share of it is the last
PASSES = 100  # at most, where the recipe says minutes and not how many
TIMED = 1 << 18  # tokens that one pass is timed on
OVERHEAD = 1.15  # validating and saving, by the time of the passes alone


class EMState:
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


class EMLoop(SingleLoop):
    """Fits a model by passes."""

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
        model = family(recipe.model.name)(corpus.tokenizer.vocab_size, recipe.model.config)
        # a step reads everything: how much of the validation set is read follows from that
        train = dataclasses.replace(recipe.train, batch_tokens=max(1, corpus.train.tokens))
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=ALONE)
        self.optimizer = EMState()
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

    def within(self, seconds: float) -> int:
        """See SingleLoop: at most PASSES; one is tried on a part."""
        before = {name: value.clone() for name, value in weights(self.model).items()}
        whole = self.corpus.train
        part = beginning(whole, TIMED)
        began = time.monotonic()
        self.model.improve(part)
        each = OVERHEAD * (time.monotonic() - began) * whole.tokens / part.tokens
        self.model.load_state_dict(before)
        return int(max(1, min(PASSES, seconds / each)))

    def intent(self) -> str:
        """See SingleLoop."""
        size = sum(x.numel() for x in self.model.parameters())
        symbols = self.corpus.train.symbols
        return f"{size:,} parameters by at most {self.steps:,} passes over {symbols:,} symbols"

    def facts(self) -> dict[str, Any]:
        """See Loop."""
        more = {"epochs": self.progress.step, "converged": self.optimizer.converged}
        return super().facts() | more
