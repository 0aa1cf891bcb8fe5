"""Word vectors as stages, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from step_models import STEP_MODELS

from regard.errors import UsageError
from regard.look.steps import trace_steps
from regard.pipelines.word_vectors import WordVectors


def test_neighbors_are_the_nearest_vectors():
    pipeline = STEP_MODELS["cbow"]()
    trace, vectors = trace_steps(pipeline), pipeline.model.inputs.detach().numpy()
    cosines = vectors @ vectors[2] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[2])
    np.testing.assert_allclose(trace.find("Cosines").values, cosines, atol=1e-6)
    scores = pipeline.model.outputs.detach().numpy() @ vectors[2]
    p = 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose(trace.find("Probabilities").values, p, atol=1e-6)
    assert trace.tokens == ["cat"] and "mean of its words" in trace.notes[0]
    softmax = trace_steps(STEP_MODELS["skipgram"]()).find("Probabilities").values
    assert softmax.sum() == pytest.approx(1)


def test_a_word_or_its_number_is_read():
    reader = STEP_MODELS["cbow"]()
    vectors = WordVectors.__new__(WordVectors)
    vectors.model, vectors.words = reader.model, reader.words
    vectors._rows = {word: row for row, word in enumerate(reader.words)}
    for prepared in (vectors.prepare("dog"), vectors.prepare(record=3)):
        assert prepared.tensors["rows"].tolist() == [[3]]
        np.testing.assert_allclose(prepared.run(None)[0, 3], 1, atol=1e-6)
        assert isinstance(prepared.run(None), torch.Tensor)
    with pytest.raises(UsageError, match="record must be from 0 to 5, got 6"):
        vectors.prepare(record=6)
