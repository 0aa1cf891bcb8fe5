"""Up to 20,000 vectors as points of a plane or of space, and the nearest of each.

Principal components take them all. t-SNE takes a sample, so that it ends within seconds; every
other point is put where its nearest vectors of the sample are, each weighted by its similarity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors

from regard.errors import UsageError, quoted
from regard.look.projection import FEWEST, PERPLEXITY, component_labels

Vectors = NDArray[np.float32]
MOST_VECTORS = 20_000
SAMPLE = {2: 1500, 3: 700}  # vectors that t-SNE itself takes, by the dimensions of the map
WIDEST = 50  # dimensions that t-SNE takes, as van der Maaten & Hinton 2008 do
SOURCES = 5  # vectors of the sample that place another one
LAYOUTS = ("principal components", "t-SNE")


@dataclass(frozen=True, eq=False)
class VectorLayout:
    """Points (N, 2) or (N, 3), the labels of their axes, "" where these mean nothing, and what a
    reader must know.
    """

    points: Vectors
    axes: Sequence[str]
    note: str


def lay_out(vectors: Vectors, layout: str = LAYOUTS[0], dimensions: int = 2) -> VectorLayout:
    """Return vectors (N, D) as points; the same vectors give the same points."""
    if layout not in LAYOUTS:
        raise UsageError(f"layout must be one of {', '.join(LAYOUTS)}, got {quoted(layout)}")
    if dimensions not in (2, 3):
        raise UsageError(f"dimensions must be 2 or 3, got {dimensions}")
    if len(vectors) < FEWEST:
        raise UsageError(f"a map needs at least {FEWEST} points, got {len(vectors)}")
    make = lay_out_components if layout == LAYOUTS[0] else lay_out_neighbours
    return make(vectors, dimensions)


def components(vectors: Vectors, count: int) -> tuple[Vectors, NDArray[np.float64]]:
    """Return the coordinates (N, count) along the first principal directions, zeros where there are
    no more, and the share of the variance of each (count,).
    """
    width = min(count, *vectors.shape)
    tall = len(vectors) > 10 * vectors.shape[1]
    with np.errstate(invalid="ignore"):  # equal vectors have no variance to share
        pca = PCA(width, svd_solver="covariance_eigh" if tall else "full")
        projected = pca.fit_transform(np.asarray(vectors, np.float64))
    points, shares = np.zeros((len(vectors), count), np.float32), np.zeros(count)
    points[:, :width] = projected
    shares[:width] = np.nan_to_num(pca.explained_variance_ratio_)
    return points, shares


def lay_out_components(vectors: Vectors, dimensions: int) -> VectorLayout:
    points, shares = components(vectors, dimensions)
    note = (
        f"The axes are the directions in which the vectors vary most; they show "
        f"{shares.sum():.0%} of the variance."
    )
    return VectorLayout(points, component_labels(shares), note)


def lay_out_neighbours(vectors: Vectors, dimensions: int) -> VectorLayout:
    """Lay out by t-SNE; see the module."""
    reduced = components(vectors, WIDEST)[0] if vectors.shape[1] > WIDEST else vectors
    sample = draw_sample(len(reduced), SAMPLE[dimensions])
    start = components(reduced[sample], dimensions)[0]
    start *= 1e-4 / max(float(start[:, 0].std()), 1e-30)
    model = TSNE(
        dimensions, perplexity=min(PERPLEXITY, (len(sample) - 1) / 3), init=start, random_state=0
    )
    points = np.zeros((len(vectors), dimensions), np.float32)
    points[sample] = model.fit_transform(reduced[sample])
    others = np.setdiff1d(np.arange(len(vectors)), sample)
    if len(others):
        points[others] = place_by_neighbours(reduced[sample], points[sample], reduced[others])
    note = "Only who is near whom means something here: directions and distances do not."
    if len(others):
        note += (
            f" t-SNE placed {len(sample):,} of the {len(vectors):,} points; each other one is where"
            f" the {SOURCES} nearest of these are."
        )
    return VectorLayout(points, [""] * dimensions, note)


def draw_sample(count: int, most: int) -> NDArray[np.int64]:
    """Return at most so many numbers below `count` in order, always the same ones. They are drawn
    at random: evenly spaced ones could all be of one group.
    """
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def place_by_neighbours(known: Vectors, points: Vectors, others: Vectors) -> Vectors:
    """Return where other vectors go: the mean of the points of the nearest known vectors, weighted
    by the inverse of the distance.
    """
    search = NearestNeighbors(n_neighbors=min(SOURCES, len(known))).fit(known)
    distances, nearest = search.kneighbors(others)
    weights = 1 / np.maximum(distances, 1e-9)
    weights /= weights.sum(1, keepdims=True)
    return np.asarray((points[nearest] * weights[:, :, None]).sum(1), np.float32)


def unit_vectors(vectors: Vectors) -> Vectors:
    """Return vectors of length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-30), np.float32)


def nearest_vectors(unit: Vectors, index: int, count: int) -> list[tuple[int, float]]:
    """Return the numbers of the `count` vectors nearest to one by the cosine, nearest first, and
    their cosines; of equals the one with the lower number first.
    """
    cosines = unit @ unit[index]
    order = np.lexsort((np.arange(len(unit)), -cosines))
    return [(int(i), float(cosines[i])) for i in order[: count + 1] if i != index][:count]
