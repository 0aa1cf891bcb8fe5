"""Positions in space: the doors of `positions` for tokens that stand at any coordinates.

`where` is (B, N, d), NaN for what stands nowhere. Three things can be told, each or all: where a
token stands, by a code that is added; how far two tokens are from each other, as a bias of their
score; and what stands around a token, at which distance. The last two change nothing when all is
moved or turned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean
from regard.layers.positions import Positions, Where, sinusoids

SPACE_POSITIONS = ("learned", "sinusoidal", "none")
WAVES = 100.0  # steps of the fixed waves in the largest distance


class Radial(nn.Module):
    """Distances as heights of n bells, side by side from 0 to `reach`."""

    centres: Tensor

    def __init__(self, count: int, reach: float) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, reach, count), persistent=False)
        self.width = reach / max(1, count - 1)

    def forward(self, distances: Tensor) -> Tensor:
        """(...) to (..., n); what is NaN has no height anywhere."""
        gaps = (distances.nan_to_num(-1e3 * self.width)[..., None] - self.centres) / self.width
        return torch.exp(-gaps.square() / 2)


def apart(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, T, S) distances of coordinates (B, T, d) and (B, S, d); NaN where one stands nowhere."""
    return (queries[:, :, None] - keys[:, None]).square().sum(-1).sqrt()


class Around(nn.Module):
    """What stands around each token: the sum over all others of their vectors, each weighed,
    feature by feature, by its distance (Schütt et al. 2017, "SchNet", arXiv:1706.08566).
    """

    def __init__(self, d_model: int, count: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(count, d_model, bias=False)
        self.read = nn.Linear(d_model, d_model, bias=False)
        self.first = nn.Linear(d_model, d_model)
        self.second = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, bells: Tensor) -> Tensor:
        """(B, N, D) from vectors (B, N, D) and distances (B, N, N, n), 0 for what is nowhere."""
        weights = self.weigh(bells)  # (B, N, N, D)
        own = torch.eye(x.size(1), device=x.device, dtype=torch.bool)[None, :, :, None]
        sums = (weights.masked_fill(own, 0) * self.read(x)[:, None]).sum(2)  # (B, N, D)
        return self.second(F.gelu(self.first(sums)))  # type: ignore[no-any-return]


class SpacePositions(Positions):
    """Coordinates by the code of that name, distances by so many bells up to `reach`, and what
    stands `around`; no bells tell nothing of distances.
    """

    def __init__(
        self,
        name: str,
        *,
        d_model: int,
        n_heads: int,
        dimensions: int,
        distances: int,
        reach: float,
        around: bool,
    ) -> None:
        super().__init__()
        if name not in SPACE_POSITIONS:
            hint = did_you_mean(name, list(SPACE_POSITIONS))
            raise UsageError(f"positions {name!r} are not for points; {hint}")
        self.name, self.reach, self.biased = name, reach, distances > 0
        self.first = self.second = self.weigh = self.around = None
        if name == "learned":
            self.first = nn.Linear(dimensions, d_model)
            self.second = nn.Linear(d_model, d_model)
        if distances:
            self.bells = Radial(distances, reach)
            self.weigh = nn.Linear(distances, n_heads, bias=False)
            self.around = Around(d_model, distances) if around else None

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        assert isinstance(where, Tensor)
        nowhere = where[..., :1].isnan()
        at = where.nan_to_num() / (self.reach / 2)
        if self.around is not None:
            x = x + self.around(x, self.bells(apart(where, where)).to(x.dtype))
        if self.first is not None and self.second is not None:
            code = self.second(F.gelu(self.first(at.to(self.first.weight.dtype))))
        elif self.name == "sinusoidal":
            d = where.size(-1)
            part = -(-x.size(-1) // d)
            waves = [sinusoids(at[..., i] * WAVES / 2, part + part % 2) for i in range(d)]
            code = torch.cat(waves, -1)[..., : x.size(-1)]
        else:
            return x
        told: Tensor = code.masked_fill(nowhere, 0).to(x.dtype)
        return x + told

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """See Positions."""
        if self.weigh is None:
            return None
        bells = self.bells(apart(queries, keys))  # (B, T, S, n)
        bias: Tensor = self.weigh(bells.to(self.weigh.weight.dtype))
        return bias.movedim(-1, 1)  # (B, H, T, S)
