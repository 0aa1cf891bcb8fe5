"""The demonstration's report: the lectures' climb on one list of records, in pictures.

Each function adds one section to a page; every number comes from the data or from a trained model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.batching import Order
from regard.data.shards import Shard
from regard.look.forward_trace import ForwardTrace
from regard.look.internals import add_inside
from regard.look.language_page import add_next, add_search
from regard.look.page import Heatmap, Lines, Page, Table
from regard.models.dirichlet_ngram import quantile
from regard.tokenizers import Tokenizer

POINTS = 30  # prefixes of the data at which a posterior is drawn
SEED = 0  # of the order in which records arrive
INTERVAL = (0.025, 0.975)
TOP_K, TOP_P = 12, 0.8  # of the next symbols: so that both cuts are seen


def transitions(shard: Shard, vocab_size: int) -> NDArray[np.int64]:
    """(V, V) how often each symbol follows each within records; small alphabets only."""
    ids = np.asarray(shard.ids, dtype=np.int64)
    inside = np.ones(len(ids) - 1, dtype=bool)
    inside[np.asarray(shard.offsets[1:-1]) - 1] = False  # from <E> to the next <S>
    pairs = ids[:-1][inside] * vocab_size + ids[1:][inside]
    return np.bincount(pairs, minlength=vocab_size**2).reshape(vocab_size, vocab_size)


def add_counts(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """How often each symbol follows each, with the markers of beginning and end."""
    counts = transitions(shard, tokenizer.vocab_size)
    before = [i for i in range(tokenizer.vocab_size) if counts[i].any()]
    after = [i for i in range(tokenizer.vocab_size) if counts[:, i].any()]
    page.section(
        "Counting",
        "A bigram is this table: how often each symbol followed each in the training records. The "
        "row <S> is how records begin, the column <E> how they end; an empty cell never happened, "
        "which maximum likelihood takes to mean that it never can.",
    )
    page.add(
        Heatmap(
            counts[np.ix_(before, after)].astype(np.float64),
            [tokenizer.text(i) for i in before],
            [tokenizer.text(i) for i in after],
            title="How often the column followed the row",
            scale="logarithmic",
            unit="times",
        )
    )


def arriving(shard: Shard, before: int, after: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often `before` was followed by `after`, and by anything, in the first 1, 2, … records of
    a shuffled order: (R,) each.
    """
    order = Order(shard.records, SEED)(np.arange(shard.records))
    ids = np.asarray(shard.ids)
    record = np.repeat(np.arange(shard.records), np.diff(shard.offsets))[:-1]
    from_here = ids[:-1] == before
    hits, all_ = (
        np.bincount(record[which], minlength=shard.records)[order].cumsum()
        for which in (from_here & (ids[1:] == after), from_here)
    )
    return hits, all_


def add_posterior(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """What is known of one transition as records arrive: Beta, from a flat Dirichlet prior."""
    possible = tokenizer.vocab_size - 1  # all but <S> can follow
    whole = transitions(shard, tokenizer.vocab_size)
    whole[:, tokenizer.end] = 0
    before, after = (int(i) for i in np.unravel_index(int(whole.argmax()), whole.shape))
    hits, all_ = arriving(shard, before, after)
    seen = np.unique(np.geomspace(1, shard.records, POINTS).astype(int))
    means, lows, highs = [], [], []
    for records in seen.tolist():
        n, total = int(hits[records - 1]), int(all_[records - 1])
        a, b = 1.0 + n, float(possible - 1 + total - n)
        means.append(a / (a + b))
        low, high = (quantile(p, a, b) for p in INTERVAL)
        lows.append(low)
        highs.append(high)
    name = f"P({tokenizer.text(after)} | {tokenizer.text(before)})"
    page.section(
        "Bayes",
        f"The posterior of one transition, {name}, from a prior that holds every distribution "
        "equally probable: the line is its mean, the band its 95% interval. Counts add up; what is "
        "not known shrinks with the square root of what was seen. The records arrive shuffled: "
        "those of a sorted file are no sample until all of them are there.",
    )
    curve = [(name, [float(n) for n in seen], means)]
    page.add(
        Lines(
            curve,
            x_label="records seen, in shuffled order",
            y_label="probability",
            log_x=True,
            bands={name: (lows, highs)},
            title=f"{name} as data arrive",
        )
    )


def add_lengths(page: Page, corpus: Sequence[int], made: Mapping[str, Sequence[int]]) -> None:
    """Are generated records as long as real ones? <E> has to be learned too."""
    longest = max(corpus)
    at = [float(n) for n in range(longest + 1)]
    series, rows = [], []
    for name, lengths in {"held out": corpus, **made}.items():
        found = np.asarray(lengths)
        share = np.bincount(found[found <= longest], minlength=longest + 1) / max(1, len(found))
        series.append((name, at, share.tolist()))
        quarters = np.quantile(found, [0.25, 0.5, 0.75], method="inverted_cdf").astype(int)
        over = f"{np.mean(found > longest):.1%}"
        rows.append([name, int(quarters[1]), f"{quarters[0]} to {quarters[2]}", over])
    page.section(
        "Lengths",
        "A model decides by itself when a record is over: <E> is a symbol like any other. Where it "
        "has learned that, its records are as long as those held out.",
    )
    page.add(Lines(series, x_label="symbols", y_label="share", title="Generated and held out"))
    columns = ["", "median", "middle half", f"longer than {longest}"]
    page.add(Table(columns, rows, align=["left", "right", "right", "right"]))


def add_samples_beside(page: Page, samples: Mapping[str, Sequence[str]]) -> None:
    """What several models make up, side by side."""
    page.section(
        "Made up",
        "New records from several rungs, beside uniformly random symbols. One with a star is in the"
        " list already.",
    )
    names = list(samples)
    rows = [list(row) for row in zip(*samples.values(), strict=True)]
    page.add(Table(names, rows))


def add_reading(page: Page, reading: ForwardTrace, beams: int = 4) -> None:
    """What the trained model does with one record: attention, mask, choices, beam."""
    add_inside(page, reading)
    half = dataclasses.replace(reading, ids=reading.prompt, continues=True)
    add_next(page, half, top_k=TOP_K, top_p=TOP_P)
    add_search(page, reading, beams)
