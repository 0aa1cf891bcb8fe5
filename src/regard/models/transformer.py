"""The stack of blocks that the encoder and the decoder of a Transformer share.

Embed tokens, add positions, apply the blocks: Vaswani et al. 2017 (arXiv:1706.03762), section 3.
Where we differ: dropout acts on embeddings and on the output of each sublayer, not on attention
weights, so that the fused kernel can be used; queries, keys and values are one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers import MIXERS, Mixer, find_mixer
from regard.layers.attention import SCORES, AttentionContext, CrossAttention, MaskAndBias
from regard.layers.block import Block
from regard.layers.cache import CrossKV, DecodeState
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import FEEDFORWARDS, dropout, make_feedforward
from regard.layers.masks import Causal, Documents, Mask, Window
from regard.layers.norms import NORMS, make_norm
from regard.layers.positions import (
    POSITIONS,
    Positions,
    Where,
    as_tensor,
    make_positions,
    positions_in,
)
from regard.layers.sliding_window import MIN_FLEX_HEAD, make_band
from regard.layers.tap import Tap, tapped
from regard.models import check_choices, check_dropout, check_ranges


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
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
    rope_theta: float = 10_000.0  # base of the rotary angles
    feedforward: str = "swiglu"
    bias: bool = False  # biases in linear layers
    qk_norm: bool = True
    tied: bool = False  # one matrix embeds and projects
    scale_embedding: bool = False  # times sqrt(d_model), as in 2017
    score: str = "scaled_dot"
    projections: str = "learned"
    window: int = 0  # 0: attend to all of the past; r: to the position itself and r - 1 before
    global_tokens: int = 0  # leading positions that every window includes
    mixers: tuple[str, ...] = ()  # of the layers, repeated in order; empty: attention
    order: int = 2  # of Hyena: the number of gates; it has one long convolution fewer

    def __post_init__(self) -> None:
        check_ranges(self, n_layers=1_000, d_model=1 << 16, n_heads=1 << 12, d_head=1 << 12)
        check_ranges(self, n_kv_heads=1 << 12, d_ff=1 << 20, max_len=1 << 22)
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads, got n_heads={self.n_heads} and "
                f"n_kv_heads={self.n_kv_heads}; give both"
            )
        check_choices(self, norm=NORMS, positions=POSITIONS, feedforward=FEEDFORWARDS)
        check_choices(self, score=SCORES, projections=("learned", "identity"))
        check_dropout(self)
        if self.window < 0:
            raise ValueError(f"window must be 0 (off) or positive, got {self.window}")
        self._check_mixers()

    def _check_mixers(self) -> None:
        for name in self.mixers:
            if name not in MIXERS:
                raise ValueError(f"mixers must be of {', '.join(MIXERS)}, got {name!r}")
        classes = [find_mixer(name) for name in self.mixers]
        for mixer in classes:
            mixer.check_config(self)
        if self.window and classes and not any(mixer.uses_window for mixer in classes):
            raise ValueError(f"window = {self.window} needs 'window' among the mixers")
        if not 0 <= self.global_tokens <= 1 << 12 or (self.global_tokens and not self.window):
            raise ValueError(
                f"global_tokens must be from 0 to {1 << 12}, and 0 without a window, got "
                f"{self.global_tokens}"
            )
        check_ranges(self, least=2, order=8)

    @property
    def layer_mixers(self) -> tuple[str, ...]:
        """The name of each layer's mixer."""
        mixers = self.mixers or ("window" if self.window else "attention",)
        return tuple(mixers[i % len(mixers)] for i in range(self.n_layers))

    @property
    def mixer_classes(self) -> list[type[Mixer]]:
        """The class of each layer's mixer."""
        return [find_mixer(name) for name in self.layer_mixers]

    @property
    def extrapolates(self) -> bool:
        """Whether positions and mixers are defined beyond the lengths of training."""
        return self.positions == "none" and all(m.extrapolates for m in self.mixer_classes)

    @property
    def supports_packing(self) -> bool:
        """Whether records may share a row: no position may be visible to all of it."""
        packable = all(mixer.supports_packing for mixer in self.mixer_classes)
        return packable and not self.global_tokens

    @property
    def never_padded(self) -> bool:
        """Whether all training sequences have one length, so that no padding has to be masked."""
        return False

    def make_embedding(self, vocab_size: int) -> nn.Module:
        return TokenEmbedding(vocab_size, self.d_model)

    def make_type_embedding(self) -> nn.Embedding | None:
        """Return the embedding of sentence types, for encoders that have one."""
        return None

    def make_embedding_norm(self) -> nn.Module | None:
        """Return the norm after the embeddings, for encoders that have one."""
        return None

    def make_norm(self) -> nn.Module:
        return make_norm(self.norm, self.d_model, self.norm_eps, self.bias)

    def make_positions(self) -> Positions:
        return make_positions(
            self.positions,
            d_model=self.d_model,
            d_head=self.d_head,
            n_heads=self.n_heads,
            max_len=self.max_len,
            theta=self.rope_theta,
        )


