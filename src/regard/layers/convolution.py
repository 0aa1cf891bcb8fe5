"""Causal convolutions, short and as long as the sequence.

Short: a position and some before it, concatenated, through a linear map.

A convolution of kernel k and dilation d reads at position t the vectors of t - (k - 1)·d, …, t - d
and t. `PastWindow` concatenates them, so that the convolution is an ordinary linear layer. Dilated
and gated: WaveNet (van den Oord et al. 2016, arXiv:1609.03499, sections 2.1 and 2.3). Decoding
keeps the last inputs of each layer, so that a step costs the same at every dilation (Paine et al.
2016, arXiv:1611.09482). Before the first position of a record the input is zero.

Long: filters as long as the sequence, by the fast Fourier transform: O(T log T).

The transform turns circular convolution into a product. On a circle no longer than the sequence,
values that wrap around fall onto the result; the usual remedy is to double it with zeros. Here each
position t is multiplied by a complex weight instead, whose angle rises from 0 to a quarter turn at
the end of the circle. Values that wrap around have gained a quarter turn when the weights are
removed, so they are imaginary, and the result is real: they do not mix (the right-angle convolution
of Crandall & Fagin 1994, "Discrete weighted transforms and large-integer arithmetic"). Nothing is
padded, and the result is that of the T × T Toeplitz matrix of the filter.

`OnlineConvolution` computes the same while decoding, when inputs come one by one and each depends
on the outputs before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.cache import ALL, LayerState, Ring, RowBuffer
from regard.layers.feedforward import FEEDFORWARDS, SwiGLU, dropout, make_feedforward
from regard.layers.tap import Tap, tapped

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

    def forward(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        gate, filtered = self.gate_up(x).chunk(2, dim=-1)  # (B, T, F) each
        hidden = tapped(tap, "hidden", torch.tanh(filtered) * torch.sigmoid(gate))
        return self.down(hidden)  # type: ignore[no-any-return]


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


try:
    from regard.kernels.weighted_fft import apply_fft_weights, remove_fft_weights
except ImportError:  # without Triton
    apply_fft_weights = remove_fft_weights = None  # type: ignore[assignment, unused-ignore]

BLOCK = 32  # steps of decoding whose inputs are multiplied one by one; a power of two


def fast_size(length: int) -> int:
    """Return the smallest 2^a · 3^b · 5^c of at least `length`, which is fast to transform."""
    best = 1 << (length - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-length // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


def long_convolution(x: Tensor, filters: Tensor, ahead: Tensor | None = None) -> Tensor:
    """Convolve x (B, C, T) with the filters (C, T) of its channels: y[t] = Σ filters[t - s] · x[s]
    over s <= t, plus, with `ahead` (C, T), Σ ahead[s - t - 1] · x[s] over s > t. (B, C, T).

    The result has x's dtype. It is computed in that of the filters, fp32 or fp64: sums over T
    numbers need the precision.
    """
    return _Convolve.apply(x, filters, ahead)  # type: ignore[no-any-return, no-untyped-call]


class _Convolve(torch.autograd.Function):
    """The explicit gradient takes the same transforms, of one more signal, where autograd would
    compute some of them twice.

    An input m positions ahead is reached by going back m positions, or round the circle by all but
    m of them and back by a quarter turn: the filter of both directions is filters - i · ahead from
    the end.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, ahead: Tensor | None) -> Tensor:
        length = x.size(-1)
        weights = fft_weights(fast_size(length), filters)  # (S,)
        if ahead is not None:
            filters = F.pad(filters, (0, len(weights) - length))
            reversed_ahead = F.pad(ahead[:, : length - 1].flip(-1), (len(weights) - length + 1, 0))
            filters = torch.complex(filters, -reversed_ahead)
        spectrum = transform_rows(x, weights)  # (B, C, S)
        response = transform(filters, weights)  # (C, S)
        ctx.save_for_backward(spectrum, response)
        return invert_rows(multiply(spectrum, response), weights, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        spectrum, response = ctx.saved_tensors
        dy, length = gradients[0], gradients[0].size(-1)
        weights = fft_weights(spectrum.size(-1), response.real)
        upstream = transform_rows(dy, weights)
        dx = d_filters = d_ahead = None
        if ctx.needs_input_grad[0]:
            dx = invert_rows(multiply(upstream, response, conjugate=True), weights, dy)
        if any(ctx.needs_input_grad[1:]):
            product = multiply(upstream, spectrum, conjugate=True, sum_rows=True)
            real, imaginary = invert(product, weights)
            d_filters = real[..., :length]
            if ctx.needs_input_grad[2]:
                reversed_ahead = imaginary[..., len(weights) - length + 1 :]
                d_ahead = F.pad(-reversed_ahead.flip(-1), (0, 1))  # the last is never reached
        return dx, d_filters, d_ahead


def fft_weights(size: int, like: Tensor) -> Tensor:
    """Return complex weights (S,) on the unit circle, with angles up to a quarter turn."""
    angles = torch.arange(size, device=like.device, dtype=torch.float64) * (math.pi / (2 * size))
    return torch.complex(angles.cos().to(like.dtype), angles.sin().to(like.dtype))


def transform_rows(x: Tensor, weights: Tensor) -> Tensor:
    """Return the spectrum (B, C, S) of x (B, C, T)."""
    if apply_fft_weights is not None and x.is_cuda and weights.dtype == torch.complex64:
        weighted = apply_fft_weights(x, torch.view_as_real(weights))
        spectrum: Tensor = torch.fft.fft(torch.view_as_complex(weighted))
        return spectrum
    return transform(x.contiguous().to(weights.real.dtype), weights)


def invert_rows(spectrum: Tensor, weights: Tensor, like: Tensor) -> Tensor:
    """Return the real signal (B, C, T) with this spectrum, with the length and dtype of `like`."""
    length = like.size(-1)
    if remove_fft_weights is not None and like.is_cuda and weights.dtype == torch.complex64:
        z = torch.view_as_real(torch.fft.ifft(spectrum, norm="forward"))
        y: Tensor = remove_fft_weights(z, torch.view_as_real(weights), length, like.dtype)
        return y.mT
    return invert(spectrum, weights)[0][..., :length].to(like.dtype)


def transform(x: Tensor, weights: Tensor) -> Tensor:
    """Return the spectrum (..., S) of x (..., T), zero-padded and weighted."""
    padding = len(weights) - x.size(-1)
    x = F.pad(x, (0, padding)) if padding else x
    spectrum: Tensor = torch.fft.fft(multiply(x, weights))
    return spectrum


def invert(spectrum: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and imaginary parts of the signal with this spectrum (..., S)."""
    # the transform's division by S goes into the weights, which saves a pass
    z, weights = torch.fft.ifft(spectrum, norm="forward"), weights / len(weights)
    if not torch.compiler.is_compiling():
        z *= weights.conj()
        return z.real, z.imag
    (a, b), (cos, sin) = (torch.view_as_real(each).unbind(-1) for each in (z, weights))
    return a * cos + b * sin, b * cos - a * sin


def multiply(x: Tensor, y: Tensor, *, conjugate: bool = False, sum_rows: bool = False) -> Tensor:
    """Return x · y, or x times the conjugate of y, summed over rows where asked.

    Compilers copy complex numbers, which they do not support: for them, real arithmetic.
    """
    if not torch.compiler.is_compiling():
        product = x * (y.conj() if conjugate else y)
        return product.sum(0) if sum_rows else product
    c, d = torch.view_as_real(y).unbind(-1)
    if not x.is_complex():
        parts = [x * c, x * d]
    else:
        a, b = torch.view_as_real(x).unbind(-1)
        parts = [a * c + b * d, b * c - a * d] if conjugate else [a * c - b * d, b * c + a * d]
    if sum_rows:
        parts = [part.sum(0) for part in parts]
    return torch.view_as_complex(torch.stack(parts, dim=-1))


class OnlineConvolution(LayerState):
    """A causal long convolution whose inputs come one by one: its state while decoding.

    Rows end at the same column: shorter ones start later, after zeros, which do not change a
    convolution. The inputs of the current BLOCK are multiplied one by one. Whenever blocks are full
    up to a column whose number, counted from the last prompt, is divisible by U but not by 2U, one
    transform of size 2U adds their last U inputs to the next U outputs: every input meets every
    later output exactly once, and n steps cost O(n log² n) (van der Hoeven 2002; for decoding long
    convolutions, Oncescu et al. 2024, "Flash Inference", arXiv:2410.12982). What a prompt adds to
    all later outputs is computed when it is read.

    A step always runs the same operations on the same memory; the work between steps is in `flush`,
    which knows the column without asking the device.
    """

    deferred: ClassVar[bool] = True

    def __init__(self, batch: int, filters: Tensor) -> None:
        """`filters` are (C, S), S the capacity."""
        channels, capacity = filters.shape
        self.filters, self.capacity = filters, capacity
        self.inputs = RowBuffer(filters.new_zeros(batch, channels, capacity), 0, 2)
        # what earlier inputs add to each output, by column
        self.partial = RowBuffer(filters.new_zeros(batch, channels, capacity), 0, 2)
        # of the current block: its inputs, and its part of `partial`
        self.block_inputs = RowBuffer(filters.new_zeros(BLOCK, batch, channels), 1)
        self.block_partial = RowBuffer(filters.new_zeros(BLOCK, batch, channels), 1)
        self.prompt_lengths = RowBuffer(
            torch.zeros(batch, dtype=torch.int64, device=filters.device)
        )
        self.first = self.flushed = 0  # columns: where steps started, and up to which all is added
        recent = F.pad(filters[:, :BLOCK], (0, max(0, BLOCK - capacity)))
        self.recent = F.pad(recent.flip(-1), (0, BLOCK)).T.contiguous()  # (2·BLOCK, C) far to near
        self.within = torch.arange(BLOCK, device=filters.device)
        self.spectra: dict[int, Tensor] = {}

    @property
    def buffers(self) -> tuple[RowBuffer, ...]:
        blocks = self.block_inputs, self.block_partial
        return self.inputs, self.partial, *blocks, self.prompt_lengths

    def step(self, x: Tensor, position: int | Tensor, column: int) -> Tensor:
        """Add one input (B, C) and return its output (B, C).

        All rows are at `column`, which is not used where positions are a tensor (B, 1), so that the
        step can be recorded.
        """
        inputs, partial = self.block_inputs.tensor, self.block_partial.tensor
        if isinstance(position, int):
            phase = (column - self.first) % BLOCK
            inputs[phase] = x
            filters = self.recent[BLOCK - 1 - phase : 2 * BLOCK - 1 - phase]
            earlier = partial[phase]
        else:
            index = (position[0] - self.prompt_lengths.tensor[:1]) % BLOCK  # (1,) for all rows
            inputs[index] = x[None]
            filters = self.recent[self.within + (BLOCK - 1 - index)]  # (BLOCK, C)
            earlier = partial[index][0]  # (B, C)
        return earlier + (inputs * filters[:, None]).sum(0)  # later inputs meet a filter of 0

    def flush(self, column: int) -> None:
        """Add the inputs of full blocks to the outputs after them."""
        while column - self.flushed >= BLOCK:
            inputs, partial, end = self.inputs.tensor, self.partial.tensor, self.flushed + BLOCK
            inputs[:, :, self.flushed : end] = self.block_inputs.tensor.permute(1, 2, 0)
            self.flushed = end
            width = (end - self.first) & (self.first - end)  # the largest power of 2 that divides
            n = min(width, self.capacity - end)
            if n > 0:
                spectrum = torch.fft.rfft(inputs[:, :, end - width : end], 2 * width)
                spectrum = spectrum * self.response(width)
                partial[:, :, end : end + n] += torch.fft.irfft(spectrum)[..., width : width + n]
                self._load_block()

    def response(self, width: int) -> Tensor:
        """Return the spectrum (C, width + 1) of the filters up to a distance of 2·width."""
        if width not in self.spectra:
            self.spectra[width] = torch.fft.rfft(self.filters[:, : 2 * width], 2 * width)
        return self.spectra[width]

    def _load_block(self) -> None:
        columns = slice(self.flushed, self.flushed + BLOCK)
        partial = self.partial.tensor[:, :, columns].permute(2, 0, 1)
        self.block_partial.tensor[: len(partial)] = partial

    def read(
        self, x: Tensor, lengths: Tensor | None, start: int | Tensor, column: int, end: int
    ) -> Tensor:
        """Read a prompt (B, C, T) and return its outputs (B, C, T).

        Row b reads its first lengths[b] inputs, or all, after `start` earlier ones. All rows end at
        `column` before the call and at `end` after it.
        """
        inputs, (_, channels, width) = self.inputs.tensor, x.shape
        unfinished = self.block_inputs.tensor[: column - self.flushed]
        inputs[:, :, self.flushed : column] = unfinished.permute(1, 2, 0)
        known = torch.cat((inputs[:, :, :column], x.to(inputs.dtype)), dim=-1)  # (B, C, column + T)
        outputs = torch.arange(column, column + width, device=x.device).expand(len(x), -1)  # of x
        if lengths is not None:
            shift = end - column - lengths[:, None]  # (B, 1): rows move right to end together
            source = torch.arange(end, device=x.device) - shift  # (B, end) columns in `known`
            index = source.clamp_min(0)[:, None].expand(-1, channels, -1)
            known = known.gather(-1, index) * (source >= 0)[:, None]
            outputs = (outputs + shift).clamp_max(self.capacity - 1)
        inputs.zero_()[:, :, :end] = known
        self.partial.tensor.copy_(long_convolution(inputs, self.filters))
        self.first = self.flushed = end
        read = start + (width if lengths is None else lengths)
        self.prompt_lengths.tensor.copy_(torch.as_tensor(read))
        self._load_block()
        return self.partial.tensor.gather(-1, outputs[:, None].expand(-1, channels, -1))

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        """Rows that differ from a position on have inputs that differ from that column or a later
        one. If they share a prompt, `partial` differs as far as later inputs were added.
        """
        start = columns.start or 0
        for buffer in (self.block_inputs, self.block_partial, self.prompt_lengths):
            buffer.select(parents)
        self.inputs.select(parents, slice(start, None))
        end = 2 * self.flushed - self.first if start >= self.first else None
        self.partial.select(parents, slice(self.flushed if start else 0, end))

    def expand(self, width: int) -> None:
        for buffer in self.buffers:
            buffer.expand(width)

    def reset(self) -> None:
        for buffer in self.buffers:
            buffer.reset()
        self.first = self.flushed = 0
