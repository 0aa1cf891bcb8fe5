"""Counting models: exact tables, no gradients.

Each is a table of n-gram counts (`ngrams`) and a rule that turns the counts into probabilities:

    P(x | c) = p(cx)                           if x was counted after the context c,
               floor(c) + weight(c) P(x | c')  if not, where c' is c without its first symbol.

Maximum likelihood has floor = weight = 0: a transition never counted is impossible, and one in the
data gives an infinite loss. Priors (`dirichlet_ngram`) and discounts (`kneser_ney`) repair this.
Nothing of size V × V is ever stored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.cache import ContextWindow, DecodeState
from regard.models.config import Presets
from regard.models.language_model import Constrain, LanguageModel
from regard.models.model import Model, VariableBuffers
from regard.models.ngrams import ABSENT, NGrams, count, empty_table
from regard.models.supervised import Budget, Log


@dataclass(frozen=True, kw_only=True)
class CountConfig:
    """A counting model without settings. `max_len` only limits how much is scored at once."""

    max_len: int = 256

    def __post_init__(self) -> None:
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {self.max_len}")


@dataclass(frozen=True, eq=False)
class BackoffTable:
    """Probabilities of n-grams and what to use for all others, in fp64.

    Entries are in the order of nodes; the first V are the symbols.
    """

    p: Tensor  # (V + N,) of the n-grams counted
    weight: Tensor  # (V + N,) of the shorter context, for symbols not counted after a node
    floor: Tensor  # (V + N,) added to each of these
    unseen: Tensor  # (order, 2) weight and floor after contexts never counted, by their length
    possible: Tensor  # (V,) the symbols that get the floor

    def terms(self, nodes: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return weight and floor (N,) after contexts of `length` symbols, which may be UNSEEN or
        ABSENT.
        """
        counted, index = nodes >= 0, nodes.clamp_min(0)
        weight = torch.where(counted, self.weight[index], self.unseen[length, 0])
        floor = torch.where(counted, self.floor[index], self.unseen[length, 1])
        absent = nodes == ABSENT  # the shorter context is the longest there is
        return weight.masked_fill(absent, 1.0), floor.masked_fill(absent, 0.0)


class CountingModel(Model):
    """A model that is fitted by counting instead of gradient steps."""

    loop = "count"

    @abstractmethod
    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        """Fit to the training data, read as a stream, replacing any earlier fit.

        Settings left open are chosen, on `valid` if there is one, stored in `config` and logged.
        With a budget, work that does not fit into it is reduced.
        """


