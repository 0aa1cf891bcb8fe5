"""Hidden patches of series: which, and what is to be predicted."""

import numpy as np
import pytest

from regard.data.batching import MaskedLoader
from regard.data.masked_patches import MaskedPatches
from regard.evaluation.eval_data import shard_of
from regard.tokenizers.step_patches import StepPatches


@pytest.fixture
def shard_and_tokenizer():
    random = np.random.default_rng(0)
    items = [random.normal(size=(n, 2)) for n in (1, 4, 9, 40, 41, 70)]
    items[3][7] = np.nan
    tokenizer = StepPatches.train(items, patch=3)
    return shard_of(items, tokenizer), tokenizer


def test_some_patches_of_each_series_are_hidden_and_never_its_start_or_all(shard_and_tokenizer):
    shard, tokenizer = shard_and_tokenizer
    masked = MaskedPatches(shard, tokenizer, 8, share=0.3)
    for batch in masked.batches(10_000):
        for row, record in enumerate(batch.items.tolist()):
            length = len(shard.record(record))
            hidden = np.isnan(batch.ids[row, :length, 1:].numpy()).all(1)
            targets = batch.targets[row].numpy()
            assert not hidden[0] and not np.isnan(batch.ids[row, :length, 0].numpy()).any()
            assert hidden.sum() >= 1
            assert hidden.sum() < length - 1 or length == 2
            known = ~np.isnan(targets).all(1)
            original = shard.record(record)[:, 1:]
            assert not known[length:].any() and not known[:length][~hidden].any()
            np.testing.assert_array_equal(targets[:length][hidden], original[hidden])
        assert batch.symbols == int((~np.isnan(batch.targets.numpy())).sum())


def test_what_is_hidden_depends_on_the_record_and_not_on_its_batch(shard_and_tokenizer):
    shard, tokenizer = shard_and_tokenizer
    masked = MaskedPatches(shard, tokenizer, 8)
    together = {
        record: batch.ids[row, : len(shard.record(record))].numpy()
        for batch in masked.batches(10_000)
        for row, record in enumerate(batch.items.tolist())
    }
    for record in range(shard.records):
        (batch,) = masked.batches(1, np.array([record]))
        np.testing.assert_array_equal(batch.ids[0].numpy(), together[record])


def test_training_hides_other_patches_in_every_epoch(shard_and_tokenizer):
    shard, tokenizer = shard_and_tokenizer
    long = shard.take(np.array([5]))
    options = {"max_len": 8, "batch_tokens": 30, "seed": 1}
    loader = MaskedLoader(long, tokenizer, share=0.3, masking=MaskedPatches, **options)
    first, second = (loader.step(n)[0].ids.numpy() for n in (0, 1))
    assert not np.array_equal(np.isnan(first), np.isnan(second))
    np.testing.assert_array_equal(first, loader.step(0)[0].ids.numpy())
