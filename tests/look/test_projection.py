"""Vectors in the plane: principal components against the covariance, t-SNE and k-means on planted
clusters.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.look.page import Projector
from regard.look.projection import (
    NEAREST_WORDS,
    cluster,
    principal_components,
    spread,
    tsne,
    word_vector_page,
)
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig
from regard.pipelines.word_vectors import WordVectors
from regard.tokenizers.text import Words


def random_vectors(n=40, d=7, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.arange(1, d + 1)


def planted_clusters():
    """Three clusters of 50 vectors each, and the number of each."""
    random, labels = np.random.default_rng(3), np.repeat([0, 1, 2], 50)
    return random.normal(size=(150, 10)) + 4 * random.normal(size=(3, 10))[labels], labels


def test_components_are_eigenvectors_of_the_covariance():
    x = random_vectors()
    values, vectors = np.linalg.eigh(np.cov(x.T))
    points, directions, shares = principal_components(x, 3)
    np.testing.assert_allclose(shares, values[::-1][:3] / values.sum())
    for i, direction in enumerate(directions):
        assert abs(direction @ vectors[:, -1 - i]) == pytest.approx(1)
        assert direction[np.abs(direction).argmax()] > 0  # the sign is fixed
    np.testing.assert_allclose(points, (x - x.mean(0)) @ directions.T)
    np.testing.assert_allclose(np.cov(points.T), np.diag(values[::-1][:3]), atol=1e-9)


def test_directions_that_do_not_exist_are_zeros():
    points, directions, shares = principal_components(np.array([[1.0], [2.0], [4.0]]))
    assert points.shape == (3, 2) and (points[:, 1] == 0).all() and (directions[1] == 0).all()
    assert shares.tolist() == [1, 0]
    assert principal_components(np.ones((4, 3)))[2].tolist() == [0, 0]  # no variance at all


def test_tsne_keeps_planted_clusters_together_and_is_deterministic():
    x, labels = planted_clusters()
    y = tsne(x)
    distances = np.linalg.norm(y[:, None] - y[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argsort(1)[:, :10]
    assert (labels[nearest] == labels[:, None]).mean() > 0.95
    assert (tsne(x) == y).all()


def test_few_or_equal_points_are_drawn_and_too_few_are_refused():
    for x in (random_vectors(5), np.ones((8, 3))):
        y = tsne(x)
        assert y.shape == (len(x), 2) and np.isfinite(y).all()
    with pytest.raises(ValueError, match="at least 5 points, got 4"):
        tsne(random_vectors(4))


def test_kmeans_finds_planted_clusters_and_is_deterministic():
    x, labels = planted_clusters()
    groups, centres = cluster(x, 3)
    assert centres.shape == (3, 10)
    assert all(len(set(groups[labels == k])) == 1 for k in range(3)) and len(set(groups)) == 3
    assert np.array_equal(groups, cluster(x, 3)[0])
    groups, centres = cluster(np.ones((5, 1)), 3)
    assert set(groups) == {0} and len(centres) == 1  # equal vectors are one cluster


def test_spread_indices_reach_from_the_first_to_the_last():
    assert spread(9, 3).tolist() == [0, 4, 8] and spread(2, 5).tolist() == [0, 1]


def make_word_vectors(words, dimensions=6, seed=0):
    """Words with random vectors, in two clusters: those of even and of odd number."""
    tokenizer = Words([f" {word}" for word in words])
    model = SkipGram(tokenizer.vocab_size, Word2VecConfig(d_model=dimensions, n_words=len(words)))
    rows = np.concatenate([np.full(4, -1), np.arange(len(words))]).astype(np.int64)
    model.set_vocabulary(Vocabulary(rows, np.arange(len(words), 0, -1)))
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.inputs.copy_(0.1 * torch.randn(model.inputs.shape, generator=random))
        model.inputs[::2, 0] += 1
        model.inputs[1::2, 1] += 1
        model.outputs.copy_(torch.randn(model.inputs.shape, generator=random))
    return WordVectors(model, tokenizer)


def test_the_nearest_are_those_of_brute_force():
    word_vectors = make_word_vectors([f"w{i}" for i in range(30)])
    unit = word_vectors.inputs / np.linalg.norm(word_vectors.inputs, axis=1, keepdims=True)
    cosines = unit @ unit[7]
    order = [i for i in np.argsort(-cosines) if i != 7][:5]
    nearest = word_vectors.nearest("w7", 5)
    assert [n.word for n in nearest] == [f"w{i}" for i in order]
    assert nearest[0].similarity == pytest.approx(float(cosines[order[0]]), abs=1e-6)
    assert word_vectors.similarity("w7", "W3") == pytest.approx(float(cosines[3]), abs=1e-6)
    vector = unit[2] - unit[1] + unit[4]
    scores = unit @ vector
    scores[[1, 2, 4]] = -9
    assert word_vectors.analogy("w1", "w2", "w4")[0].word == f"w{scores.argmax()}"
    line, nothing = word_vectors.embed(["w1 unknown w3", ""])
    np.testing.assert_allclose(line, (word_vectors["w1"] + word_vectors["w3"]) / 2, atol=1e-6)
    assert not nothing.any() and line.shape == (6,)
    assert word_vectors.embed(["w1 unknown w3"], positions=True)[0].shape == (3, 6)
    assert len(word_vectors.nearest("w7", 99)) == 29


def test_the_page_holds_words_planes_and_neighbours():
    markup = "</script><b>"
    word_vectors = make_word_vectors([markup, *(f"w{i}" for i in range(25))])
    page = word_vector_page(word_vectors, ["w3"], title="words", facts=[("model", "skipgram")])
    (projector,) = [c for c in page.components if isinstance(c, Projector)]
    data = projector.data()
    assert data["chosen"] == 0 and data["words"][0] == "w3" and markup in data["words"]
    nearest = [data["words"][i] for i in data["neighbours"][0]]
    assert nearest == [n.word for n in word_vectors.nearest("w3", NEAREST_WORDS)]
    assert {len(plane["x"]) for plane in data["planes"]} == {26}
    assert len(data["planes"]) == 2 and data["planes"][1]["x_label"].startswith("component 1")
    assert markup not in page.render() and json.loads(json.dumps(data))
    with pytest.raises(UserError, match="no vector for 'zebra'"):
        word_vector_page(word_vectors, ["zebra"], title="words")


def test_a_projector_that_does_not_fit_is_refused():
    good = {"words": ["a", "b"], "planes": {"p": np.zeros((2, 2))}, "groups": ["g", "g"]}
    with pytest.raises(ValueError, match="neighbours must name words"):
        Projector(**good, neighbours=[[2]], similarities=[[0.5]])
    with pytest.raises(ValueError, match="similarities"):
        Projector(**good, neighbours=[[1]], similarities=[[]])
    with pytest.raises(ValueError, match="chosen"):
        Projector(**good, neighbours=[[1]], similarities=[[0.5]], chosen=1)
