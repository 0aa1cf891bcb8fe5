"""The convolutional language model: a stack of dilated causal convolutions.

WaveNet (van den Oord et al. 2016, arXiv:1609.03499): dilations 1, 2, 4, … double from layer to
layer, so that the past that is seen doubles too; with kernel 2 this is also the tree that merges
neighbours two by two, shared by all positions. Where we differ: each layer is a pre-norm residual
block without skip connections, and its activation may be any of the house's. The presets are
`modern` (SwiGLU) and `wavenet` (tanh and sigmoid). Before a record stand zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.layers.attention import Tap
from regard.layers.cache import DecodeState, Ring, last_of
from regard.layers.convolution import FILTERS, ConvolutionBlock, ConvolutionContext, PastWindow
from regard.layers.feedforward import dropout
from regard.layers.norms import NORMS, make_norm
from regard.models.language_model import NeuralLanguageModel

NORM_EPS = 1e-6  # as in the Transformer's presets


@dataclass(frozen=True, kw_only=True)
class CNNConfig:
    """Shape of a convolutional language model. `max_len` is only how much is read at once."""

    n_layers: int = 4
    d_model: int = 128
    d_ff: int = 128  # inside a layer, after the convolution
    kernel: int = 2
    cycle: int = 10  # layers after which dilations begin again at 1: WaveNet's 1, 2, 4, …, 512
    max_len: int = 256
    dropout: float = 0.0
    norm: str = "rms"
    feedforward: str = "swiglu"

    def __post_init__(self) -> None:
        limits = {"n_layers": 1_000, "d_model": 1 << 16, "d_ff": 1 << 20, "kernel": 1 << 8}
        for name, most in {**limits, "cycle": 16, "max_len": 1 << 22}.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")
        for name, allowed in {"norm": NORMS, "feedforward": FILTERS}.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def dilations(self) -> list[int]:
        """One for each layer."""
        return [1 << i % self.cycle for i in range(self.n_layers)]

    @property
    def receptive_field(self) -> int:
        """How many symbols a prediction depends on: the last and those before it."""
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
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern,
        "wavenet": wavenet,
    }
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

    def _norm(self) -> nn.Module:
        return make_norm(self.config.norm, self.config.d_model, NORM_EPS, bias=False)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralLanguageModel."""
        return self.run(ids, ConvolutionContext(segments), None, tap)

    def run(
        self, ids: Tensor, stretch: ConvolutionContext, state: DecodeState | None, tap: Tap | None
    ) -> Tensor:
        """Embed (B, T) ids and send them through the stack: (B, T, D)."""
        x = dropout(self.embedding(ids), self.config.dropout, self.training)  # (B, T, D)
        if tap is not None:
            tap("embedding", x)
        for i, block in enumerate(self.blocks):
            x = block(x, stretch, None if state is None else state.layers[i])
            if tap is not None:
                tap.at("block").at(i)("output", x)
        return self.norm(x)  # type: ignore[no-any-return]

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel. The state's size depends on the dilations, not on the capacity."""
        like, width = self.embedding.weight, self.config.d_model
        rings: list[Ring] = [
            block.past.new_state(batch, width, like)  # type: ignore[union-attr, operator]
            for block in self.blocks
        ]
        return DecodeState(rings, batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        x = self.run(ids, ConvolutionContext(None, state.length, lengths), state, None)  # (B, T, D)
        state.advance(lengths, ids.size(1))
        return self.head(last_of(x, lengths))  # type: ignore[no-any-return]


def initialise(model: CNN) -> None:
    """Every initial value, in one place.

    | parameter | drawn from |
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
