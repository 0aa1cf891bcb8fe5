"""The page about word vectors, its neighbours and its component."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.look.page import Projector
from regard.look.word_vector_page import NEAREST, word_vector_page
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig
from regard.pipelines.word_vectors import WordVectors
from regard.tokenizers.words import Words


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
    assert nearest == [n.word for n in word_vectors.nearest("w3", NEAREST)]
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
