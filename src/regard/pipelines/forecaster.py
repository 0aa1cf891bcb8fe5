"""Forecasting: a trained forecaster, its files and its forecasts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.in_memory import paths_of, read_table, write_tables
from regard.data.inputs import InputReader
from regard.data.windows import Windows
from regard.decoding.engine import device_of
from regard.errors import UserError
from regard.evaluation.eval_data import open_corpus
from regard.evaluation.forecasting import (
    FORECASTS,
    LEVELS,
    ForecastResult,
    at_levels,
    forecast_windows,
    measure_forecasts,
    truths_of,
)
from regard.evaluation.record_errors import RecordErrors
from regard.notebook import html_table
from regard.pipelines import MOST_RECORDS, EvaluationRequest, Pipeline, PreparedInput, spaced
from regard.storage import read_tensors


@dataclass(frozen=True, eq=False, repr=False)
class SeriesForecast:
    """The next steps of one series: point forecasts (H, C) and a fan (H, C, A) at `levels`."""

    name: str
    times: Sequence[str]  # (H,)
    columns: tuple[str, ...]
    point: NDArray[np.float64]
    fan: NDArray[np.float64]
    levels: tuple[float, ...] = LEVELS
    note: str = ""  # what a user should know of the series

    def __repr__(self) -> str:
        name, columns = f" of {self.name}" * bool(self.name), ", ".join(self.columns)
        ends = f"{self.times[0]} to {self.times[-1]}"
        return f"<{type(self).__name__}{name}: {columns}, {len(self.times)} steps, {ends}>"

    def _repr_html_(self) -> str:
        rows = [list(row.values()) for row in self.rows()]
        return html_table(list(next(self.rows())), rows, title=repr(self))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each step and column: time, forecast, and the ends of the interval."""
        for step, when in enumerate(self.times):
            for c, column in enumerate(self.columns):
                yield {
                    **({"id": self.name} if self.name else {}),
                    "time": when,
                    "target": column,
                    "prediction": float(self.point[step, c]),
                    "low": float(self.fan[step, c, 0]),
                    "high": float(self.fan[step, c, -1]),
                    "note": self.note,
                }


