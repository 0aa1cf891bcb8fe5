"""Linear attention: how well a key fits is a product of features, so sums over keys are made once.

Katharopoulos et al. 2020 (arXiv:2006.16236): the weight of key s for query t is φ(q_t)·φ(k_s) over
their sum, with φ(x) = elu(x) + 1, which is positive. Then Σ φ(q)·φ(k) v = φ(q)·(Σ φ(k) v'): one
matrix of K × (K + 1) numbers a head holds all of the past, the last column being the sum that
divides. It costs O(n · d²), and decoding is a recurrence; what it cannot do is look at one position
and at nothing else, for the weights are of rank K. It is softmax attention with the score
log φ(q)·φ(k). Rotations, where positions are rotary, come before φ.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, SelfAttention, Tap
from regard.layers.cache import ALL, RowBuffer

CHUNK = 64  # positions that are compared one with another, before sums take over


class KeyValueSums:
    """Σ φ(k) v' of what each row has read, (2, B, H, K, K + 1): after n tokens in place n mod 2, so
    that a step may be rehearsed.
    """

    def __init__(self, batch: int, n_heads: int, d_head: int, like: Tensor) -> None:
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.sums = RowBuffer(like.new_zeros(2, batch, n_heads, d_head, d_head + 1, dtype=dtype), 1)

    def read(self, count: int | Tensor) -> Tensor:
        """(B, H, K, K + 1) after so many tokens, of all rows or each (B,)."""
        if isinstance(count, int):
            return self.sums.now[count % 2]
        return self.sums.now[count % 2, torch.arange(len(count), device=count.device)]

    def write(self, count: int | Tensor, sums: Tensor) -> None:
        """What `read(count)` is to be."""
        if isinstance(count, int):
            self.sums.now[count % 2] = sums
        else:
            self.sums.now[count % 2, torch.arange(len(count), device=count.device)] = sums

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """See LayerState."""
        self.sums.select(parents)

    def expand(self, width: int) -> None:
        """See LayerState."""
        self.sums.expand(width)

    def reset(self) -> None:
        """See LayerState."""
        self.sums.reset()
        self.sums.now.zero_()


class LinearAttention(SelfAttention):
    """Multi-head linear attention."""

    def __init__(self, d_model: int, n_heads: int, *, causal: bool = True, **options: Any) -> None:
        super().__init__(d_model, n_heads, **options)
        self.causal = causal

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, place: AttentionContext, state: Any, tap: Tap | None
    ) -> Tensor:
        """See SelfAttention. Sums are in single precision at least."""
        dtype, groups = q.dtype, self.n_heads // self.n_kv_heads
        if groups > 1:
            k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))  # (B, H, T, K)
        finer = torch.promote_types(dtype, torch.float32)
        q, k = (F.elu(x.to(finer)) + 1 for x in (q, k))
        with torch.autocast(q.device.type, enabled=False):
            if tap is not None and (tap.wants("weights") or tap.wants("scores")):
                return self.explicit(q, k, v.to(finer), place, tap).to(dtype)
            more = F.pad(v.to(finer), (0, 1), value=1.0)  # (B, H, T, K + 1): v'
            k = k * counted(k, place)
            if state is not None:
                y = self.advance(q, k, more, place, state)
            elif self.causal:
                y = causal(q, k, more)
            else:
                y = q @ (k.mT @ more)
        return divided(y).to(dtype)

    def explicit(
        self, q: Tensor, k: Tensor, v: Tensor, place: AttentionContext, tap: Tap
    ) -> Tensor:
        """The same by the T × T weights, which `tap` is shown."""
        fits = q @ k.mT  # (B, H, T, T)
        if self.causal:
            fits = fits.tril()
        if place.there is not None:
            fits = fits * place.there[:, None, None]
        weights = fits / fits.sum(-1, keepdim=True).clamp_min(torch.finfo(fits.dtype).tiny)
        tap("scores", fits.log())
        tap("weights", weights)
        return weights @ v

    def advance(
        self, q: Tensor, k: Tensor, v: Tensor, place: AttentionContext, state: KeyValueSums
    ) -> Tensor:
        """(B, H, T, K + 1) after what the state has read, which then has read these too."""
        start = place.places if isinstance(place.places, int) else place.places[:, 0]
        before = state.read(start)
        if q.size(2) == 1:
            after = torch.addcmul(before, k.mT, v)
            y = q @ after
        else:
            y, after = q @ before + causal(q, k, v), before + k.mT @ v
        state.write(start + (q.size(2) if place.lengths is None else place.lengths), after)
        return y

    def new_state(self, batch: int, capacity: int, like: Tensor) -> KeyValueSums:
        """An empty memory for this layer, of the same size whatever the capacity."""
        return KeyValueSums(batch, self.n_heads, self.d_head, like)


def counted(k: Tensor, place: AttentionContext) -> Tensor | float:
    """What keys (B, H, T, K) are multiplied by so that padding counts nothing."""
    if place.lengths is not None:
        inside = torch.arange(k.size(2), device=k.device) < place.lengths[:, None]
        return inside[:, None, :, None].to(k.dtype)
    return 1.0 if place.there is None else place.there[:, None, :, None].to(k.dtype)


def divided(y: Tensor) -> Tensor:
    """(..., K + 1) to (..., K): what was summed, by its weights' sum, which is positive."""
    return y[..., :-1] / y[..., -1:].clamp_min(torch.finfo(y.dtype).tiny)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ over s <= t of (q_t·k_s) v_s, (B, H, T, K + 1): within chunks one by one, before them by
    sums.
    """
    length = q.size(2)
    if length <= CHUNK:
        return (q @ k.mT).tril() @ v
    more = -length % CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, more)).unflatten(2, (-1, CHUNK)) for x in (q, k, v))
    sums = (k.mT @ v).cumsum(2)  # (B, H, chunks, K, K + 1)
    before = F.pad(sums[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return ((q @ k.mT).tril() @ v + q @ before).flatten(2, 3)[:, :, :length]
