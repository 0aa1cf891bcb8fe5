"""A block: mix positions, then transform each, each part with a residual connection and a norm.

Pre-norm, x + part(norm(x)), trains without warm-up tricks (Xiong et al. 2020, arXiv:2002.04745);
post-norm, norm(x + part(x)), is the 2017 paper's. Any mixer with `forward(x, place, state, tap)`
and `new_state` fits.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.layers.attention import Place
from regard.layers.dropout import dropout
from regard.layers.state import LayerState
from regard.layers.tap import Tap


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
    ) -> None:
        super().__init__()
        self.mixer, self.mixer_norm = mixer, norm()
        self.feedforward, self.feedforward_norm = feedforward, norm()
        self.post_norm, self.dropout = post_norm, dropout

    def forward(
        self, x: Tensor, place: Place, state: LayerState | None = None, tap: Tap | None = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        inner = None if tap is None else tap.at("attention")
        if self.post_norm:
            x = self.mixer_norm(x + self.drop(self.mixer(x, place, state, inner)))
            x = self.feedforward_norm(x + self.drop(self.feedforward(x)))
        else:
            x = x + self.drop(self.mixer(self.mixer_norm(x), place, state, inner))
            x = x + self.drop(self.feedforward(self.feedforward_norm(x)))
        if tap is not None:
            tap("output", x)
        return x

    def drop(self, x: Tensor) -> Tensor:
        """Dropout on a part's output, before it joins the residual stream."""
        return dropout(x, self.dropout, self.training)
