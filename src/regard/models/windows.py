"""A label at every position from the tokens around it: a window of them, one coefficient for every
token at every distance and label.

Qian & Sejnowski 1988 did this for the secondary structure of proteins, with a window of 13
residues; without hidden units their network is multinomial logistic regression. Beyond the markers
at the ends of a sequence there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.bags import Bags, joined
from regard.models.budget import Budget
from regard.models.fitted import SampledConfig, batches, few, trials, varied
from regard.models.linear import FINISH, STRENGTHS
from regard.models.solvers import Solved, of_classes

WINDOWS = (13, 5, 9, 17, 21)  # tried


@dataclass(frozen=True, kw_only=True)
class WindowConfig(SampledConfig):
    """How many tokens are seen, and how large coefficients may get."""

    window: int = 0  # the position itself in the middle; 0 = chosen by held-out records
    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("strength")
        if not 0 <= self.window <= 1001 or (self.window and self.window % 2 == 0):
            raise ValueError(
                f"window must be 0 (chosen) or odd and at most 1001, got {self.window}"
            )


class WindowLogistic(FittedAssessor):
    """Logistic regression on one-hot tokens around a position."""

    Config = WindowConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: WindowConfig()
    }
    coefficients: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: WindowConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        shape = config.window * vocab_size, config.n_outputs
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))  # (W V, O)
        self.register_buffer("bias", torch.zeros(config.n_outputs, dtype=torch.float64))  # (O,)

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        budget = budget or Budget(say)
        config, widest = self.config, self.config.window or max(WINDOWS)
        every, targets, groups = self.read(shard, widest)
        train, others = len(targets), None
        if valid is not None and valid.records:
            more, others, _ = self.read(valid, widest)
            every = joined([every, more])
        judged = trials(self.task, targets, others, groups)

        def answer(one: Any, learn: Tensor, check: Tensor) -> Tensor:
            learned = self.nearer(every.rows(learn), one.window)
            weights, bias = self.solve(learned, judged.targets[learn], one, True)
            return self.nearer(every.rows(check), one.window).product(weights) + bias

        tried = varied(config, window=WINDOWS)
        share = len(tried) / (len(tried) + len(varied(config, strength=STRENGTHS)))
        config = judged.best(tried, answer, budget, share=share, finish=FINISH)
        tried = varied(config, strength=STRENGTHS)
        config = judged.best(tried, answer, budget, finish=FINISH)
        self.config = config = judged.affordable(config, budget)
        learned = few(torch.arange(train), config.records or train)
        own = self.nearer(every.rows(learned), config.window)
        self.coefficients, self.bias = self.solve(own, targets[learned], config, False)
        say(
            f"window {config.window}, strength {config.strength:g}, where open by {judged.how}, "
            f"from {len(learned):,} positions"
        )

    def nearer(self, bags: Bags, window: int) -> Bags:
        """The same positions with less around them."""
        width = window * self.vocab_size
        return bags.part(width, (bags.width - width) // 2)

    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
        """Coefficients and biases from positions."""
        strength = config.strength or STRENGTHS[0]
        return of_classes(bags, targets, config.n_outputs, strength, rough=rough)

    def read(self, shard: Shard, window: int) -> tuple[Bags, Tensor, Tensor]:
        """The positions of a shard that have a label, what it is, and the record of each, records
        numbered as they are read.
        """
        bags, targets, groups, before = [], [], [], 0
        for batch, source in batches(shard, self.config.max_len):
            asked = batch.targets >= 0
            bags.append(windows(source, window, self.vocab_size, asked))
            targets.append(batch.targets[asked])
            groups.append(before + asked.nonzero()[:, 0])
            before += len(asked)
        _, numbered = torch.cat(groups).unique_consecutive(return_inverse=True)
        return joined(bags), torch.cat(targets), numbered

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor. Padding has the answer 0."""
        there = source.segments > 0
        bags = windows(source, self.config.window, self.vocab_size, there)
        found = self.bias.new_zeros(*there.shape, len(self.bias))  # (B, T, O)
        found[there] = bags.product(self.coefficients) + self.bias
        return found


def windows(source: Source, window: int, vocab_size: int, asked: Tensor) -> Bags:
    """The tokens around each position that is asked (B, T): at distance d from the left end of its
    window, token x is in column d · V + x.
    """
    half, there = window // 2, source.segments > 0
    ids = F.pad(source.ids.masked_fill(~there, -1), (half, half), value=-1)
    near = ids.unfold(1, window, 1)[asked]  # (P, W), -1 where there is nothing
    columns = near + vocab_size * torch.arange(window, device=near.device)
    inside = near >= 0
    starts = F.pad(inside.sum(1).cumsum(0), (1, 0))
    values = torch.ones(int(starts[-1]), dtype=torch.float64, device=near.device)
    return Bags(starts, columns[inside], values, window * vocab_size)
