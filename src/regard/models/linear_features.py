"""The minimum of Σ cost(x W + b, y) + strength / 2 · |W|², found by L-BFGS (Liu & Nocedal 1989):
logistic or ridge regression of rows of numbers, without scikit-learn.

Logistic or ridge regression on the pixels of pictures: the simplest model that sees them.

It is found by `descent`, from all pixels in units of their channel's deviation. A smaller picture
is filled up with the mean of its channels, a larger one cut to the grid of training.

Logistic or ridge regression on simple statistics of point clouds: the simplest model of them.

Of every cloud: the spread along its three main axes, how far its points are from the centroid
(mean, deviation, shares of a histogram), the distances of pairs of its centres likewise, the mean
and deviation of every feature, how many points of each element, and their number. None of it
changes when a cloud is turned. The regression is that of `descent`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs, to_image
from regard.layers.positions import pairwise_distances
from regard.models.model_selection import SampledConfig, batches, few, trials, varied
from regard.models.point_transformer import PointSettings
from regard.models.supervised import Budget, FittedModel
from regard.models.vision import ImageSettings

ROUNDS = 200  # of L-BFGS, at most


class Regression(FittedModel):
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
    def features(self, source: Inputs) -> Tensor:
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

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
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


@dataclass(frozen=True, kw_only=True)
class PixelConfig(ImageSettings, SampledConfig):
    """How large coefficients may get."""

    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        SampledConfig.__post_init__(self)
        self.positive("strength")


class PixelLogistic(Regression):
    """One coefficient for every pixel and answer."""

    Config = PixelConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: PixelConfig()
    }
    tokens = "patches"
    what, strengths, rough = "pixels", (100.0, 1.0, 10.0, 1000.0, 10000.0), 40

    def __init__(self, vocab_size: int, config: PixelConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        pixels = config.rows * config.columns * config.patch**2 * config.channels
        self.add_line(pixels)

    def features(self, source: Inputs) -> Tensor:
        """See Regression: all pixels of each picture, scaled."""
        config = self.config
        picture, there = to_image(source, config.rows, config.columns, config.patch)
        mean, deviation = (
            255 * torch.tensor(values, device=picture.device)[:, None, None]
            for values in (config.mean, config.deviation)
        )
        return ((picture - mean) / deviation * there).flatten(1)


BINS = 12  # of a histogram


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(PointSettings, SampledConfig):
    """How large coefficients may get."""

    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        SampledConfig.__post_init__(self)
        self.positive("strength")


class PointCloudLogistic(Regression):
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

    def features(self, source: Inputs) -> Tensor:
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
        gaps = histogram(pairwise_distances(at, at).flatten(1), pairs.flatten(1), config.reach)
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