class Forecaster(Pipeline):
    """A forecaster of series."""

    task: ClassVar[str] = "forecast"
    activities: ClassVar[tuple[str, ...]] = ("forecast",)
    tokenizer: Any

    def predict(self, source: Any = None) -> Any:
        """Return the steps after the end of a series (H,), or (H, C) of several columns; a list of
        them for a source of several series.

        The source is a file, or a frame or an array with the columns of training; by default the
        files that the run was trained on.
        """
        points = [
            one.point[:, 0] if one.point.shape[1] == 1 else one.point
            for one in self.predictions(source)
        ]
        return points[0] if len(points) == 1 else points

    def predictions(self, source: Any = None) -> list[SeriesForecast]:
        """Return what `predict` predicts for each series, with times and intervals."""
        if source is None:
            if self.run is None:
                raise UserError("this pipeline belongs to no run: name a file to continue")
            source = list(self.run.recipe.data.train)
        paths = paths_of(source)
        with tempfile.TemporaryDirectory() as folder:
            if paths is None:
                table = read_table(source)
                paths = write_tables({"train": table}, Path(folder)).paths
            return [self.forecast(series) for path in paths for _, series in self.series(path)]

    def forecast(self, series: Any) -> SeriesForecast:
        """Return the steps after the end of a series; its covariates may reach further."""
        encoder, horizon = self.tokenizer, self.tokenizer.horizon
        past, future, end = self.last_window(series)
        device = device_of(self.model)
        with torch.inference_mode():
            inputs = torch.from_numpy(past)[None].to(device)
            covariates = torch.from_numpy(future)[None].to(device)
            outputs = self.model.predict(inputs, covariates).float().cpu()
        point = encoder.restore(self.model.point(outputs)[0].double().numpy())
        base = at_levels(outputs.numpy(), self.model.config.quantiles)[0]  # (H, C, A)
        fan = np.sort(base + np.moveaxis(self.offsets, 0, -1), axis=-1)
        fan = np.moveaxis(encoder.restore(np.moveaxis(fan, -1, 0)), 0, -1)
        times = [str(end + i) for i in range(horizon)]
        if series.step is not None:
            times = series.times_after(end, horizon)
        return SeriesForecast(
            getattr(series, "name", ""),
            times,
            encoder.columns[: encoder.n_channels],
            point,
            fan,
            note=encoder.unknown_static(series),
        )

    def last_window(self, series: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
        """Return the look-back (L, V) before the steps to forecast, the covariates (H, K) of these
        steps, which the file must have, and how many steps the series has before them.
        """
        encoder = self.tokenizer
        encoded = encoder.encode(series)
        channels, lookback, horizon = encoder.n_channels, encoder.lookback, encoder.horizon
        targets = np.flatnonzero(~np.isnan(encoded[:, :channels]).all(1))
        if not len(targets):
            raise UserError("the series has no observed value")
        end = int(targets[-1]) + 1
        first_static = encoder.vocab_size - encoder.n_static
        window = np.full((lookback + horizon, encoder.vocab_size), np.nan, np.float32)
        window[:, first_static:] = encoded[0, first_static:]
        past = encoded[max(0, end - lookback) : end]
        window[lookback - len(past) : lookback] = past  # what is missing before it is masked
        known = encoded[end : end + horizon, channels:first_static]
        names = encoder.columns[channels:first_static]
        if names and len(known) < horizon:
            raise UserError(
                f"{', '.join(names)} must be known for the {horizon} steps after the last target; "
                f"the file has {len(known)} of them: add rows with these columns and empty targets"
            )
        window[lookback:, channels:first_static] = known if names else 0.0
        return window[:lookback], window[lookback:, channels:], end

    @property
    def offsets(self) -> NDArray[np.float64]:
        """What conformal prediction adds to forecasts at each level, (A, H, C)."""
        c = self.model.config
        if self.run is None or not (self.run / FORECASTS).exists():
            return np.zeros((len(LEVELS), c.horizon, c.n_channels))
        return read_tensors(self.run / FORECASTS)["offsets"].numpy()

    def series(self, file: Path) -> Iterator[tuple[str, Any]]:
        """Yield the series of a file, each after its place."""
        return self.modality.items(file, self.tokenizer, strict=False)  # type: ignore[no-any-return]

    def forecast_file(self, file: Path) -> list[dict[str, Any]]:
        return [row for _, series in self.series(file) for row in self.forecast(series).rows()]

    def windows(self, split: str = "") -> tuple[str, Windows, Any]:
        """Return the windows of a split of the run, by default the reported one, and the corpus."""
        if self.run is None:
            raise UserError("this pipeline belongs to no run: name a file to measure on")
        corpus: Any = open_corpus(self.run.path)
        name = split or corpus.reported_split
        windows = corpus.split(name)
        if windows is None:
            raise UserError(f"{self.run}: the run holds no {name} windows")
        return name, windows, corpus

    def record_errors(self, most: int = MOST_RECORDS) -> RecordErrors:
        name, windows, _ = self.windows()
        numbers = spaced(windows.records, most)
        windows = windows.take(numbers)
        model, encoder = self.model, self.tokenizer
        outputs = torch.from_numpy(forecast_windows(model, windows))
        point = encoder.restore(model.point(outputs).double().numpy())  # (R, H, C)
        truth = encoder.restore(truths_of(windows, encoder.n_channels))
        errors = np.abs(point - truth).reshape(len(point), -1)
        known = np.isfinite(errors)
        sums = np.where(known, errors, 0.0).sum(1)
        losses = np.where(known.any(1), sums / np.maximum(known.sum(1), 1), np.nan)
        texts = [f"window {i + 1:,}" for i in numbers]
        return RecordErrors(name, numbers, texts, losses, "mean absolute error", known.sum(1))

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        if item:
            past, future, _ = self.last_window(next(self.series(Path(item)))[1])
        else:
            window = cast(Windows, self.held_out_record(record))
            values, lookback = window.read()[0], window.lookback
            past, future = values[:lookback], values[lookback:, self.tokenizer.n_channels :]
        inputs, known = torch.from_numpy(past[None].copy()), torch.from_numpy(future[None].copy())
        return PreparedInput(
            {"past": inputs, "future": known},
            lambda tap: self.model.forecast(inputs, known, tap=tap),
        )

    def read(self, files: Sequence[Path], reader: InputReader, *, strict: bool, log: Any) -> Any:
        from regard.data.shards import Shard
        from regard.data.windows import join_splits

        encoder = self.tokenizer
        parts = []
        for location, series in (pair for file in files for pair in self.series(file)):
            parts.append(encoder.encode(series))
            if note := encoder.unknown_static(series):
                log(f"{location}: {note}")
        ends = np.cumsum([0, *map(len, parts)])
        shard = Shard(
            path=files[0],
            kind="records",
            ids=np.concatenate(parts),
            offsets=ends,
            vocab_size=encoder.vocab_size,
            records=len(parts),
            tokens=int(ends[-1]),
            symbols=0,
            bytes=0,
        )
        lengths = encoder.lookback, encoder.horizon, encoder.n_channels
        return join_splits({"train": shard}, *lengths)["train"]

    def held_out(self, run: Any = None) -> tuple[str, Any]:
        name, windows, _ = self.windows()
        return name, windows

    def measure(self, shard: Any, request: EvaluationRequest) -> ForecastResult:
        name, windows, corpus = self.windows()
        is_test = name == "test" and np.array_equal(shard.starts, windows.starts)
        before = corpus.valid if is_test else None
        return measure_forecasts(
            self.model, shard, self.tokenizer, corpus.train, before, request.progress
        )

    def _log_notes(self, shard: Any, request: EvaluationRequest) -> None:
        """Series have no unknown symbols."""

    def describe(self, report: Any, request: EvaluationRequest) -> tuple[dict[str, Any], str]:
        windows, horizon = report.records, self.tokenizer.horizon
        document: Mapping[str, Any] = {"windows": windows, "horizon": horizon}
        return dict(document), f"{windows:,} windows, each forecast {horizon} steps ahead"
