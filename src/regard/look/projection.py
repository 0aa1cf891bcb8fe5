"""Groups of vectors that point the same way: k-means on the sphere.

Many numbers as two: principal components, and neighbourhoods by t-SNE.

Principal components are exact, by the singular values of the centred vectors. t-SNE (van der Maaten
& Hinton 2008, "Visualizing data using t-SNE") is exact too, without trees or samples: every pair of
N points counts, which a thousand of them can afford. It begins at the principal components (Kobak &
Berens 2019, doi:10.1038/s41467-019-13056-x), so that nothing is random.

Held-out records as points: their vectors in the plane, and those nearest to a text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.batching import LabelledExamples
from regard.data.collate import Ints
from regard.data.shards import Array, Shard
from regard.data.targets import Targets
from regard.look.page import Page, Scatter, Table
from regard.look.page.component import cell
from regard.pipelines.predictor import Predictor

ROUNDS = 50  # at most; most clouds settle sooner

Floats = NDArray[np.float64]


def clusters(vectors: Floats, count: int, seed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """The group (N,) of each vector (N, D) of length 1, and the groups' centres (K, D), at length 1
    too: Dhillon & Modha 2001 (doi:10.1023/A:1007612920971).

    It begins at vectors that are far from one another (k-means++: Arthur & Vassilvitskii 2007). The
    same seed gives the same groups; there are fewer than `count` where vectors coincide.
    """
    random = np.random.default_rng(seed)
    chosen = [int(random.integers(len(vectors)))]
    near = vectors @ vectors[chosen[0]]  # (N,) to the nearest centre
    while len(chosen) < count:
        away = np.maximum(1 - near, 0.0)
        away[away < 1e-9] = 0.0
        if not away.any():
            break
        chosen.append(int(random.choice(len(vectors), p=away / away.sum())))
        near = np.maximum(near, vectors @ vectors[chosen[-1]])
    centres = vectors[chosen]
    groups = np.full(len(vectors), -1)
    for _ in range(ROUNDS):
        before, groups = groups, (vectors @ centres.T).argmax(1)
        if np.array_equal(before, groups):
            break
        for k in range(len(centres)):
            own = vectors[groups == k].sum(0)
            if own.any():
                centres[k] = own / np.linalg.norm(own)
    return groups, centres


PERPLEXITY = 30.0  # neighbours that count, as in the paper's experiments
STEPS, EARLY = 500, 150  # of the descent, and those at first that pull clusters together ...
EXAGGERATION = 12.0  # ... by so much, as in the authors' later code (van der Maaten 2014)
MOMENTA = 0.5, 0.8  # while exaggerated, and after
SLOWEST = 50.0  # the least learning rate; else N / EXAGGERATION (Belkina et al. 2019)
SPREAD = 1e-4  # standard deviation of where it begins
HALVINGS = 64  # of the interval that a row's precision lies in


def principal(vectors: Floats, count: int = 2) -> tuple[Floats, Floats, Floats]:
    """Vectors (N, D) along their first `count` principal directions: coordinates (N, count), the
    directions (count, D), and each one's share of the variance (count,).

    The sign of a direction is that of its largest entry, so that it does not depend on the machine;
    where there are fewer directions than asked for, the rest are zeros.
    """
    x = np.asarray(vectors, np.float64)
    x = x - x.mean(0)
    _, sizes, rows = np.linalg.svd(x, full_matrices=False)
    directions, shares = np.zeros((count, x.shape[1])), np.zeros(count)
    found = min(count, len(sizes))
    largest = np.take_along_axis(rows, np.abs(rows).argmax(1)[:, None], 1)
    directions[:found] = (rows * np.where(largest < 0, -1.0, 1.0))[:found]
    shares[:found] = (sizes**2 / max(float((sizes**2).sum()), np.finfo(float).tiny))[:found]
    return x @ directions.T, directions, shares


def distances(a: Floats, b: Floats) -> Floats:
    """(N, M) squared distances of (N, D) from (M, D)."""
    found: Floats = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * (a @ b.T)
    return np.maximum(found, 0.0, out=found)


def neighbourhoods(squares: Floats, perplexity: float) -> Floats:
    """(N, N) probability that row i has j as its neighbour: a Gaussian of squared distances whose
    width gives every row this perplexity, 2 to its entropy in bits. The diagonal is 0.

    Equal distances all around allow no other perplexity than N − 1, which they then have.
    """
    n = len(squares)
    if not 1 <= perplexity < n - 1:
        raise ValueError(f"perplexity must be at least 1 and below N - 1 = {n - 1}: {perplexity}")
    away = ~np.eye(n, dtype=bool)
    near = squares[away].reshape(n, n - 1)
    near = near - near.min(1, keepdims=True)  # a row's Gaussian may be scaled as one likes
    mean = near.mean(1, keepdims=True)
    near = near / np.where(mean > 0, mean, 1.0)
    low, high = np.full(n, -60.0), np.full(n, 60.0)  # logarithm of the precision
    target = math.log(perplexity)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        costs = near * np.exp(middle)[:, None]
        weights = np.exp(-costs)
        total = weights.sum(1)
        entropy = np.log(total) + (weights * costs).sum(1) / total
        wide = entropy > target  # too many neighbours: sharpen
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    found = np.zeros((n, n))
    found[away] = (weights / total[:, None]).ravel()
    return found


def divergence(p: Floats, y: Floats) -> tuple[float, Floats]:
    """KL(P ‖ Q) in nats of joint probabilities (N, N) and of points (N, 2), whose similarities Q
    have a Student's t of one degree of freedom, and its gradient (N, 2): equations 4 and 5.
    """
    close = 1 / (1 + distances(y, y))
    np.fill_diagonal(close, 0.0)
    q = close / close.sum()
    there = p > 0
    value = float((p[there] * np.log(p[there] / np.maximum(q[there], 1e-300))).sum())
    return value, _gradient(p, close, y)


def _gradient(p: Floats, close: Floats, y: Floats) -> Floats:
    pull = (p - close / close.sum()) * close
    return np.asarray(4 * (pull.sum(1)[:, None] * y - pull @ y))


def tsne(vectors: Floats, *, perplexity: float = PERPLEXITY, steps: int = STEPS) -> Floats:
    """(N, 2) points of vectors (N, D) such that neighbours stay neighbours; at least five.

    A perplexity that so few points do not have is lowered to a third of them.
    """
    x = np.asarray(vectors, np.float64)
    n = len(x)
    if n < 5:
        raise ValueError(f"neighbourhoods need at least 5 points, got {n}")
    conditional = neighbourhoods(distances(x, x), min(perplexity, (n - 1) / 3))
    p = (conditional + conditional.T) / (2 * n)
    y = principal(x)[0]
    y = y / max(float(y[:, 0].std()), 1e-300) * SPREAD
    rate = max(n / EXAGGERATION, SLOWEST)
    step, gains = np.zeros_like(y), np.ones_like(y)
    for t in range(steps):
        early = t < EARLY
        close = 1 / (1 + distances(y, y))
        np.fill_diagonal(close, 0.0)
        gradient = _gradient(p * EXAGGERATION if early else p, close, y)
        against = np.sign(gradient) != np.sign(step)  # still going down (Jacobs 1988)
        gains = np.maximum(np.where(against, gains + 0.2, gains * 0.8), 0.01)
        step = MOMENTA[not early] * step - rate * gains * gradient
        y = y + step
        y -= y.mean(0)
    return y


MOST_POINTS = 1000  # in the plane
NEAREST = 8  # records listed beside a text
CONTEXT = 8  # tokens on either side of a position that are quoted
FEWEST = 5  # points that make a picture


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Points (N, D), what each is, and its groups or values."""

    vectors: NDArray[np.float64]
    texts: list[str]
    groups: list[str]
    values: list[float]


