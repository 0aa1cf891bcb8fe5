"""The encoder–decoder Transformer: Vaswani et al. 2017 (arXiv:1706.03762), section 3.

Presets: `vaswani`, as in the paper (post-norm; Hugging Face's MarianMTModel), and `modern`, with
the norms before each sublayer, which trains at higher learning rates and without a long warm-up
(PegasusForConditionalGeneration). Both have sinusoidal positions, ReLU and one embedding matrix for
source, target and output, scaled by sqrt(d_model).

`Captioner` is the same model with the image encoder of models/vision.py: patches and their
positions on a plane in place of source tokens (as Vinyals et al. 2015, arXiv:1411.4555, with
Transformers for both parts). Presets: `modern` (RMSNorm, SwiGLU, rotary positions in one and two
dimensions) and `vit`, ViT's encoder and the decoder of 2017 with the norms first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regard.layers.cache import CrossKV, DecodeState
from regard.layers.embeddings import Inputs
from regard.layers.masks import Across, Mask, Rendered
from regard.layers.positions import GRID_POSITIONS
from regard.layers.tap import Tap
from regard.models import Presets, check_ranges, decoder
from regard.models.decoder import Decoder
from regard.models.encoder import Encoder
from regard.models.language_model import NeuralLanguageModel
from regard.models.seq2seq import ConditionedLM, NeuralSeq2Seq
from regard.models.transformer import TransformerConfig
from regard.models.vision import THETA, ImageSettings, VisionConfig


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """Shape and parts of both stacks; `n_layers` is the decoder's."""

    main_stack: ClassVar[str] = "decoder"  # the one with n_layers
    n_encoder_layers: int = 4
    source_vocab: int = 0  # of an encoder with a vocabulary of its own; 0: it shares the decoder's

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, n_encoder_layers=1_000)
        check_ranges(self, least=0, source_vocab=(1 << 24) - 1)

    @property
    def encoder(self) -> TransformerConfig:
        """Shape and parts of the encoder."""
        return dataclasses.replace(self, n_layers=self.n_encoder_layers)


def vaswani(n_layers: int, d_model: int) -> EncoderDecoderConfig:
    """The paper's: post-norm, sinusoids, ReLU, scaled tied embeddings, dropout 0.1."""
    settings = dataclasses.asdict(decoder.vaswani(n_layers, d_model))
    return EncoderDecoderConfig(**settings, n_encoder_layers=n_layers)


def modern(n_layers: int, d_model: int) -> EncoderDecoderConfig:
    """`vaswani` with the norms first, and one more at the end of each stack."""
    return dataclasses.replace(vaswani(n_layers, d_model), post_norm=False)


class EncoderDecoder(NeuralSeq2Seq):
    """An encoder, and a decoder that attends to its output in every block."""

    Config = EncoderDecoderConfig
    PRESETS: ClassVar[Presets] = {"modern": modern, "vaswani": vaswani}

    def __init__(self, vocab_size: int, config: EncoderDecoderConfig) -> None:
        super().__init__(vocab_size, config)
        self.supports_packing = config.supports_packing and config.encoder.supports_packing
        self.decoder = Decoder(vocab_size, config, cross=True)
        self.encoder = Encoder(config.source_vocab or vocab_size, config.encoder)
        if not config.source_vocab:
            self.encoder.embedding = self.decoder.embedding
        self.head = self.decoder.head

    def memory(self, source: Inputs, mask: Mask, tap: Tap | None = None) -> list[CrossKV]:
        """Return the keys and values of the sources for each block of the decoder."""
        encoded = self.encoder(source, tap=None if tap is None else tap.at("encoder"))
        return [block.cross.memory(encoded, mask) for block in self.decoder.blocks]  # type: ignore[union-attr, operator]

    def forward(self, ids: Tensor, segments: Tensor | None, source: Inputs) -> Tensor:
        (b, t), s = ids.shape, source.ids.size(1)
        mask = Across(segments, source.segments).rendered(b, t, s, ids.device)
        return self.decoder.hidden(ids, segments, memory=self.memory(source, mask))

    def condition(self, source: Inputs) -> ConditionedLM:
        return ConditionedDecoder(self, source)


