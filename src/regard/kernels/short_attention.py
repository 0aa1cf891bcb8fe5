"""Attention over short sequences as two Triton kernels, one forward and one backward.

Where all keys of a row fit into one tile, a softmax needs no second pass and a gradient no sums
across programs: one program handles one head of one row, reads its queries, keys and values once,
and writes its results once. The backward pass recomputes the softmax (Chen et al. 2016,
arXiv:1604.06174), so only the inputs are stored. The PyTorch twin is the explicit path of
`layers.attention.attend`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tile(x, rows, n_rows, columns, stride_row, stride_column):
    at = rows[:, None] * stride_row + columns[None, :] * stride_column
    return tl.load(x + at, mask=(rows < n_rows)[:, None], other=0.0)


@triton.jit
def _softmax(
    query, keys, mask, t, s, n_queries, n_keys, scale, smt, sms,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Weights (M, S) before normalization, and the factor (M,) that normalizes each row."""
    allowed = (t < n_queries)[:, None] & (s < n_keys)[None, :]
    if MASKED:
        allowed = tl.load(mask + t[:, None] * smt + s[None, :] * sms, mask=allowed, other=0) != 0
    if CAUSAL:
        allowed = allowed & (t[:, None] >= s[None, :])
    scores = tl.dot(query, tl.trans(keys)) * (scale * 1.4426950408889634)  # in bits: log2(e)
    scores = tl.where(allowed, scores, float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)  # a row without allowed keys
    weights = tl.exp2(scores - top[:, None])
    total = tl.sum(weights, 1)
    return weights, 1 / tl.where(total > 0, total, 1.0)


@triton.jit
def _forward(
    q, k, v, mask, y, n_queries, n_keys, scale,
    sqb, sqh, sqt, sqk, skb, skh, sks, skk, svb, svh, svs, svk, smb, smt, sms,
    H: tl.constexpr, M: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64) // H, tl.program_id(0) % H
    t, s, d = tl.arange(0, M), tl.arange(0, S), tl.arange(0, K)
    query = _tile(q + b * sqb + h * sqh, t, n_queries, d, sqt, sqk)  # (M, K)
    keys = _tile(k + b * skb + h * skh, s, n_keys, d, sks, skk)  # (S, K)
    values = _tile(v + b * svb + h * svh, s, n_keys, d, svs, svk)  # (S, K)
    weights, inverse = _softmax(
        query, keys, mask + b * smb, t, s, n_queries, n_keys, scale, smt, sms, MASKED, CAUSAL
    )
    result = tl.dot(weights.to(values.dtype), values) * inverse[:, None]  # (M, K)
    at = ((b * n_queries + t[:, None]) * H + h) * K + d[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), mask=(t < n_queries)[:, None])


@triton.jit
def _backward(
    q, k, v, mask, dy, dq, dk, dv, n_queries, n_keys, scale,
    sqb, sqh, sqt, sqk, skb, skh, sks, skk, svb, svh, svs, svk, smb, smt, sms,
    syb, syh, syt, syk,
    H: tl.constexpr, M: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64) // H, tl.program_id(0) % H
    t, s, d = tl.arange(0, M), tl.arange(0, S), tl.arange(0, K)
    query = _tile(q + b * sqb + h * sqh, t, n_queries, d, sqt, sqk)  # (M, K)
    keys = _tile(k + b * skb + h * skh, s, n_keys, d, sks, skk)  # (S, K)
    values = _tile(v + b * svb + h * svh, s, n_keys, d, svs, svk)  # (S, K)
    upstream = _tile(dy + b * syb + h * syh, t, n_queries, d, syt, syk)  # (M, K)
    weights, inverse = _softmax(
        query, keys, mask + b * smb, t, s, n_queries, n_keys, scale, smt, sms, MASKED, CAUSAL
    )
    weights *= inverse[:, None]  # (M, S)
    d_values = tl.dot(tl.trans(weights.to(upstream.dtype)), upstream)  # (S, K)
    rows = ((b * n_keys + s[:, None]) * H + h) * K + d[None, :]
    tl.store(dv + rows, d_values.to(dv.dtype.element_ty), mask=(s < n_keys)[:, None])
    d_weights = tl.dot(upstream, tl.trans(values))  # (M, S)
    along = tl.sum(weights * d_weights, 1)  # y · dy, without reading y
    d_scores = (weights * (d_weights - along[:, None])).to(query.dtype)
    d_keys = tl.dot(tl.trans(d_scores), query) * scale  # (S, K)
    tl.store(dk + rows, d_keys.to(dk.dtype.element_ty), mask=(s < n_keys)[:, None])
    d_query = tl.dot(d_scores, keys) * scale  # (M, K)
    at = ((b * n_queries + t[:, None]) * H + h) * K + d[None, :]
    tl.store(dq + at, d_query.to(dq.dtype.element_ty), mask=(t < n_queries)[:, None])


