"""Readers without attention that answer: convolutions over neighbours, recurrence both ways.

`cnn`: filters of several widths side by side, each where it answers most strongly (Collobert et al.
2011; Kim 2014, arXiv:1408.5882; over DNA Alipanahi et al. 2015, "DeepBind"); further layers are
residual and dilated. `lstm`: a bidirectional LSTM (Graves & Schmidhuber 2005). Embedding, pooling,
head and trainer are those of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.norms import make_norm
from regard.layers.recurrent import BidirectionalStack
from regard.models.recurrent import RecurrentConfig, initialise_biases
from regard.models.supervised import HeadConfig, NeuralSupervisedModel

NORM_EPS = 1e-6  # as in the Transformer's presets


@dataclass(frozen=True, kw_only=True)
class SequenceClassifierConfig(RecurrentConfig, HeadConfig):
    """Shape of a reader that answers."""

    pooling: str = "max"

    def __post_init__(self) -> None:
        RecurrentConfig.__post_init__(self)
        HeadConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig(SequenceClassifierConfig):
    """The same with filters over `narrowest` to `widest` neighbours, as many of each width."""

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
    """Three, four and five neighbours."""
    return ConvolutionConfig(n_layers=n_layers, d_model=d_model)


def motifs(n_layers: int, d_model: int) -> ConvolutionConfig:
    """As wide as the motifs of DNA and proteins are long."""
    return ConvolutionConfig(n_layers=n_layers, d_model=d_model, narrowest=5, widest=12)


def both_ways(n_layers: int, d_model: int) -> SequenceClassifierConfig:
    """At most two layers, since recurrences gain from width."""
    return SequenceClassifierConfig(n_layers=min(n_layers, 2), d_model=d_model)


class SameConvolution(nn.Module):
    """Convolution of a sequence of `there` positions with zeros around it, one to a row."""

    def __init__(self, d_in: int, d_out: int, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.filters = nn.Conv1d(d_in, d_out, width, dilation=dilation)
        reach = (width - 1) * dilation
        self.around = reach // 2, reach - reach // 2

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D'): what stands in padding is not seen."""
        zeroed = (x * there[..., None]).mT
        return self.filters(F.pad(zeroed, self.around)).mT  # type: ignore[no-any-return]


class Residual(nn.Module):
    """A further layer: normalised, over five neighbours some steps apart, added."""

    def __init__(self, d_model: int, dilation: int, drop: float) -> None:
        super().__init__()
        self.norm = make_norm("rms", d_model, NORM_EPS, bias=False)
        self.neighbours = SameConvolution(d_model, d_model, 5, dilation)
        self.drop = drop

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        y = self.neighbours(torch.relu(self.norm(x)), there)
        return x + dropout(y, self.drop, self.training)


class ConvolutionalClassifier(NeuralSupervisedModel):
    """Filters over neighbours that answer."""

    Config = ConvolutionConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"kim": kim, "motifs": motifs}

    def __init__(self, vocab_size: int, config: ConvolutionConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
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
        """See NeuralAssessor."""
        there = source.segments > 0
        x = dropout(self.embedding(source.ids), self.config.dropout, self.training)  # (B, T, D)
        x = torch.relu(torch.cat([filters(x, there) for filters in self.filters], dim=-1))
        if tap is not None:
            tap("filters.output", x)
        for layer in self.layers:
            x = layer(x, there)
        return x


class RecurrentClassifier(NeuralSupervisedModel):
    """A recurrence that reads both ways and answers."""

    Config = SequenceClassifierConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"both-ways": both_ways}
    static_shapes = False  # cuDNN is told the lengths on the host

    def __init__(self, vocab_size: int, config: SequenceClassifierConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        width, count = config.d_model, config.n_layers
        self.embedding = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(BidirectionalStack(nn.LSTM, width) for _ in range(count))
        self.joins = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(count))
        for module in self.modules():
            if isinstance(module, nn.RNNBase):
                initialise_biases(module)
        self.add_head(width)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See NeuralAssessor."""
        drop, lengths = self.config.dropout, (source.segments > 0).sum(1)
        x = dropout(self.embedding(source.ids), drop, self.training)  # (B, T, D)
        for layer, join in zip(self.layers, self.joins, strict=True):
            x = torch.tanh(join(layer(x, lengths)[0]))
            x = dropout(x, drop, self.training)
        if tap is not None:
            tap("recurrent.output", x)
        return x
