"""Recurrent language models: the same embedding, head and trainer as the Transformer, recurrence in
between.

`rnn` is the plain network (Elman 1990; as a language model Mikolov et al. 2010), `gru` has gates
(Cho et al. 2014, arXiv:1406.1078), `lstm` gates and a cell (Hochreiter & Schmidhuber 1997, with the
forget gate of Gers et al. 2000; as a language model Sundermeyer et al. 2012). They differ in the
cell alone.

Recurrent translators: the encoder–decoder before the Transformer, without and with attention.

A bidirectional encoder reads the source, a recurrent decoder speaks the target. `rnn` is the
bottleneck: where the encoder's two directions end is all that the decoder gets (Cho et al. 2014,
arXiv:1406.1078; Sutskever et al. 2014, arXiv:1409.3215). `rnn-attention` also looks back at every
position of the source before each word: with the additive score (Bahdanau et al. 2015,
arXiv:1409.0473), the dot product or the bilinear form (Luong et al. 2015, arXiv:1508.04025), or any
other score there is.

Where we differ: attention comes after the recurrence for every score, as Luong has it; Bahdanau
feeds what was seen into the next step, which would need a loop over the steps of a target that is
known. There is one head, and keys are values: the encoder's vectors as they are. Every layer of the
encoder reads both ways, and a layer of the decoder begins where that of the encoder ended; Cho et
al. and Sutskever et al. read one way. Where one matrix embeds and projects (Press & Wolf 2017,
arXiv:1608.05859), embeddings are scaled by sqrt(d_model).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import SCORES, Tap, attend_memory, make_score
from regard.layers.cache import CrossKV, DecodeState, RecurrentState
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.masks import Rendered
from regard.layers.recurrent import BidirectionalStack, RecurrentStack
from regard.models.language_model import NeuralLanguageModel
from regard.models.seq2seq import ConditionedLM, NeuralSeq2Seq


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

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel. The state's size does not depend on the capacity."""
        return DecodeState([self.cells.new_state(batch, self.embedding.weight)], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, RecurrentState)
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


CELLS: dict[str, type[nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}


@dataclass(frozen=True, kw_only=True)
class RecurrentSeq2SeqConfig(RecurrentConfig):
    """Shape of both stacks; each has `n_layers`."""

    cell: str = "gru"
    tied: bool = True  # one matrix embeds and projects
    source_vocab: int = 0  # of an encoder with a vocabulary of its own; 0: it shares the decoder's

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cell not in CELLS:
            raise ValueError(f"cell must be one of {', '.join(CELLS)}, got {self.cell!r}")
        if not 0 <= self.source_vocab < 1 << 24:
            raise ValueError(f"source_vocab must be from 0 to {1 << 24}, got {self.source_vocab}")


@dataclass(frozen=True, kw_only=True)
class AttentiveSeq2SeqConfig(RecurrentSeq2SeqConfig):
    """The same with attention."""

    score: str = "additive"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(SCORES)}, got {self.score!r}")


def shape(n_layers: int, d_model: int) -> dict[str, Any]:
    """At most two layers, since recurrences gain from width; dropout as Luong et al. 2015 have."""
    return {"n_layers": min(n_layers, 2), "d_model": d_model, "dropout": 0.2}


def cho(n_layers: int, d_model: int) -> RecurrentSeq2SeqConfig:
    """Gated recurrent units and a bottleneck."""
    return RecurrentSeq2SeqConfig(**shape(n_layers, d_model))


def sutskever(n_layers: int, d_model: int) -> RecurrentSeq2SeqConfig:
    """LSTMs and a bottleneck."""
    return RecurrentSeq2SeqConfig(**shape(n_layers, d_model), cell="lstm")


def bahdanau(n_layers: int, d_model: int) -> AttentiveSeq2SeqConfig:
    """Gated recurrent units and the additive score."""
    return AttentiveSeq2SeqConfig(**shape(n_layers, d_model))


def luong(n_layers: int, d_model: int) -> AttentiveSeq2SeqConfig:
    """LSTMs and the dot product."""
    return AttentiveSeq2SeqConfig(**shape(n_layers, d_model), cell="lstm", score="dot")


