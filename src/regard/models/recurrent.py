"""Recurrent networks: language models, encoder–decoders without and with attention, classifiers.

Language models: `rnn` is the plain network (Elman 1990; as a language model Mikolov et al. 2010),
`gru` has gates (Cho et al. 2014, arXiv:1406.1078), `lstm` gates and a cell (Hochreiter and
Schmidhuber 1997, with the forget gate of Gers et al. 2000; as a language model Sundermeyer et al.
2012). They differ only in the cell.

Translation: a bidirectional encoder and a recurrent decoder. In `rnn` the final states of the
encoder are all that the decoder gets (Cho et al. 2014; Sutskever et al. 2014, arXiv:1409.3215).
`rnn-attention` also attends to every source position before each word: with the additive score
(Bahdanau et al. 2015, arXiv:1409.0473), the dot product or the bilinear form (Luong et al. 2015,
arXiv:1508.04025), or any other registered score.

`lstm` for labels and values is a bidirectional LSTM (Graves and Schmidhuber 2005). The cells are
torch's own, whose kernels are fused.

Where we differ: attention comes after the recurrence for every score, as in Luong et al.; Bahdanau
et al. feed the context into the next step, which needs a loop over the steps even in training.
There is one head, and the keys are the values: the encoder's output. Every layer of the encoder is
bidirectional, and each decoder layer starts from the final state of the same encoder layer; Cho et
al. and Sutskever et al. read in one direction. Tied embeddings (Press & Wolf 2017,
arXiv:1608.05859) are scaled by sqrt(d_model).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.attention import SCORES, attend_memory, make_score
from regard.layers.cache import CrossKV, DecodeState, RecurrentState, take_last
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.masks import Rendered
from regard.layers.tap import Tap, tapped
from regard.models import Presets, Shape, check_choices, check_dropout, check_ranges
from regard.models.language_model import NeuralLanguageModel
from regard.models.seq2seq import ConditionedLM, NeuralSeq2Seq
from regard.models.supervised import HeadConfig, NeuralSupervisedModel


class RecurrentStack(nn.Module):
    """A stack of recurrent layers over (B, T, D), of torch's `nn.RNN`, `nn.GRU` or `nn.LSTM`."""

    def __init__(self, cell: type[nn.RNNBase], d_model: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        build: Any = cell  # the base class requires a mode, which its subclasses know
        self.cells: nn.RNNBase = build(
            d_model, d_model, n_layers, batch_first=True, dropout=dropout if n_layers > 1 else 0.0
        )

    def forward(self, x: Tensor, initial: RecurrentState | None = None) -> Tensor:
        """(B, T, D) to (B, T, D), from a zero state or from `initial`; right padding does not reach
        the positions before it.
        """
        y: Tensor = self.cells(x, None if initial is None else self._cell_state(initial))[0]
        return y

    def _cell_state(self, state: RecurrentState) -> Any:
        vectors = tuple(vector.contiguous() for vector in state.vectors)
        return vectors if isinstance(self.cells, nn.LSTM) else vectors[0]

    def new_state(self, batch: int, like: Tensor) -> RecurrentState:
        """Return the zero state: hidden vectors and, for an LSTM, cell vectors, (layers, B, D)."""
        shape = (self.cells.num_layers, batch, self.cells.hidden_size)
        count = 2 if isinstance(self.cells, nn.LSTM) else 1
        return RecurrentState(*(like.new_zeros(shape) for _ in range(count)))

    def advance(self, x: Tensor, lengths: Tensor | None, state: RecurrentState) -> Tensor:
        """Read the first lengths[b] vectors of each row and return its last output, (B, D)."""
        before = self._cell_state(state)
        if lengths is None:
            y, after = self.cells(x, before)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            y, after = self.cells(packed, before)
            y = pad_packed_sequence(y, batch_first=True)[0]  # (B, T, D)
        state.vectors = after if isinstance(after, tuple) else (after,)
        return take_last(y, lengths)


class BidirectionalStack(nn.Module):
    """A recurrent layer that reads a sequence from its start, and one from its end."""

    def __init__(self, cell: type[nn.RNNBase], d_model: int) -> None:
        super().__init__()
        self.onward = RecurrentStack(cell, d_model, 1, 0.0)
        self.backward = RecurrentStack(cell, d_model, 1, 0.0)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) to (B, S, 2D), and the vectors (B, 2D) where both directions end.

        Each row is reversed within its lengths[b] positions, so that padding comes last in both
        directions and has no effect.
        """
        positions = torch.arange(x.size(1), device=x.device)
        reverse = lengths[:, None] - 1 - positions
        reverse = torch.where(positions < lengths[:, None], reverse, positions)
        reverse = reverse[..., None].expand_as(x)  # (B, S, D): its own inverse
        forward, backward = self.onward(x), self.backward(x.gather(1, reverse))  # (B, S, D)
        ends = torch.cat((take_last(forward, lengths), take_last(backward, lengths)), dim=-1)
        return torch.cat((forward, backward.gather(1, reverse)), dim=-1), ends


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Shape of a recurrent model. `max_len` limits the context in training, not in decoding."""

    n_layers: int = 2
    d_model: int = 128
    max_len: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_ranges(self, n_layers=100, d_model=1 << 16, max_len=1 << 22)
        check_dropout(self)


