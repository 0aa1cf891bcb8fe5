"""The Transformer of 2017: an encoder reads, a decoder speaks and looks back at what was read.

Vaswani et al. 2017 (arXiv:1706.03762). Presets: `vaswani`, as in the paper (post-norm; Hugging
Face's MarianMTModel), and `modern`, the same with the norms before each part, which trains at
higher rates and without long warm-up (PegasusForConditionalGeneration). Both have sinusoidal
positions, ReLU and one embedding matrix for source, target and output, scaled by sqrt(d_model).

A captioner: an encoder of pictures, and a decoder of texts that looks at what was read.

It is `encoder_decoder.EncoderDecoder`, and its encoder that of `vision`: the stem of patches and
the positions of a plane stand where a translator embeds the words of its source; all else, the
attention from words to patches too, is the translator's (as Vinyals et al. 2015, arXiv:1411.4555,
with Transformers in both places). Presets: `modern` (RMSNorm, SwiGLU, rotary positions, those of
pictures in two dimensions) and `vit`, ViT's encoder beside the decoder of 2017 with norms first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from regard.layers.attention import Tap
from regard.layers.cache import CrossKV, DecodeState
from regard.layers.embeddings import Inputs
from regard.layers.masks import Across, Mask, Rendered
from regard.layers.positions import GRID_POSITIONS
from regard.models import decoder
from regard.models.decoder import Decoder
from regard.models.encoder import Encoder
from regard.models.language_model import NeuralLanguageModel
from regard.models.seq2seq import ConditionedLM, NeuralSeq2Seq
from regard.models.transformer import TransformerConfig
from regard.models.vision import THETA, ImageSettings, VisionConfig


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """Shape and parts of both stacks; `n_layers` are the decoder's."""

    n_encoder_layers: int = 4
    source_vocab: int = 0  # of an encoder with a vocabulary of its own; 0: it shares the decoder's

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_encoder_layers <= 1_000:
            raise ValueError(
                f"n_encoder_layers must be from 1 to 1000, got {self.n_encoder_layers}"
            )
        if not 0 <= self.source_vocab < 1 << 24:
            raise ValueError(f"source_vocab must be from 0 to {1 << 24}, got {self.source_vocab}")

    @property
    def reading(self) -> TransformerConfig:
        """Shape and parts of the encoder."""
        return dataclasses.replace(self, n_layers=self.n_encoder_layers)


def vaswani(n_layers: int, d_model: int) -> EncoderDecoderConfig:
    """The paper's: post-norm, sinusoids, ReLU, scaled tied embeddings, dropout 0.1."""
    base = dataclasses.asdict(decoder.vaswani(n_layers, d_model))
    return EncoderDecoderConfig(**base, n_encoder_layers=n_layers)


def modern(n_layers: int, d_model: int) -> EncoderDecoderConfig:
    """`vaswani` with the norms first, and one more at the end of each stack."""
    return dataclasses.replace(vaswani(n_layers, d_model), post_norm=False)


