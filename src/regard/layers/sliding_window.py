"""Sliding-window attention: a query attends to the last r positions, itself included.

Over complete sequences it costs r · n instead of n², since the allowed keys lie in a band along the
diagonal. On a CPU, or with a bias, queries are cut into blocks of at least r, and each block
attends to itself and its neighbours, which hold all its keys: the fused kernel on many small
squares. On a GPU FlexAttention (Dong et al. 2024, arXiv:2412.05496) skips the tiles outside the
band. The `first` positions, if any, attend to all and all to them (Beltagy et al. 2020,
"Longformer", arXiv:2004.05150).

Decoding keeps the keys and values of r positions, each overwriting the one r before it, whatever
the length. Each layer passes on what it read, so that n layers reach n · (r - 1) positions back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, MaskAndBias, SelfAttention, attend
from regard.layers.cache import ALL, KVCache
from regard.layers.masks import Kernel, Mask, Rendered
from regard.layers.positions import Where, as_tensor
from regard.layers.tap import Tap

MIN_BLOCK = 64  # queries of a block, at least: smaller products cost more than they save
TILE = 128  # queries and keys of FlexAttention's tiles
MIN_FLEX_HEAD = 16  # the narrowest head that FlexAttention takes

PositionBias = Callable[[Tensor, Tensor], Tensor | None]  # of query and key positions


@dataclass(frozen=True, eq=False)
class WindowLayout:
    """How n positions are cut into blocks, each with the keys it may attend to."""

    length: int
    block: int
    first: int
    ahead: bool  # do queries attend to later keys?

    @property
    def n_blocks(self) -> int:
        return -(-self.length // self.block)

    def queries(self, x: Tensor) -> Tensor:
        """(..., T, K) to (..., blocks, block, K)."""
        padding = self.n_blocks * self.block - self.length
        blocks: Tensor = F.pad(x, (0, 0, 0, padding)).unflatten(-2, (self.n_blocks, self.block))
        return blocks

    def keys(self, x: Tensor, fill: float = 0) -> Tensor:
        """(..., T, K) to (..., blocks, S, K): the first positions, the block before, the block
        itself, and the next one if queries look ahead; `fill` where there is none.
        """
        padding = self.n_blocks * self.block - self.length
        after = padding + (self.block if self.ahead else 0)
        blocks = F.pad(x, (0, 0, self.block, after), value=fill)
        blocks = blocks.unflatten(-2, (-1, self.block))
        parts = [blocks[..., i : i + self.n_blocks, :, :] for i in range(3 if self.ahead else 2)]
        if self.first:
            first = x[..., None, : self.first, :]
            parts.insert(0, first.expand(*x.shape[:-2], self.n_blocks, -1, -1))
        return torch.cat(parts, dim=-2)

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the positions (blocks, block, 1) of queries and (blocks, 1, S) of keys; -1 where
        there is no key, or where it is already among the first.
        """
        at = torch.arange(self.length, device=device)[:, None]
        n = self.n_blocks * self.block
        q = torch.arange(n, device=device).view(self.n_blocks, self.block, 1)
        k = self.keys(at, -1).mT  # (blocks, 1, S)
        if self.first:
            repeated = torch.arange(k.size(-1), device=device) >= self.first
            k = k.masked_fill(repeated & (k < self.first), -1)
        return q, k


class Band(Mask):
    """A mask that is False far from the diagonal, prepared for all layers that share it."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask

    @property
    def may_be_empty(self) -> bool:
        return self.mask.may_be_empty

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.mask.rule(b, h, q, k)

    def kernel(self) -> Kernel:
        return self.attend

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Return the attention of q (B, H, T, K) to k and v (B, G, T, K) under this mask."""

    @abstractmethod
    def bias(self, position_bias: PositionBias, positions: Tensor) -> Tensor | None:
        """Return the bias of positions (T,) or (B, T) in the form that `attend` takes."""


