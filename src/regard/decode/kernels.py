"""A decoding step's operations as small Triton kernels, where PyTorch's own cost too much.

At one token per row nearly all of a step is reading weights and caches once. Here are products and
norms, `linear` being a matrix times one vector; what concerns caches is in `cache_kernels`. Each
function gets the arguments of the operation it stands in for, and returns None where that operation
should run itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.decode.cache_kernels import Attention, Choose, store
from regard.layers.state import State

aten = torch.ops.aten


@triton.jit
def _linear(
    x,
    w,
    bias,
    more,
    y,
    n_out,
    d,
    BIAS: tl.constexpr,
    GELU: tl.constexpr,
    ADD: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    rows = tl.program_id(0) * R + tl.arange(0, R)  # of w
    inside = rows < n_out
    total = tl.zeros((R, C), tl.float32)
    for first in range(0, d, C):
        columns = first + tl.arange(0, C)
        here = columns < d
        place = rows[:, None].to(tl.int64) * d + columns[None, :]
        part = tl.load(w + place, mask=inside[:, None] & here[None, :], other=0.0)
        vector = tl.load(x + columns, mask=here, other=0.0)
        total += part.to(tl.float32) * vector.to(tl.float32)[None, :]
    result = tl.sum(total, 1)
    if BIAS:
        result += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
    if GELU:  # by tanh: z · sigmoid(2u), u = sqrt(2 / pi) · (z + 0.044715 z³)
        u = 0.7978845608028654 * (result + 0.044715 * result * result * result)
        result = result / (1 + tl.exp(-2 * u))
    if ADD:
        result += tl.load(more + rows, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + rows, result.to(y.dtype.element_ty), mask=inside)


class Product:
    """x (..., D) times a matrix (O, D), waiting to see whether GELU or a sum comes next."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.x, self.weight, self.bias = x, weight, bias
        self.result = x.new_empty(*x.shape[:-1], len(weight))
        self.one = x.numel() == x.size(-1)  # a single row

    def joined(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """See Waiting."""
        if func is aten.gelu.default and args[0] is self.result:
            return self.run(gelu=True) if kwargs.get("approximate") == "tanh" else None
        if func is aten.add.Tensor and not kwargs and args[1] is self.result and self.one:
            more = args[0]
            alike = isinstance(more, Tensor) and more.shape == self.result.shape
            if alike and more.is_contiguous() and more.dtype == self.result.dtype:
                return self.run(more=more)
        return None

    def flush(self) -> None:
        """See Waiting."""
        self.run()

    def run(self, *, gelu: bool = False, more: Tensor | None = None) -> Tensor:
        """Compute into the result's memory."""
        n_out, d = self.weight.shape
        if not self.one:
            assert self.bias is not None
            rows = (self.bias, self.x.view(-1, d), self.weight.mT)
            out = self.result.view(-1, n_out)
            if gelu:
                aten._addmm_activation.out(*rows, use_gelu=True, out=out)
            else:
                torch.addmm(*rows, out=out)
            return self.result
        columns = min(4096, triton.next_power_of_2(d))
        per = max(1, 2048 // columns) if n_out < 16_384 else 4  # enough programs for the device
        given = [self.weight if t is None else t for t in (self.bias, more)]
        flags = (self.bias is not None, gelu, more is not None)
        _linear[(triton.cdiv(n_out, per),)](
            self.x, self.weight, *given, self.result, n_out, d, *flags, per, columns, num_warps=4
        )
        return self.result


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Product | Tensor | None:
    """x (..., D) times weight (O, D)."""
    n_out, d = weight.shape
    if not (x.is_contiguous() and weight.is_contiguous()):
        return None
    if x.numel() == d or bias is not None:
        return Product(x, weight, bias)
    odd = n_out % 8
    if not odd:
        return None
    # cuBLAS is six times slower where rows do not start at multiples of 16 bytes, or do not end so
    rows, even = x.view(-1, d), n_out - odd
    y = x.new_empty(len(rows), even + 8)
    torch.mm(rows, weight[:even].mT, out=y[:, :even])
    torch.mm(rows, weight[even:].mT, out=y[:, even:n_out])
    return y[:, :n_out].view(*x.shape[:-1], n_out)


@triton.jit
def _layer_norm(
    x, more, gain, bias, total, y, d, eps, ADD: tl.constexpr, BIAS: tl.constexpr, C: tl.constexpr
):
    row = tl.program_id(0)
    columns = tl.arange(0, C)
    here = columns < d
    value = tl.load(x + row * d + columns, mask=here, other=0.0)
    if ADD:
        value += tl.load(more + row * d + columns, mask=here, other=0.0)
        tl.store(total + row * d + columns, value, mask=here)
    value = value.to(tl.float32)
    centred = tl.where(here, value - tl.sum(value, 0) / d, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / d + eps)
    result = centred * scale * tl.load(gain + columns, mask=here, other=0.0).to(tl.float32)
    if BIAS:
        result += tl.load(bias + columns, mask=here, other=0.0).to(tl.float32)
    tl.store(y + row * d + columns, result.to(y.dtype.element_ty), mask=here)


class Sum:
    """x + y, waiting to see whether it is normalised next."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.result = x, y, torch.empty_like(x)

    def joined(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """See Waiting."""
        if func is aten.layer_norm.default and args[0] is self.result:
            return layer_norm(*args, **kwargs, parts=self)
        return None

    def flush(self) -> None:
        """See Waiting."""
        torch.add(self.x, self.y, out=self.result)


def add(x: Tensor, y: Any) -> Sum | None:
    """x + y, of equal shapes."""
    if not isinstance(y, Tensor) or x.shape != y.shape or x.dtype != y.dtype or x.dim() != 3:
        return None
    return Sum(x, y) if x.is_contiguous() and y.is_contiguous() else None


def layer_norm(
    x: Tensor,
    shape: list[int],
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
    *,
    parts: Sum | None = None,
) -> Tensor | None:
    """LayerNorm over the last axis of x, one row to a program; x may still be a sum of `parts`."""
    if gain is None or len(shape) != 1 or not x.is_contiguous():
        return None
    y = torch.empty_like(x)
    one, more = (x, x) if parts is None else (parts.x, parts.y)
    flags = (parts is not None, bias is not None, triton.next_power_of_2(shape[0]))
    given = (one, more, gain, gain if bias is None else bias, x, y)
    _layer_norm[(x.numel() // shape[0],)](*given, shape[0], eps, *flags, num_warps=4)
    return y


def kernels(state: State) -> dict[Any, Callable[..., Any]]:
    """What stands in for which operation, for one run of a step of a fixed state."""
    return {
        aten.linear.default: linear,
        aten.add.Tensor: add,
        aten.layer_norm.default: layer_norm,
        aten.index_put_.default: store,
        aten.scaled_dot_product_attention.default: Attention(),
        aten.index_select.default: Choose(state),
    }