def standard(n_layers: int, d_model: int) -> RecurrentConfig:
    """At most three layers: recurrent models gain from width rather than depth."""
    return RecurrentConfig(n_layers=min(n_layers, 3), d_model=d_model)


def refuse_packing(segments: Tensor | None) -> None:
    """Raise ValueError for packed rows."""
    if segments is not None:
        raise ValueError("a recurrent model cannot separate packed records; use length buckets")


def recurrent_shape(shape: Shape) -> Shape:
    """Return a wide and shallow shape: recurrent models gain from width rather than depth."""
    return Shape(min(shape.n_layers, 2), 2 * shape.d_model, shape.dropout)


class RecurrentModel(NeuralLanguageModel):
    """A recurrent language model; subclasses choose the cell."""

    Config = RecurrentConfig
    PRESETS: ClassVar[Presets] = {"standard": standard}
    cell: ClassVar[type[nn.RNNBase]]

    def __init__(self, vocab_size: int, config: RecurrentConfig) -> None:
        super().__init__(vocab_size, config)
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.cells = RecurrentStack(self.cell, config.d_model, config.n_layers, config.dropout)
        self.head = nn.Linear(config.d_model, vocab_size, bias=False)
        initialise(self)

    @classmethod
    def adapt_shape(cls, shape: Shape, max_len: int) -> Shape:
        return recurrent_shape(shape)

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        refuse_packing(segments)
        drop = self.config.dropout
        x = self.cells(dropout(self.embedding(ids), drop, self.training))  # (B, T, D)
        x = dropout(x, drop, self.training)
        x = tapped(tap, "recurrent.output", x)
        return x

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        return DecodeState([self.cells.new_state(batch, self.embedding.weight)], batch, capacity)

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        memory = cast(RecurrentState, state.layers[0])
        return self.cells.advance(self.embedding(ids), lengths, memory)  # (B, D)


class RNNModel(RecurrentModel):
    """h = tanh(W x + U h + b)."""

    cell = nn.RNN


class GRUModel(RecurrentModel):
    """Gates control how much of the state is updated."""

    cell = nn.GRU


class LSTMModel(RecurrentModel):
    """Gates control what a cell forgets, stores and outputs."""

    cell = nn.LSTM


def initialise(model: RecurrentModel | RecurrentSeq2SeqBase, *, tied: bool = False) -> None:
    """Set every initial value that is not torch's default.

    | parameter | initial value |
    |---|---|
    | input and recurrent matrices | uniform, ± 1 / sqrt(d_model), torch's default |
    | forget-gate bias of an LSTM | 1, to keep memory at first (Jozefowicz et al. 2015) |
    | other biases of cells | 0 |
    | embeddings | normal, std 1; std 1 / sqrt(d_model) where they are tied and scaled |
    | head | normal, std 0.5 / sqrt(d_model) unless tied |
    """
    width = model.config.d_model
    initialise_biases(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=width**-0.5 if tied else 1.0)
    if not tied:
        nn.init.normal_(model.head.weight, std=0.5 * width**-0.5)


def initialise_biases(model: nn.Module) -> None:
    """Set the biases of all recurrent cells as in the table of `initialise`."""
    for cells in model.modules():
        if not isinstance(cells, nn.RNNBase):
            continue
        for name, parameter in cells.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            if "bias_ih" in name and isinstance(cells, nn.LSTM):  # gates in the order i, f, g, o
                nn.init.ones_(parameter[cells.hidden_size : 2 * cells.hidden_size].detach())


