"""Masks as descriptions: what may be seen is said once and rendered for whichever kernel runs.

A mask answers one question, `rule(b, h, q, k)`: may query q of row b and head h look at key k? The
arguments are index tensors that broadcast, so the same rule is FlexAttention's `mask_mod`, a
boolean tensor (True = may attend, as in PyTorch's fused kernel) and, through `shifted`, one row
against a cache. `Causal()` alone renders as the fused kernel's `is_causal`, which needs no tensor
at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


class Mask(ABC):
    """Who may look where. Join two with `&`: both must allow."""

    @property
    def may_be_empty(self) -> bool:
        """Can a query be left with nothing to look at? Its output is then defined as zeros."""
        return False

    @abstractmethod
    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Boolean, True = may attend, for broadcastable index tensors."""

    def tensor(self, batch: int, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        """The rule as a boolean tensor that broadcasts to (B, H, T, S)."""
        b = torch.arange(batch, device=device)[:, None, None, None]  # (B, 1, 1, 1)
        q = torch.arange(n_queries, device=device)[:, None]  # (T, 1)
        k = torch.arange(n_keys, device=device)  # (S,)
        allowed = self.rule(b, torch.zeros_like(b), q, k)
        return allowed if allowed.dim() == 4 else allowed[None, None]

    def mask_mod(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """The rule as FlexAttention takes it: a plain function of (b, h, q, k)."""
        return lambda b, h, q, k: self.rule(b, h, q, k)

    def is_causal(self, n_queries: int, n_keys: int) -> bool:
        """Is this exactly the fused kernel's `is_causal`, whose triangle starts at the top left?"""
        return False

    def rendered(self, batch: int, n_queries: int, n_keys: int, device: torch.device) -> Mask:
        """The same mask with its tensor made once, for all layers that share it."""
        return Rendered(self.tensor(batch, n_queries, n_keys, device), self.may_be_empty)

    def for_first(self, n_queries: int) -> Mask:
        """The same mask for the first queries alone."""
        return self

    def shifted(self, start: int | Tensor) -> Mask:
        """The same mask for queries that stand `start` positions later (one for all rows, or (B,)),
        as with a cache.
        """
        return Shifted(self, start)

    def __and__(self, other: Mask) -> Mask:
        return Both(self, other)


@dataclass(frozen=True)
class Causal(Mask):
    """No query sees a later key."""

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        return q >= k

    def is_causal(self, n_queries: int, n_keys: int) -> bool:
        """See Mask."""
        return n_queries == n_keys


@dataclass(frozen=True)
class Window(Mask):
    """Only keys fewer than `width` positions back, and none later than `width` - 1 ahead; but the
    `first` positions see all others and are seen by all.

    With Causal, each query sees itself and the width - 1 positions before it, and the first.
    """

    width: int
    first: int = 0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        near = (q - k).abs() < self.width
        return near | (k < self.first) | (q < self.first) if self.first else near


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Only the first lengths[b] keys of row b exist."""

    lengths: Tensor  # (B,)

    @property
    def may_be_empty(self) -> bool:
        """A row of length 0 has no keys."""
        return True

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        return k < self.lengths[b]


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """Records packed into one row see only themselves: segments (B, S) numbers them, padding being
    a segment too.
    """

    segments: Tensor

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        return self.segments[b, q] == self.segments[b, k]


@dataclass(frozen=True, eq=False)
class Across(Mask):
    """A target sees its own source: those in segments of one number, which are (B, T) and (B, S).

    Without segments of targets, a row has one, and its source is number 1. Padding sees nothing.
    """

    targets: Tensor | None
    sources: Tensor

    @property
    def may_be_empty(self) -> bool:
        """Padding has no source."""
        return True

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        source = self.sources[b, k]
        if self.targets is None:
            return (source == 1) & (q == q)
        target = self.targets[b, q]
        return (source == target) & (target > 0)


@dataclass(frozen=True, eq=False)
class Both(Mask):
    """What two masks both allow."""

    one: Mask
    other: Mask

    @property
    def may_be_empty(self) -> bool:
        """Two masks may leave nothing even where each leaves something, unless every query keeps
        itself.
        """
        return self.one.may_be_empty or self.other.may_be_empty

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        return self.one.rule(b, h, q, k) & self.other.rule(b, h, q, k)


@dataclass(frozen=True, eq=False)
class Shifted(Mask):
    """Another mask, its queries standing `start` positions later."""

    mask: Mask
    start: int | Tensor

    @property
    def may_be_empty(self) -> bool:
        """As the mask it shifts."""
        return self.mask.may_be_empty

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        start = self.start if isinstance(self.start, int) else self.start[b]
        return self.mask.rule(b, h, q + start, k)

    def is_causal(self, n_queries: int, n_keys: int) -> bool:
        """Only when nothing is shifted."""
        start = self.start
        return isinstance(start, int) and start == 0 and self.mask.is_causal(n_queries, n_keys)


@dataclass(frozen=True, eq=False)
class Rendered(Mask):
    """A mask that is already a tensor (B, 1, T, S)."""

    allowed: Tensor
    empty: bool

    @property
    def may_be_empty(self) -> bool:
        """As the mask it came from."""
        return self.empty

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """See Mask."""
        return self.allowed[b, 0, q, k]

    def tensor(self, batch: int, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        """The tensor as it is."""
        return self.allowed

    def for_first(self, n_queries: int) -> Mask:
        """See Mask."""
        return Rendered(self.allowed[:, :, :n_queries], self.empty)
