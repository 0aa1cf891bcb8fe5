"""What a decoding step does with its caches, as Triton kernels (see `kernels`): a token stored, one
query against all keys, skipping the blocks that its mask rules out, and beams reordered in place.

A decoding step's operations as small Triton kernels, where PyTorch's own cost too much.

At one token per row nearly all of a step is reading weights and caches once. Here are products and
norms, `linear` being a matrix times one vector; what concerns caches is in `cache_kernels`. Each
function gets the arguments of the operation it stands in for, and returns None where that operation
should run itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.layers.cache import DecodeState

LONGEST = 1 << 14  # keys up to which a program reads its whole mask at once
BEAMS = 16  # queries of a row up to which each reads all keys for itself


@triton.jit
def _store(
    memory, new, memory2, new2, places, sb, sg, ss, nb, ng, TWO: tl.constexpr, K: tl.constexpr
):
    b, g = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, K)
    to, at = b * sb + g * sg + tl.load(places + b) * ss + k, b * nb + g * ng + k
    tl.store(memory + to, tl.load(new + at))
    if TWO:
        tl.store(memory2 + to, tl.load(new2 + at))


class Store:
    """memory[rows, :, places] = new: one position of a cache (B, G, S, K) in every row, waiting to
    see whether values follow the keys.
    """

    def __init__(self, memory: Tensor, places: Tensor, new: Tensor) -> None:
        self.result, self.places, self.new = memory, places, new

    def joined(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """See Waiting."""
        other = store(*args) if func is aten.index_put_.default else None
        if other is None or other.places.data_ptr() != self.places.data_ptr():
            return None
        alike = other.result.stride() == self.result.stride()
        if not alike or other.new.stride() != self.new.stride():
            return None
        self.run(other)
        return other.result

    def flush(self) -> None:
        """See Waiting."""
        self.run(self)

    def run(self, other: Store) -> None:
        """Store both."""
        b, g, _, k = self.result.shape
        strides = (*self.result.stride()[:3], self.new.stride(0), self.new.stride(2))
        both = (self.result, self.new, other.result, other.new)
        _store[(b, g)](*both, self.places, *strides, other is not self, k, num_warps=1)


def store(memory: Tensor, indices: list[Tensor | None], new: Tensor, *_: Any) -> Store | None:
    """See Store."""
    if len(indices) != 3 or indices[1] is not None or memory.dim() != 4:
        return None
    places = indices[2]
    b, g, k = memory.size(0), memory.size(1), memory.size(3)
    if places is None or places.shape != (b, 1) or k & (k - 1) or new.stride(-1) != 1:
        return None
    if not places.is_contiguous() or new.numel() != b * g * k:
        return None
    return Store(memory, places, new.expand(b, 1, g, k))  # leading axes of one are left out


@triton.jit
def _bounds(mask, found, n_keys, per_row, N: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, N)
    seen = tl.load(mask + b * per_row + places, mask=places < n_keys, other=0) != 0
    begin = tl.min(tl.where(seen, places, N), 0)
    end = tl.max(tl.where(seen, places + 1, 0), 0)
    tl.store(found + 2 * b, begin)
    tl.store(found + 2 * b + 1, end)


@triton.jit
def _attend(
    q,
    k,
    v,
    mask,
    bounds,
    y,
    scale,
    sqb,
    sqh,
    sqt,
    skb,
    skg,
    sks,
    svb,
    svg,
    svs,
    smb,
    T: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    S: tl.constexpr,
):
    b, h, t = tl.program_id(0).to(tl.int64), tl.program_id(1) // T, tl.program_id(1) % T
    begin, end = tl.load(bounds + 2 * b), tl.load(bounds + 2 * b + 1)
    g = h // (H // G)
    d, row = tl.arange(0, K), tl.arange(0, S)
    query = tl.load(q + b * sqb + h * sqh + t * sqt + d).to(tl.float32) * scale
    # every row has a softmax of its own over keys S apart: nothing is shared before the end
    top = tl.full((S,), -1e30, tl.float32)
    weight = tl.zeros((S,), tl.float32)
    total = tl.zeros((S, K), tl.float32)
    for first in range(begin, end, S):
        s = first + row
        may = tl.load(mask + b * smb + s, mask=s < end, other=0) != 0
        place, here = s[:, None], (s < end)[:, None]  # keys need not wait for the mask
        keys = tl.load(k + b * skb + g * skg + place * sks + d[None, :], mask=here, other=0.0)
        values = tl.load(v + b * svb + g * svg + place * svs + d[None, :], mask=here, other=0.0)
        scores = tl.sum(keys.to(tl.float32) * query[None, :], 1)
        scores = tl.where(may, scores, float("-inf"))
        higher = tl.maximum(top, scores)
        part, fade = tl.exp(scores - higher), tl.exp(top - higher)
        total = total * fade[:, None] + values.to(tl.float32) * part[:, None]
        weight = weight * fade + part
        top = higher
    fade = tl.exp(top - tl.max(top, 0))
    whole = tl.sum(weight * fade, 0)
    result = tl.sum(total * fade[:, None], 0) / tl.where(whole > 0, whole, 1.0)
    tl.store(y + ((b * T + t) * H + h) * K + d, result.to(y.dtype.element_ty))


class CacheAttention:
    """A few queries (B, H, T, K) against keys and values (B, G, S, K) under a boolean mask that all
    queries of a row share: the newest token over its past, or beams over their source.

    Where a mask begins and ends is found once, for all layers that share it; what it rules out in
    between is read, and weighs nothing.
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
        """See F.scaled_dot_product_attention; a row that may look nowhere gives zeros."""
        b, h, t, d = q.shape
        if t > BEAMS or attn_mask is None or attn_mask.dtype != torch.bool or d & (d - 1) or d < 16:
            return None
        if attn_mask.shape[1:3] != (1, 1) or {x.stride(-1) for x in (q, k, v, attn_mask)} != {1}:
            return None
        n_keys, per_row = k.size(2), attn_mask.stride(0) if attn_mask.size(0) > 1 else 0
        if n_keys > LONGEST:
            return None
        if attn_mask.data_ptr() not in self.bounds:  # the mask is kept, so its memory is its own
            found = torch.empty(b, 2, dtype=torch.int32, device=q.device)
            self.bounds[attn_mask.data_ptr()] = attn_mask, found
            size = triton.next_power_of_2(n_keys)
            _bounds[(b,)](attn_mask, found, n_keys, per_row, size, num_warps=4)
        y = q.new_empty(b, t, h, d)
        strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], per_row)
        scale = 1 / math.sqrt(d) if scale is None else scale
        many = b * h * t > 512
        block = 64 if many else 128
        bounds = self.bounds[attn_mask.data_ptr()][1]
        _attend[(b, h * t)](
            q, k, v, attn_mask, bounds, y, scale, *strides, t, h, k.size(1), d, block,
            num_warps=2 if many else 4,
        )  # fmt: skip
        return y.transpose(1, 2)


