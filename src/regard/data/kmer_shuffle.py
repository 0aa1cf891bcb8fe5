"""Random sequences with exactly the k-mer counts of given ones.

A sequence is a walk over its (k − 1)-mers, an edge for each of its k-mers. Another walk over the
same edges, from the same start to the same end, has the same k-mer counts. All of them are equally
probable if the last edges out of every vertex are a random tree towards the end and the other edges
are in random order (Altschul & Erickson 1985, Mol. Biol. Evol. 2:526; trees by Wilson 1996, as in
uShuffle, Jiang et al. 2008, BMC Bioinformatics 9:192).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError

Ids = NDArray[np.int64]


def shuffle_kmers(digits: Ids, k: int, size: int, random: np.random.Generator) -> Ids:
    """Return a random order of digits (T,), each below `size`, that keeps all counts of k-mers."""
    if k < 1 or size**k > 1 << 40:
        raise UsageError(f"k must be 1 or more, and not too large for {size} letters, got {k}")
    if k == 1:
        return random.permutation(digits)
    if len(digits) <= k:
        return digits.copy()
    powers = size ** np.arange(k - 1)[::-1]
    words = np.lib.stride_tricks.sliding_window_view(digits, k - 1) @ powers  # (T - k + 2,)
    vertices, walk = np.unique(words, return_inverse=True)
    source, target = walk[:-1], walk[1:]
    order = np.lexsort((random.random(len(source)), source))  # edges by vertex, at random
    firsts = np.searchsorted(source[order], np.arange(len(vertices) + 1))
    edges = target[order].tolist()
    last = int(walk[-1])
    for vertex, edge in random_tree(edges, firsts.tolist(), last, random).items():
        end = int(firsts[vertex + 1]) - 1  # the edge of the tree is left last
        edges[edge], edges[end] = edges[end], edges[edge]
    follow = firsts.tolist()
    vertex, path = int(walk[0]), []
    for _ in range(len(edges)):
        edge = follow[vertex]
        follow[vertex] = edge + 1
        vertex = edges[edge]
        path.append(vertex)
    return np.concatenate([digits[: k - 1], vertices[path] % size])


def random_tree(
    edges: list[int], firsts: list[int], root: int, random: np.random.Generator
) -> dict[int, int]:
    """Return the index of an edge out of every vertex but the root, such that they form a random
    tree towards the root: loop-erased random walks.
    """
    inside = {root}
    tree: dict[int, int] = {}
    draws = iter(random.random(64).tolist())
    for start in range(len(firsts) - 1):
        vertex = start
        while vertex not in inside and firsts[vertex] < firsts[vertex + 1]:
            draw = next(draws, None)
            if draw is None:
                draws = iter(random.random(1024).tolist())
                draw = next(draws)
            count = firsts[vertex + 1] - firsts[vertex]
            tree[vertex] = firsts[vertex] + int(draw * count)
            vertex = edges[tree[vertex]]
        vertex = start
        while vertex not in inside and vertex in tree:
            inside.add(vertex)
            vertex = edges[tree[vertex]]
    return tree
