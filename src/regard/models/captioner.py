"""A captioner: an encoder of pictures, and a decoder of texts that looks at what was read.

It is `encoder_decoder.EncoderDecoder`, and its encoder that of `vision`: the stem of patches and
the positions of a plane stand where a translator embeds the words of its source; all else, the
attention from words to patches too, is the translator's (as Vinyals et al. 2015, arXiv:1411.4555,
with Transformers in both places). Presets: `modern` (RMSNorm, SwiGLU, rotary positions, those of
pictures in two dimensions) and `vit`, ViT's encoder beside the decoder of 2017 with norms first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.layers.grid_positions import GRID_POSITIONS
from regard.models import decoder
from regard.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from regard.models.stack import StackConfig
from regard.models.vision import THETA, PictureConfig, VisionConfig


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig(PictureConfig, EncoderDecoderConfig):
    """Shape and parts of both stacks; `max_len` and `positions` are those of captions."""

    picture_positions: str = "rotary"  # of patches: learned, sinusoidal, rotary or none

    def __post_init__(self) -> None:
        PictureConfig.__post_init__(self)
        EncoderDecoderConfig.__post_init__(self)
        if self.picture_positions not in GRID_POSITIONS:
            allowed = ", ".join(GRID_POSITIONS)
            raise ValueError(f"picture_positions are {allowed}, got {self.picture_positions!r}")

    @property
    def reading(self) -> StackConfig:
        """See EncoderDecoderConfig: as a ViT of this shape."""
        fields = (*dataclasses.fields(StackConfig), *dataclasses.fields(PictureConfig))
        told = {field.name: getattr(self, field.name) for field in fields} | {
            "n_layers": self.n_encoder_layers,
            "positions": self.picture_positions,
            "theta": THETA,
            "tied": False,
            "scale_embedding": False,  # of ids; a stem has its own scale
        }
        return VisionConfig(**told)


def modern(n_layers: int, d_model: int) -> CaptionerConfig:
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
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"modern": modern, "vit": vit}
    tokens: ClassVar[str] = "patches"

    def __init__(self, vocab_size: int, config: CaptionerConfig) -> None:
        super().__init__(vocab_size, config)
        self.steps_alike = config.uniform  # else changing pictures asks how large they are
