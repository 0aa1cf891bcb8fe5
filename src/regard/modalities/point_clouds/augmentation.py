"""Random changes of point clouds during training.

Every cloud of a batch is rotated, scaled, shifted and mirrored at random, its points are moved a
little each, and some are dropped, on the device, in one go. Steps seed torch, so a resumed run sees
the same clouds.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ANY_ROTATION = 180.0  # degrees from which all rotations are equally probable


class RandomPointTransform(nn.Module):
    """Change point clouds in training mode; `config` is a PointAugmentConfig."""

    def __init__(self, config: Any, points: Any, *, aligned: bool) -> None:
        """`points` is the model's configuration; with `aligned`, no point is dropped."""
        super().__init__()
        self.shift, self.scale, self.flip = config.shift, config.scale, config.flip
        self.angle = math.radians(config.rotate)
        self.any_rotation = config.rotate >= ANY_ROTATION
        self.jitter, self.drop = config.jitter, 0.0 if aligned else config.drop
        self.dimensions, self.group_size = points.dimensions, points.group_size
        self.size = points.max_distance / 2
        if self.dimensions not in (2, 3):
            self.angle, self.any_rotation = 0.0, False

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Return other (B, N, V) tokens of point clouds, and the segments of those that stay."""
        moves = self.shift or self.scale or self.angle or self.flip
        if not self.training or not (moves or self.jitter or self.drop):
            return ids, segments
        d = self.dimensions
        ids = ids.float()
        center = ids[..., :d]
        group = ids[..., d:].unflatten(-1, (self.group_size, -1))  # (B, N, k, 1 + d + C)
        exists, offset, features = group[..., :1], group[..., 1 : 1 + d], group[..., 1 + d :]
        matrix = self.matrices(len(ids), ids.device)  # (B, d, d)
        center = center @ matrix.mT
        offset = (offset.flatten(1, 2) @ matrix.mT).view_as(offset)
        if self.shift:
            moved = (2 * torch.rand(len(ids), 1, d, device=ids.device) - 1) * self.shift
            center = center + moved * self.size
        if self.jitter:
            noise = torch.randn_like(offset) * (self.jitter * self.size)
            center = center + noise[:, :, 0]
            offset = offset + noise - noise[:, :, :1]  # the center stays its own first neighbor
        if self.drop:
            share = self.drop * torch.rand(len(ids), 1, device=ids.device)
            segments = self.drop_tokens(segments, share)
            dropped = torch.rand(offset.shape[:3], device=ids.device) < share[..., None]
            dropped[..., 0] = False
            exists = exists.masked_fill(dropped[..., None], 0.0)
        start = torch.zeros_like(center[:, :1])  # `<S>` stands at 0
        center = torch.cat((start, center[:, 1:]), 1)
        changed = torch.cat((exists, offset, features), -1).flatten(2)
        return torch.cat((center, changed), -1), segments

    def drop_tokens(self, segments: Tensor, share: Tensor) -> Tensor:
        """Return segments (B, N) without a share (B, 1) of the tokens, never `<S>` or the first."""
        dropped = torch.rand(segments.shape, device=segments.device) < share
        dropped[:, :2] = False
        return segments.masked_fill(dropped, 0)

    def matrices(self, count: int, device: torch.device) -> Tensor:
        """Return (B, d, d) matrices that rotate, scale and mirror."""
        d = self.dimensions
        matrix = torch.eye(d, device=device).expand(count, d, d)
        if self.angle and d == 2:
            angle = (2 * torch.rand(count, device=device) - 1) * self.angle
            cos, sin = angle.cos(), angle.sin()
            matrix = torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))
        elif self.angle:
            matrix = rotations(self.quaternions(count, device))
        if self.flip:
            mirrored = torch.rand(count, 1, 1, device=device) < 0.5
            signs = torch.ones(d, device=device)
            signs[0] = -1
            matrix = torch.where(mirrored, matrix * signs, matrix)
        if self.scale:
            scale = (2 * torch.rand(count, 1, 1, device=device) - 1) * math.log1p(self.scale)
            matrix = matrix * scale.exp()
        return matrix

    def quaternions(self, count: int, device: torch.device) -> Tensor:
        """Return (B, 4) unit quaternions: any, or those of a limited angle about any axis."""
        drawn = torch.randn(count, 4, device=device)
        if self.any_rotation:  # uniform over all rotations (Shoemake 1992)
            return F.normalize(drawn, dim=1)
        axis = F.normalize(drawn[:, 1:], dim=1)
        half = (torch.rand(count, 1, device=device) - 0.5) * self.angle
        quaternion: Tensor = torch.cat((half.cos(), half.sin() * axis), 1)
        return quaternion


def rotations(quaternions: Tensor) -> Tensor:
    """Return the (B, 3, 3) rotations of unit quaternions (B, 4)."""
    w, x, y, z = quaternions.unbind(1)
    rows = (
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )  # fmt: skip
    matrix: Tensor = torch.stack(rows, -1).unflatten(-1, (3, 3))
    return matrix
