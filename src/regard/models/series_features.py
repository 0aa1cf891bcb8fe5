"""Linear models of features of series: statistics, random convolutions, and windows of steps.

`logistic` reads statistics of each column: mean, deviation, extremes, quartiles, the slope and the
sizes of changes, how often the mean is crossed, autocorrelations, and the power in bands of
frequency. `rocket` reads the share of steps at which each of thousands of fixed convolutions is
above a threshold, which is a quantile of training (MiniRocket: Dempster et al. 2021,
arXiv:2012.08791, after ROCKET: Dempster et al. 2020, arXiv:1910.13051). The filters have nine
weights, six of -1 and three of 2, at dilations up to the length of the series. Where we differ: a
series begins and ends with zeros around its mean, of several columns each filter reads the sum of
a random choice, and the classifier is logistic or ridge regression.

Logistic and ridge regression with a penalty on the squares of coefficients need only the row space
of the features: with more features than rows, the fit is of as many coordinates as rows.

For a label at each step, `logistic` reads the values around it and their means and deviations over
wider windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.embeddings import Inputs
from regard.layers.series import StepValues, fill_linearly, read_steps
from regard.layers.tap import Tap
from regard.models import Presets, check_ranges
from regard.models.linear import Regression
from regard.models.series_classifiers import SeriesSettings
from regard.models.supervised import Budget, Effort, FitData, SampledConfig, read_batches

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of autocorrelations
BANDS = 16  # of frequencies, from one cycle in the longest series to one in two steps
FREQUENCIES = 256  # at which the power is measured, at most
MOMENTS = 11  # other statistics of a column: those of `describe`, and the share missing
LEAST_POWER = 1e-6  # of a band, whose logarithm is a feature


@dataclass(frozen=True, kw_only=True)
class SeriesLinearConfig(SeriesSettings, SampledConfig):
    """What is known of series, and the penalty on coefficients."""

    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        SeriesSettings.__post_init__(self)
        SampledConfig.__post_init__(self)


class StandardizedRegression(Regression):
    """Regression on features in units of their deviation in training."""

    penalties: ClassVar[tuple[float, ...]] = (1.0, 0.1, 10.0, 100.0, 1000.0)
    reads = "series"
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: SeriesLinearConfig, n_features: int) -> None:
        super().__init__(vocab_size, config, n_features)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("deviation", torch.ones(n_features))

    def steps(self, source: Inputs) -> StepValues:
        return read_steps(source, self.config.patch, self.config.n_channels)

    def fit_scale(self, rows: Tensor) -> None:
        self.mean, deviation = rows.mean(0), rows.std(0, correction=0)
        self.deviation = torch.where(deviation > 1e-6, deviation, 1.0)

    def scale(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation

    def fit_rows(
        self, x: Tensor, targets: Tensor, config: SeriesLinearConfig, effort: Effort
    ) -> Sequence[Tensor]:
        if x.size(0) >= x.size(1):
            return super().fit_rows(x, targets, config, effort)
        basis = torch.linalg.qr(x.T.double())[0]  # (F, R)
        weights, bias = super().fit_rows((x.double() @ basis).float(), targets, config, effort)
        return (basis @ weights.double()).float(), bias


class SeriesLogistic(StandardizedRegression):
    """Regression on statistics of series."""

    Config = SeriesLinearConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: SeriesLinearConfig()}
    feature_name = "statistics"

    def __init__(self, vocab_size: int, config: SeriesLinearConfig) -> None:
        each = MOMENTS + len(QUANTILES) + len(LAGS) + BANDS
        super().__init__(vocab_size, config, config.n_channels * each + 1)

    def features(self, source: Inputs) -> Tensor:
        steps = self.steps(source)
        values = fill_linearly(steps).double()  # (B, T, C)
        exists = steps.exists[..., None]
        parts = [
            describe(values, exists),
            quantiles(values, exists),
            autocorrelations(values, exists),
            band_powers(values, exists, self.config.longest),
            (~steps.known & exists).sum(1) / exists.sum(1).clamp_min(1),
        ]
        features = torch.cat([part.flatten(1) for part in parts], 1)
        length = steps.lengths[:, None].clamp_min(1).double().log()
        return torch.cat((features, length), 1).float()


def masked_mean(values: Tensor, exists: Tensor) -> Tensor:
    """Return the mean (B, C) over the steps (B, T, C) that exist."""
    return (values * exists).sum(1) / exists.sum(1).clamp_min(1)


def describe(values: Tensor, exists: Tensor) -> Tensor:
    """Return statistics (B, C, 10): mean, deviation, skewness, kurtosis, first and last value,
    slope, size of a change, of a change of the change, and share of crossings of the mean.
    """
    mean = masked_mean(values, exists)
    centered = (values - mean[:, None]) * exists
    deviation = masked_mean(centered.square(), exists).sqrt()
    unit = centered / deviation.clamp_min(1e-9)[:, None]
    index = torch.arange(values.size(1), device=values.device)[:, None].to(values.dtype)
    length = exists.sum(1).clamp_min(1)
    time = (index / length[:, None] - 0.5) * exists
    pairs = exists[:, 1:] & exists[:, :-1]
    change = values.diff(dim=1) * pairs
    second = change.diff(dim=1) * pairs[:, 1:]
    crossings = (centered[:, 1:] * centered[:, :-1] < 0) & pairs
    last = values.gather(1, (length - 1)[..., None].expand(-1, 1, values.size(2)))[:, 0]
    return torch.stack(
        (
            mean,
            deviation,
            masked_mean(unit.pow(3), exists),
            masked_mean(unit.pow(4), exists),
            values[:, 0],
            last,
            masked_mean(centered * time, exists),
            masked_mean(change.abs(), pairs),
            masked_mean(second.abs(), pairs[:, 1:]),
            masked_mean(crossings.to(values.dtype), pairs),
        ),
        -1,
    )


def quantiles(values: Tensor, exists: Tensor) -> Tensor:
    """Return the quantiles (B, C, Q) of the steps that exist, the nearest of them."""
    ordered = values.masked_fill(~exists, torch.inf).sort(1).values
    last = (exists.sum(1) - 1).clamp_min(0)  # (B, 1)
    levels = torch.tensor(QUANTILES, device=values.device)
    rank = (last * levels).round().long()  # (B, Q)
    picked = ordered.gather(1, rank[..., None].expand(-1, -1, values.size(2)))
    return picked.nan_to_num(0.0, 0.0, 0.0).mT


def autocorrelations(values: Tensor, exists: Tensor) -> Tensor:
    """Return the autocorrelations (B, C, L); 0 at lags that a series does not have."""
    centered = (values - masked_mean(values, exists)[:, None]) * exists
    power = centered.square().sum(1).clamp_min(1e-9)
    curves = []
    for lag in LAGS:
        if lag < values.size(1):
            curves.append((centered[:, lag:] * centered[:, :-lag]).sum(1) / power)
        else:
            curves.append(torch.zeros_like(power))
    return torch.stack(curves, -1)


def band_powers(values: Tensor, exists: Tensor, longest: int) -> Tensor:
    """Return the logarithms (B, C, BANDS) of the largest power in each band of frequencies."""
    centered = (values - masked_mean(values, exists)[:, None]) * exists  # (B, T, C)
    count = max(BANDS, min(FREQUENCIES, longest))
    frequency = torch.arange(1, count + 1, device=values.device).to(values.dtype) / (2 * count)
    index = torch.arange(values.size(1), device=values.device).to(values.dtype)
    angles = 2 * math.pi * frequency[:, None] * index  # (F, T)
    real, imaginary = angles.cos() @ centered, angles.sin() @ centered  # (B, F, C)
    length = exists.sum(1).clamp_min(1)
    power = (real.square() + imaginary.square()) / length[:, None].square()
    edges = np.unique(np.round(np.geomspace(1, count + 1, BANDS + 1)).astype(int))
    bands = [power[:, a - 1 : b - 1].amax(1) for a, b in pairwise(edges)]
    bands += [torch.zeros_like(bands[0])] * (BANDS - len(bands))
    return (torch.stack(bands, -1) + LEAST_POWER).log()


KERNELS = tuple(combinations(range(9), 3))  # the places of the weights of 2: 84 filters
WEIGHTS = 9  # of a filter
MOST_DILATIONS = 16
CALIBRATED = 512  # training series whose convolutions give the thresholds
MARGIN = 1e-7  # above a threshold, for flat parts of a series, whose convolutions are about 0
CALIBRATED_STEPS = 1 << 14  # of a batch of them
GOLDEN_RATIO = (math.sqrt(5) + 1) / 2
READ = 1 << 22  # numbers of convolutions in memory at once


@dataclass(frozen=True, kw_only=True)
class RocketConfig(SeriesLinearConfig):
    """How many features, and which columns a filter reads."""

    n_features: int = 5040  # about: a multiple of 84 filters
    seed: int = 0  # of the choice of columns

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, n_features=1 << 18)

    @property
    def dilations(self) -> list[int]:
        """Dilations from 1 to those at which a filter is as long as the longest series, evenly
        spaced in their logarithms.
        """
        per_filter = max(1, self.n_features // len(KERNELS))
        most = max(1, (self.longest - 1) // (WEIGHTS - 1))
        spaced = np.geomspace(1, most, min(per_filter, MOST_DILATIONS))
        return sorted(set(spaced.astype(int).tolist()))

    @property
    def n_thresholds(self) -> int:
        """Thresholds of each filter at each dilation."""
        return max(1, self.n_features // (len(KERNELS) * len(self.dilations)))


class Rocket(StandardizedRegression):
    """Regression on the shares of steps at which random convolutions exceed thresholds."""

    Config = RocketConfig
    PRESETS: ClassVar[Presets] = {"mini": lambda n_layers, d_model: RocketConfig()}
    feature_name = "convolution features"
    thresholds: Tensor
    filters: Tensor
    channels: Tensor

    def __init__(self, vocab_size: int, config: RocketConfig) -> None:
        shape = len(config.dilations), len(KERNELS), config.n_thresholds
        super().__init__(vocab_size, config, math.prod(shape))
        self.register_buffer("thresholds", torch.zeros(shape))
        filters = torch.full((len(KERNELS), WEIGHTS), -1.0)
        for row, places in enumerate(KERNELS):
            filters[row, list(places)] = 2.0
        self.register_buffer("filters", filters, persistent=False)
        random = torch.Generator().manual_seed(config.seed)
        shape = len(config.dilations), len(KERNELS), config.n_channels
        chosen = torch.rand(shape, generator=random) < 0.5
        forced = torch.randint(config.n_channels, shape[:2], generator=random)[..., None]
        chosen.scatter_(2, forced, torch.ones_like(forced, dtype=torch.bool))
        self.register_buffer("channels", chosen.float(), persistent=False)

    def convolve(self, values: Tensor, number: int) -> Tensor:
        """Return the convolutions (B, 84, T) of centered values (B, T, C) at one dilation."""
        dilation = self.config.dilations[number]
        weights = self.filters[:, None] * self.channels[number][..., None]  # (84, C, 9)
        span = dilation * (WEIGHTS - 1)
        padded = F.pad(values.mT, (span // 2, span // 2))
        windows = padded.unfold(2, span + 1, 1)[..., ::dilation]  # (B, C, T, 9)
        rows = windows.transpose(1, 2).flatten(2)  # (B, T, 9 C)
        return (rows @ weights.flatten(1).T.to(values.dtype)).mT

    def centered(self, source: Inputs) -> tuple[Tensor, Tensor]:
        """Return the values (B, T, C) around their mean, 0 in padding, and which steps exist; in
        fp64, so that rounding puts no step on the other side of a threshold.
        """
        steps = self.steps(source)
        exists = steps.exists[..., None]
        filled = fill_linearly(steps).double()
        return (filled - masked_mean(filled, exists)[:, None]) * exists, steps.exists

    def features(self, source: Inputs) -> Tensor:
        values, exists = self.centered(source)
        at_once = max(1, READ // max(1, len(KERNELS) * values.size(1)))
        parts = zip(values.split(at_once), exists.split(at_once), strict=True)
        return torch.cat([self._shares(part, inside) for part, inside in parts])

    def _shares(self, values: Tensor, exists: Tensor) -> Tensor:
        lengths = exists.sum(1).clamp_min(1)[:, None]
        features = []
        for number in range(len(self.config.dilations)):
            outputs = self.convolve(values, number)  # (B, 84, T)
            for level in self.thresholds[number].double().unbind(-1):  # (84,)
                above = (outputs > level[:, None] + MARGIN) & exists[:, None]
                features.append(above.sum(-1) / lengths)
        return torch.cat(features, 1)

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        self.calibrate(train)
        return super().load(train, valid, budget)

    def calibrate(self, train: Shard) -> None:
        """Set the thresholds to quantiles of the convolutions of training series, spread evenly by
        the golden ratio, as MiniRocket does.
        """
        records = np.random.default_rng(0).permutation(train.records)[:CALIBRATED]
        part = train.take(np.sort(records))
        n_dilations, n_filters, n_levels = self.thresholds.shape
        count = n_filters * n_levels
        levels = torch.arange(1, n_dilations * count + 1) * GOLDEN_RATIO % 1
        levels = levels.view(n_dilations, n_levels, n_filters).mT  # (dilations, 84, levels)
        for number in range(n_dilations):
            outputs = []
            for _, source in read_batches(part, self.config.max_len):
                values, exists = self.centered(source)
                columns = self.convolve(values, number).transpose(0, 1)[:, exists]  # (84, P)
                outputs.append(columns[:, :: 1 + columns.size(1) // CALIBRATED_STEPS])
            ordered = torch.cat(outputs, 1).sort(1).values
            places = (levels[number] * (ordered.size(1) - 1)).long()
            nexts = (places + 1).clamp_max(ordered.size(1) - 1)
            middle = (ordered.gather(1, places) + ordered.gather(1, nexts)) / 2
            self.thresholds[number] = middle


HALF = 8  # values before and after a step that are features
WIDER = (4, 8, 16, 32)  # steps before and after that give a mean and a deviation


class StepLogistic(StandardizedRegression):
    """Logistic regression on the values around each step."""

    Config = SeriesLinearConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: SeriesLinearConfig()}
    feature_name = "features of a step"

    def __init__(self, vocab_size: int, config: SeriesLinearConfig) -> None:
        each = 2 * HALF + 1 + 2 * len(WIDER)
        super().__init__(vocab_size, config, config.n_channels * each)

    def features(self, source: Inputs) -> Tensor:
        """Return the features (B, 1 + T, F) of all positions; those of `<S>` are zeros."""
        steps = self.steps(source)
        values = fill_linearly(steps).mT  # (B, C, T)
        around = F.pad(values, (HALF, HALF)).unfold(2, 2 * HALF + 1, 1)  # (B, C, T, W)
        parts = [around]
        exists = steps.exists[:, None].to(values.dtype)
        for half in WIDER:
            sums = [
                window_sums(row, half)
                for row in (values, values.square(), exists.expand_as(values))
            ]
            count = sums[2].clamp_min(1)
            mean = sums[0] / count
            spread = (sums[1] / count - mean.square()).clamp_min(0).sqrt()
            parts += [mean[..., None], spread[..., None]]
        rows = torch.cat(parts, -1).transpose(1, 2).flatten(2)  # (B, T, F)
        return F.pad(rows, (0, 0, 1, 0))

    def read(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """Return the features (P, F) and classes (P,) of all steps with a label."""
        rows, targets = [], []
        for batch, source in read_batches(shard, self.config.max_len):
            labelled = batch.targets >= 0
            rows.append(self.features(source)[labelled])
            targets.append(batch.targets[labelled])
        return torch.cat(rows), torch.cat(targets)

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        inside = (source.segments > 0)[..., None]
        scores: Tensor = super().predict(source, tap=tap)
        return scores * inside


def window_sums(rows: Tensor, half: int) -> Tensor:
    """Return the sums of values (B, C, T) over windows of `half` steps to both sides."""
    weights = rows.new_ones(1, 1, 2 * half + 1)
    padded = F.pad(rows.flatten(0, 1)[:, None], (half, half))
    sums: Tensor = F.conv1d(padded, weights)[:, 0].unflatten(0, rows.shape[:2])
    return sums
