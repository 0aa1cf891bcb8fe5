"""The decoder-only Transformer: embed, a stack of causal blocks, project onto the vocabulary.

Vaswani et al. 2017 (arXiv:1706.03762) without the encoder, as in GPT (Radford et al. 2018, 2019).
Presets: `modern` (RMSNorm, rotary, SwiGLU, QK-norm: Hugging Face's Qwen3), `llama`, `gpt2`, and
`vaswani`, the 2017 decoder (post-norm, sinusoidal, ReLU). Where we differ: dropout acts on
embeddings and on the output of each part, not on attention weights, so that the fused kernel stays
usable; queries, keys and values are one product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import Place, SelfAttention
from regard.layers.block import Block
from regard.layers.dropout import dropout
from regard.layers.feedforward import FEEDFORWARDS, make_feedforward
from regard.layers.masks import Causal, Documents, Mask, Window
from regard.layers.norms import NORMS, make_norm
from regard.layers.positions import POSITIONS, Where, as_tensor, make_positions, positions_in
from regard.layers.scores import SCORES
from regard.layers.state import State
from regard.layers.tap import Tap
from regard.models.language_model import NeuralLanguageModel


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Shape and parts of a decoder-only model."""

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


def heads(d_model: int) -> dict[str, Any]:
    """Heads of 64, or of 32 where the model is narrow; GPT-2 124M has 12 of 64."""
    d_head = 64 if d_model % 64 == 0 and d_model >= 256 else 32
    n_heads = max(1, d_model // d_head)
    return {"n_heads": n_heads, "n_kv_heads": n_heads, "d_head": d_model // n_heads}


def modern(n_layers: int, d_model: int) -> DecoderConfig:
    """RMSNorm, rotary, SwiGLU, QK-norm, no biases: loads as Hugging Face's Qwen3ForCausalLM."""
    # 8/3 of the width keeps SwiGLU's three matrices at the size of the usual two of 4 (Shazeer
    # 2020)
    d_ff = -(-8 * d_model // 3 // 32) * 32
    return DecoderConfig(n_layers=n_layers, d_model=d_model, d_ff=d_ff, **heads(d_model))


def llama(n_layers: int, d_model: int) -> DecoderConfig:
    """`modern` without QK-norm: LlamaForCausalLM (Touvron et al. 2023, arXiv:2302.13971)."""
    d_ff = -(-8 * d_model // 3 // 32) * 32
    return DecoderConfig(
        n_layers=n_layers,
        d_model=d_model,
        d_ff=d_ff,
        qk_norm=False,
        norm_eps=1e-5,
        **heads(d_model),
    )


def gpt2(n_layers: int, d_model: int) -> DecoderConfig:
    """Learned positions, LayerNorm, tanh-GELU, biases, tied: GPT2LMHeadModel (Radford 2019)."""
    return DecoderConfig(
        n_layers=n_layers,
        d_model=d_model,
        d_ff=4 * d_model,
        **heads(d_model),
        norm="layer",
        norm_eps=1e-5,
        positions="learned",
        feedforward="gelu",
        bias=True,
        qk_norm=False,
        tied=True,
    )


def vaswani(n_layers: int, d_model: int) -> DecoderConfig:
    """The decoder of 2017: post-norm, sinusoids, ReLU, scaled tied embeddings, dropout 0.1."""
    return DecoderConfig(
        n_layers=n_layers,
        d_model=d_model,
        d_ff=4 * d_model,
        **heads(d_model),
        dropout=0.1,
        norm="layer",
        norm_eps=1e-5,
        post_norm=True,
        positions="sinusoidal",
        feedforward="relu",
        bias=True,
        qk_norm=False,
        tied=True,
        scale_embedding=True,
    )


class Decoder(NeuralLanguageModel):
    """A causal Transformer language model."""

    Config = DecoderConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern,
        "llama": llama,
        "gpt2": gpt2,
        "vaswani": vaswani,
    }
    packs = True
    steps_alike = True

    def __init__(self, vocab_size: int, config: DecoderConfig) -> None:
        super().__init__(vocab_size, config)
        c = config
        self.embedding = nn.Embedding(vocab_size, c.d_model)
        self.positions = make_positions(
            c.positions,
            d_model=c.d_model,
            d_head=c.d_head,
            n_heads=c.n_heads,
            max_len=c.max_len,
            theta=c.theta,
        )
        self.blocks = nn.ModuleList(self._block() for _ in range(c.n_layers))
        self.norm = nn.Identity() if c.post_norm else self._norm()
        self.head = nn.Linear(c.d_model, vocab_size, bias=False)
        if c.tied:
            self.head.weight = self.embedding.weight
        initialise(self)

    def _norm(self) -> nn.Module:
        return make_norm(
            self.config.norm, self.config.d_model, self.config.norm_eps, self.config.bias
        )

    def _block(self) -> Block:
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
        feedforward = make_feedforward(c.feedforward, c.d_model, c.d_ff, bias=c.bias)
        return Block(mixer, feedforward, self._norm, post_norm=c.post_norm, dropout=c.dropout)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralLanguageModel."""
        length = ids.size(1)
        where: Where = range(length) if segments is None else positions_in(segments)
        mask = self.mask()
        if segments is not None:
            mask = (mask & Documents(segments)).rendered(len(ids), length, length, ids.device)
        place = self.place(where, where, mask, end=length, device=ids.device)
        return self.run(ids, where, place, None, tap)

    def mask(self) -> Mask:
        """Who sees whom, packing aside."""
        return Causal() & Window(self.config.window) if self.config.window else Causal()

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

    def run(
        self, ids: Tensor, where: Where, place: Place, state: State | None, tap: Tap | None
    ) -> Tensor:
        """Embed (B, T) ids and send them through the stack: (B, T, D)."""
        x = self.embedding(ids)  # (B, T, D)
        if self.config.scale_embedding:
            x = x * self.config.d_model**0.5
        x = self.positions.add(x, where)
        if torch.is_autocast_enabled(x.device.type):  # the residual stream too, not products alone
            x = x.to(torch.get_autocast_dtype(x.device.type))
        x = dropout(x, self.config.dropout, self.training)
        if tap is not None:
            tap("embedding", x)
        for i, block in enumerate(self.blocks):
            inner = None if tap is None else tap.at("block").at(i)
            x = block(x, place, None if state is None else state.layers[i], inner)
        return self.norm(x)  # type: ignore[no-any-return]

    def start(self, batch: int, capacity: int) -> State:
        """See LanguageModel."""
        like = self.embedding.weight
        return State(
            [block.mixer.new_state(batch, capacity, like) for block in self.blocks],  # type: ignore[union-attr, operator]
            batch,
            capacity,
        )

    def extend(self, ids: Tensor, lengths: Tensor | None, state: State) -> Tensor:
        """See LanguageModel."""
        width = ids.size(1)
        state.check(width)
        start, end = state.length, state.end(width)
        where: Where
        if isinstance(start, int):
            where = range(start, end)
            alone = width == 1 and not self.config.window  # one query that sees all there is
            mask = None if alone else self.mask().shifted(start)
        else:
            where = start[:, None] + torch.arange(width, device=ids.device)  # (B, T)
            mask = self.mask().shifted(start).rendered(len(ids), width, end, ids.device)
        place = self.place(where, range(end), mask, end=end, device=ids.device)
        x = self.run(ids, where, place, state, None)
        state.advance(lengths, width)
        if lengths is None:
            last = x[:, -1]  # (B, D)
        else:
            last = x[torch.arange(x.size(0), device=x.device), lengths - 1]
        return self.head(last)  # type: ignore[no-any-return]  # (B, V)


def initialise(model: Decoder) -> None:
    """Every initial value, in one place.

    | parameter | drawn from |
    |---|---|
    | linear weights | normal, std 1 / sqrt(fan in) |
    | those that write to the residual stream | divided by sqrt(2 · n_layers) (Radford 2019) |
    | embedding | normal, std 1; std 1 / sqrt(d_model) where it is tied |
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
        for part in (block.mixer.out, block.feedforward.down):  # type: ignore[union-attr]
            if isinstance(part, nn.Linear):
                nn.init.normal_(
                    part.weight, std=part.in_features**-0.5 * (2 * config.n_layers) ** -0.5
                )
    for module in model.positions.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    nn.init.normal_(model.embedding.weight, std=config.d_model**-0.5 if config.tied else 1.0)
    if not config.tied:
        nn.init.normal_(model.head.weight, std=0.5 * config.d_model**-0.5)