class TableModel(VariableBuffers, CountingModel, LanguageModel):
    """A table of n-gram counts with smoothing. All families store the same tensors."""

    variable = ("codes", "counts")
    supports_packing = True
    unigrams: Tensor
    codes: Tensor
    counts: Tensor
    start_id: Tensor

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__(vocab_size, config)
        table = empty_table(vocab_size, 1)
        self.register_buffer("unigrams", table.unigrams)  # (V,)
        self.register_buffer("codes", table.codes)  # (N,)
        self.register_buffer("counts", table.counts)  # (N,)
        self.register_buffer("start_id", torch.tensor([-1]))  # of `<S>`; -1: nothing counted
        self._backoff: tuple[Tensor, BackoffTable] | None = None  # cached, with the codes it is for

    @property
    @abstractmethod
    def order(self) -> int:
        """The number of symbols of the longest n-gram: one more than the model's context."""

    @abstractmethod
    def smooth(self, table: NGrams) -> BackoffTable:
        """Turn counts into probabilities."""

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        self.set_table(count(train, self.order))

    def set_table(self, table: NGrams) -> None:
        """Store counts in the model's buffers."""
        self.unigrams, self.codes, self.counts = table.unigrams, table.codes, table.counts
        self.start_id = torch.tensor([table.start])

    @property
    def table(self) -> NGrams:
        """The counts."""
        return NGrams(self.order, int(self.start_id), self.unigrams, self.codes, self.counts)

    @property
    def backoff(self) -> BackoffTable:
        """The smoothed probabilities, computed at the first use."""
        cached = self._backoff
        if cached is None or cached[0] is not self.codes:  # replaced, or on another device
            cached = self._backoff = self.codes, self.smooth(self.table)
        return cached[1]

    def buffer_error(self) -> str:
        fits = len(self.codes) == len(self.counts) and bool((self.codes.diff() > 0).all())
        return "" if fits else "codes must be sorted and have as many counts"

    def log_rows(self, nodes: list[Tensor], size: int) -> Tensor:
        """Return log P(· | context), (N, V), computed in fp64 and rounded to fp32, for N = `size`
        contexts given as the nodes (N,) of their last 1, 2, … symbols.
        """
        backoff, v = self.backoff, self.vocab_size
        p = backoff.p[:v].repeat(size, 1)  # (N, V)
        for length, node in enumerate(nodes, start=1):
            weight, floor = backoff.terms(node, length)
            p.mul_(weight[:, None]).add_(floor[:, None] * backoff.possible)
            first = torch.searchsorted(self.codes, node.clamp_min(0) * v)  # (N,)
            children = torch.searchsorted(self.codes, (node.clamp_min(0) + 1) * v) - first
            children[node < 0] = 0
            rows = torch.repeat_interleave(torch.arange(size, device=node.device), children)
            offset = torch.arange(len(rows), device=node.device)
            offset -= torch.repeat_interleave(children.cumsum(0) - children, children)
            index = first[rows] + offset
            p[rows, self.codes[index] % v] = backoff.p[v + index]
        return p.log_().float()

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        nodes = [node.flatten() for node in self.table.contexts(ids, segments)]
        logits = self.log_rows(nodes, ids.numel()).view(*ids.shape, self.vocab_size)
        if tap is not None:
            tap("logits", logits)
        return logits

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        nodes = [node.flatten() for node in self.table.contexts(ids, segments)]
        if constrain is None:
            *_, p = self.probabilities(nodes, targets.flatten())
            return p.log().float().view(targets.shape)

        def logits(rows: slice) -> Tensor:
            return self.log_rows([node[rows] for node in nodes], len(ids.flatten()[rows]))

        return self.score_in_chunks(logits, ids, targets, constrain)

    def probabilities(self, nodes: list[Tensor], symbols: Tensor) -> Iterator[Tensor]:
        """Yield P of (N,) symbols in fp64 after contexts of 0, 1, 2, … symbols, given as for
        `log_rows`.
        """
        backoff, table = self.backoff, self.table
        p = backoff.p[symbols]
        yield p
        for length, node in enumerate(nodes, start=1):
            weight, floor = backoff.terms(node, length)
            child = table.find(node, symbols)
            lower = floor * backoff.possible[symbols] + weight * p
            p = torch.where(child >= 0, backoff.p[child.clamp_min(0)], lower)
            yield p

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        ids = torch.full((batch, self.order - 1), ABSENT, device=self.codes.device)
        return DecodeState([ContextWindow(ids)], batch, capacity)

    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        state.check(ids.size(1))
        window = cast(ContextWindow, state.layers[0])
        window.push(ids, lengths)
        state.advance(lengths, ids.size(1))
        nodes = [node[:, -1] for node in self.table.contexts(window.ids)]
        return self.log_rows(nodes, len(ids))  # (B, V)


def uniform(table: NGrams) -> Tensor:
    """Return the uniform distribution (V,) over all tokens but `<S>`, which never follows."""
    p = torch.ones(table.vocab_size, dtype=torch.float64, device=table.codes.device)
    if table.start >= 0 and table.vocab_size > 1:
        p[table.start] = 0.0
    return p / p.sum()


def maximum_likelihood(table: NGrams, unigrams: Tensor) -> BackoffTable:
    """Return relative frequencies; `unigrams` (V,) are the probabilities without a context or in
    one never counted.
    """
    totals = table.totals(table.counts)
    p = table.counts / totals[table.parents].double()
    weight = (totals == 0).double()
    unseen = torch.tensor([[1.0, 0.0]] * table.order, dtype=torch.float64, device=unigrams.device)
    return BackoffTable(
        torch.cat([unigrams, p]), weight, torch.zeros_like(weight), unseen, unigrams > 0
    )


class Uniform(TableModel):
    """All tokens but `<S>` are equally probable: the baseline of every other model."""

    Config = CountConfig
    PRESETS: ClassVar[Presets] = {"exact": lambda n_layers, d_model: CountConfig()}
    order = 1

    def smooth(self, table: NGrams) -> BackoffTable:
        return maximum_likelihood(table, uniform(table))


class Unigram(Uniform):
    """Relative frequencies of symbols, without context."""

    def smooth(self, table: NGrams) -> BackoffTable:
        total = int(table.unigrams.sum())
        return maximum_likelihood(table, table.unigrams / total if total else uniform(table))


class Bigram(Uniform):
    """The first-order Markov chain, P(b | a) = n(a, b) / n(a); uniform after an a never counted."""

    order = 2

    @property
    def totals(self) -> Tensor:
        """(V,) how often each symbol was followed by another."""
        return self.table.totals(self.counts)[: self.vocab_size]
