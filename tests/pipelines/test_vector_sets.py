"""Tables of token embeddings of models of each kind."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import TOKENIZER, bigram, decoder, lstm

from regard.pipelines.generator import Generator
from regard.pipelines.vector_sets import character_class


@pytest.mark.parametrize("make", [decoder, lstm])
def test_token_embeddings_are_the_rows_of_the_model(make):
    pipeline = Generator(make(), TOKENIZER)
    found = pipeline.vector_sets["tokens"](2)
    ids = [int(TOKENIZER.encode(name)[0]) for name in found.names]
    assert list(found.names) == ["a", "b"] and found.records is None
    rows = pipeline.model.embedding.weight.detach().numpy()[ids]
    np.testing.assert_array_equal(found.vectors, rows)


def test_a_counting_model_has_none():
    assert not Generator(bigram(), TOKENIZER).vector_sets


def test_a_translator_has_a_table_for_either_side(translator):
    assert set(translator.vector_sets) == {"source tokens", "target tokens"}
    target = translator.vector_sets["target tokens"](99)
    rows = translator.model.decoder.embedding.weight.detach().numpy()
    ids = [int(translator.tokenizer.encode(name)[0]) for name in target.names if name != "·"]
    np.testing.assert_array_equal(
        [v for v, name in zip(target.vectors, target.names, strict=True) if name != "·"], rows[ids]
    )


def test_tokens_are_told_apart_by_their_first_character():
    tokens = ["▁House", " house", "7", "·", "", "?!", "Ä"]
    expected = ["capital", "small letter", "digit", "space", "space", "sign", "capital"]
    assert [character_class(token) for token in tokens] == expected


def test_sources_and_texts_of_a_contrastive_model_share_a_space(contrastive_run):
    import regard

    matcher = regard.load(contrastive_run)
    found = matcher.vector_sets["sources and texts"](20)
    assert found.vectors.shape[0] == len(found.names) == 20
    assert found.columns["side"] == ["image"] * 10 + ["text"] * 10
    np.testing.assert_allclose(found.vectors[10], matcher.embed_texts(found.names[10]), atol=1e-6)
