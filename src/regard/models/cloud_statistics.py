"""Logistic or ridge regression on simple statistics of point clouds: the simplest model of them.

Of every cloud: the spread along its three main axes, how far its points are from the centroid
(mean, deviation, shares of a histogram), the distances of pairs of its centres likewise, the mean
and deviation of every feature, how many points of each element, and their number. None of it
changes when a cloud is turned. The regression is that of `descent`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.source import Source
from regard.layers.space_positions import apart
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.descent import solve
from regard.models.fitted import FittedConfig, batches, trials, varied
from regard.models.points import CloudConfig

STRENGTHS = (1.0, 0.01, 0.1, 10.0, 100.0)  # tried
ROUNDS, ROUGH = 200, 60  # of L-BFGS, at most; while something is only being chosen
BINS = 12  # of a histogram


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(CloudConfig, FittedConfig):
    """How large coefficients may get."""

    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        CloudConfig.__post_init__(self)
        FittedConfig.__post_init__(self)
        self.positive("strength")


class CloudLogistic(FittedAssessor):
    """One coefficient for every statistic and answer."""

    Config = StatisticsConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: StatisticsConfig()
    }
    tokens = "points"
    coefficients: Tensor
    bias: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: StatisticsConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        count = config.dimensions + 2 * (2 + BINS) + 2 * config.n_features + len(config.elements)
        self.register_buffer("coefficients", torch.zeros(count + 1, config.n_outputs))
        self.register_buffer("bias", torch.zeros(config.n_outputs))
        self.register_buffer("mean", torch.zeros(count + 1))
        self.register_buffer("deviation", torch.ones(count + 1))

    def statistics(self, source: Source) -> Tensor:
        """(B, F) of every cloud."""
        config = self.config
        d, there = config.dimensions, source.segments > 0
        there = there & (torch.arange(there.size(1), device=there.device) > 0)  # without `<S>`
        many = there.sum(1, keepdim=True).clamp_min(1).float()
        at = torch.where(there[..., None], source.ids[..., :d].float(), 0)
        at = torch.where(there[..., None], at - at.sum(1, keepdim=True) / many[..., None], 0)
        axes = torch.linalg.eigvalsh(at.mT @ at / many[..., None]).clamp_min(0).sqrt()
        radii = histogram(at.norm(dim=-1), there, config.reach / 2)
        pairs = there[:, :, None] & there[:, None]
        gaps = histogram(apart(at, at).flatten(1), pairs.flatten(1), config.reach)
        told = source.ids[..., 2 * d + 1 : 2 * d + 1 + config.n_features].float()
        told = torch.where(there[..., None], told, 0)
        mean = told.sum(1) / many
        spread = (told.square().sum(1) / many - mean.square()).clamp_min(0).sqrt()
        return torch.cat((axes, radii, gaps, mean, spread, config.composition(source), many), dim=1)

    def read(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """Statistics and targets of all records, in order."""
        rows = torch.empty(shard.records, len(self.mean))
        targets: list[Tensor] = []
        items: list[Tensor] = []
        for batch, source in batches(shard, self.config.max_len):
            own = torch.from_numpy(batch.items)
            rows[own] = self.statistics(source)
            items.append(own)
            targets.append(batch.targets)
        return rows, torch.cat(targets)[torch.cat(items).argsort()]

    def fit(self, shard: Shard, valid: Shard | None, say: Callable[[str], None]) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        rows, targets = self.read(shard)
        self.mean, deviation = rows.mean(0), rows.std(0, correction=0)
        self.deviation = torch.where(deviation > 1e-6, deviation, 1.0)
        rows = both = (rows - self.mean) / self.deviation
        others = None
        if valid is not None and valid.records:
            more, others = self.read(valid)
            both = torch.cat([rows, (more - self.mean) / self.deviation])
        judged, outputs = trials(self.task, targets, others), self.config.n_outputs

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            x, y = both[learn], judged.targets[learn]
            weights, bias = solve(self.task, x, y, config.strength, ROUGH, outputs)
            return both[check] @ weights + bias

        self.config = judged.best(varied(self.config, strength=STRENGTHS), answer)
        strength = self.config.strength
        self.coefficients, self.bias = solve(self.task, rows, targets, strength, ROUNDS, outputs)
        say(f"{rows.size(1)} statistics; strength {strength:g}, where open by {judged.how}")

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        rows = (self.statistics(source) - self.mean) / self.deviation
        return rows @ self.coefficients + self.bias


def histogram(values: Tensor, there: Tensor, most: float) -> Tensor:
    """(B, 2 + bins): mean, deviation and a histogram of the values (B, N) that are there."""
    many = there.sum(1, keepdim=True).clamp_min(1).float()
    values = torch.where(there, values, 0)
    mean = values.sum(1, keepdim=True) / many
    spread = ((values.square().sum(1, keepdim=True) / many) - mean.square()).clamp_min(0).sqrt()
    which = (values / most * BINS).long().clamp(0, BINS - 1)
    counts = torch.zeros(len(values), BINS, device=values.device)
    counts = counts.scatter_add(1, which, there.float())
    return torch.cat((mean, spread, counts / many), 1)
