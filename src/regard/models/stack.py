"""A stack of blocks over tokens: what the encoder and the decoder of a Transformer share.

Embed, add positions, send through the blocks. Where we differ from Vaswani et al. 2017
(arXiv:1706.03762): dropout acts on embeddings and on the output of each part, not on attention
weights, so that the fused kernel stays usable; queries, keys and values are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention import CrossAttention, Place, SelfAttention
from regard.layers.block import Block
from regard.layers.dropout import dropout
from regard.layers.feedforward import FEEDFORWARDS, make_feedforward
from regard.layers.masks import Mask
from regard.layers.norms import NORMS, make_norm
from regard.layers.positions import POSITIONS, Positions, Where, as_tensor, make_positions
from regard.layers.scores import SCORES
from regard.layers.state import Memory, State
from regard.layers.tap import Tap


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Shape and parts of a stack."""

    n_layers: int = 4
    d_model: int = 128
    n_heads: int = 4
    n_kv_heads: int = 4  # fewer than n_heads: grouped key-value heads
    d_head: int = 32
    d_ff: int = 384
    max_len: int = 256
    dropout: float = 0.0
    norm: str = "rms"
    norm_eps: float = 1e-6
    post_norm: bool = False
    positions: str = "rotary"
    theta: float = 10_000.0  # base of the rotary angles
    feedforward: str = "swiglu"
    bias: bool = False  # biases in linear layers
    qk_norm: bool = True
    tied: bool = False  # one matrix embeds and projects
    scale_embedding: bool = False  # times sqrt(d_model), as in 2017
    score: str = "scaled_dot"
    projections: str = "learned"
    window: int = 0  # 0 sees all of the past; r sees itself and r - 1 before

    def __post_init__(self) -> None:
        limits = {"n_layers": 1_000, "d_model": 1 << 16, "n_heads": 1 << 12, "d_head": 1 << 12}
        limits |= {"n_kv_heads": 1 << 12, "d_ff": 1 << 20, "max_len": 1 << 22}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads, got n_heads={self.n_heads} and "
                f"n_kv_heads={self.n_kv_heads}"
            )
        choices = {"norm": NORMS, "positions": POSITIONS, "feedforward": FEEDFORWARDS}
        choices |= {"score": SCORES, "projections": ("learned", "identity")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.window < 0:
            raise ValueError(f"window must be 0 (off) or positive, got {self.window}")

    @property
    def never_padded(self) -> bool:
        """Are all sequences of training of one length, so that nothing has to be masked?"""
        return False

    def make_stem(self, vocab_size: int) -> nn.Module:
        """What makes vectors of tokens: here, of one of V ids."""
        return nn.Embedding(vocab_size, self.d_model)

    def make_positions(self) -> Positions:
        """How order is put in."""
        return make_positions(
            self.positions,
            d_model=self.d_model,
            d_head=self.d_head,
            n_heads=self.n_heads,
            max_len=self.max_len,
            theta=self.theta,
        )


class Stack(nn.Module):
    """Embedding, positions and blocks, to be built by the class that inherits them."""

    config: StackConfig

    def build(self, vocab_size: int, config: StackConfig, *, cross: bool = False) -> None:
        """Make the parts; with `cross`, every block also looks at a memory."""
        c = self.config = config
        self.embedding: Any = c.make_stem(vocab_size)
        self.positions = c.make_positions()
        self.blocks = nn.ModuleList(self._block(cross) for _ in range(c.n_layers))
        self.norm = nn.Identity() if c.post_norm else self._norm()

    def _norm(self) -> nn.Module:
        return make_norm(
            self.config.norm, self.config.d_model, self.config.norm_eps, self.config.bias
        )

    def _block(self, cross: bool) -> Block:
        c = self.config
        mixer = SelfAttention(
            c.d_model,
            c.n_heads,
            n_kv_heads=c.n_kv_heads,
            d_head=c.d_head,
            bias=c.bias,
            qk_norm_eps=c.norm_eps if c.qk_norm else 0.0,
            score=c.score,
            projections=c.projections,
        )
        looks = CrossAttention(c.d_model, c.n_heads, bias=c.bias, score=c.score) if cross else None
        feedforward = make_feedforward(c.feedforward, c.d_model, c.d_ff, bias=c.bias)
        return Block(
            mixer, feedforward, self._norm, post_norm=c.post_norm, dropout=c.dropout, cross=looks
        )

    def place(
        self,
        queries: Where,
        keys: Where,
        mask: Mask | None,
        *,
        end: int,
        device: torch.device,
    ) -> Place:
        """What every block needs to know about these positions."""
        most = self.positions.max_len
        if most is not None and end > most and isinstance(queries, range):
            raise ValueError(
                f"positions = {self.config.positions!r} tells at most {most} positions apart, "
                f"the input has {end}; shorten it or train with a larger max_len"
            )
        bias = None
        if self.config.positions in ("t5", "alibi"):
            bias = self.positions.bias(as_tensor(queries, device), as_tensor(keys, device))
        places = queries.start if isinstance(queries, range) else queries
        return Place(mask, self.positions.rotation(queries), bias, places, end)

    def embed(self, ids: Tensor, where: Where, end: int) -> Tensor:
        """(B, T) ids, or (B, T, V) numbers, at these positions, all below `end`, to (B, T, D)."""
        x = self.embedding(ids)  # (B, T, D)
        if self.config.scale_embedding:
            x = x * self.config.d_model**0.5
        return self.positions.add(x, where, end)

    def run(
        self,
        x: Tensor,
        place: Place,
        state: State | None,
        tap: Tap | None,
        memory: Sequence[Memory] | None = None,
    ) -> Tensor:
        """Send embedded tokens (B, T, D) through the stack. `memory` is what each block looks at,
        if they do.
        """
        if torch.is_autocast_enabled(x.device.type):  # the residual stream too, not products alone
            x = x.to(torch.get_autocast_dtype(x.device.type))
        x = dropout(x, self.config.dropout, self.training)
        if tap is not None:
            tap("embedding", x)
        for i, block in enumerate(self.blocks):
            inner = None if tap is None else tap.at("block").at(i)
            own = None if state is None else state.layers[i]
            x = block(x, place, own, inner, None if memory is None else memory[i])
        return self.norm(x)  # type: ignore[no-any-return]


def initialise(model: Stack) -> None:
    """Every initial value of a stack, and of a `head` if it has one, in one place.

    | parameter | drawn from |
    |---|---|
    | linear weights | normal, std 1 / sqrt(fan in) |
    | those that write to the residual stream | divided by sqrt(2 · n_layers) (Radford 2019) |
    | embedding | normal, std 1; std 1 / sqrt(d_model) where it is tied; a stem's are linear |
    | learned positions, T5 biases | normal, std 0.02 |
    | head | normal, std 0.5 / sqrt(d_model) unless tied |
    | biases | 0 |
    | norm gains | 1 |
    """
    config = model.config
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in model.blocks:
        parts = [block.mixer.out, block.feedforward.down]  # type: ignore[union-attr]
        if block.cross is not None:
            parts.append(block.cross.out)  # type: ignore[union-attr]
        for part in parts:
            if isinstance(part, nn.Linear):
                nn.init.normal_(
                    part.weight, std=part.in_features**-0.5 * (2 * config.n_layers) ** -0.5
                )
    for module in model.positions.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    if isinstance(model.embedding, nn.Embedding):
        nn.init.normal_(model.embedding.weight, std=config.d_model**-0.5 if config.tied else 1.0)
    head: Any = getattr(model, "head", None)
    if head is not None and not config.tied:
        nn.init.normal_(head.weight, std=0.5 * config.d_model**-0.5)
