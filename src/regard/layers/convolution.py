"""Causal convolution: a position and some before it, concatenated, through a linear map.

A convolution of kernel k and dilation d reads at position t the vectors of t - (k - 1)·d, …, t - d
and t. `PastWindow` concatenates them, so that the convolution is an ordinary linear layer. Dilated
and gated: WaveNet (van den Oord et al. 2016, arXiv:1609.03499, sections 2.1 and 2.3). Decoding
keeps the last inputs of each layer, so that a step costs the same at every dilation (Paine et al.
2016, arXiv:1611.09482). Before the first position of a record the input is zero.
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
    """The T positions of one call: their records, or what was read before them.

    `segments` (B, T) numbers the records of a row. With a state, `start` positions came before, an
    int for all rows or (B,), and row b has lengths[b] more, or T.
    """

    segments: Tensor | None = None
    start: int | Tensor = 0
    lengths: Tensor | None = None


class PastWindow(nn.Module):
    """The vector of each position and those before it at multiples of `dilation`, far to near."""

    def __init__(self, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.distances = [n * dilation for n in reversed(range(kernel))]

    def forward(self, x: Tensor, context: ConvolutionContext, ring: Ring | None = None) -> Tensor:
        """(B, T, D) to (B, T, k·D)."""
        if ring is None:
            vectors = [delay(x, n, context.segments) for n in self.distances]
            return torch.cat(vectors, dim=-1)
        start, width, size = context.start, x.size(1), ring.tensor.size(1)
        if width == 1:
            earlier = [ring.read(start - n) for n in self.distances[:-1]]  # (B, D) each
            ring.write(start, x[:, 0])
            return torch.cat([*earlier, x[:, 0]], dim=-1)[:, None]
        known = torch.cat([ring.last(start), x], dim=1)  # (B, R + T, D)
        vectors = [known[:, size - n : size - n + width] for n in self.distances]
        if context.lengths is None:
            ring.refill(start + width, known[:, width:])
        else:
            index = context.lengths[:, None] + torch.arange(size, device=x.device)  # (B, R)
            index = index[..., None].expand_as(ring.tensor)
            ring.refill(start + context.lengths, known.gather(1, index))
        return torch.cat(vectors, dim=-1)

    def new_state(self, batch: int, width: int, like: Tensor) -> Ring:
        """Return room for all earlier inputs and one more: recording a decoding step runs it once
        in advance, and what that run writes must not be read.
        """
        return Ring(batch, self.distances[0] + 1, width, like)


def delay(x: Tensor, distance: int, segments: Tensor | None) -> Tensor:
    """Return the vector of t - distance at each t, zeros outside the record: (B, T, D)."""
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
        gate, filtered = self.gate_up(x).chunk(2, dim=-1)  # (B, T, F) each
        return self.down(torch.tanh(filtered) * torch.sigmoid(gate))  # type: ignore[no-any-return]


class ConvolutionBlock(nn.Module):
    """x + down(activation(convolution(norm(x)))): one layer of a stack."""

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

    def forward(self, x: Tensor, context: ConvolutionContext, ring: Ring | None = None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        window = self.past(self.norm(x), context, ring)  # (B, T, k·D)
        return x + dropout(self.feedforward(window), self.dropout, self.training)
