"""Point clouds that are changed a little every time they are shown, as pictures are.

Every cloud of a batch is turned, resized, moved and mirrored by chance, its points are moved a
little each, and some are left out, on the device, in one go. Steps seed torch, so that a resumed
run sees the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.points import CloudConfig
from regard.recipe import TrainRecipe

WHOLE = 180.0  # degrees from which any rotation is as probable as another


class CloudChanges(nn.Module):
    """What training does to clouds before it shows them; nothing where it is not training.

    `rotate` is degrees, `zoom` and `shift` are shares of the size, each the most in both
    directions; `flip` mirrors half of them; `jitter` is the deviation of what each point is moved
    by, `drop` the largest share of points, and of tokens, that is left out.
    """

    def __init__(self, recipe: TrainRecipe, config: CloudConfig, *, each: bool) -> None:
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
