"""A stack of blocks over tokens: what the encoder and the decoder of a Transformer share.

Embed, add positions, send through the blocks. Where we differ from Vaswani et al. 2017
(arXiv:1706.03762): dropout acts on embeddings and on the output of each part, not on attention
weights, so that the fused kernel stays usable; queries, keys and values are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention import (
    SCORES,
    AttentionContext,
    CrossAttention,
    MaskAndBias,
    SelfAttention,
    Tap,
)
from regard.layers.block import Block
from regard.layers.cache import CrossKV, DecodeState
from regard.layers.feedforward import FEEDFORWARDS, dropout, make_feedforward
from regard.layers.hyena import Hyena
from regard.layers.linear_attention import LinearAttention
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
from regard.layers.sliding_window import NARROWEST, Blocks, banded
from regard.layers.windowed_attention import WindowedAttention

MIXERS = ("attention", "window", "linear", "hyena")


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
    theta: float = 10_000.0  # base of the rotary angles
    feedforward: str = "swiglu"
    bias: bool = False  # biases in linear layers
    qk_norm: bool = True
    tied: bool = False  # one matrix embeds and projects
    scale_embedding: bool = False  # times sqrt(d_model), as in 2017
    score: str = "scaled_dot"
    projections: str = "learned"
    window: int = 0  # 0 sees all of the past; r sees itself and r - 1 before
    first_seen: int = 0  # positions that windows see wherever they are
    mixers: tuple[str, ...] = ()  # of the layers, from the first, over and over; empty: attention
    order: int = 2  # of Hyena: how many gates; one long convolution less

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
        self._check_mixers()

    def _check_mixers(self) -> None:
        for name in self.mixers:
            if name not in MIXERS:
                raise ValueError(f"mixers must be of {', '.join(MIXERS)}, got {name!r}")
        if "window" in self.mixers and not self.window:
            raise ValueError("window must be positive where mixers has 'window', got 0")
        if self.window and self.mixers and "window" not in self.mixers:
            raise ValueError(f"window = {self.window} needs 'window' among the mixers")
        if not 0 <= self.first_seen <= 1 << 12 or (self.first_seen and not self.window):
            raise ValueError(
                f"first_seen must be from 0 to {1 << 12}, and 0 without a window, got "
                f"{self.first_seen}"
            )
        if not 2 <= self.order <= 8:
            raise ValueError(f"order must be from 2 to 8, got {self.order}")
        if self.score != "scaled_dot" and "linear" in self.mixers:
            raise ValueError(f"score must be scaled_dot beside linear layers, got {self.score!r}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The mixer of each layer."""
        given = self.mixers or ("window" if self.window else "attention",)
        return tuple(given[i % len(given)] for i in range(self.n_layers))

    @property
    def limited(self) -> bool:
        """Is more than max_len, while decoding, further than anything learned? Filters of Hyena
        fade out with the distance; positions and what looks at them do not.
        """
        return self.positions != "none" or set(self.kinds) != {"hyena"}

    @property
    def supports_packing(self) -> bool:
        """May several records share a row? Masks keep them apart, where all mixers have one; the
        first positions seen by all would be those of the row.
        """
        return not {"linear", "hyena"} & set(self.kinds) and not self.first_seen

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


