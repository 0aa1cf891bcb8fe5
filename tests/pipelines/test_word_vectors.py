"""What `regard.load` returns for word vectors: neighbors, analogies and means, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig
from regard.pipelines.word_vectors import WordVectors, unit
from regard.tokenizers import Words

WORDS = ["man", "woman", "king", "queen", "Tree"]
VECTORS = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0, 0]], np.float32)


@pytest.fixture
def vectors():
    tokenizer = Words([f" {word}" for word in WORDS])
    model = SkipGram(tokenizer.vocab_size, Word2VecConfig(d_model=3, n_words=len(WORDS)))
    rows = np.array([-1, -1, -1, -1, *range(len(WORDS))])
    model.set_vocabulary(Vocabulary(rows, np.arange(len(WORDS), 0, -1)))
    with torch.no_grad():
        model.inputs.copy_(torch.from_numpy(VECTORS))
    return WordVectors(model, tokenizer)


def test_words_have_their_vectors(vectors):
    assert len(vectors) == 5 and "king" in vectors and "prince" not in vectors
    np.testing.assert_array_equal(vectors["queen"], [1, 1, 1])
    np.testing.assert_array_equal(vectors["tree"], vectors["Tree"])  # if only the case differs
    assert vectors.similarity("man", "woman") == pytest.approx(1 / np.sqrt(2))
    assert vectors.similarity("man", "Tree") == pytest.approx(-1)
    with pytest.raises(UserError, match="no vector for 'quen'; did you mean 'queen'"):
        vectors["quen"]


def test_neighbors_are_sorted_by_the_cosine_without_the_word_itself(vectors):
    found = vectors.nearest("queen", 4)
    assert [one.word for one in found] == ["woman", "king", "man", "Tree"]
    cosines = [float(unit(VECTORS)[3] @ unit(VECTORS)[WORDS.index(one.word)]) for one in found]
    assert [one.similarity for one in found] == pytest.approx(cosines)
    assert vectors.nearest(np.array([0, 0, 2.0]), 1)[0].word == "king"


def test_an_analogy_is_the_nearest_to_the_difference_and_none_of_the_three(vectors):
    (found,) = vectors.analogy("man", "king", "woman")
    assert found.word == "queen"


def test_a_text_is_the_mean_of_its_words(vectors):
    np.testing.assert_allclose(vectors.embed("man queen"), [1, 0.5, 0.5])
    both = vectors.embed(["king", "unknown words"])
    np.testing.assert_allclose(both[0], VECTORS[2])
    assert not both[1].any()
    assert vectors.embed("man prince king", positions=True).shape == (3, 3)
    with pytest.raises(UserError, match="word vectors are of one text"):
        vectors.embed("a", seconds=["b"])


def test_vectors_of_length_one_leave_zeros():
    np.testing.assert_allclose(unit(np.array([[3.0, 4.0], [0, 0]])), [[0.6, 0.8], [0, 0]])
