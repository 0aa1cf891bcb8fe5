"""The page of `regard look` about a forecaster: a forecast with its fan, the errors by step, what
the forecast rests on, the season of the series, and the worst windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.windows import Windows
from regard.decoding.engine import device_of
from regard.evaluation.forecasting import (
    FORECASTS,
    ForecastResult,
    at_levels,
    forecast_windows,
    load_forecasts,
    truths_of,
)
from regard.layers.tap import Tap
from regard.look.internals import register_view, run_facts
from regard.look.page import Answer, AttentionMaps, Facts, Lines, Page, Table, Text
from regard.look.page.document import Component, summary
from regard.look.prediction_page import register_error_plots
from regard.look.records import signed
from regard.models.patch_forecaster import PatchForecaster
from regard.pipelines.forecaster import Forecaster, SeriesForecast
from regard.tokenizers.series import autocorrelation

MOST_TARGETS = 4  # that are drawn
MOST_PIECES = 32  # of the look-back that are covered one by one
HISTORY = 3  # horizons of the past that are drawn
WORST = 5  # windows listed
LAGS = 3  # seasons of the autocorrelation that are drawn


@dataclass(frozen=True)
class ForecastContext:
    """A forecaster and the window that a page is about."""

    forecaster: Forecaster
    past: NDArray[np.float32]  # (L, V) standardized
    future: NDArray[np.float32]  # (H, K)
    target: int = 0  # the channel that is explained

    @property
    def model(self) -> Any:
        return self.forecaster.model

    def forecast(self, past: NDArray[Any], tap: Tap | None = None) -> NDArray[np.float64]:
        """Return the point forecasts (B, H, C) of other look-backs (B, L, V)."""
        device, model = device_of(self.model), self.model
        with torch.inference_mode():
            inputs = torch.from_numpy(past).to(device)
            future = torch.from_numpy(self.future).to(device).expand(len(past), -1, -1)
            outputs = model.forecast(inputs, future, tap=tap)
            point: NDArray[np.float64] = model.point(outputs).double().cpu().numpy()
        return point


def forecast_page(forecaster: Forecaster, request: Any) -> Page:
    """Return the page about a file's future, or about the last window of the reported split."""
    run = forecaster.run
    assert run is not None
    facts = run_facts(run, forecaster.model, forecaster.tokenizer)
    page = Page(f"{run.name} forecasts", summary(facts))
    columns = forecaster.tokenizer.columns[: forecaster.tokenizer.n_channels]
    target = columns.index(request.target) if request.target in columns else 0
    if request.text:
        context = _add_file(page, forecaster, Path(request.text), target)
    else:
        context = _add_window(page, forecaster, target)
    _add_occlusion(page, context)
    from regard.look.internals import add_inside

    add_inside(page, context)
    if (run / FORECASTS).exists():
        add_steps(page, load_forecasts(run.path, columns))
    if not request.text:
        _add_worst(page, forecaster)
    _add_season(page, forecaster)
    page.add_facts(facts)
    return page


def _add_file(page: Page, forecaster: Forecaster, file: Path, target: int) -> ForecastContext:
    """Add the future of the first series of a file."""
    _, series = next(iter(forecaster.series(file)))
    forecast = forecaster.forecast(series)
    encoder = forecaster.tokenizer
    page.section(
        "Forecast",
        f"The {encoder.horizon} steps after the end of {file.name}. The band holds 80% of such "
        "forecasts, by the errors of the run's held-out windows.",
    )
    page.add(answer_forecast(forecast, target))
    past, future, end = forecaster.last_window(series)
    history = series.values[max(0, end - HISTORY * encoder.horizon) : end]
    for c in _shown(target, len(forecast.columns)):
        page.add(fan_chart(history[:, c], None, forecast, c))
    return ForecastContext(forecaster, past, future, target)


def _add_window(page: Page, forecaster: Forecaster, target: int) -> ForecastContext:
    """Add the forecast of the last window of the reported split, and what came."""
    name, windows, _ = forecaster.windows()
    window = windows.take(np.array([windows.records - 1]))
    forecast, history, truth = describe_window(forecaster, window)
    page.section(
        "Forecast",
        f"The last window of the {name} split, which the model was not trained on. The band holds "
        "80% of such forecasts, by the errors that were known before.",
    )
    page.add(answer_forecast(forecast, target, truth[:, target]))
    for c in _shown(target, len(forecast.columns)):
        page.add(fan_chart(history[:, c], truth[:, c], forecast, c))
    values, lookback = window.read()[0], window.lookback
    future = values[lookback:, forecaster.tokenizer.n_channels :]
    return ForecastContext(forecaster, values[:lookback], future, target)


