"""Pictures that are changed a little every time they are shown, so that few are as good as more.

Every picture of a batch is moved, turned, resized, mirrored, coloured otherwise and partly covered
by chance, on the device, in one go. Steps seed torch, so that a resumed run sees the same (Simard
et al. 2003, "Best practices for convolutional neural networks"; covering: DeVries & Taylor 2017,
arXiv:1708.04552).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.pictures import extents, to_picture, to_tokens
from regard.layers.source import Source
from regard.recipe import TrainRecipe

WHITE = 255


class Changes(nn.Module):
    """What training does to pictures before it shows them; nothing where it is not training.

    `shift` and `zoom` are shares of a side, `rotate` degrees, each the most in both directions;
    `flip` mirrors half of them; `erase` is the side of a square that is covered, as a share. By
    `colour` the contrast of each channel changes, and its brightness by as much of half of white.
    """

    def __init__(self, recipe: TrainRecipe, patch: int, grid: tuple[int, int] | None) -> None:
        """All pictures have a `grid` of so many rows and columns of patches; None: each its own."""
        super().__init__()
        self.shift, self.zoom, self.angle = recipe.shift, recipe.zoom, math.radians(recipe.rotate)
        self.flip, self.erase, self.patch, self.grid = recipe.flip, recipe.erase, patch, grid
        self.colour = recipe.colour

    @property
    def any(self) -> bool:
        """Is there anything to do?"""
        return bool(self.shift or self.zoom or self.angle or self.flip or self.erase or self.colour)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (B, N, V) of pictures to others in their place, and their segments."""
        if not self.training or not self.any:
            return ids, segments
        source = Source(ids, segments)
        rows, columns = self.grid or (int(n) for n in extents(source).amax(0).tolist())
        picture, _ = to_picture(source, rows, columns, self.patch)  # (B, C, Y, X)
        sizes = extents(source).to(picture.dtype) * self.patch  # (B, 2) pixels
        if self.shift or self.zoom or self.angle or self.flip:
            picture = self.moved(picture, sizes)
        if self.colour:
            picture = self.coloured(picture)
        if self.erase:
            picture = self.covered(picture, sizes)
        return to_tokens(picture, source, self.patch), segments

    def moved(self, picture: Tensor, sizes: Tensor) -> Tensor:
        """Pictures looked at from elsewhere; what comes in from outside repeats the border."""
        height, width = picture.shape[2:]
        y = torch.arange(height, device=picture.device) + 0.5
        x = torch.arange(width, device=picture.device) + 0.5
        tall, wide = sizes[:, 0, None, None], sizes[:, 1, None, None]  # (B, 1, 1)
        one, two, three, four, five = self.chances(5, picture)
        turn = (2 * one - 1) * self.angle
        scale = torch.exp((2 * two - 1) * math.log1p(self.zoom))
        down, right = ((2 * r - 1) * self.shift for r in (three, four))
        dy, dx = y[None, :, None] - tall / 2, x[None, None, :] - wide / 2  # (B, Y, X)
        if self.flip:
            dx = torch.where(five < 0.5, dx, -dx)
        cos, sin = turn.cos() * scale, turn.sin() * scale
        from_y = cos * dy + sin * dx + tall * (0.5 + down)
        from_x = cos * dx - sin * dy + wide * (0.5 + right)
        from_y = torch.minimum(from_y.clamp_min(0.5), tall - 0.5) / height * 2 - 1
        from_x = torch.minimum(from_x.clamp_min(0.5), wide - 0.5) / width * 2 - 1
        where = torch.stack((from_x, from_y), -1)  # (B, Y, X, 2)
        return F.grid_sample(
            picture, where.to(picture.dtype), padding_mode="border", align_corners=False
        )

    def coloured(self, picture: Tensor) -> Tensor:
        """Pictures whose channels are each nearer to or farther from their mean, and brighter or
        darker.
        """
        one, two = torch.rand(2, *picture.shape[:2], 1, 1, device=picture.device)
        mean = picture.mean((2, 3), keepdim=True)
        contrast = torch.exp((2 * one - 1) * math.log1p(self.colour))
        brighter = (2 * two - 1) * self.colour * WHITE / 2
        changed: Tensor = mean + (picture - mean) * contrast + brighter
        return changed.clamp(0, WHITE)

    def covered(self, picture: Tensor, sizes: Tensor) -> Tensor:
        """Pictures with a square of their mean somewhere."""
        height, width = picture.shape[2:]
        y = torch.arange(height, device=picture.device)[None, :, None]
        x = torch.arange(width, device=picture.device)[None, None, :]
        tall, wide = sizes[:, 0, None, None], sizes[:, 1, None, None]
        one, two = self.chances(2, picture)
        half = self.erase / 2
        inside = ((y + 0.5 - one * tall).abs() <= half * tall) & (
            (x + 0.5 - two * wide).abs() <= half * wide
        )
        mean = picture.mean((2, 3), keepdim=True)
        return torch.where(inside[:, None], mean, picture)

    @staticmethod
    def chances(count: int, picture: Tensor) -> tuple[Tensor, ...]:
        """So many numbers (B, 1, 1) from 0 to 1."""
        drawn = torch.rand(count, len(picture), 1, 1, device=picture.device)
        return drawn.unbind(0)
