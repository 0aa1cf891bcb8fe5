"""The screen Embeddings: points, columns and neighbours of records, words and tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import TOKENIZER, bigram, decoder

from regard.data.targets import Targets
from regard.errors import UsageError, UserError
from regard.models.encoder import EncoderModel
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.registry import TOKENIZERS
from regard.studio.opened import Opened
from regard.studio.screens.embeddings import Embeddings

TEXTS = [f"{a}{b}c" for a in "abcde" for b in "abcde"]


@pytest.fixture
def screen(tmp_path):
    def make(pipeline):
        opened = Opened(tmp_path)
        opened.pipeline = lambda name: pipeline
        opened.version = lambda name: (name, ())
        return Embeddings(opened)

    return make


@pytest.fixture(scope="module")
def predictor():
    """A small random classifier, with held-out records of two labels."""
    torch.manual_seed(0)
    tokenizer = TOKENIZERS["characters"].train(TEXTS)
    preset = next(iter(EncoderModel.PRESETS.values()))
    config = replace(
        preset(1, 16),
        task="label",
        n_outputs=2,
        max_len=8,
        dropout=0.0,
        n_heads=2,
        n_kv_heads=2,
        d_head=4,
    )
    model = EncoderModel(tokenizer.vocab_size, config).eval()
    made = Predictor(model, tokenizer, Targets("label", ("kind",), (("no", "yes"),)))
    shard = replace(made.shard(TEXTS), targets=np.arange(25, dtype=np.int32) % 2)
    made.held_out = lambda run=None: ("test", shard)
    return made


def test_records_are_points_with_the_columns_of_their_errors(screen, predictor):
    answer = screen(predictor).points("run", most=25)
    assert answer["points"].shape == (25, 2) and answer["names"] == TEXTS
    assert answer["records"].tolist() == list(range(25))
    labels = answer["columns"]["true label"]
    assert [labels["names"][code] for code in labels["codes"]] == ["no", "yes"] * 12 + ["no"]
    predicted = predictor.predict(TEXTS)
    column = answer["columns"]["prediction"]
    assert [column["names"][code] for code in column["codes"]] == predicted.tolist()
    confidence = predictor.predict_proba(TEXTS).max(1)
    np.testing.assert_allclose(answer["columns"]["confidence"]["values"], confidence, atol=1e-5)


def test_neighbours_are_those_of_brute_force(screen, predictor):
    vectors = np.stack(predictor.embed(TEXTS))
    answer = screen(predictor).neighbours("run", 3, most=25, count=5)
    cosines = [
        float(v @ vectors[3] / np.linalg.norm(v) / np.linalg.norm(vectors[3])) for v in vectors
    ]
    order = sorted((i for i in range(25) if i != 3), key=lambda i: -cosines[i])[:5]
    assert [i for i, _ in answer["neighbours"]] == order
    assert [c for _, c in answer["neighbours"]] == pytest.approx(
        [cosines[i] for i in order], abs=1e-5
    )


def test_tokens_of_any_model_with_a_table_are_points(screen):
    pipeline = Generator(decoder(), TOKENIZER)
    assert screen(pipeline).sets("run")["sets"] == ["tokens"]
    with pytest.raises(UsageError, match="at least 5 points, got 3"):
        screen(pipeline).points("run")
    made = pipeline.vector_sets["tokens"](10)
    assert list(made.names) == ["a", "b", "c"]
    ids = [int(TOKENIZER.encode(name)[0]) for name in made.names]
    np.testing.assert_array_equal(
        made.vectors, pipeline.model.embedding.weight.detach().numpy()[ids]
    )


def test_a_model_without_vectors_says_so_and_wrong_names_are_refused(screen, predictor):
    counting = screen(Generator(bigram(), TOKENIZER))
    assert counting.sets("run")["sets"] == []
    with pytest.raises(UserError, match="run has no vectors to draw"):
        counting.points("run")
    with pytest.raises(UsageError, match="run has no vectors of word"):
        screen(predictor).points("run", vectors="word")
    with pytest.raises(UsageError, match="most must be from 5 to 20000, got 1"):
        screen(predictor).points("run", most=1)
    with pytest.raises(UsageError, match="index must be from 0 to 24, got 99"):
        screen(predictor).neighbours("run", 99, most=25)


def test_three_dimensions_and_another_layout(screen, predictor):
    answer = screen(predictor).points("run", layout="t-SNE", dimensions=3, most=25)
    assert answer["points"].shape == (25, 3) and answer["axes"] == ["", "", ""]
