"""Classical forecasters against formulas by hand, numpy, scikit-learn and statsmodels."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.data.windows import Windows
from regard.errors import UserError
from regard.models import classical_forecasters
from regard.models.classical_forecasters import (
    Boosting,
    BoostingConfig,
    Drift,
    ExponentialSmoothing,
    Naive,
    RidgeConfig,
    RidgeLags,
    SeasonalNaive,
    SmoothingConfig,
    empirical_quantiles,
    initial_state,
    read_examples,
)
from regard.models.forecaster import ForecastConfig, WindowNorm
from regard.models.supervised import Budget

NAN = float("nan")
L, H, C, K = 12, 5, 2, 3
FAMILIES = [Naive, SeasonalNaive, Drift, ExponentialSmoothing, RidgeLags, Boosting]
SMALL = {Boosting: {"n_trees": 4, "lags": 7, "rows": 1500}}


def make_windows(values, starts, lookback=L, horizon=H, series=None):
    count, length = len(starts), lookback + horizon
    return Windows(
        path=Path("memory"),
        kind="records",
        ids=np.asarray(values, np.float32),
        offsets=np.arange(count + 1) * length,
        vocab_size=0,
        records=count,
        tokens=count * length,
        symbols=count * horizon,
        bytes=0,
        starts=np.asarray(starts, np.int64),
        lookback=lookback,
        horizon=horizon,
        series=np.zeros(count, np.int64) if series is None else series,
    )


def series_of(steps, *, known=0, seed=0, missing=0.0):
    """A season of 4 steps, a trend and noise in C channels; covariates that the first reads."""
    draw = np.random.default_rng(seed)
    t = np.arange(steps)[:, None]
    values = np.sin(t * np.pi / 2 + [0, 1]) + 0.01 * t + 0.2 * draw.normal(size=(steps, C))
    covariates = draw.normal(size=(steps, known))
    values += 0.3 * covariates.sum(1, keepdims=True)
    values[draw.random(values.shape) < missing] = NAN
    return np.concatenate([values, covariates], 1).astype(np.float32)


def config_of(cls, **settings):
    chosen = {"max_len": L, "horizon": H, "n_channels": C, "season": 4, **SMALL.get(cls, {})}
    return cls.Config(**(chosen | settings))


def ignore(line):
    assert line


def fit(cls, shard, valid=None, **settings):
    model = cls(0, config_of(cls, **settings))
    model.fit(shard, valid, ignore)
    return model


@pytest.fixture(autouse=True)
def smoothing_without_statsmodels(monkeypatch):
    """Where statsmodels is missing, exponential smoothing has fixed parameters in these tests."""
    if not has_statsmodels():
        monkeypatch.setattr(classical_forecasters, "holt_winters", lambda: FixedSmoothing)


def has_statsmodels():
    from importlib.util import find_spec

    return find_spec("statsmodels") is not None


class FixedSmoothing:
    """A stand-in for statsmodels: parameters that depend on the series in a simple way."""

    def __init__(self, values, *, damped_trend, **_):
        self.values, self.damped = values, damped_trend

    def fit(self):
        share = float(np.abs(np.sin(self.values.sum())))
        self.params = {
            "smoothing_level": 0.2 + 0.5 * share,
            "smoothing_trend": 0.1 if self.damped else NAN,
            "smoothing_seasonal": 0.3,
            "damping_trend": 0.9 if self.damped else NAN,
        }
        self.aicc = float(self.values.mean()) * (1 if self.damped else -1)
        return self


def point(cls, past, season=0, horizon=3):
    """Forecasts of one window with one channel, as a list."""
    config = ForecastConfig(max_len=len(past), horizon=horizon, season=season)
    forecasts = cls(0, config).forecast(torch.tensor(past)[None, :, None])
    assert forecasts.shape == (1, horizon, 1, 1)
    return forecasts.flatten().tolist()


def test_naive_repeats_the_last_observed_value():
    assert point(Naive, [1.0, 7.0, 2.0]) == [2, 2, 2]
    assert point(Naive, [1.0, 7.0, NAN]) == [7, 7, 7]
    assert point(Naive, [NAN, NAN, NAN]) == [0, 0, 0]


def test_seasonal_naive_repeats_the_last_observed_season():
    past = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert point(SeasonalNaive, past, 3, horizon=5) == [5, 6, 7, 5, 6]
    past[4] = NAN  # the phase of the first step: one season earlier
    assert point(SeasonalNaive, past, 3, horizon=5) == [2, 6, 7, 2, 6]
    past[1] = NAN  # no value at this phase at all: the last one
    assert point(SeasonalNaive, past, 3, horizon=5) == [7, 6, 7, 7, 6]


def test_seasonal_naive_without_a_season_is_naive():
    assert point(SeasonalNaive, [1.0, 7.0, 2.0], 0) == [2, 2, 2]
    assert point(SeasonalNaive, [1.0, 7.0, 2.0], 99) == [2, 2, 2]


def test_seasonal_naive_takes_a_season_longer_than_the_look_back_where_it_can():
    assert point(SeasonalNaive, [1.0, 7.0, 2.0], 4, horizon=5) == [2, 1, 7, 2, 2]


def test_seasonal_naive_says_its_season():
    for season, text in ((4, "4 steps"), (0, "no season")):
        lines = []
        model = SeasonalNaive(0, config_of(SeasonalNaive, season=season))
        model.fit(make_windows(series_of(30), [0, 3]), None, lines.append)
        assert len(lines) == 1 and text in lines[0]


def test_drift_extends_the_line_from_the_first_to_the_last_value():
    assert point(Drift, [1.0, 9.0, 5.0]) == [7, 9, 11]
    assert point(Drift, [NAN, 1.0, 9.0, 5.0, NAN]) == [9, 11, 13]  # two steps after the last value
    assert point(Drift, [NAN, 4.0, NAN]) == [4, 4, 4]
    assert point(Drift, [NAN, NAN, NAN]) == [0, 0, 0]


def test_quantiles_of_errors_are_those_of_numpy():
    errors = np.random.default_rng(1).normal(size=(9, 4, 3))
    errors[2:5, 1, 2] = errors[:, 3, 0] = NAN
    errors[1:, 0, 0] = NAN  # one value
    levels = (0.1, 0.5, 0.93)
    found = empirical_quantiles(torch.tensor(errors), levels).numpy()
    for at in np.ndindex(4, 3):
        known = errors[:, *at][~np.isnan(errors[:, *at])]
        expected = np.quantile(known, levels) if len(known) else np.zeros(3)
        np.testing.assert_allclose(found[at], expected, atol=1e-12)


def test_quantile_forecasts_add_the_errors_of_training_windows():
    values, starts, levels = series_of(80), np.arange(0, 60, 2), (0.1, 0.5, 0.8)
    model = fit(Drift, make_windows(values, starts), quantiles=levels)
    errors = []
    for start in starts:
        past, ahead = values[start : start + L], values[start + L : start + L + H]
        slope = (past[-1] - past[0]) / (L - 1)
        errors.append(ahead - past[-1] - slope * np.arange(1, H + 1)[:, None])
    spread = np.moveaxis(np.quantile(np.stack(errors), levels, axis=0), 0, -1)  # (H, C, Q)
    np.testing.assert_allclose(model.spread, spread, atol=1e-5)
    past = torch.from_numpy(values[None, 3 : 3 + L])
    plain = Drift(0, config_of(Drift)).forecast(past)
    torch.testing.assert_close(model.forecast(past), plain + model.spread)


@pytest.mark.parametrize("most", [7, 2000])
def test_errors_are_those_of_evenly_spaced_windows(monkeypatch, most):
    monkeypatch.setattr(classical_forecasters, "SPREAD_WINDOWS", most)
    values, starts = series_of(80), np.arange(31)
    model = fit(Naive, make_windows(values, starts), quantiles=(0.3,))
    used = starts[::5] if most == 7 else starts
    errors = [values[s + L : s + L + H] - values[s + L - 1] for s in used]
    np.testing.assert_allclose(model.spread[..., 0], np.quantile(errors, 0.3, axis=0), atol=1e-5)


def smoothing(parameters, **settings):
    model = ExponentialSmoothing(0, SmoothingConfig(**settings))
    for name, value in parameters.items():
        setattr(model, name, torch.tensor(value, dtype=torch.float32))
    return model


@pytest.mark.parametrize("season", [0, 4])
@pytest.mark.parametrize("damped", [False, True])
def test_smoothing_is_that_of_statsmodels(season, damped):
    pytest.importorskip("statsmodels", reason="statsmodels is not installed")
    from statsmodels.tsa.holtwinters import ExponentialSmoothing as Reference

    past = series_of(L)
    alpha, beta = (0.4, 0.7), (0.3, 0.1) if damped else (0.0, 0.0)
    gamma, phi = (0.25, 0.3) if season else (0.0, 0.0), (0.9, 0.8) if damped else (0.0, 0.0)
    model = smoothing(
        {"alpha": alpha, "beta": beta, "gamma": gamma, "phi": phi},
        max_len=L, horizon=H, n_channels=C, season=season,
    )  # fmt: skip
    found = model.forecast(torch.from_numpy(past[None]))[0, :, :, 0]
    start = initial_state(torch.from_numpy(past[None]).double(), season, torch.tensor([damped] * C))
    for c in range(C):
        reference = Reference(
            past[:, c].astype(np.float64),
            trend="add" if damped else None,
            damped_trend=damped,
            seasonal="add" if season else None,
            seasonal_periods=season or None,
            initialization_method="known",
            initial_level=float(start.level[0, c]),
            initial_trend=float(start.slope[0, c]) if damped else None,
            initial_seasonal=start.season[0, :, c].numpy() if season else None,
        )
        chosen = {"smoothing_level": alpha[c]}
        chosen |= {"smoothing_trend": beta[c], "damping_trend": phi[c]} if damped else {}
        chosen |= {"smoothing_seasonal": gamma[c]} if season else {}
        result = reference.fit(**chosen, optimized=False)
        expected = result.forecast(H)
        if season:  # statsmodels forgets what the last value says of its season; the book does not
            expected[season - 1 :: season] += gamma[c] * result.resid[-1]
        np.testing.assert_allclose(found[:, c], expected, atol=1e-5)


@pytest.mark.parametrize("season", [0, 4])
def test_smoothing_is_its_textbook_recursion_and_skips_missing_values(season):
    """Hyndman & Athanasopoulos, section 8.3, one window and channel at a time, in plain Python."""
    a, b, g, phi = 0.4, 0.3, 0.25 if season else 0.0, 0.9
    past = series_of(L, seed=3)[:, :1]
    past[[5, 9, 11]] = NAN
    model = smoothing(
        {"alpha": [a], "beta": [b], "gamma": [g], "phi": [phi]},
        max_len=L, horizon=H, season=season,
    )  # fmt: skip
    start = initial_state(torch.from_numpy(past[None]), season, torch.tensor([True]))
    level, slope = float(start.level), float(start.slope)
    seasons = start.season.flatten().tolist()  # s of the last m steps, oldest first
    for y in past[:, 0].tolist():
        s, trend = seasons.pop(0), phi * slope
        if np.isnan(y):
            level, slope = level + trend, trend
            seasons.append(s)
            continue
        new = a * (y - s) + (1 - a) * (level + trend)
        seasons.append(g * (y - level - trend) + (1 - g) * s)
        level, slope = new, b * (new - level) + (1 - b) * trend
    expected = [
        level + sum(phi**i for i in range(1, h + 1)) * slope + seasons[(h - 1) % len(seasons)]
        for h in range(1, H + 1)
    ]
    found = model.forecast(torch.from_numpy(past[None])).flatten()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_smoothing_continues_a_line_with_a_season_exactly(alpha):
    steps = torch.arange(L + H)
    values = 2 + 0.5 * steps + torch.tensor([1.0, -2.0, 0.5, 0.5])[steps % 4]
    model = smoothing(
        {"alpha": [alpha], "beta": [0.3], "gamma": [0.2], "phi": [1.0]},
        max_len=L, horizon=H, season=4,
    )  # fmt: skip
    past = values[None, :L, None].clone()
    past[0, 10] = NAN  # after the two seasons that give the initial state
    torch.testing.assert_close(model.forecast(past).flatten(), values[L:])


def test_smoothing_uses_a_season_only_if_the_look_back_holds_two():
    for season, period in ((0, 0), (1, 0), (2, 2), (6, 6), (7, 0)):
        assert SmoothingConfig(max_len=12, season=season).period == period


@pytest.mark.parametrize("length", [1, 2, 3])
def test_smoothing_takes_short_look_backs(length):
    model = smoothing(
        {"alpha": [0.5], "beta": [0.3], "gamma": [0.0], "phi": [0.9]}, max_len=length, horizon=2
    )
    assert model.forecast(torch.ones(4, length, 1)).allclose(torch.ones(1))


def test_smoothing_without_statsmodels_names_the_command(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "statsmodels.tsa.holtwinters", None)
    monkeypatch.setattr(classical_forecasters, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install statsmodels"):
        fit(ExponentialSmoothing, make_windows(series_of(40), [0, 3]))
    assert ExponentialSmoothing.unsuitable(None) == "statsmodels is not installed"


def test_smoothing_has_parameters_for_each_channel_and_finds_a_noisy_level():
    pytest.importorskip("statsmodels", reason="statsmodels is not installed")
    draw = np.random.default_rng(0)
    walk, noise = draw.normal(size=400).cumsum(), draw.normal(size=400)
    values = np.stack([walk, noise], 1)
    values[50:55, 0] = NAN
    model = fit(ExponentialSmoothing, make_windows(values, np.arange(380)), season=0)
    assert model.alpha[0] > 0.8 and model.alpha[1] < 0.2
    assert (model.gamma == 0).all()


def test_smoothing_leaves_channels_out_if_time_is_short():
    values = np.stack([series_of(60, seed=s)[:, 0] for s in range(3)], 1)
    model, lines = ExponentialSmoothing(0, config_of(ExponentialSmoothing, n_channels=3)), []
    budget = Budget(lines.append, -1.0)
    model.fit(make_windows(values, np.arange(40)), None, lines.append, budget)
    assert budget.reductions == ["2 of 3 channels take the median parameters of the others"]
    assert (model.alpha == model.alpha[0]).all()


def test_smoothing_takes_series_that_are_constant_or_nearly_empty():
    values = np.stack([np.ones(60), np.where(np.arange(60) % 20, NAN, 3.0)], 1)
    model = fit(ExponentialSmoothing, make_windows(values, np.arange(40)))
    forecasts = model.forecast(torch.from_numpy(values[None, :L]).float())[0, :, :, 0]
    torch.testing.assert_close(forecasts[:, 0], torch.ones(H))
    assert forecasts.isfinite().all()


def normalized(values):
    """The mean and deviation of a column (T,) by hand."""
    mean = np.nanmean(values)
    deviation = np.sqrt(np.nanmean((values - mean) ** 2) + 1e-5)
    return np.nan_to_num((values - mean) / deviation), mean, deviation


def design(values, starts, step, known):
    """Rows and targets of one horizon step, in units of the series."""
    rows, targets = [], []
    for start in starts:
        for c in range(C):
            x, mean, deviation = normalized(values[start : start + L, c].astype(np.float64))
            z = values[start + L + step, C : C + known]
            rows.append(deviation * np.concatenate([x, [1.0], z]))
            targets.append(values[start + L + step, c] - mean)
    weight = sum(row[L] ** 2 for row in rows)
    return np.stack(rows), np.array(targets), weight


@pytest.mark.parametrize("known", [0, K])
@pytest.mark.parametrize("chunk", [40, 1 << 22])
def test_ridge_is_the_closed_form(monkeypatch, known, chunk):
    monkeypatch.setattr(classical_forecasters, "CHUNK", chunk)  # sums over chunks are the same
    values, starts, l2 = series_of(70, known=known), np.arange(0, 50), 0.03
    values[4, 0] = values[9, 1] = NAN  # before every target
    model = fit(RidgeLags, make_windows(values, starts), n_known=known, l2=l2)
    past, ahead = values[20 : 20 + L], values[20 + L : 20 + L + H]
    future = torch.from_numpy(ahead[None, :, C:]) if known else None
    forecasts = model.forecast(torch.from_numpy(past[None]), future)[0, :, :, 0]
    for step in range(H):
        rows, targets, weight = design(values, starts, step, known)
        penalty = l2 * weight * np.eye(L + 1 + known)
        penalty[L, L] = 0.0
        wanted = np.linalg.solve(rows.T @ rows + penalty, rows.T @ targets)
        np.testing.assert_allclose(model.weights[step], wanted, atol=1e-5)
        for c in range(C):
            x, mean, deviation = normalized(past[:, c].astype(np.float64))
            found = wanted @ np.concatenate([x, [1.0], ahead[step, C:]]) * deviation + mean
            np.testing.assert_allclose(forecasts[step, c], found, atol=1e-4)


def test_ridge_without_penalty_is_least_squares():
    values, starts = series_of(90, seed=5), np.arange(0, 70)
    model = fit(RidgeLags, make_windows(values, starts), l2=1e-9)
    for step in (0, H - 1):
        rows, targets, _ = design(values, starts, step, 0)
        found = rows @ model.weights[step].double().numpy()
        wanted = rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
        np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_ridge_leaves_rows_with_missing_targets_out(monkeypatch):
    """With as many groups as steps, the sums of a step hold all rows that have its target."""
    monkeypatch.setattr(classical_forecasters, "GROUPS", H)
    values, starts, l2 = series_of(70, missing=0.1, seed=2), np.arange(0, 50), 0.05
    model = fit(RidgeLags, make_windows(values, starts), l2=l2)
    for step in range(H):
        rows, targets, _ = design(values, starts, step, 0)
        seen = ~np.isnan(targets)
        rows, targets = rows[seen], targets[seen]
        penalty = l2 * (rows[:, L] ** 2).sum() * np.eye(L + 1)
        penalty[L, L] = 0.0
        wanted = np.linalg.solve(rows.T @ rows + penalty, rows.T @ targets)
        np.testing.assert_allclose(model.weights[step], wanted, atol=1e-5)


def test_ridge_forecasts_the_mean_of_the_window_where_nothing_can_be_learnt():
    values = series_of(60)
    values[L:] = NAN
    model = fit(RidgeLags, make_windows(values, np.arange(3)))
    past = torch.from_numpy(values[None, :L])
    wanted = past.mean(1, keepdim=True)[..., None].expand(-1, H, -1, 1)
    torch.testing.assert_close(model.forecast(past), wanted)


@pytest.mark.parametrize("separate", [True, False])
def test_ridge_chooses_the_penalty_with_the_least_error_in_held_out_windows(separate):
    values, lines = series_of(300, seed=4), []
    train, valid = make_windows(values, np.arange(60)), make_windows(values, np.arange(120, 200))
    model = RidgeLags(0, config_of(RidgeLags))
    model.fit(train, valid if separate else None, lines.append)
    # without validation windows, the last tenth of 60; the targets of those before end at theirs
    learn, check = train, valid
    if not separate:
        learn, check = train.take(np.arange(54 - H + 1)), train.take(np.arange(54, 60))
    past, _, targets = read_examples(check, model.config)
    losses = {}
    for l2 in classical_forecasters.PENALTIES:
        tried = fit(RidgeLags, learn, l2=l2)
        losses[l2] = float((tried.forecast(past)[..., 0] - targets).square().mean())
    assert model.config.l2 == min(losses, key=losses.get)
    assert len(lines) == 1 and f"l2 {model.config.l2:g}" in lines[0]
    again = fit(RidgeLags, train, l2=model.config.l2)  # all training windows are used in the end
    torch.testing.assert_close(model.weights, again.weights)


def test_ridge_sums_fewer_windows_if_time_is_short():
    train, lines = make_windows(series_of(3000), np.arange(2900)), []
    model, budget = RidgeLags(0, config_of(RidgeLags, l2=0.1)), Budget(lines.append, 1e-6)
    model.fit(train, None, lines.append, budget)
    assert budget.reductions == ["ridge regression sums 1 of 2,900 windows"]


def boosting(known=0, missing=0.0, **settings):
    values = series_of(160, known=known, missing=missing, seed=6)
    model = Boosting(0, config_of(Boosting, n_known=known, **settings))
    return model, make_windows(values, np.arange(130))


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("level", [None, 0.2])
def test_trees_predict_as_scikit_learn_does(missing, level):
    model, shard = boosting(K, missing, n_trees=30)
    rows = model.sample_rows(shard)
    ensemble = model.grow(rows, level, 1e9, Budget(ignore))
    model.store([ensemble])
    x = np.random.default_rng(0).normal(size=(500, rows.features.shape[1])).astype(np.float32)
    x[np.random.default_rng(1).random(x.shape) < 0.1] = NAN
    x = np.concatenate([x, rows.features.astype(np.float32)])
    found = model.evaluate(torch.from_numpy(x))[:, 0]
    np.testing.assert_allclose(found, ensemble.predict(x), atol=1e-6)
    assert model.buffer_error() == ""


def test_trees_that_split_missing_from_observed_values_predict_as_scikit_learn_does():
    """The threshold of such a split is infinite, which a stored tensor may not be."""
    model = Boosting(0, config_of(Boosting, n_trees=3))
    x = np.zeros((200, model.config.n_features))
    x[::2, 1] = NAN
    rows = classical_forecasters.BoostingRows(x, np.isnan(x[:, 1]) * 5.0, np.ones(200))
    ensemble = model.grow(rows, None, 1e9, Budget(ignore))
    model.store([ensemble])
    assert np.isinf(ensemble._predictors[0][0].nodes["num_threshold"]).any()
    assert all(b.isfinite().all() for b in model.buffers())
    found = model.evaluate(torch.from_numpy(x).float())[:, 0]
    np.testing.assert_allclose(found, ensemble.predict(x), atol=1e-6)


def test_boosting_forecasts_are_scikit_learns_on_features_by_hand():
    model, shard = boosting(K, missing=0.1, quantiles=(0.3, 0.6))
    model.fit(shard, None, ignore)
    rows = model.sample_rows(shard)
    ensembles = [model.grow(rows, level, 1e9, Budget(ignore)) for level in (0.3, 0.6)]
    window = shard.record(17)
    past, ahead = torch.from_numpy(window[None, :L]), window[L:]
    forecasts = model.forecast(past, torch.from_numpy(ahead[None, :, C:]))
    assert forecasts.shape == (1, H, C, 2)
    values, mean, deviation = WindowNorm()(past[..., :C])
    values = np.where(np.isnan(window[:L, :C]), NAN, values[0])
    for h, c in np.ndindex(H, C):
        back = h if h < 4 else h - 4  # the last step at the phase of h, a season being 4 steps
        x = [*values[-7:, c], values[L + back - 4, c], values[L + back - 8, c], h, c, *ahead[h, C:]]
        for q, ensemble in enumerate(ensembles):
            wanted = ensemble.predict(np.array([x]))[0] * deviation[0, 0, c] + mean[0, 0, c]
            np.testing.assert_allclose(forecasts[0, h, c, q], wanted, atol=1e-5)


def test_boosting_learns_from_all_rows_with_a_target_once_if_they_are_few():
    model, shard = boosting(missing=0.1, rows=1 << 20)
    rows = model.sample_rows(shard)
    examples = read_examples(shard, model.config)
    _, mean, deviation = WindowNorm()(examples.past)
    targets = ((examples.targets - mean) / deviation).flatten()
    wanted = targets[~targets.isnan()]
    np.testing.assert_allclose(np.sort(rows.targets), wanted.sort().values, atol=1e-6)
    assert rows.features.shape == (len(wanted), model.config.n_features)


def test_boosting_samples_the_same_rows_in_chunks(monkeypatch):
    model, shard = boosting(K, missing=0.1, rows=99)
    whole = model.sample_rows(shard)
    monkeypatch.setattr(classical_forecasters, "CHUNK", 1)
    for part, other in zip(whole, model.sample_rows(shard), strict=True):
        np.testing.assert_array_equal(part, other)
    assert len(whole.targets) <= 99


def test_boosting_beats_the_mean_of_the_window():
    model, shard = boosting(n_trees=40)
    model.fit(shard, None, ignore)
    past, _, targets = read_examples(shard, model.config)
    error = (model.forecast(past)[..., 0] - targets).square().mean()
    assert error < 0.3 * (past.mean(1, keepdim=True) - targets).square().mean()


def test_boosting_grows_fewer_trees_if_time_is_short():
    model, shard = boosting(n_trees=20)
    budget = Budget(ignore, 1e-6)
    model.fit(shard, None, ignore, budget)
    assert budget.reductions == ["10 of 20 trees are grown"] and len(model.roots) == 10


def test_boosting_continues_the_timed_trees_as_if_grown_at_once():
    model, shard = boosting(n_trees=20)
    model.fit(shard, None, ignore)
    other = Boosting(0, model.config)
    other.fit(shard, None, ignore, Budget(ignore, 1e6))
    torch.testing.assert_close(other.value, model.value)


def test_boosting_rejects_files_whose_trees_leave_their_arrays():
    model, shard = boosting()
    model.fit(shard, None, ignore)
    for name, value in (("child", 1 << 20), ("feature", -1), ("roots", 1 << 20), ("outputs", 1)):
        state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        state[name][0] = value
        with pytest.raises(RuntimeError, match="does not exist"):
            Boosting(0, model.config).load_state_dict(state)


@pytest.mark.parametrize("quantiles", [(), (0.1, 0.5, 0.9)])
@pytest.mark.parametrize("known", [0, K])
@pytest.mark.parametrize("cls", FAMILIES)
def test_models_forecast_the_same_after_they_are_stored(tmp_path, cls, known, quantiles):
    values = series_of(90, known=known, missing=0.1)
    shard = make_windows(values, np.arange(60))
    model = fit(cls, shard, n_known=known, quantiles=quantiles)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in state.values())
    other = cls(0, model.config)
    assert cls.sized_by_config is (cls is not Boosting)
    if cls.sized_by_config:
        assert {k: t.shape for k, t in other.state_dict().items()} == {
            k: t.shape for k, t in state.items()
        }
    other.load_state_dict(state)
    past, future, _ = read_examples(shard, model.config)
    past[3], past[4, :, 0] = NAN, NAN
    forecasts = model.forecast(past, future)
    assert forecasts.shape == (60, H, C, max(1, len(quantiles)))
    assert forecasts.dtype == torch.float32 and forecasts.isfinite().all()
    torch.testing.assert_close(other.forecast(past, future), forecasts, rtol=0, atol=0)
    torch.testing.assert_close(  # windows do not depend on their batch
        model.forecast(past[7:8], None if future is None else future[7:8]), forecasts[7:8]
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("cls", FAMILIES)
def test_forecasts_on_a_gpu_are_those_on_the_cpu(cls):
    shard = make_windows(series_of(90, known=K, missing=0.1), np.arange(60))
    model = fit(cls, shard, n_known=K, quantiles=(0.1, 0.5, 0.9))
    past, future, _ = read_examples(shard, model.config)
    expected = model.forecast(past, future)
    found = model.cuda().forecast(past.cuda(), future.cuda())
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cls", FAMILIES)
def test_nothing_outside_training_windows_is_read(cls):
    """Training windows of two series with a gap; NaN or huge values everywhere else."""
    values = series_of(200, known=K)
    starts = np.concatenate([np.arange(10, 40), np.arange(60, 70), np.arange(120, 150)])
    series = np.repeat([0, 0, 1], [30, 10, 30])
    shown = np.zeros(200, bool)
    for start in starts:
        shown[start : start + L + H] = True
    states = []
    for poison in (None, NAN, 1e9):
        data = values.copy()
        if poison is not None:
            data[~shown] = poison
        shard = make_windows(data, starts, series=series)
        states.append(fit(cls, shard, n_known=K, quantiles=(0.2, 0.7)).state_dict())
    for state in states[1:]:
        for name, tensor in states[0].items():
            torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("cls", FAMILIES)
def test_validation_windows_choose_the_penalty_and_nothing_else(cls):
    values = series_of(200)
    train, settings = make_windows(values, np.arange(60)), {"quantiles": (0.2, 0.7)}
    model = fit(cls, train, make_windows(values, np.arange(100, 150)), **settings)
    chosen = {"l2": model.config.l2} if cls is RidgeLags else {}
    other = fit(
        cls, train, make_windows(9 - values[::-1], np.arange(100, 150)), **settings, **chosen
    )
    assert replace(other.config, **chosen) == model.config
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("cls", FAMILIES)
def test_presets_are_configs_and_the_loop_fits_at_once(cls):
    for make in cls.PRESETS.values():
        assert type(make(2, 64)) is cls.Config
    assert cls.fits_at_once() and list(cls.PRESETS) == ["standard"]


@pytest.mark.parametrize(
    ("cls", "settings", "text"),
    [
        (SmoothingConfig, {"trend": "steep"}, "trend"),
        (RidgeConfig, {"l2": -1.0}, "l2"),
        (BoostingConfig, {"learning_rate": 0.0}, "learning_rate"),
        (BoostingConfig, {"max_leaves": 1}, "max_leaves"),
    ],
)
def test_settings_out_of_range_are_named(cls, settings, text):
    with pytest.raises(ValueError, match=text):
        cls(**settings)