def spread(count: int, most: int) -> Ints:
    """At most so many of `count` records, evenly spread over them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def add_plane(page: Page, predictor: Predictor, shard: Shard, side: str, text: str) -> None:
    """Vectors of held-out records in the plane, and those nearest to a text, if there is one."""
    each = predictor.targets.task == "position-label"
    cloud = positions_of(predictor, shard) if each else records_of(predictor, shard)
    if len(cloud.vectors) < FEWEST:
        return
    own = None if each or not text else np.asarray(predictor.embed([text]), np.float64)  # (1, D)
    whole = cloud.vectors if own is None else np.concatenate([cloud.vectors, own])
    coordinates, directions, parts = principal(cloud.vectors)
    if own is not None:
        there = (own - cloud.vectors.mean(0)) @ directions.T
        coordinates = np.concatenate([coordinates, there])
    marks, near = {}, []
    if own is not None:
        squares = distances(own, cloud.vectors)[0]
        near = np.argsort(squares, kind="stable")[:NEAREST].tolist()
        marks = {i: str(n + 1) for n, i in enumerate(near)} | {len(cloud.vectors): "this text"}
    what, also = (
        "positions" if each else "records",
        "" if own is None else ", the text by its answer",
    )
    page.section(
        "Records in the plane" if not each else "Positions in the plane",
        f"Each point is the vector that the answer to one of {len(cloud.vectors):,} {what} of the "
        f"{side} part is read off, coloured by its truth{also}. Principal components keep "
        "directions and distances as well as two numbers can. t-SNE (van der Maaten & Hinton 2008, "
        "perplexity 30) keeps neighbours together; there the axes, sizes and gaps between clusters "
        "mean nothing.",
    )
    first, second = (
        f"component {i + 1}, {part:.0%} of the variance" for i, part in enumerate(parts)
    )
    groups, values = cloud.groups, cloud.values
    if own is not None:  # it has the colour of what is said of it
        (said,) = predictor.classify([text])
        groups = [*groups, said.label or "none"] if groups else groups
        values = [*values, next(iter(said.scores.values()))] if values else values
    shared: dict[str, Any] = {
        "texts": [*cloud.texts, *([text] if own is not None else [])],
        "groups": groups,
        "values": values,
        "marks": marks,
        "unit": predictor.targets.names[0],
    }
    linear: dict[str, Any] = {"title": "Principal components", "x_label": first, "y_label": second}
    page.add(
        Scatter(coordinates, **linear, **shared), Scatter(tsne(whole), title="t-SNE", **shared)
    )
    if own is not None:
        page.add(nearest(cloud, near, np.sqrt(squares)))


def nearest(cloud: EmbeddingMap, near: Sequence[int], away: NDArray[np.float64]) -> Table:
    """The records nearest to a text."""
    truths = cloud.groups or [cell(value) for value in cloud.values]
    rows = [[n + 1, cloud.texts[i], truths[i], float(away[i])] for n, i in enumerate(near)]
    return Table(
        ["", "text", "truth", "distance"],
        rows,
        align=["right", "left", "left", "right"],
        title="The records nearest to this text",
    )


def records_of(predictor: Predictor, shard: Shard) -> EmbeddingMap:
    """Records of a shard as points."""
    tokenizer = predictor.tokenizer
    asked = LabelledExamples(shard, tokenizer, int(predictor.model.config.max_len), first=True)
    records = spread(len(asked.sizes), MOST_POINTS)
    vectors = np.array(predictor.vectors(shard, records), np.float64)
    texts = []
    for record in records * shard.views:
        parts = [shard.record(int(record))]
        if shard.source is not None:
            parts.append(shard.source.record(int(record)))
        texts.append(" | ".join(tokenizer.decode(part[1:-1]) for part in parts))
    groups, values = truths_of(asked.targets[records], predictor.targets)
    return EmbeddingMap(vectors, texts, groups, values)


def positions_of(predictor: Predictor, shard: Shard) -> EmbeddingMap:
    """Positions of the records of a shard as points."""
    tokenizer = predictor.tokenizer
    asked = LabelledExamples(shard, tokenizer, int(predictor.model.config.max_len), first=True)
    records = spread(len(asked.sizes), MOST_POINTS)
    inside = np.maximum(asked.lengths[records] - 2, 0)  # without the markers
    enough = int(np.searchsorted(np.cumsum(inside), 4 * MOST_POINTS)) + 1
    records, inside = records[:enough], inside[:enough]
    found = np.concatenate(predictor.vectors(shard, records, positions=True)).astype(np.float64)
    record = np.repeat(np.arange(len(records)), inside)
    place = np.arange(len(record)) - np.repeat(np.cumsum(inside) - inside, inside)  # from 0
    at = asked.starts[records][record] + 1 + place  # in the shard
    chosen = np.flatnonzero(asked.targets[at] >= 0)
    chosen = chosen[spread(len(chosen), MOST_POINTS)] if len(chosen) else chosen
    texts = []
    for i in chosen:
        ids = shard.record(int(records[record[i]]))[1:-1]
        before, after = ids[max(0, place[i] - CONTEXT) : place[i]], ids[place[i] + 1 :][:CONTEXT]
        here = tokenizer.decode(ids[place[i] : place[i] + 1])
        texts.append(f"{tokenizer.decode(before)}[{here}]{tokenizer.decode(after)}")
    classes = predictor.targets.classes[0]
    return EmbeddingMap(found[chosen], texts, [classes[k] for k in asked.targets[at[chosen]]], [])


def truths_of(truths: Array, targets: Targets) -> tuple[list[str], list[float]]:
    """The truths (N,) or (N, O) of records: names of groups, or the values of the first column."""
    if targets.task == "value":
        return [], truths[:, 0].astype(float).tolist()
    if targets.task == "labels":
        names = np.array(targets.names)
        return [",".join(names[row == 1]) or "none" for row in truths], []
    classes = targets.classes[0]
    return [classes[k] if k >= 0 else "unknown" for k in truths], []
