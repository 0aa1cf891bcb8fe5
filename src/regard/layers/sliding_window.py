"""Attention within a window of r positions, at the price of r · n instead of n².

Keys that are seen lie in a band along the diagonal. On a CPU, or with a bias, queries are cut into
blocks of at least r, and each block looks at itself and its neighbours, which hold all that it may
see: the fused kernel on many small squares. On a GPU FlexAttention (Dong et al. 2024,
arXiv:2412.05496) skips the tiles outside of the band. The `first` positions, if there are any, are
seen by all and see all (Beltagy et al. 2020, "Longformer", arXiv:2004.05150).
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

from regard.layers.masks import Both, Causal, Mask, Window

LEAST = 64  # queries of a block, at least: smaller products cost more than they save
TILE = 128  # queries and keys of FlexAttention's tiles
NARROWEST = 16  # heads that it takes


@dataclass(frozen=True, eq=False)
class WindowLayout:
    """How n positions are cut into blocks, each beside the keys it may see."""

    length: int
    block: int
    first: int
    ahead: bool  # do queries see what comes after them?

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return -(-self.length // self.block)

    def queries(self, x: Tensor) -> Tensor:
        """(..., T, K) to (..., blocks, block, K)."""
        more = self.count * self.block - self.length
        blocks: Tensor = F.pad(x, (0, 0, 0, more)).unflatten(-2, (self.count, self.block))
        return blocks

    def keys(self, x: Tensor, fill: float = 0) -> Tensor:
        """(..., T, K) to (..., blocks, S, K): the first, the block before, its own, and the next
        where queries look ahead; `fill` stands where there is none.
        """
        more = self.count * self.block - self.length
        behind = more + (self.block if self.ahead else 0)
        blocks = F.pad(x, (0, 0, self.block, behind), value=fill)
        blocks = blocks.unflatten(-2, (-1, self.block))
        beside = [blocks[..., i : i + self.count, :, :] for i in range(3 if self.ahead else 2)]
        if self.first:
            first = x[..., None, : self.first, :]
            beside.insert(0, first.expand(*x.shape[:-2], self.count, -1, -1))
        return torch.cat(beside, dim=-2)

    def places(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The positions (blocks, block, 1) of queries and (blocks, 1, S) of keys; -1 where there is
        none, and where a key stands among the first already.
        """
        at = torch.arange(self.length, device=device)[:, None]
        q = torch.arange(self.count * self.block, device=device).view(self.count, self.block, 1)
        k = self.keys(at, -1).mT  # (blocks, 1, S)
        if self.first:
            again = torch.arange(k.size(-1), device=device) >= self.first
            k = k.masked_fill(again & (k < self.first), -1)
        return q, k


def only_window(mask: Mask) -> bool:
    """Does a mask say nothing but that queries see some of their past?"""
    return (
        isinstance(mask, Both) and isinstance(mask.one, Causal) and isinstance(mask.other, Window)
    )


class Band(Mask):
    """A mask that holds only near the diagonal, ready for all layers that share it."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask

    @property
    def may_be_empty(self) -> bool:
        """As the mask it renders."""
        return self.mask.may_be_empty

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        return self.mask.rule(b, h, q, k)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Attention of q (B, H, T, K) to k and v (B, G, T, K) under this mask."""


