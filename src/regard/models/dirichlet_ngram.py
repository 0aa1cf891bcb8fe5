"""n-gram models with Dirichlet priors.

The probabilities after a context c have the prior Dirichlet(1 + α p), so the estimates are

    MAP:  P(x | c) = (n(cx) + α p(x)) / (N(c) + α),   mean:  (n(cx) + 1 + α p(x)) / (N(c) + K + α)

with K symbols that can follow. α → 0 makes MAP maximum likelihood, α → ∞ the prior. The prior's p
is uniform (`symmetric`), or the model of one order less, P(x | c') with c' the context without its
first symbol (`hierarchical`: MacKay & Peto 1995; for motifs as interpolated Markov models, Siebert
& Söding 2016). Each order has its own α. Unless given, it maximises the evidence

    Π_c B(n(c·) + a) / B(a),   B(a) = Π Γ(a_x) / Γ(Σ a_x),

the probability of the training data if each symbol is predicted by the same estimate from the
counts before it: a = α p for MAP, which is also the mean under Dirichlet(α p) (MacKay & Peto 1995),
and a = 1 + α p for the mean.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import betaincinv
from torch import Tensor

from regard.data.shards import Shard
from regard.models.config import Presets, check_ranges
from regard.models.counts import BackoffTable, CountConfig, TableModel, uniform
from regard.models.ngrams import CHUNK, NGrams, count, read_chunks
from regard.models.supervised import Budget, Log

SLOWDOWN = 3.0  # counting n-grams of twice the length takes so many times as long
LONGEST = 16  # symbols of the longest n-grams tried when the order is open
LOGS = (-8.0, 16.0)  # log α: from practically no prior to practically the prior alone
SMALL = 8  # counts up to which Γ is a product
CACHED = 1 << 14  # numbers per block in the evidence, so that they stay in the cache
MIN_GAIN = 0.001 * math.log(2)  # nats per token that longer n-grams must gain


@dataclass(frozen=True, kw_only=True)
class DirichletNGramConfig(CountConfig):
    """An n-gram model with a Dirichlet prior."""

    order: int = 0  # symbols of the longest n-gram; 0 = chosen by held-out likelihood
    prior: Literal["hierarchical", "symmetric"] = "hierarchical"
    estimate: Literal["map", "mean"] = "map"
    alpha: float = -1.0  # concentration of the prior at every order; below 0 = chosen by evidence

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        check_ranges(self, least=0, order=64)
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha must be a number, got {self.alpha}")


class DirichletNGram(TableModel):
    """An n-gram model whose probabilities have Dirichlet priors."""

    Config = DirichletNGramConfig
    PRESETS: ClassVar[Presets] = {
        "hierarchical": lambda n_layers, d_model: DirichletNGramConfig(),
        "symmetric": lambda n_layers, d_model: DirichletNGramConfig(prior="symmetric"),
    }
    alphas: Tensor

    def __init__(self, vocab_size: int, config: DirichletNGramConfig) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("alphas", torch.zeros(self.order, dtype=torch.float64))

    @property
    def order(self) -> int:
        return int(self.config.order) or 1

    @property
    def ones(self) -> int:
        """The 1 of 1 + α p, which the mean adds to every count and MAP does not."""
        return int(self.config.estimate == "mean")

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        if self.config.order:
            self.fit_table(count(train, self.order))
            return
        budget = budget or Budget(log)
        longest, best, seconds = 2, 2, 0.0
        while best == longest < LONGEST:
            if seconds and budget.left < SLOWDOWN * seconds:
                budget.reduce(f"orders above {longest} are not tried")
                break
            started = time.monotonic()
            longest *= 2
            budget.progress(f"orders up to {longest}")
            self.config = dataclasses.replace(self.config, order=longest)
            self.fit_table(count(train, longest))
            scores = list(self.held_out(valid) if valid else self.leave_one_out())
            best = 1 + int(np.argmax(np.array(scores) > max(scores) - MIN_GAIN))
            seconds = time.monotonic() - started
        table, alphas = self.table.truncate(best), self.alphas[:best]
        self.config = dataclasses.replace(self.config, order=best)
        self.set_table(table)
        self.alphas = alphas.clone()
        data = "of the validation part" if valid else "of the training data, each symbol left out"
        bits = ", ".join(f"{-score / math.log(2):.4f}" for score in scores)
        log(f"order {best} of 1 to {longest}, by the likelihood {data}: {bits} bits per token")

    def fit_table(self, table: NGrams) -> None:
        """Store a table and choose the concentrations of its priors."""
        self.set_table(table)
        alpha = float(self.config.alpha)
        levels = self.levels(
            lambda level: alpha if alpha >= 0 else best_concentration(level, self.ones)
        )
        self.alphas = torch.tensor([alpha for _, alpha, _ in levels], dtype=torch.float64)

    def levels(
        self, concentration: Callable[[NGramLevel], float] | None = None, *, left_out: bool = False
    ) -> Iterator[tuple[NGramLevel, float, Tensor]]:
        """Yield, order by order, the n-grams, the concentration of their prior (the stored one by
        default) and their probabilities.
        """
        table, p = self.table, self.alphas.new_empty(0)
        borders, suffixes, totals = table.borders(), table.suffixes(), table.totals(table.counts)
        base, size = uniform(table), table.vocab_size
        possible = int((base > 0).sum())
        for order in range(1, table.order + 1):
            if order == 1:
                contexts = table.unigrams.sum()[None]
                level = NGramLevel(
                    1, table.unigrams, contexts.expand(size), base, contexts, possible
                )
            else:
                part = slice(borders[order - 1] - size, borders[order] - size)
                codes = table.codes[part]
                hierarchical = self.config.prior == "hierarchical"
                level = NGramLevel(
                    order,
                    table.counts[part],
                    totals[codes // size],
                    p[suffixes[part]] if hierarchical else base[codes % size],
                    totals[borders[order - 2] : borders[order - 1]],
                    possible,
                )
            alpha = concentration(level) if concentration else float(self.alphas[order - 1])
            probabilities = level.estimate(alpha, self.ones, left_out)
            p = torch.cat([p, probabilities])
            yield level, alpha, probabilities

    def smooth(self, table: NGrams) -> BackoffTable:
        base, totals, borders = uniform(table), table.totals(table.counts), table.borders()
        weight, unseen = base.new_zeros(len(totals)), base.new_zeros(table.order, 2)
        floor = torch.zeros_like(weight)
        possible = int((base > 0).sum())
        for length in range(1, table.order):  # of contexts
            nodes = slice(borders[length - 1], borders[length])
            weight[nodes], floor[nodes] = self.backoff_terms(totals[nodes], length, possible)
            unseen[length] = torch.cat(self.backoff_terms(totals.new_zeros(1), length, possible))
        p = torch.cat([probabilities for _, _, probabilities in self.levels()])
        return BackoffTable(p, weight, floor, unseen, base > 0)

    def backoff_terms(self, totals: Tensor, length: int, possible: int) -> tuple[Tensor, Tensor]:
        """Return weight and floor (C,) after contexts of `length` symbols with these totals."""
        alpha = float(self.alphas[length])
        total = totals + alpha + self.ones * possible
        if self.config.prior == "hierarchical":
            weight = torch.where(total > 0, alpha / total, 1.0)
            return weight, torch.where(total > 0, self.ones / total, 0.0)
        floor = torch.where(total > 0, (self.ones + alpha / possible) / total, 1 / possible)
        return torch.zeros_like(floor), floor

    def held_out(self, shard: Shard) -> Iterator[float]:
        """Yield the mean log-likelihood of a shard for each order from 1 to the model's."""
        total, tokens = np.zeros(self.order), 0
        for chunk, starts, skip in read_chunks(shard, self.order, CHUNK):
            ids = torch.from_numpy(chunk.astype(np.int64))
            segments = torch.zeros_like(ids)
            segments[torch.from_numpy(starts)] = 1
            mask = torch.arange(1, len(ids)) >= skip
            mask &= segments[1:] == 0  # `<S>` is not predicted
            nodes = self.table.contexts(ids[None, :-1], segments.cumsum(0)[None, :-1])
            likelihoods = self.probabilities([node[0][mask] for node in nodes], ids[1:][mask])
            total += [float(p.log().sum()) for p in likelihoods]
            tokens += int(mask.sum())
        yield from total / max(1, tokens)

    def leave_one_out(self) -> Iterator[float]:
        """Yield the mean log-likelihood of the training data for each order, if every symbol is
        predicted from the counts of all others.
        """
        table = self.table
        initial, borders = table.first_symbols() == table.start, table.borders()
        shorter, tokens = 0.0, int(table.unigrams.sum())  # shorter: where the record starts
        for level, _, p in self.levels(left_out=True):
            logs = torch.where(level.counts > 0, level.counts * p.log(), 0.0)
            yield (shorter + float(logs.sum())) / max(1, tokens)
            at_start = initial[borders[level.order - 1] : borders[level.order]]
            shorter += float(logs[at_start].sum())

    def interval(
        self, context: Sequence[int], symbol: int, level: float = 0.95
    ) -> tuple[float, float]:
        """Return the equal-tailed credible interval of P(symbol | context)."""
        a, b = self.posterior(context, symbol)
        tail = (1 - level) / 2
        if not a:
            return 0.0, 0.0
        return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail))

    def posterior(self, context: Sequence[int], symbol: int) -> tuple[float, float]:
        """Return the a and b of Beta(a, b), the posterior of P(symbol | context): marginals of a
        Dirichlet distribution are Beta distributions. a = 0 for a symbol that never follows.
        """
        table, device = self.table, self.alphas.device
        symbol = int(symbol)  # ids of a shard are small unsigned integers, which index as masks
        if not 0 <= symbol < self.vocab_size:
            raise ValueError(f"symbol must be from 0 to {self.vocab_size - 1}, got {symbol}")
        x = torch.tensor([symbol], device=device)
        last = [int(i) for i in context[max(0, len(context) - self.order + 1) :]]
        ids = torch.tensor([last], dtype=torch.int64, device=device)
        nodes = [node[:, -1] for node in table.contexts(ids)[: len(last)]]
        base = uniform(table)
        if not base[symbol]:
            return 0.0, 1.0
        alpha = float(self.alphas[len(nodes)])
        *_, prior = [base[x], *self.probabilities(nodes[:-1], x)][: 1 + len(nodes)]
        if self.config.prior == "symmetric":
            prior = base[x]
        if nodes:
            child = int(table.find(nodes[-1], x))
            times = int(table.counts[child - self.vocab_size]) if child >= 0 else 0
            total = int(table.totals(table.counts)[nodes[-1]]) if int(nodes[-1]) >= 0 else 0
        else:
            times, total = int(table.unigrams[symbol]), int(table.unigrams.sum())
        a = 1 + alpha * float(prior) + times
        return a, int((base > 0).sum()) + alpha + total - a


