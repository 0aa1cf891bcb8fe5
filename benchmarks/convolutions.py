"""Ways to compute a long causal convolution, to be chosen between by measurement.

All take x (B, C, T) and filters (C, T) and give what `regard.layers.convolution` gives:

    turned    the library's: complex transforms of size T, every place turned by an angle
    padded    real transforms of size 2T, zeros behind the sequence
    strided   real transforms along T of (B, T, C) as projections leave it: no transposed copies
    half      as padded, transforms and what is kept in fp16, scaled so that nothing is lost at the
              ends of its range; for sizes that are powers of two, on a GPU
    paired    two rows of the batch, or two channels, as one complex transform
    monarch   the transform as products of small dense matrices in half precision, on tensor cores
              (Fu et al. 2023, "FlashFFTConv", arXiv:2311.05908), without their fused kernel
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.convolution import long_convolution

Convolve = Callable[..., Tensor]


def turned(x: Tensor, filters: Tensor, ahead: Tensor | None = None) -> Tensor:
    """See above."""
    return long_convolution(x, filters, ahead)


class Strided(torch.autograd.Function):
    """Transforms along T, whatever the memory's order: x (B, T, C), filters (T, C)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, size: int) -> Tensor:
        waves, answer = torch.fft.rfft(x, size, dim=1), torch.fft.rfft(filters, size, dim=0)
        ctx.save_for_backward(waves, answer)
        ctx.size, ctx.length = size, x.size(1)
        return torch.fft.irfft(waves * answer, size, dim=1)[:, : x.size(1)]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        waves, answer = ctx.saved_tensors
        dy = torch.fft.rfft(gradients[0], ctx.size, dim=1)
        dx = torch.fft.irfft(dy * answer.conj(), ctx.size, dim=1)[:, : ctx.length]
        dh = torch.fft.irfft((dy * waves.conj()).sum(0), ctx.size, dim=0)[: ctx.length]
        return dx, dh, None


def strided(x: Tensor, filters: Tensor) -> Tensor:
    """See above."""
    turned = x.mT.to(filters.dtype)  # (B, T, C), which is how it lies in memory
    return Strided.apply(turned, filters.mT.contiguous(), 2 * x.size(-1)).mT  # type: ignore[no-any-return, no-untyped-call]


def times(a: Tensor, b: Tensor, conjugate: bool = False) -> Tensor:
    """a · b, or a times the conjugate of b, of (..., 2) numbers."""
    (ar, ai), (br, bi) = a.unbind(-1), b.unbind(-1)
    if conjugate:
        bi = -bi
    return torch.stack((ar * br - ai * bi, ar * bi + ai * br), dim=-1)


class Padded(torch.autograd.Function):
    """Products are in real numbers, which a compiler can fuse."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, size: int) -> Tensor:
        waves = torch.view_as_real(torch.fft.rfft(x, size))
        answer = torch.view_as_real(torch.fft.rfft(filters, size))
        ctx.save_for_backward(waves, answer)
        ctx.size, ctx.length = size, x.size(-1)
        product = torch.view_as_complex(times(waves, answer))
        return torch.fft.irfft(product, size)[..., : x.size(-1)]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        waves, answer = ctx.saved_tensors
        dy = torch.view_as_real(torch.fft.rfft(gradients[0], ctx.size))
        dx = torch.view_as_complex(times(dy, answer, conjugate=True))
        dh = torch.view_as_complex(times(dy, waves, conjugate=True).sum(0))
        length = ctx.length
        return (
            torch.fft.irfft(dx, ctx.size)[..., :length],
            torch.fft.irfft(dh, ctx.size)[..., :length],
            None,
        )


def padded(x: Tensor, filters: Tensor) -> Tensor:
    """See above."""
    return Padded.apply(x.to(filters.dtype), filters, 2 * x.size(-1))  # type: ignore[no-any-return, no-untyped-call]


class Half(torch.autograd.Function):
    """Signals are transformed by orthogonal transforms, which leave their size; filters, whose
    energy is about 1, by plain ones. Gradients are in units of their largest.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, size: int) -> Tensor:
        short = torch.float16 if x.is_cuda else filters.dtype
        waves = torch.view_as_real(torch.fft.rfft(x.to(short), size, norm="ortho"))
        answer = torch.view_as_real(torch.fft.rfft(filters.to(short), size))
        ctx.save_for_backward(waves, answer)
        ctx.size, ctx.length, ctx.types = size, x.size(-1), (x.dtype, filters.dtype)
        product = times(waves.float(), answer.float()).to(short)
        y = torch.fft.irfft(torch.view_as_complex(product), size, norm="ortho")
        return y[..., : x.size(-1)].to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        waves, answer = ctx.saved_tensors
        g, size, length, short = gradients[0], ctx.size, ctx.length, waves.dtype
        largest = g.abs().amax().clamp_min(1e-30).float()
        dy = torch.view_as_real(torch.fft.rfft((g / largest).to(short), size, norm="ortho"))
        dx = times(dy.float(), answer.float(), conjugate=True).to(short)
        dh = times(dy.float(), waves.float(), conjugate=True).sum(0)
        top = dh.abs().amax().clamp_min(1e-30)
        back = torch.fft.irfft(torch.view_as_complex(dx), size, norm="ortho")[..., :length]
        gained = torch.view_as_complex((dh / top).to(short))
        filters = torch.fft.irfft(gained, size, norm="ortho")[..., :length].float()
        return (
            (back.float() * largest).to(ctx.types[0]),
            (filters * (largest * top * size**0.5)).to(ctx.types[1]),
            None,
        )


