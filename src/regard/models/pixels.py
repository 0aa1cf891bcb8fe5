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

from regard.layers.pictures import to_picture
from regard.layers.source import Source
from regard.models.descent import Regression
from regard.models.fitted import SampledConfig
from regard.models.vision import PictureConfig


@dataclass(frozen=True, kw_only=True)
class PixelConfig(PictureConfig, SampledConfig):
    """How large coefficients may get."""

    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        PictureConfig.__post_init__(self)
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

    def features(self, source: Source) -> Tensor:
        """See Regression: all pixels of each picture, scaled."""
        config = self.config
        picture, there = to_picture(source, config.rows, config.columns, config.patch)
        mean, deviation = (
            255 * torch.tensor(values, device=picture.device)[:, None, None]
            for values in (config.mean, config.deviation)
        )
        return ((picture - mean) / deviation * there).flatten(1)
