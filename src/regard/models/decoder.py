"""The decoder-only Transformer: embed, a stack of causal blocks, project onto the vocabulary.

Vaswani et al. 2017 (arXiv:1706.03762) without the encoder, as in GPT (Radford et al. 2018, 2019).
Presets: `modern` (RMSNorm, rotary, SwiGLU, QK-norm: Hugging Face's Qwen3), `llama`, `gpt2`, and
`vaswani`, the 2017 decoder (post-norm, sinusoidal, ReLU).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from regard.layers.attention import AttentionContext, MaskAndBias
from regard.layers.cache import CrossKV, DecodeState, take_last
from regard.layers.masks import Causal
from regard.layers.positions import Where, as_tensor
from regard.layers.sliding_window import RollingKVCache
from regard.layers.tap import Tap
from regard.models import Presets
from regard.models.language_model import NeuralLanguageModel
from regard.models.transformer import TransformerConfig, TransformerStack, initialise

DecoderConfig = TransformerConfig  # a decoder has no settings of its own


def heads(d_model: int) -> dict[str, Any]:
    """Return heads of width 64, or 32 in narrow models; GPT-2 124M has 12 of 64."""
    d_head = 64 if d_model % 64 == 0 and d_model >= 256 else 32
    n_heads = max(1, d_model // d_head)
    return {"n_heads": n_heads, "n_kv_heads": n_heads, "d_head": d_model // n_heads}


def modern(n_layers: int, d_model: int) -> DecoderConfig:
    """RMSNorm, rotary, SwiGLU, QK-norm, no biases: loads as Hugging Face's Qwen3ForCausalLM."""
    # With 8/3 of d_model, the three matrices of SwiGLU are as large as two with 4 (Shazeer 2020).
    d_ff = -(-8 * d_model // 3 // 32) * 32
    return DecoderConfig(n_layers=n_layers, d_model=d_model, d_ff=d_ff, **heads(d_model))


def llama(n_layers: int, d_model: int) -> DecoderConfig:
    """`modern` without QK-norm: LlamaForCausalLM (Touvron et al. 2023, arXiv:2302.13971)."""
    return dataclasses.replace(modern(n_layers, d_model), qk_norm=False, norm_eps=1e-5)


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
    return dataclasses.replace(
        gpt2(n_layers, d_model),
        dropout=0.1,
        post_norm=True,
        positions="sinusoidal",
        feedforward="relu",
        scale_embedding=True,
    )


class Decoder(NeuralLanguageModel, TransformerStack):
    """A causal Transformer language model."""

    Config = DecoderConfig
    PRESETS: ClassVar[Presets] = {
        "modern": modern,
        "llama": llama,
        "gpt2": gpt2,
        "vaswani": vaswani,
    }
    static_shapes = True

    def __init__(self, vocab_size: int, config: DecoderConfig, *, cross: bool = False) -> None:
        super().__init__(vocab_size, config)
        self.supports_packing = config.supports_packing
        self.exactly_causal = all(mixer.exactly_causal for mixer in config.mixer_classes)
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
        """Return the (B, T, D) vectors that the head projects; `memory` has the keys and values of
        a source for the cross-attention of each block.
        """
        if segments is not None and not self.supports_packing:
            raise ValueError(
                f"mixers {sorted(set(self.config.layer_mixers))} cannot separate packed records; "
                "use length buckets"
            )
        context, where = self.make_context(ids, segments, explicit=tap is not None)
        return self.run(self.embed(ids, where, ids.size(1)), context, None, tap, memory)

    @property
    def max_context(self) -> int | None:
        return None if self.config.extrapolates else int(self.config.max_len)

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        like = self.embedding.weight
        layers = [block.mixer.new_state(batch, capacity, like) for block in self.blocks]  # type: ignore[union-attr, operator]
        return DecodeState(layers, batch, capacity)

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        context, where = self.make_cached_context(ids, lengths, state)
        x = self.run(self.embed(ids, where, context.end), context, state, None, state.memory)
        return take_last(x, lengths)  # (B, D)

    def make_cached_context(
        self, ids: Tensor, lengths: Tensor | None, state: DecodeState
    ) -> tuple[AttentionContext, Where]:
        """Return what every block needs to know about (B, T) ids that follow those of a state, and
        their positions.
        """
        (batch, width), device = ids.shape, ids.device
        start, end = state.length, state.end(width)
        where: Where
        mask, bias, windowed = None, None, None
        if isinstance(start, int):
            where = range(start, end)
            self.check_length(end)
        else:
            where = start[:, None] + torch.arange(width, device=device)  # (B, T)
        if self.uses_mask:
            if isinstance(start, int):
                mask = None if width == 1 else Causal().shifted(start)  # one query attends to all
            else:
                mask = Causal().shifted(start).rendered(batch, width, end, device)
            if self.positions.biased:
                keys = torch.arange(end, device=device)
                bias = self.position_bias(as_tensor(where, device), keys)
        if self.uses_window:
            windowed = self.cached_window_mask(where, ids, lengths, end, state)
        context = AttentionContext(
            mask=mask,
            rotation=self.positions.rotation(where),
            bias=bias,
            windowed=windowed,
            slots=where.start if isinstance(where, range) else where,
            end=end,
            lengths=lengths,
            longest=state.longest,
            longest_after=state.longest_after(lengths, width) if self.uses_longest else end,
        )
        return context, where

    def cached_window_mask(
        self, where: Where, ids: Tensor, lengths: Tensor | None, end: int, state: DecodeState
    ) -> MaskAndBias:
        """Return the mask and bias of windowed layers over their caches and the new tokens."""
        step, device = ids.size(1) == 1 and lengths is None, ids.device
        if isinstance(where, range) and not where.start and not step:  # the caches are empty
            indices = as_tensor(where, device) if self.positions.biased else None
            return self.window_mask(None, indices, (1, ids.size(1)), device, explicit=False)
        number = next(i for i, m in enumerate(self.config.mixer_classes) if m.uses_window)
        cache = cast(RollingKVCache, state.layers[number])
        bias = self.position_bias if self.positions.biased else None
        return cache.mask_and_bias(where, end, bias, device, step=step)
