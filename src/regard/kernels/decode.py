"""The operations of a decoding step as small Triton kernels, where PyTorch's own cost too much.

At one token per row nearly all of a step is reading weights and caches once. `kernels` maps
PyTorch operators to functions that take the operator's arguments and return its result, None where
the operator should run itself, or a pending operation. That one has its result's memory, but waits
for the next operator: `fuse` computes both in one kernel and returns the result of the second, or
returns None, and then `flush` computes it alone. `decoding/cuda_graphs.py` dispatches to them; the
operators are the PyTorch twins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.torch_private import addmm_activation_op

aten = torch.ops.aten
MAX_KEYS = 1 << 14  # keys up to which one program reads the whole mask of a row
MAX_QUERIES = 16  # queries of a row up to which each reads all keys by itself


@triton.jit
def _linear(x, w, bias, addend, y, n_out, d, BIAS: tl.constexpr, GELU: tl.constexpr,
            ADD: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * R + tl.arange(0, R)  # of w
    valid = rows < n_out
    total = tl.zeros((R, C), tl.float32)
    for first in range(0, d, C):
        columns = first + tl.arange(0, C)
        inside = columns < d
        at = rows[:, None].to(tl.int64) * d + columns[None, :]
        part = tl.load(w + at, mask=valid[:, None] & inside[None, :], other=0.0)
        vector = tl.load(x + columns, mask=inside, other=0.0)
        total += part.to(tl.float32) * vector.to(tl.float32)[None, :]
    result = tl.sum(total, 1)
    if BIAS:
        result += tl.load(bias + rows, mask=valid, other=0.0).to(tl.float32)
    if GELU:  # by tanh: z · sigmoid(2u), u = sqrt(2 / pi) · (z + 0.044715 z³)
        u = 0.7978845608028654 * (result + 0.044715 * result * result * result)
        result = result / (1 + tl.exp(-2 * u))
    if ADD:
        result += tl.load(addend + rows, mask=valid, other=0.0).to(tl.float32)
    tl.store(y + rows, result.to(y.dtype.element_ty), mask=valid)


class PendingLinear:
    """x (..., D) times a matrix (F, D), which fuses with a GELU or a sum."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.x, self.weight, self.bias = x, weight, bias
        self.result = x.new_empty(*x.shape[:-1], len(weight))
        self.single_row = x.numel() == x.size(-1)

    def fuse(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if func is aten.gelu.default and args[0] is self.result:
            return self.run(gelu=True) if kwargs.get("approximate") == "tanh" else None
        if func is aten.add.Tensor and not kwargs and args[1] is self.result and self.single_row:
            addend = args[0]
            same_shape = isinstance(addend, Tensor) and addend.shape == self.result.shape
            if same_shape and addend.is_contiguous() and addend.dtype == self.result.dtype:
                return self.run(addend=addend)
        return None

    def flush(self) -> None:
        self.run()

    def run(self, *, gelu: bool = False, addend: Tensor | None = None) -> Tensor:
        """Compute into the memory of the result."""
        n_out, d = self.weight.shape
        if not self.single_row:
            assert self.bias is not None
            operands = (self.bias, self.x.view(-1, d), self.weight.mT)
            out = self.result.view(-1, n_out)
            if gelu:
                addmm_activation_op.out(*operands, use_gelu=True, out=out)
            else:
                torch.addmm(*operands, out=out)
            return self.result
        columns = min(4096, triton.next_power_of_2(d))
        rows = max(1, 2048 // columns) if n_out < 16_384 else 4  # enough programs for the device
        optional = [self.weight if t is None else t for t in (self.bias, addend)]
        flags = (self.bias is not None, gelu, addend is not None)
        _linear[(triton.cdiv(n_out, rows),)](
            self.x, self.weight, *optional, self.result, n_out, d, *flags, rows, columns,
            num_warps=4,
        )  # fmt: skip
        return self.result


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> PendingLinear | Tensor | None:
    """x (..., D) times weight (F, D)."""
    n_out, d = weight.shape
    if not (x.is_contiguous() and weight.is_contiguous()):
        return None
    if x.numel() == d or bias is not None:
        return PendingLinear(x, weight, bias)
    odd = n_out % 8
    if not odd:
        return None
    # cuBLAS is six times slower where rows do not start or end at multiples of 16 bytes
    rows, even = x.view(-1, d), n_out - odd
    y = x.new_empty(len(rows), even + 8)
    torch.mm(rows, weight[:even].mT, out=y[:, :even])
    torch.mm(rows, weight[even:].mT, out=y[:, even:n_out])
    return y[:, :n_out].view(*x.shape[:-1], n_out)


@triton.jit
def _layer_norm(x, addend, gain, bias, total, y, d, eps,
                ADD: tl.constexpr, BIAS: tl.constexpr, C: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, C)
    inside = columns < d
    value = tl.load(x + row * d + columns, mask=inside, other=0.0)
    if ADD:
        value += tl.load(addend + row * d + columns, mask=inside, other=0.0)
        tl.store(total + row * d + columns, value, mask=inside)
    value = value.to(tl.float32)
    centered = tl.where(inside, value - tl.sum(value, 0) / d, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centered * centered, 0) / d + eps)
    result = centered * scale * tl.load(gain + columns, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        result += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * d + columns, result.to(y.dtype.element_ty), mask=inside)


class PendingSum:
    """x + y, which fuses with a LayerNorm."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.result = x, y, torch.empty_like(x)

    def fuse(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if func is aten.layer_norm.default and args[0] is self.result:
            return layer_norm(*args, **kwargs, pending=self)
        return None

    def flush(self) -> None:
        torch.add(self.x, self.y, out=self.result)


def add(x: Tensor, y: Any) -> PendingSum | None:
    """x + y, of equal shapes."""
    if not isinstance(y, Tensor) or x.shape != y.shape or x.dtype != y.dtype or x.dim() != 3:
        return None
    return PendingSum(x, y) if x.is_contiguous() and y.is_contiguous() else None


def layer_norm(
    x: Tensor,
    shape: list[int],
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
    *,
    pending: PendingSum | None = None,
) -> Tensor | None:
    """LayerNorm over the last axis, one row per program; x may be the result of a pending sum."""
    if gain is None or len(shape) != 1 or not x.is_contiguous():
        return None
    y = torch.empty_like(x)
    first, addend = (x, x) if pending is None else (pending.x, pending.y)
    flags = (pending is not None, bias is not None, triton.next_power_of_2(shape[0]))
    tensors = (first, addend, gain, gain if bias is None else bias, x, y)
    _layer_norm[(x.numel() // shape[0],)](*tensors, shape[0], eps, *flags, num_warps=4)
    return y


@triton.jit
def _write(cache, new, cache2, new2, slots, stride_b, stride_g, stride_s, new_b, new_g,
           TWO: tl.constexpr, K: tl.constexpr):  # fmt: skip
    b, g = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, K)
    to = b * stride_b + g * stride_g + tl.load(slots + b) * stride_s + k
    at = b * new_b + g * new_g + k
    tl.store(cache + to, tl.load(new + at))
    if TWO:
        tl.store(cache2 + to, tl.load(new2 + at))


class PendingWrite:
    """cache[rows, :, slots] = new: one slot of a cache (B, G, S, K) in every row, of the keys; it
    fuses with the same of the values.
    """

    def __init__(self, cache: Tensor, slots: Tensor, new: Tensor) -> None:
        self.result, self.slots, self.new = cache, slots, new

    def fuse(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        other = write(*args) if func is aten.index_put_.default else None
        if other is None or other.slots.data_ptr() != self.slots.data_ptr():
            return None
        same_layout = other.result.stride() == self.result.stride()
        if not same_layout or other.new.stride() != self.new.stride():
            return None
        self.run(other)
        return other.result

    def flush(self) -> None:
        self.run(self)

    def run(self, other: PendingWrite) -> None:
        b, g, _, k = self.result.shape
        strides = (*self.result.stride()[:3], self.new.stride(0), self.new.stride(2))
        tensors = (self.result, self.new, other.result, other.new, self.slots)
        _write[(b, g)](*tensors, *strides, other is not self, k, num_warps=1)


def write(cache: Tensor, indices: list[Tensor | None], new: Tensor, *_: Any) -> PendingWrite | None:
    """Write one position of a key-value cache."""
    if len(indices) != 3 or indices[1] is not None or cache.dim() != 4:
        return None
    slots = indices[2]
    b, g, k = cache.size(0), cache.size(1), cache.size(3)
    if slots is None or slots.shape != (b, 1) or k & (k - 1) or new.stride(-1) != 1:
        return None
    if not slots.is_contiguous() or new.numel() != b * g * k:
        return None
    return PendingWrite(cache, slots, new.expand(b, 1, g, k))  # leading axes of 1 were left out


@triton.jit
def _mask_bounds(mask, bounds, n_keys, stride, N: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    keys = tl.arange(0, N)
    allowed = tl.load(mask + b * stride + keys, mask=keys < n_keys, other=0) != 0
    tl.store(bounds + 2 * b, tl.min(tl.where(allowed, keys, N), 0))
    tl.store(bounds + 2 * b + 1, tl.max(tl.where(allowed, keys + 1, 0), 0))


@triton.jit
def _attend(
    q, k, v, mask, bounds, y, scale, sqb, sqh, sqt, skb, skg, sks, svb, svg, svs, smb,
    T: tl.constexpr, H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    b, h, t = tl.program_id(0).to(tl.int64), tl.program_id(1) // T, tl.program_id(1) % T
    start, end = tl.load(bounds + 2 * b), tl.load(bounds + 2 * b + 1)
    g = h // (H // G)
    d, row = tl.arange(0, K), tl.arange(0, S)
    query = tl.load(q + b * sqb + h * sqh + t * sqt + d).to(tl.float32) * scale
    # every row of the tile has its own softmax over keys S apart: they meet only at the end
    top = tl.full((S,), -1e30, tl.float32)
    weight = tl.zeros((S,), tl.float32)
    total = tl.zeros((S, K), tl.float32)
    for first in range(start, end, S):
        s = first + row
        allowed = tl.load(mask + b * smb + s, mask=s < end, other=0) != 0
        at, inside = s[:, None], (s < end)[:, None]  # keys need not wait for the mask
        keys = tl.load(k + b * skb + g * skg + at * sks + d[None, :], mask=inside, other=0.0)
        values = tl.load(v + b * svb + g * svg + at * svs + d[None, :], mask=inside, other=0.0)
        scores = tl.sum(keys.to(tl.float32) * query[None, :], 1)
        scores = tl.where(allowed, scores, float("-inf"))
        higher = tl.maximum(top, scores)
        part, fade = tl.exp(scores - higher), tl.exp(top - higher)
        total = total * fade[:, None] + values.to(tl.float32) * part[:, None]
        weight = weight * fade + part
        top = higher
    fade = tl.exp(top - tl.max(top, 0))
    divisor = tl.sum(weight * fade, 0)
    result = tl.sum(total * fade[:, None], 0) / tl.where(divisor > 0, divisor, 1.0)
    tl.store(y + ((b * T + t) * H + h) * K + d, result.to(y.dtype.element_ty))


class CacheAttention:
    """A few queries (B, H, T, K) over keys and values (B, G, S, K) under a boolean mask that all
    queries of a row share: the newest token over its past, or beams over their source.

    The first and the last allowed key are found once for all layers that share a mask; keys that
    the mask rules out in between are read with weight 0.
    """

    def __init__(self) -> None:
        self.bounds: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor | None:
        """F.scaled_dot_product_attention; a row without allowed keys gives zeros."""
        b, h, t, d = q.shape
        if t > MAX_QUERIES or attn_mask is None or attn_mask.dtype != torch.bool:
            return None
        if d & (d - 1) or d < 16 or attn_mask.shape[1:3] != (1, 1):
            return None
        n_keys, stride = k.size(2), attn_mask.stride(0) if attn_mask.size(0) > 1 else 0
        if n_keys > MAX_KEYS or {x.stride(-1) for x in (q, k, v, attn_mask)} != {1}:
            return None
        if attn_mask.data_ptr() not in self.bounds:  # the mask is kept, so the address stays its
            bounds = torch.empty(b, 2, dtype=torch.int32, device=q.device)
            self.bounds[attn_mask.data_ptr()] = attn_mask, bounds
            size = triton.next_power_of_2(n_keys)
            _mask_bounds[(b,)](attn_mask, bounds, n_keys, stride, size, num_warps=4)
        y = q.new_empty(b, t, h, d)
        strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], stride)
        scale = 1 / math.sqrt(d) if scale is None else scale
        many = b * h * t > 512
        bounds = self.bounds[attn_mask.data_ptr()][1]
        _attend[(b, h * t)](
            q, k, v, attn_mask, bounds, y, scale, *strides, t, h, k.size(1), d, 64 if many else 128,
            num_warps=2 if many else 4,
        )  # fmt: skip
        return y.transpose(1, 2)


@triton.jit
def _reorder(
    cache, parents, lengths, slots, sz, sb, sg, ss, G: tl.constexpr, W: tl.constexpr,
    WIDE: tl.constexpr, P: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The W beams of one row, in one head of keys or values, up to the slots they have filled."""
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    beams, offsets = tl.arange(0, WIDE), tl.arange(0, P * K)
    valid = beams < W
    parent = tl.load(parents + b * W + beams, mask=valid, other=0)
    length = tl.minimum(tl.load(lengths + b * W), slots)  # a rolling cache has fewer slots
    memory = cache + (head // G).to(tl.int64) * sz + (head % G) * sg
    for first in range(0, length, P):
        slot = first + offsets // K
        inside = valid[:, None] & (slot < length)[None, :]
        at = (slot * ss + offsets % K)[None, :]
        values = tl.load(memory + parent[:, None] * sb + at, mask=inside)
        tl.debug_barrier()  # all have read before anyone writes
        tl.store(memory + (b * W + beams)[:, None] * sb + at, values, mask=inside)
        tl.debug_barrier()


class PendingReorder:
    """cache.index_select(1, parents) of a cache (2, B·W, G, S, K), which fuses with the copy back
    into the cache: the beams of each row are reordered in place, as far as the cache is filled.
    """

    def __init__(self, cache: Tensor, parents: Tensor, rows: int, lengths: Tensor) -> None:
        self.cache, self.parents, self.rows, self.lengths = cache, parents, rows, lengths
        self.result = torch.empty_like(cache)

    def fuse(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if func is not aten.copy_.default or args[1] is not self.result:
            return None
        cache = self.cache
        if args[0].data_ptr() != cache.data_ptr() or args[0].shape != cache.shape:
            return None
        _, b, g, slots, k = cache.shape
        width = b // self.rows
        _reorder[(self.rows, 2 * g)](
            cache, self.parents, self.lengths, slots, *cache.stride()[:4], g, width,
            triton.next_power_of_2(width), 16, k, num_warps=4,
        )  # fmt: skip
        return args[0]  # type: ignore[no-any-return]

    def flush(self) -> None:
        torch.index_select(self.cache, 1, self.parents, out=self.result)


def kernels(rows: int, lengths: Tensor) -> dict[Any, Callable[..., Any]]:
    """Return the replacement of each operator, for one run of a step of a fixed state.

    The state has `rows` rows before its beams, and `lengths` (B·W,) tokens in each row.
    """

    def reorder(cache: Tensor, dim: int, parents: Tensor) -> PendingReorder | None:
        fits = cache.dim() == 5 and dim == 1 and cache.stride(-1) == 1
        if not fits or cache.size(-1) & (cache.size(-1) - 1) or cache.size(1) % rows:
            return None
        return PendingReorder(cache, parents, rows, lengths)

    return {
        aten.linear.default: linear,
        aten.add.Tensor: add,
        aten.layer_norm.default: layer_norm,
        aten.index_put_.default: write,
        aten.scaled_dot_product_attention.default: CacheAttention(),
        aten.index_select.default: reorder,
    }
