"""The loop in one process on the CPU: what training by passes and training word vectors share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from regard.recipe import Recipe, to_toml
from regard.run import RECIPE, write_config, write_text
from regard.train.calibration import CLOSING, Clock
from regard.train.loop import Loop


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
