"""The page of `regard look` about word vectors: the words in the plane, their groups, and the
nearest ones of any word; all of it in the file, nothing is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.look.page import Bars, Facts, Page, Projector, Table
from regard.look.page.component import cell
from regard.look.projection import clusters, principal, tsne
from regard.pipelines.word_vectors import WordVectors

MOST_POINTS = 1000  # words in the plane: those that occur most
MOST_WORDS = 4000  # words that can be looked up
NEAREST = 10  # listed for each
GROUPS = 7  # as many as there are colours
NAMED = 3  # words that name a group
FEWEST = 5  # words that make a picture


def word_vector_page(
    word_vectors: WordVectors,
    words: Sequence[str] = (),
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
) -> Page:
    """The page about the words that occur most, and about `words`, of which the first is chosen
    when the page opens.
    """
    page = Page(title, " · ".join(f"{label} {cell(value)}" for label, value in facts[:3]))
    if facts:
        page.section("The vectors")
        page.add(Facts(facts))
    asked = list(dict.fromkeys(word_vectors.row(word) for word in words))
    beside = word_vectors.nearest_rows(word_vectors.unit[asked], NEAREST, [[row] for row in asked])
    own = [*asked, *(row for some in beside for row in some)]
    shown = list(dict.fromkeys([*own, *range(len(word_vectors))]))
    listed, plane = shown[:MOST_WORDS], shown[:MOST_POINTS]
    near = word_vectors.nearest_rows(word_vectors.unit[listed], NEAREST, [[row] for row in listed])
    if len(plane) >= FEWEST:
        add_plane(page, word_vectors, plane, listed, near, bool(asked))
    for row in asked:
        add_nearest(page, word_vectors, row, near[listed.index(row)])
    return page


def add_plane(
    page: Page,
    word_vectors: WordVectors,
    plane: list[int],
    listed: list[int],
    near: list[list[int]],
    asked: bool,
) -> None:
    """Words in the plane by t-SNE and by principal components, in groups, to be searched."""
    vectors = word_vectors.unit[plane].astype(np.float64)
    groups, centres = clusters(vectors, min(GROUPS, len(plane) // 2))
    names = [
        ", ".join(word_vectors.words[plane[i]] for i in named(vectors, groups, centres, k))
        for k in range(len(centres))
    ]
    page.section(
        "Words in the plane",
        f"{len(plane):,} words, those that occur most and those asked for and their neighbours, by "
        "the direction of their vectors; colours are groups found by k-means, called by the words "
        f"in their middle. {len(listed):,} words can be looked up, or chosen by a click: their "
        "nearest words are by the cosine in all "
        f"{word_vectors.model.config.d_model} dimensions, among all {len(word_vectors):,} words. "
        "Principal components keep directions and distances as well "
        "as two numbers can; t-SNE (van der Maaten & Hinton 2008) keeps neighbours together, and "
        "there the axes, sizes and gaps between clusters mean nothing.",
    )
    coordinates, _, parts = principal(vectors)
    labels = [f"component {i + 1}, {part:.0%} of the variance" for i, part in enumerate(parts)]
    rows = sorted({*listed, *(r for some in near for r in some)})
    place = {row: i for i, row in enumerate([*listed, *(r for r in rows if r not in set(listed))])}
    page.add(
        Projector(
            words=[word_vectors.words[row] for row in place],
            planes={"t-SNE": tsne(vectors), "Principal components": coordinates},
            axes={"Principal components": (labels[0], labels[1])},
            groups=[names[k] for k in groups],
            near=[[place[r] for r in some] for some in near],
            similarities=[
                (word_vectors.unit[some] @ word_vectors.unit[row]).tolist()
                for row, some in zip(listed, near, strict=True)
            ],
            chosen=0 if asked else first_of_interest(near),
            title="Words and their neighbours",
        )
    )


def named(vectors: np.ndarray, groups: np.ndarray, centres: np.ndarray, k: int) -> list[int]:
    """The words in the middle of a group."""
    own = np.flatnonzero(groups == k)
    found: list[int] = own[np.argsort(-(vectors[own] @ centres[k]), kind="stable")][:NAMED].tolist()
    return found


def first_of_interest(near: list[list[int]]) -> int:
    """A word in the middle of the frequent ones: the very first ones mean little."""
    return min(len(near) - 1, 200)


def add_nearest(page: Page, word_vectors: WordVectors, row: int, near: list[int]) -> None:
    """The words nearest to one that was asked for, by both matrices."""
    word = word_vectors.words[row]
    page.section(
        f"Near {word}",
        "By the input vectors, the words that are used alike; by the input vector and others' "
        "output vectors, those that are expected around it.",
    )
    page.add(
        Bars(
            [word_vectors.words[r] for r in near],
            (word_vectors.unit[near] @ word_vectors.unit[row]).astype(float).tolist(),
            title=f"used like {word}",
            unit="cosine",
        ),
        around(word_vectors, row),
    )


def around(word_vectors: WordVectors, row: int) -> Table:
    """The words that a word expects around it."""
    scores = word_vectors.outputs @ word_vectors.inputs[row]
    best = np.argsort(-scores, kind="stable")[:NEAREST]
    rows = [[word_vectors.words[r], float(scores[r])] for r in best]
    title = f"expected around {word_vectors.words[row]}"
    return Table(["word", "score"], rows, align=["left", "right"], title=title)
