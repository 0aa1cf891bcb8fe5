"""What is known of a transition as data arrive: the posterior of P(b | a) on the user's own file.

Each time a symbol a is read, the next one is b or not: a coin with an unknown probability. Before
the first, every probability is as likely (the prior of greatest entropy, Beta(1, 1)); after s of n
the posterior is Beta(1 + s, 1 + n - s), as in deck 002. That takes the draws to be exchangeable, so
records are read in a random order: the beginning of a sorted file speaks of itself alone. Running
text is read as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from regard.errors import UserError
from regard.look.corpus_views import training_shard
from regard.look.page import Facts, Lines, Page, Table
from regard.look.page.document import visible
from regard.pipelines.generator import Generator

MARKS = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000)
POINTS = 300  # of a density
MOST_POINTS = 200  # of a curve over n
MOST_TOKENS = 20_000_000  # read
OTHERS = 10  # next symbols listed


@dataclass(frozen=True, eq=False)
class Transition:
    """What followed each occurrence of a symbol a, in the order of reading (n,)."""

    previous: int
    following: int
    next: NDArray[np.int64]

    @property
    def successes(self) -> NDArray[np.int64]:
        """(n + 1,) how often b followed among the first 0, 1, … occurrences."""
        return np.concatenate([[0], np.cumsum(self.next == self.following)])

    def posterior(self, n: int) -> Any:
        """Return the Beta distribution of P(b | a) after n occurrences of a."""
        s = int(self.successes[n])
        return beta(1 + s, 1 + n - s)


def find_transition(generator: Generator, text: str = "") -> Transition:
    """Return the transition of a text of two symbols, or the most frequent one: the most frequent
    symbol, and what follows it most often.
    """
    shard = training_shard(generator)
    if shard is None:
        raise UserError(
            f"{generator.run} stores no training data: --prior counts in the file it was trained on"
        )
    ids = shuffled_ids(shard)
    tokenizer = generator.tokenizer
    specials = [tokenizer.start, tokenizer.end, tokenizer.pad]
    if text:
        pair = [int(i) for i in tokenizer.encode(text)]
        if len(pair) != 2:
            raise UserError(
                f"--prior takes two symbols, such as 'qu', or none: {text!r} has {len(pair)}"
            )
        previous, following = pair
    else:
        counts = np.bincount(ids[~np.isin(ids, specials)])
        previous = int(counts.argmax())
        following = -1
    at = np.flatnonzero(ids[:-1] == previous)
    after = ids[at + 1]
    if not len(after):
        raise UserError(f"{tokenizer.text(previous)!r} does not occur in the training data")
    if following < 0:
        following = int(np.bincount(after).argmax())
    return Transition(previous, following, after)


def shuffled_ids(shard: Any) -> NDArray[np.int64]:
    """Return the ids of records in a random order, always the same one, or of running text."""
    if not shard.has_records:
        return np.asarray(shard.ids[:MOST_TOKENS]).astype(np.int64)
    order = np.random.default_rng(0).permutation(shard.records)
    sizes = np.diff(shard.offsets)[order]
    within = max(1, int(np.searchsorted(np.cumsum(sizes), MOST_TOKENS, side="right")))
    return np.asarray(shard.take(order[:within]).ids).astype(np.int64)


def prior_page(generator: Generator, text: str = "") -> Page:
    """Return the page about one transition."""
    transition = find_transition(generator, text)
    a, b = (
        visible(generator.tokenizer.text(i)) for i in (transition.previous, transition.following)
    )
    name, n = f"P({b} | {a})", len(transition.next)
    low, high = transition.posterior(n).interval(0.95)
    share = transition.successes[-1] / n
    page = Page(
        f"What is known of {name}",
        f"After {n:,} times {a}: {share:.4f}, with 95% probability from {low:.4f} to {high:.4f}",
    )
    page.section(
        "Posterior as data arrive",
        "Before the first symbol is read every probability is as likely. Each occurrence of "
        f"{a} in the training data is a draw: {b} follows or not. The more draws, the narrower the "
        "posterior. Records are read in a random order. "
        "(Deck 002, “Bayesian Parameter Estimation”.)",
    )
    page.add(densities(transition, name))
    page.add(interval_curve(transition, name))
    page.add(mark_table(transition, name))
    page.section(
        f"What follows {a}",
        "The same for every next symbol at the end of the file: a marginal of the Dirichlet "
        "posterior with a flat prior over all symbols, which is a Beta distribution, too.",
    )
    page.add(next_table(transition, generator))
    run = generator.run
    page.add(Facts([("run", run.name if run else ""), ("occurrences counted", n)]))
    return page


def marks_of(n: int) -> list[int]:
    """Return the numbers of draws at which the posterior is shown."""
    return [*(mark for mark in MARKS if mark < n), n]


def densities(transition: Transition, name: str) -> Lines:
    """Draw the posterior at some marks, each scaled to the same height."""
    n = len(transition.next)
    low, high = transition.posterior(min(n, 10)).interval(0.999)
    x = np.linspace(max(1e-6, low), min(1 - 1e-6, high), POINTS)
    series = []
    for mark in marks_of(n):
        density = transition.posterior(mark).pdf(x)
        heights = (density / max(density.max(), 1e-300)).tolist()
        series.append((f"after {mark:,}", x.tolist(), heights))
    return Lines(series, name, "density, the highest point 1", f"Posterior of {name}")


def interval_curve(transition: Transition, name: str) -> Lines:
    """Draw the posterior mean and its 95% interval against the number of draws."""
    n, successes = len(transition.next), transition.successes
    at = np.unique(np.geomspace(1, n, MOST_POINTS).astype(np.int64))
    a, b = 1 + successes[at], 1 + at - successes[at]
    low, high = beta(a, b).interval(0.95)
    mean = (a / (a + b)).tolist()
    return Lines(
        [("posterior mean", at.tolist(), mean)],
        "occurrences read",
        name,
        f"{name} and its 95% interval as data arrive",
        log_x=True,
        bands={"posterior mean": (low.tolist(), high.tolist())},
        levels={"share in the whole file": float(successes[-1] / n)},
    )


def mark_table(transition: Transition, name: str) -> Table:
    rows: list[list[object]] = []
    for mark in marks_of(len(transition.next)):
        posterior, s = transition.posterior(mark), int(transition.successes[mark])
        low, high = posterior.interval(0.95)
        share = s / mark if mark else None
        rows.append([mark, s, share, float(posterior.mean()), f"{low:.4f} to {high:.4f}"])
    columns = ["draws n", "successes s", "s / n", "posterior mean", "95% interval"]
    return Table(columns, rows, ["right"] * 5, title=name)


def next_table(transition: Transition, generator: Generator) -> Table:
    """List the most frequent next symbols with the marginals of a flat Dirichlet posterior."""
    tokenizer, n = generator.tokenizer, len(transition.next)
    size = tokenizer.vocab_size - 1  # <S> never follows
    counts = np.bincount(transition.next, minlength=tokenizer.vocab_size)
    rows: list[list[object]] = []
    for symbol in np.argsort(-counts, kind="stable")[:OTHERS].tolist():
        a, b = 1 + int(counts[symbol]), size - 1 + n - int(counts[symbol])
        low, high = beta(a, b).interval(0.95)
        token = visible(tokenizer.text(symbol))
        rows.append([token, int(counts[symbol]), a / (a + b), f"{low:.4f} to {high:.4f}"])
    columns: Sequence[str] = ["next", "n(a, next)", "posterior mean", "95% interval"]
    return Table(columns, rows, ["left", "right", "right", "right"])