CELLS: dict[str, type[nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}


@dataclass(frozen=True, kw_only=True)
class RecurrentSeq2SeqConfig(RecurrentConfig):
    """Shape of both stacks; each has `n_layers`."""

    cell: str = "gru"
    tied: bool = True  # one matrix embeds and projects
    source_vocab: int = 0  # of an encoder with a vocabulary of its own; 0: it shares the decoder's

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, cell=CELLS)
        check_ranges(self, least=0, source_vocab=(1 << 24) - 1)


@dataclass(frozen=True, kw_only=True)
class AttentiveSeq2SeqConfig(RecurrentSeq2SeqConfig):
    """Shape of both stacks, and the attention score."""

    score: str = "additive"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, score=SCORES)


def shape(n_layers: int, d_model: int) -> dict[str, Any]:
    """Return at most two layers, as recurrent models gain from width; dropout of Luong et al."""
    return {"n_layers": min(n_layers, 2), "d_model": d_model, "dropout": 0.2}


def cho(n_layers: int, d_model: int) -> RecurrentSeq2SeqConfig:
    """Gated recurrent units without attention."""
    return RecurrentSeq2SeqConfig(**shape(n_layers, d_model))


def sutskever(n_layers: int, d_model: int) -> RecurrentSeq2SeqConfig:
    """LSTMs without attention."""
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
    """Bidirectional layers; a linear map joins the two directions for the next layer."""

    def __init__(self, config: RecurrentSeq2SeqConfig, *, attentive: bool) -> None:
        super().__init__()
        cell, width, count = CELLS[config.cell], config.d_model, config.n_layers
        self.n_vectors = 2 if cell is nn.LSTM else 1  # in the state of a decoder layer
        self.dropout = config.dropout
        self.layers = nn.ModuleList(BidirectionalStack(cell, width) for _ in range(count))
        joins = count if attentive else count - 1  # without attention the last output is unused
        self.joins = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(joins))
        self.bridges = nn.ModuleList(
            nn.Linear(2 * width, self.n_vectors * width) for _ in range(count)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the (B, S, D) encoding of embedded sources (B, S, D), and the initial state of the
        decoder, (layers, B, D) each.
        """
        ends = []
        for i, (layer, bridge) in enumerate(zip(self.layers, self.bridges, strict=True)):
            x, end = layer(x, lengths)  # (B, S, 2D)
            ends.append(torch.tanh(bridge(end)))
            if i < len(self.joins):
                x = dropout(self.joins[i](x), self.dropout, self.training)  # (B, S, D)
        return x, torch.stack(ends).chunk(self.n_vectors, dim=-1)


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """What a decoder gets from B sources: its initial state, (layers, B, D) each, and the keys and
    values of the sources if it attends to them.
    """

    first: tuple[Tensor, ...]
    memory: CrossKV | None

    def init_recurrence(self, rows: int) -> RecurrentState:
        """Return the initial state of `rows` targets, the number of sources or a multiple."""
        times = rows // self.first[0].size(1)
        if times == 1:
            return RecurrentState(*self.first)
        return RecurrentState(*(vector.repeat_interleave(times, 1) for vector in self.first))


class RecurrentSeq2SeqBase(NeuralSeq2Seq):
    """A bidirectional encoder and a recurrent decoder, with or without attention."""

    attentive: ClassVar[bool]

    def __init__(self, vocab_size: int, config: RecurrentSeq2SeqConfig) -> None:
        super().__init__(vocab_size, config)
        width = config.d_model
        self.embedding = nn.Embedding(vocab_size, width)
        self.source_embedding = self.embedding
        if config.source_vocab:
            self.source_embedding = nn.Embedding(config.source_vocab, width)
        self.encoder = RecurrentEncoder(config, attentive=self.attentive)
        self.cells = RecurrentStack(CELLS[config.cell], width, config.n_layers, config.dropout)
        self.head = nn.Linear(width, vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        initialise(self, tied=config.tied)

    @classmethod
    def adapt_shape(cls, shape: Shape, max_len: int) -> Shape:
        return recurrent_shape(shape)

    @abstractmethod
    def attend(self, x: Tensor, memory: CrossKV | None, tap: Tap | None = None) -> Tensor:
        """Return the (B, T, D) output of the decoder, after attention to the source if any."""

    def encode(self, source: Inputs, tap: Tap | None = None) -> EncodedSource:
        lengths = source.segments.count_nonzero(dim=1).clamp_min(1)  # (B,)
        x, first = self.encoder(self.embed(source.ids, self.source_embedding), lengths)
        x = tapped(tap, "encoder.output", x)
        if not self.attentive:
            return EncodedSource(first, None)
        keys = x[:, None]  # (B, 1, S, D)
        return EncodedSource(first, CrossKV(keys, keys, Rendered(padding_mask(source), True)))

    def decode(self, ids: Tensor, source: EncodedSource, tap: Tap | None = None) -> Tensor:
        """Return the (B, T, D) vectors of (B, T) ids that the head projects."""
        x = self.cells(self.embed(ids, self.embedding), source.init_recurrence(len(ids)))
        x = tapped(tap, "recurrent.output", x)
        return self.drop(self.attend(x, source.memory, tap))

    def forward(self, ids: Tensor, segments: Tensor | None, source: Inputs) -> Tensor:
        refuse_packing(segments)
        return self.decode(ids, self.encode(source))

    def condition(self, source: Inputs) -> ConditionedLM:
        return ConditionedRecurrent(self, source)

    def embed(self, ids: Tensor, embedding: nn.Embedding) -> Tensor:
        scale = self.config.d_model**0.5 if self.config.tied else 1.0
        return self.drop(embedding(ids) * scale)

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)


class RecurrentSeq2Seq(RecurrentSeq2SeqBase):
    """A recurrent encoder–decoder without attention."""

    Config = RecurrentSeq2SeqConfig
    PRESETS: ClassVar[Presets] = {"cho": cho, "sutskever": sutskever}
    attentive = False

    def attend(self, x: Tensor, memory: CrossKV | None, tap: Tap | None = None) -> Tensor:
        return x


class AttentiveSeq2Seq(RecurrentSeq2SeqBase):
    """A recurrent encoder–decoder with attention (Luong et al. 2015, eq. 5)."""

    Config = AttentiveSeq2SeqConfig
    PRESETS: ClassVar[Presets] = {"bahdanau": bahdanau, "luong": luong, "bilinear": bilinear}
    attentive = True

    def __init__(self, vocab_size: int, config: AttentiveSeq2SeqConfig) -> None:
        super().__init__(vocab_size, config)
        self.score = make_score(config.score, 1, config.d_model)
        self.combine = nn.Linear(2 * config.d_model, config.d_model, bias=False)

    def attend(self, x: Tensor, memory: CrossKV | None, tap: Tap | None = None) -> Tensor:
        assert memory is not None
        inner = None if tap is None else tap.at("decoder").at("cross")
        context = attend_memory(x[:, None], memory, score=self.score, tap=inner)  # (B, 1, T, D)
        return torch.tanh(self.combine(torch.cat((context[:, 0], x), dim=-1)))


class ConditionedRecurrent(ConditionedLM, NeuralLanguageModel):
    """A recurrent decoder with its encoded sources."""

    def __init__(self, model: RecurrentSeq2SeqBase, source: Inputs) -> None:
        super().__init__(model)
        self.model, self.head = model, model.head
        self.source = model.encode(source)

    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        old, new = self.source, self.model.encode(source, tap)
        for vector, replacement in zip(old.first, new.first, strict=True):
            vector.copy_(replacement)
        if old.memory is not None and new.memory is not None:
            old.memory.k.copy_(new.memory.k)  # the values are the same tensor
            cast(Rendered, old.memory.mask).allowed.copy_(padding_mask(source))

    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        refuse_packing(segments)
        return self.model.decode(ids, self.source, tap)

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        return DecodeState([self.source.init_recurrence(batch)], batch, capacity)

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        model, memory = self.model, cast(RecurrentState, state.layers[0])
        last = model.cells.advance(model.embed(ids, model.embedding), lengths, memory)  # (B, D)
        return model.attend(last[:, None], self.source.memory)[:, 0]  # (B, D)


def padding_mask(source: Inputs) -> Tensor:
    """Return (B, 1, 1, S) the source positions that every query of a row may attend to."""
    return (source.segments > 0)[:, None, None]


@dataclass(frozen=True, kw_only=True)
class SequenceClassifierConfig(RecurrentConfig, HeadConfig):
    """Shape of a sequence classifier."""

    pooling: str = "max"

    def __post_init__(self) -> None:
        RecurrentConfig.__post_init__(self)
        HeadConfig.__post_init__(self)


def bidirectional(n_layers: int, d_model: int) -> SequenceClassifierConfig:
    """At most two layers, since recurrent models gain from width."""
    return SequenceClassifierConfig(n_layers=min(n_layers, 2), d_model=d_model)


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
        x = tapped(tap, "recurrent.output", x)
        return x
