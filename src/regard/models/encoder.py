"""The encoder alone: every position sees every other, and an answer is read off.

BERT (Devlin et al. 2019, arXiv:1810.04805) is the encoder of 2017 with learned positions and GELU.
Presets: `modern` (RMSNorm before each part, rotary positions, SwiGLU; the mean of all positions
answers) and `bert`, as in the paper (post-norm, a norm after the embeddings, two kinds of sentence,
a tanh layer on the first position; Hugging Face's BertForSequenceClassification).

An encoder that fills in masked tokens: what pre-training trains (Devlin et al. 2019,
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

from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.norms import make_norm
from regard.layers.pooling import Pooling
from regard.models import decoder
from regard.models.supervised import HeadConfig, NeuralSupervisedModel
from regard.models.transformer import TransformerConfig, TransformerStack, initialise


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig, HeadConfig):
    """Shape and parts of an encoder that answers."""

    n_types: int = 0  # kinds of sentence that are told apart; 0: none
    separator: int = 2  # the token after which another kind begins: <E>
    embedding_norm: bool = False  # a norm after the embeddings
    pooler: bool = False  # a tanh layer between the pooled vector and the answer

    def __post_init__(self) -> None:
        TransformerConfig.__post_init__(self)
        HeadConfig.__post_init__(self)
        if not 0 <= self.n_types <= 1 << 10:
            raise ValueError(f"n_types must be from 0 to {1 << 10}, got {self.n_types}")

    @property
    def first_answers(self) -> bool:
        """Is the first position all that is read off? Then the last block may leave out others."""
        return self.pooling == "first" and self.kinds[-1] == "attention"


def modern(n_layers: int, d_model: int) -> EncoderConfig:
    """The decoder's modern preset, looking both ways."""
    return EncoderConfig(**dataclasses.asdict(decoder.modern(n_layers, d_model)))


def bert(n_layers: int, d_model: int) -> EncoderConfig:
    """The paper's: post-norm, learned positions, exact GELU, dropout 0.1, `<S>` answers."""
    base = decoder.vaswani(n_layers, d_model)
    changed = dataclasses.replace(
        base,
        positions="learned",
        feedforward="gelu_exact",
        norm_eps=1e-12,
        scale_embedding=False,
    )
    return EncoderConfig(
        **dataclasses.asdict(changed),
        n_types=2,
        embedding_norm=True,
        pooler=True,
        pooling="first",
    )


class Encoder(TransformerStack):
    """A stack in which every position sees every other of its sequence."""

    def __init__(self, vocab_size: int, config: TransformerConfig) -> None:
        super().__init__()
        self.build(vocab_size, config, causal=False)
        self.types: nn.Embedding | None = None
        self.embedding_norm: nn.Module | None = None
        if isinstance(config, EncoderConfig) and config.n_types:
            self.types = nn.Embedding(config.n_types, config.d_model)
            nn.init.normal_(self.types.weight, std=0.02)
        if isinstance(config, EncoderConfig) and config.embedding_norm:
            self.embedding_norm = self._norm()
        initialise(self)

    def forward(self, source: Inputs, *, asked: int = 0, tap: Tap | None = None) -> Tensor:
        """(B, S, D) vectors of the sources, or those of the first positions that are `asked` for
        (see Stack.run).
        """
        # tokens that are numbers say where they stand
        where = self.embedding.where(source) if source.ids.dim() == 3 else None
        segments = None if self.training and self.config.never_padded else source.segments
        place, where = self.place(source.ids, segments, whole=tap is not None, where=where)
        x = self.embed(source.ids, where, source.ids.size(1))
        if self.types is not None:
            assert isinstance(where, Tensor)
            x = x + self.types(self.kinds(source.ids, where))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.run(x, place, None, tap, asked=asked)

    def kinds(self, ids: Tensor, where: Tensor) -> Tensor:
        """(B, S) which sentence of its sequence a token is in, from 0; the last kind is for all
        more. `where` (B, S) are the tokens' positions.
        """
        assert isinstance(self.config, EncoderConfig)
        ends = ids == self.config.separator
        before = ends.cumsum(1) - ends.long()
        first = torch.arange(ids.size(1), device=ids.device) - where  # of the sequence
        return (before - before.gather(1, first)).clamp_max(self.config.n_types - 1)


class EncoderModel(NeuralSupervisedModel):
    """An encoder, pooled, that answers."""

    Config = EncoderConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"modern": modern, "bert": bert}

    def __init__(self, vocab_size: int, config: EncoderConfig) -> None:
        super().__init__()
        self.vocab_size, self.config, self.supports_packing = (
            vocab_size,
            config,
            config.supports_packing,
        )
        self.encoder = Encoder(vocab_size, config)
        self.pooler = nn.Linear(config.d_model, config.d_model) if config.pooler else None
        self.add_head(config.d_model)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See NeuralAssessor."""
        return self.encoder(source, tap=tap)  # type: ignore[no-any-return]

    def embed(self, source: Inputs, *, count: int | None = None, tap: Tap | None = None) -> Tensor:
        """See NeuralAssessor."""
        alone = count is None or not self.supports_packing  # is every row one sequence?
        if self.config.first_answers and alone and tap is None:
            x = self.pool(self.encoder(source, asked=1), source.segments[:, :1], count)
        else:
            x = super().embed(source, count=count, tap=tap)
        return x if self.pooler is None else torch.tanh(self.pooler(x))


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(EncoderConfig):
    """Shape and parts of an encoder that fills in; what is said of answers is not used."""

    task: str = "masked"
    tied: bool = True
    transform: bool = False  # a layer, a norm and a bias around the embedding read backwards

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tied:
            raise ValueError("tied must be true: the embedding says which token is filled in")


def modern_masked(n_layers: int, d_model: int) -> MaskedLMConfig:
    """The encoder's."""
    return of(modern(n_layers, d_model))


def bert_masked(n_layers: int, d_model: int) -> MaskedLMConfig:
    """The paper's."""
    return of(bert(n_layers, d_model), transform=True)


def of(config: EncoderConfig, **options: Any) -> MaskedLMConfig:
    """The same encoder, filling in."""
    given = dataclasses.asdict(config) | {"task": "masked", "tied": True}
    return MaskedLMConfig(**given, **options)


class MaskedLM(NeuralSupervisedModel):
    """An encoder whose every position says which token it holds."""

    Config = MaskedLMConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern_masked,
        "bert": bert_masked,
    }

    def __init__(self, vocab_size: int, config: MaskedLMConfig) -> None:
        super().__init__()
        self.vocab_size, self.config, self.supports_packing = (
            vocab_size,
            config,
            config.supports_packing,
        )
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

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See NeuralAssessor."""
        return self.encoder(source, tap=tap)  # type: ignore[no-any-return]

    def forward(
        self,
        source: Inputs,
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

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self(source, tap=tap)  # type: ignore[no-any-return]
