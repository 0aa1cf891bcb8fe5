"""Logistic or ridge regression on the pixels of pictures: the simplest model that sees them.

It is found by `descent`, from all pixels in units of their channel's deviation. A smaller picture
is filled up with the mean of its channels, a larger one cut to the grid of training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.pictures import to_picture
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.descent import solve
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
        judged, outputs = trials(self.task, targets, others), self.config.n_outputs

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            x, y = both[learn], judged.targets[learn]
            weights, bias = solve(self.task, x, y, config.strength, ROUGH, outputs)
            return both[check] @ weights + bias

        self.config = judged.best(varied(self.config, strength=STRENGTHS), answer)
        strength = self.config.strength
        self.coefficients, self.bias = solve(self.task, pixels, targets, strength, ROUNDS, outputs)
        say(f"{pixels.size(1):,} pixels; strength {strength:g}, where open by {judged.how}")

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self.pixels(source) @ self.coefficients + self.bias