def bilinear(n_layers: int, d_model: int) -> AttentiveSeq2SeqConfig:
    """LSTMs and the bilinear form, Luong's "general"."""
    return AttentiveSeq2SeqConfig(**shape(n_layers, d_model), cell="lstm", score="bilinear")


class RecurrentEncoder(nn.Module):
    """A stack of layers that read both ways; what two directions found is joined for the next."""

    def __init__(self, config: RecurrentSeq2SeqConfig, *, looked_at: bool) -> None:
        super().__init__()
        cell, width, count = CELLS[config.cell], config.d_model, config.n_layers
        self.vectors = 2 if cell is nn.LSTM else 1  # that a layer of the decoder carries
        self.dropout = config.dropout
        self.layers = nn.ModuleList(BidirectionalStack(cell, width) for _ in range(count))
        joins = count if looked_at else count - 1  # nobody asks for the bottleneck's last
        self.joins = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(joins))
        self.bridges = nn.ModuleList(
            nn.Linear(2 * width, self.vectors * width) for _ in range(count)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(B, S, D) embedded sources to (B, S, D), and the state that the decoder begins with:
        (layers, B, D) each.
        """
        ends = []
        for i, (layer, bridge) in enumerate(zip(self.layers, self.bridges, strict=True)):
            x, end = layer(x, lengths)  # (B, S, 2D)
            ends.append(torch.tanh(bridge(end)))
            if i < len(self.joins):
                x = dropout(self.joins[i](x), self.dropout, self.training)  # (B, S, D)
        return x, torch.stack(ends).chunk(self.vectors, dim=-1)


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """What a decoder knows of B sources: the state it begins with, (layers, B, D) each, and, if it
    looks back, their positions.
    """

    first: tuple[Tensor, ...]
    memory: CrossKV | None

    def recurrence(self, rows: int) -> RecurrentState:
        """The state of `rows` targets, as many as sources or a multiple of that."""
        times = rows // self.first[0].size(1)
        if times == 1:
            return RecurrentState(*self.first)
        return RecurrentState(*(vector.repeat_interleave(times, 1) for vector in self.first))


class RecurrentSeq2SeqBase(NeuralSeq2Seq):
    """A bidirectional encoder and a recurrent decoder; a family says how it looks back."""

    looks_back: ClassVar[bool]

    def __init__(self, vocab_size: int, config: RecurrentSeq2SeqConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        width = config.d_model
        self.embedding = nn.Embedding(vocab_size, width)
        self.source_embedding = self.embedding
        if config.source_vocab:
            self.source_embedding = nn.Embedding(config.source_vocab, width)
        self.encoder = RecurrentEncoder(config, looked_at=self.looks_back)
        self.cells = RecurrentStack(CELLS[config.cell], width, config.n_layers, config.dropout)
        self.head = nn.Linear(width, vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        initialise_translator(self)

    @abstractmethod
    def look(self, x: Tensor, memory: CrossKV | None, tap: Tap | None = None) -> Tensor:
        """The (B, T, D) vectors of the decoder, after looking at the source."""

    def read(self, source: Inputs, tap: Tap | None = None) -> EncodedSource:
        """What the decoder is to know of these sources, one to a row."""
        lengths = source.segments.count_nonzero(dim=1).clamp_min(1)  # (B,)
        x, first = self.encoder(self.embedded(source.ids, self.source_embedding), lengths)
        if tap is not None:
            tap("encoder.output", x)
        if not self.looks_back:
            return EncodedSource(first, None)
        keys = x[:, None]  # (B, 1, S, D)
        return EncodedSource(first, CrossKV(keys, keys, Rendered(seen(source), True)))

    def speak(self, ids: Tensor, reading: EncodedSource, tap: Tap | None = None) -> Tensor:
        """(B, T) ids to the (B, T, D) vectors that the head projects."""
        x = self.cells(self.embedded(ids, self.embedding), reading.recurrence(len(ids)))
        if tap is not None:
            tap("recurrent.output", x)
        return self.drop(self.look(x, reading.memory, tap))

    def forward(self, ids: Tensor, segments: Tensor | None, source: Inputs) -> Tensor:
        """See NeuralTranslator."""
        if segments is not None:
            raise ValueError("a recurrence cannot keep packed records apart; use length buckets")
        return self.speak(ids, self.read(source))

    def condition(self, source: Inputs) -> ConditionedLM:
        """See Translator."""
        return ConditionedRecurrent(self, source)

    def embedded(self, ids: Tensor, embedding: nn.Embedding) -> Tensor:
        """(B, T) ids to (B, T, D)."""
        scale = self.config.d_model**0.5 if self.config.tied else 1.0
        return self.drop(embedding(ids) * scale)

    def drop(self, x: Tensor) -> Tensor:
        """Dropout between the parts, while training."""
        return dropout(x, self.config.dropout, self.training)


class RecurrentSeq2Seq(RecurrentSeq2SeqBase):
    """A translator that never looks back."""

    Config = RecurrentSeq2SeqConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"cho": cho, "sutskever": sutskever}
    looks_back = False

    def look(self, x: Tensor, memory: CrossKV | None, tap: Tap | None = None) -> Tensor:
        """See RecurrentTranslator."""
        return x


class AttentiveSeq2Seq(RecurrentSeq2SeqBase):
    """A translator that looks at the source before each word: tanh(W [context; x]), Luong et al.
    2015, eq. 5.
    """

    Config = AttentiveSeq2SeqConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "bahdanau": bahdanau,
        "luong": luong,
        "bilinear": bilinear,
    }
    looks_back = True

    def __init__(self, vocab_size: int, config: AttentiveSeq2SeqConfig) -> None:
        super().__init__(vocab_size, config)
        self.score = make_score(config.score, 1, config.d_model)
        self.combine = nn.Linear(2 * config.d_model, config.d_model, bias=False)

    def look(self, x: Tensor, memory: CrossKV | None, tap: Tap | None = None) -> Tensor:
        """See RecurrentTranslator."""
        assert memory is not None
        inner = None if tap is None else tap.at("decoder").at("cross")
        context = attend_memory(x[:, None], memory, score=self.score, tap=inner)  # (B, 1, T, D)
        return torch.tanh(self.combine(torch.cat((context[:, 0], x), dim=-1)))


class ConditionedRecurrent(ConditionedLM, NeuralLanguageModel):
    """A recurrent decoder and what it knows of its sources."""

    def __init__(self, translator: RecurrentSeq2SeqBase, source: Inputs) -> None:
        super().__init__(translator)
        self.translator, self.head = translator, translator.head
        self.reading = translator.read(source)

    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """See Given."""
        held, new = self.reading, self.translator.read(source, tap)
        for old, vector in zip(held.first, new.first, strict=True):
            old.copy_(vector)
        if held.memory is not None and new.memory is not None:
            assert isinstance(held.memory.mask, Rendered)
            held.memory.k.copy_(new.memory.k)  # its values too
            held.memory.mask.allowed.copy_(seen(source))

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralLanguageModel."""
        if segments is not None:
            raise ValueError("a recurrence cannot keep packed records apart; use length buckets")
        return self.translator.speak(ids, self.reading, tap)

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel. The state's size does not depend on the capacity."""
        return DecodeState([self.reading.recurrence(batch)], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        carried, speaker = state.layers[0], self.translator
        assert isinstance(carried, RecurrentState)
        last = speaker.cells.advance(speaker.embedded(ids, speaker.embedding), lengths, carried)
        state.advance(lengths, ids.size(1))
        looked = speaker.look(last[:, None], self.reading.memory)  # (B, 1, D)
        return self.head(looked[:, 0])  # type: ignore[no-any-return]  # (B, V)


def seen(source: Inputs) -> Tensor:
    """(B, 1, 1, S): what every query of a row may look at."""
    return (source.segments > 0)[:, None, None]


def initialise_translator(model: RecurrentSeq2SeqBase) -> None:
    """Every initial value but torch's own, in one place.

    | parameter | drawn from |
    |---|---|
    | biases of cells | as in `models.recurrent` |
    | embeddings | normal, std 1; std 1 / sqrt(d_model) where they are scaled |
    | head | normal, std 0.5 / sqrt(d_model) unless tied |
    """
    width, tied = model.config.d_model, model.config.tied
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            initialise_biases(module)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=width**-0.5 if tied else 1.0)
    if not tied:
        nn.init.normal_(model.head.weight, std=0.5 * width**-0.5)
