"""Vectors as points in the plane: principal components, t-SNE, clusters, the section about the
embeddings of records, and the page about word vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.batching import Ints, LabelledExamples
from regard.data.shards import Array, Shard
from regard.data.targets import Targets
from regard.look.internals import PredictionContext
from regard.look.page import Bars, Facts, Page, Projector, Scatter, Table
from regard.look.page.document import cell
from regard.look.records import Records, mark_position
from regard.pipelines.predictor import Predictor
from regard.pipelines.word_vectors import WordVectors

PERPLEXITY = 30.0  # effective number of neighbours, as in the experiments of the t-SNE paper
MOST_POINTS = 1000
NEAREST = 8  # records that are listed
FEWEST = 5  # points that are drawn

Floats = NDArray[np.float64]


def cluster(vectors: Floats, count: int, seed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """Group vectors (N, D) by k-means: return the group (N,) of each and the centres (K, D).

    There are fewer than `count` groups if fewer vectors differ.
    """
    from sklearn.cluster import KMeans  # takes a second to import

    count = min(count, len(np.unique(vectors, axis=0)))
    means = KMeans(count, n_init=1, random_state=seed).fit(vectors)
    return means.labels_.astype(np.int64), means.cluster_centers_


def principal_components(vectors: Floats, count: int = 2) -> tuple[Floats, Floats, Floats]:
    """Return the coordinates (N, count) of vectors (N, D) along their first principal directions,
    the directions (count, D), and the share of the variance of each (count,).

    Directions that do not exist are zeros.
    """
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore"):  # equal vectors have no variance to share
        pca = PCA(min(count, *vectors.shape), svd_solver="full").fit(vectors)
    directions, shares = np.zeros((count, vectors.shape[1])), np.zeros(count)
    directions[: len(pca.components_)] = pca.components_
    shares[: len(pca.components_)] = np.nan_to_num(pca.explained_variance_ratio_)
    return (vectors - pca.mean_) @ directions.T, directions, shares


def tsne(vectors: Floats, *, perplexity: float = PERPLEXITY) -> Floats:
    """Return points (N, 2) that keep the neighbours of vectors (N, D) together; at least five.

    t-SNE (van der Maaten & Hinton 2008) starts at the principal components (Kobak & Berens 2019,
    doi:10.1038/s41467-019-13056-x), so the same vectors give the same points. The perplexity of few
    points is lowered to a third of their number.
    """
    from sklearn.manifold import TSNE

    count = len(vectors)
    if count < FEWEST:
        raise ValueError(f"t-SNE needs at least {FEWEST} points, got {count}")
    start = principal_components(vectors)[0]
    start *= 1e-4 / max(float(start[:, 0].std()), 1e-300)
    perplexity = min(perplexity, (count - 1) / 3)
    model = TSNE(perplexity=perplexity, init=start.astype(np.float32), random_state=0)
    return np.asarray(model.fit_transform(vectors), np.float64)


def spread(count: int, most: int) -> Ints:
    """Return at most `most` indices below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Points (N, D), what each is, and their groups or values."""

    vectors: Floats
    texts: list[str]
    groups: list[str]
    values: list[float]


def add_embeddings(page: Page, context: PredictionContext, records: Records) -> None:
    """Draw the vectors of records in the plane, and list those nearest to the text, if any."""
    predictor, aligned = context.predictor, context.predictor.targets.kind.aligned
    split = records.split
    points = embed_positions(predictor, records.shard) if aligned else embed_records(records)
    count = len(points.vectors)
    if count < FEWEST:
        return
    text = "" if aligned else context.text
    what = "positions" if aligned else "records"
    text_note = ", the text by its prediction" if text else ""
    page.section(
        f"{what.capitalize()} in the plane",
        f"Each point is the vector from which the target of one of {count:,} {what} of the {split} "
        f"split is predicted, coloured by the true target{text_note}. "
        "Principal components preserve directions and distances as well as two numbers can. "
        "t-SNE (van der Maaten & Hinton 2008, perplexity 30) keeps neighbours together; its axes, "
        "sizes and gaps between clusters mean nothing.",
    )
    coordinates, directions, shares = principal_components(points.vectors)
    vectors, texts, groups, values = points.vectors, points.texts, points.groups, points.values
    marks, nearest = dict[int, str](), None
    if text:
        vector = np.asarray(predictor.embed([text]), np.float64)  # (1, D)
        projected = (vector - vectors.mean(0)) @ directions.T
        coordinates = np.concatenate([coordinates, projected])
        distances = np.linalg.norm(vectors - vector, axis=1)
        order = np.argsort(distances, kind="stable")[:NEAREST].tolist()
        marks = {i: str(n + 1) for n, i in enumerate(order)} | {count: "this text"}
        nearest = _nearest_table(points, order, distances)
        (prediction,) = predictor.predictions([text])
        vectors, texts = np.concatenate([vectors, vector]), [*texts, text]
        groups = [*groups, prediction.label or "none"] if groups else groups
        values = [*values, next(iter(prediction.scores.values()))] if values else values
    shared: dict[str, Any] = {"texts": texts, "groups": groups, "values": values, "marks": marks}
    shared["unit"] = predictor.targets.names[0]
    shared["order"] = context.outputs if groups else ()
    x_label, y_label = component_labels(shares)
    page.add(
        Scatter(
            coordinates, title="Principal components", x_label=x_label, y_label=y_label, **shared
        ),
        Scatter(tsne(vectors), title="t-SNE", **shared),
    )
    if nearest is not None:
        page.add(nearest)


def component_labels(shares: Floats) -> list[str]:
    """Return the labels of the axes of principal components."""
    return [f"component {i + 1}, {share:.0%} of the variance" for i, share in enumerate(shares)]


def _nearest_table(points: EmbeddingMap, order: list[int], distances: Floats) -> Table:
    targets = points.groups or [cell(value) for value in points.values]
    rows = [[n + 1, points.texts[i], targets[i], float(distances[i])] for n, i in enumerate(order)]
    columns, align = ["", "text", "true target", "distance"], ["right", "left", "left", "right"]
    return Table(columns, rows, align, title="The records nearest to this text")


def embed_records(held: Records) -> EmbeddingMap:
    """Return records as points."""
    predictor, shard, tokenizer = held.predictor, held.shard, held.predictor.tokenizer
    examples = LabelledExamples(shard, tokenizer, int(predictor.model.config.max_len), first=True)
    records = spread(len(examples.sizes), MOST_POINTS)
    vectors = np.array(predictor.vectors(shard, records), np.float64)
    texts = held.texts(records.tolist())
    if not tokenizer.reads_text:
        texts = [f"{tokenizer.words[0]} {record + 1:,}" for record in records]
    groups, values = _named_targets(examples.targets[records], predictor.targets)
    return EmbeddingMap(vectors, texts, groups, values)


def embed_positions(predictor: Predictor, shard: Shard) -> EmbeddingMap:
    """Return labelled positions of the records of a shard as points."""
    tokenizer = predictor.tokenizer
    examples = LabelledExamples(shard, tokenizer, int(predictor.model.config.max_len), first=True)
    records = spread(len(examples.sizes), MOST_POINTS)
    before, after = tokenizer.markers
    sizes = np.maximum(examples.lengths[records] - before - after, 0)
    enough = int(np.searchsorted(np.cumsum(sizes), 4 * MOST_POINTS)) + 1
    records, sizes = records[:enough], sizes[:enough]
    vectors = np.concatenate(predictor.vectors(shard, records, positions=True)).astype(np.float64)
    row = np.repeat(np.arange(len(records)), sizes)
    position = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # from 0
    at = examples.starts[records][row] + before + position  # in the shard
    shown = np.flatnonzero(examples.targets[at] >= 0)
    shown = shown[spread(len(shown), MOST_POINTS)] if len(shown) else shown
    texts = []
    for i in shown:
        record = shard.record(int(records[row[i]]))
        texts.append(mark_position(tokenizer, record, before + int(position[i])))
    groups, _ = _named_targets(examples.targets[at[shown]], predictor.targets)
    return EmbeddingMap(vectors[shown], texts, groups, [])


def _named_targets(values: Array, targets: Targets) -> tuple[list[str], list[float]]:
    """Return the names of groups of targets (N,) or (N, O), or the values of the first column."""
    kind = targets.kind
    if not kind.categorical:
        return [], values[:, 0].astype(float).tolist()
    if kind.per_column:
        names = np.array(targets.names)
        return [",".join(names[row == 1]) or "none" for row in values], []
    classes = targets.classes[0]
    return [classes[k] if k >= 0 else "unknown" for k in values], []


MOST_WORDS = 4000  # words that can be looked up
NEAREST_WORDS = 10  # listed for each
CLUSTERS = 7  # as many as there are colours
NAMES = 3  # words in the name of a cluster
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
    page = Page(title)
    rows = list(dict.fromkeys(word_vectors.row(word) for word in words))
    neighbours = [row for nearest in _nearest_rows(word_vectors, rows) for row in nearest]
    shown = list(dict.fromkeys([*rows, *neighbours, *range(len(word_vectors))]))
    searchable, plotted = shown[:MOST_WORDS], shown[:MOST_POINTS]
    nearest = _nearest_rows(word_vectors, searchable)
    if len(plotted) >= FEWEST:
        selected = 0 if rows else min(len(nearest) - 1, TYPICAL)
        queries = [plotted.index(row) for row in rows]
        _add_words(page, word_vectors, plotted, (searchable, nearest), (selected, queries))
    for row in rows:
        _add_nearest(page, word_vectors, row, nearest[searchable.index(row)])
    if facts:
        page.details("The vectors")
        page.add(Facts(facts))
    return page


def _nearest_rows(word_vectors: WordVectors, rows: list[int]) -> list[list[int]]:
    return word_vectors.nearest_rows(
        word_vectors.unit[rows], NEAREST_WORDS, [[row] for row in rows]
    )


def _add_words(
    page: Page,
    word_vectors: WordVectors,
    plotted: list[int],
    known: tuple[list[int], list[list[int]]],
    marked: tuple[int, list[int]],
) -> None:
    """Draw words in the plane by t-SNE and by principal components, in clusters. `known` are the
    words that can be searched and their nearest, `marked` the selected and the queries.
    """
    searchable, nearest = known
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
        f"central words. {len(searchable):,} words can be looked up, by a pattern between slashes "
        "too, or chosen by a click; the wheel or + and − enlarge, a drag moves. The nearest words "
        "are by the cosine in all "
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
            chosen=marked[0],
            queries=marked[1],
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
    best = np.argsort(-scores, kind="stable")[:NEAREST_WORDS]
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
