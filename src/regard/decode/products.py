"""The products of a replayed decoding step: matrices times vectors, and one query over its keys.

Small ones go to NumPy. In large ones a step waits for memory rather than for Python, and PyTorch's
own choice on a CPU, MKL, reads a matrix at half the speed of memory on some processors; oneDNN,
which compiled models use, reads it at full speed, several rows best from a copy in its own layout.
(NumPy's BLAS is as fast alone, but its threads and PyTorch's get in each other's way.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.state import State

Call = Callable[[], object]
LARGE = 1 << 18  # weights from which a product is worth a thread
PACKED = 4  # rows from which oneDNN's own layout of a matrix is faster than ours
HEADS = 32  # rows times heads from which PyTorch's threads attend faster than NumPy,
KEYS = 64  # given so many keys; with fewer the fused kernel spends its time between the heads


def array(value: Any) -> Any:
    """A tensor's memory as an array; numbers as they are."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def linear(
    state: State, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Call | None:
    """x W' + b."""
    if not x.is_contiguous():
        return None
    rows = out.numel() // weight.size(0)
    if weight.numel() >= LARGE and torch.backends.mkldnn.is_available():
        return by_onednn(out, x, weight, bias, rows)
    w, b = array(weight), None if bias is None else array(bias)
    if rows == 1:
        vector, result = array(x.view(-1)), array(out.view(-1))
        if b is None:
            return lambda: np.dot(w, vector, out=result)
        return lambda: np.add(np.dot(w, vector, out=result), b, out=result)
    matrix, result, turned = array(x.view(rows, -1)), array(out.view(rows, -1)), w.T
    if b is None:
        return lambda: np.matmul(matrix, turned, out=result)
    return lambda: np.add(np.matmul(matrix, turned, out=result), b, out=result)


def by_onednn(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Call:
    """x W' + b; where W is packed, the copy lives as long as the call."""
    w = weight.detach()
    if rows >= PACKED:
        w = torch.ops.mkldnn._reorder_linear_weight(w, rows)
    kernel = torch.ops.mkldnn._linear_pointwise.default
    return lambda: out.copy_(kernel(x, w, bias, "none", [], ""))


def int_mm(state: State, out: Tensor, x: Tensor, weight: Tensor) -> Call:
    """A product of int8 matrices in int32."""
    kernel = torch.ops.aten._int_mm.out
    return lambda: kernel(x, weight, out=out)


def attention(
    state: State,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    *rest: Any,
    enable_gqa: bool = False,
    **_: Any,
) -> Call | None:
    """A few queries of a row, all of which may see the same, over the keys there are: one, or one
    of each beam over their source; see layers.attention for what is computed.
    """
    (batch, heads, queries, width), groups = q.shape, k.size(1)
    if attn_mask is None or attn_mask.dtype != torch.bool or attn_mask.shape[1:3] != (1, 1):
        return None
    if batch * heads >= HEADS and k.size(2) >= KEYS:
        return attention_by_torch(state, out, q, k, v, attn_mask, enable_gqa)
    each, rows = heads // groups * queries, batch * groups
    query = np.empty(q.shape, np.float32)  # (B, H, T, K)
    grouped = query.reshape(rows, each, width)
    source, result = array(q), array(out)
    found = np.empty_like(grouped)
    whole = found.reshape(query.shape)
    keys = array(k.view(rows, -1, width)).transpose(0, 2, 1)  # (B·G, K, S)
    values = array(v.view(rows, -1, width))  # (B·G, S, K)
    allowed = array(attn_mask.expand(batch, 1, 1, -1))[:, 0]  # (B, 1, S)
    scale = np.float32(width**-0.5)
    room = np.empty(rows * each * k.size(2), np.float32)
    held = reach(state, k)

    def call() -> None:
        used = held()
        dense = room[: rows * each * used]  # without gaps, which NumPy rewards
        scores = dense.reshape(rows, each, used)
        np.multiply(source, scale, out=query)
        np.matmul(grouped, keys[:, :, :used], out=scores)
        seen = allowed[:, :, :used]
        if not np.logical_and.reduce(seen, None):
            np.copyto(scores.reshape(batch, -1, used), -np.inf, where=~seen)
        np.subtract(scores, np.maximum.reduce(scores, -1, keepdims=True), out=scores)
        np.exp(dense, out=dense)
        total = np.add.reduce(scores, -1, keepdims=True)
        np.matmul(scores, values[:, :used], out=found)
        np.divide(found, total, out=found)
        np.copyto(result, whole)

    return call


def reach(state: State, k: Tensor) -> Callable[[], int]:
    """How many keys there are to look at: all those of a source, or the cache's so far, at most as
    many as it has slots.
    """
    sources = {memory.k.untyped_storage().data_ptr() for memory in state.memory or ()}
    if k.untyped_storage().data_ptr() in sources:
        return lambda: k.size(2)
    return lambda: min(state.longest + 1, k.size(2))


def attention_by_torch(
    state: State, out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, gqa: bool
) -> Call:
    """The fused kernel on as much of the cache as is in use, without a mask where all is seen."""

    held = reach(state, k)

    def call() -> None:
        used = held()
        seen = mask[..., :used]
        y = F.scaled_dot_product_attention(
            q,
            k[:, :, :used],
            v[:, :, :used],
            attn_mask=None if bool(seen.all()) else seen,
            enable_gqa=gqa,
        )
        out.copy_(y)

    return call
