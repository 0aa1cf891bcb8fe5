"""Stems: what makes vectors of tokens that are numbers, where an embedding makes them of ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.pictures import PLACE, coordinates
from regard.layers.source import Source


class PatchStem(nn.Module):
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

    def where(self, source: Source) -> Tensor:
        """(B, N, 2) where the tokens stand."""
        return coordinates(source, self.grid)


class PointStem(nn.Module):
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

    def where(self, source: Source) -> Tensor:
        """(B, N, d) where the tokens stand; NaN for what stands nowhere, `<S>` and padding."""
        at = source.ids[..., : self.dimensions].float()
        there = source.segments > 0
        first = torch.arange(at.size(1), device=at.device) == 0
        return at.masked_fill((~there | first)[..., None], torch.nan)
