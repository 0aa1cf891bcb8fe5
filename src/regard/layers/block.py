"""A block: a mixer, then a feed-forward network, each with a residual connection and a norm.

Pre-norm, x + part(norm(x)), trains without warm-up tricks (Xiong et al. 2020, arXiv:2002.04745);
post-norm, norm(x + part(x)), is that of Vaswani et al. 2017. The decoder of an encoder-decoder has
cross-attention in between.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.layers.attention import AttentionContext, CrossAttention
from regard.layers.cache import CrossKV, LayerState
from regard.layers.feedforward import dropout
from regard.layers.tap import Tap, tapped


class Block(nn.Module):
    """One layer of a stack."""

    def __init__(
        self,
        mixer: nn.Module,
        feedforward: nn.Module,
        norm: Callable[[], nn.Module],
        *,
        post_norm: bool,
        dropout: float,
        cross: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        self.mixer, self.mixer_norm = mixer, norm()
        self.cross, self.cross_norm = cross, norm() if cross is not None else None
        self.feedforward, self.feedforward_norm = feedforward, norm()
        self.post_norm, self.dropout = post_norm, dropout

    def forward(
        self,
        x: Tensor,
        context: AttentionContext,
        state: LayerState | None = None,
        tap: Tap | None = None,
        memory: CrossKV | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D), or to the first positions where the context asks for these alone;
        cross-attention attends to `memory`.
        """
        inner = None if tap is None else tap.at("attention")
        x = self.part(x, self.mixer_norm, lambda y: self.mixer(y, context, state, inner), inner)
        x = tapped(inner, "residual", x)
        if self.cross is not None and memory is not None:
            cross, inner = self.cross, None if tap is None else tap.at("cross")
            x = self.part(x, self.cross_norm, lambda y: cross(y, memory, tap=inner), inner)
            x = tapped(inner, "residual", x)
        inner = None if tap is None else tap.at("feedforward")
        x = self.part(x, self.feedforward_norm, lambda y: self.feedforward(y, inner), inner)
        x = tapped(tap, "output", x)
        return x

    def part(
        self,
        x: Tensor,
        norm: nn.Module | None,
        part: Callable[[Tensor], Tensor],
        tap: Tap | None,
    ) -> Tensor:
        """Apply one part with its residual connection, norm and dropout."""
        assert norm is not None
        y = part(x if self.post_norm else tapped(tap, "norm", norm(x)))
        y = dropout(tapped(tap, "output", y), self.dropout, self.training)
        if y.size(1) != x.size(1):  # the first positions alone
            x = x[:, : y.size(1)]
        return tapped(tap, "norm", norm(x + y)) if self.post_norm else x + y