def _sizes(n_queries: int, n_keys: int) -> tuple[int, int, int]:
    """Return queries and keys per tile, powers of two of at least 16 for the tensor cores, and the
    number of warps.
    """
    m, s = (max(16, triton.next_power_of_2(n)) for n in (n_queries, n_keys))
    return m, s, 4 if m * s < 128 * 128 else 8


def _arguments(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Any, ...]:
    """Return the sizes and strides that both kernels take; a broadcast axis of the mask has 0."""
    strides = (*q.stride(), *k.stride(), *v.stride())
    for axis in (0, 2, 3):
        broadcast = mask is None or mask.size(axis) == 1
        strides += (0 if broadcast else mask.stride(axis),)  # type: ignore[union-attr]
    return (q.size(2), k.size(2), 1 / math.sqrt(q.size(3)), *strides)


@torch.library.custom_op(
    "regard::short_attention",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal) -> Tensor",
)
def short_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the attention (B, H, T, K) of q (B, H, T, K) to k and v (B, H, S, K), of any strides,
    under a boolean mask (B or 1, 1, T or 1, S), or a causal one aligned to the top left.

    Result and gradients have the memory layout of (B, T, H, K). A query without allowed keys
    returns zeros.
    """
    b, h, n, d = q.shape
    y = q.new_empty(b, n, h, d)
    m, s, warps = _sizes(n, k.size(2))
    with torch.cuda.device_of(q):  # Triton launches on the current device
        _forward[(b * h,)](
            q, k, v, q if mask is None else mask, y, *_arguments(q, k, v, mask),
            h, m, s, d, mask is not None, causal, num_warps=warps,
        )  # fmt: skip
    return y.transpose(1, 2)


@torch.library.custom_op(
    "regard::short_attention_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal)"
    " -> (Tensor, Tensor, Tensor)",
)
def short_attention_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v."""
    b, h, n, d = q.shape
    dq, dk, dv = (x.new_empty(b, x.size(2), h, d) for x in (q, k, v))
    m, s, warps = _sizes(n, k.size(2))
    with torch.cuda.device_of(q):
        _backward[(b * h,)](
            q, k, v, q if mask is None else mask, dy, dq, dk, dv, *_arguments(q, k, v, mask),
            *dy.stride(), h, m, s, d, mask is not None, causal, num_warps=warps,
        )  # fmt: skip
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


@short_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    b, h, n, d = q.shape
    return q.new_empty(b, n, h, d).transpose(1, 2)


@short_attention_backward.register_fake
def _(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, _, d = q.shape
    dq, dk, dv = (x.new_empty(b, x.size(2), h, d).transpose(1, 2) for x in (q, k, v))
    return dq, dk, dv


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return (*short_attention_backward(dy, *ctx.saved_tensors, ctx.causal), None, None)


short_attention.register_autograd(_gradient, setup_context=_setup_context)
