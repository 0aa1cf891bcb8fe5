"""A language model beside its corpus: how long the texts are that it generates, and how much of its
surprise no first-order model could avoid.

Lengths are compared by a chi-squared test of homogeneity (Pearson 1900) on classes of lengths with
at least five texts expected each. The entropy rate of a Markov chain is the mean entropy of its
rows, weighted by how often the chain is in each (Shannon 1948, section 7): the bits that the chain
itself would spend on texts that it generates.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding import Sample
from regard.look.internals import format_metric
from regard.look.page import Bars, Facts, Lines, Page
from regard.models.ngrams import Bigram
from regard.pipelines.generator import Generator
from regard.run import Run

SAMPLES = 400  # generated texts
LONGEST = 200  # tokens of the median record, beyond which nothing is generated
EXPECTED = 5  # texts in a class of lengths, at least
TINY = 1e-12  # the least p that is printed
DIFFERENT = 0.01  # p below which lengths are said to differ
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LengthFit:
    """Lengths in tokens of generated texts and of the corpus, and the test of their equality."""

    generated: Counts  # (n,), those that did not end are as long as the limit
    corpus: Counts  # (N,)
    unfinished: int
    statistic: float
    degrees: int
    p: float

    @property
    def verdict(self) -> str:
        """What the test says, in words."""
        means = (
            f"{self.generated.mean():.2f} tokens on average, those of the corpus "
            f"{self.corpus.mean():.2f}"
        )
        p = f"p = {self.p:.2g}" if self.p >= TINY else f"p < {TINY:g}"
        test = f"χ² = {self.statistic:.1f} with {self.degrees} degrees of freedom, {p}"
        if self.p < DIFFERENT:
            return f"Generated texts have other lengths than the corpus: {means} ({test})."
        return f"No difference in length is found: generated texts have {means} ({test})."


def fit_lengths(generated: Counts, corpus: Counts, unfinished: int = 0) -> LengthFit:
    """Test whether two samples of lengths come from one distribution."""
    from scipy.stats import chi2_contingency  # takes half a second to import

    edges = class_edges(generated, corpus)
    table = np.stack([np.histogram(x, edges)[0] for x in (generated, corpus)])
    if table.shape[1] < 2:
        return LengthFit(generated, corpus, unfinished, 0.0, 0, 1.0)
    test = chi2_contingency(table, correction=False)
    return LengthFit(
        generated, corpus, unfinished, float(test.statistic), int(test.dof), float(test.pvalue)
    )


def class_edges(generated: Counts, corpus: Counts) -> NDArray[np.float64]:
    """Return edges of classes of lengths, in each of which at least `EXPECTED` texts of the smaller
    sample are expected.
    """
    values, counts = np.unique(np.concatenate([generated, corpus]), return_counts=True)
    share = min(len(generated), len(corpus)) / (len(generated) + len(corpus))
    edges, mass = [float(values[0])], 0.0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if mass >= EXPECTED:
            edges.append(float(value))
            mass = 0.0
        mass += count * share
    if mass < EXPECTED and len(edges) > 1:
        edges.pop()  # too few at the end: one class with those before
    return np.array([*edges, float(values[-1]) + 1])


def measure_lengths(generator: Generator, seed: int = 0) -> LengthFit | None:
    """Generate texts and compare their lengths with those of training; None for running text, for
    long records, and without training data.
    """
    shard = training_shard(generator)
    if generator.text or shard is None or not shard.has_records:
        return None
    corpus = np.diff(shard.offsets).astype(np.int64) - shard.markers
    if np.median(corpus) > LONGEST:
        return None
    limit = generator.model.max_context  # counting and recurrent models have none
    most = min(2 * int(corpus.max()) + 1, sys.maxsize if limit is None else limit - 1)
    rows = generator.generate([""] * SAMPLES, Sample(seed=seed), max_new=most)
    texts = [one for (one,) in rows]
    lengths = [len(one.ids) - one.finished for one in texts]
    unfinished = sum(not (one.finished or one.dead_end) for one in texts)
    return fit_lengths(np.array(lengths, np.int64), corpus, unfinished)


def training_shard(generator: Generator) -> Any:
    """Return the training data that the run stores, or None."""
    from regard.data.corpus import FOLDER, MANIFEST, reopen

    run = generator.run
    if run is None or not (run / FOLDER / MANIFEST).exists():
        return None
    return reopen(run.path).train


def add_corpus_views(page: Page, generator: Generator) -> None:
    """Add what compares a model with its corpus."""
    fit = measure_lengths(generator)
    if fit is not None:
        add_lengths(page, fit)
    rate = entropy_rate(generator.model, generator.tokenizer.start)
    if rate is not None:
        add_entropy_rate(page, rate, generator.run)


def add_lengths(page: Page, fit: LengthFit) -> None:
    """Draw the lengths of generated texts beside those of the corpus."""
    page.section("Lengths", fit.verdict)
    top = math.ceil(max(fit.generated.max(), np.quantile(fit.corpus, 0.999)))
    at = list(range(min(int(fit.generated.min()), int(fit.corpus.min())), top + 1))
    series: list[tuple[str, Sequence[float], Sequence[float]]] = []
    for name, lengths in (
        ("corpus", fit.corpus),
        (f"{len(fit.generated)} generated", fit.generated),
    ):
        shares = [float((lengths == n).mean()) for n in at]
        series.append((name, [float(n) for n in at], shares))
    page.add(Lines(series, "tokens", "share of texts", "Lengths of texts: when does <E> come?"))
    if fit.unfinished:
        page.add(Facts([("generated texts that did not end", fit.unfinished)]))


@dataclass(frozen=True)
class EntropyRate:
    """Bits of a Markov chain: per symbol of its own texts (`rate`), on average over its rows
    (`rows`, unweighted), and of the text it was counted in (`training`).
    """

    rate: float
    rows: float
    training: float


@singledispatch
def entropy_rate(model: object, start: int) -> EntropyRate | None:
    """Return the entropy rate of a model that is a Markov chain over symbols, else None; the chain
    begins again with the symbol `start` after each end.
    """
    return None


@entropy_rate.register
def bigram_entropy_rate(model: Bigram, start: int) -> EntropyRate:
    totals = model.totals.double()
    states = (totals > 0).nonzero()[:, 0]
    first = int((states == start).nonzero()[0, 0]) if totals[start] else 0
    p = model.log_rows([states], len(states)).double().exp()  # (N, V)
    bits = -(p * torch.where(p > 0, p, 1.0).log2()).sum(1)  # (N,)
    weights = stationary(p[:, states], 1 - p[:, states].sum(1), first)
    shares = totals[states] / totals.sum()
    return EntropyRate(
        float((weights * bits).sum()), float(bits.mean()), float((shares * bits).sum())
    )


def stationary(p: Tensor, ends: Tensor, first: int) -> Tensor:
    """Return how often a chain with transitions p (N, N) is in each state, where it ends with
    probability `ends` (N,) and begins again in the state `first`.
    """
    closed = p.clone()
    closed[:, first] += ends
    n = len(closed)
    equations = torch.cat([closed.T - torch.eye(n, dtype=p.dtype), torch.ones(1, n, dtype=p.dtype)])
    values = torch.zeros(n + 1, 1, dtype=p.dtype)
    values[-1] = 1.0
    weights: Tensor = torch.linalg.lstsq(equations, values, driver="gelsd").solution[:, 0]
    return weights.clamp_min(0.0)


def add_entropy_rate(page: Page, rate: EntropyRate, run: Run | None) -> None:
    """Add the entropy rate beside the cross-entropy on held-out text."""
    metrics = {} if run is None else run.metadata.get("metrics", {})
    split = next((name for name in ("test", "valid") if metrics.get(name)), "")
    metric = metrics.get(split, {}).get("bits_per_symbol", {})
    held_out = metric.get("value")
    page.section(
        "Entropy rate",
        "The bits per symbol of texts that the chain itself generates; less is impossible for any "
        "model of them. On the text it was counted in it spends the same, since the counts are its "
        "probabilities. What it spends more on held-out text is what it has not seen.",
    )
    labels, values = ["entropy rate", "cross-entropy, training"], [rate.rate, rate.training]
    if held_out is not None:
        labels.append(f"cross-entropy, {split}")
        values.append(float(held_out))
    page.add(
        Bars(
            labels,
            values,
            title="Entropy of the chain, and what texts cost",
            unit="bits per symbol",
        )
    )
    facts: list[tuple[str, object]] = [("mean entropy of a row, bits", round(rate.rows, 4))]
    if held_out is not None:
        facts.append(("held-out less the rate, bits", round(held_out - rate.rate, 4)))
    elif metric:
        facts.append((f"cross-entropy, {split}", format_metric(metric)))
    page.add(Facts(facts))