class ConditionedDecoder(ConditionedLM, NeuralLanguageModel):
    """A decoder with the keys and values of its sources."""

    static_shapes = True

    def __init__(self, model: EncoderDecoder, source: Inputs) -> None:
        super().__init__(model)
        self.supports_packing = model.supports_packing
        self.exactly_causal = model.decoder.exactly_causal
        self.model, self.decoder, self.head = model, model.decoder, model.head
        self.segments = source.segments.clone()  # (B, S)
        self.valid = (self.segments > 0)[:, None, None]  # (B, 1, 1, S): tokens, not padding
        self.memory: Sequence[CrossKV] = [
            dataclasses.replace(layer, k=layer.k.contiguous(), v=layer.v.contiguous())
            for layer in model.memory(source, Rendered(self.valid, False))
        ]

    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        self.segments.copy_(source.segments)
        self.valid.copy_((source.segments > 0)[:, None, None])
        memory = self.model.memory(source, Rendered(self.valid, False), tap)
        for layer, new in zip(self.memory, memory, strict=True):
            layer.k.copy_(new.k)
            layer.v.copy_(new.v)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        memory = self.memory
        if segments is not None:  # targets share a row, and so do their sources
            (b, t), s = ids.shape, self.segments.size(1)
            mask = Across(segments, self.segments).rendered(b, t, s, ids.device)
            memory = [dataclasses.replace(layer, mask=mask) for layer in memory]
        return self.decoder.hidden(ids, segments, tap=tap, memory=memory)

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        """Return an empty state for `batch` sources, before any beams."""
        state = self.decoder.init_state(batch, capacity)
        state.memory = self.memory
        return state

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        return self.decoder.advance(ids, lengths, state)


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig(ImageSettings, EncoderDecoderConfig):
    """Shape and parts of both stacks; `max_len` and `positions` are those of captions."""

    image_positions: str = "rotary"  # of patches: learned, sinusoidal, rotary or none

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        EncoderDecoderConfig.__post_init__(self)
        if self.image_positions not in GRID_POSITIONS:
            allowed = ", ".join(GRID_POSITIONS)
            raise ValueError(f"image_positions are {allowed}, got {self.image_positions!r}")

    @property
    def encoder(self) -> TransformerConfig:
        """Shape and parts of the encoder: a ViT."""
        fields = (*dataclasses.fields(TransformerConfig), *dataclasses.fields(ImageSettings))
        settings = {field.name: getattr(self, field.name) for field in fields} | {
            "n_layers": self.n_encoder_layers,
            "positions": self.image_positions,
            "rope_theta": THETA,
            "tied": False,
            "scale_embedding": False,  # for ids only
        }
        return VisionConfig(**settings)


def modern_captioner(n_layers: int, d_model: int) -> CaptionerConfig:
    """RMSNorm, SwiGLU, QK-norm and rotary positions in both stacks."""
    settings = dataclasses.asdict(decoder.modern(n_layers, d_model))
    return CaptionerConfig(**settings, n_encoder_layers=n_layers)


def vit(n_layers: int, d_model: int) -> CaptionerConfig:
    """Pre-norm, GELU, learned positions of patches, sinusoids for words."""
    settings = dataclasses.asdict(decoder.vaswani(n_layers, d_model))
    settings |= {"post_norm": False, "feedforward": "gelu_exact"}
    return CaptionerConfig(**settings, n_encoder_layers=n_layers, image_positions="learned")


class Captioner(EncoderDecoder):
    """An encoder of images, and a decoder of text that attends to its output in every block."""

    Config = CaptionerConfig
    PRESETS: ClassVar[Presets] = {"modern": modern_captioner, "vit": vit}
    reads: ClassVar[str] = "patches"

    def __init__(self, vocab_size: int, config: CaptionerConfig) -> None:
        super().__init__(vocab_size, config)
        self.static_shapes = config.uniform  # otherwise augmentation needs the sizes of images
