"""Time series as tokens: a token is a step of time, the numbers of all columns at it.

Columns are standardized with the mean and deviation of the training part alone. The encoder also
knows how long windows are, and which season the training part has: the lag of its autocorrelation.

Static cells, the same at every step of a series, become columns that are known in the future:
numbers a column, categories one for each, 1 in its series and 0 in all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.tokenizers.tokenizer import Document, Featurizer, Ids

Floats = NDArray[np.float64]
LONGEST = 20_000  # steps at the end of a training series that tell its season
ROUNDING = 1e-9  # of numbers, relative to the largest
CLEAR = 0.1  # an autocorrelation below this is no season, ...
SURE = 4.0  # ... nor one below so many standard errors
CLOSE = 0.05  # share by which the highest lag may differ from a period of the calendar
NEARLY = 0.9  # a shorter lag with this share of the highest autocorrelation is the season
MOST_CATEGORIES = 64  # of a static column, the most frequent, that become columns


def autocorrelation(values: Floats) -> Floats:
    """Return the autocorrelation of (T,) values around their linear trend, at lags 0 to T / 3.

    Missing values count as the mean.
    """
    steps = np.arange(len(values))
    known = np.isfinite(values)
    if known.sum() < 3:
        return np.zeros(1)
    trend = np.polynomial.Polynomial.fit(steps[known], values[known], 1)
    residual = np.where(known, values - trend(steps), 0.0)
    if np.abs(residual).max() <= ROUNDING * np.abs(values[known]).max():
        return np.zeros(1)  # a line: what is left is rounding
    spectrum = np.abs(np.fft.rfft(residual, 2 * len(values))) ** 2
    covariance = np.fft.irfft(spectrum)[: len(values) // 3 + 1]
    pairs = len(values) - np.arange(len(covariance))
    scaled: Floats = covariance / pairs / max(covariance[0] / len(values), 1e-300)
    return scaled


def find_season(columns: Sequence[Floats], periods: Sequence[int] = ()) -> int:
    """Return the shortest lag with nearly the highest peak of the mean autocorrelation; 0: none.

    A period of the calendar, such as a day, that noise moved the peak away from is taken instead.
    """
    curves = [autocorrelation(column[-LONGEST:]) for column in columns]
    curves = [curve for curve in curves if len(curve) > 3]
    if not curves:
        return 0
    length = min(map(len, curves))
    mean = np.mean([curve[:length] for curve in curves], axis=0)
    lags = np.arange(2, length - 1)
    peaks = lags[(mean[lags] > mean[lags - 1]) & (mean[lags] >= mean[lags + 1])]
    noise = SURE / (min(map(len, columns)) * len(curves)) ** 0.5  # of values without any pattern
    if not len(peaks) or mean[peaks].max() < max(CLEAR, noise):
        return 0
    high = NEARLY * mean[peaks].max()
    lag = int(peaks[mean[peaks] >= high][0])
    close = [p for p in periods if p < length and abs(p - lag) <= CLOSE * p and mean[p] >= high]
    return min(close, key=lambda period: abs(period - lag), default=lag)


@dataclass(frozen=True)
class StaticColumn:
    """A column that is the same at all steps of a series: categories, or a number if there are
    none.
    """

    name: str
    categories: tuple[str, ...] = ()

    @classmethod
    def learn(cls, name: str, cells: Sequence[str]) -> Self:
        """Return the column of training series: a number if every cell that is not empty is one."""
        counts = Counter(cell for cell in cells if cell)
        if counts and not any(np.isnan(to_number(cell)) for cell in counts):
            return cls(name)
        return cls(name, tuple(sorted(cell for cell, _ in counts.most_common(MOST_CATEGORIES))))

    @property
    def titles(self) -> list[str]:
        """The names of its numbers."""
        if not self.categories:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, cell: str) -> list[float]:
        """Return the numbers of a cell; a category without a column is all zeros."""
        if not self.categories:
            return [to_number(cell)]
        return [float(cell == category) for category in self.categories]

    def knows(self, cell: str) -> bool:
        """Whether a cell is a number, or a category that has a column."""
        return cell in self.categories or not (self.categories or np.isnan(to_number(cell)))


def to_number(cell: str) -> float:
    """Return the finite number that a cell holds, NaN if it holds none."""
    try:
        number = float(cell)
    except ValueError:
        return float("nan")
    return number if np.isfinite(number) else float("nan")


class Steps(Featurizer):
    """Steps of time series, standardized.

    `columns` are the names of the targets and, after them, of the `n_known` covariates that are
    known in the future, the last of which are those of the `static` columns; `mean` and `deviation`
    are those of the training part.
    """

    name: ClassVar[str] = "steps"
    modality = "time-series"
    markers: ClassVar[tuple[int, int]] = (0, 0)
    options: ClassVar[Mapping[str, Any]] = {}
    words: ClassVar[tuple[str, str]] = ("series", "series")
    item: ClassVar[str] = "a series (steps, columns), or the path of a table"

    def __init__(
        self,
        columns: Sequence[str],
        mean: Sequence[float],
        deviation: Sequence[float],
        *,
        lookback: int,
        horizon: int,
        season: int = 0,
        n_known: int = 0,
        static: Sequence[StaticColumn] = (),
    ) -> None:
        self.columns, self.n_known, self.static = tuple(columns), n_known, tuple(static)
        self.mean, self.deviation = np.asarray(mean, float), np.asarray(deviation, float)
        self.lookback, self.horizon, self.season = lookback, horizon, season
        super().__init__(len(self.columns), np.float32)

    @property
    def n_channels(self) -> int:
        """C: the number of targets."""
        return len(self.columns) - self.n_known

    @property
    def n_static(self) -> int:
        """How many of the known covariates are those of static columns."""
        return sum(len(column.titles) for column in self.static)

    @property
    def model_config(self) -> dict[str, Any]:
        return {  # the look-back is the model's own max_len
            "horizon": self.horizon,
            "n_channels": self.n_channels,
            "n_known": self.n_known,
            "season": self.season,
        }

    @classmethod
    def train(cls, texts: Iterable[Any], size: int = 0, **options: Any) -> Self:
        """Return the encoder for training series; `options` are those of the constructor, `columns`
        and `n_known` without those of the columns that `static` names.
        """
        series, names = list(texts), options.pop("static", ())
        cells = zip(*(one.static for one in series), strict=True) if names else ()
        static = [StaticColumn.learn(*pair) for pair in zip(names, cells, strict=True)]
        parts = [join_columns(one, static) for one in series]
        targets = len(options["columns"]) - options.get("n_known", 0)
        joined = np.concatenate(parts)
        with np.errstate(invalid="ignore"):
            counts = np.isfinite(joined).sum(0)
            mean = np.where(counts > 0, np.nansum(joined, 0) / np.maximum(counts, 1), 0.0)
            squares = np.nansum((joined - mean) ** 2, 0) / np.maximum(counts, 1)
        deviation = np.where(squares > 0, np.sqrt(squares), 1.0)
        titles = [title for column in static for title in column.titles]
        one_hot = [bool(column.categories) for column in static for _ in column.titles]
        plain = np.flatnonzero([False] * (joined.shape[1] - len(titles)) + one_hot)
        mean[plain], deviation[plain] = 0.0, 1.0  # so that no category is all zeros
        longest = max(parts, key=len)
        season = options.pop("season", 0) or find_season(list(longest[:, :targets].T))
        options["columns"] = (*options["columns"], *titles)
        options["n_known"] = options.get("n_known", 0) + len(titles)
        return cls(
            mean=mean.tolist(),
            deviation=deviation.tolist(),
            season=season,
            static=static,
            **options,
        )

    def reads(self, value: object) -> bool:
        return hasattr(value, "values") and hasattr(value, "step")

    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        parts = [join_columns(one, self.static) for one in texts]
        lengths = np.array([len(part) for part in parts], np.int64)
        joined = np.concatenate(parts) if parts else np.empty((0, self.vocab_size))
        if joined.shape[1] != self.vocab_size:
            raise UserError(
                f"a series must have {self.vocab_size} columns ({', '.join(self.columns)}), got "
                f"{joined.shape[1]}"
            )
        return ((joined - self.mean) / self.deviation).astype(np.float32), lengths

    def unknown_static(self, item: Any) -> str:
        """Return which static cells of a series training has not seen, in words, or ""."""
        cells = zip(self.static, item.static, strict=False)
        unknown = [f"{column.name} {cell!r}" for column, cell in cells if not column.knows(cell)]
        return f"training has no {', no '.join(unknown)}" if unknown else ""

    def restore(self, targets: NDArray[Any]) -> Floats:
        """Return standardized targets (…, C) in the units of the data."""
        c = self.n_channels
        restored: Floats = targets * self.deviation[:c] + self.mean[:c]
        return restored

    def decode(self, ids: Sequence[int] | Ids) -> str:
        return f"a series of {len(np.asarray(ids)):,} steps"

    @property
    def window(self) -> tuple[int, int, int]:
        return self.lookback, self.horizon, self.n_channels

    def sample_items(self, count: int) -> list[Any]:
        random = np.random.default_rng(0)
        length = 2 * (self.lookback + self.horizon)
        shape = (length, self.vocab_size)
        walks = random.normal(size=(count, *shape)).cumsum(1) * self.deviation + self.mean
        c = self.n_channels
        return [PlainSeries(walk[:, :c], walk[:, c:]) for walk in walks]

    def record_round_trip(self, record: Ids) -> bool:
        values = record * self.deviation + self.mean
        again = self.encode(PlainSeries(values[:, : self.n_channels], values[:, self.n_channels :]))
        return bool(np.allclose(again, record, rtol=1e-5, atol=1e-5, equal_nan=True))

    def round_trip(self, item: Any) -> bool:
        decoded = self.encode(item) * self.deviation + self.mean
        given = join_columns(item, self.static)
        return bool(np.allclose(decoded, given, rtol=1e-4, atol=1e-5 * self.deviation.max()))

    def document(self) -> Document:
        return {
            "series_processor_type": "Steps",
            "columns": list(self.columns),
            "n_known": self.n_known,
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            "lookback": self.lookback,
            "horizon": self.horizon,
            "season": self.season,
            "static": [[column.name, list(column.categories)] for column in self.static],
        }

    @classmethod
    def recognises(cls, document: Document) -> bool:
        return "series_processor_type" in document

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        try:
            columns = [str(column) for column in document["columns"]]
            mean, deviation = (list(map(float, document[key])) for key in ("mean", "deviation"))
            sizes = {
                key: int(document[key]) for key in ("lookback", "horizon", "season", "n_known")
            }
            if not len(columns) == len(mean) == len(deviation) or min(deviation, default=0) <= 0:
                raise ValueError("every column has a mean and a positive deviation")
            if min(sizes["lookback"], sizes["horizon"]) < 1 or sizes["n_known"] >= len(columns):
                raise ValueError("lookback and horizon must be positive, and there is a target")
            static = [
                StaticColumn(str(column), tuple(map(str, categories)))
                for column, categories in document["static"]
            ]
            made = cls(columns, mean, deviation, **sizes, static=static)
            if made.n_static > made.n_known:
                raise ValueError("static columns are known covariates")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{name} is damaged: {error}") from None
        return made


def join_columns(item: Any, static: Sequence[StaticColumn]) -> Floats:
    """Return the targets, known covariates and static columns of a series, (T, V). A series without
    static cells has their columns among its known covariates.
    """
    blocks = [item.values, item.known]
    if item.static:
        row = [
            number
            for column, cell in zip(static, item.static, strict=True)
            for number in column.encode(cell)
        ]
        blocks.append(np.broadcast_to(row, (len(item.values), len(row))))
    return np.concatenate(blocks, axis=1)


class PlainSeries:
    """Values (T, C) and covariates (T, K) without times."""

    step, static = None, ()

    def __init__(self, values: Floats, known: Floats) -> None:
        self.values, self.known = values, known
