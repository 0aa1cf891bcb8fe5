"""What a model reads: of a translator the source, of what answers the records it is asked about.

Tokens that are patches of a picture: what is in them, where they stand, and the picture again.

A token is V numbers: row and column, counted from 1, then the pixels, channel by channel; `<S>`
stands at 0, 0. See tokens/patches.py.

Stems: what makes vectors of tokens that are numbers, where an embedding makes them of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, eq=False)
class Inputs:
    """Source sequences: (B, S) `ids`, and `segments` (B, S) that number those of a row from 1, 0
    being padding. A target in segment n of row b belongs to the source in segment n of row b.

    Where tokens are V numbers each instead of one of V ids, as of images, `ids` is (B, S, V).
    """

    ids: Tensor
    segments: Tensor

    def to(self, device: torch.device) -> Inputs:
        """The same on another device."""
        ids, segments = (x.to(device, non_blocking=True) for x in (self.ids, self.segments))
        return Inputs(ids, segments)


PLACE = 2  # numbers before the pixels, as in tokens/patches.py


def places(source: Inputs) -> Tensor:
    """(B, N, 2): row and column of every patch, from 1; 0 for what stands nowhere, `<S>` and
    padding.
    """
    return source.ids[..., :PLACE].long() * (source.segments > 0)[..., None]


def extents(source: Inputs) -> Tensor:
    """(B, 2): how many rows and columns of patches each picture has."""
    return places(source).amax(1).clamp_min(1)


def coordinates(source: Inputs, grid: Tensor) -> Tensor:
    """(B, N, 2): where patches stand, as rows and columns from 0 on a grid of (2,) this size, onto
    which every picture is stretched; NaN for what stands nowhere.
    """
    place = places(source)
    stretched = (place - 0.5) * (grid / place.amax(1).clamp_min(1))[:, None] - 0.5
    stretched = torch.minimum(stretched.clamp_min(0), grid - 1.0)
    return stretched.masked_fill(place[..., :1] == 0, torch.nan)


def to_image(source: Inputs, rows: int, columns: int, patch: int) -> tuple[Tensor, Tensor]:
    """Pixels (B, C, rows · patch, columns · patch) of patches, and (B, 1, …) 1 where there are any;
    what is beyond a smaller picture is 0, what is beyond the grid is left out.
    """
    place = places(source)
    inside = (place[..., 0] > 0) & (place[..., 0] <= rows) & (place[..., 1] <= columns)
    cell = ((place[..., 0] - 1) * columns + place[..., 1]).where(inside, 0)  # (B, N), 0: nowhere
    pixels = source.ids[..., PLACE:].float()  # (B, N, C · patch²)
    filled = torch.cat((pixels, torch.ones_like(pixels[..., :1])), -1)  # the last: there is one
    canvas = filled.new_zeros(len(filled), 1 + rows * columns, filled.size(-1))
    canvas = canvas.scatter(1, cell[..., None].expand_as(filled), filled)[:, 1:]
    there = canvas[..., -1].unflatten(1, (rows, columns))[:, None]  # (B, 1, rows, columns)
    there = there.repeat_interleave(patch, 2).repeat_interleave(patch, 3)
    cut = canvas[..., :-1].unflatten(2, (-1, patch, patch)).unflatten(1, (rows, columns))
    picture = cut.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, patch, columns, patch)
    return picture.flatten(4, 5).flatten(2, 3), there


def to_tokens(picture: Tensor, source: Inputs, patch: int) -> Tensor:
    """Tokens (B, N, V) like those of the source, with the pixels of a picture (B, C, Y, X)."""
    columns = picture.size(3) // patch
    cut = picture.unflatten(3, (columns, patch)).unflatten(2, (-1, patch))
    cut = cut.permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, patch, patch)
    flat = cut.flatten(3).flatten(1, 2)  # (B, rows · columns, C · patch²)
    place = places(source)
    cell = ((place[..., 0] - 1) * columns + place[..., 1] - 1).clamp_min(0)  # (B, N)
    pixels = flat.gather(1, cell[..., None].expand(-1, -1, flat.size(-1)))
    pixels = pixels * (place[..., :1] > 0)
    return torch.cat((place.to(pixels.dtype), pixels), -1)


class PatchEmbedding(nn.Module):
    """A linear map of the pixels of each patch, and a learned vector for `<S>`, which has none.

    Pixels are bytes; they are scaled to white being 1, less the mean of their channel and in units
    of its deviation. `grid`, rows and columns, is what positions are told on.
    """

    grid: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        grid: tuple[int, int],
        mean: Sequence[float],
        deviation: Sequence[float],
    ) -> None:
        super().__init__()
        pixels = (vocab_size - PLACE) // len(mean)
        self.register_buffer("grid", torch.tensor(grid), persistent=False)
        self.project = nn.Linear(vocab_size - PLACE, d_model)
        self.marker = nn.Parameter(torch.zeros(d_model))
        for name, values in (("mean", mean), ("deviation", deviation)):
            each = torch.tensor(values, dtype=torch.float32).repeat_interleave(pixels)  # (C · P²,)
            self.register_buffer(name, 255 * each, persistent=False)

    def scaled(self, ids: Tensor) -> Tensor:
        """The pixels (B, N, V - 2) of tokens (B, N, V) as the map takes them."""
        return (ids[..., PLACE:].to(self.mean.dtype) - self.mean) / self.deviation

    def forward(self, ids: Tensor) -> Tensor:
        """(B, N, V) tokens, `<S>` the first of each row, to (B, N, D)."""
        x = self.project(self.scaled(ids[:, 1:]))
        marker = self.marker.to(x.dtype).expand(len(x), 1, -1)
        return torch.cat((marker, x), 1)

    def where(self, source: Inputs) -> Tensor:
        """(B, N, 2) where the tokens stand."""
        return coordinates(source, self.grid)


class PointEmbedding(nn.Module):
    """A small network of every neighbour of a centre, the largest of each feature among them, and a
    linear map of that (Qi et al. 2017, "PointNet", arXiv:1612.00593); a learned vector for `<S>`.

    Of each neighbour it reads the features, its distance from the centre and from the centroid,
    that of the centre and, unless it is `invariant`, where the neighbour stands from the centre.
    Where a centre has no neighbours but itself, it reads the features alone or, where there are
    none, how far it is from the centroid. Distances are told in
    units of `spread`. See tokens/points.py.
    """

    def __init__(
        self,
        d_model: int,
        dimensions: int,
        neighbours: int,
        n_features: int,
        *,
        invariant: bool,
        spread: float,
    ) -> None:
        super().__init__()
        self.dimensions, self.neighbours, self.spread = dimensions, neighbours, spread
        self.invariant, self.n_features = invariant, n_features
        width = n_features
        if neighbours > 1:
            width += 3 if invariant else 3 + dimensions
        self.first = nn.Linear(max(1, width), d_model)
        self.second = nn.Linear(d_model, d_model)
        self.project = nn.Linear(d_model, d_model)
        self.marker = nn.Parameter(torch.zeros(d_model))

    def groups(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of tokens (B, N, V), the centres (B, N, d), and of their neighbours which are there
        (B, N, k), where from the centre (B, N, k, d), and their features (B, N, k, C).
        """
        d = self.dimensions
        near = ids[..., d:].unflatten(-1, (self.neighbours, -1))
        return ids[..., :d], near[..., 0] > 0.5, near[..., 1 : 1 + d], near[..., 1 + d :]

    def scaled(self, ids: Tensor) -> Tensor:
        """(B, N, k, F) what is read of every neighbour."""
        centre, _, away, features = self.groups(ids)
        if self.neighbours == 1:
            return features if self.n_features else centre.norm(dim=-1)[..., None, None]
        whole = (centre[..., None, :] + away).norm(dim=-1, keepdim=True)
        own = centre.norm(dim=-1)[..., None, None].expand_as(whole)
        parts = [features, away.norm(dim=-1, keepdim=True) / self.spread, whole, own]
        if not self.invariant:
            parts.append(away / self.spread)
        return torch.cat(parts, -1)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, N, V) tokens, `<S>` the first of each row, to (B, N, D)."""
        tokens = ids[:, 1:].to(self.marker.dtype)
        each = self.second(F.gelu(self.first(self.scaled(tokens))))  # (B, N, k, D)
        if self.neighbours == 1:
            most = each[:, :, 0]
        else:
            there = self.groups(tokens)[1][..., None]
            most = each.masked_fill(~there, -torch.inf).amax(2)
            most = most.masked_fill(most == -torch.inf, 0)  # padding has none
        x = self.project(F.gelu(most))
        marker = self.marker.to(x.dtype).expand(len(x), 1, -1)
        return torch.cat((marker, x), 1)

    def where(self, source: Inputs) -> Tensor:
        """(B, N, d) where the tokens stand; NaN for what stands nowhere, `<S>` and padding."""
        at = source.ids[..., : self.dimensions].float()
        there = source.segments > 0
        first = torch.arange(at.size(1), device=at.device) == 0
        return at.masked_fill((~there | first)[..., None], torch.nan)
