"""Causal convolution: a position and some before it, side by side, through one linear map.

A convolution of kernel k and dilation d reads at position t the vectors of t - (k - 1)·d, …, t - d
and t. `PastWindow` lays them side by side; a matrix times their concatenation is the convolution,
so what follows is an ordinary linear layer. Dilated and gated: WaveNet (van den Oord et al. 2016,
arXiv:1609.03499, sections 2.1 and 2.3). Decoding keeps each layer's last inputs, so that a step
costs the same at every dilation (Paine et al. 2016, arXiv:1611.09482).

Before the first position of a record stand zeros, whatever shares its row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.cache import Ring
from regard.layers.feedforward import FEEDFORWARDS, SwiGLU, dropout, make_feedforward

FILTERS = (*FEEDFORWARDS, "gated")


@dataclass(frozen=True, eq=False)
class ConvolutionContext:
    """The T positions of one call: which records they belong to, or what was read before them.

    `segments` (B, T) numbers the records of a row. With a state, `start` positions came before, in
    all rows or in each (B,), and row b has lengths[b] more, or T.
    """

    segments: Tensor | None = None
    start: int | Tensor = 0
    lengths: Tensor | None = None


class PastWindow(nn.Module):
    """Each position's vector and those before it at multiples of `dilation`, far to near."""

    def __init__(self, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.distances = [n * dilation for n in reversed(range(kernel))]

    def forward(self, x: Tensor, stretch: ConvolutionContext, ring: Ring | None = None) -> Tensor:
        """(B, T, D) to (B, T, k·D)."""
        if ring is None:
            seen = [delayed(x, n, stretch.segments) for n in self.distances]
            return torch.cat(seen, dim=-1)
        start, width, size = stretch.start, x.size(1), ring.past.size(1)
        if width == 1:
            far = [ring.read(start - n) for n in self.distances[:-1]]  # (B, D) each
            ring.write(start, x[:, 0])
            return torch.cat([*far, x[:, 0]], dim=-1)[:, None]
        known = torch.cat([ring.last(start), x], dim=1)  # (B, R + T, D)
        seen = [known[:, size - n : size - n + width] for n in self.distances]
        if stretch.lengths is None:
            ring.refill(start + width, known[:, width:])
        else:
            kept = stretch.lengths[:, None] + torch.arange(size, device=x.device)  # (B, R)
            kept = kept[..., None].expand_as(ring.past)
            ring.refill(start + stretch.lengths, known.gather(1, kept))
        return torch.cat(seen, dim=-1)

    def new_state(self, batch: int, width: int, like: Tensor) -> Ring:
        """Memory of all that is looked back at, and of one vector more: a decoding step may be
        rehearsed, writing what it does not read.
        """
        return Ring(batch, self.distances[0] + 1, width, like)


def delayed(x: Tensor, distance: int, segments: Tensor | None) -> Tensor:
    """(B, T, D): at t the vector of t - distance, zeros where that lies in no or another record."""
    length = x.size(1)
    if not distance:
        return x
    if distance >= length:
        return torch.zeros_like(x)
    earlier = x[:, : length - distance]
    if segments is not None:
        same = segments[:, distance:] == segments[:, : length - distance]  # (B, T - distance)
        earlier = earlier * same[..., None]
    return F.pad(earlier, (0, 0, distance, 0))


class Gated(SwiGLU):
    """down(tanh(filter(x)) · sigmoid(gate(x))): WaveNet's activation unit, equation 2."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, k·D) to (B, T, D)."""
        gate, filtered = self.gate_up(x).chunk(2, dim=-1)  # (B, T, F) each
        return self.down(torch.tanh(filtered) * torch.sigmoid(gate))  # type: ignore[no-any-return]


class ConvolutionBlock(nn.Module):
    """x + narrow(bend(convolve(norm(x)))): one layer of a stack."""

    def __init__(
        self,
        name: str,
        d_model: int,
        d_ff: int,
        norm: nn.Module,
        past: PastWindow,
        *,
        dropout: float,
    ) -> None:
        super().__init__()
        self.norm, self.past, self.dropout = norm, past, dropout
        d_in = len(past.distances) * d_model
        if name == "gated":
            self.feedforward: nn.Module = Gated(d_model, d_ff, bias=False, d_in=d_in)
        else:
            self.feedforward = make_feedforward(name, d_model, d_ff, bias=False, d_in=d_in)

    def forward(self, x: Tensor, stretch: ConvolutionContext, ring: Ring | None = None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        seen = self.past(self.norm(x), stretch, ring)  # (B, T, k·D)
        return x + dropout(self.feedforward(seen), self.dropout, self.training)
