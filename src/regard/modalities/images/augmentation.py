"""Random changes of images during training.

Every image of a batch is shifted, rotated, scaled, mirrored, recolored and partly covered at
random, on the device, in one go. Steps seed torch, so a resumed run sees the same images (Simard et
al. 2003, "Best practices for convolutional neural networks"; cutout: DeVries & Taylor 2017,
arXiv:1708.04552).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embeddings import Inputs, grid_sizes, to_image, to_tokens

WHITE = 255


class RandomImageTransform(nn.Module):
    """Change images in training mode; `config` is an ImageAugmentConfig."""

    def __init__(self, config: Any, patch: int, grid: tuple[int, int] | None) -> None:
        """`grid` is the rows and columns of patches of all images; None if they differ."""
        super().__init__()
        self.config, self.patch, self.grid = config, patch, grid
        self.angle = math.radians(config.rotate)
        self.moves = bool(config.shift or config.scale or self.angle or config.flip)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Return other (B, N, V) tokens of images, and their segments."""
        config = self.config
        if not self.training or not (self.moves or config.cutout or config.color_jitter):
            return ids, segments
        source = Inputs(ids, segments)
        rows, columns = self.grid or (int(n) for n in grid_sizes(source).amax(0).tolist())
        image, _ = to_image(source, rows, columns, self.patch)  # (B, C, Y, X)
        sizes = grid_sizes(source).to(image.dtype) * self.patch  # (B, 2) pixels
        if self.moves:
            image = self.move(image, sizes)
        if config.color_jitter:
            image = self.recolor(image)
        if config.cutout:
            image = self.cover(image, sizes)
        return to_tokens(image, source, self.patch), segments

    def move(self, image: Tensor, sizes: Tensor) -> Tensor:
        """Shift, rotate, scale and mirror; what comes in from outside repeats the border."""
        height, width = image.shape[2:]
        y = torch.arange(height, device=image.device) + 0.5
        x = torch.arange(width, device=image.device) + 0.5
        tall, wide = sizes[:, 0, None, None], sizes[:, 1, None, None]  # (B, 1, 1)
        r1, r2, r3, r4, r5 = self.draw(5, image)
        angle = (2 * r1 - 1) * self.angle
        scale = torch.exp((2 * r2 - 1) * math.log1p(self.config.scale))
        down, right = ((2 * r - 1) * self.config.shift for r in (r3, r4))
        dy, dx = y[None, :, None] - tall / 2, x[None, None, :] - wide / 2  # (B, Y, X)
        if self.config.flip:
            dx = torch.where(r5 < 0.5, dx, -dx)
        cos, sin = angle.cos() * scale, angle.sin() * scale
        from_y = cos * dy + sin * dx + tall * (0.5 + down)
        from_x = cos * dx - sin * dy + wide * (0.5 + right)
        from_y = torch.minimum(from_y.clamp_min(0.5), tall - 0.5) / height * 2 - 1
        from_x = torch.minimum(from_x.clamp_min(0.5), wide - 0.5) / width * 2 - 1
        grid = torch.stack((from_x, from_y), -1)  # (B, Y, X, 2)
        return F.grid_sample(
            image, grid.to(image.dtype), padding_mode="border", align_corners=False
        )

    def recolor(self, image: Tensor) -> Tensor:
        """Change contrast and brightness of each channel."""
        r1, r2 = torch.rand(2, *image.shape[:2], 1, 1, device=image.device)
        mean = image.mean((2, 3), keepdim=True)
        contrast = torch.exp((2 * r1 - 1) * math.log1p(self.config.color_jitter))
        brightness = (2 * r2 - 1) * self.config.color_jitter * WHITE / 2
        changed: Tensor = mean + (image - mean) * contrast + brightness
        return changed.clamp(0, WHITE)

    def cover(self, image: Tensor, sizes: Tensor) -> Tensor:
        """Cover a square somewhere by the image's mean."""
        height, width = image.shape[2:]
        y = torch.arange(height, device=image.device)[None, :, None]
        x = torch.arange(width, device=image.device)[None, None, :]
        tall, wide = sizes[:, 0, None, None], sizes[:, 1, None, None]
        r1, r2 = self.draw(2, image)
        half = self.config.cutout / 2
        inside = ((y + 0.5 - r1 * tall).abs() <= half * tall) & (
            (x + 0.5 - r2 * wide).abs() <= half * wide
        )
        mean = image.mean((2, 3), keepdim=True)
        return torch.where(inside[:, None], mean, image)

    @staticmethod
    def draw(count: int, image: Tensor) -> tuple[Tensor, ...]:
        """Return random numbers (B, 1, 1) from 0 to 1."""
        return torch.rand(count, len(image), 1, 1, device=image.device).unbind(0)
