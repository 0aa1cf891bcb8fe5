"""Metrics of forecasts by hand, fans that use no future, and blocks of the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.windows import join_splits
from regard.evaluation.forecasting import (
    LEVELS,
    blocks_of,
    load_forecasts,
    measure_forecasts,
    offsets_of,
    rolling_fan,
    seasonal_naive,
    seasonal_scale,
    store_forecasts,
    truths_of,
)
from regard.models.forecaster import ForecastConfig, ForecastModel
from regard.tokenizers.series import PlainSeries, Steps

L, H, C, SEASON = 8, 4, 2, 4


class Last(ForecastModel):
    """Forecasts the last value."""

    Config = ForecastConfig

    def forecast(self, past, future=None, *, tap=None):
        last = past[:, -1:, :C].nan_to_num()
        return last.expand(-1, H, -1)[..., None].clone()


@pytest.fixture
def data():
    """Windows of a wave with noise, and what encodes it."""
    random = np.random.default_rng(0)
    steps = np.arange(300)
    wave = np.sin(2 * np.pi * steps / SEASON)[:, None] * [3.0, 1.0] + [10.0, -2.0]
    values = wave + 0.5 * random.normal(size=(300, C))
    parts = [PlainSeries(v, np.empty((len(v), 0))) for v in np.split(values, [180, 240])]
    encoder = Steps.train(parts[:1], columns=("a", "b"), lookback=L, horizon=H, season=SEASON)
    from regard.data.shards import Shard

    shards = {}
    for name, part in zip(("train", "valid", "test"), parts, strict=True):
        ids = encoder.encode(part)
        shards[name] = Shard(
            path=None,
            kind="records",
            ids=ids,
            offsets=np.array([0, len(ids)]),
            vocab_size=C,
            records=1,
            tokens=len(ids),
            symbols=0,
            bytes=0,
        )
    return encoder, join_splits(shards, L, H, C), values


def model(**options):
    return Last(C, ForecastConfig(max_len=L, horizon=H, n_channels=C, **options))


def test_errors_are_those_of_numpy(data):
    encoder, windows, values = data
    result = measure_forecasts(
        model(), windows["test"], encoder, windows["train"], windows["valid"]
    )
    mean, deviation = values[:180].mean(0), values[:180].std(0)
    z = (values - mean) / deviation
    truths = np.stack([z[t : t + H] for t in range(240, 300 - H + 1)])
    last = np.stack([z[t - 1] for t in range(240, 300 - H + 1)])[:, None]
    season = np.stack([z[t - SEASON : t] for t in range(240, 300 - H + 1)])
    metrics = {name: metric.value for name, metric in result.metrics().items()}
    assert metrics["mse_standardized"] == pytest.approx(np.mean((truths - last) ** 2), rel=1e-4)
    assert metrics["mae_standardized"] == pytest.approx(np.mean(np.abs(truths - last)), rel=1e-4)
    skill = 1 - np.mean((truths - last) ** 2) / np.mean((truths - season) ** 2)
    assert metrics["skill"] == pytest.approx(skill, rel=1e-3)
    scale = np.abs(z[SEASON:180] - z[: 180 - SEASON]).mean(0)
    assert metrics["mase"] == pytest.approx(np.mean(np.abs(truths - last) / scale), rel=1e-3)
    error = (truths - last) * deviation
    assert metrics["rmse (a)"] == pytest.approx(np.sqrt((error[..., 0] ** 2).mean()), rel=1e-3)
    assert metrics["mae (b)"] == pytest.approx(np.abs(error[..., 1]).mean(), rel=1e-3)
    assert result.by_step[:, 1] / result.by_step[:, 0] == pytest.approx(
        ((truths - last) ** 2).mean((0, 2)), rel=1e-4
    )


def test_the_seasonal_naive_forecast_has_no_error_on_a_wave(data):
    _, windows, _ = data
    wave = np.sin(2 * np.pi * np.arange(len(windows["test"].ids)) / SEASON)
    windows["test"].ids[:] = wave[:, None]
    forecast = seasonal_naive(windows["test"], C, SEASON)
    assert np.abs(forecast - truths_of(windows["test"], C)).max() < 1e-5


def test_a_missing_value_one_season_before_is_replaced_by_the_last_known_one(data):
    _, windows, _ = data
    ids = windows["valid"].ids
    start = int(windows["valid"].starts[0])
    ids[start + L - SEASON] = np.nan
    forecast = seasonal_naive(windows["valid"].take(np.array([0])), C, SEASON)
    assert forecast[0, 0] == pytest.approx(ids[start + L - 1])


def test_the_scale_is_the_mean_seasonal_difference_of_training_alone(data):
    _, windows, _ = data
    before = seasonal_scale(windows["train"], C, SEASON)
    windows["train"].ids[180:] = 1e6  # the future
    assert seasonal_scale(windows["train"], C, SEASON) == pytest.approx(before)


def test_fans_cover_what_they_promise_and_use_no_future():
    random = np.random.default_rng(1)
    truths = random.normal(size=(900, H, 1))
    forecasts = np.zeros((900, H, 1, len(LEVELS)))
    split = [(forecasts[:400], truths[:400]), (forecasts[400:], truths[400:])]
    fan, _ = rolling_fan(*split)
    inside = (truths[400:] >= fan[..., 0]) & (truths[400:] <= fan[..., -1])
    assert inside.mean() == pytest.approx(0.8, abs=0.03)
    assert (np.diff(fan, axis=-1) >= 0).all()
    changed = truths.copy()
    changed[700:] = 50.0
    again, _ = rolling_fan(split[0], (forecasts[400:], changed[400:]))
    known = 700 - 400  # targets of window 700 - H + 1 and later reach into what was changed
    assert np.array_equal(again[: known - H], fan[: known - H])


def test_fans_adapt_when_errors_grow():
    random = np.random.default_rng(2)
    truths = random.normal(size=(2000, H, 1)) * np.where(np.arange(2000) < 800, 1, 4)[:, None, None]
    forecasts = np.zeros((2000, H, 1, len(LEVELS)))
    fan, _ = rolling_fan((forecasts[:500], truths[:500]), (forecasts[500:], truths[500:]))
    late = slice(1000, None)
    inside = (truths[500:][late] >= fan[late][..., 0]) & (truths[500:][late] <= fan[late][..., -1])
    assert inside.mean() == pytest.approx(0.8, abs=0.04)


def test_offsets_of_quantile_forecasts_correct_each_level():
    random = np.random.default_rng(3)
    truths = random.normal(size=(4000, 1, 1))
    forecasts = np.zeros((4000, 1, 1, len(LEVELS)))  # every level is 0, which is wrong
    corrected = offsets_of(truths[..., None] - forecasts)[:, 0, 0]
    assert corrected == pytest.approx(np.quantile(truths, LEVELS), abs=1e-6)


def test_blocks_are_as_long_as_the_horizon_and_stay_in_one_series(data):
    _, windows, _ = data
    blocks = blocks_of(windows["test"])
    assert len(set(np.bincount(blocks).tolist()) - {H}) <= 2  # those at the ends are shorter
    assert (np.diff(blocks) >= 0).all()


def test_results_are_stored_and_read_again(data, tmp_path):
    encoder, windows, _ = data
    result = measure_forecasts(
        model(), windows["test"], encoder, windows["train"], windows["valid"]
    )
    store_forecasts(tmp_path, result)
    again = load_forecasts(tmp_path, ("a", "b"))
    assert {k: v.value for k, v in again.metrics().items()} == {
        k: v.value for k, v in result.metrics().items()
    }
    gap = again.estimates["mse_standardized"].minus(result.estimates["mse_standardized"])
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)


def test_missing_targets_do_not_count(data):
    encoder, windows, _ = data
    windows["test"].ids[270:280, 1] = np.nan
    result = measure_forecasts(
        model(), windows["test"], encoder, windows["train"], windows["valid"]
    )
    assert torch.isfinite(torch.from_numpy(result.sums)).all()
    assert result.by_target[:, 1, 0].sum() < result.by_target[:, 0, 0].sum()
