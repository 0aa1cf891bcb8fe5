"""Windowed attention: a query sees the last r positions, itself among them, and none further back.

Over whole sequences it costs O(r · n · d) (layers/bands.py). Decoding keeps the keys and values of
r positions, each written over the one r before it, whatever the length. Layers pass on what they
saw, so that n layers reach n · (r - 1) positions back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.layers.attention import AttentionContext, MaskAndBias, SelfAttention, Tap, attend
from regard.layers.cache import ALL, KVCache
from regard.layers.masks import Rendered
from regard.layers.positions import Where, as_tensor


class RollingKVCache(KVCache):
    """Keys and values of the first positions and of the last r: position p has slot p while p is
    below `first`, and `first` + (p - first) mod r after.
    """

    def __init__(
        self, batch: int, n_kv_heads: int, capacity: int, d_head: int, like: Tensor,
        *, width: int, first: int,
    ) -> None:  # fmt: skip
        slots = min(first + width, capacity)
        super().__init__(batch, n_kv_heads, slots, d_head, like)
        self.slots, self.first, self.ring = slots, first, max(1, slots - first)

    def slot(self, position: Any) -> Any:
        """Where a position stands: an int's, or those of a tensor."""
        if not self.first:
            return position % self.ring
        turned = self.first + (position - self.first) % self.ring
        if isinstance(position, int):
            return position if position < self.first else turned
        return torch.where(position < self.first, position, turned)

    def held(self, end: int | Tensor, device: torch.device) -> Tensor:
        """(S,) or, with ends (B, 1), (B, S): the position in each slot once `end` tokens have been
        read; -1 where there is none.
        """
        slots, last = torch.arange(self.slots, device=device), end - 1
        turned = last - (last - slots) % self.ring
        if not self.first:
            return turned.clamp_min(-1)
        turned = turned.masked_fill(turned < self.first, -1)
        return torch.where(slots < self.first, torch.where(slots <= last, slots, -1), turned)

    def fill(self, k: Tensor, v: Tensor, start: int | Tensor, lengths: Tensor | None) -> None:
        """Store k and v (B, G, T, K), of which lengths[b] count, after `start` positions."""
        begin = start if isinstance(start, int) else start[:, None]
        end = begin + (k.size(2) if lengths is None else lengths[:, None])
        index = self.held(end, k.device) - begin  # (S,) or (B, S): into the new ones
        index = index.expand(len(k), -1)[:, None, :, None].expand_as(self.k)
        for cache, new in ((self.k, k), (self.v, v)):
            found = new.to(cache.dtype).gather(2, index.clamp_min(0))
            cache.copy_(torch.where(index >= 0, found, cache))

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b], all of it."""
        super().select(parents)


class WindowedAttention(SelfAttention):
    """Self-attention to the last `width` positions and the `first` ones."""

    def __init__(
        self, d_model: int, n_heads: int, *, width: int, first: int = 0, **options: Any
    ) -> None:
        super().__init__(d_model, n_heads, **options)
        self.width, self.first = width, first

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, place: AttentionContext, state: Any, tap: Tap | None
    ) -> Tensor:
        """See SelfAttention."""
        near = place.near or MaskAndBias()
        options: dict[str, Any] = {"bias": near.bias, "score": self.score, "tap": tap}
        if state is None:
            return attend(q, k, v, near.mask, **options)
        if q.size(2) == 1 and place.lengths is None:
            k, v = state.write(k, v, state.slot(place.places), place.end)
            return attend(q, k, v, near.mask, **options)
        start = place.places if isinstance(place.places, int) else place.places[:, 0]
        keys, values = k, v
        if not (isinstance(start, int) and start == 0):
            keys, values = (torch.cat(both, dim=2) for both in ((state.k, k), (state.v, v)))
        y = attend(q, keys, values, near.mask, **options)
        state.fill(k, v, start, place.lengths)
        return y

    def new_state(self, batch: int, capacity: int, like: Tensor) -> RollingKVCache:
        """An empty cache for this layer."""
        return RollingKVCache(
            batch, self.n_kv_heads, capacity, self.d_head, like, width=self.width, first=self.first
        )


def cached_mask(
    layer: WindowedAttention,
    state: RollingKVCache,
    queries: Where,
    end: int,
    bias: Callable[[Tensor, Tensor], Tensor | None] | None,
    device: torch.device,
    *,
    step: bool,
) -> MaskAndBias:
    """What queries see of a cache that holds what came before them: in a step the cache, which then
    holds them too, up to the slot `end`; else what it held, and after that each other. `bias` is
    that of query and key positions.
    """
    start = queries.start if isinstance(queries, range) else queries[:, :1]
    if step and isinstance(queries, range) and bias is None:
        return MaskAndBias()  # all there is
    at = as_tensor(queries, device)  # (T,) or (B, T)
    if step:
        keys = state.held(start + 1, device)[..., :end]  # (S,) or (B, S)
        allowed = keys >= 0
        mask = allowed[..., None, :]
    else:
        keys = torch.cat((state.held(start, device), at), dim=-1)  # (..., S + T)
        q, k = at[..., :, None], keys[..., None, :]
        mask = (k >= 0) & (k <= q) & ((q - k < layer.width) | (k < layer.first))  # (..., T, S + T)
    mask = mask[:, None] if mask.dim() == 3 else mask[None, None]
    return MaskAndBias(Rendered(mask, False), None if bias is None else bias(at, keys))
