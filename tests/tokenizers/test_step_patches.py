"""Patches of series: standardized by training, cut without loss, of any length."""

import numpy as np
import pytest

from regard.errors import UserError
from regard.tokenizers import load
from regard.tokenizers.step_patches import StepPatches, default_patch


def series(seed, steps, columns=2):
    values = np.random.default_rng(seed).normal(size=(steps, columns)) * [3, 0.01][:columns] + 40
    values[seed % steps, 0] = np.nan
    return values


def test_tokens_hold_the_standardized_values_of_each_step():
    items = [series(n, 5 + n) for n in range(4)]
    joined = np.concatenate(items)
    tokens = StepPatches.train(items, patch=3).encode(items[2])  # 7 steps: 3 + 3 + 1
    expected = (items[2] - np.nanmean(joined, 0)) / np.nanstd(joined, 0)
    assert tokens.shape == (1 + 3, 1 + 3 * 2)
    assert tokens[:, 0].tolist() == [0, 3, 3, 1]
    np.testing.assert_allclose(tokens[1:, 1:].reshape(-1, 2)[:7], expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(tokens[3, 3:]).all()  # after the end


@pytest.mark.parametrize("steps", [1, 4, 11])
def test_a_series_comes_back_from_its_tokens_with_its_gaps(steps):
    tokenizer = StepPatches.train([series(3, 9), series(5, 30)], patch=4)
    item = series(1, steps)
    decoded = tokenizer.decode_record(tokenizer.encode(item))
    np.testing.assert_allclose(decoded, item, rtol=1e-5)
    assert tokenizer.round_trip(item) and tokenizer.record_round_trip(tokenizer.encode(item))
    assert all(map(tokenizer.round_trip, tokenizer.sample_items(3)))


def test_a_saved_featurizer_is_the_same_and_a_constant_column_is_not_divided_by_zero(tmp_path):
    tokenizer = StepPatches.train([np.full((6, 1), 7.5)], columns=("x",))
    tokenizer.save(tmp_path / tokenizer.file)
    again = load(tmp_path / "tokenizer.json")
    assert again.equals(tokenizer) and again.columns == ("x",)
    assert np.array_equal(again.encode(np.full(3, 7.5))[1:, 1], [0, 0, 0])


def test_a_series_of_other_columns_or_without_steps_is_refused():
    tokenizer = StepPatches.train([series(0, 8)])
    with pytest.raises(UserError, match="has 1 columns, the model reads 2"):
        tokenizer.encode(np.zeros(5))
    with pytest.raises(UserError, match="no steps"):
        tokenizer.encode(np.zeros((0, 2)))
    with pytest.raises(UserError, match="damaged"):
        StepPatches.from_document(tokenizer.document() | {"deviation": [1, 0]}, "file")


def test_long_series_have_longer_patches():
    assert [default_patch(n) for n in (10, 64, 100, 140, 1000, 10**6)] == [1, 1, 2, 4, 16, 64]
