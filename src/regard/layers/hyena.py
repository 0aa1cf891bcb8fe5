"""Hyena: long convolutions and gates instead of attention.

Poli et al. 2023 (arXiv:2302.10866). x is projected onto N + 1 streams, each smoothed by a short
filter. Starting with the last, a stream is multiplied by the next, value by value, and convolved
with filters as long as the sequence; the first stream multiplies the result. The gates make the
operator depend on the data as attention does: it is a product of diagonal and Toeplitz matrices,
none of which is ever formed. A small network of sines computes the long filters from the distance,
times a window that decays at a different rate in every channel: the number of parameters does not
depend on the length.

As in the authors' code, the innermost of N filters is the short one alone, so order N has N - 1
long convolutions. Ours differs in the initial filters. Theirs are functions of the distance in
units of the context, from sines so steep that they start as noise; ours are smooth functions of its
logarithm, fine for small distances and coarse for large ones. The decay rates of windows are a
constant factor apart, from a few positions to the whole context, and windows have unit energy, so
that initially outputs are as large as inputs at every length. Sequences may exceed `max_len`.
Encoders have filters for both directions (`causal=False`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers import Layer, Mixer
from regard.layers.attention import AttentionContext
from regard.layers.cache import ALL, LayerState, Ring
from regard.layers.convolution import (
    ConvolutionContext,
    OnlineConvolution,
    PastWindow,
    long_convolution,
)
from regard.layers.tap import Tap, tapped

SHORT = 3  # positions of the short filter; this and the next as in the authors' language model
BANDS = 16  # waves of the logarithm of a distance, of 0 to 15 turns up to max_len
WIDTH = 64  # of the network that computes filters
FREQUENCY = 2.0  # initial factor of the arguments of its sines
FASTEST, SLOWEST = 5, 1.5  # windows decay within 5 positions, or within 1.5 · max_len,
DECAYED = 1e-2  # to this value


class Filters(Layer):
    """Filters (C, T) as functions of the distance, for any T: a network of sines times windows,
    plus a factor for the position itself.
    """

    def __init__(self, channels: int, d_model: int, max_len: int) -> None:
        """The same windows repeat every `d_model` channels."""
        super().__init__()
        self.d_model, self.max_len = d_model, max_len
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(WIDTH, width)) for width in (1 + 2 * BANDS, WIDTH, WIDTH)
        )
        self.biases = nn.Parameter(torch.empty(len(self.weights), WIDTH))
        self.frequency = nn.Parameter(torch.empty(len(self.weights), WIDTH))
        self.out = nn.Parameter(torch.empty(channels, WIDTH))
        self.skip = nn.Parameter(torch.empty(channels))

    def undecayed_parameters(self) -> Iterable[Tensor]:
        return self.parameters()  # functions of the distance, not of the data

    def reset(self) -> None:
        """Set initial values: uniform, ± 1 / sqrt(fan in), as in torch's layers; the frequency; and
        a normal factor for the position itself.
        """
        for weight in (*self.weights, self.out):
            nn.init.uniform_(weight, -(weight.size(1) ** -0.5), weight.size(1) ** -0.5)
        nn.init.uniform_(self.biases, -(WIDTH**-0.5), WIDTH**-0.5)
        nn.init.constant_(self.frequency, FREQUENCY)
        nn.init.normal_(self.skip)

    def forward(self, length: int) -> Tensor:
        """Return (C, T), in single precision at least, whatever the precision of the weights.

        The network runs in double precision: three nested sines amplify the rounding of single
        precision, which depends on how many values are computed at once.
        """
        dtype, double = torch.promote_types(self.out.dtype, torch.float32), torch.float64
        with torch.autocast(self.out.device.type, enabled=False):
            t = torch.arange(length, device=self.out.device, dtype=double)
            turns = torch.linspace(1e-4, BANDS - 1, BANDS, device=t.device, dtype=double)
            log_distance = t.log1p()[:, None] / math.log1p(self.max_len)
            angles = log_distance * (turns * (2 * math.pi))  # (T, BANDS)
            x = torch.cat((log_distance, angles.cos(), angles.sin()), dim=-1)
            for weight, bias, frequency in zip(
                self.weights, self.biases.to(double), self.frequency.to(double), strict=True
            ):
                x = torch.sin(frequency * F.linear(x, weight.to(double), bias))  # (T, WIDTH)
            filters = F.linear(self.out.to(dtype), x.to(dtype)) * self.windows(t.to(dtype))
            first = filters[:, :1] + self.skip.to(dtype)[:, None]
            return torch.cat((first, filters[:, 1:]), dim=-1)

    def windows(self, t: Tensor) -> Tensor:
        """Return exp(-rate · t), (C, T), slow to fast, each with unit energy over all t from 0."""
        longest = SLOWEST * self.max_len
        exponents = torch.linspace(0, 1, self.d_model, device=t.device, dtype=t.dtype)
        rates = -math.log(DECAYED) / longest * max(1.0, longest / FASTEST) ** exponents
        rates = rates.repeat(len(self.out) // self.d_model)[:, None]  # (C, 1)
        return torch.exp(-rates * t) * torch.expm1(-2 * rates).neg().sqrt()


class HyenaState(LayerState):
    """The last inputs of the short filter, and the states of the long convolutions."""

    deferred: ClassVar[bool] = True

    def __init__(self, ring: Ring, long: list[OnlineConvolution]) -> None:
        self.ring, self.long = ring, long
        self.parts: list[LayerState] = [ring, *long]

    def flush(self, column: int) -> None:
        for convolution in self.long:
            convolution.flush(column)

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        for part in self.parts:
            part.select(parents, columns)

    def expand(self, width: int) -> None:
        for part in self.parts:
            part.expand(width)

    def reset(self) -> None:
        for part in self.parts:
            part.reset()


class Hyena(Mixer):
    """The Hyena operator of order N as a mixer."""

    uses_longest, extrapolates = True, True
    exactly_causal = False  # a Fourier transform mixes all positions, which cancel to rounding

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

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> Self:
        return cls(
            config.d_model,
            order=config.order,
            max_len=config.max_len,
            bias=config.bias,
            causal=causal,
        )

    def fused_weights(self) -> dict[Tensor, tuple[int, ...]]:
        return {self.streams.weight: (self.d_model,) * (self.order + 1)}

    def undecayed_parameters(self) -> Iterable[Tensor]:
        return (self.short,)

    def reset(self) -> None:
        """Set initial values of all filters; the short ones start close to the identity."""
        nn.init.normal_(self.short, std=0.3 * SHORT**-0.5)
        with torch.no_grad():
            self.short[-1 if self.causal else SHORT // 2] += 1
        self.filters.reset()
        if self.ahead is not None:
            self.ahead.reset()

    def forward(
        self,
        x: Tensor,
        context: AttentionContext,
        state: HyenaState | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D); with a state, for positions after those it has read."""
        u = self.streams(x)  # (B, T, (N+1)·D)
        valid = None if self.causal or context.valid is None else context.valid[..., None]
        if valid is not None:
            u = u * valid  # padding must be zero for filters that look ahead
        u = self.smooth(u, context, state)
        if valid is not None:
            u = u * valid
        gates, v = u.split((self.order * self.d_model, self.d_model), dim=-1)
        gates, v = tapped(tap, "gates", gates), tapped(tap, "values", v)
        streams = *gates.chunk(self.order, dim=-1), v  # (B, T, D) each
        if state is None:
            mixed = self.mix(v, streams)
        elif x.size(1) == 1 and context.lengths is None:
            for gate, long in zip(streams[-2:0:-1], state.long, strict=True):
                u = (v * gate)[:, 0].to(long.filters.dtype)
                v = long.step(u, context.slots, context.longest)[:, None].to(x.dtype)
            mixed = v * streams[0]
        else:
            for gate, long in zip(streams[-2:0:-1], state.long, strict=True):
                v = long.read(
                    (v * gate).mT,
                    context.lengths,
                    context.start,
                    context.longest,
                    context.longest_after,
                ).mT
            mixed = v * streams[0]
        return self.out(mixed.to(x.dtype))  # type: ignore[no-any-return]

    def smooth(self, u: Tensor, context: AttentionContext, state: HyenaState | None) -> Tensor:
        """Apply the short filters to each position and those before it, or around it."""
        weight, length = self.short.to(u.dtype), u.size(1)
        if state is not None:
            past = ConvolutionContext(None, context.start, context.lengths)
            window = self.past(u, past, state.ring)
            products: Tensor = window.unflatten(-1, (SHORT, -1)) * weight  # (B, T, 3, (N+1)·D)
            return products.sum(-2)
        before = SHORT - 1 if self.causal else SHORT // 2
        padded = F.pad(u, (0, 0, before, SHORT - 1 - before))
        y = padded[:, :length] * weight[0]
        for n in range(1, SHORT):
            y = torch.addcmul(y, padded[:, n : n + length], weight[n])
        return y

    def mix(self, v: Tensor, streams: tuple[Tensor, ...]) -> Tensor:
        """Apply all gates and long convolutions to complete sequences: (B, T, D)."""
        length = v.size(1)
        filters = self.filters(length).chunk(self.order - 1)  # (D, T) each
        ahead = None if self.ahead is None else self.ahead(length).chunk(self.order - 1)
        for n, gate in enumerate(streams[-2:0:-1]):
            later = None if ahead is None else ahead[n]
            v = long_convolution((v * gate).mT, filters[n], later).mT  # (B, T, D)
        return v * streams[0]

    def new_state(self, batch: int, capacity: int, like: Tensor) -> HyenaState:
        if not self.causal:
            raise ValueError("a bidirectional Hyena has no state: it cannot decode")
        with torch.no_grad():
            filters = self.filters(capacity).chunk(self.order - 1)  # computed once
        ring = self.past.new_state(batch, self.streams.out_features, like)
        return HyenaState(ring, [OnlineConvolution(batch, f.contiguous()) for f in filters])