class Blocks(Band):
    """In blocks of queries, beside the keys of their own and the neighbouring blocks.

    `allowed` is (B or 1, blocks, block, S), or, where all blocks but the first are alike, one of
    them, (1, 1, block, S).
    """

    def __init__(self, mask: Mask, layout: WindowLayout, batch: int, device: torch.device) -> None:
        super().__init__(mask)
        self.layout = layout
        self.top: Tensor | None = None  # the bias (..., H, first, T) of positions that see all
        q, k = layout.places(device)
        self.alike = only_window(mask) and not layout.first
        if self.alike:
            q, k = q[1:2], k[1:2]
        b = torch.arange(batch, device=device)[:, None, None, None]
        inside, last = k >= 0, layout.length - 1
        allowed = mask.rule(b, torch.zeros_like(b), q.clamp_max(last), k.clamp_min(0)) & inside
        allowed = allowed if allowed.dim() == 4 else allowed[None]
        self.allowed = allowed | ~allowed.any(-1, keepdim=True)  # rows that are cut off again

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """See Band. `bias` is (..., blocks, H, block, S), ... being B or nothing."""
        batch, cut, gqa = len(q), self.layout, q.size(1) != k.size(1)
        parts = [cut.queries(q), cut.keys(k), cut.keys(v)]  # (B, H or G, blocks, block or S, K)
        begin = 1 if self.alike else 0
        q_, k_, v_ = (x[:, :, begin:].transpose(1, 2).flatten(0, 1) for x in parts)
        allowed = self.allowed
        if not self.alike:
            allowed = allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        scores = allowed
        if bias is not None:
            some = bias[..., begin:, :, :, :]
            some = some.expand(batch, *some.shape[-4:]).flatten(0, 1)  # (B·blocks, H, block, S)
            scores = torch.where(allowed, some, -torch.inf).to(q.dtype)
        y = F.scaled_dot_product_attention(q_, k_, v_, attn_mask=scores, enable_gqa=gqa)
        y = y.unflatten(0, (batch, -1)).transpose(1, 2)  # (B, H, blocks, block, K)
        y = y.flatten(2, 3)[:, :, : cut.length - begin * cut.block]
        if self.alike:
            y = torch.cat((self._begin(q, k, v, bias, gqa), y), dim=2)
        return self._first(q, k, v, y) if cut.first and cut.ahead else y

    def _begin(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, gqa: bool) -> Tensor:
        """The first block has none before it: its own keys are seen as in all others."""
        q, k, v = (x[:, :, : self.layout.block] for x in (q, k, v))
        scores = self.allowed[..., self.layout.block :]
        if bias is not None:
            own = bias[..., 0, :, :, self.layout.block :]  # (..., H, block, block)
            scores = torch.where(scores, own, -torch.inf).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=scores, enable_gqa=gqa)

    def _first(self, q: Tensor, k: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """The first positions see all, not their neighbourhood alone."""
        few = self.layout.first
        allowed = self.mask.tensor(len(q), few, k.size(2), q.device)  # (B, 1, first, T)
        if self.top is not None:
            allowed = torch.where(allowed, self.top, -torch.inf).to(q.dtype)
        gqa = q.size(1) != k.size(1)
        top = F.scaled_dot_product_attention(q[:, :, :few], k, v, attn_mask=allowed, enable_gqa=gqa)
        return torch.cat((top, y[:, :, few:]), dim=2)


class Tiles(Band):
    """By FlexAttention, which leaves out the tiles that a mask rules out whole.

    Which those are is worked out from the window alone, so that nothing of size n² is made and the
    host waits for nothing; what else the mask says is asked inside of the others.
    """

    def __init__(self, mask: Mask, width: int, layout: WindowLayout, device: torch.device) -> None:
        super().__init__(mask)
        from torch.nn.attention.flex_attention import BlockMask

        n = -(-layout.length // TILE)
        at = torch.arange(n, device=device)
        apart = at[:, None] - at  # (tiles of queries, tiles of keys)
        near = (apart.abs() - 1) * TILE + 1 < width  # the least distance of two positions in them
        if layout.first:
            few = at * TILE < layout.first
            near = near | few | few[:, None]
        if not layout.ahead:
            near &= apart >= 0
        whole = near & ((apart.abs() + 1) * TILE - 1 < width) & (apart > 0) & only_window(mask)
        self.blocks = BlockMask.from_kv_blocks(
            *in_order(near & ~whole),
            *in_order(whole),
            BLOCK_SIZE=TILE,
            mask_mod=mask.mask_mod(),
            seq_lengths=(layout.length, layout.length),
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """See Band; there is no bias."""
        gqa = q.size(1) != k.size(1)
        return flex(q.is_cuda)(q, k, v, block_mask=self.blocks, enable_gqa=gqa)  # type: ignore[no-any-return]


def in_order(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """From booleans (Q, S) how many are true in each row, (1, 1, Q), and which, first, (1, 1, Q,
    S): what FlexAttention takes.
    """
    which = tiles.int().argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1).int()[None, None], which.int()[None, None]


@cache
def flex(compiled: bool) -> Callable[..., Any]:
    """FlexAttention, which is only fast once compiled; on a CPU it is a slow oracle."""
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Any = flex_attention
    return torch.compile(kernel) if compiled else kernel


def banded(
    mask: Mask, *, width: int, first: int, ahead: bool, batch: int, length: int,
    device: torch.device, flexible: bool,
) -> Band | None:  # fmt: skip
    """A mask that includes `Window(width, first)`, for n queries and as many keys, in the form in
    which it costs O(width · n); None where n is too short for that to help. FlexAttention is used
    where the device has it and it is `flexible`: it takes no bias and no heads below NARROWEST.
    """
    block = max(LEAST, width - 1, first)
    layout = WindowLayout(length, block, first, ahead)
    if layout.count < 3:
        return None
    if flexible and device.type == "cuda" and find_spec("triton") is not None:
        return Tiles(mask, width, layout, device)
    return Blocks(mask, layout, batch, device)
