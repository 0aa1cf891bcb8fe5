"""The convolutional language model: a stack of dilated causal convolutions.

WaveNet (van den Oord et al. 2016, arXiv:1609.03499): dilations 1, 2, 4, … double from layer to
layer, so that the receptive field doubles too; with kernel 2 this is also the binary tree that
merges neighbours two by two, shared by all positions. Where we differ: each layer is a pre-norm
residual block without skip connections, and its activation may be any that feed-forward layers
have. Presets: `modern` (SwiGLU) and `wavenet` (tanh and sigmoid). Records are padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from regard.layers.attention import Tap
from regard.layers.cache import DecodeState, take_last
from regard.layers.convolution import FILTERS, ConvolutionBlock, ConvolutionContext, PastWindow
from regard.layers.feedforward import dropout
from regard.layers.norms import NORMS, make_norm
from regard.models.config import Presets, check_choices, check_dropout, check_ranges
from regard.models.language_model import NeuralLanguageModel
from regard.models.model import LESS_DROPOUT, Shape

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
        if tap is not None:
            tap("embedding", x)
        for i, block in enumerate(self.blocks):
            x = block(x, context, None if state is None else state.layers[i])
            if tap is not None:
                tap.at("block").at(i)("output", x)
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
