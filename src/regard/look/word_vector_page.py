"""The page of `regard look` about word vectors: the words in the plane, their clusters, and the
nearest words of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.look.page import Bars, Page, Projector, Table
from regard.look.projection import cluster, component_labels, principal_components, tsne
from regard.pipelines.word_vectors import WordVectors

MOST_POINTS = 1000  # words in the plane: the most frequent
MOST_WORDS = 4000  # words that can be looked up
NEAREST = 10  # listed for each
CLUSTERS = 7  # as many as there are colours
NAMES = 3  # words in the name of a cluster
FEWEST = 5  # words that are drawn
TYPICAL = 200  # the rank of the word selected first: more frequent ones mean little


def word_vector_page(
    word_vectors: WordVectors,
    words: Sequence[str] = (),
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
) -> Page:
    """Return the page about the most frequent words and `words`, the first of which is selected
    when the page opens.
    """
    page = Page.about(title, facts, "The vectors")
    rows = list(dict.fromkeys(word_vectors.row(word) for word in words))
    neighbours = [row for nearest in _nearest_rows(word_vectors, rows) for row in nearest]
    shown = list(dict.fromkeys([*rows, *neighbours, *range(len(word_vectors))]))
    searchable, plotted = shown[:MOST_WORDS], shown[:MOST_POINTS]
    nearest = _nearest_rows(word_vectors, searchable)
    if len(plotted) >= FEWEST:
        selected = 0 if rows else min(len(nearest) - 1, TYPICAL)
        _add_words(page, word_vectors, plotted, searchable, nearest, selected)
    for row in rows:
        _add_nearest(page, word_vectors, row, nearest[searchable.index(row)])
    return page


def _nearest_rows(word_vectors: WordVectors, rows: list[int]) -> list[list[int]]:
    return word_vectors.nearest_rows(word_vectors.unit[rows], NEAREST, [[row] for row in rows])


def _add_words(
    page: Page,
    word_vectors: WordVectors,
    plotted: list[int],
    searchable: list[int],
    nearest: list[list[int]],
    selected: int,
) -> None:
    """Draw words in the plane by t-SNE and by principal components, in clusters."""
    vectors = word_vectors.unit[plotted].astype(np.float64)
    groups, centres = cluster(vectors, min(CLUSTERS, len(plotted) // 2))
    names = []
    for k, centre in enumerate(centres):
        members = np.flatnonzero(groups == k)
        central = members[np.argsort(-(vectors[members] @ centre), kind="stable")][:NAMES]
        names.append(", ".join(word_vectors.words[plotted[i]] for i in central))
    page.section(
        "Words in the plane",
        f"{len(plotted):,} words, the most frequent ones and the given ones with their neighbours, "
        "by the direction of their vectors; colours are clusters found by k-means, named by their "
        f"central words. {len(searchable):,} words can be searched or chosen by a click: their "
        "nearest words are by the cosine in all "
        f"{word_vectors.model.config.d_model} dimensions, among all {len(word_vectors):,} words. "
        "Principal components preserve directions and distances as well as two numbers can; t-SNE "
        "(van der Maaten & Hinton 2008) keeps neighbours together, and its axes, sizes and gaps "
        "between clusters mean nothing.",
    )
    coordinates, _, shares = principal_components(vectors)
    x_label, y_label = component_labels(shares)
    others = sorted({row for rows in nearest for row in rows} - set(searchable))
    index = {row: i for i, row in enumerate([*searchable, *others])}
    page.add(
        Projector(
            words=[word_vectors.words[row] for row in index],
            planes={"t-SNE": tsne(vectors), "Principal components": coordinates},
            axes={"Principal components": (x_label, y_label)},
            groups=[names[k] for k in groups],
            neighbours=[[index[row] for row in rows] for rows in nearest],
            similarities=[
                (word_vectors.unit[rows] @ word_vectors.unit[row]).tolist()
                for row, rows in zip(searchable, nearest, strict=True)
            ],
            chosen=selected,
            title="Words and their neighbours",
        )
    )


def _add_nearest(page: Page, word_vectors: WordVectors, row: int, nearest: list[int]) -> None:
    """Draw the words nearest to one by input vectors, and those that it predicts around it."""
    word = word_vectors.words[row]
    page.section(
        f"Near {word}",
        "By the input vectors, the words that are used like it; by its input vector and the output "
        "vectors of others, the words that are expected around it.",
    )
    scores = word_vectors.outputs @ word_vectors.inputs[row]
    best = np.argsort(-scores, kind="stable")[:NEAREST]
    page.add(
        Bars(
            [word_vectors.words[r] for r in nearest],
            (word_vectors.unit[nearest] @ word_vectors.unit[row]).astype(float).tolist(),
            title=f"used like {word}",
            unit="cosine",
        ),
        Table(
            ["word", "score"],
            [[word_vectors.words[r], float(scores[r])] for r in best],
            align=["left", "right"],
            title=f"expected around {word}",
        ),
    )