class Blocks(Band):
    """A band as blocks of queries with the keys of their own and the neighbouring blocks.

    `allowed` is (B or 1, blocks, block, S), or (1, 1, block, S) where it is `shared`: all blocks
    but the first have the same mask.
    """

    def __init__(self, mask: Mask, layout: WindowLayout, batch: int, device: torch.device) -> None:
        super().__init__(mask)
        self.layout = layout
        self.first_bias: Tensor | None = None  # (..., H, first, T)
        q, k = layout.positions(device)
        self.shared = mask.row_independent and not layout.ahead and not layout.first
        if self.shared:
            q, k = q[1:2], k[1:2]
        b = torch.arange(batch, device=device)[:, None, None, None]
        exists, last = k >= 0, layout.length - 1
        allowed = mask.rule(b, torch.zeros_like(b), q.clamp_max(last), k.clamp_min(0)) & exists
        allowed = allowed if allowed.dim() == 4 else allowed[None]
        self.allowed = allowed | ~allowed.any(-1, keepdim=True)  # rows of padding, cut off again

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """`bias` is (..., blocks, H, block, S), ... being B or nothing."""
        batch, layout, gqa = len(q), self.layout, q.size(1) != k.size(1)
        parts = [layout.queries(q), layout.keys(k), layout.keys(v)]  # (B, H or G, blocks, ., K)
        skipped = 1 if self.shared else 0
        q_, k_, v_ = (x[:, :, skipped:].transpose(1, 2).flatten(0, 1) for x in parts)
        allowed = self.allowed
        if not self.shared:
            allowed = allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        scores = allowed
        if bias is not None:
            added = bias[..., skipped:, :, :, :]
            added = added.expand(batch, *added.shape[-4:]).flatten(0, 1)  # (B·blocks, H, block, S)
            scores = torch.where(allowed, added, -torch.inf).to(q.dtype)
        y = F.scaled_dot_product_attention(q_, k_, v_, attn_mask=scores, enable_gqa=gqa)
        y = y.unflatten(0, (batch, -1)).transpose(1, 2)  # (B, H, blocks, block, K)
        y = y.flatten(2, 3)[:, :, : layout.length - skipped * layout.block]
        if self.shared:
            y = torch.cat((self._first_block(q, k, v, bias, gqa), y), dim=2)
        return self._first_positions(q, k, v, y) if layout.first and layout.ahead else y

    def _first_block(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, gqa: bool
    ) -> Tensor:
        """The first block has none before it; otherwise its mask is that of all others."""
        block = self.layout.block
        q, k, v = (x[:, :, :block] for x in (q, k, v))
        scores = self.allowed[..., block:]
        if bias is not None:
            added = bias[..., 0, :, :, block:]  # (..., H, block, block)
            scores = torch.where(scores, added, -torch.inf).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=scores, enable_gqa=gqa)

    def _first_positions(self, q: Tensor, k: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Replace the outputs of the first positions, which attend to all."""
        first = self.layout.first
        allowed = self.mask.tensor(len(q), first, k.size(2), q.device)  # (B, 1, first, T)
        if self.first_bias is not None:
            allowed = torch.where(allowed, self.first_bias, -torch.inf).to(q.dtype)
        gqa = q.size(1) != k.size(1)
        top = F.scaled_dot_product_attention(
            q[:, :, :first], k, v, attn_mask=allowed, enable_gqa=gqa
        )
        return torch.cat((top, y[:, :, first:]), dim=2)

    def bias(self, position_bias: PositionBias, positions: Tensor) -> Tensor | None:
        layout = self.layout
        if layout.first:
            self.first_bias = position_bias(positions[..., : layout.first], positions)
        queries, keys = layout.queries(positions[..., None]), layout.keys(positions[..., None])
        return position_bias(queries[..., 0], keys[..., 0])


class Tiles(Band):
    """A band by FlexAttention, which skips the tiles that are masked completely.

    These are computed from the window alone, so that nothing of size n² is allocated and the host
    waits for nothing; the rest of the mask is evaluated inside the other tiles.
    """

    def __init__(self, mask: Mask, width: int, layout: WindowLayout, device: torch.device) -> None:
        super().__init__(mask)
        from torch.nn.attention.flex_attention import BlockMask

        n = -(-layout.length // TILE)
        index = torch.arange(n, device=device)
        offset = index[:, None] - index  # (tiles of queries, tiles of keys)
        used = (offset.abs() - 1) * TILE + 1 < width  # the smallest distance of two positions
        if layout.first:
            first = index * TILE < layout.first
            used = used | first | first[:, None]
        if not layout.ahead:
            used &= offset >= 0
        full = used & ((offset.abs() + 1) * TILE - 1 < width) & (offset > 0)
        full &= mask.row_independent and not layout.ahead
        self.blocks = BlockMask.from_kv_blocks(
            *ordered_tiles(used & ~full),
            *ordered_tiles(full),
            BLOCK_SIZE=TILE,
            mask_mod=mask.mask_mod(),
            seq_lengths=(layout.length, layout.length),
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        gqa = q.size(1) != k.size(1)
        return flex(q.is_cuda)(q, k, v, block_mask=self.blocks, enable_gqa=gqa)  # type: ignore[no-any-return]

    def bias(self, position_bias: PositionBias, positions: Tensor) -> Tensor | None:
        raise ValueError("FlexAttention tiles take no bias")


def ordered_tiles(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many of the booleans (Q, S) are True in each row, (1, 1, Q), and their indices
    first, (1, 1, Q, S), as FlexAttention takes them.
    """
    indices = tiles.int().argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1).int()[None, None], indices.int()[None, None]


