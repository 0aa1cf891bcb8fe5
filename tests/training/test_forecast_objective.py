"""The objective of forecasters reads windows from one buffer, and its validation is a mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.shards import Shard
from regard.data.windows import batch_of, join_splits
from regard.evaluation.language_modeling import Stopped
from regard.models.forecaster import LinearForecastConfig, NLinear
from regard.models.language_model import IGNORE
from regard.training.forecast_objective import ForecastObjective, validation_loss

L, H, C = 10, 3, 2


@pytest.fixture
def windows():
    values = np.random.default_rng(0).normal(size=(90, C)).astype(np.float32).cumsum(0)
    shard = Shard(
        path=None,
        kind="records",
        ids=values,
        offsets=np.array([0, 90]),
        vocab_size=C,
        records=1,
        tokens=90,
        symbols=0,
        bytes=0,
    )
    return join_splits({"train": shard}, L, H, C)["train"]


def objective(windows):
    torch.manual_seed(0)
    model = NLinear(C, LinearForecastConfig(max_len=L, horizon=H, n_channels=C, dropout=0.0))
    torch.nn.init.normal_(model.map.weight, std=0.2)
    return ForecastObjective(model, windows)


def test_losses_are_those_of_copied_windows(windows):
    module = objective(windows)
    values = torch.from_numpy(windows.read())
    expected = module.model.losses(module.model.forecast(values[:, :L]), values[:, L:])
    batch = batch_of(windows)
    assert torch.allclose(module.losses(batch.ids), expected)
    total, reported = module(*batch.tensors())
    expected_sum = float(expected.detach().sum())
    assert float(total.detach()) == pytest.approx(expected_sum) == float(reported)


def test_padded_rows_do_not_count(windows):
    module = objective(windows)
    batch = batch_of(windows.take(np.arange(4)))
    targets = batch.targets.clone()
    targets[2:] = IGNORE
    both = module.losses(batch.ids[:2]).detach().sum()
    assert float(module(batch.ids, targets)[1]) == pytest.approx(float(both))


def test_series_are_no_weights_of_the_model(windows):
    assert set(objective(windows).state_dict()) == {"model.map.weight", "model.map.bias"}


def test_validation_is_the_mean_over_windows_and_can_be_stopped(windows):
    module = objective(windows).train()
    loss = validation_loss(module, windows, bool)
    assert module.training
    expected = float(module.losses(batch_of(windows).ids).detach().mean())
    assert loss.value == pytest.approx(expected, rel=1e-5) and loss.error > 0
    with pytest.raises(Stopped):
        validation_loss(module, windows, lambda: True)
