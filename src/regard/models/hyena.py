"""Hyena in place of attention (Poli et al. 2023, arXiv:2302.10866).

The models are the Transformer's decoder and encoder with another mixer. Presets: `hyena`, where
every layer is a long convolution and no positions are added, since convolutions depend on order;
and `striped`, where every third layer is attention (as in StripedHyena, Poli et al. 2023), for
exact look-up.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from regard.models import Presets, decoder, encoder
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
    """The encoder's modern preset with two-sided filters in every layer."""
    modern = encoder.modern(n_layers, d_model)
    return dataclasses.replace(modern, mixers=("hyena",), positions="none")


def striped_encoder(n_layers: int, d_model: int) -> EncoderConfig:
    """Every third layer attends."""
    return dataclasses.replace(encoder.modern(n_layers, d_model), mixers=STRIPES)


class HyenaModel(Decoder):
    """A causal language model of long convolutions."""

    PRESETS: ClassVar[Presets] = {"hyena": hyena, "striped": striped}


class HyenaClassifier(EncoderModel):
    """An encoder of two-sided long convolutions that predicts labels or values."""

    PRESETS: ClassVar[Presets] = {"hyena": hyena_encoder, "striped": striped_encoder}