@cache
def flex(compiled: bool) -> Callable[..., Any]:
    """Return FlexAttention, which is fast only when compiled; on a CPU it is a slow oracle."""
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Any = flex_attention
    return torch.compile(kernel) if compiled else kernel


def make_band(
    mask: Mask, *, width: int, first: int, ahead: bool, batch: int, length: int,
    device: torch.device, flexible: bool,
) -> Band | None:  # fmt: skip
    """Return a mask over n queries and n keys in a form that costs O(width · n), or None where n is
    too short for it to help.

    The mask must include `Window(width, first)`, and `Causal()` unless `ahead`. FlexAttention is
    used where the device has it and `flexible` is set: it takes no bias and no heads narrower than
    MIN_FLEX_HEAD.
    """
    layout = WindowLayout(length, max(MIN_BLOCK, width - 1, first), first, ahead)
    if layout.n_blocks < 3:
        return None
    if flexible and device.type == "cuda" and find_spec("triton") is not None:
        return Tiles(mask, width, layout, device)
    return Blocks(mask, layout, batch, device)


class RollingKVCache(KVCache):
    """Keys and values of the first positions and of the last r: position p has slot p while p is
    below `first`, and `first` + (p - first) mod r afterwards.
    """

    def __init__(
        self, batch: int, n_kv_heads: int, capacity: int, d_head: int, like: Tensor,
        *, width: int, first: int,
    ) -> None:  # fmt: skip
        slots = min(first + width, capacity)
        super().__init__(batch, n_kv_heads, slots, d_head, like)
        self.slots, self.width, self.first = slots, width, first
        self.ring = max(1, slots - first)

    def slot(self, position: Any) -> Any:
        """Return the slot of a position, an int or a tensor."""
        if not self.first:
            return position % self.ring
        rolled = self.first + (position - self.first) % self.ring
        if isinstance(position, int):
            return position if position < self.first else rolled
        return torch.where(position < self.first, position, rolled)

    def positions(self, end: int | Tensor, device: torch.device) -> Tensor:
        """Return the position in each slot once `end` tokens have been read, -1 where there is
        none: (S,), or (B, S) for ends (B, 1).
        """
        slots, last = torch.arange(self.slots, device=device), end - 1
        rolled = last - (last - slots) % self.ring
        if not self.first:
            return rolled.clamp_min(-1)
        rolled = rolled.masked_fill(rolled < self.first, -1)
        return torch.where(slots < self.first, torch.where(slots <= last, slots, -1), rolled)

    def fill(self, k: Tensor, v: Tensor, start: int | Tensor, lengths: Tensor | None) -> None:
        """Store k and v (B, G, T, K), the first lengths[b] of each row, after `start` positions."""
        start = start if isinstance(start, int) else start[:, None]
        end = start + (k.size(2) if lengths is None else lengths[:, None])
        index = self.positions(end, k.device) - start  # (S,) or (B, S): into the new ones
        index = index.expand(len(k), -1)[:, None, :, None].expand_as(self.k)
        for stored, new in ((self.k, k), (self.v, v)):
            values = new.to(stored.dtype).gather(2, index.clamp_min(0))
            stored.copy_(torch.where(index >= 0, values, stored))

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        super().select(parents)

    def mask_and_bias(
        self,
        queries: Where,
        end: int,
        position_bias: PositionBias | None,
        device: torch.device,
        *,
        step: bool,
    ) -> MaskAndBias:
        """Return the mask and bias of queries that follow the positions in the cache.

        In a step the keys are those of the cache up to slot `end`, the query's own included;
        otherwise those of the cache, followed by the queries' own.
        """
        start = queries.start if isinstance(queries, range) else queries[:, :1]
        if step and isinstance(queries, range) and position_bias is None:
            return MaskAndBias()  # all keys
        at = as_tensor(queries, device)  # (T,) or (B, T)
        if step:
            keys = self.positions(start + 1, device)[..., :end]  # (S,) or (B, S)
            mask = (keys >= 0)[..., None, :]
        else:
            keys = torch.cat((self.positions(start, device), at), dim=-1)  # (..., S + T)
            q, k = at[..., :, None], keys[..., None, :]
            mask = (k >= 0) & (k <= q) & ((q - k < self.width) | (k < self.first))
        mask = mask[:, None] if mask.dim() == 3 else mask[None, None]  # (B or 1, 1, T, S)
        bias = None if position_bias is None else position_bias(at, keys)
        return MaskAndBias(Rendered(mask, False), bias)


