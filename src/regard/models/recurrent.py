"""Recurrent language models: the same embedding, head and trainer as the Transformer, recurrence in
between.

`rnn` is the plain network (Elman 1990; as a language model Mikolov et al. 2010), `gru` has gates
(Cho et al. 2014, arXiv:1406.1078), `lstm` gates and a cell (Hochreiter & Schmidhuber 1997, with the
forget gate of Gers et al. 2000; as a language model Sundermeyer et al. 2012). They differ in the
cell alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.layers.dropout import dropout
from regard.layers.recurrent import RecurrentStack
from regard.layers.state import Recurrence, State
from regard.layers.tap import Tap
from regard.models.language_model import NeuralLanguageModel


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Shape of a recurrent language model. `max_len` is how far back training looks; decoding has
    no limit.
    """

    n_layers: int = 2
    d_model: int = 128
    max_len: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name, most in {"n_layers": 100, "d_model": 1 << 16, "max_len": 1 << 22}.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")


LSTMConfig = RecurrentConfig  # all three have the same


def standard(n_layers: int, d_model: int) -> RecurrentConfig:
    """A stack at most three deep: recurrences gain from width rather than depth."""
    return RecurrentConfig(n_layers=min(n_layers, 3), d_model=d_model)


class RecurrentModel(NeuralLanguageModel):
    """A recurrent language model; a family says which cell."""

    Config = RecurrentConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"standard": standard}
    cell: ClassVar[type[nn.RNNBase]]

    def __init__(self, vocab_size: int, config: RecurrentConfig) -> None:
        super().__init__(vocab_size, config)
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.cells = RecurrentStack(self.cell, config.d_model, config.n_layers, config.dropout)
        self.head = nn.Linear(config.d_model, vocab_size, bias=False)
        initialise(self)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralLanguageModel."""
        if segments is not None:
            raise ValueError("a recurrence cannot keep packed records apart; use length buckets")
        x = self.embedding(ids)  # (B, T, D)
        x = self.drop(self.cells(self.drop(x)))
        if tap is not None:
            tap("recurrent.output", x)
        return x

    def drop(self, x: Tensor) -> Tensor:
        """Dropout between the parts, while training."""
        return dropout(x, self.config.dropout, self.training)

    def start(self, batch: int, capacity: int) -> State:
        """See LanguageModel. The state's size does not depend on the capacity."""
        return State([self.cells.new_state(batch, self.embedding.weight)], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: State) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, Recurrence)
        last = self.cells.advance(self.embedding(ids), lengths, memory)  # (B, D)
        state.advance(lengths, ids.size(1))
        return self.head(last)  # type: ignore[no-any-return]


class RNNModel(RecurrentModel):
    """h = tanh(W x + U h + b)."""

    cell = nn.RNN


class GRUModel(RecurrentModel):
    """Gates that decide how much of the state is renewed."""

    cell = nn.GRU


class LSTMModel(RecurrentModel):
    """Gates that decide what a cell forgets, takes in and shows."""

    cell = nn.LSTM


def initialise(model: RecurrentModel) -> None:
    """Every initial value, in one place.

    | parameter | drawn from |
    |---|---|
    | input and recurrent matrices | uniform, ± 1 / sqrt(d_model), torch's own |
    | forget-gate bias of an LSTM | 1, so that memory is kept at first (Jozefowicz et al. 2015) |
    | other biases | 0 |
    | embedding | normal, std 1 |
    | head | normal, std 0.5 / sqrt(d_model) |
    """
    width = model.config.d_model
    initialise_biases(model.cells.cells)
    nn.init.normal_(model.embedding.weight, std=1.0)
    nn.init.normal_(model.head.weight, std=0.5 * width**-0.5)


def initialise_biases(cells: nn.RNNBase) -> None:
    """The biases of the table above."""
    width = cells.hidden_size
    for name, parameter in cells.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        if "bias_ih" in name and isinstance(cells, nn.LSTM):  # gates in the order i, f, g, o
            nn.init.ones_(parameter[width : 2 * width].detach())
