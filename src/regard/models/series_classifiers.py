"""Neural networks that predict labels or values of series, or of each of their steps, and one that
fills in masked patches.

`transformer` is `encoder.EncoderModel` with patches of steps in place of tokens (Nie et al. 2023,
arXiv:2211.14730). `MaskedSeries` has the same encoder and predicts the values of hidden patches,
with the squared error as the loss, as in section 3.2 of that paper; classifiers start from it.

`cnn` has residual, dilated convolutions over steps and pools what they find (Wang et al. 2017,
arXiv:1611.06455; where we differ: each position is normalized over its channels, so that nothing
depends on the batch). `lstm` is a bidirectional LSTM over patches.

Where series have a label for each step, a patch is one step, and the embedding reads the steps
around it, too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.masked_patches import MaskedPatches
from regard.data.shards import Shard
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.series import SeriesEmbedding, read_steps, without_padding
from regard.layers.tap import Tap, tapped
from regard.models import LossMetric, Presets, RootMeanSquare, check_ranges, decoder
from regard.models.convolution import Residual, SameConvolution
from regard.models.encoder import Encoder, EncoderConfig, EncoderModel, SentenceConfig
from regard.models.recurrent import RecurrentClassifier, SequenceClassifierConfig
from regard.models.supervised import NeuralSupervisedModel, Pooling, ValueHead

REACH = 8  # steps before and after each that an embedding reads where patches are single steps


@dataclass(frozen=True, kw_only=True)
class SeriesSettings:
    """What a model of series takes from its data: see tokenizers/step_patches.py."""

    patch: int = 8  # steps of a token
    n_channels: int = 1  # C: the values of a step
    longest: int = 128  # steps of the longest training series

    def __post_init__(self) -> None:
        check_ranges(self, patch=1 << 12, n_channels=1 << 14, longest=1 << 30)

    @property
    def reach(self) -> int:
        """The patches before and after each that its embedding reads, too."""
        return REACH if self.patch == 1 else 0

    def make_embedding(self, vocab_size: int) -> nn.Module:
        width: int = self.d_model  # type: ignore[attr-defined]  # of the model's own config
        return SeriesEmbedding(width, self.patch, self.n_channels, self.reach)


@dataclass(frozen=True, kw_only=True)
class SeriesTransformerConfig(SeriesSettings, EncoderConfig):
    """Shape and parts of an encoder of series."""

    def __post_init__(self) -> None:
        SeriesSettings.__post_init__(self)
        EncoderConfig.__post_init__(self)
        if self.n_types:
            raise ValueError("n_types is for texts")

    @property
    def supports_packing(self) -> bool:
        """False: the embedding reads neighbors, which must be of the same series."""
        return False


def modern(n_layers: int, d_model: int) -> SeriesTransformerConfig:
    """The encoder's modern preset over patches."""
    return SeriesTransformerConfig(**dataclasses.asdict(decoder.modern(n_layers, d_model)))


class SeriesTransformer(EncoderModel):
    """An encoder of series that predicts labels or values."""

    Config = SeriesTransformerConfig
    PRESETS: ClassVar[Presets] = {"modern": modern}
    reads = "series"

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return super().vectors(without_padding(source), tap=tap)

    def embed(self, source: Inputs, *, count: int | None = None, tap: Tap | None = None) -> Tensor:
        return super().embed(without_padding(source), count=count, tap=tap)


@dataclass(frozen=True, kw_only=True)
class MaskedSeriesConfig(SeriesSettings, SentenceConfig):
    """Shape and parts of an encoder that fills in masked patches."""

    def __post_init__(self) -> None:
        SeriesSettings.__post_init__(self)
        SentenceConfig.__post_init__(self)

    @property
    def supports_packing(self) -> bool:
        return False


def modern_masked(n_layers: int, d_model: int) -> MaskedSeriesConfig:
    """The encoder's modern preset."""
    config, names = modern(n_layers, d_model), dataclasses.fields(MaskedSeriesConfig)
    return MaskedSeriesConfig(**{field.name: getattr(config, field.name) for field in names})


class PatchHead(ValueHead):
    """The standardized values of each patch, NaN where they are not scored."""

    positional = True

    def loss_metric(self, scale: Tensor) -> LossMetric:
        name, words = "rmse_standardized", "RMSE {} (standardized)"
        return RootMeanSquare(name, "standard deviations", words, "masked values")


