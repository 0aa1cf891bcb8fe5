"""The neural probabilistic language model: the last few symbols, embedded side by side, through a
hidden layer.

Bengio et al. 2003 (JMLR 3:1137-1155). Where we differ: there are no direct connections from the
embeddings to the output, hidden layers may be several, and they may bend otherwise than by tanh.
Before a record's first token stand zeros: `<S>`, which only ever comes first, tells where it
begins, so that a vector of its own for nothing would add nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.attention import Tap
from regard.layers.cache import DecodeState, Ring, last_of
from regard.layers.convolution import ConvolutionContext, PastWindow
from regard.layers.feedforward import BENDS, dropout
from regard.models.language_model import NeuralLanguageModel

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, **BENDS}
EMBEDDINGS = ("learned", "onehot")
MOST_ONEHOT = 4096  # symbols: their vectors are as wide as the vocabulary


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """Shape of a language model that sees the last `window` symbols. `max_len` is only how much is
    read at once.
    """

    window: int = 3
    n_layers: int = 1
    d_model: int = 256  # of the hidden layers
    d_embedding: int = 32  # of each symbol; not used by onehot
    embedding: str = "learned"
    activation: str = "tanh"
    max_len: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        limits = {"window": 1 << 12, "n_layers": 100, "d_model": 1 << 16, "d_embedding": 1 << 16}
        for name, most in {**limits, "max_len": 1 << 22}.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")
        for name, allowed in {"embedding": EMBEDDINGS, "activation": tuple(ACTIVATIONS)}.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def receptive_field(self) -> int:
        """How many symbols a prediction depends on."""
        return self.window


def bengio(n_layers: int, d_model: int) -> MLPConfig:
    """Learned embeddings an eighth as wide as the one hidden layer, which bends by tanh."""
    return MLPConfig(n_layers=1, d_model=d_model, d_embedding=max(1, d_model // 8))


def onehot(n_layers: int, d_model: int) -> MLPConfig:
    """Symbols as they are, without an embedding of their own."""
    return MLPConfig(n_layers=1, d_model=d_model, embedding="onehot")


class OneHot(nn.Module):
    """Symbols as unit vectors; takes the place of an `nn.Embedding`."""

    weight: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        if vocab_size > MOST_ONEHOT:
            raise UsageError(
                f"model.embedding = 'onehot' is for at most {MOST_ONEHOT:,} symbols, "
                f"got {vocab_size:,}; use 'learned'"
            )
        self.embedding_dim = vocab_size
        self.register_buffer("weight", torch.ones(1), persistent=False)  # tells type and device

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, V)."""
        return F.one_hot(ids, self.embedding_dim).to(self.weight.dtype)


class MLP(NeuralLanguageModel):
    """A feed-forward language model over a window of symbols."""

    Config = MLPConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"bengio": bengio, "onehot": onehot}
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

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralLanguageModel."""
        return self.run(ids, ConvolutionContext(segments), None, tap)

    def run(
        self, ids: Tensor, stretch: ConvolutionContext, ring: Ring | None, tap: Tap | None
    ) -> Tensor:
        """Embed (B, T) ids, look back, and send each window through the layers: (B, T, D)."""
        x = self.past(self.embedding(ids), stretch, ring)  # (B, T, window · d_embedding)
        bend = ACTIVATIONS[self.config.activation]
        for i, layer in enumerate(self.layers):
            x = bend(layer(x))  # (B, T, D)
            if tap is not None:
                tap.at("layer").at(i)("output", x)
            x = dropout(x, self.config.dropout, self.training)
        return x  # type: ignore[no-any-return]

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel. The state's size does not depend on the capacity."""
        ring = self.past.new_state(batch, self.embedding.embedding_dim, self.embedding.weight)
        return DecodeState([ring], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        ring = state.layers[0]
        assert isinstance(ring, Ring)
        x = self.run(ids, ConvolutionContext(None, state.length, lengths), ring, None)  # (B, T, D)
        state.advance(lengths, ids.size(1))
        return self.head(last_of(x, lengths))  # type: ignore[no-any-return]


def initialise(model: MLP) -> None:
    """Every initial value, in one place.

    | parameter | drawn from |
    |---|---|
    | hidden layers | normal, std 1 / sqrt(fan in); of one-hot symbols std 1 / sqrt(window) |
    | biases | 0 |
    | embedding | normal, std 1 |
    | head | normal, std 0.5 / sqrt(d_model) |
    """
    config = model.config
    for i, layer in enumerate(model.layers):
        assert isinstance(layer, nn.Linear)
        ones = config.window if config.embedding == "onehot" and not i else layer.in_features
        nn.init.normal_(layer.weight, std=ones**-0.5)
        nn.init.zeros_(layer.bias)
    if isinstance(model.embedding, nn.Embedding):
        nn.init.normal_(model.embedding.weight, std=1.0)
    nn.init.normal_(model.head.weight, std=0.5 * config.d_model**-0.5)
