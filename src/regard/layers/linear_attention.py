"""Linear attention: weights are products of features, so sums over keys are computed once.

Katharopoulos et al. 2020 (arXiv:2006.16236): the weight of key s for query t is φ(q_t)·φ(k_s),
normalized, with φ(x) = elu(x) + 1, which is positive. Then Σ φ(q)·φ(k) v = φ(q)·(Σ φ(k) v): one
matrix of K × (K + 1) numbers per head summarizes the past, its last column the sum that normalizes.
It costs O(n · d²), and decoding is a recurrence; but it cannot attend to a single position, since
the weights have rank K. It is softmax attention with the score log φ(q)·φ(k). Rotations of rotary
positions come before φ.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, SelfAttention, softmax
from regard.layers.cache import RowBuffer
from regard.layers.tap import Tap

CHUNK = 64  # positions that are compared pair by pair; sums cover what is before them


class KeyValueSums(RowBuffer):
    """Σ φ(k) v of each row, (2, B, H, K, K + 1): after n tokens at index n mod 2, so that a step
    can be run once before it is recorded.
    """

    def __init__(self, batch: int, n_heads: int, d_head: int, like: Tensor) -> None:
        dtype = torch.promote_types(like.dtype, torch.float32)
        super().__init__(like.new_zeros(2, batch, n_heads, d_head, d_head + 1, dtype=dtype), 1)

    def read(self, count: int | Tensor) -> Tensor:
        """Return the sums (B, H, K, K + 1) after `count` tokens, an int for all rows or (B,)."""
        if isinstance(count, int):
            return self.tensor[count % 2]
        return self.tensor[count % 2, torch.arange(len(count), device=count.device)]

    def write(self, count: int | Tensor, sums: Tensor) -> None:
        """Set what `read(count)` returns."""
        if isinstance(count, int):
            self.tensor[count % 2] = sums
        else:
            self.tensor[count % 2, torch.arange(len(count), device=count.device)] = sums


class LinearAttention(SelfAttention):
    """Multi-head linear attention."""

    uses_mask, supports_packing, supports_subset = False, False, False

    def __init__(self, d_model: int, n_heads: int, *, causal: bool = True, **options: Any) -> None:
        super().__init__(d_model, n_heads, **options)
        self.causal = causal

    @classmethod
    def config_options(cls, config: Any, *, causal: bool) -> dict[str, Any]:
        return super().config_options(config, causal=causal) | {"causal": causal}

    @classmethod
    def check_config(cls, config: Any) -> None:
        if config.score != "scaled_dot":
            raise ValueError(
                f"score must be scaled_dot where mixers has 'linear', got {config.score!r}"
            )

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        state: Any,
        tap: Tap | None,
    ) -> Tensor:
        dtype, groups = q.dtype, self.n_heads // self.n_kv_heads
        if groups > 1:
            k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))  # (B, H, T, K)
        single = torch.promote_types(dtype, torch.float32)  # sums need it, at least
        q, k = (F.elu(x.to(single)) + 1 for x in (q, k))
        with torch.autocast(q.device.type, enabled=False):
            if tap is not None and (tap.wants("weights") or tap.wants("scores")):
                return self.mix_explicitly(q, k, v.to(single), context, tap).to(dtype)
            v = F.pad(v.to(single), (0, 1), value=1.0)  # (B, H, T, K + 1)
            k = k * key_mask(k, context)
            if state is not None:
                y = self.advance(q, k, v, context, state)
            elif self.causal:
                y = causal_sums(q, k, v)
            else:
                y = q @ (k.mT @ v)
        y = y[..., :-1] / y[..., -1:].clamp_min(torch.finfo(y.dtype).tiny)  # (B, H, T, K)
        return y.to(dtype)

    def mix_explicitly(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, tap: Tap
    ) -> Tensor:
        """Compute the same by the (B, H, T, T) weights, for `tap`."""
        products = q @ k.mT
        if self.causal:
            products = products.tril()
        if context.valid is not None:
            products = products * context.valid[:, None, None]
        scores = tap("scores", products.log())
        return tap("weights", softmax(scores)) @ v

    def advance(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, state: KeyValueSums
    ) -> Tensor:
        """Return (B, H, T, K + 1) sums over the state's keys and the new ones, which join it."""
        start = context.start
        before = state.read(start)
        if q.size(2) == 1:
            after = torch.addcmul(before, k.mT, v)
            y = q @ after
        else:
            y, after = q @ before + causal_sums(q, k, v), before + k.mT @ v
        state.write(start + (q.size(2) if context.lengths is None else context.lengths), after)
        return y

    def new_state(self, batch: int, capacity: int, like: Tensor) -> KeyValueSums:
        return KeyValueSums(batch, self.n_heads, self.d_head, like)


def key_mask(k: Tensor, context: AttentionContext) -> Tensor | float:
    """Return a factor for keys (B, H, T, K) that is 0 for padding."""
    if context.lengths is not None:
        valid = torch.arange(k.size(2), device=k.device) < context.lengths[:, None]
        return valid[:, None, :, None].to(k.dtype)
    return 1.0 if context.valid is None else context.valid[:, None, :, None].to(k.dtype)


def causal_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return Σ over s <= t of (q_t·k_s) v_s, (B, H, T, K + 1): pair by pair within chunks, by sums
    of key-value products before them.
    """
    length = q.size(2)
    if length <= CHUNK:
        return (q @ k.mT).tril() @ v
    padding = -length % CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, CHUNK)) for x in (q, k, v))
    sums = (k.mT @ v).cumsum(2)  # (B, H, chunks, K, K + 1)
    before = F.pad(sums[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return ((q @ k.mT).tril() @ v + q @ before).flatten(2, 3)[:, :, :length]