class MaskedSeries(NeuralSupervisedModel):
    """An encoder of series that predicts the values of each patch."""

    Config = MaskedSeriesConfig
    PRESETS: ClassVar[Presets] = {"modern": modern_masked}
    reads = "series"
    masking: ClassVar[type] = MaskedPatches

    def __init__(self, vocab_size: int, config: MaskedSeriesConfig) -> None:
        super().__init__(vocab_size, config)
        self.encoder = Encoder(vocab_size, config)
        self.pool = Pooling("mean", config.d_model)  # for `embed`
        self.head = nn.Linear(config.d_model, self.n_outputs)
        nn.init.normal_(self.head.weight, std=0.5 * config.d_model**-0.5)
        nn.init.zeros_(self.head.bias)
        for name, value in (("shift", 0.0), ("scale", 1.0)):  # tokens are standardized already
            self.register_buffer(name, torch.full((self.n_outputs,), value), persistent=False)

    @property
    def task(self) -> str:
        return "masked"

    @property
    def output(self) -> PatchHead:
        return PatchHead()

    @property
    def n_outputs(self) -> int:
        return self.vocab_size - 1

    def prepare(self, shard: Shard) -> None:
        """Nothing depends on the training data: tokens are standardized."""

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.encoder(without_padding(source), tap=tap)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class SeriesLayersConfig(SeriesSettings, SequenceClassifierConfig):
    """Shape of a recurrent or convolutional network over series."""

    def __post_init__(self) -> None:
        SeriesSettings.__post_init__(self)
        SequenceClassifierConfig.__post_init__(self)


def residual(n_layers: int, d_model: int) -> SeriesLayersConfig:
    """At least three layers: their dilations double."""
    return SeriesLayersConfig(n_layers=max(3, n_layers), d_model=d_model, pooling="mean")


def bidirectional(n_layers: int, d_model: int) -> SeriesLayersConfig:
    """At most two layers, since recurrent models gain from width."""
    return SeriesLayersConfig(n_layers=min(n_layers, 2), d_model=d_model)


class SeriesRecurrent(RecurrentClassifier):
    """A bidirectional LSTM over patches that predicts labels or values."""

    Config = SeriesLayersConfig
    PRESETS: ClassVar[Presets] = {"bidirectional": bidirectional}
    reads = "series"

    def __init__(self, vocab_size: int, config: SeriesLayersConfig) -> None:
        super().__init__(1, config)
        self.vocab_size = vocab_size
        self.embedding: Any = config.make_embedding(vocab_size)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return super().vectors(without_padding(source), tap=tap)


class SeriesConvolution(NeuralSupervisedModel):
    """A convolutional network over steps that predicts labels or values."""

    Config = SeriesLayersConfig
    PRESETS: ClassVar[Presets] = {"residual": residual}
    reads = "series"
    widest: ClassVar[int] = 9  # steps of the first filters

    def __init__(self, vocab_size: int, config: SeriesLayersConfig) -> None:
        super().__init__(vocab_size, config)
        width = config.d_model
        self.first = SameConvolution(2 * config.n_channels, width, self.widest)
        self.layers = nn.ModuleList(
            Residual(width, 1 << i, config.dropout) for i in range(config.n_layers)
        )
        self.add_head(width)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return (B, N, D) the mean over the steps of each patch; that of `<S>` is the mean of all
        steps.
        """
        steps = read_steps(source, self.config.patch, self.config.n_channels)
        x = torch.cat((steps.values, steps.known.to(steps.values.dtype)), -1)
        x = self.first(x.to(self.head.weight.dtype), steps.exists)  # (B, T, D)
        for layer in self.layers:
            x = layer(x, steps.exists)
        x = dropout(torch.relu(x), self.config.dropout, self.training)
        x = tapped(tap, "filters.output", x)
        weight = steps.exists[..., None].to(x.dtype)
        summed = (x * weight).unflatten(1, (-1, self.config.patch)).sum(2)  # (B, N, D)
        counts = weight.unflatten(1, (-1, self.config.patch)).sum(2)
        patches = summed / counts.clamp_min(1)
        mean = summed.sum(1, keepdim=True) / counts.sum(1, keepdim=True).clamp_min(1)
        return torch.cat((mean, patches), 1)
