"""The Transformer encoder: every position attends to every other.

BERT (Devlin et al. 2019, arXiv:1810.04805) is the encoder of Vaswani et al. 2017 with learned
positions and GELU. `EncoderModel` pools its output and predicts labels or values; `MaskedLM`
predicts masked tokens (section 3.1 of the BERT paper), the task of pre-training. Both have the same
encoder, tensor for tensor, so that one can start from the other's weights.

Presets: `modern` (RMSNorm before each sublayer, rotary positions, SwiGLU, mean pooling) and `bert`,
as in the paper (post-norm, a norm after the embeddings, two sentence types, a tanh layer on the
first position; Hugging Face's BertForSequenceClassification and BertForMaskedLM). Where we differ:
the masked model always uses the transposed embedding as its output matrix; only `bert` has the
layer and norm before it and the bias after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batching import Masked
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models import LossMetric, Presets, check_ranges, decoder
from regard.models.supervised import HeadConfig, NeuralSupervisedModel, Pooling
from regard.models.transformer import TransformerConfig, TransformerStack, initialise


@dataclass(frozen=True, kw_only=True)
class SentenceConfig(TransformerConfig):
    """Shape and parts of an encoder of one or more sentences."""

    n_types: int = 0  # sentence types with an embedding; 0: none
    separator: int = 2  # the token that ends a sentence: <E>
    embedding_norm: bool = False  # a norm after the embeddings

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, least=0, n_types=1 << 10)

    def make_type_embedding(self) -> nn.Embedding | None:
        if not self.n_types:
            return None
        embedding = nn.Embedding(self.n_types, self.d_model)
        nn.init.normal_(embedding.weight, std=0.02)
        return embedding

    def make_embedding_norm(self) -> nn.Module | None:
        return self.make_norm() if self.embedding_norm else None


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(SentenceConfig, HeadConfig):
    """Shape and parts of an encoder that predicts labels or values."""

    pooler: bool = False  # a tanh layer between the pooled vector and the head

    def __post_init__(self) -> None:
        SentenceConfig.__post_init__(self)
        HeadConfig.__post_init__(self)

    @property
    def needs_first_only(self) -> bool:
        """Whether only the first position is used, so that the last block can skip the others."""
        return self.pooling == "first" and self.mixer_classes[-1].supports_subset


def modern(n_layers: int, d_model: int) -> EncoderConfig:
    """The decoder's modern preset without the causal mask."""
    return EncoderConfig(**dataclasses.asdict(decoder.modern(n_layers, d_model)))


def bert(n_layers: int, d_model: int) -> EncoderConfig:
    """The paper's: post-norm, learned positions, exact GELU, dropout 0.1, `<S>` is pooled."""
    settings = dataclasses.asdict(decoder.vaswani(n_layers, d_model)) | {
        "positions": "learned",
        "feedforward": "gelu_exact",
        "norm_eps": 1e-12,
        "scale_embedding": False,
    }
    return EncoderConfig(**settings, n_types=2, embedding_norm=True, pooler=True, pooling="first")


class Encoder(TransformerStack):
    """A stack without a causal mask."""

    def __init__(self, vocab_size: int, config: TransformerConfig) -> None:
        super().__init__()
        self.build(vocab_size, config, causal=False)
        self.types = config.make_type_embedding()
        self.embedding_norm = config.make_embedding_norm()
        initialise(self)

    def forward(self, source: Inputs, *, n_first: int = 0, tap: Tap | None = None) -> Tensor:
        """Return (B, S, D) vectors of the sources, or only those of the first `n_first` positions
        (see TransformerStack.run).
        """
        where = self.embedding.where(source)  # the coordinates of patches and points
        segments = None if self.training and self.config.never_padded else source.segments
        context, where = self.make_context(
            source.ids, segments, explicit=tap is not None, where=where
        )
        x = self.embed(source.ids, where, source.ids.size(1))
        if self.types is not None:
            assert isinstance(where, Tensor)
            x = x + self.types(self.sentence_types(source.ids, where))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.run(x, context, None, tap, n_first=n_first)

    def sentence_types(self, ids: Tensor, where: Tensor) -> Tensor:
        """Return (B, S) the number of the sentence of each token within its sequence, from 0, at
        most n_types - 1; `where` (B, S) are the positions of the tokens.
        """
        config: Any = self.config
        ends = ids == config.separator
        before = ends.cumsum(1) - ends.long()
        first = torch.arange(ids.size(1), device=ids.device) - where  # of the sequence
        number: Tensor = before - before.gather(1, first)
        return number.clamp_max(config.n_types - 1)


