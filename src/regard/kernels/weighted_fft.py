"""Turning and turning back for long convolutions as two Triton kernels.

A projection leaves channels beside each other in memory, a transform wants positions beside each
other, and complex numbers. Both changes at once take a tile of channels by positions through shared
memory: each number is read once and written once. What a compiler makes of the same steps reads or
writes across memory and takes five times as long (benchmarks/gpu_hyena.py). The same in plain
PyTorch is in long_convolution.py, the oracle.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS, PLACES = 32, 64  # of a tile


@triton.jit
def _turn(x, turn, z, channels, length, size, by_row, by_channel, by_place,
          C: tl.constexpr, T: tl.constexpr):  # fmt: skip
    first, row = tl.program_id(0) * T, tl.program_id(2).to(tl.int64)
    c, t = tl.program_id(1) * C + tl.arange(0, C), first + tl.arange(0, T)
    here = (c < channels)[:, None] & (t < length)[None, :]
    place = row * by_row + c[:, None] * by_channel + t[None, :].to(tl.int64) * by_place
    value = tl.load(x + place, mask=here, other=0.0).to(tl.float32)  # (C, T)
    cos = tl.load(turn + 2 * t, mask=t < size, other=0.0)
    sin = tl.load(turn + 2 * t + 1, mask=t < size, other=0.0)
    pairs = tl.interleave(value * cos[None, :], value * sin[None, :])  # (C, 2T)
    at = 2 * first + tl.arange(0, 2 * T)
    inside = (c < channels)[:, None] & (at < 2 * size)[None, :]
    tl.store(z + (row * channels + c)[:, None] * (2 * size) + at[None, :], pairs, mask=inside)


@triton.jit
def _turn_back(z, turn, y, channels, length, size, C: tl.constexpr, T: tl.constexpr):
    first, row = tl.program_id(0) * T, tl.program_id(2).to(tl.int64)
    c, t = tl.program_id(1) * C + tl.arange(0, C), first + tl.arange(0, T)
    at = 2 * first + tl.arange(0, 2 * T)
    inside = (c < channels)[:, None] & (at < 2 * size)[None, :]
    pairs = tl.load(
        z + (row * channels + c)[:, None] * (2 * size) + at[None, :], mask=inside, other=0.0
    )  # (C, 2T)
    real, imaginary = tl.split(tl.reshape(pairs, (C, T, 2)))
    cos = tl.load(turn + 2 * t, mask=t < size, other=0.0) / size
    sin = tl.load(turn + 2 * t + 1, mask=t < size, other=0.0) / size
    value = real * cos[None, :] + imaginary * sin[None, :]  # (C, T)
    here = (c < channels)[:, None] & (t < length)[None, :]
    place = (row * length + t)[None, :] * channels + c[:, None]
    tl.store(y + place, value.to(y.dtype.element_ty), mask=here)


def _grid(places: int, channels: int, rows: int) -> tuple[int, int, int]:
    return triton.cdiv(places, PLACES), triton.cdiv(channels, CHANNELS), rows


@torch.library.custom_op("regard::turn", mutates_args=())
def weighted_fft(x: Tensor, turn: Tensor) -> Tensor:
    """x (B, C, T) of any strides, filled up with zeros, times the complex numbers of `turn` (S, 2):
    (B, C, S, 2) in single precision.
    """
    rows, channels, length = x.shape
    z = x.new_empty(rows, channels, len(turn), 2, dtype=torch.float32)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _turn[_grid(len(turn), channels, rows)](
            x, turn, z, channels, length, len(turn), *x.stride(), CHANNELS, PLACES
        )
    return z


@weighted_fft.register_fake
def _(x: Tensor, turn: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], len(turn), 2, dtype=torch.float32)


@torch.library.custom_op("regard::turn_back", mutates_args=())
def weighted_ifft(z: Tensor, turn: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The real part of the first `length` of z (B, C, S, 2), divided by S and turned back:
    (B, T, C).
    """
    rows, channels, size, _ = z.shape
    y = z.new_empty(rows, length, channels, dtype=dtype)
    with torch.cuda.device_of(z):
        _turn_back[_grid(length, channels, rows)](
            z, turn, y, channels, length, size, CHANNELS, PLACES
        )
    return y


@weighted_ifft.register_fake
def _(z: Tensor, turn: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    rows, channels, _, _ = z.shape
    return z.new_empty(rows, length, channels, dtype=dtype)
