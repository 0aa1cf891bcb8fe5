"""Hyena in the place of attention (Poli et al. 2023, arXiv:2302.10866): the decoder and the encoder
of the Transformer with other mixers, and nothing else of their own.

Presets: `hyena`, where every layer convolves and no positions are needed, since convolutions know
their order; and `striped`, two such layers and one of attention, in turns (as StripedHyena, Poli et
al. 2023, has it), for what has to be looked up exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from regard.models import decoder, encoder
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import EncoderConfig, EncoderModel

STRIPES = ("hyena", "hyena", "attention")


def hyena(n_layers: int, d_model: int) -> DecoderConfig:
    """The Transformer's modern preset with Hyena in every layer."""
    modern = decoder.modern(n_layers, d_model)
    return dataclasses.replace(modern, mixers=("hyena",), positions="none")


def striped(n_layers: int, d_model: int) -> DecoderConfig:
    """Every third layer attends."""
    return dataclasses.replace(decoder.modern(n_layers, d_model), mixers=STRIPES)


def hyena_encoder(n_layers: int, d_model: int) -> EncoderConfig:
    """The encoder's modern preset with filters to both sides in every layer."""
    modern = encoder.modern(n_layers, d_model)
    return dataclasses.replace(modern, mixers=("hyena",), positions="none")


def striped_encoder(n_layers: int, d_model: int) -> EncoderConfig:
    """Every third layer attends."""
    return dataclasses.replace(encoder.modern(n_layers, d_model), mixers=STRIPES)


class HyenaModel(Decoder):
    """A causal language model of long convolutions."""

    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"hyena": hyena, "striped": striped}


class HyenaClassifier(EncoderModel):
    """Long convolutions to both sides that answer."""

    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "hyena": hyena_encoder,
        "striped": striped_encoder,
    }