class EncoderDecoder(NeuralSeq2Seq):
    """An encoder and a decoder that looks at its output in every block."""

    Config = EncoderDecoderConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern,
        "vaswani": vaswani,
    }

    def __init__(self, vocab_size: int, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        reading = config.reading
        self.supports_packing = config.supports_packing and reading.supports_packing
        self.decoder = Decoder(vocab_size, config, cross=True)
        self.encoder = Encoder(config.source_vocab or vocab_size, reading)
        if not config.source_vocab:
            self.encoder.embedding = self.decoder.embedding
        self.head = self.decoder.head

    def memory(self, source: Inputs, mask: Mask, tap: Tap | None = None) -> list[CrossKV]:
        """What each block of the decoder looks at."""
        read = self.encoder(source, tap=None if tap is None else tap.at("encoder"))
        return [block.cross.memory(read, mask) for block in self.decoder.blocks]  # type: ignore[union-attr, operator]

    def forward(self, ids: Tensor, segments: Tensor | None, source: Inputs) -> Tensor:
        """See Translator."""
        (b, t), s = ids.shape, source.ids.size(1)
        mask = Across(segments, source.segments).rendered(b, t, s, ids.device)
        return self.decoder.hidden(ids, segments, memory=self.memory(source, mask))

    def condition(self, source: Inputs) -> ConditionedLM:
        """See Translator."""
        return ConditionedDecoder(self, source)


class ConditionedDecoder(ConditionedLM, NeuralLanguageModel):
    """A decoder and the memory it looks at."""

    static_shapes = True

    def __init__(self, translator: EncoderDecoder, source: Inputs) -> None:
        super().__init__(translator)
        self.supports_packing = translator.supports_packing
        self.translator, self.decoder = translator, translator.decoder
        self.head = translator.head
        self.segments = source.segments.clone()  # (B, S)
        self.seen = (self.segments > 0)[:, None, None]  # (B, 1, 1, S): of a row for itself
        self.memory: Sequence[CrossKV] = [
            dataclasses.replace(one, k=one.k.contiguous(), v=one.v.contiguous())
            for one in translator.memory(source, Rendered(self.seen, False))
        ]

    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """See Given."""
        self.segments.copy_(source.segments)
        self.seen.copy_((source.segments > 0)[:, None, None])
        for held, new in zip(
            self.memory,
            self.translator.memory(source, Rendered(self.seen, False), tap),
            strict=True,
        ):
            held.k.copy_(new.k)
            held.v.copy_(new.v)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralLanguageModel."""
        memory = self.memory
        if segments is not None:  # several targets share a row, and so do their sources
            (b, t), s = ids.shape, self.segments.size(1)
            shown = Across(segments, self.segments).rendered(b, t, s, ids.device)
            memory = [dataclasses.replace(one, mask=shown) for one in memory]
        return self.decoder.hidden(ids, segments, tap=tap, memory=memory)

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel; `batch` is the number of sources, before any beams."""
        state = self.decoder.start(batch, capacity)
        state.memory = self.memory
        return state

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        return self.decoder.extend(ids, lengths, state)


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig(ImageSettings, EncoderDecoderConfig):
    """Shape and parts of both stacks; `max_len` and `positions` are those of captions."""

    picture_positions: str = "rotary"  # of patches: learned, sinusoidal, rotary or none

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        EncoderDecoderConfig.__post_init__(self)
        if self.picture_positions not in GRID_POSITIONS:
            allowed = ", ".join(GRID_POSITIONS)
            raise ValueError(f"picture_positions are {allowed}, got {self.picture_positions!r}")

    @property
    def reading(self) -> TransformerConfig:
        """See EncoderDecoderConfig: as a ViT of this shape."""
        fields = (*dataclasses.fields(TransformerConfig), *dataclasses.fields(ImageSettings))
        told = {field.name: getattr(self, field.name) for field in fields} | {
            "n_layers": self.n_encoder_layers,
            "positions": self.picture_positions,
            "theta": THETA,
            "tied": False,
            "scale_embedding": False,  # of ids; a stem has its own scale
        }
        return VisionConfig(**told)


def modern_captioner(n_layers: int, d_model: int) -> CaptionerConfig:
    """The modern preset of both: RMSNorm, SwiGLU, QK-norm, rotary positions."""
    base = dataclasses.asdict(decoder.modern(n_layers, d_model))
    return CaptionerConfig(**base, n_encoder_layers=n_layers)


def vit(n_layers: int, d_model: int) -> CaptionerConfig:
    """Pre-norm, GELU, learned positions of patches, sinusoids of words."""
    base = dataclasses.asdict(decoder.vaswani(n_layers, d_model))
    base |= {"post_norm": False, "feedforward": "gelu_exact"}
    return CaptionerConfig(**base, n_encoder_layers=n_layers, picture_positions="learned")


class Captioner(EncoderDecoder):
    """An encoder of pictures and a decoder that looks at its output in every block."""

    Config = CaptionerConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern_captioner,
        "vit": vit,
    }
    tokens: ClassVar[str] = "patches"

    def __init__(self, vocab_size: int, config: CaptionerConfig) -> None:
        super().__init__(vocab_size, config)
        self.static_shapes = config.uniform  # else changing pictures asks how large they are