def half(x: Tensor, filters: Tensor) -> Tensor:
    """See above."""
    size = 1 << (2 * x.size(-1) - 1).bit_length()
    return Half.apply(x, filters, size)  # type: ignore[no-any-return, no-untyped-call]


class Paired(torch.autograd.Function):
    """x (2, N, C, T): rows of the first half as real parts, of the second as imaginary ones. They
    share their filters, which are real, so nothing has to be taken apart between the transforms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, size: int) -> Tensor:
        waves = torch.fft.fft(torch.complex(x[0], x[1]), size)  # (N, C, size)
        answer = torch.fft.fft(filters, size)
        ctx.save_for_backward(waves, answer)
        ctx.size, ctx.length = size, x.size(-1)
        y = torch.fft.ifft(waves * answer)[..., : x.size(-1)]
        return torch.stack((y.real, y.imag))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        waves, answer = ctx.saved_tensors
        g = gradients[0]
        dy = torch.fft.fft(torch.complex(g[0], g[1]), ctx.size)
        dx = torch.fft.ifft(dy * answer.conj())[..., : ctx.length]
        # Σ over rows of each part with its own: the real part of the product with the conjugate
        dh = torch.fft.ifft((dy * waves.conj()).sum(0)).real[..., : ctx.length]
        return torch.stack((dx.real, dx.imag)), dh, None


def paired(x: Tensor, filters: Tensor) -> Tensor:
    """See above; one row alone has nobody to be paired with and goes the library's way."""
    if len(x) % 2:
        return long_convolution(x, filters)
    two = x.to(filters.dtype).unflatten(0, (2, -1))
    y: Tensor = Paired.apply(two, filters, 2 * x.size(-1))  # type: ignore[no-untyped-call]
    return y.flatten(0, 1)


@cache
def table(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(2, n, n): the cosines and sines of the transform of n points."""
    at = torch.arange(size, device=device, dtype=torch.float64)
    angles = -2 * math.pi / size * (at[:, None] * at % size)
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


@cache
def twiddles(rows: int, columns: int, device: torch.device) -> Tensor:
    """(2, rows, columns): exp(-2πi · row · column / size)."""
    r, c = (torch.arange(n, device=device, dtype=torch.float64) for n in (rows, columns))
    angles = -2 * math.pi / (rows * columns) * (r[:, None] * c)
    return torch.stack((angles.cos(), angles.sin())).float()


def product(x: Tensor, matrix: Tensor, sign: float, left: bool) -> Tensor:
    """x (2, ..., R, C) complex, times a complex matrix from the left or the right."""
    re, im = matrix[0], sign * matrix[1]
    a, b = x[0], x[1]
    if left:
        return torch.stack((re @ a - im @ b, re @ b + im @ a))
    return torch.stack((a @ re - b @ im, b @ re + a @ im))


def staged(x: Tensor, columns: int, sign: float, dtype: torch.dtype) -> Tensor:
    """The transform of (2, ..., rows · columns) numbers in two stages, in the order that its
    inverse (sign = -1) takes: (2, ..., rows, columns), never put in order.
    """
    if sign > 0:
        x = x.unflatten(-1, (-1, columns)).to(dtype)
    rows = x.size(-2)
    first, second = (table(n, x.device, dtype) for n in (rows, columns))
    turn = twiddles(rows, columns, x.device)
    turn = torch.stack((turn[0], sign * turn[1]))
    if sign > 0:
        x = product(x, first, sign, left=True).float()
        x = times(x.movedim(0, -1), turn.movedim(0, -1)).movedim(-1, 0).to(dtype)
        return product(x, second, sign, left=False)
    x = product(x.to(dtype), second, sign, left=False).float()
    x = times(x.movedim(0, -1), turn.movedim(0, -1)).movedim(-1, 0).to(dtype)
    return product(x, first, sign, left=True).flatten(-2)


def monarch(x: Tensor, filters: Tensor) -> Tensor:
    """See above; by autograd, in bf16 on a GPU, in the filters' precision elsewhere."""
    length = x.size(-1)
    size = 1 << (2 * length - 1).bit_length()
    columns = 1 << (size.bit_length() - 1) // 2
    dtype = torch.bfloat16 if x.is_cuda else filters.dtype
    with torch.autocast(x.device.type, enabled=False):

        def transformed(y: Tensor) -> Tensor:
            y = F.pad(y.to(dtype), (0, size - length))
            return staged(torch.stack((y, torch.zeros_like(y))), columns, 1.0, dtype).float()

        waves, answer = transformed(x), transformed(filters)
        both = times(waves.movedim(0, -1), answer.movedim(0, -1)).movedim(-1, 0)
        return staged(both, columns, -1.0, dtype)[0][..., :length].float() / size


VARIANTS: dict[str, Convolve] = {
    "turned": turned,
    "padded": padded,
    "strided": strided,
    "half": half,
    "paired": paired,
    "monarch": monarch,
}
