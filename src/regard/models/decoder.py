"""The decoder-only Transformer: embed, a stack of causal blocks, project onto the vocabulary.

Vaswani et al. 2017 (arXiv:1706.03762) without the encoder, as in GPT (Radford et al. 2018, 2019).
Presets: `modern` (RMSNorm, rotary, SwiGLU, QK-norm: Hugging Face's Qwen3), `llama`, `gpt2`, and
`vaswani`, the 2017 decoder (post-norm, sinusoidal, ReLU).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import AttentionContext, MaskAndBias, Tap
from regard.layers.cache import CrossKV, DecodeState, last_of
from regard.layers.masks import Causal
from regard.layers.positions import Where, as_tensor
from regard.layers.windowed_attention import RollingKVCache, WindowedAttention, cached_mask
from regard.models.language_model import NeuralLanguageModel
from regard.models.transformer import TransformerConfig, TransformerStack, initialise

DecoderConfig = TransformerConfig  # a decoder says nothing more of itself


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


class Decoder(NeuralLanguageModel, TransformerStack):
    """A causal Transformer language model."""

    Config = DecoderConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern,
        "llama": llama,
        "gpt2": gpt2,
        "vaswani": vaswani,
    }
    static_shapes = True

    def __init__(self, vocab_size: int, config: DecoderConfig, *, cross: bool = False) -> None:
        super().__init__(vocab_size, config)
        self.supports_packing = config.supports_packing
        self.build(vocab_size, config, cross=cross)
        self.head = nn.Linear(config.d_model, vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        initialise(self)

    def hidden(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        *,
        tap: Tap | None = None,
        memory: Sequence[CrossKV] | None = None,
    ) -> Tensor:
        """See NeuralLanguageModel; `memory` is what each block looks at, in a translator."""
        if segments is not None and not self.supports_packing:
            raise ValueError(
                f"mixers {sorted(set(self.config.kinds))} cannot keep packed records apart; use "
                "length buckets"
            )
        place, where = self.place(ids, segments, whole=tap is not None)
        return self.run(self.embed(ids, where, ids.size(1)), place, None, tap, memory)

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel."""
        like = self.embedding.weight
        return DecodeState(
            [block.mixer.new_state(batch, capacity, like) for block in self.blocks],  # type: ignore[union-attr, operator]
            batch,
            capacity,
        )

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        place, where = self.cached_place(ids, lengths, state)
        x = self.run(self.embed(ids, where, place.end), place, state, None, state.memory)
        state.advance(lengths, ids.size(1))
        return self.head(last_of(x, lengths))  # type: ignore[no-any-return]  # (B, V)

    def cached_place(
        self, ids: Tensor, lengths: Tensor | None, state: DecodeState
    ) -> tuple[AttentionContext, Where]:
        """What every block needs to know about (B, T) ids after those of a state, and where they
        stand.
        """
        (batch, width), device, kinds = ids.shape, ids.device, self.config.kinds
        start, end = state.length, state.end(width)
        where: Where
        mask, bias, near = None, None, None
        if isinstance(start, int):
            where = range(start, end)
            self.check_length(end)
        else:
            where = start[:, None] + torch.arange(width, device=device)  # (B, T)
        if "attention" in kinds:
            if isinstance(start, int):
                mask = None if width == 1 else Causal().shifted(start)  # one query sees all
            else:
                mask = Causal().shifted(start).rendered(batch, width, end, device)
            if self.biased:
                bias = self.bias_of(as_tensor(where, device), torch.arange(end, device=device))
        if "window" in kinds:
            near = self.cached_near(where, ids, lengths, end, state)
        places = where.start if isinstance(where, range) else where
        until = state.after(lengths, width) if "hyena" in kinds else end
        rotation = self.positions.rotation(where)
        place = AttentionContext(
            mask, rotation, bias, near, None, places, end, lengths, state.longest, until
        )
        return place, where

    def cached_near(
        self, where: Where, ids: Tensor, lengths: Tensor | None, end: int, state: DecodeState
    ) -> MaskAndBias:
        """What windowed layers see of their caches, and of the tokens that come."""
        step = ids.size(1) == 1 and lengths is None
        if isinstance(where, range) and not where.start and not step:  # nothing was read before
            at = as_tensor(where, ids.device) if self.biased else None
            return self.near(None, at, 1, ids.size(1), ids.device, whole=False)
        number = self.config.kinds.index("window")
        layer, cache = self.blocks[number].mixer, state.layers[number]
        assert isinstance(layer, WindowedAttention) and isinstance(cache, RollingKVCache)
        bias = self.bias_of if self.biased else None
        return cached_mask(layer, cache, where, end, bias, ids.device, step=step)
