"""Counting models: exact tables, no gradients.

All of them are one table of n-grams (`ngrams`) and a rule that turns its counts into probabilities:

    P(x | c) = p(cx)                         where x was seen after the context c,
               floor(c) + weight(c) P(x | c')  where not, c' being c without its first symbol.

A maximum-likelihood model gives what it never saw no probability at all: floor and weight are 0, so
a transition never seen is impossible and says so (an infinite figure), which is the defect that
priors (`bayes`) and discounts (`kneser_ney`) repair. Nothing of size V × V is ever built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.cache import ContextWindow, DecodeState
from regard.models.language_model import CHUNK, IGNORE, Constrain, LanguageModel
from regard.models.ngrams import ABSENT, NGrams, VariableBuffers, count, empty
from regard.models.supervised import Budget

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class CountConfig:
    """Nothing to choose. `max_len` is only how much is scored at once."""

    max_len: int = 256

    def __post_init__(self) -> None:
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {self.max_len}")


@dataclass(frozen=True, eq=False)
class SmoothingRule:
    """Counts made into probabilities, in fp64; the first V nodes are the symbols.

    `p` (V + N,) are the probabilities of n-grams seen, `weight` and `floor` (V + N,) say what is
    left for other symbols after each node, `unseen` (order, 2) the weight and floor after a context
    of so many symbols that was never seen. The floor is for `possible` (V,) symbols only.
    """

    p: Tensor
    weight: Tensor
    floor: Tensor
    unseen: Tensor
    possible: Tensor


class CountingFit(ABC):
    """What is fitted by counting instead of gradient steps."""

    @abstractmethod
    def fit(
        self, train: Shard, valid: Shard | None, say: Say, budget: Budget | None = None
    ) -> None:
        """Fit to the training data, read in a stream, replacing what was known before.

        `valid` may help to choose what is left open, which becomes part of `config`; `say` is told
        what was chosen. What does not fit into the budget is reduced, and without one nothing is.
        """


class CountingModel(CountingFit, LanguageModel):
    """A language model that is fitted by counting."""


class TableModel(VariableBuffers, CountingModel):
    """A table of n-gram counts and a rule.

    A family says how long its n-grams are (`order`) and what their counts mean (`rule`). Tensors
    are stored under the same names by all.
    """

    grown = ("codes", "counts")
    supports_packing = True
    unigrams: Tensor
    codes: Tensor
    counts: Tensor
    start_id: Tensor

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__(vocab_size, config)
        table = empty(vocab_size, 1)
        self.register_buffer("unigrams", table.unigrams)  # (V,)
        self.register_buffer("codes", table.codes)  # (N,) n-grams seen
        self.register_buffer("counts", table.counts)  # (N,)
        self.register_buffer("start_id", torch.tensor([-1]))  # of `<S>`; -1: nothing counted
        self._rule: tuple[Tensor, SmoothingRule] | None = None  # the codes it is of, and the rule

    @property
    @abstractmethod
    def order(self) -> int:
        """How many symbols the longest n-gram has: one more than the model remembers."""

    @abstractmethod
    def rule(self, table: NGrams) -> SmoothingRule:
        """What the counts mean."""

    def fit(
        self, train: Shard, valid: Shard | None, say: Say, budget: Budget | None = None
    ) -> None:
        """See CountingModel."""
        self.take(count(train, self.order))

    def take(self, table: NGrams) -> None:
        """Make these counts the model's own."""
        self.unigrams, self.codes, self.counts = table.unigrams, table.codes, table.counts
        self.start_id = torch.tensor([table.start])

    @property
    def table(self) -> NGrams:
        """The counts."""
        return NGrams(self.order, int(self.start_id), self.unigrams, self.codes, self.counts)

    @property
    def rules(self) -> SmoothingRule:
        """The counts as probabilities, computed when first asked for."""
        known = self._rule
        if known is None or known[0] is not self.codes:  # others were taken, or moved
            known = self._rule = self.codes, self.rule(self.table)
        return known[1]

    def wrong(self) -> str:
        """See Grown."""
        fits = len(self.codes) == len(self.counts) and bool((self.codes.diff() > 0).all())
        return "" if fits else "codes must be sorted and have as many counts"

    def log_rows(self, nodes: list[Tensor], size: int) -> Tensor:
        """log P(· | context): (N, V) in fp64 precision rounded to fp32, for N = `size` contexts
        given as nodes (N,) of their last 1, 2, … symbols.
        """
        rule, v = self.rules, self.vocab_size
        p = rule.p[:v].repeat(size, 1)  # (N, V)
        for length, node in enumerate(nodes, start=1):
            weight, floor = left_over(rule, node, length)
            p.mul_(weight[:, None]).add_(floor[:, None] * rule.possible)
            begin = torch.searchsorted(self.codes, node.clamp_min(0) * v)  # (N,)
            many = torch.searchsorted(self.codes, (node.clamp_min(0) + 1) * v) - begin
            many[node < 0] = 0
            rows = torch.repeat_interleave(torch.arange(size, device=node.device), many)
            offset = torch.arange(len(rows), device=node.device)
            offset -= torch.repeat_interleave(many.cumsum(0) - many, many)
            seen = begin[rows] + offset
            p[rows, self.codes[seen] % v] = rule.p[v + seen]
        return p.log_().float()

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel."""
        nodes = [node.flatten() for node in self.table.contexts(ids, segments)]
        logits = self.log_rows(nodes, ids.numel()).view(*ids.shape, self.vocab_size)
        if tap is not None:
            tap("logits", logits)
        return logits

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """See LanguageModel."""
        nodes = [node.flatten() for node in self.table.contexts(ids, segments)]
        wanted = targets.flatten()
        if constrain is not None:
            logs = self._constrained(nodes, ids.flatten(), wanted, constrain)
        else:
            *_, p = self.probabilities(nodes, wanted.clamp_min(0))
            logs = p.log().float()
        return torch.where(wanted == IGNORE, 0.0, logs).view(targets.shape)

    def probabilities(self, nodes: list[Tensor], symbols: Tensor) -> Iterator[Tensor]:
        """P of (N,) symbols after contexts of 0, 1, 2, … symbols, given as for `log_rows`: fp64."""
        rule, table = self.rules, self.table
        p = rule.p[symbols]
        yield p
        for length, node in enumerate(nodes, start=1):
            weight, floor = left_over(rule, node, length)
            child = table.find(node, symbols)
            p = torch.where(
                child >= 0, rule.p[child.clamp_min(0)], floor * rule.possible[symbols] + weight * p
            )
            yield p

    def _constrained(
        self, nodes: list[Tensor], ids: Tensor, targets: Tensor, constrain: Constrain
    ) -> Tensor:
        rows = max(1, CHUNK // self.vocab_size)
        parts = []
        for first in range(0, len(ids), rows):
            part = slice(first, first + rows)
            logs = self.log_rows([node[part] for node in nodes], len(ids[part]))
            logs = constrain(logs, ids[part]).log_softmax(dim=-1)
            parts.append(logs.gather(1, targets[part].clamp_min(0)[:, None]).squeeze(1))
        return torch.cat(parts)

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel."""
        empty = torch.full((batch, self.order - 1), ABSENT, device=self.codes.device)
        return DecodeState([ContextWindow(empty)], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, ContextWindow)
        memory.push(ids, lengths)
        state.advance(lengths, ids.size(1))
        nodes = [node[:, -1] for node in self.table.contexts(memory.ids)]
        return self.log_rows(nodes, len(ids))  # (B, V)


