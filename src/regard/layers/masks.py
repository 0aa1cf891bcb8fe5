"""Attention masks as descriptions, which render themselves for the kernel that runs.

A mask is one function, `rule(b, h, q, k)`: may query q attend to key k in row b and head h? Its
arguments are index tensors that broadcast, so the same rule serves as FlexAttention's `mask_mod`,
as a boolean tensor (True = may attend, as in PyTorch's fused kernel) and, through `shifted`, for
queries that follow a cache. `Causal()` alone renders as the fused kernel's `is_causal`, which needs
no tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


class Mask(ABC):
    """Which keys a query may attend to. `a & b` allows what both allow."""

    @property
    def may_be_empty(self) -> bool:
        """Whether a query may be left without keys; its output is then defined as zeros."""
        return False

    @property
    def row_independent(self) -> bool:
        """Whether the rule is the same for all rows of a batch."""
        return False

    @abstractmethod
    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Return booleans, True = may attend, for index tensors that broadcast."""

    def tensor(self, batch: int, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        """Return the rule as a boolean tensor that broadcasts to (B, H, T, S)."""
        b = torch.arange(batch, device=device)[:, None, None, None]  # (B, 1, 1, 1)
        q = torch.arange(n_queries, device=device)[:, None]  # (T, 1)
        k = torch.arange(n_keys, device=device)  # (S,)
        allowed = self.rule(b, torch.zeros_like(b), q, k)
        return allowed if allowed.dim() == 4 else allowed[None, None]

    def mask_mod(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Return the rule as FlexAttention takes it, a plain function."""
        return lambda b, h, q, k: self.rule(b, h, q, k)

    def is_causal(self, n_queries: int, n_keys: int) -> bool:
        """Return whether this is the fused kernel's `is_causal`, a triangle from the top left."""
        return False

    def kernel(self) -> Kernel | None:
        """Return a function of q, k, v and bias that attends without a mask over all pairs, where
        the mask has one.
        """
        return None

    def rendered(self, batch: int, n_queries: int, n_keys: int, device: torch.device) -> Mask:
        """Return the mask with its tensor computed once, for all layers that share it."""
        return Rendered(self.tensor(batch, n_queries, n_keys, device), self.may_be_empty)

    def for_first(self, n_queries: int) -> Mask:
        """Return the mask of the first queries alone."""
        return self

    def shifted(self, start: int | Tensor) -> Mask:
        """Return the mask of queries `start` positions later, an int for all rows or (B,)."""
        return Shifted(self, start)

    def __and__(self, other: Mask) -> Mask:
        return Both(self, other)


@dataclass(frozen=True)
class Causal(Mask):
    """No query attends to a later key."""

    @property
    def row_independent(self) -> bool:
        return True

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k

    def is_causal(self, n_queries: int, n_keys: int) -> bool:
        return n_queries == n_keys


@dataclass(frozen=True)
class Window(Mask):
    """Only keys at a distance below `width`; but the `first` positions attend to all, and all to
    them.

    With Causal, each query attends to itself, the width - 1 positions before it, and the first.
    """

    width: int
    first: int = 0

    @property
    def row_independent(self) -> bool:
        return True

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        local = (q - k).abs() < self.width
        return local | (k < self.first) | (q < self.first) if self.first else local


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Only the first lengths[b] keys of row b, which may be none."""

    lengths: Tensor  # (B,)

    @property
    def may_be_empty(self) -> bool:
        return True

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k < self.lengths[b]


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """Records packed into one row do not attend to each other: segments (B, S) numbers them,
    padding being a segment, too.
    """

    segments: Tensor

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.segments[b, q] == self.segments[b, k]


@dataclass(frozen=True, eq=False)
class Across(Mask):
    """Targets attend to the source with the same segment number; segments are (B, T) and (B, S).

    Without target segments each row has one target, of source number 1. Padding attends to nothing.
    """

    targets: Tensor | None
    sources: Tensor

    @property
    def may_be_empty(self) -> bool:
        return True

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        source = self.sources[b, k]
        if self.targets is None:
            return (source == 1) & (q == q)
        target = self.targets[b, q]
        return (source == target) & (target > 0)


@dataclass(frozen=True, eq=False)
class Both(Mask):
    """What two masks both allow."""

    first: Mask
    second: Mask

    @property
    def may_be_empty(self) -> bool:
        return self.first.may_be_empty or self.second.may_be_empty

    @property
    def row_independent(self) -> bool:
        return self.first.row_independent and self.second.row_independent

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.first.rule(b, h, q, k) & self.second.rule(b, h, q, k)


@dataclass(frozen=True, eq=False)
class Shifted(Mask):
    """Another mask for queries that stand `start` positions later."""

    mask: Mask
    start: int | Tensor

    @property
    def may_be_empty(self) -> bool:
        return self.mask.may_be_empty

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        start = self.start if isinstance(self.start, int) else self.start[b]
        return self.mask.rule(b, h, q + start, k)

    def is_causal(self, n_queries: int, n_keys: int) -> bool:
        start = self.start
        return isinstance(start, int) and start == 0 and self.mask.is_causal(n_queries, n_keys)


@dataclass(frozen=True, eq=False)
class Rendered(Mask):
    """A mask that is already a tensor (B, 1, T, S)."""

    allowed: Tensor
    empty_rows: bool

    @property
    def may_be_empty(self) -> bool:
        return self.empty_rows

    def rule(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.allowed[b, 0, q, k]

    def tensor(self, batch: int, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        return self.allowed

    def for_first(self, n_queries: int) -> Mask:
        return Rendered(self.allowed[:, :, :n_queries], self.empty_rows)
