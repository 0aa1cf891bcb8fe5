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

from regard.layers.source import Source
from regard.layers.space_positions import apart
from regard.models.descent import Regression
from regard.models.fitted import SampledConfig
from regard.models.points import CloudConfig

BINS = 12  # of a histogram


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(CloudConfig, SampledConfig):
    """How large coefficients may get."""

    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        CloudConfig.__post_init__(self)
        SampledConfig.__post_init__(self)
        self.positive("strength")


class CloudLogistic(Regression):
    """One coefficient for every statistic and answer."""

    Config = StatisticsConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: StatisticsConfig()
    }
    tokens = "points"
    what, strengths, rough = "statistics", (1.0, 0.01, 0.1, 10.0, 100.0), 60
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: StatisticsConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        count = config.dimensions + 2 * (2 + BINS) + 2 * config.n_features + len(config.elements)
        self.add_line(count + 1)
        self.register_buffer("mean", torch.zeros(count + 1))
        self.register_buffer("deviation", torch.ones(count + 1))

    def features(self, source: Source) -> Tensor:
        """See Regression."""
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

    def prepare(self, rows: Tensor) -> None:
        """See Regression."""
        self.mean, deviation = rows.mean(0), rows.std(0, correction=0)
        self.deviation = torch.where(deviation > 1e-6, deviation, 1.0)

    def scaled(self, rows: Tensor) -> Tensor:
        """See Regression."""
        return (rows - self.mean) / self.deviation


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