def answer_forecast(
    forecast: SeriesForecast, target: int, truth: NDArray[Any] | None = None
) -> Answer:
    """Return the forecast of the next step in words and, where the truth is known, how far the
    forecast is off.
    """
    name, point = forecast.columns[target], forecast.point[:, target]
    low, high = forecast.fan[:, target, 0], forecast.fan[:, target, -1]
    steps = len(point)
    notes = [
        f"Over all {steps:,} steps the forecast is {signed(point.mean())} on average, from "
        f"{signed(point.min())} to {signed(point.max())}."
    ]
    came = np.isfinite(truth) if truth is not None else np.zeros(steps, bool)
    if truth is not None and came.any():
        error = signed(np.abs(point - truth)[came].mean())
        inside = int(((low <= truth) & (truth <= high))[came].sum())
        notes.append(
            f"It is off by {error} on average; {inside:,} of the {int(came.sum()):,} known steps "
            f"({inside / came.sum():.1%}) lie in the 80% interval."
        )
    return Answer(
        headline=signed(point[0]),
        label=f"forecast of {name}, the next step",
        detail=f"80% interval {signed(low[0])} to {signed(high[0])}",
        notes=notes,
    )


def describe_window(
    forecaster: Forecaster, window: Windows
) -> tuple[SeriesForecast, NDArray[Any], NDArray[Any]]:
    """Return the forecast of one window, and its history and truth in the units of the data."""
    encoder, model = forecaster.tokenizer, forecaster.model
    outputs = forecast_windows(model, window)
    base = at_levels(outputs, model.config.quantiles)[0]
    fan = np.sort(base + np.moveaxis(forecaster.offsets, 0, -1), axis=-1)
    fan = np.moveaxis(encoder.restore(np.moveaxis(fan, -1, 0)), 0, -1)
    point = encoder.restore(model.point(torch.from_numpy(outputs))[0].double().numpy())
    truth = encoder.restore(truths_of(window, encoder.n_channels)[0])
    past = window.read()[0, : window.lookback, : encoder.n_channels]
    history = encoder.restore(past[-HISTORY * encoder.horizon :])
    columns = encoder.columns[: encoder.n_channels]
    forecast = SeriesForecast("", [str(i) for i in range(encoder.horizon)], columns, point, fan)
    return forecast, history, truth


def _shown(target: int, count: int) -> list[int]:
    """Return the channels to draw, the explained one first."""
    return [target, *(c for c in range(count) if c != target)][:MOST_TARGETS]


def fan_chart(
    history: NDArray[Any], truth: NDArray[Any] | None, forecast: SeriesForecast, c: int
) -> Lines:
    """Return the past, the forecast with its fan and, where known, the truth of one channel."""
    before = np.arange(-len(history) + 1, 1)
    ahead = np.arange(1, len(forecast.point) + 1)
    point = forecast.point[:, c]
    low, high = forecast.fan[:, c, 0], forecast.fan[:, c, -1]
    series = [("past", before, history), ("forecast", ahead, point)]
    bands = {"forecast": (low.tolist(), high.tolist())}
    if truth is not None:
        series.append(("truth", ahead, truth))
    return Lines(
        [(name, xs.tolist(), np.asarray(ys).tolist()) for name, xs, ys in series],
        x_label="steps from the last known one",
        y_label=forecast.columns[c],
        title=forecast.columns[c],
        bands=bands,
    )


def _add_occlusion(page: Page, context: ForecastContext) -> None:
    """Draw how much the forecast changes if a piece of the past is missing."""
    past, lookback = context.past, len(context.past)
    pieces = np.array_split(np.arange(lookback), min(MOST_PIECES, lookback))
    covered = np.repeat(past[None], len(pieces) + 1, axis=0)
    channels = context.forecaster.tokenizer.n_channels
    for row, piece in zip(covered[1:], pieces, strict=True):
        row[piece, :channels] = np.nan
    forecasts = context.forecast(covered)[..., context.target]
    unit = context.forecaster.tokenizer.deviation[context.target]
    change = np.abs(forecasts[1:] - forecasts[0]).mean(1) * unit
    name = context.forecaster.tokenizer.columns[context.target]
    page.section(
        "What the forecast rests on",
        "How far the forecast moves, on average over its steps, if a piece of the past is missing.",
    )
    middles = [float(piece.mean()) - lookback + 1 for piece in pieces]
    page.add(
        Lines(
            [("change of the forecast", middles, change.tolist())],
            x_label=f"missing steps, {len(pieces[0]):,} at once; 0 is the last known one",
            y_label=f"mean change, {name}",
            title=f"{name}: how far the forecast moves without a piece of the past",
        )
    )