def left_over(rule: SmoothingRule, nodes: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The weight and floor (N,) after contexts of `length` symbols: nodes, UNSEEN or ABSENT."""
    seen, known = nodes >= 0, nodes.clamp_min(0)
    weight = torch.where(seen, rule.weight[known], rule.unseen[length, 0])
    floor = torch.where(seen, rule.floor[known], rule.unseen[length, 1])
    absent = nodes == ABSENT  # shorter contexts have said all
    return weight.masked_fill(absent, 1.0), floor.masked_fill(absent, 0.0)


def base(table: NGrams) -> Tensor:
    """(V,) the uniform distribution over all that can follow: every token but `<S>`."""
    p = torch.ones(table.vocab_size, dtype=torch.float64, device=table.codes.device)
    if table.start >= 0 and table.vocab_size > 1:
        p[table.start] = 0.0
    return p / p.sum()


def likelihood(table: NGrams, first: Tensor) -> SmoothingRule:
    """Maximum likelihood: relative frequencies, `first` (V,) without any context, or in a context
    never seen.
    """
    totals = table.totals(table.counts)
    nodes = table.counts / totals[table.parents].double()
    weight = (totals == 0).double()
    unseen = torch.tensor([[1.0, 0.0]] * table.order, dtype=torch.float64, device=first.device)
    return SmoothingRule(
        torch.cat([first, nodes]), weight, torch.zeros_like(weight), unseen, first > 0
    )


class Uniform(TableModel):
    """All tokens but `<S>` are equally probable: the floor under every other model."""

    Config = CountConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "exact": lambda n_layers, d_model: CountConfig()
    }
    order = 1

    def rule(self, table: NGrams) -> SmoothingRule:
        """See TableModel."""
        return likelihood(table, base(table))


class Unigram(Uniform):
    """Symbols by their relative frequency, whatever came before."""

    def rule(self, table: NGrams) -> SmoothingRule:
        """See TableModel."""
        total = int(table.unigrams.sum())
        return likelihood(table, table.unigrams / total if total else base(table))


class Bigram(Uniform):
    """The first-order Markov chain, P(b | a) = n(a, b) / n(a); after an a never seen, uniform."""

    order = 2

    @property
    def totals(self) -> Tensor:
        """(V,) how often each symbol was followed by another."""
        return self.table.totals(self.counts)[: self.vocab_size]
