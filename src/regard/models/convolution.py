"""Convolutional networks over sequences: a causal language model, and a classifier.

The language model is a stack of dilated causal convolutions. WaveNet (van den Oord et al. 2016,
arXiv:1609.03499): dilations 1, 2, 4, … double from layer to layer, so that the receptive field
doubles too; with kernel 2 this is also the binary tree that merges neighbours two by two, shared by
all positions. Where we differ: each layer is a pre-norm residual block without skip connections,
and its activation may be any that feed-forward layers have. Presets: `modern` (SwiGLU) and
`wavenet` (tanh and sigmoid). Records are padded with zeros.

The classifier has filters of several widths with max pooling (Collobert et al. 2011; Kim 2014,
arXiv:1408.5882; for DNA Alipanahi et al. 2015, "DeepBind"). Where we differ: further layers are
residual and dilated, and pooling and head are those of the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.cache import DecodeState, take_last
from regard.layers.convolution import FILTERS, ConvolutionBlock, ConvolutionContext, PastWindow
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.norms import NORMS, make_norm
from regard.layers.tap import Tap, tapped
from regard.models import LESS_DROPOUT, Presets, Shape, check_choices, check_dropout, check_ranges
from regard.models.language_model import NeuralLanguageModel
from regard.models.recurrent import SequenceClassifierConfig
from regard.models.supervised import NeuralSupervisedModel

NORM_EPS = 1e-6  # as in the Transformer's presets


@dataclass(frozen=True, kw_only=True)
class CNNConfig:
    """Shape of a convolutional language model. `max_len` only limits the length of a row."""

    n_layers: int = 4
    d_model: int = 128
    d_ff: int = 128  # inside a layer, after the convolution
    kernel: int = 2
    cycle: int = 10  # layers after which dilations restart at 1: WaveNet's 1, 2, 4, …, 512
    max_len: int = 256
    dropout: float = 0.0
    norm: str = "rms"
    feedforward: str = "swiglu"

    def __post_init__(self) -> None:
        check_ranges(self, n_layers=1_000, d_model=1 << 16, d_ff=1 << 20, kernel=1 << 8)
        check_ranges(self, cycle=16, max_len=1 << 22)
        check_choices(self, norm=NORMS, feedforward=FILTERS)
        check_dropout(self)

    @property
    def dilations(self) -> list[int]:
        """The dilation of each layer."""
        return [1 << i % self.cycle for i in range(self.n_layers)]

    @property
    def receptive_field(self) -> int:
        """The number of symbols that a prediction depends on."""
        return 1 + (self.kernel - 1) * sum(self.dilations)


def modern(n_layers: int, d_model: int) -> CNNConfig:
    """SwiGLU after each convolution, as wide as the model."""
    return CNNConfig(n_layers=n_layers, d_model=d_model, d_ff=d_model)


def wavenet(n_layers: int, d_model: int) -> CNNConfig:
    """The gates of 2016: tanh times sigmoid."""
    return CNNConfig(n_layers=n_layers, d_model=d_model, d_ff=d_model, feedforward="gated")


class CNN(NeuralLanguageModel):
    """A causal convolutional language model."""

    Config = CNNConfig
    PRESETS: ClassVar[Presets] = {"modern": modern, "wavenet": wavenet}
    supports_packing = True
    static_shapes = True

    def __init__(self, vocab_size: int, config: CNNConfig) -> None:
        super().__init__(vocab_size, config)
        c = config
        self.embedding = nn.Embedding(vocab_size, c.d_model)
        self.blocks = nn.ModuleList(
            ConvolutionBlock(
                c.feedforward,
                c.d_model,
                c.d_ff,
                self._norm(),
                PastWindow(c.kernel, dilation),
                dropout=c.dropout,
            )
            for dilation in c.dilations
        )
        self.norm = self._norm()
        self.head = nn.Linear(c.d_model, vocab_size, bias=False)
        initialise(self)

    @classmethod
    def adapt_shape(cls, shape: Shape, max_len: int) -> Shape:
        """Return just enough layers to cover the context, up to the largest dilation."""
        n_layers = max(1, min(10, (max_len - 1).bit_length()))
        return Shape(n_layers, shape.d_model, LESS_DROPOUT * shape.dropout)

    def _norm(self) -> nn.Module:
        return make_norm(self.config.norm, self.config.d_model, NORM_EPS, bias=False)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        return self.run(ids, ConvolutionContext(segments), None, tap)

    def run(
        self, ids: Tensor, context: ConvolutionContext, state: DecodeState | None, tap: Tap | None
    ) -> Tensor:
        """Embed (B, T) ids and apply the blocks: (B, T, D)."""
        x = dropout(self.embedding(ids), self.config.dropout, self.training)  # (B, T, D)
        x = tapped(tap, "embedding", x)
        for i, block in enumerate(self.blocks):
            x = block(x, context, None if state is None else state.layers[i])
            x = tapped(tap, f"block.{i}.output", x)
        return self.norm(x)  # type: ignore[no-any-return]

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        like, width = self.embedding.weight, self.config.d_model
        rings = [block.past.new_state(batch, width, like) for block in self.blocks]  # type: ignore[union-attr, operator]
        return DecodeState(rings, batch, capacity)

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        x = self.run(ids, ConvolutionContext(None, state.length, lengths), state, None)  # (B, T, D)
        return take_last(x, lengths)


def initialise(model: CNN) -> None:
    """Set every initial value.

    | parameter | initial value |
    |---|---|
    | linear weights | normal, std 1 / sqrt(fan in) |
    | those that write to the residual stream | divided by sqrt(n_layers) |
    | embedding | normal, std 1 |
    | head | normal, std 0.5 / sqrt(d_model) |
    | norm gains | 1 |
    """
    config = model.config
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            depth = config.n_layers if name.endswith("down") else 1
            nn.init.normal_(module.weight, std=(module.in_features * depth) ** -0.5)
    nn.init.normal_(model.embedding.weight, std=1.0)
    nn.init.normal_(model.head.weight, std=0.5 * config.d_model**-0.5)


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
        x = tapped(tap, "filters.output", x)
        for layer in self.layers:
            x = layer(x, mask)
        return x
