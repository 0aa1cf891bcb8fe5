"""Metrics of forecasts over a rolling origin: every window of a split is forecast.

Errors are standardized with the training part and, of each target, in its unit. MASE (Hyndman &
Koehler 2006) divides by the mean error of the seasonal naive forecast in training, sMAPE by the
mean size of truth and forecast. Skill is 1 - MSE / MSE of the seasonal naive forecast of the same
windows. Neighbouring windows overlap: the bootstrap draws blocks of windows as long as the horizon.

Every forecast gets a fan of quantiles by conformal prediction (Vovk et al. 2005), adaptive over the
rolling origin: to the forecast of a level is added that quantile of the latest errors that were
known by then. Where the fans before held too little or too much, levels are moved outwards or
inwards (Gibbs & Candès 2021, arXiv:2106.00170). CRPS is twice the mean pinball loss over the
levels; coverage and width are those of the interval between the lowest and the highest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data import Progress, no_progress
from regard.data.windows import Windows
from regard.decoding.engine import device_of, gpu_lock
from regard.errors import UserError
from regard.evaluation import Metrics, Report, estimate_metrics, register_metric, target_name
from regard.evaluation.bootstrap import BootstrapEstimate, Floats, Resamples, digest, sum_shuffled
from regard.storage import read_tensors, write_tensors

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CALIBRATION = 500  # windows whose errors make the fan
OUTERMOST = (0.005, 0.995)  # levels
RATE = 0.5  # by which a lack of coverage stretches the levels
MIN_BLOCKS = 4  # of the bootstrap, where windows allow it
AT_ONCE = 256  # windows
FORECASTS = "forecasts.safetensors"  # of a run: the errors of the reported split, and its fan
SAMPLED = 200  # windows that are kept to be drawn, evenly spaced ...
SAMPLED_NUMBERS = 40_000  # ... or fewer, so that their forecasts are so many numbers ...
MIN_SAMPLED = 10  # ... but not fewer than this
SAMPLED_TARGETS = 8  # that are kept
HISTORY, MIN_HISTORY = 2, 24  # horizons of the past that are kept; steps
SUMS = ("count", "squared", "absolute", "smape", "scaled", "naive", "crps", "covered", "width")


@torch.inference_mode()
def forecast_windows(
    model: Any, windows: Windows, progress: Progress = no_progress
) -> NDArray[np.float32]:
    """Return the forecasts (R, H, C, Q) of all windows, standardized."""
    device, channels = device_of(model), model.config.n_channels
    parts = []
    for number, part in enumerate(windows.batches(AT_ONCE)):
        progress("forecasting", number * AT_ONCE, windows.records, "windows")
        values = torch.from_numpy(part.read()).to(device)
        past, ahead = values[:, : part.lookback], values[:, part.lookback :, channels:]
        with gpu_lock(device):
            parts.append(model.predict(past, ahead).float().cpu().numpy())
    forecasts: NDArray[np.float32] = np.concatenate(parts)
    return forecasts


def truths_of(windows: Windows, channels: int) -> NDArray[np.float32]:
    """Return the targets (R, H, C), NaN where missing."""
    parts = [part.read()[:, part.lookback :, :channels] for part in windows.batches(AT_ONCE)]
    truths: NDArray[np.float32] = np.concatenate(parts)
    return truths


def seasonal_naive(windows: Windows, channels: int, season: int) -> NDArray[np.float32]:
    """Return for every window the values one season before, (R, H, C); the last where unknown."""
    lookback, steps = windows.lookback, np.arange(windows.horizon)
    season = season if 0 < season <= lookback else 1
    before = lookback + steps - season * (steps // season + 1)
    parts = []
    for part in windows.batches(AT_ONCE):
        past = part.read()[:, :lookback, :channels]
        known = ~np.isnan(past)
        last = lookback - 1 - np.argmax(known[:, ::-1], axis=1)  # (R, C)
        final = np.take_along_axis(past, last[:, None], axis=1)  # (R, 1, C)
        forecast = past[:, before]
        parts.append(np.where(np.isnan(forecast), final, forecast))
    forecasts: NDArray[np.float32] = np.nan_to_num(np.concatenate(parts))
    return forecasts


def seasonal_scale(train: Windows, channels: int, season: int) -> Floats:
    """Return the mean absolute seasonal difference (C,) of the training part."""
    lag = max(1, season)
    differences = []
    for series in np.unique(train.series):
        starts = train.starts[train.series == series]
        values = train.ids[starts.min() : starts.max() + train.length, :channels]
        differences.append(np.abs(values[lag:] - values[:-lag]))
    mean = np.nanmean(np.concatenate(differences), axis=0)
    return np.where(mean > 0, mean, np.nan)


def offsets_of(residuals: NDArray[Any], stretch: float = 1.0) -> Floats:
    """Return what is added to a forecast at each level, (A, H, C), from the errors (N, H, C, A) of
    the forecasts of each level; `stretch` moves levels away from the median.
    """
    missing = bool(np.isnan(residuals).any())
    quantile = np.nanquantile if missing else np.quantile
    levels = np.clip(0.5 + (np.array(LEVELS) - 0.5) * stretch, *OUTERMOST)
    parts = [quantile(residuals[..., i], a, axis=0) for i, a in enumerate(levels)]
    return np.stack(parts)


def at_levels(forecasts: NDArray[Any], quantiles: tuple[float, ...]) -> NDArray[Any]:
    """Return forecasts (R, H, C, A) of each level: the model's nearest quantile, or its mean."""
    if not quantiles:
        return np.repeat(forecasts, len(LEVELS), axis=-1)
    nearest = [int(np.argmin([abs(q - level) for q in quantiles])) for level in LEVELS]
    return forecasts[..., nearest]


