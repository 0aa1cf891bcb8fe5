"""Logistic or ridge regression on the pixels of pictures: the simplest model that sees them.

The minimum of Σ cost(x W + b, y) + strength / 2 · |W|², found by L-BFGS (Liu & Nocedal 1989), where
x are all pixels in units of their channel's deviation. A smaller picture is filled up with the mean
of its channels, a larger one cut to the grid of training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.pictures import to_picture
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.fitted import FittedConfig, batches, trials, varied
from regard.models.vision import PictureConfig

STRENGTHS = (100.0, 1.0, 10.0, 1000.0, 10000.0)  # tried
ROUNDS, ROUGH = 200, 40  # of L-BFGS, at most; while something is only being chosen


@dataclass(frozen=True, kw_only=True)
class PixelConfig(PictureConfig, FittedConfig):
    """How large coefficients may get."""

    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        PictureConfig.__post_init__(self)
        FittedConfig.__post_init__(self)
        self.positive("strength")


class PixelLogistic(FittedAssessor):
    """One coefficient for every pixel and answer."""

    Config = PixelConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: PixelConfig()
    }
    tokens = "patches"
    coefficients: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: PixelConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        pixels = config.rows * config.columns * config.patch**2 * config.channels
        self.register_buffer("coefficients", torch.zeros(pixels, config.n_outputs))
        self.register_buffer("bias", torch.zeros(config.n_outputs))

    def pixels(self, source: Source) -> Tensor:
        """(B, F) all pixels of each picture, scaled."""
        config = self.config
        picture, there = to_picture(source, config.rows, config.columns, config.patch)
        mean, deviation = (
            255 * torch.tensor(values, device=picture.device)[:, None, None]
            for values in (config.mean, config.deviation)
        )
        return ((picture - mean) / deviation * there).flatten(1)

    def read(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """Pixels and targets of all records, in order."""
        pixels = torch.empty(shard.records, len(self.coefficients))
        targets: list[Tensor] = []
        items: list[Tensor] = []
        for batch, source in batches(shard, self.config.max_len):
            own = torch.from_numpy(batch.items)
            pixels[own] = self.pixels(source)
            items.append(own)
            targets.append(batch.targets)
        return pixels, torch.cat(targets)[torch.cat(items).argsort()]

    def fit(self, shard: Shard, valid: Shard | None, say: Callable[[str], None]) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        pixels, targets = self.read(shard)
        others = None
        both = pixels
        if valid is not None and valid.records:
            more, others = self.read(valid)
            both = torch.cat([pixels, more])
        judged = trials(self.task, targets, others)

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            weights, bias = self.solve(
                both[learn], judged.targets[learn], config.strength, ROUGH, self.config.n_outputs
            )
            return both[check] @ weights + bias

        self.config = judged.best(varied(self.config, strength=STRENGTHS), answer)
        strength, outputs = self.config.strength, self.config.n_outputs
        self.coefficients, self.bias = self.solve(pixels, targets, strength, ROUNDS, outputs)
        say(f"{pixels.size(1):,} pixels; strength {strength:g}, where open by {judged.how}")

    def solve(
        self, x: Tensor, y: Tensor, strength: float, rounds: int, outputs: int
    ) -> tuple[Tensor, Tensor]:
        """Coefficients (F, O) and biases (O,) from rows (R, F) and what is asked of them."""
        weights = torch.zeros(x.size(1), outputs, requires_grad=True)
        bias = torch.zeros(outputs)
        if self.task == "value":
            there = ~y.isnan()
            bias = y.nan_to_num().sum(0) / there.sum(0).clamp_min(1)
        bias = bias.float().requires_grad_()
        search = torch.optim.LBFGS(
            [weights, bias], max_iter=rounds, history_size=10, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            search.zero_grad()
            found = cost(self.task, x @ weights + bias, y) + strength / 2 * weights.square().sum()
            mean: Tensor = found / len(x)
            mean.backward()
            return mean

        with torch.enable_grad():
            search.step(closure)
        return weights.detach(), bias.detach()

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self.pixels(source) @ self.coefficients + self.bias


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