@dataclass(frozen=True, eq=False)
class NGramLevel:
    """The n-grams of one order."""

    order: int
    counts: Tensor  # (M,)
    totals: Tensor  # (M,) of their contexts
    prior: Tensor  # (M,) their prior probabilities
    contexts: Tensor  # (C,) totals of all contexts
    possible: int  # symbols that can follow

    def estimate(self, alpha: float, ones: int, left_out: bool) -> Tensor:
        """Return probabilities (M,); with `left_out`, each as if counted once less."""
        counts, totals = self.counts, self.totals
        if left_out:
            counts, totals = (counts - 1).clamp_min(0), (totals - 1).clamp_min(0)
        total = totals + alpha + ones * self.possible
        p = (counts + ones * (self.prior > 0) + alpha * self.prior) / total
        return torch.where(total > 0, p, self.prior)


def evidence(level: NGramLevel, ones: int) -> Callable[[float], float]:
    """Return the log-evidence of one order's counts as a function of α:
    Σ_c log B(n(c·) + a) / B(a) with a = ones + α p.

    Only n-grams that were counted contribute; contexts of equal totals are computed once.
    """
    mask = (level.counts > 0) & (level.prior > 0)
    counts, order = level.counts[mask].sort(descending=True)
    prior = level.prior[mask][order]
    prior_array = prior.cpu().numpy()
    above = [int((counts > j).sum()) for j in range(SMALL + 1)]
    frequent, larger = prior[: above[SMALL]], counts[: above[SMALL]].double()
    sizes, times = torch.unique(level.contexts[level.contexts > 0], return_counts=True)
    sizes = sizes.double()

    def value(alpha: float) -> float:
        mass = sizes.new_tensor(alpha + ones * level.possible)
        total = (times * (torch.lgamma(mass) - torch.lgamma(mass + sizes))).sum()
        for first in range(0, above[0], CACHED):  # Γ(a + n) / Γ(a) = a (a + 1) … (a + n - 1)
            a = ones + alpha * prior_array[first : first + CACHED]
            product = a.copy()
            for j in range(1, SMALL):
                larger_counts = max(0, above[j] - first)
                product[:larger_counts] *= a[:larger_counts] + j
            total += float(np.log(product).sum())
        for p, n in zip(frequent.split(CACHED), larger.split(CACHED), strict=True):
            a = ones + alpha * p
            total += (torch.lgamma(a + n) - torch.lgamma(a + SMALL)).sum()
        return float(total)

    return value


def best_concentration(level: NGramLevel, ones: int) -> float:
    """Return the α of greatest evidence: from a coarse grid of log α, by Brent's method."""
    if not bool((level.counts > 0).any()):
        return 0.0
    log_evidence = evidence(level, ones)

    def loss(log_alpha: float) -> float:
        return -log_evidence(math.exp(log_alpha))

    grid = np.linspace(*LOGS, 9)
    best = int(np.argmin([loss(log_alpha) for log_alpha in grid]))
    bounds = grid[max(0, best - 1)], grid[min(8, best + 1)]
    # a tolerance of one percent of α makes no visible difference
    result = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-2})
    return math.exp(result.x)