class TransformerStack(nn.Module):
    """Embedding, positions and blocks, to be built by the class that inherits them."""

    config: TransformerConfig

    def build(
        self,
        vocab_size: int,
        config: TransformerConfig,
        *,
        cross: bool = False,
        causal: bool = True,
    ) -> None:
        """Make the parts; with `cross`, every block also looks at a memory, and those that are not
        `causal` see what comes after them.
        """
        c = self.config = config
        self.causal = causal
        self.embedding: Any = c.make_stem(vocab_size)
        self.positions = c.make_positions()
        self.blocks = nn.ModuleList(self._block(kind, cross) for kind in c.kinds)
        self.norm = nn.Identity() if c.post_norm else self._norm()

    def _norm(self) -> nn.Module:
        return make_norm(
            self.config.norm, self.config.d_model, self.config.norm_eps, self.config.bias
        )

    def _mixer(self, kind: str) -> nn.Module:
        c = self.config
        if kind == "hyena":
            return Hyena(
                c.d_model, order=c.order, max_len=c.max_len, bias=c.bias, causal=self.causal
            )
        options: dict[str, Any] = {
            "n_kv_heads": c.n_kv_heads,
            "d_head": c.d_head,
            "bias": c.bias,
            "qk_norm_eps": c.norm_eps if c.qk_norm else 0.0,
            "score": c.score,
            "projections": c.projections,
        }
        if kind == "linear":
            return LinearAttention(c.d_model, c.n_heads, causal=self.causal, **options)
        if kind == "window":
            return WindowedAttention(
                c.d_model, c.n_heads, width=c.window, first=c.first_seen, **options
            )
        return SelfAttention(c.d_model, c.n_heads, **options)

    def _block(self, kind: str, cross: bool) -> Block:
        c = self.config
        looks = CrossAttention(c.d_model, c.n_heads, bias=c.bias, score=c.score) if cross else None
        feedforward = make_feedforward(c.feedforward, c.d_model, c.d_ff, bias=c.bias)
        return Block(
            self._mixer(kind),
            feedforward,
            self._norm,
            post_norm=c.post_norm,
            dropout=c.dropout,
            cross=looks,
        )

    def mask(self, kind: str, segments: Tensor | None = None) -> Mask | None:
        """Who sees whom in layers of this kind; None: all see all."""
        parts: list[Mask] = [Causal()] if self.causal else []
        if segments is not None:
            parts.append(Documents(segments))
        if kind == "window":
            parts.append(Window(self.config.window, self.config.first_seen))
        return reduce(and_, parts) if parts else None

    def check_length(self, end: int) -> None:
        """Refuse more positions than the scheme can tell apart."""
        most = self.positions.max_len
        if most is not None and end > most:
            raise ValueError(
                f"positions = {self.config.positions!r} tells at most {most} positions apart, "
                f"the input has {end}; shorten it or train with a larger max_len"
            )

    def bias_of(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What positions (..., T) and (..., S) add to the scores."""
        return self.positions.bias(queries, keys) if self.biased else None

    @property
    def biased(self) -> bool:
        """Do positions add something to the scores?"""
        return self.positions.biased

    def place(
        self, ids: Tensor, segments: Tensor | None, *, whole: bool, where: Where | None = None
    ) -> tuple[AttentionContext, Where]:
        """What every block needs to know about whole sequences (B, T), and their positions, unless
        they say `where` they are. `segments` numbers the records of a row, 0 being padding. With
        `whole`, masks are for all pairs of positions, as the explicit path needs them.
        """
        (batch, length), device, kinds = ids.shape[:2], ids.device, self.config.kinds
        if where is None:
            where = range(length) if segments is None else positions_in(segments)
            if segments is None:
                self.check_length(length)
        at = as_tensor(where, device) if self.biased else None
        mask, bias, near = None, None, None
        if "attention" in kinds:
            mask = self.mask("attention", segments)
            if mask is not None and segments is not None:
                mask = mask.rendered(batch, length, length, device)
            bias = None if at is None else self.bias_of(at, at)
        if "window" in kinds:
            near = self.near(segments, at, batch, length, device, whole=whole)
        there = None if segments is None or self.causal else segments > 0
        rotation = self.positions.rotation(where)
        return AttentionContext(
            mask, rotation, bias, near, there, 0, length, None, 0, length
        ), where

    def near(
        self,
        segments: Tensor | None,
        at: Tensor | None,
        batch: int,
        length: int,
        device: torch.device,
        *,
        whole: bool,
    ) -> MaskAndBias:
        """The mask and bias of windowed layers, in bands where that saves work."""
        c, mask = self.config, self.mask("window", segments)
        assert mask is not None
        own = batch if segments is not None else 1
        band = None
        if not whole and c.score == "scaled_dot":
            band = banded(
                mask,
                width=c.window,
                first=c.first_seen,
                ahead=not self.causal,
                batch=own,
                length=length,
                device=device,
                flexible=at is None and c.d_head >= NARROWEST,
            )
        if band is None:
            full = mask.rendered(own, length, length, device)
            return MaskAndBias(full, None if at is None else self.bias_of(at, at))
        if at is None:
            return MaskAndBias(band)
        assert isinstance(band, Blocks)
        cut = band.layout
        if cut.first:
            band.top = self.bias_of(at[..., : cut.first], at)
        queries, keys = (turn(at[..., None])[..., 0] for turn in (cut.queries, cut.keys))
        return MaskAndBias(band, self.bias_of(queries, keys))

    def embed(self, ids: Tensor, where: Where, end: int) -> Tensor:
        """(B, T) ids, or (B, T, V) numbers, at these positions, all below `end`, to (B, T, D)."""
        x = self.embedding(ids)  # (B, T, D)
        if self.config.scale_embedding:
            x = x * self.config.d_model**0.5
        return self.positions.add(x, where, end)

    def run(
        self,
        x: Tensor,
        place: AttentionContext,
        state: DecodeState | None,
        tap: Tap | None,
        memory: Sequence[CrossKV] | None = None,
        *,
        asked: int = 0,
    ) -> Tensor:
        """Send embedded tokens (B, T, D) through the stack. `memory` is what each block looks at,
        if they do. Where no more than the first positions are `asked` for, the last block, which
        must be attention, computes no others.
        """
        if torch.is_autocast_enabled(x.device.type):  # the residual stream too, not products alone
            x = x.to(torch.get_autocast_dtype(x.device.type))
        x = dropout(x, self.config.dropout, self.training)
        if tap is not None:
            tap("embedding", x)
        for i, block in enumerate(self.blocks):
            inner = None if tap is None else tap.at("block").at(i)
            own = None if state is None else state.layers[i]
            if asked and i == len(self.blocks) - 1:
                place = place.for_first(asked)
            x = block(x, place, own, inner, None if memory is None else memory[i])
        return self.norm(x)  # type: ignore[no-any-return]


def initialise(model: TransformerStack) -> None:
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
        if isinstance(block.mixer, Hyena):
            block.mixer.reset()
    for module in model.positions.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    if isinstance(model.embedding, nn.Embedding):
        nn.init.normal_(model.embedding.weight, std=config.d_model**-0.5 if config.tied else 1.0)
    head: Any = getattr(model, "head", None)
    if head is not None and not config.tied:
        nn.init.normal_(head.weight, std=0.5 * config.d_model**-0.5)
