"""Two encoders and their baselines: vectors depend on their record alone, CCA is exact."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.shards import Shard
from regard.layers.embeddings import Inputs
from regard.models.contrastive import (
    Chance,
    ChanceConfig,
    ColorCorrelation,
    CorrelationConfig,
    DualEncoder,
    ImageTextConfig,
    TokenCorrelation,
    apply,
    canonical_directions,
)


def inputs(rows, lengths, vocab_size=11):
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(vocab_size, (rows, max(lengths)), generator=draw)
    segments = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return Inputs(ids, segments)


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    config = dataclasses.replace(DualEncoder.PRESETS["modern"](2, 32), max_len=16, source_vocab=7)
    return DualEncoder(11, config).eval()


def test_vectors_have_length_one_and_padding_changes_nothing(encoder):
    texts = inputs(3, [4, 9, 6])
    together = encoder.embed_texts(texts)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(3))
    for row, length in enumerate((4, 9, 6)):
        alone = Inputs(texts.ids[row : row + 1, :length], texts.segments[row : row + 1, :length])
        torch.testing.assert_close(encoder.embed_texts(alone)[0], together[row])


def test_sources_have_a_vocabulary_and_an_encoder_of_their_own(encoder):
    source = inputs(3, [5, 5, 5], vocab_size=7)
    assert not torch.allclose(encoder.embed_sources(source), encoder.embed_texts(source))
    assert encoder.sources.embedding.num_embeddings == 7


def test_one_vocabulary_is_one_embedding():
    model = DualEncoder(11, DualEncoder.PRESETS["vaswani"](1, 16))
    assert model.sources.embedding is model.texts.embedding


def test_the_scale_of_products_is_bounded(encoder):
    assert encoder.scale.item() == pytest.approx(1 / 0.07)
    with torch.no_grad():
        encoder.log_scale.fill_(50.0)
    assert encoder.scale.item() == 100


def test_a_pooling_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="pooling must be one of"):
        ImageTextConfig(pooling="median")


def test_chance_cannot_tell_anything_apart():
    model = Chance(11, ChanceConfig())
    assert not model.embed_texts(inputs(3, [4, 4, 4])).any()


def test_canonical_correlations_are_those_of_a_generalised_eigenproblem():
    """An oracle by another way: rho² are the eigenvalues of Cxx⁻¹ Cxy Cyy⁻¹ Cyx."""
    random = np.random.default_rng(0)
    common = random.normal(size=(500, 2))
    x = np.hstack([common @ random.normal(size=(2, 3)), random.normal(size=(500, 2))])
    y = np.hstack([common + 0.5 * random.normal(size=(500, 2)), random.normal(size=(500, 2))])
    x += 0.1 * random.normal(size=x.shape)
    maps, strengths = canonical_directions(x, y, 1e-12)
    cxx, cyy = (np.cov(z, rowvar=False, bias=True) for z in (x, y))
    cxy = (x - x.mean(0)).T @ (y - y.mean(0)) / 500
    squares = np.linalg.eigvals(np.linalg.solve(cxx, cxy) @ np.linalg.solve(cyy, cxy.T)).real
    expected = np.sqrt(np.sort(squares)[::-1][:4].clip(0))
    np.testing.assert_allclose(strengths.numpy(), expected, atol=1e-6)
    first = [apply(m, z)[:, 0].numpy() for m, z in zip(maps, (x, y), strict=True)]
    assert np.corrcoef(*first)[0, 1] == pytest.approx(float(strengths[0]), abs=1e-6)


def shard_of_records(records, vocab_size):
    ids = np.concatenate(records)
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in records])]).astype(np.int64)
    n, tokens = len(records), len(ids)
    return Shard("memory", "records", ids, offsets, vocab_size, n, tokens, tokens, tokens)


def test_bags_of_tokens_are_matched_across_vocabularies():
    """Token i of sources is translated as token 12 - i: a linear map finds that."""
    random = np.random.default_rng(2)
    sources = [random.choice(np.arange(3, 10), 3, replace=False) for _ in range(300)]
    texts = [np.array([1, *(12 - s), 2]) for s in sources]
    sources = [np.array([1, *s, 2]) for s in sources]
    shard = shard_of_records(texts, 13).paired(shard_of_records(sources, 13))
    model = TokenCorrelation(13, CorrelationConfig(max_len=8))
    model.fit(shard, None, lambda line: None)
    one = Inputs(torch.tensor([[1, 3, 4, 5, 2]]), torch.ones(1, 5, dtype=torch.int64))
    two = Inputs(torch.tensor([[1, 9, 8, 7, 2], [1, 3, 4, 6, 2]]), torch.ones(2, 5).long())
    match, other = (model.embed_sources(one) @ model.embed_texts(two).T)[0].tolist()
    assert match > 0.9 > other


def test_a_histogram_counts_the_pixels_of_each_colour():
    config = CorrelationConfig(patch=2, rows=1, columns=2, mean=(0.5,) * 3, deviation=(1.0,) * 3)
    model = ColorCorrelation(5, config)
    patches = torch.zeros(1, 3, 2 + 12, dtype=torch.uint8)
    patches[0, 1:, 0], patches[0, 1:, 1] = 1, torch.tensor([1, 2])
    patches[0, 1, 2:6] = 255  # all red in the first patch, black in the second one
    histogram = model.source_features(Inputs(patches, torch.ones(1, 3, dtype=torch.int64)))
    assert histogram.square()[0].nonzero().flatten().tolist() == [0, 3]
    torch.testing.assert_close(histogram.square()[0, [0, 3]], torch.tensor([0.5, 0.5]))
