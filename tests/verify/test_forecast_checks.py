"""Checks of forecasters notice what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.api import train_recipe
from regard.planning import plan_recipe
from regard.run import Run
from regard.verify import verify
from regard.verify.forecast_checks import (
    ForecastFixture,
    batch_is_single,
    causality_by_gradient,
    quantiles_do_not_cross,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    values = np.sin(np.arange(200) / 3)
    np.save(folder / "wave.npy", values)
    recipe, _ = plan_recipe(
        [folder / "wave.npy"],
        assignments=["train.steps=4", "train.batch_tokens=300", "train.device=cpu"],
        task={"name": "forecast", "quantiles": "0.1,0.9"},
        input={"name": "time-series", "horizon": 4, "lookback": 20},
        model={"name": "nlinear"},
    )
    train_recipe(recipe, folder / "run")
    return folder / "run"


def fixture(run):
    return ForecastFixture.open(run, Run(run).model())


def test_a_sound_run_passes(run):
    report = verify(run)
    assert report.ok and "quantiles do not cross" in {check.name for check in report.checks}


def test_a_forecast_that_reads_its_targets_is_noticed(run):
    sound = fixture(run)
    assert causality_by_gradient(sound)[0]

    class Leaking(ForecastFixture):
        def forecast(self, windows, tap=None, model=None):
            return super().forecast(windows, tap, model) + windows[:, -1:, :1, None]

    leaking = Leaking(sound.run, sound.model, sound.tokenizer, sound.windows)
    assert not causality_by_gradient(leaking)[0]


def test_a_forecast_that_depends_on_its_batch_is_noticed(run):
    class Mixing(ForecastFixture):
        def forecast(self, windows, tap=None, model=None):
            mean = windows.nan_to_num().mean((0, 1))[None, None, :1, None]
            return super().forecast(windows, tap, model) + mean

    sound = fixture(run)
    mixing = Mixing(sound.run, sound.model, sound.tokenizer, sound.windows)
    with torch.no_grad():  # as `verify` calls them
        assert batch_is_single(sound)[0]
        assert not batch_is_single(mixing)[0]


def test_crossing_quantiles_are_noticed(run):
    sound = fixture(run)
    assert quantiles_do_not_cross(sound)[0]
    sound.model.predict = lambda past, future: torch.tensor([[[[1.0, 0.0]]]])
    assert not quantiles_do_not_cross(sound)[0]