class WindowedAttention(SelfAttention):
    """Self-attention to the last `width` positions and the `first` ones."""

    uses_mask, uses_window, supports_subset = False, True, False

    def __init__(
        self, d_model: int, n_heads: int, *, width: int, first: int = 0, **options: Any
    ) -> None:
        super().__init__(d_model, n_heads, **options)
        self.width, self.first = width, first

    @classmethod
    def config_options(cls, config: Any, *, causal: bool) -> dict[str, Any]:
        options = super().config_options(config, causal=causal)
        return options | {"width": config.window, "first": config.global_tokens}

    @classmethod
    def check_config(cls, config: Any) -> None:
        if not config.window:
            raise ValueError("window must be positive where mixers has 'window', got 0")

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        state: Any,
        tap: Tap | None,
    ) -> Tensor:
        windowed = context.windowed or MaskAndBias()
        options: dict[str, Any] = {"bias": windowed.bias, "score": self.score, "tap": tap}
        if state is None:
            return attend(q, k, v, windowed.mask, **options)
        if q.size(2) == 1 and context.lengths is None:
            k, v = state.write(k, v, state.slot(context.slots), context.end)
            return attend(q, k, v, windowed.mask, **options)
        start, keys, values = context.start, k, v
        if not (isinstance(start, int) and start == 0):
            keys, values = (torch.cat(pair, dim=2) for pair in ((state.k, k), (state.v, v)))
        y = attend(q, keys, values, windowed.mask, **options)
        state.fill(k, v, start, context.lengths)
        return y

    def new_state(self, batch: int, capacity: int, like: Tensor) -> RollingKVCache:
        return RollingKVCache(
            batch, self.n_kv_heads, capacity, self.d_head, like, width=self.width, first=self.first
        )
