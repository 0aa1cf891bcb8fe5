"""Bias and activation as two Triton kernels: act(x + bias), and the gradients of x and bias.

A compiler recomputes the activation in the backward pass and sums the gradient of the bias in a
separate pass. Here one pass over the gradient gives both: each program handles some columns of some
rows and stores their partial sum. The PyTorch twin is `layers/feedforward.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

KINDS = ("relu", "gelu", "gelu_exact", "relu2")
ROWS, COLUMNS = 16, 128  # of a tile
PROGRAMS = 2048  # about as many as fill a large GPU a few times


@triton.jit
def _activate(x, KIND: tl.constexpr):
    """act(x) and its derivative."""
    if KIND == 0:  # ReLU
        return tl.maximum(x, 0.0), tl.where(x > 0, 1.0, 0.0)
    elif KIND == 1:  # GELU by tanh, written as a sigmoid of twice the argument
        gate = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        inner = 1.5957691216057308 * (1 + 0.134145 * x * x)
        return x * gate, gate + x * gate * (1 - gate) * inner
    elif KIND == 2:  # GELU
        gate = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
        return x * gate, gate + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    else:  # ReLU²
        positive = tl.maximum(x, 0.0)
        return positive * positive, 2 * positive


@triton.jit
def _forward(x, bias, y, width, KIND: tl.constexpr, C: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    inside = c < width
    added = tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + row * width + c, mask=inside, other=0.0).to(tl.float32) + added
    result, _ = _activate(value, KIND)
    tl.store(y + row * width + c, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(dy, x, bias, dx, sums, n_rows, width, steps,
              KIND: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
    c = tl.program_id(0) * C + tl.arange(0, C)
    added = tl.load(bias + c, mask=c < width, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros((R, C), tl.float32)
    for step in range(steps):
        r = (step * tl.num_programs(1) + tl.program_id(1)) * R + tl.arange(0, R)
        inside = (r < n_rows)[:, None] & (c < width)[None, :]
        at = r[:, None].to(tl.int64) * width + c[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + added
        upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        _, slope = _activate(value, KIND)
        gradient = upstream * slope
        total += gradient  # outside the tensor the upstream gradient was loaded as 0
        tl.store(dx + at, gradient.to(dx.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(1) * width + c, tl.sum(total, 0), mask=c < width)


@torch.library.custom_op("regard::bias_activation", mutates_args=())
def bias_activation(x: Tensor, bias: Tensor, kind: int) -> Tensor:
    """Return act(x + bias) of contiguous x (N, F) and bias (F,); `kind` is an index into KINDS."""
    y, columns = torch.empty_like(x), min(1024, triton.next_power_of_2(x.size(1)))
    with torch.cuda.device_of(x):  # Triton launches on the current device
        grid = len(x), triton.cdiv(x.size(1), columns)
        _forward[grid](x, bias, y, x.size(1), kind, columns, num_warps=4)
    return y


@torch.library.custom_op("regard::bias_activation_backward", mutates_args=())
def bias_activation_backward(
    dy: Tensor, x: Tensor, bias: Tensor, kind: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and, in single precision, of the bias."""
    (rows, width), dx = x.shape, torch.empty_like(x)
    across = triton.cdiv(width, COLUMNS)
    tiles = triton.cdiv(rows, ROWS)
    down = min(tiles, triton.cdiv(PROGRAMS, across))
    sums = x.new_empty(down, width, dtype=torch.float32)
    with torch.cuda.device_of(x):
        _backward[across, down](
            dy.contiguous(), x, bias, dx, sums, rows, width, triton.cdiv(tiles, down),
            kind, ROWS, COLUMNS, num_warps=4,
        )  # fmt: skip
    return dx, sums.sum(0)


@bias_activation.register_fake
def _(x: Tensor, bias: Tensor, kind: int) -> Tensor:
    return torch.empty_like(x)


@bias_activation_backward.register_fake
def _(dy: Tensor, x: Tensor, bias: Tensor, kind: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.size(1), dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, ctx.kind = inputs
    ctx.save_for_backward(x, bias)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, bias = ctx.saved_tensors
    dx, sums = bias_activation_backward(dy, x, bias, ctx.kind)
    return dx, sums.to(bias.dtype), None


bias_activation.register_autograd(_gradient, setup_context=_setup_context)