def rolling_fan(
    before: tuple[NDArray[Any], NDArray[Any]], now: tuple[NDArray[Any], NDArray[Any]]
) -> tuple[NDArray[Any], Floats]:
    """Return the fan (R, H, C, A) of forecasts, and the offsets (A, H, C) after the last of them.

    `before` and `now` are forecasts by level (R, H, C, A) and truths (R, H, C) of consecutive
    windows. A fan uses only errors whose targets lie before its window.
    """
    forecasts, truths = (np.concatenate(both) for both in zip(before, now, strict=True))
    first, count, horizon = len(before[0]), len(forecasts), truths.shape[1]
    residuals = truths[..., None] - forecasts
    fan = np.empty_like(now[0])
    refresh, stretch, scored = max(1, horizon // 2), 1.0, 0
    for start in range(first, count, refresh):
        last = max(1, start - horizon + 1)  # windows before it have their targets by now
        if last - first > scored:
            covered = coverage_of(fan[scored : last - first], now[1][scored : last - first])
            stretch, scored = stretch + RATE * (LEVELS[-1] - LEVELS[0] - covered), last - first
        offsets = offsets_of(residuals[max(0, last - CALIBRATION) : last], stretch)
        end = min(start + refresh, count)
        shifted = forecasts[start:end] + np.moveaxis(offsets, 0, -1)
        fan[start - first : end - first] = np.sort(shifted, axis=-1)
    return fan, offsets_of(residuals[-CALIBRATION:], stretch)


def coverage_of(fan: NDArray[Any], truths: NDArray[Any]) -> float:
    """Return the share of observed truths between the lowest and the highest level."""
    inside = (truths >= fan[..., 0]) & (truths <= fan[..., -1])
    known = ~np.isnan(truths)
    return float(inside[known].mean()) if known.any() else LEVELS[-1] - LEVELS[0]


@dataclass(frozen=True, eq=False)
class WindowSample:
    """Some windows of a split, evenly spaced, and their forecasts, in the units of the data."""

    history: NDArray[np.float32]  # (N, P, C), the end of the look-back
    truth: NDArray[np.float32]  # (N, H, C)
    point: NDArray[np.float32]  # (N, H, C)
    series: NDArray[np.int64]  # (N,), the number of the series of each window
    positions: NDArray[np.int64]  # (N,), of the first target in its series

    @classmethod
    def take(cls, windows: Windows, point: NDArray[Any], encoder: Any) -> WindowSample:
        """Return a sample of windows with point forecasts (R, H, C)."""
        channels, horizon = min(encoder.n_channels, SAMPLED_TARGETS), windows.horizon
        most = min(SAMPLED, max(MIN_SAMPLED, SAMPLED_NUMBERS // (horizon * channels)))
        count = min(windows.records, most)
        chosen = np.linspace(0, windows.records - 1, count).round().astype(np.int64)
        part = windows.take(chosen)
        values = encoder.restore(part.read()[..., : encoder.n_channels])[..., :channels]
        first = max(0, windows.lookback - max(HISTORY * horizon, MIN_HISTORY))
        return cls(
            history=values[:, first : windows.lookback].astype(np.float32),
            truth=values[:, windows.lookback :].astype(np.float32),
            point=encoder.restore(point[chosen])[..., :channels].astype(np.float32),
            series=part.series,
            positions=part.positions,
        )


@dataclass(frozen=True, eq=False)
class ForecastResult(Report):
    """The errors of all windows of a split, summed over steps and channels."""

    ranking = ("mse_standardized",)
    target_metric = "mae"

    sums: Floats  # (R, K) by SUMS
    by_target: Floats  # (R, C, 3): count, squared and absolute error, in the units of the data
    by_step: Floats  # (H, 4): count, squared, absolute, covered
    blocks: NDArray[np.int64]  # (R,) of the bootstrap
    offsets: Floats  # (A, H, C) of forecasts after the last window, standardized
    columns: tuple[str, ...]
    sample: WindowSample
    seconds: float = 0.0
    unknown: int = 0
    targets = None  # of labelled records alone
    scored = True

    @property
    def report(self) -> ForecastResult:
        return self

    @property
    def records(self) -> int:
        return len(self.sums)

    def first(self, records: int) -> ForecastResult:
        """Return the errors of the first windows."""
        return replace(
            self,
            sums=self.sums[:records],
            by_target=self.by_target[:records],
            blocks=self.blocks[:records],
        )

    @cached_property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The metrics over all targets and, where there are several, of each."""
        table = self.sums
        estimates = estimate_metrics("forecast", ForecastResamples(table, self.blocks))
        targets = self.by_target.swapaxes(0, 1)  # (C, R, 3)
        for column, errors in zip(self.columns, targets, strict=True):
            of_target = estimate_metrics("forecast target", ErrorResamples(errors, self.blocks))
            if len(self.columns) == 1:
                return estimates | of_target
            for name, estimate in of_target.items():
                estimates[target_name(name, column)] = replace(estimate, target=column)
        return estimates

    def metrics(self) -> Metrics:
        return Metrics({name: estimate.metric() for name, estimate in self.estimates.items()})


class ForecastResamples(Resamples):
    """Resampled sums of errors: an attribute for each of SUMS."""

    def __init__(self, sums: Floats, blocks: NDArray[np.int64]) -> None:
        units = int(blocks.max()) + 1
        super().__init__(digest(sums[:, 0], blocks), blocks, units)
        table = np.zeros((units, sums.shape[1]))
        np.add.at(table, blocks, sums)
        self.sums = dict(zip(SUMS, sum_shuffled(table).T, strict=True))

    def mean(self, name: str) -> Floats:
        """Return a sum divided by the number of targets."""
        mean: Floats = self.sums[name] / self.sums["count"]
        return mean


class ErrorResamples(Resamples):
    """Resampled sums of the errors of one target, (R, 3)."""

    def __init__(self, errors: Floats, blocks: NDArray[np.int64]) -> None:
        units = int(blocks.max()) + 1
        super().__init__(digest(errors[:, 0], blocks), blocks, units)
        table = np.zeros((units, 3))
        np.add.at(table, blocks, errors)
        self.counts, self.squared, self.absolute = sum_shuffled(table).T


@register_metric("forecast", "mse_standardized", title="MSE", lower_is_better=True)
def mse_standardized(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(errors.mean("squared"))


@register_metric("forecast", "mae_standardized", title="MAE", lower_is_better=True)
def mae_standardized(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(errors.mean("absolute"))


@register_metric("forecast", "skill", title="skill")
def skill(errors: ForecastResamples) -> BootstrapEstimate:
    naive = np.where(errors.sums["naive"] > 0, errors.sums["naive"], np.nan)
    reason = "the seasonal naive forecast has no error"
    return errors.estimate(1 - errors.sums["squared"] / naive, reason)


@register_metric("forecast", "mase", title="MASE", lower_is_better=True)
def mase(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(errors.mean("scaled"), "training has no seasonal differences")


@register_metric("forecast", "smape", title="sMAPE", lower_is_better=True, in_table=False)
def smape(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(100 * errors.mean("smape"))


@register_metric("forecast", "crps", title="CRPS", lower_is_better=True)
def crps(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(errors.mean("crps"))


@register_metric("forecast", "coverage_80", title="coverage of 80%")
def coverage(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(errors.mean("covered"))


@register_metric("forecast", "width_80", title="width of 80%", lower_is_better=True, in_table=False)
def width(errors: ForecastResamples) -> BootstrapEstimate:
    return errors.estimate(errors.mean("width"))


@register_metric("forecast target", "rmse", title="RMSE", lower_is_better=True, in_table=False)
def rmse(errors: ErrorResamples) -> BootstrapEstimate:
    return errors.estimate(np.sqrt(errors.squared / errors.counts))


@register_metric("forecast target", "mae", title="MAE", lower_is_better=True, in_table=False)
def mae(errors: ErrorResamples) -> BootstrapEstimate:
    return errors.estimate(errors.absolute / errors.counts)


def measure_forecasts(
    model: Any,
    windows: Windows,
    encoder: Any,
    train: Windows,
    calibration: Windows | None,
    progress: Progress = no_progress,
) -> ForecastResult:
    """Forecast every window of a split and sum up the errors.

    `calibration` are the windows before, whose errors make the first fans; without them, those of
    the first windows do.
    """
    began = time.monotonic()
    channels, quantiles = encoder.n_channels, model.config.quantiles
    forecasts = forecast_windows(model, windows, progress)
    truths = truths_of(windows, channels)
    seconds = time.monotonic() - began
    point = model.point(torch.from_numpy(forecasts)).numpy()
    before = windows.take(np.arange(min(CALIBRATION, windows.records)))
    if calibration is not None:
        first = max(0, calibration.records - CALIBRATION - windows.horizon)
        before = calibration.take(np.arange(first, calibration.records))
    known = at_levels(forecast_windows(model, before), quantiles), truths_of(before, channels)
    fan, offsets = rolling_fan(known, (at_levels(forecasts, quantiles), truths))
    naive = seasonal_naive(windows, channels, encoder.season)
    scale = seasonal_scale(train, channels, encoder.season)
    errors = Errors(point, truths, fan, naive, scale, encoder)
    return ForecastResult(
        sums=errors.sums(),
        by_target=errors.by_target(),
        by_step=errors.by_step(),
        blocks=blocks_of(windows),
        offsets=offsets,
        columns=encoder.columns[:channels],
        sample=WindowSample.take(windows, point, encoder),
        seconds=seconds,
    )


def blocks_of(windows: Windows) -> NDArray[np.int64]:
    """Return the block (R,) of each window: neighbours of one series, as long as the horizon."""
    longest = max(1, windows.records // MIN_BLOCKS)
    size = min(windows.horizon, longest)
    keys = windows.series * (len(windows.ids) + 1) + windows.starts // size
    blocks: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1].astype(np.int64).ravel()
    return blocks


class Errors:
    """Errors of forecasts (R, H, C), in standardized units; missing targets do not count."""

    def __init__(
        self,
        point: NDArray[Any],
        truths: NDArray[Any],
        fan: NDArray[Any],
        naive: NDArray[Any],
        scale: Floats,
        encoder: Any,
    ) -> None:
        self.known = ~np.isnan(truths)
        self.truths = np.where(self.known, truths, 0.0).astype(np.float64)
        self.point, self.fan, self.naive = point.astype(np.float64), fan, naive
        self.scale, self.encoder = scale, encoder
        self.error = np.where(self.known, self.truths - self.point, 0.0)
        inside = (self.truths >= fan[..., 0]) & (self.truths <= fan[..., -1])
        self.covered = inside & self.known

    def sums(self) -> Floats:
        """Return the sums (R, K) of each window."""
        absolute = np.abs(self.error)
        restored = self.encoder.restore(self.truths), self.encoder.restore(self.point)
        size = np.abs(restored[0]) + np.abs(restored[1])
        unit = self.encoder.deviation[: self.encoder.n_channels]
        with np.errstate(invalid="ignore", divide="ignore"):
            smape = np.where(size > 0, 2 * absolute * unit / size, 0.0)
        values = {
            "count": self.known,
            "squared": self.error**2,
            "absolute": absolute,
            "smape": smape,
            "scaled": absolute / self.scale,
            "naive": (self.truths - self.naive) ** 2,
            "crps": self._pinball(),
            "covered": self.covered,
            "width": self.fan[..., -1] - self.fan[..., 0],
        }
        masked = (np.where(self.known, values[name], 0.0) for name in SUMS)
        return np.stack([value.sum(axis=(1, 2)) for value in masked], axis=1)

    def _pinball(self) -> Floats:
        """Return twice the mean pinball loss over the levels, (R, H, C)."""
        total = np.zeros_like(self.truths)
        for i, level in enumerate(LEVELS):
            error = self.truths - self.fan[..., i]
            total += 2 * np.maximum(level * error, (level - 1) * error)
        return total / len(LEVELS)

    def by_target(self) -> Floats:
        """Return counts, squared and absolute errors (R, C, 3) in the units of the data."""
        unit = self.encoder.deviation[: self.encoder.n_channels]
        error = self.error * unit
        return np.stack(
            [self.known.sum(1), (error**2).sum(1), np.abs(error).sum(1)], axis=-1
        ).astype(np.float64)

    def by_step(self) -> Floats:
        """Return counts, squared and absolute errors and covered targets (H, 4) of each step."""
        parts = (self.known, self.error**2, np.abs(self.error), self.covered)
        return np.stack([part.sum(axis=(0, 2)) for part in parts], axis=1).astype(np.float64)


TENSORS = ("sums", "by_target", "by_step", "blocks", "offsets")
SAMPLE_TENSORS = ("history", "truth", "point", "series", "positions")


def store_forecasts(run: Path, result: ForecastResult) -> None:
    """Write the errors of the reported split, and a sample of its windows, to a run folder."""
    arrays = {name: getattr(result, name) for name in TENSORS}
    arrays |= {name: getattr(result.sample, name) for name in SAMPLE_TENSORS}
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()
    }
    tensors["seconds"] = torch.tensor(result.seconds, dtype=torch.float64)
    write_tensors(run / FORECASTS, tensors)


def load_forecasts(run: Path, columns: tuple[str, ...]) -> ForecastResult:
    """Read what `store_forecasts` wrote."""
    tensors = read_tensors(run / FORECASTS)
    try:
        arrays: dict[str, Any] = {name: tensors[name].numpy() for name in TENSORS}
        sample = WindowSample(**{name: tensors[name].numpy() for name in SAMPLE_TENSORS})
        seconds = float(tensors["seconds"])
        return ForecastResult(**arrays, columns=columns, sample=sample, seconds=seconds)
    except KeyError as error:
        raise UserError(f"{run / FORECASTS} is damaged: it has no {error}") from None
