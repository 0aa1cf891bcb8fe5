"""Features of series against direct computation, and the fit in the space of the rows."""

import dataclasses

import numpy as np
import torch
from series_items import alone

from regard.models.linear import Regression
from regard.models.series_features import (
    KERNELS,
    LAGS,
    QUANTILES,
    Rocket,
    RocketConfig,
    SeriesLinearConfig,
    SeriesLogistic,
    autocorrelations,
    band_powers,
    describe,
    quantiles,
)
from regard.models.supervised import EXACT
from regard.tokenizers.step_patches import StepPatches


def padded_values(lengths, columns=2):
    random = np.random.default_rng(4)
    values = torch.zeros(len(lengths), max(lengths) + 3, columns, dtype=torch.float64)
    exists = torch.zeros(len(lengths), max(lengths) + 3, 1, dtype=torch.bool)
    for row, length in enumerate(lengths):
        values[row, :length] = torch.from_numpy(random.normal(size=(length, columns)))
        exists[row, :length] = True
    return values, exists


def test_statistics_are_those_of_numpy_on_the_steps_that_exist():
    lengths = [5, 17, 80]
    values, exists = padded_values(lengths)
    moments, levels = describe(values, exists).numpy(), quantiles(values, exists).numpy()
    curves = autocorrelations(values, exists).numpy()
    for row, length in enumerate(lengths):
        x = values[row, :length, 1].numpy()
        unit = (x - x.mean()) / x.std()
        crossings = ((x[1:] - x.mean()) * (x[:-1] - x.mean()) < 0).mean()
        expected = [x.mean(), x.std(), (unit**3).mean(), (unit**4).mean(), x[0], x[-1]]
        np.testing.assert_allclose(moments[row, 1, :6], expected, rtol=1e-8)
        np.testing.assert_allclose(moments[row, 1, 7], np.abs(np.diff(x)).mean(), rtol=1e-8)
        np.testing.assert_allclose(moments[row, 1, 9], crossings)
        ranks = np.round((length - 1) * np.float32(QUANTILES)).astype(int)
        np.testing.assert_allclose(levels[row, 1], np.sort(x)[ranks])
        for i, lag in enumerate(LAGS):
            direct = unit[lag:] @ unit[: max(0, length - lag)] / length if lag < length else 0
            np.testing.assert_allclose(curves[row, 1, i], direct, atol=1e-9)


def test_a_series_of_one_step_has_statistics():
    values, exists = padded_values([1])
    parts = describe(values[:, :1], exists[:, :1]), quantiles(values[:, :1], exists[:, :1])
    assert all(part.isfinite().all() for part in parts)


def test_the_band_of_a_wave_has_the_most_power():
    steps = torch.arange(128, dtype=torch.float64)
    rates = (0.02, 0.1, 0.4)
    waves = torch.stack([torch.sin(2 * torch.pi * rate * steps) for rate in rates])[..., None]
    powers = band_powers(waves, torch.ones_like(waves, dtype=torch.bool), 128)[:, 0]
    best = powers.argmax(1)
    assert best[0] < best[1] < best[2]


def test_shares_above_thresholds_are_those_of_direct_convolutions():
    items = [np.random.default_rng(n).normal(size=(25 + n, 2)) for n in range(6)]
    tokenizer = StepPatches.train(items, patch=4)
    config = dataclasses.replace(RocketConfig(), n_features=336, **tokenizer.model_config)
    model = Rocket(tokenizer.vocab_size, config)
    random = torch.Generator().manual_seed(0)
    model.thresholds = torch.randn(model.thresholds.shape, generator=random)
    features = model.features(alone(tokenizer, items[3]))[0]
    features = features.view(len(config.dilations), config.n_thresholds, len(KERNELS))
    values = (items[3] - tokenizer.mean) / tokenizer.deviation
    values = (values - values.mean(0)).astype(np.float64)
    number, kernel, level = len(config.dilations) - 1, 31, 0
    weights = np.full(9, -1.0)
    weights[list(KERNELS[kernel])] = 2
    signal = values @ model.channels[number, kernel].numpy()
    dilation = config.dilations[number]
    outputs = []
    for t in range(len(signal)):
        places = t + dilation * np.arange(-4, 5)
        inside = (places >= 0) & (places < len(signal))
        outputs.append(weights[inside] @ signal[places[inside]])
    expected = np.mean(np.array(outputs) > float(model.thresholds[number, kernel, level]))
    np.testing.assert_allclose(float(features[number, level, kernel]), expected, rtol=1e-6)


def test_fitting_in_the_space_of_the_rows_gives_the_same_predictions():
    torch.manual_seed(0)
    config = dataclasses.replace(SeriesLinearConfig(), n_outputs=3, strength=2.0)
    model = SeriesLogistic(9, config)
    x, targets = torch.randn(12, 40), torch.arange(12) % 3
    fast = model.fit_rows(x, targets, config, EXACT)
    slow = Regression.fit_rows(model, x, targets, config, EXACT)
    new = torch.randn(5, 40)
    one, two = (model.predict_rows(new, part, config) for part in (fast, slow))
    torch.testing.assert_close(one.softmax(1), two.softmax(1), atol=2e-3, rtol=0)
