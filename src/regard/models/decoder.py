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

from regard.layers.masks import Causal, Documents, Mask, Window
from regard.layers.positions import Where, positions_in
from regard.layers.state import Memory, State
from regard.layers.tap import Tap
from regard.models.language_model import NeuralLanguageModel
from regard.models.stack import Stack, StackConfig, initialise

DecoderConfig = StackConfig  # a decoder says nothing more of itself


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


class Decoder(NeuralLanguageModel, Stack):
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

    def __init__(self, vocab_size: int, config: DecoderConfig, *, cross: bool = False) -> None:
        super().__init__(vocab_size, config)
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
        memory: Sequence[Memory] | None = None,
    ) -> Tensor:
        """See NeuralLanguageModel; `memory` is what each block looks at, in a translator."""
        length = ids.size(1)
        where: Where = range(length) if segments is None else positions_in(segments)
        mask = self.mask()
        if segments is not None:
            mask = (mask & Documents(segments)).rendered(len(ids), length, length, ids.device)
        place = self.place(where, where, mask, end=length, device=ids.device)
        return self.run(self.embed(ids, where, length), place, None, tap, memory)

    def mask(self) -> Mask:
        """Who sees whom, packing aside."""
        return Causal() & Window(self.config.window) if self.config.window else Causal()

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
        x = self.run(self.embed(ids, where, end), place, state, None, state.memory)
        state.advance(lengths, width)
        if lengths is None:
            last = x[:, -1]  # (B, D)
        else:
            last = x[torch.arange(x.size(0), device=x.device), lengths - 1]
        return self.head(last)  # type: ignore[no-any-return]  # (B, V)
