"""Pictures that are changed a little every time they are shown, so that few are as good as more.

Every picture of a batch is moved, turned, resized, mirrored, coloured otherwise and partly covered
by chance, on the device, in one go. Steps seed torch, so that a resumed run sees the same (Simard
et al. 2003, "Best practices for convolutional neural networks"; covering: DeVries & Taylor 2017,
arXiv:1708.04552).

Point clouds that are changed a little every time they are shown, as pictures are.

Every cloud of a batch is turned, resized, moved and mirrored by chance, its points are moved a
little each, and some are left out, on the device, in one go. Steps seed torch, so that a resumed
run sees the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embeddings import Inputs, extents, to_image, to_tokens
from regard.models.point_transformer import PointSettings
from regard.recipe import TrainRecipe

WHITE = 255


class ImageAugment(nn.Module):
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
        source = Inputs(ids, segments)
        rows, columns = self.grid or (int(n) for n in extents(source).amax(0).tolist())
        picture, _ = to_image(source, rows, columns, self.patch)  # (B, C, Y, X)
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


WHOLE = 180.0  # degrees from which any rotation is as probable as another


class PointCloudAugment(nn.Module):
    """What training does to clouds before it shows them; nothing where it is not training.

    `rotate` is degrees, `zoom` and `shift` are shares of the size, each the most in both
    directions; `flip` mirrors half of them; `jitter` is the deviation of what each point is moved
    by, `drop` the largest share of points, and of tokens, that is left out.
    """

    def __init__(self, recipe: TrainRecipe, config: PointSettings, *, each: bool) -> None:
        """Where `each` point is asked about, none is left out."""
        super().__init__()
        self.shift, self.zoom, self.flip = recipe.shift, recipe.zoom, recipe.flip
        self.angle, self.any_way = math.radians(recipe.rotate), recipe.rotate >= WHOLE
        self.jitter, self.drop = recipe.jitter, 0.0 if each else recipe.drop
        self.dimensions, self.neighbours = config.dimensions, config.neighbours
        self.size = config.reach / 2
        if self.dimensions not in (2, 3):
            self.angle, self.any_way = 0.0, False

    @property
    def any(self) -> bool:
        """Is there anything to do?"""
        moved = self.shift or self.zoom or self.angle or self.flip
        return bool(moved or self.jitter or self.drop)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (B, N, V) of clouds to others in their place, and what of them is left."""
        if not self.training or not self.any:
            return ids, segments
        d = self.dimensions
        ids = ids.float()
        centre = ids[..., :d]
        near = ids[..., d:].unflatten(-1, (self.neighbours, -1))  # (B, N, k, 1 + d + C)
        there, away, told = near[..., :1], near[..., 1 : 1 + d], near[..., 1 + d :]
        turn = self.turns(len(ids), ids.device)  # (B, d, d)
        centre = centre @ turn.mT
        away = (away.flatten(1, 2) @ turn.mT).view_as(away)
        if self.shift:
            moved = (2 * torch.rand(len(ids), 1, d, device=ids.device) - 1) * self.shift
            centre = centre + moved * self.size
        if self.jitter:
            noise = torch.randn_like(away) * (self.jitter * self.size)
            centre = centre + noise[:, :, 0]
            away = away + noise - noise[:, :, :1]  # the centre stays its own first neighbour
        if self.drop:
            share = self.drop * torch.rand(len(ids), 1, device=ids.device)
            segments = self.fewer(segments, share)
            lost = torch.rand(away.shape[:3], device=ids.device) < share[..., None]
            lost[..., 0] = False
            there = there.masked_fill(lost[..., None], 0.0)
        first = torch.zeros_like(centre[:, :1])  # `<S>` stands at 0
        centre = torch.cat((first, centre[:, 1:]), 1)
        changed = torch.cat((there, away, told), -1).flatten(2)
        return torch.cat((centre, changed), -1), segments

    def fewer(self, segments: Tensor, share: Tensor) -> Tensor:
        """Segments (B, N) with a share (B, 1) of the tokens left out, never `<S>` or the first."""
        lost = torch.rand(segments.shape, device=segments.device) < share
        lost[:, :2] = False
        return segments.masked_fill(lost, 0)

    def turns(self, count: int, device: torch.device) -> Tensor:
        """(B, d, d): rotations, sizes and mirrors of clouds in one matrix each."""
        d = self.dimensions
        found = torch.eye(d, device=device).expand(count, d, d)
        if self.angle and d == 2:
            angle = (2 * torch.rand(count, device=device) - 1) * self.angle
            cos, sin = angle.cos(), angle.sin()
            found = torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))
        elif self.angle:
            found = rotations(self.quaternions(count, device))
        if self.flip:
            mirrored = torch.rand(count, 1, 1, device=device) < 0.5
            sides = torch.ones(d, device=device)
            sides[0] = -1
            found = torch.where(mirrored, found * sides, found)
        if self.zoom:
            scale = (2 * torch.rand(count, 1, 1, device=device) - 1) * math.log1p(self.zoom)
            found = found * scale.exp()
        return found

    def quaternions(self, count: int, device: torch.device) -> Tensor:
        """(B, 4) unit quaternions: any, or those of a limited angle about any axis."""
        drawn = torch.randn(count, 4, device=device)
        if self.any_way:  # uniform over all rotations (Shoemake 1992)
            return F.normalize(drawn, dim=1)
        axis = F.normalize(drawn[:, 1:], dim=1)
        half = (torch.rand(count, 1, device=device) - 0.5) * self.angle
        found: Tensor = torch.cat((half.cos(), half.sin() * axis), 1)
        return found


def rotations(quaternions: Tensor) -> Tensor:
    """(B, 3, 3) of unit quaternions (B, 4)."""
    w, x, y, z = quaternions.unbind(1)
    rows = (
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )  # fmt: skip
    found: Tensor = torch.stack(rows, -1).unflatten(-1, (3, 3))
    return found
