"""The weights of a discrete weighted transform, applied and removed, as two Triton kernels.

Long convolutions multiply position t by a complex weight before the Fourier transform and by its
conjugate afterwards (`layers/convolution.py`, the PyTorch twin). A projection stores channels
next to each other, a transform wants positions next to each other, and complex numbers. Both
changes together move a tile of channels by positions through shared memory: each number is read
once and written once. The code that a compiler generates accesses memory with a stride and takes
five times as long (benchmarks/gpu_hyena.py).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS, POSITIONS = 32, 64  # of a tile


@triton.jit
def _apply(x, weights, z, channels, length, size, stride_b, stride_c, stride_t,
           C: tl.constexpr, T: tl.constexpr):  # fmt: skip
    first, row = tl.program_id(0) * T, tl.program_id(2).to(tl.int64)
    c, t = tl.program_id(1) * C + tl.arange(0, C), first + tl.arange(0, T)
    inside = (c < channels)[:, None] & (t < length)[None, :]
    at = row * stride_b + c[:, None] * stride_c + t[None, :].to(tl.int64) * stride_t
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)  # (C, T)
    cos = tl.load(weights + 2 * t, mask=t < size, other=0.0)
    sin = tl.load(weights + 2 * t + 1, mask=t < size, other=0.0)
    pairs = tl.interleave(value * cos[None, :], value * sin[None, :])  # (C, 2T)
    k = 2 * first + tl.arange(0, 2 * T)
    inside = (c < channels)[:, None] & (k < 2 * size)[None, :]
    tl.store(z + (row * channels + c)[:, None] * (2 * size) + k[None, :], pairs, mask=inside)


@triton.jit
def _remove(z, weights, y, channels, length, size, C: tl.constexpr, T: tl.constexpr):
    first, row = tl.program_id(0) * T, tl.program_id(2).to(tl.int64)
    c, t = tl.program_id(1) * C + tl.arange(0, C), first + tl.arange(0, T)
    k = 2 * first + tl.arange(0, 2 * T)
    inside = (c < channels)[:, None] & (k < 2 * size)[None, :]
    at = (row * channels + c)[:, None] * (2 * size) + k[None, :]
    pairs = tl.load(z + at, mask=inside, other=0.0)  # (C, 2T)
    real, imaginary = tl.split(tl.reshape(pairs, (C, T, 2)))
    cos = tl.load(weights + 2 * t, mask=t < size, other=0.0) / size
    sin = tl.load(weights + 2 * t + 1, mask=t < size, other=0.0) / size
    value = real * cos[None, :] + imaginary * sin[None, :]  # (C, T)
    inside = (c < channels)[:, None] & (t < length)[None, :]
    at = (row * length + t)[None, :] * channels + c[:, None]
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


def _grid(positions: int, channels: int, rows: int) -> tuple[int, int, int]:
    return triton.cdiv(positions, POSITIONS), triton.cdiv(channels, CHANNELS), rows


@torch.library.custom_op("regard::apply_fft_weights", mutates_args=())
def apply_fft_weights(x: Tensor, weights: Tensor) -> Tensor:
    """Return x (B, C, T) of any strides, zero-padded to S, times the complex weights (S, 2):
    (B, C, S, 2) in single precision.
    """
    rows, channels, length = x.shape
    z = x.new_empty(rows, channels, len(weights), 2, dtype=torch.float32)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _apply[_grid(len(weights), channels, rows)](
            x, weights, z, channels, length, len(weights), *x.stride(), CHANNELS, POSITIONS
        )
    return z


@apply_fft_weights.register_fake
def _(x: Tensor, weights: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], len(weights), 2, dtype=torch.float32)


@torch.library.custom_op("regard::remove_fft_weights", mutates_args=())
def remove_fft_weights(z: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Return the real part of the first `length` positions of z (B, C, S, 2), divided by S and
    multiplied by the conjugate weights: (B, T, C).
    """
    rows, channels, size, _ = z.shape
    y = z.new_empty(rows, length, channels, dtype=dtype)
    with torch.cuda.device_of(z):
        _remove[_grid(length, channels, rows)](
            z, weights, y, channels, length, size, CHANNELS, POSITIONS
        )
    return y


@remove_fft_weights.register_fake
def _(z: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    rows, channels, _, _ = z.shape
    return z.new_empty(rows, length, channels, dtype=dtype)
