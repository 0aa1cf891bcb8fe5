"""Positions in the plane: the schemes of `positions` for tokens that stand at a row and a column.

`where` is (B, N, 2): coordinates on the grid that training had, fractions between its places for
pictures of another size, so that nothing changes when a picture is only finer; NaN stands nowhere.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean
from regard.layers.positions import Positions, Rotation, Where, sinusoids


class LearnedGrid(Positions):
    """One trained vector for every place of the grid and one for what stands nowhere; between
    places, what lies around is mixed (bilinear).
    """

    def __init__(self, d_model: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.embedding = nn.Embedding(1 + grid[0] * grid[1], d_model)  # the first: nowhere

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        return x + self.shares(where).to(x.dtype) @ self.embedding.weight.to(x.dtype)

    def shares(self, where: Where) -> Tensor:
        """(B, N, 1 + places): how much of each vector stands at these coordinates."""
        assert isinstance(where, Tensor)
        nowhere = where[..., 0].isnan()
        tents = []
        for axis, size in enumerate(self.grid):
            at = where[..., axis].nan_to_num(-2.0)[..., None]  # (B, N, 1)
            tents.append((1 - (at - torch.arange(size, device=at.device)).abs()).clamp_min(0))
        both = (tents[0][..., :, None] * tents[1][..., None, :]).flatten(-2)
        return torch.cat((nowhere[..., None].to(both.dtype), both), -1)


class SinusoidalGrid(Positions):
    """The fixed waves of 2017, of the row in the first half of the coordinates and of the column in
    the second; nothing where it stands nowhere.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 4:
            raise UsageError(
                f"positions = 'sinusoidal' of a picture needs d_model to be a multiple of 4, "
                f"got {d_model}"
            )

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        assert isinstance(where, Tensor)
        half = x.size(-1) // 2
        waves = torch.cat([sinusoids(where[..., i].nan_to_num(), half) for i in range(2)], -1)
        return x + waves.masked_fill(where[..., :1].isnan(), 0).to(x.dtype)


class RotaryGrid(Positions):
    """Turns pairs of coordinates: half of them by an angle proportional to the row, the other half
    by one proportional to the column (Heo et al. 2024, arXiv:2403.13298, "axial"). Coordinate i is
    paired with i + K/2, as everywhere here; what stands nowhere is not turned.
    """

    rates: Tensor

    def __init__(self, d_head: int, theta: float) -> None:
        super().__init__()
        if d_head % 4:
            raise UsageError(
                f"positions = 'rotary' of a picture needs d_head to be a multiple of 4, "
                f"got {d_head}"
            )
        rates = theta ** -(torch.arange(0, d_head // 2, 2).float() / (d_head // 2))  # (K/4,)
        self.register_buffer("rates", rates, persistent=False)

    def rotation(self, where: Where) -> Rotation | None:
        """See Positions."""
        assert isinstance(where, Tensor)
        angles = (where.nan_to_num()[..., None] * self.rates).flatten(-2)  # (B, N, K/2)
        cosine, sine = angles.cos()[:, :, None], angles.sin()[:, :, None]  # (B, N, 1, K/2)
        return torch.cat((cosine,) * 2, dim=-1), torch.cat((-sine, sine), dim=-1)


GRID_POSITIONS = ("learned", "sinusoidal", "rotary", "none")


def make_grid_positions(
    name: str, *, d_model: int, d_head: int, grid: tuple[int, int], theta: float
) -> Positions:
    """The scheme of that name for a grid of so many rows and columns."""
    if name == "learned":
        return LearnedGrid(d_model, grid)
    if name == "sinusoidal":
        return SinusoidalGrid(d_model)
    if name == "rotary":
        return RotaryGrid(d_head, theta)
    if name == "none":
        return Positions()
    hint = did_you_mean(name, list(GRID_POSITIONS))
    raise UsageError(f"positions {name!r} are not for pictures; {hint}")