@register_view(PatchForecaster)
def add_patch_attention(page: Page, context: ForecastContext, model: PatchForecaster) -> None:
    """Draw the attention between patches of the explained channel."""
    if not all(mixer.has_weights for mixer in model.config.mixer_classes):
        return
    tap = Tap(["*.weights"])
    context.forecast(context.past[None], tap)
    maps = [w[context.target] for name, w in tap.activations.items() if name.endswith("weights")]
    if not maps:
        return
    c = model.config
    first = c.max_len + c.stride - (c.n_patches - 1) * c.stride - c.patch
    tokens = [f"{first + i * c.stride - c.max_len + 1}" for i in range(c.n_patches)]
    page.section(
        "Attention between patches",
        f"A patch has {c.patch} steps; its name is that of its first, 0 being the last known step.",
    )
    page.add(AttentionMaps(torch.stack(maps).float().cpu().numpy(), tokens))


def add_steps(page: Page, result: ForecastResult) -> None:
    """Add the errors of all held-out windows by step of the horizon."""
    page.section(
        "Errors by step",
        f"{result.records:,} held-out windows, standardized. Errors grow with the horizon; the "
        "80% interval should hold 80% at every step.",
    )
    page.add(*plot_steps(result))


def plot_steps(result: ForecastResult) -> list[Lines]:
    """Return the error and the coverage at each step."""
    count, squared, absolute, covered = result.by_step.T
    steps = list(range(1, len(count) + 1))
    errors = [
        ("RMSE", steps, np.sqrt(squared / count).tolist()),
        ("MAE", steps, (absolute / count).tolist()),
    ]
    share = [("covered", steps, (covered / count).tolist())]
    return [
        Lines(errors, x_label="step", y_label="error", title="Error by step"),
        Lines(share, x_label="step", y_label="share", title="Coverage of the 80% interval"),
    ]


@register_error_plots(ForecastResult, "Errors grow with the horizon.")
def plot_forecasts(
    predictions: Any, targets: Any, report: ForecastResult, records: Any
) -> list[list[Component]]:
    return [[*plot_steps(report)]]


def _add_worst(page: Page, forecaster: Forecaster) -> None:
    """List the windows with the largest errors, and draw the worst."""
    name, windows, _ = forecaster.windows()
    run = forecaster.run
    assert run is not None
    if not (run / FORECASTS).exists():
        return
    columns = forecaster.tokenizer.columns[: forecaster.tokenizer.n_channels]
    result = load_forecasts(run.path, columns)
    error = result.sums[:, 1] / np.maximum(result.sums[:, 0], 1)
    order = _apart(np.argsort(-error), windows.horizon)[:WORST]
    page.section("The worst windows", f"Of the {name} split, each a horizon apart from the others.")
    page.add(_table_of_worst(order, error, forecaster))
    forecast, history, truth = describe_window(forecaster, windows.take(np.array([order[0]])))
    page.add(fan_chart(history[:, 0], truth[:, 0], forecast, 0))


def _table_of_worst(order: list[int], error: NDArray[Any], forecaster: Forecaster) -> Table:
    """List windows with their errors; of one target, in its unit too."""
    encoder = forecaster.tokenizer
    errors = {i: float(np.sqrt(error[i])) for i in order}
    if encoder.n_channels > 1:
        return Table(["window", "RMSE, standardized"], [[f"{i:,}", x] for i, x in errors.items()])
    unit = float(encoder.deviation[0])
    rows = [[f"{i:,}", x, signed(x * unit)] for i, x in errors.items()]
    return Table(["window", "RMSE, standardized", f"RMSE, {encoder.columns[0]}"], rows)


def _apart(order: NDArray[np.int64], distance: int) -> list[int]:
    """Return the first of neighbouring windows in an order."""
    chosen: list[int] = []
    for i in order.tolist():
        if all(abs(i - other) >= distance for other in chosen):
            chosen.append(i)
        if len(chosen) == WORST:
            break
    return chosen


def _add_season(page: Page, forecaster: Forecaster) -> None:
    """Draw the autocorrelation of the training part."""
    encoder = forecaster.tokenizer
    try:
        corpus = forecaster.windows()[2]
    except Exception:
        page.add(Text("The data of the run is not there: its autocorrelation cannot be drawn."))
        return
    train = corpus.train
    values = train.ids[train.starts.min() : train.starts.max() + train.length]
    lags = max(2, LAGS * encoder.season or len(values) // 2)
    curves = []
    for c, name in enumerate(encoder.columns[: encoder.n_channels][:MOST_TARGETS]):
        curve = autocorrelation(values[:, c].astype(np.float64))[:lags]
        curves.append((name, list(range(len(curve))), curve.tolist()))
    season = f"{encoder.season} steps" if encoder.season else "none found"
    page.section("Season", "The autocorrelation of the training part around its trend.")
    page.add(Facts([("season", season)]))
    page.add(Lines(curves, x_label="lag in steps", y_label="autocorrelation"))
