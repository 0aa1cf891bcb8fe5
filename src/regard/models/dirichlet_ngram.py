"""The Beta distribution: what is known of one probability after counting.

The distribution function is the regularised incomplete beta function I_x(a, b), by its continued
fraction (DLMF 8.17.22), evaluated from the front (Lentz 1976; Thompson & Barnett 1986); quantiles
by bisection, which needs nothing but that it rises.

n-grams with Dirichlet priors: what was counted, and before that what was to be expected.

The probabilities after a context c have the prior Dirichlet(1 + α p), so that the most probable
ones a posteriori are

    MAP:  P(x | c) = (n(cx) + α p(x)) / (N(c) + α),   mean:  (n(cx) + 1 + α p(x)) / (N(c) + K + α)

with K symbols that can follow. α → 0 makes MAP maximum likelihood, α → ∞ the prior. The prior's p
is uniform (`symmetric`), or the model of one order less, P(x | c') with c' the context without its
first symbol (`hierarchical`: MacKay & Peto 1995; as interpolated Markov models of motifs, Siebert &
Söding 2016). Each order has its own α. Unless given, it maximises the evidence

    Π_c B(n(c·) + a) / B(a),   B(a) = Π Γ(a_x) / Γ(Σ a_x),

the probability of the training data one symbol after the other, each predicted by the same estimate
from the counts so far: a = α p for MAP, which is the mean under Dirichlet(α p) too (MacKay & Peto
1995), and a = 1 + α p for the mean.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.models.counts import CountConfig, Say, SmoothingRule, TableModel, base
from regard.models.ngrams import CHUNK, NGrams, count, pieces
from regard.models.supervised import Budget

TINY = 1e-300  # in place of a zero that would be divided by
STEPS = 1_000_000  # of the fraction; it takes about the square root of a + b


def cumulative(x: float, a: float, b: float) -> float:
    """P(X <= x) for X ~ Beta(a, b), a and b positive."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges faster from the other side
        return 1 - cumulative(1 - x, b, a)
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(norm + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / beta_interval(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / beta_interval(1 + even * d), beta_interval(1 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / beta_interval(1 + odd * d), beta_interval(1 + odd / c)
        value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * value


def beta_interval(value: float) -> float:
    """The value, away from zero."""
    return value if abs(value) > TINY else TINY


def quantile(probability: float, a: float, b: float) -> float:
    """The x with P(X <= x) = probability for X ~ Beta(a, b)."""
    if not (0 <= probability <= 1 and a > 0 and b > 0):
        raise ValueError(
            f"probability must be from 0 to 1, a and b positive, got {probability}, {a} and {b}"
        )
    low, high = 0.0, 1.0
    while True:
        # where x is tiny, halve its exponent rather than itself: relative precision everywhere
        middle = math.sqrt(max(low, TINY) * high) if high > 4 * low else (low + high) / 2
        if not low < middle < high:
            return middle
        if cumulative(middle, a, b) < probability:
            low = middle
        else:
            high = middle


DOUBLED = 3.0  # times as long takes counting n-grams of twice the length
LONGEST = 16  # symbols of the n-grams tried when the order is open
LOGS = (-8.0, 16.0)  # log α: from practically no prior to practically nothing else
SMALL = 8  # counts up to which Γ is a product
CACHED = 1 << 14  # numbers worked on at once, over and over: they stay in the cache
NOTHING = 0.001 * math.log(2)  # a gain, per token, for which no longer n-grams are taken
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class DirichletNGramConfig(CountConfig):
    """An n-gram with a Dirichlet prior."""

    order: int = 0  # symbols of the longest n-gram; 0 = chosen by held-out likelihood
    prior: Literal["hierarchical", "symmetric"] = "hierarchical"
    estimate: Literal["map", "mean"] = "map"
    alpha: float = -1.0  # strength of the prior in every order; below 0 = chosen by evidence

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        if not 0 <= self.order <= 64:
            raise ValueError(f"order must be from 0 to 64, got {self.order}")
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha must be a number, got {self.alpha}")


class DirichletNGram(TableModel):
    """An n-gram whose probabilities have Dirichlet priors."""

    Config = DirichletNGramConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "hierarchical": lambda n_layers, d_model: DirichletNGramConfig(),
        "symmetric": lambda n_layers, d_model: DirichletNGramConfig(prior="symmetric"),
    }
    alphas: Tensor

    def __init__(self, vocab_size: int, config: DirichletNGramConfig) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("alphas", torch.zeros(self.order, dtype=torch.float64))

    @property
    def order(self) -> int:
        """See TableModel."""
        return int(self.config.order) or 1

    @property
    def ones(self) -> int:
        """What is added to every count beside the prior: the 1 of 1 + α p, in the mean alone."""
        return int(self.config.estimate == "mean")

    def fit(
        self, train: Shard, valid: Shard | None, say: Say, budget: Budget | None = None
    ) -> None:
        """See CountingModel. An open order becomes part of the configuration."""
        if self.config.order:
            self.estimate(count(train, self.order))
            return
        budget = budget or Budget(say)
        longest, best, took = 2, 2, 0.0
        while best == longest < LONGEST:
            if took and budget.left < DOUBLED * took:
                budget.reduce(f"orders above {longest} are not tried")
                break
            began = time.monotonic()
            longest *= 2
            budget.progress(f"orders up to {longest}")
            self.config = dataclasses.replace(self.config, order=longest)
            self.estimate(count(train, longest))
            figures = list(self.held_out(valid) if valid else self.left_out())
            best = 1 + int(np.argmax(np.array(figures) > max(figures) - NOTHING))
            took = time.monotonic() - began
        table, alphas = self.table.cut(best), self.alphas[:best]
        self.config = dataclasses.replace(self.config, order=best)
        self.take(table)
        self.alphas = alphas.clone()
        how = "of the validation part" if valid else "of the training data, each symbol left out"
        bits = ", ".join(f"{-figure / math.log(2):.4f}" for figure in figures)
        say(f"order {best} of 1 to {longest}, by the likelihood {how}: {bits} bits per token")

    def estimate(self, table: NGrams) -> None:
        """Take a table and the strengths of its priors."""
        self.take(table)
        given = float(self.config.alpha)
        climbed = self.climb(lambda level: given if given >= 0 else strongest(level, self.ones))
        self.alphas = torch.tensor([alpha for _, alpha, _ in climbed], dtype=torch.float64)

    def climb(
        self, strength: Callable[[NGramLevel], float] | None = None, *, left_out: bool = False
    ) -> Iterator[tuple[NGramLevel, float, Tensor]]:
        """Order by order, the n-grams, the strength of their prior (the model's own, unless another
        is given) and their probabilities.
        """
        table, p = self.table, self.alphas.new_empty(0)
        links = SuffixLinks(table.borders(), table.suffixes(), table.totals(table.counts))
        for order in range(1, table.order + 1):
            level = level_of(table, links, order, p, self.config.prior)
            alpha = strength(level) if strength else float(self.alphas[order - 1])
            found = level.estimate(alpha, self.ones, left_out)
            p = torch.cat([p, found])
            yield level, alpha, found

    def rule(self, table: NGrams) -> SmoothingRule:
        """See TableModel."""
        first, totals, borders = base(table), table.totals(table.counts), table.borders()
        weight, unseen = first.new_zeros(len(totals)), first.new_zeros(table.order, 2)
        floor = torch.zeros_like(weight)
        possible = int((first > 0).sum())
        for length in range(1, table.order):  # of contexts
            nodes = slice(borders[length - 1], borders[length])
            weight[nodes], floor[nodes] = self.left(totals[nodes], length, possible)
            unseen[length] = torch.cat(self.left(totals.new_zeros(1), length, possible))
        p = torch.cat([found for _, _, found in self.climb()])
        return SmoothingRule(p, weight, floor, unseen, first > 0)

    def left(self, totals: Tensor, length: int, possible: int) -> tuple[Tensor, Tensor]:
        """Weight and floor after contexts of so many symbols that were seen `totals` (C,) times."""
        alpha = float(self.alphas[length])
        whole = totals + alpha + self.ones * possible
        if self.config.prior == "hierarchical":
            weight = torch.where(whole > 0, alpha / whole, 1.0)
            return weight, torch.where(whole > 0, self.ones / whole, 0.0)
        floor = torch.where(whole > 0, (self.ones + alpha / possible) / whole, 1 / possible)
        return torch.zeros_like(floor), floor

    def held_out(self, shard: Shard) -> Iterator[float]:
        """The mean log-likelihood of a shard for each order from 1 to the model's."""
        total, many = np.zeros(self.order), 0
        for ids, begins, skip in pieces(shard, self.order, CHUNK):
            tokens = torch.from_numpy(ids.astype(np.int64))
            segments = torch.zeros_like(tokens)
            segments[torch.from_numpy(begins)] = 1
            kept = torch.arange(1, len(ids)) >= skip
            kept &= segments[1:] == 0  # `<S>` is not predicted
            nodes = self.table.contexts(tokens[None, :-1], segments.cumsum(0)[None, :-1])
            chosen = [node[0][kept] for node in nodes]
            likelihoods = self.probabilities(chosen, tokens[1:][kept])
            total += [float(p.log().sum()) for p in likelihoods]
            many += int(kept.sum())
        yield from total / max(1, many)

    def left_out(self) -> Iterator[float]:
        """The mean log-likelihood of the training data for each order, every symbol predicted as if
        it alone had not been counted.
        """
        table = self.table
        begins, borders = table.firsts() == table.start, table.borders()
        shorter, many = 0.0, int(table.unigrams.sum())  # of n-grams that cannot be longer
        for level, _, p in self.climb(left_out=True):
            logs = torch.where(level.counts > 0, level.counts * p.log(), 0.0)
            yield (shorter + float(logs.sum())) / max(1, many)
            own = begins[borders[level.order - 1] : borders[level.order]]
            shorter += float(logs[own].sum())

    def interval(
        self, context: Sequence[int], symbol: int, level: float = 0.95
    ) -> tuple[float, float]:
        """Where P(symbol | context) lies with this probability a posteriori, equal tails cut."""
        a, b = self.posterior(context, symbol)
        tail = (1 - level) / 2
        return (quantile(tail, a, b), quantile(1 - tail, a, b)) if a else (0.0, 0.0)

    def posterior(self, context: Sequence[int], symbol: int) -> tuple[float, float]:
        """The a and b of Beta(a, b), which P(symbol | context) follows a posteriori: the marginals
        of a Dirichlet distribution are Beta distributions. a = 0 for what can never follow.
        """
        table, device = self.table, self.alphas.device
        symbol = int(symbol)  # ids of a shard are small unsigned integers, which index as masks
        if not 0 <= symbol < self.vocab_size:
            raise ValueError(f"symbol must be from 0 to {self.vocab_size - 1}, got {symbol}")
        x = torch.tensor([symbol], device=device)
        last = [int(i) for i in context[max(0, len(context) - self.order + 1) :]]
        ids = torch.tensor([last], dtype=torch.int64, device=device)
        nodes = [node[:, -1] for node in table.contexts(ids)[: len(last)]]
        first = base(table)
        if not first[symbol]:
            return 0.0, 1.0
        alpha = float(self.alphas[len(nodes)])
        *_, prior = [first[x], *self.probabilities(nodes[:-1], x)][: 1 + len(nodes)]
        if self.config.prior == "symmetric":
            prior = first[x]
        if nodes:
            child = int(table.find(nodes[-1], x))
            seen = int(table.counts[child - self.vocab_size]) if child >= 0 else 0
            total = int(table.totals(table.counts)[nodes[-1]]) if int(nodes[-1]) >= 0 else 0
        else:
            seen, total = int(table.unigrams[symbol]), int(table.unigrams.sum())
        a = 1 + alpha * float(prior) + seen
        return a, int((first > 0).sum()) + alpha + total - a


@dataclass(frozen=True)
class SuffixLinks:
    """What a table says of its nodes: see NGrams.borders, suffixes and totals."""

    borders: list[int]
    suffixes: Tensor
    totals: Tensor


@dataclass(frozen=True, eq=False)
class NGramLevel:
    """The n-grams of one order: counts, totals of their contexts and what the prior expects of
    them, (M,); totals of all contexts (C,); how many symbols can follow.
    """

    order: int
    counts: Tensor
    totals: Tensor
    prior: Tensor
    contexts: Tensor
    possible: int

    def estimate(self, alpha: float, ones: int, left_out: bool) -> Tensor:
        """(M,) probabilities; `left_out`, each as if it had been seen once less."""
        counts, totals = self.counts, self.totals
        if left_out:
            counts, totals = (counts - 1).clamp_min(0), (totals - 1).clamp_min(0)
        whole = totals + alpha + ones * self.possible
        found = (counts + ones * (self.prior > 0) + alpha * self.prior) / whole
        return torch.where(whole > 0, found, self.prior)


def level_of(table: NGrams, links: SuffixLinks, order: int, p: Tensor, prior: str) -> NGramLevel:
    """The n-grams of one order, given the probabilities `p` of all shorter ones."""
    first = base(table)
    possible = int((first > 0).sum())
    if order == 1:
        contexts = table.unigrams.sum()[None]
        whole = contexts.expand(table.vocab_size)
        return NGramLevel(1, table.unigrams, whole, first, contexts, possible)
    borders, size = links.borders, table.vocab_size
    part = slice(borders[order - 1] - size, borders[order] - size)
    if prior == "hierarchical":
        expected = p[links.suffixes[part]]
    else:
        expected = first[table.codes[part] % size]
    totals = links.totals[table.codes[part] // size]
    contexts = links.totals[borders[order - 2] : borders[order - 1]]
    return NGramLevel(order, table.counts[part], totals, expected, contexts, possible)


def evidence(level: NGramLevel, ones: int) -> Callable[[float], float]:
    """The log-evidence of one order's counts as a function of α: Σ_c log B(n(c·) + a) / B(a) with
    a = ones + α p.

    Only what was seen contributes. Of the contexts, those of equal totals do alike.
    """
    seen = (level.counts > 0) & (level.prior > 0)
    counts, order = level.counts[seen].sort(descending=True)
    prior = level.prior[seen][order]
    expected = prior.cpu().numpy()
    reach = [int((counts > j).sum()) for j in range(SMALL + 1)]
    frequent, larger = prior[: reach[SMALL]], counts[: reach[SMALL]].double()
    sizes, many = torch.unique(level.contexts[level.contexts > 0], return_counts=True)
    sizes = sizes.double()

    def value(alpha: float) -> float:
        whole = sizes.new_tensor(alpha + ones * level.possible)
        total = (many * (torch.lgamma(whole) - torch.lgamma(whole + sizes))).sum()
        for first in range(0, reach[0], CACHED):  # Γ(a + n) / Γ(a) = a (a + 1) … (a + n - 1)
            a = ones + alpha * expected[first : first + CACHED]
            product = a.copy()
            for j in range(1, SMALL):
                many_more = max(0, reach[j] - first)
                product[:many_more] *= a[:many_more] + j
            total += float(np.log(product).sum())
        for p, n in zip(frequent.split(CACHED), larger.split(CACHED), strict=True):
            a = ones + alpha * p
            total += (torch.lgamma(a + n) - torch.lgamma(a + SMALL)).sum()
        return float(total)

    return value


def strongest(level: NGramLevel, ones: int) -> float:
    """The α of greatest evidence: the best of a coarse grid of log α, then golden sections."""
    if not bool((level.counts > 0).any()):
        return 0.0
    of = evidence(level, ones)
    low, high = LOGS
    grid = [low + i * (high - low) / 8 for i in range(9)]
    best = int(np.argmax([of(math.exp(log)) for log in grid]))
    low, high = grid[max(0, best - 1)], grid[min(8, best + 1)]
    inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    values = [of(math.exp(log)) for log in inner]
    while high - low > 1e-2:  # a hundredth of α changes nothing that can be seen
        if values[0] > values[1]:
            high, inner = inner[1], [inner[1] - GOLDEN * (inner[1] - low), inner[0]]
            values = [of(math.exp(inner[0])), values[0]]
        else:
            low, inner = inner[0], [inner[1], inner[0] + GOLDEN * (high - inner[0])]
            values = [values[1], of(math.exp(inner[1]))]
    return math.exp((low + high) / 2)
