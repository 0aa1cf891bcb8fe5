"""The minimum of Σ cost(x W + b, y) + strength / 2 · |W|², found by L-BFGS (Liu & Nocedal 1989):
logistic or ridge regression of rows of numbers, without scikit-learn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.budget import Budget
from regard.models.fitted import batches, few, trials, varied

ROUNDS = 200  # of L-BFGS, at most


class Regression(FittedAssessor):
    """One coefficient for every feature and answer; its configuration has a `strength`, 0 where it
    is to be chosen. A family says what its features are.
    """

    what: ClassVar[str]  # the features are
    strengths: ClassVar[tuple[float, ...]]  # tried
    rough: ClassVar[int]  # rounds while one is being chosen
    coefficients: Tensor
    bias: Tensor

    def add_line(self, features: int) -> None:
        """Make what is learned."""
        self.register_buffer("coefficients", torch.zeros(features, self.config.n_outputs))
        self.register_buffer("bias", torch.zeros(self.config.n_outputs))

    @abstractmethod
    def features(self, source: Source) -> Tensor:
        """(B, F) of every record."""

    def prepare(self, rows: Tensor) -> None:
        """Take what `scaled` needs from the features (R, F) of the training part."""

    def scaled(self, rows: Tensor) -> Tensor:
        """Features in the units that are learned from."""
        return rows

    def read(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """Features and targets of all records, in order."""
        rows = torch.empty(shard.records, len(self.coefficients))
        targets: list[Tensor] = []
        items: list[Tensor] = []
        for batch, source in batches(shard, self.config.max_len):
            own = torch.from_numpy(batch.items)
            rows[own] = self.features(source)
            items.append(own)
            targets.append(batch.targets)
        return rows, torch.cat(targets)[torch.cat(items).argsort()]

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        budget = budget or Budget(say)
        rows, targets = self.read(shard)
        self.prepare(rows)
        rows = both = self.scaled(rows)
        others = None
        if valid is not None and valid.records:
            more, others = self.read(valid)
            both = torch.cat([rows, self.scaled(more)])
        judged, outputs = trials(self.task, targets, others), self.config.n_outputs

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            x, y = both[learn], judged.targets[learn]
            weights, bias = solve(self.task, x, y, config.strength, self.rough, outputs)
            return both[check] @ weights + bias

        tried = varied(self.config, strength=self.strengths)
        config = judged.best(tried, answer, budget, finish=ROUNDS / self.rough)
        self.config = config = judged.affordable(config, budget)
        learned, strength = (
            few(torch.arange(len(rows)), config.records or len(rows)),
            config.strength,
        )
        rows, targets = rows[learned], targets[learned]
        self.coefficients, self.bias = solve(self.task, rows, targets, strength, ROUNDS, outputs)
        say(f"{rows.size(1):,} {self.what}; strength {strength:g}, where open by {judged.how}")

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self.scaled(self.features(source)) @ self.coefficients + self.bias


def solve(
    task: str, x: Tensor, y: Tensor, strength: float, rounds: int, outputs: int
) -> tuple[Tensor, Tensor]:
    """Coefficients (F, O) and biases (O,) from rows (R, F) and what is asked of them."""
    weights = torch.zeros(x.size(1), outputs, requires_grad=True)
    bias = torch.zeros(outputs)
    if task == "value":
        there = ~y.isnan()
        bias = y.nan_to_num().sum(0) / there.sum(0).clamp_min(1)
    bias = bias.float().requires_grad_()
    search = torch.optim.LBFGS(
        [weights, bias], max_iter=rounds, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        found = cost(task, x @ weights + bias, y) + strength / 2 * weights.square().sum()
        mean: Tensor = found / len(x)
        mean.backward()
        return mean

    with torch.enable_grad():
        search.step(closure)
    return weights.detach(), bias.detach()


def cost(task: str, found: Tensor, targets: Tensor) -> Tensor:
    """What answers (R, O) cost beside their targets, gaps left out, summed."""
    if task == "value":
        gap = found - targets.nan_to_num().to(found.dtype)
        return (gap.square() / 2).where(~targets.isnan(), 0).sum()
    if task == "labels":
        wanted = targets.clamp_min(0).to(found.dtype)
        each = F.binary_cross_entropy_with_logits(found, wanted, reduction="none")
        return each.where(targets >= 0, 0).sum()
    return F.cross_entropy(found, targets, ignore_index=-1, reduction="sum")
