"""An encoder that fills in masked tokens: what pre-training trains (Devlin et al. 2019,
arXiv:1810.04805, section 3.1).

It is the encoder that answers (`models/encoder.py`), tensor for tensor, so that a model of labels
or values may begin with what was learned here. Only what comes after differs: the embedding, read
backwards, says which token a position holds. The preset `bert` puts a layer and a norm before and a
bias after that, as the paper's code and Hugging Face's BertForMaskedLM do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.norms import make_norm
from regard.layers.pooling import Pooling
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models import encoder
from regard.models.assessor import NeuralAssessor
from regard.models.encoder import Encoder, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(EncoderConfig):
    """Shape and parts of an encoder that fills in; what is said of answers is not used."""

    task: str = "masked"
    tied: bool = True
    transform: bool = False  # a layer, a norm and a bias around the embedding read backwards

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tied:
            raise ValueError("tied must be true: the embedding says which token is filled in")


def modern(n_layers: int, d_model: int) -> MaskedConfig:
    """The encoder's."""
    return of(encoder.modern(n_layers, d_model))


def bert(n_layers: int, d_model: int) -> MaskedConfig:
    """The paper's."""
    return of(encoder.bert(n_layers, d_model), transform=True)


def of(config: EncoderConfig, **options: Any) -> MaskedConfig:
    """The same encoder, filling in."""
    given = dataclasses.asdict(config) | {"task": "masked", "tied": True}
    return MaskedConfig(**given, **options)


class MaskedModel(NeuralAssessor):
    """An encoder whose every position says which token it holds."""

    Config = MaskedConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"modern": modern, "bert": bert}

    def __init__(self, vocab_size: int, config: MaskedConfig) -> None:
        super().__init__()
        self.vocab_size, self.config, self.packs = vocab_size, config, config.keeps_apart
        self.encoder = Encoder(vocab_size, config)
        self.pool = Pooling("mean", config.d_model)  # of vectors that are asked for
        self.dense: nn.Linear | None = None
        self.norm: nn.Module | None = None
        self.bias: nn.Parameter | None = None
        if config.transform:
            self.dense = nn.Linear(config.d_model, config.d_model)
            nn.init.normal_(self.dense.weight, std=config.d_model**-0.5)
            nn.init.zeros_(self.dense.bias)
            self.norm = make_norm(config.norm, config.d_model, config.norm_eps, config.bias)
            self.bias = nn.Parameter(torch.zeros(vocab_size))

    def vectors(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See NeuralAssessor."""
        return self.encoder(source, tap=tap)  # type: ignore[no-any-return]

    def forward(
        self,
        source: Source,
        *,
        count: int | None = None,
        at: Tensor | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        """(B, T, V) logits of the tokens or, `at` (N,) places of the flattened positions alone,
        (N, V). Nothing is pooled, so `count` does not matter.
        """
        x = self.vectors(source, tap=tap)
        if at is not None:
            x = x.flatten(0, 1)[at]  # (N, D)
        if self.dense is not None and self.norm is not None:
            x = self.norm(F.gelu(self.dense(x)))
        return F.linear(x, self.encoder.embedding.weight, self.bias)

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self(source, tap=tap)  # type: ignore[no-any-return]