class EncoderModel(NeuralSupervisedModel):
    """An encoder, pooled, and a head that predicts labels or values."""

    Config = EncoderConfig
    PRESETS: ClassVar[Presets] = {"modern": modern, "bert": bert}

    def __init__(self, vocab_size: int, config: EncoderConfig) -> None:
        super().__init__(vocab_size, config)
        self.supports_packing = config.supports_packing
        self.encoder = Encoder(vocab_size, config)
        self.pooler = nn.Linear(config.d_model, config.d_model) if config.pooler else None
        self.add_head(config.d_model)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.encoder(source, tap=tap)  # type: ignore[no-any-return]

    def embed(self, source: Inputs, *, count: int | None = None, tap: Tap | None = None) -> Tensor:
        unpacked = count is None or not self.supports_packing  # every row is one sequence
        if self.config.needs_first_only and unpacked and tap is None:
            x = self.pool(self.encoder(source, n_first=1), source.segments[:, :1], count)
        else:
            x = super().embed(source, count=count, tap=tap)
        return x if self.pooler is None else torch.tanh(self.pooler(x))


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(SentenceConfig):
    """Shape and parts of an encoder that predicts masked tokens."""

    tied: bool = True
    transform: bool = False  # a layer and a norm before the output matrix, a bias after it

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tied:
            raise ValueError("tied must be true: the embedding is also the output matrix")


def modern_masked(n_layers: int, d_model: int) -> MaskedLMConfig:
    """The encoder's modern preset."""
    return masked_config(modern(n_layers, d_model))


def bert_masked(n_layers: int, d_model: int) -> MaskedLMConfig:
    """The paper's."""
    return masked_config(bert(n_layers, d_model), transform=True)


def masked_config(config: EncoderConfig, *, transform: bool = False) -> MaskedLMConfig:
    """Return the configuration of the same encoder with the output layer of a masked LM."""
    fields = dataclasses.fields(SentenceConfig)
    settings = {field.name: getattr(config, field.name) for field in fields} | {"tied": True}
    return MaskedLMConfig(**settings, transform=transform)


class MaskedLM(NeuralSupervisedModel):
    """An encoder that predicts the token at each position."""

    Config = MaskedLMConfig
    PRESETS: ClassVar[Presets] = {"modern": modern_masked, "bert": bert_masked}
    sparse_targets = True
    masking: ClassVar[type] = Masked  # how its examples are made

    def __init__(self, vocab_size: int, config: MaskedLMConfig) -> None:
        super().__init__(vocab_size, config)
        self.supports_packing = config.supports_packing
        self.encoder = Encoder(vocab_size, config)
        self.pool = Pooling("mean", config.d_model)  # for `embed`
        self.dense: nn.Linear | None = None
        self.norm: nn.Module | None = None
        self.bias: nn.Parameter | None = None
        if config.transform:
            self.dense = nn.Linear(config.d_model, config.d_model)
            nn.init.normal_(self.dense.weight, std=config.d_model**-0.5)
            nn.init.zeros_(self.dense.bias)
            self.norm = config.make_norm()
            self.bias = nn.Parameter(torch.zeros(vocab_size))

    @property
    def loss_metric(self) -> LossMetric:
        return self.output.loss_metric(torch.ones(1))

    @property
    def task(self) -> str:
        return "masked"

    @property
    def n_outputs(self) -> int:
        return self.vocab_size

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.encoder(source, tap=tap)  # type: ignore[no-any-return]

    def forward(
        self,
        source: Inputs,
        *,
        count: int | None = None,
        positions: Tensor | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        """Return (B, T, V) logits of the tokens or, with the indices `positions` (N,) into the
        flattened batch, (N, V). Nothing is pooled, so `count` has no effect.
        """
        x = self.vectors(source, tap=tap)
        if positions is not None:
            x = x.flatten(0, 1)[positions]  # (N, D)
        if self.dense is not None and self.norm is not None:
            x = self.norm(F.gelu(self.dense(x)))
        return F.linear(x, self.encoder.embedding.weight, self.bias)

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self(source, tap=tap)  # type: ignore[no-any-return]

    def read_batch(
        self, source: Inputs, *, positions: Sequence[int] | None = None, tap: Tap | None = None
    ) -> Tensor:
        if positions is None:
            return self.predict(source, tap=tap)
        numbers = torch.arange(source.ids.numel(), device=source.ids.device)
        chosen = numbers.view(source.ids.shape)[:, list(positions)]  # (B, P)
        logits: Tensor = self(source, positions=chosen.flatten(), tap=tap)  # (B·P, V)
        return logits.view(*chosen.shape, -1)