class TokenEmbedding(nn.Embedding):
    """An embedding of ids, whose positions are their order in the sequence."""

    def where(self, source: Inputs) -> None:
        """Return None: ids have no coordinates of their own, unlike patches and points."""


class TransformerStack(nn.Module):
    """Embedding, positions and blocks; a base class, which calls `build`."""

    config: TransformerConfig

    def build(
        self,
        vocab_size: int,
        config: TransformerConfig,
        *,
        cross: bool = False,
        causal: bool = True,
    ) -> None:
        """Create the layers; with `cross`, every block also attends to an encoder's output."""
        self.config, self.causal = config, causal
        self.embedding: Any = config.make_embedding(vocab_size)
        self.positions = config.make_positions()
        mixers = config.mixer_classes
        self.uses_mask = any(mixer.uses_mask for mixer in mixers)
        self.uses_window = any(mixer.uses_window for mixer in mixers)
        self.uses_longest = any(mixer.uses_longest for mixer in mixers)
        self.blocks = nn.ModuleList(self._block(mixer, cross) for mixer in mixers)
        self.norm = nn.Identity() if config.post_norm else config.make_norm()

    def _block(self, mixer: type[Mixer], cross: bool) -> Block:
        c = self.config
        attention = None
        if cross:
            attention = CrossAttention(c.d_model, c.n_heads, bias=c.bias, score=c.score)
        feedforward = make_feedforward(c.feedforward, c.d_model, c.d_ff, bias=c.bias)
        return Block(
            mixer.from_config(c, causal=self.causal),
            feedforward,
            c.make_norm,
            post_norm=c.post_norm,
            dropout=c.dropout,
            cross=attention,
        )

    def mask(self, segments: Tensor | None = None, *, windowed: bool = False) -> Mask | None:
        """Return the attention mask of layers with or without a window; None: all positions attend
        to all.
        """
        parts: list[Mask] = [Causal()] if self.causal else []
        if segments is not None:
            parts.append(Documents(segments))
        if windowed:
            parts.append(Window(self.config.window, self.config.global_tokens))
        return reduce(and_, parts) if parts else None

    def check_length(self, length: int) -> None:
        """Raise ValueError where the positions cannot represent a sequence of this length."""
        most = self.positions.max_len
        if most is not None and length > most:
            raise ValueError(
                f"positions = {self.config.positions!r} distinguishes at most {most} positions, "
                f"the input has {length}; shorten it or train with a larger max_len"
            )

    def position_bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return what positions (..., T) and (..., S) add to the attention scores."""
        return self.positions.bias(queries, keys) if self.positions.biased else None

    def make_context(
        self, ids: Tensor, segments: Tensor | None, *, explicit: bool, where: Where | None = None
    ) -> tuple[AttentionContext, Where]:
        """Return what every block needs to know about complete sequences (B, T), and the positions
        of their tokens, which are `where` if that is given.

        `segments` numbers the records of a row, 0 being padding. With `explicit`, masks cover all
        pairs of positions, as the explicit attention path needs them.
        """
        (batch, length), device = ids.shape[:2], ids.device
        if where is None:
            where = range(length) if segments is None else positions_in(segments)
            if segments is None:
                self.check_length(length)
        indices = as_tensor(where, device) if self.positions.biased else None
        mask, bias, windowed = None, None, None
        if self.uses_mask:
            mask = self.mask(segments)
            if mask is not None and segments is not None:
                mask = mask.rendered(batch, length, length, device)
            bias = None if indices is None else self.position_bias(indices, indices)
        if self.uses_window:
            rows = batch if segments is not None else 1
            windowed = self.window_mask(segments, indices, (rows, length), device, explicit)
        context = AttentionContext(
            mask=mask,
            rotation=self.positions.rotation(where),
            bias=bias,
            windowed=windowed,
            valid=None if segments is None or self.causal else segments > 0,
            end=length,
            longest_after=length,
        )
        return context, where

    def window_mask(
        self,
        segments: Tensor | None,
        indices: Tensor | None,
        shape: tuple[int, int],
        device: torch.device,
        explicit: bool,
    ) -> MaskAndBias:
        """Return the mask and bias of windowed layers, in bands where that saves work.

        `shape` is (B, T), B being 1 where all rows have one mask; `indices` are the positions where
        these add a bias.
        """
        c, mask, (rows, length) = self.config, self.mask(segments, windowed=True), shape
        assert mask is not None
        band = None
        if not explicit and c.score == "scaled_dot":
            band = make_band(
                mask,
                width=c.window,
                first=c.global_tokens,
                ahead=not self.causal,
                batch=rows,
                length=length,
                device=device,
                flexible=indices is None and c.d_head >= MIN_FLEX_HEAD,
            )
        if band is None:
            full = mask.rendered(rows, length, length, device)
            return MaskAndBias(
                full, None if indices is None else self.position_bias(indices, indices)
            )
        if indices is None:
            return MaskAndBias(band)
        return MaskAndBias(band, band.bias(self.position_bias, indices))

    def embed(self, ids: Tensor, where: Where, end: int) -> Tensor:
        """Return (B, T, D) vectors of (B, T) ids or (B, T, V) features at positions below `end`."""
        x = self.embedding(ids)  # (B, T, D)
        if self.config.scale_embedding:
            x = x * self.config.d_model**0.5
        return self.positions.add(x, where, end)

    def run(
        self,
        x: Tensor,
        context: AttentionContext,
        state: DecodeState | None,
        tap: Tap | None,
        memory: Sequence[CrossKV] | None = None,
        *,
        n_first: int = 0,
    ) -> Tensor:
        """Apply the blocks to embedded tokens (B, T, D).

        `memory` has the keys and values for the cross-attention of each block. With `n_first`, the
        last block, which must be attention, computes only that many leading positions.
        """
        if torch.is_autocast_enabled(x.device.type):  # for the residual stream, not only products
            x = x.to(torch.get_autocast_dtype(x.device.type))
        x = dropout(x, self.config.dropout, self.training)
        x = tapped(tap, "embedding", x)
        for i, block in enumerate(self.blocks):
            inner = None if tap is None else tap.at("block").at(i)
            layer = None if state is None else state.layers[i]
            if n_first and i == len(self.blocks) - 1:
                context = context.for_first(n_first)
            x = block(x, context, layer, inner, None if memory is None else memory[i])
        return tapped(tap, "norm", self.norm(x))


def initialise(model: TransformerStack) -> None:
    """Set every initial value of a stack, and of its `head` if it has one.

    | parameter | initial value |
    |---|---|
    | linear weights | normal, std 1 / sqrt(fan in) |
    | those that write to the residual stream | divided by sqrt(2 · n_layers) (Radford 2019) |
    | embedding of ids | normal, std 1; std 1 / sqrt(d_model) where it is tied |
    | learned positions, T5 biases | normal, std 0.02 |
    | head | normal, std 0.5 / sqrt(d_model) unless tied |
    | biases | 0 |
    | norm gains | 1 |
    | filters of Hyena | see `Hyena.reset` |
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
        block.mixer.reset()  # type: ignore[union-attr, operator]
    for module in model.positions.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    if isinstance(model.embedding, nn.Embedding):
        nn.init.normal_(model.embedding.weight, std=config.d_model**-0.5 if config.tied else 1.0)
    head: Any = getattr(model, "head", None)
    if head is not None and not config.tied:
        nn.init.normal_(head.weight, std=0.5 * config.d_model**-0.5)
