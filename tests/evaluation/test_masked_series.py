"""Errors of filled patches beside those of lines and last values, computed by NumPy."""

import dataclasses

import numpy as np
import torch

from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import measure_masked
from regard.models.series_classifiers import MaskedSeries, modern_masked
from regard.tokenizers.step_patches import StepPatches


def test_the_errors_of_the_baselines_are_those_of_numpy():
    random = np.random.default_rng(2)
    items = [random.normal(size=(n, 2)).cumsum(0) for n in (17, 30, 44)]
    items[1][5:8, 0] = np.nan
    tokenizer = StepPatches.train(items, patch=4)
    config = dataclasses.replace(modern_masked(1, 16), **tokenizer.model_config, max_len=12)
    torch.manual_seed(0)
    model = MaskedSeries(tokenizer.vocab_size, config).eval()
    shard = shard_of(items, tokenizer)
    result = measure_masked(model, shard, tokenizer)
    metrics = {name: metric.value for name, metric in result.metrics().items()}
    masked = MaskedSeries.masking(shard, tokenizer, 12)
    line, last, count = 0.0, 0.0, 0
    for batch in masked.batches(1000):
        for row, record in enumerate(batch.items.tolist()):
            steps, length = len(items[record]), len(shard.record(record))
            read = batch.ids[row, 1:length, 1:].reshape(-1, 2)[:steps].numpy()
            truth = batch.targets[row, 1:length].reshape(-1, 2)[:steps].numpy()
            for c in range(2):
                known = np.flatnonzero(np.isfinite(read[:, c]))
                wanted = np.flatnonzero(np.isfinite(truth[:, c]))
                straight = np.interp(wanted, known, read[known, c])
                index = np.maximum(np.searchsorted(known, wanted) - 1, 0)
                line += np.square(straight - truth[wanted, c]).sum()
                last += np.square(read[known[index], c] - truth[wanted, c]).sum()
                count += len(wanted)
    np.testing.assert_allclose(metrics["mse_linear"], line / count, rtol=1e-4)
    np.testing.assert_allclose(metrics["mse_last"], last / count, rtol=1e-4)
    np.testing.assert_allclose(
        metrics["skill"], 1 - metrics["mse"] / metrics["mse_linear"], rtol=1e-6
    )
    assert result.scores[:, -1].sum() == count
