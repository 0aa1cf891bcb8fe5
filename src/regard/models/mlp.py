"""The neural probabilistic language model: a feed-forward network over the last few symbols.

Bengio et al. 2003 (JMLR 3:1137-1155): the embeddings are concatenated and fed to a hidden layer.
Where we differ: there are no direct connections from the embeddings to the output, there may be
more than one hidden layer, and other activations than tanh. Records are padded with zeros instead
of a learned vector: their first token, `<S>`, already marks the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers import feedforward
from regard.layers.cache import DecodeState, Ring, take_last
from regard.layers.convolution import ConvolutionContext, PastWindow
from regard.layers.tap import Tap, tapped
from regard.models import LESS_DROPOUT, Presets, Shape, check_choices, check_dropout, check_ranges
from regard.models.language_model import NeuralLanguageModel

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, **feedforward.ACTIVATIONS}
EMBEDDINGS = ("learned", "onehot")
MAX_ONEHOT = 4096  # symbols, since one-hot vectors are as wide as the vocabulary


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """Shape of a model of the last `window` symbols. `max_len` only limits the length of a row."""

    window: int = 3
    n_layers: int = 1
    d_model: int = 256  # of the hidden layers
    d_embedding: int = 32  # of each symbol; not used by onehot
    embedding: str = "learned"
    activation: str = "tanh"
    max_len: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_ranges(self, window=1 << 12, n_layers=100, d_model=1 << 16, d_embedding=1 << 16)
        check_ranges(self, max_len=1 << 22)
        check_choices(self, embedding=EMBEDDINGS, activation=ACTIVATIONS)
        check_dropout(self)


def bengio(n_layers: int, d_model: int) -> MLPConfig:
    """One hidden layer with tanh, and learned embeddings an eighth as wide."""
    return MLPConfig(n_layers=1, d_model=d_model, d_embedding=max(1, d_model // 8))


def onehot(n_layers: int, d_model: int) -> MLPConfig:
    """One hidden layer over one-hot vectors."""
    return MLPConfig(n_layers=1, d_model=d_model, embedding="onehot")


class OneHot(nn.Module):
    """One-hot vectors of symbols, with the interface of an `nn.Embedding`."""

    weight: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        if vocab_size > MAX_ONEHOT:
            raise UsageError(
                f"model.embedding = 'onehot' is for at most {MAX_ONEHOT:,} symbols, "
                f"got {vocab_size:,}: 1,000 tokens would take {4 * vocab_size / 1000:,.0f} MB; use "
                "'learned'"
            )
        self.embedding_dim = vocab_size
        self.register_buffer("weight", torch.ones(1), persistent=False)  # for its dtype and device

    def forward(self, ids: Tensor) -> Tensor:
        """Return (B, T, V) vectors of (B, T) ids."""
        return F.one_hot(ids, self.embedding_dim).to(self.weight.dtype)


class MLP(NeuralLanguageModel):
    """A feed-forward language model over a window of symbols."""

    Config = MLPConfig
    PRESETS: ClassVar[Presets] = {"bengio": bengio, "onehot": onehot}
    supports_packing = True
    static_shapes = True

    def __init__(self, vocab_size: int, config: MLPConfig) -> None:
        super().__init__(vocab_size, config)
        learned = config.embedding == "learned"
        self.embedding: nn.Embedding | OneHot = (
            nn.Embedding(vocab_size, config.d_embedding) if learned else OneHot(vocab_size)
        )
        self.past = PastWindow(config.window)
        self.layers = nn.ModuleList(
            nn.Linear(
                config.d_model if i else config.window * self.embedding.embedding_dim,
                config.d_model,
            )
            for i in range(config.n_layers)
        )
        self.head = nn.Linear(config.d_model, vocab_size, bias=False)
        initialise(self)

    @classmethod
    def adapt_shape(cls, shape: Shape, max_len: int) -> Shape:
        """Return one wide layer; with little context, it needs less dropout."""
        return Shape(1, 4 * shape.d_model, LESS_DROPOUT * shape.dropout)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        return self.run(ids, ConvolutionContext(segments), None, tap)

    def run(
        self, ids: Tensor, context: ConvolutionContext, ring: Ring | None, tap: Tap | None
    ) -> Tensor:
        """Embed (B, T) ids and apply the layers to the window of each: (B, T, D)."""
        x = self.past(self.embedding(ids), context, ring)  # (B, T, window · d_embedding)
        activation = ACTIVATIONS[self.config.activation]
        for i, layer in enumerate(self.layers):
            x = activation(layer(x))  # (B, T, D)
            x = tapped(tap, f"layer.{i}.output", x)
            x = feedforward.dropout(x, self.config.dropout, self.training)
        return x  # type: ignore[no-any-return]

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        ring = self.past.new_state(batch, self.embedding.embedding_dim, self.embedding.weight)
        return DecodeState([ring], batch, capacity)

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        context, ring = ConvolutionContext(None, state.length, lengths), cast(Ring, state.layers[0])
        return take_last(self.run(ids, context, ring, None), lengths)


def initialise(model: MLP) -> None:
    """Set every initial value.

    | parameter | initial value |
    |---|---|
    | hidden layers | normal, std 1 / sqrt(fan in); of one-hot symbols std 1 / sqrt(window) |
    | biases | 0 |
    | embedding | normal, std 1 |
    | head | normal, std 0.5 / sqrt(d_model) |
    """
    config = model.config
    for i, layer in enumerate(model.layers):
        assert isinstance(layer, nn.Linear)
        fan_in = config.window if config.embedding == "onehot" and not i else layer.in_features
        nn.init.normal_(layer.weight, std=fan_in**-0.5)
        nn.init.zeros_(layer.bias)
    if isinstance(model.embedding, nn.Embedding):
        nn.init.normal_(model.embedding.weight, std=1.0)
    nn.init.normal_(model.head.weight, std=0.5 * config.d_model**-0.5)
