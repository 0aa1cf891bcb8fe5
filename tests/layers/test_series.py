"""Steps of series from their tokens, and lines over what is missing."""

import numpy as np
import torch

from regard.layers.embeddings import Inputs
from regard.layers.series import SeriesEmbedding, fill_linearly, read_steps, without_padding
from regard.tokenizers.step_patches import StepPatches


def batch_of(tokenizer, items):
    records = [torch.from_numpy(tokenizer.encode(item)) for item in items]
    lengths = torch.tensor([len(record) for record in records])
    ids = torch.full((len(items), int(lengths.max()) + 2, tokenizer.vocab_size), 99.0)
    for row, record in enumerate(records):
        ids[row, : len(record)] = record
    segments = (torch.arange(ids.size(1)) < lengths[:, None]).long()
    return Inputs(ids, segments)


def gappy(seed, steps):
    random = np.random.default_rng(seed)
    values = random.normal(size=(steps, 2))
    values[random.random((steps, 2)) < 0.4] = np.nan
    return values


def test_steps_are_those_of_the_series_whatever_is_in_the_padding():
    items = [gappy(n, steps) for n, steps in enumerate((5, 12, 7))]
    tokenizer = StepPatches(("a", "b"), [0, 0], [1, 1], patch=3, longest=12)
    steps = read_steps(batch_of(tokenizer, items), 3, 2)
    assert steps.lengths.tolist() == [5, 12, 7]
    for row, item in enumerate(items):
        known = np.isfinite(item)
        assert np.array_equal(steps.known[row, : len(item)].numpy(), known)
        assert not steps.known[row, len(item) :].any()
        values = steps.values[row, : len(item)].numpy()
        np.testing.assert_allclose(values, np.where(known, item, 0), rtol=1e-6)


def test_filling_is_that_of_numpy():
    items = [gappy(n, 9 + 4 * n) for n in range(4)]
    tokenizer = StepPatches(("a", "b"), [0, 0], [1, 1], patch=4, longest=21)
    filled = fill_linearly(read_steps(batch_of(tokenizer, items), 4, 2)).numpy()
    for row, item in enumerate(items):
        for c in range(2):
            known = np.flatnonzero(np.isfinite(item[:, c]))
            expected = np.interp(np.arange(len(item)), known, item[known, c])
            np.testing.assert_allclose(filled[row, : len(item), c], expected, atol=1e-5)
        assert not filled[row, len(item) :].any()


def test_an_embedding_that_reads_neighbors_reads_nothing_of_the_padding():
    torch.manual_seed(0)
    tokenizer = StepPatches(("a", "b"), [0, 0], [1, 1], patch=1, longest=9)
    embedding = SeriesEmbedding(6, 1, 2, 2)
    items = [gappy(1, 4), gappy(2, 9)]
    together = embedding(without_padding(batch_of(tokenizer, items)).ids)
    alone = embedding(without_padding(batch_of(tokenizer, items[:1])).ids)
    torch.testing.assert_close(together[0, :5], alone[0, :5])
    assert together.shape == (2, 12, 6)