@triton.jit
def _reorder(
    cache, parents, lengths, slots, sz, sb, sg, ss, G: tl.constexpr, W: tl.constexpr,
    WIDE: tl.constexpr, P: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The W beams of one row, in one head of keys or values, up to the places they have filled."""
    b, which = tl.program_id(0).to(tl.int64), tl.program_id(1)
    beams, inside = tl.arange(0, WIDE), tl.arange(0, P * K)
    there = beams < W
    parent = tl.load(parents + b * W + beams, mask=there, other=0)
    length = tl.minimum(tl.load(lengths + b * W), slots)  # a rolling cache has fewer slots
    memory = cache + (which // G).to(tl.int64) * sz + (which % G) * sg
    for first in range(0, length, P):
        place = first + inside // K
        here = there[:, None] & (place < length)[None, :]
        at = (place * ss + inside % K)[None, :]
        held = tl.load(memory + parent[:, None] * sb + at, mask=here)
        tl.debug_barrier()  # all have read before anyone writes
        tl.store(memory + (b * W + beams)[:, None] * sb + at, held, mask=here)
        tl.debug_barrier()


class ReorderedRows:
    """Rows of a cache (2, B, G, S, K), waiting to see whether they are to stand in their own place:
    beams that are reordered, among those of one row, as far as the cache is filled.
    """

    def __init__(self, cache: Tensor, parents: Tensor, state: DecodeState) -> None:
        self.cache, self.parents, self.state = cache, parents, state
        self.result = torch.empty_like(cache)

    def joined(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """See Waiting."""
        if func is not aten.copy_.default or args[1] is not self.result:
            return None
        cache, state = self.cache, self.state
        if args[0].data_ptr() != cache.data_ptr() or args[0].shape != cache.shape:
            return None
        _, b, g, slots, k = cache.shape
        width = b // state.rows
        _reorder[(state.rows, 2 * g)](
            cache, self.parents, state.length, slots, *cache.stride()[:4], g, width,
            triton.next_power_of_2(width), 16, k, num_warps=4,
        )  # fmt: skip
        return args[0]  # type: ignore[no-any-return]

    def flush(self) -> None:
        """See Waiting."""
        torch.index_select(self.cache, 1, self.parents, out=self.result)


class ReorderCache:
    """cache.index_select(1, parents), of a state's keys and values."""

    def __init__(self, state: DecodeState) -> None:
        self.state = state

    def __call__(self, cache: Tensor, dim: int, parents: Tensor) -> ReorderedRows | None:
        """See Chosen."""
        alike = cache.dim() == 5 and dim == 1 and cache.stride(-1) == 1
        if not alike or cache.size(-1) & (cache.size(-1) - 1) or cache.size(1) % self.state.rows:
            return None
        return ReorderedRows(cache, parents, self.state)


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


class PendingLinear:
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


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> PendingLinear | Tensor | None:
    """x (..., D) times weight (O, D)."""
    n_out, d = weight.shape
    if not (x.is_contiguous() and weight.is_contiguous()):
        return None
    if x.numel() == d or bias is not None:
        return PendingLinear(x, weight, bias)
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


class PendingSum:
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
    parts: PendingSum | None = None,
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


def kernels(state: DecodeState) -> dict[Any, Callable[..., Any]]:
    """What stands in for which operation, for one run of a step of a fixed state."""
    return {
        aten.linear.default: linear,
        aten.add.Tensor: add,
        aten.layer_norm.default: layer_norm,
        aten.index_put_.default: store,
        aten.scaled_dot_product_attention.default: CacheAttention(),
        aten.index_select.default: ReorderCache(state),
    }
