"""Sequence classifiers without attention: convolutions, and a bidirectional LSTM.

`cnn` has filters of several widths with max pooling (Collobert et al. 2011; Kim 2014,
arXiv:1408.5882; for DNA Alipanahi et al. 2015, "DeepBind"). `lstm` is a bidirectional LSTM (Graves
and Schmidhuber 2005). Where we differ: further convolutional layers are residual and dilated, and
pooling and head are those of the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.norms import make_norm
from regard.layers.recurrent import BidirectionalStack
from regard.models.config import Presets
from regard.models.recurrent import RecurrentConfig, initialise_biases
from regard.models.supervised import HeadConfig, NeuralSupervisedModel

NORM_EPS = 1e-6  # as in the Transformer's presets


@dataclass(frozen=True, kw_only=True)
class SequenceClassifierConfig(RecurrentConfig, HeadConfig):
    """Shape of a sequence classifier."""

    pooling: str = "max"

    def __post_init__(self) -> None:
        RecurrentConfig.__post_init__(self)
        HeadConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig(SequenceClassifierConfig):
    """Shape of a convolutional classifier, with as many filters of each width from `narrowest` to
    `widest`.
    """

    narrowest: int = 3
    widest: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.narrowest <= self.widest <= 256:
            raise ValueError(
                "narrowest must be from 1 to widest and widest at most 256, got "
                f"{self.narrowest} and {self.widest}"
            )
        if self.d_model < self.widest - self.narrowest + 1:
            raise ValueError("d_model must be at least one for each width of filter")


def kim(n_layers: int, d_model: int) -> ConvolutionConfig:
    """Filters of width 3, 4 and 5."""
    return ConvolutionConfig(n_layers=n_layers, d_model=d_model)


def motifs(n_layers: int, d_model: int) -> ConvolutionConfig:
    """Filters as wide as motifs of DNA and proteins are long."""
    return ConvolutionConfig(n_layers=n_layers, d_model=d_model, narrowest=5, widest=12)


def bidirectional(n_layers: int, d_model: int) -> SequenceClassifierConfig:
    """At most two layers, since recurrent models gain from width."""
    return SequenceClassifierConfig(n_layers=min(n_layers, 2), d_model=d_model)


class SameConvolution(nn.Module):
    """Convolution with zero padding that keeps the length of a sequence."""

    def __init__(self, d_in: int, d_out: int, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.filters = nn.Conv1d(d_in, d_out, width, dilation=dilation)
        total = (width - 1) * dilation
        self.padding = total // 2, total - total // 2

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D'); `mask` (B, T) is False at padding."""
        zeroed = (x * mask[..., None]).mT  # (B, D, T)
        return self.filters(F.pad(zeroed, self.padding)).mT  # type: ignore[no-any-return]


class Residual(nn.Module):
    """A further layer: a dilated convolution of width 5 with a norm and a residual connection."""

    def __init__(self, d_model: int, dilation: int, drop: float) -> None:
        super().__init__()
        self.norm = make_norm("rms", d_model, NORM_EPS, bias=False)
        self.neighbours = SameConvolution(d_model, d_model, 5, dilation)
        self.drop = drop

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        y = self.neighbours(torch.relu(self.norm(x)), mask)
        return x + dropout(y, self.drop, self.training)


class ConvolutionalClassifier(NeuralSupervisedModel):
    """A convolutional network over sequences that predicts labels or values."""

    Config = ConvolutionConfig
    PRESETS: ClassVar[Presets] = {"kim": kim, "motifs": motifs}

    def __init__(self, vocab_size: int, config: ConvolutionConfig) -> None:
        super().__init__(vocab_size, config)
        width, widths = config.d_model, range(config.narrowest, config.widest + 1)
        self.embedding = nn.Embedding(vocab_size, width)
        shares = [width // len(widths) + (i < width % len(widths)) for i in range(len(widths))]
        self.filters = nn.ModuleList(
            SameConvolution(width, share, n) for n, share in zip(widths, shares, strict=True)
        )
        self.layers = nn.ModuleList(
            Residual(width, 1 << i, config.dropout) for i in range(config.n_layers - 1)
        )
        self.add_head(width)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        mask = source.segments > 0
        x = dropout(self.embedding(source.ids), self.config.dropout, self.training)  # (B, T, D)
        x = torch.relu(torch.cat([filters(x, mask) for filters in self.filters], dim=-1))
        if tap is not None:
            tap("filters.output", x)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class RecurrentClassifier(NeuralSupervisedModel):
    """A bidirectional LSTM over sequences that predicts labels or values."""

    Config = SequenceClassifierConfig
    PRESETS: ClassVar[Presets] = {"bidirectional": bidirectional}
    static_shapes = False  # cuDNN needs the lengths on the host

    def __init__(self, vocab_size: int, config: SequenceClassifierConfig) -> None:
        super().__init__(vocab_size, config)
        width, count = config.d_model, config.n_layers
        self.embedding = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(BidirectionalStack(nn.LSTM, width) for _ in range(count))
        self.joins = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(count))
        initialise_biases(self)
        self.add_head(width)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        drop, lengths = self.config.dropout, (source.segments > 0).sum(1)
        x = dropout(self.embedding(source.ids), drop, self.training)  # (B, T, D)
        for layer, join in zip(self.layers, self.joins, strict=True):
            x = torch.tanh(join(layer(x, lengths)[0]))
            x = dropout(x, drop, self.training)
        if tap is not None:
            tap("recurrent.output", x)
        return x
