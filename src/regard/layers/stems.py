"""Stems: what makes vectors of tokens that are numbers, where an embedding makes them of ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

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
