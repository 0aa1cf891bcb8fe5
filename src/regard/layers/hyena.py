"""Hyena: long convolutions and gates in the place of attention.

Poli et al. 2023 (arXiv:2302.10866). x is projected onto N + 1 streams, each smoothed by a short
filter. Beginning with the last, a stream is multiplied by the next, value by value, and convolved
with filters as long as the sequence; the first multiplies the end. Multiplying is what makes the
whole depend on the data as attention does: it is a product of diagonal and Toeplitz matrices, none
of which is ever formed. The long filters are not stored but computed, by a small network of sines
from the distance, times a window that decays at another rate in every channel: their number of
parameters does not depend on the length, and any length may be asked for.

As in the authors' own code, of N filters the innermost is the short one alone, so order N has N - 1
long convolutions. Ours differs in what the filters begin as. Theirs are functions of the distance
in units of the context, from sines so steep that they begin as noise; ours are smooth functions of
its logarithm, fine nearby and coarse far away. Windows decay at rates a constant factor apart, from
some positions to the whole context, and have unit energy, so that at first outputs are as large as
inputs at every length. Sequences may exceed `max_len`. For encoders there are filters for both
sides (`causal=False`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, Tap
from regard.layers.cache import ALL, LayerState, Ring
from regard.layers.convolution import ConvolutionContext, PastWindow
from regard.layers.long_convolution import OnlineConvolution, long_convolution

SHORT = 3  # positions of the short filter; this and the next as in the authors' language model
BANDS = 16  # waves that tell the logarithm of a distance, of 0 to 15 turns up to max_len
WIDTH = 64  # of the network that computes filters
FREQUENCY = 2.0  # what its sines' arguments are multiplied by, at first
NEAR, FAR, LEFT = 5, 1.5, 1e-2  # windows decay to LEFT within 5 positions, or 1.5 · max_len


class Filters(nn.Module):
    """Filters (C, T) as functions of the distance, for any T: a network of sines times windows,
    plus a factor for the position itself.
    """

    def __init__(self, channels: int, d_model: int, max_len: int) -> None:
        """Of the channels, every `d_model` have the same windows."""
        super().__init__()
        self.d_model, self.max_len = d_model, max_len
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(WIDTH, width)) for width in (1 + 2 * BANDS, WIDTH, WIDTH)
        )
        self.biases = nn.Parameter(torch.empty(len(self.weights), WIDTH))
        self.frequency = nn.Parameter(torch.empty(len(self.weights), WIDTH))
        self.out = nn.Parameter(torch.empty(channels, WIDTH))
        self.skip = nn.Parameter(torch.empty(channels))

    def reset(self) -> None:
        """Initial values: uniform, ± 1 / sqrt(fan in), as torch's own layers; the frequency; and a
        factor that lets the position itself count.
        """
        for weight in (*self.weights, self.out):
            nn.init.uniform_(weight, -(weight.size(1) ** -0.5), weight.size(1) ** -0.5)
        nn.init.uniform_(self.biases, -(WIDTH**-0.5), WIDTH**-0.5)
        nn.init.constant_(self.frequency, FREQUENCY)
        nn.init.normal_(self.skip)

    def forward(self, length: int) -> Tensor:
        """(C, T), in single precision at least, whatever the weights are in.

        The network is computed in double: three sines of multiples of their arguments, one after
        the other, would make several times as much of single precision's rounding, which depends
        on how many are computed at once.
        """
        dtype, double = torch.promote_types(self.out.dtype, torch.float32), torch.float64
        with torch.autocast(self.out.device.type, enabled=False):
            t = torch.arange(length, device=self.out.device, dtype=double)
            turns = torch.linspace(1e-4, BANDS - 1, BANDS, device=t.device, dtype=double)
            far = t.log1p()[:, None] / math.log1p(self.max_len)
            angles = far * (turns * (2 * math.pi))  # (T, BANDS)
            x = torch.cat((far, angles.cos(), angles.sin()), dim=-1)
            for weight, bias, frequency in zip(
                self.weights, self.biases.to(double), self.frequency.to(double), strict=True
            ):
                x = torch.sin(frequency * F.linear(x, weight.to(double), bias))  # (T, WIDTH)
            filters = F.linear(self.out.to(dtype), x.to(dtype)) * self.windows(t.to(dtype))
            first = filters[:, :1] + self.skip.to(dtype)[:, None]
            return torch.cat((first, filters[:, 1:]), dim=-1)

    def windows(self, t: Tensor) -> Tensor:
        """(C, T): exp(-rate · t), slow to fast, each of unit energy over all t from 0."""
        longest = FAR * self.max_len
        shares = torch.linspace(0, 1, self.d_model, device=t.device, dtype=t.dtype)
        rates = -math.log(LEFT) / longest * max(1.0, longest / NEAR) ** shares
        rates = rates.repeat(len(self.out) // self.d_model)[:, None]  # (C, 1)
        return torch.exp(-rates * t) * torch.expm1(-2 * rates).neg().sqrt()


class HyenaState:
    """What a layer remembers while decoding: the last inputs of its short filter, and its long
    convolutions.
    """

    def __init__(self, ring: Ring, long: list[OnlineConvolution]) -> None:
        self.ring, self.long = ring, long
        self.parts: list[LayerState] = [ring, *long]

    def settle(self, column: int) -> None:
        """See Settling."""
        for one in self.long:
            one.settle(column)

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """See LayerState."""
        for part in self.parts:
            part.select(parents, places)

    def expand(self, width: int) -> None:
        """See LayerState."""
        for part in self.parts:
            part.expand(width)

    def reset(self) -> None:
        """See LayerState."""
        for part in self.parts:
            part.reset()


class Hyena(nn.Module):
    """The Hyena operator of order N as a mixer."""

    def __init__(
        self, d_model: int, *, order: int = 2, max_len: int, bias: bool = False, causal: bool = True
    ) -> None:
        super().__init__()
        self.order, self.causal, self.d_model = order, causal, d_model
        self.streams = nn.Linear(d_model, (order + 1) * d_model, bias=bias)
        self.short = nn.Parameter(torch.empty(SHORT, (order + 1) * d_model))
        self.out = nn.Linear(d_model, d_model, bias=bias)
        channels = (order - 1) * d_model
        self.filters = Filters(channels, d_model, max_len)
        self.ahead = None if causal else Filters(channels, d_model, max_len)
        self.past = PastWindow(SHORT)

    def reset(self) -> None:
        """Initial values of all filters: at first the short ones pass on what they are given, and
        some of what stands beside it.
        """
        nn.init.normal_(self.short, std=0.3 * SHORT**-0.5)
        with torch.no_grad():
            self.short[-1 if self.causal else SHORT // 2] += 1
        self.filters.reset()
        if self.ahead is not None:
            self.ahead.reset()

    def forward(
        self,
        x: Tensor,
        place: AttentionContext,
        state: HyenaState | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D); with a state, after all that it has read."""
        u = self.streams(x)  # (B, T, (N+1)·D)
        there = None if self.causal or place.there is None else place.there[..., None]
        if there is not None:
            u = u * there  # padding is what lies around a sequence: nothing
        u = self.smooth(u, place, state)
        if there is not None:
            u = u * there
        streams = u.chunk(self.order + 1, dim=-1)  # (B, T, D) each
        v = streams[-1]
        if state is None:
            mixed = self.whole(v, streams)
        elif x.size(1) == 1 and place.lengths is None:
            for gate, long in zip(streams[-2:0:-1], state.long, strict=True):
                y = long.step((v * gate)[:, 0].to(long.near.dtype), place.places, place.longest)
                v = y[:, None].to(x.dtype)
            mixed = v * streams[0]
        else:
            mixed = self.read(v, streams, place, state)
        return self.out(mixed.to(x.dtype))  # type: ignore[no-any-return]

    def smooth(self, u: Tensor, place: AttentionContext, state: HyenaState | None) -> Tensor:
        """The short filters: each position and those before it, or around it."""
        weight, length = self.short.to(u.dtype), u.size(1)
        if state is not None:
            start = place.places if isinstance(place.places, int) else place.places[:, 0]
            seen = self.past(u, ConvolutionContext(None, start, place.lengths), state.ring)
            each: Tensor = seen.unflatten(-1, (SHORT, -1)) * weight  # (B, T, SHORT, (N+1)·D)
            return each.sum(-2)
        before = SHORT - 1 if self.causal else SHORT // 2
        around = F.pad(u, (0, 0, before, SHORT - 1 - before))
        y = around[:, :length] * weight[0]
        for n in range(1, SHORT):
            y = torch.addcmul(y, around[:, n : n + length], weight[n])
        return y

    def whole(self, v: Tensor, streams: tuple[Tensor, ...]) -> Tensor:
        """All gates and convolutions over whole sequences: (B, T, D)."""
        length = v.size(1)
        filters = self.filters(length).chunk(self.order - 1)  # (D, T) each
        ahead = None if self.ahead is None else self.ahead(length).chunk(self.order - 1)
        for n, gate in enumerate(streams[-2:0:-1]):
            far = None if ahead is None else ahead[n]
            v = long_convolution((v * gate).mT, filters[n], far).mT  # (B, T, D)
        return v * streams[0]

    def read(
        self, v: Tensor, streams: tuple[Tensor, ...], place: AttentionContext, state: HyenaState
    ) -> Tensor:
        """The same for several tokens after those of the state."""
        seen = place.places if isinstance(place.places, int) else place.places[:, 0]
        for gate, long in zip(streams[-2:0:-1], state.long, strict=True):
            v = long.read((v * gate).mT, place.lengths, seen, place.longest, place.until).mT
        return v * streams[0]

    def new_state(self, batch: int, capacity: int, like: Tensor) -> HyenaState:
        """An empty memory for this layer; its long filters are computed once."""
        if not self.causal:
            raise ValueError("a Hyena that looks ahead has no state: it cannot decode")
        with torch.no_grad():
            filters = self.filters(capacity).chunk(self.order - 1)
        ring = self.past.new_state(batch, self.streams.out_features, like)
        return HyenaState(ring, [OnlineConvolution(batch, one.contiguous()) for one in filters])
