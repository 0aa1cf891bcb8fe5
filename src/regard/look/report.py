"""The demonstration's report: the lectures' climb on one list of records, in pictures.

Each function adds one section to a page; every number comes from the data or from a trained model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Shard
from regard.models.beta import quantile
from regard.tokens import Tokenizer

from .inside import add_inside
from .language import add_next, add_search
from .page import Heatmap, Lines, Page, Table
from .reading import Reading

POINTS = 14  # prefixes of the data at which a posterior is drawn
INTERVAL = (0.025, 0.975)


def transitions(shard: Shard, vocab_size: int, records: int) -> NDArray[np.int64]:
    """(V, V) how often each symbol follows each in the first records; small alphabets only."""
    end = int(shard.offsets[records])
    ids = np.asarray(shard.ids[:end], dtype=np.int64)
    inside = np.ones(end - 1, dtype=bool)
    inside[np.asarray(shard.offsets[1:records]) - 1] = False  # from <E> to the next <S>
    pairs = ids[:-1][inside] * vocab_size + ids[1:][inside]
    return np.bincount(pairs, minlength=vocab_size**2).reshape(vocab_size, vocab_size)


def add_counts(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """How often each symbol follows each, with the markers of beginning and end."""
    counts = transitions(shard, tokenizer.vocab_size, shard.records)
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
            unit="times",
        )
    )


def add_posterior(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """What is known of one transition as records arrive: Beta, from a flat Dirichlet prior."""
    size = tokenizer.vocab_size
    whole = transitions(shard, size, shard.records)
    whole[:, tokenizer.end] = 0
    before, after = (int(i) for i in np.unravel_index(int(whole.argmax()), whole.shape))
    seen = np.unique(np.geomspace(1, shard.records, POINTS).astype(int))
    means, lows, highs = [], [], []
    for records in seen.tolist():
        row = transitions(shard, size, records)[before]
        a, b = 1.0 + row[after], float(size - 1 + row.sum() - row[after])
        means.append(a / (a + b))
        low, high = (quantile(p, a, b) for p in INTERVAL)
        lows.append(low)
        highs.append(high)
    name = f"P({tokenizer.text(after)} | {tokenizer.text(before)})"
    page.section(
        "Bayes",
        f"The posterior of one transition, {name}, from a prior that holds every distribution "
        "equally probable: the line is its mean, the band its 95% interval. Counts add up; what is "
        "not known shrinks with the square root of what was seen.",
    )
    curve = [(name, [float(n) for n in seen], means)]
    page.add(
        Lines(
            curve,
            x_label="records seen",
            y_label="probability",
            log_x=True,
            bands={name: (lows, highs)},
            title=f"{name} as data arrive",
        )
    )


def add_lengths(page: Page, corpus: Sequence[int], made: Mapping[str, Sequence[int]]) -> None:
    """Are generated records as long as real ones? <E> has to be learned too."""
    longest = max([*corpus, *(n for lengths in made.values() for n in lengths)])
    at = list(range(longest + 1))
    series = []
    for name, lengths in {"held out": corpus, **made}.items():
        share = np.bincount(lengths, minlength=longest + 1) / max(1, len(lengths))
        series.append((name, [float(x) for x in at], share.tolist()))
    page.section("Lengths", "A model decides by itself when a record is over.")
    page.add(Lines(series, x_label="symbols", y_label="share", title="Generated and held out"))


def add_samples_beside(page: Page, samples: Mapping[str, Sequence[str]]) -> None:
    """What several models make up, side by side."""
    page.section("Made up", "New records from several rungs, beside uniformly random symbols.")
    names = list(samples)
    rows = [list(row) for row in zip(*samples.values(), strict=True)]
    page.add(Table(names, rows))


def add_reading(page: Page, reading: Reading, beams: int = 4) -> None:
    """What the trained model does with one record: attention, mask, choices, beam."""
    add_inside(page, reading)
    add_next(page, reading)
    add_search(page, reading, beams)
