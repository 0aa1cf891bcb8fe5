"""Linear forecasters, their loss and the normalization of windows, against numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.models.forecaster import DLinear, LinearForecastConfig, NLinear, WindowNorm

B, L, H, C = 3, 12, 4, 2
LEVELS = (0.1, 0.5, 0.9)


def past(seed=0, missing=False):
    values = torch.randn(B, L, C, generator=torch.Generator().manual_seed(seed)).cumsum(1) * 3 + 7
    if missing:
        values[0, :5, 1] = torch.nan
    return values


def model(cls=NLinear, **options):
    shape = {"max_len": L, "horizon": H, "n_channels": C, "kernel": 3}
    torch.manual_seed(0)
    made = cls(C, LinearForecastConfig(**shape | options))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def test_windows_are_normalized_by_what_was_observed_and_restored():
    values = past(missing=True)
    normalized, mean, deviation = WindowNorm()(values)
    seen = values[0, 5:, 1].numpy()
    assert float(mean[0, 0, 1]) == pytest.approx(seen.mean(), rel=1e-5)
    assert float(deviation[0, 0, 1]) == pytest.approx(seen.std(), rel=1e-4)
    assert (normalized[0, :5, 1] == 0).all() and torch.isfinite(normalized).all()
    back = WindowNorm.restore(normalized[..., None], mean, deviation)[..., 0]
    assert torch.allclose(back[~values.isnan()], values[~values.isnan()], atol=1e-4)


def test_a_shift_and_a_scale_of_the_past_shift_and_scale_the_forecast():
    forecaster, values = model(), past()
    one, two = forecaster.forecast(values), forecaster.forecast(values * 5 - 40)
    assert torch.allclose(two, one * 5 - 40, atol=1e-3)


def test_the_forecast_is_the_matrix_product():
    forecaster, values = model(), past()
    window = values[1, :, 0].double().numpy()
    mean, deviation = window.mean(), np.sqrt(window.var() + 1e-5)
    weight, bias = (x.detach().double().numpy() for x in forecaster.map.parameters())
    expected = (weight @ ((window - mean) / deviation) + bias) * deviation + mean
    assert forecaster.forecast(values)[1, :, 0, 0].detach().numpy() == pytest.approx(
        expected, rel=1e-4
    )


def test_the_trend_is_a_moving_average_and_the_rest_what_it_leaves():
    forecaster, values = model(DLinear), past()
    window = values[2, :, 1].numpy()
    padded = np.concatenate([window[:1], window, window[-1:]])
    trend = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    layers = (forecaster.map, forecaster.rest)
    maps = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in layers]
    parts = (trend, window - trend)
    expected = sum(w @ part + b for (w, b), part in zip(maps, parts, strict=True))
    got = forecaster.forecast(values)[2, :, 1, 0].detach().numpy()
    assert got == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("cls", [NLinear, DLinear])
def test_channels_do_not_mix_and_missing_values_stay_finite(cls):
    forecaster, values = model(cls), past()
    changed = values.clone()
    changed[..., 1] = 99
    a, b = forecaster.forecast(values), forecaster.forecast(changed)
    assert torch.equal(a[:, :, 0], b[:, :, 0]) and not torch.equal(a[:, :, 1], b[:, :, 1])
    assert torch.isfinite(forecaster.forecast(past(missing=True))).all()


def test_the_loss_is_the_squared_error_of_the_observed_targets():
    forecaster = model()
    targets = torch.tensor([[[1.0, 2], [3, torch.nan], [5, 6], [7, 8]]])
    forecasts = torch.zeros(1, H, C, 1)
    expected = np.mean(np.square([1.0, 2, 3, 5, 6, 7, 8]))
    assert forecaster.losses(forecasts, targets).tolist() == pytest.approx([expected])


def test_the_pinball_loss_is_least_at_the_quantile():
    forecaster = model(quantiles=LEVELS)
    truths = torch.randn(1, 4000, 1, generator=torch.Generator().manual_seed(1))
    candidates = torch.linspace(-3, 3, 61)
    for i, level in enumerate(LEVELS):
        costs = []
        for value in candidates:
            forecasts = torch.zeros(1, 4000, 1, len(LEVELS))
            forecasts[..., i] = value
            costs.append(float(forecaster.losses(forecasts, truths)))
        best = float(candidates[int(np.argmin(costs))])
        assert best == pytest.approx(float(truths.quantile(level)), abs=0.11)


def test_quantiles_are_sorted_and_the_point_is_the_median():
    forecaster, values = model(quantiles=LEVELS), past()
    assert (forecaster.forecast(values).diff(dim=-1) < 0).any()
    sorted_ = forecaster.predict(values)
    assert (sorted_.diff(dim=-1) >= 0).all() and sorted_.shape == (B, H, C, 3)
    assert torch.equal(forecaster.point(sorted_), sorted_[..., 1])


@pytest.mark.parametrize("quantiles", [(0.5, 0.1), (0.0, 0.5), (0.5, 1.0), (0.5, 0.5)])
def test_quantiles_must_rise_between_0_and_1(quantiles):
    with pytest.raises(ValueError, match="quantiles must rise"):
        LinearForecastConfig(quantiles=quantiles)


def test_a_linear_forecaster_learns_a_wave():
    """One period ahead of a noiseless sine is a linear function of the past."""
    steps = torch.arange(400.0)
    wave = torch.sin(2 * torch.pi * steps / 8)[:, None]
    windows = wave.unfold(0, L + H, 1).mT  # (N, L + H, 1)
    forecaster = NLinear(1, LinearForecastConfig(max_len=L, horizon=H, dropout=0.0))
    optimizer = torch.optim.Adam(forecaster.parameters(), lr=0.05)
    for _ in range(200):
        loss = forecaster.losses(forecaster.forecast(windows[:, :L]), windows[:, L:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 1e-3
