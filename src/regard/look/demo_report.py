"""Sections of the report of `regard demo`: counts, a posterior, lengths and samples of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from regard.data.batching import Order
from regard.data.shards import Shard
from regard.look.page import Heatmap, Lines, Page, Table
from regard.tokenizers import Tokenizer

POINTS = 30  # prefixes of the data at which a posterior is drawn
SEED = 0  # of the order in which records arrive
INTERVAL = (0.025, 0.975)


def count_transitions(shard: Shard, vocab_size: int) -> NDArray[np.int64]:
    """Return (V, V): how often each symbol follows each within records; for small alphabets."""
    ids = np.asarray(shard.ids, dtype=np.int64)
    inside = np.ones(len(ids) - 1, dtype=bool)
    inside[np.asarray(shard.offsets[1:-1]) - 1] = False  # from <E> to the next <S>
    pairs = ids[:-1][inside] * vocab_size + ids[1:][inside]
    return np.bincount(pairs, minlength=vocab_size**2).reshape(vocab_size, vocab_size)


def add_counts(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """Draw how often each symbol follows each, markers included."""
    counts = count_transitions(shard, tokenizer.vocab_size)
    rows, columns = np.flatnonzero(counts.any(1)), np.flatnonzero(counts.any(0))
    page.section(
        "Counting",
        "A bigram is this table: how often each symbol followed each in the training records. The "
        "row <S> holds how records begin, the column <E> how they end; an empty cell never "
        "occurred, and maximum likelihood gives it probability 0.",
    )
    values = counts[np.ix_(rows, columns)].astype(np.float64)
    before, after = ([tokenizer.text(int(i)) for i in ids] for ids in (rows, columns))
    title = "How often the column followed the row"
    page.add(Heatmap(values, before, after, title, scale="logarithmic", unit="times"))


def count_arriving(
    shard: Shard, before: int, after: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how often `before` was followed by `after`, and by anything, in the first 1, 2, …
    records of a shuffled order: (R,) each.
    """
    order = Order(shard.records, SEED)(np.arange(shard.records))
    ids = np.asarray(shard.ids)
    record = np.repeat(np.arange(shard.records), np.diff(shard.offsets))[:-1]
    starts = ids[:-1] == before
    hits, totals = (
        np.bincount(record[which], minlength=shard.records)[order].cumsum()
        for which in (starts & (ids[1:] == after), starts)
    )
    return hits, totals


def add_posterior(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """Draw the posterior of one transition as records arrive: Beta, from a flat Dirichlet prior."""
    possible = tokenizer.vocab_size - 1  # all but <S> can follow
    counts = count_transitions(shard, tokenizer.vocab_size)
    counts[:, tokenizer.end] = 0
    before, after = (int(i) for i in np.unravel_index(int(counts.argmax()), counts.shape))
    records = np.unique(np.geomspace(1, shard.records, POINTS).astype(int))
    hits, totals = (x[records - 1] for x in count_arriving(shard, before, after))
    a, b = 1.0 + hits, (possible - 1 + totals - hits).astype(np.float64)
    low, high = (betaincinv(a, b, p).tolist() for p in INTERVAL)
    name = f"P({tokenizer.text(after)} | {tokenizer.text(before)})"
    page.section(
        "Bayes",
        f"The posterior of one transition, {name}, from a prior under which all distributions are "
        "equally probable: the line is its mean, the band its 95% interval, which shrinks with the "
        "square root of the number of records. Records arrive in shuffled order, since the first "
        "records of a sorted file are no random sample.",
    )
    series = [(name, records.astype(float).tolist(), (a / (a + b)).tolist())]
    labels, bands = ("records, in shuffled order", "probability"), {name: (low, high)}
    page.add(Lines(series, *labels, f"{name} as data arrive", log_x=True, bands=bands))


def add_lengths(
    page: Page, held_out: Sequence[int], generated: Mapping[str, Sequence[int]]
) -> None:
    """Compare the lengths of generated records with those of held-out ones."""
    longest = max(held_out)
    at = [float(n) for n in range(longest + 1)]
    series, rows = [], []
    for name, values in {"held out": held_out, **generated}.items():
        lengths = np.asarray(values)
        counts = np.bincount(lengths[lengths <= longest], minlength=longest + 1)
        series.append((name, at, (counts / max(1, len(lengths))).tolist()))
        low, median, high = np.quantile(lengths, [0.25, 0.5, 0.75], method="inverted_cdf")
        over = f"{np.mean(lengths > longest):.1%}"
        rows.append([name, int(median), f"{int(low)} to {int(high)}", over])
    page.section(
        "Lengths",
        "A model predicts where a record ends: <E> is a symbol like any other. If it has learned "
        "that, its records are as long as the held-out ones.",
    )
    page.add(Lines(series, x_label="symbols", y_label="share", title="Generated and held out"))
    columns = ["", "median", "middle half", f"longer than {longest}"]
    page.add(Table(columns, rows, align=["left", "right", "right", "right"]))


def add_sample_table(page: Page, samples: Mapping[str, Sequence[str]]) -> None:
    """List the samples of each model in a column."""
    page.section(
        "Samples",
        "New records generated by several models; the first draws symbols uniformly at random. "
        "Records with a star are in the training list.",
    )
    page.add(Table(list(samples), [list(row) for row in zip(*samples.values(), strict=True)]))
