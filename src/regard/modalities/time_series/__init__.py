"""Time series: numbers at equal steps of time, in the columns of a table or in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.data.column_kinds import CellSample, ColumnKind
from regard.errors import UsageError
from regard.modalities import Modality, Tables
from regard.recipe import check_range

if TYPE_CHECKING:
    from regard.data.sources import DataSource, ReadRequest
    from regard.data.targets import OutputKind
    from regard.data.text_files import FileSet
    from regard.tokenizers.series import Steps


@dataclass(frozen=True, kw_only=True)
class TimeSeriesConfig:
    """How tables become series, and series windows."""

    name: str = "time-series"
    horizon: int = 0  # steps to predict; 0 = one season, or 24
    lookback: int = 0  # steps to read before them; 0 = by season, horizon and length
    time: str = ""  # the column of times; "" = found by its contents
    id: str = ""  # the column that names the series of a row, where rows of several are mixed
    known: str = ""  # columns whose future is known, such as holidays: a,b
    static: str = ""  # columns that are the same in all rows of a series
    step: str = ""  # such as 15min, 1h, 1d: rows are averaged to it; "" = inferred
    fill: Literal["mask", "forward", "linear", "zero"] = "mask"  # missing values
    season: int = 0  # steps; 0 = found by autocorrelation
    borders: str = ""  # the ends of training, validation and test, as times or numbers of steps

    def __post_init__(self) -> None:
        check_range("horizon", self.horizon, 1 << 16)
        check_range("lookback", self.lookback, 1 << 20)
        check_range("season", self.season, 1 << 20)


def names_in(cell: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in cell.split(",") if name.strip())


class TimeSeries(Modality):
    """Series in the columns of tables, one below another, or in arrays."""

    name = "time-series"
    kind = "series"
    words = ("series", "time series")
    Config: ClassVar[type] = TimeSeriesConfig

    @classmethod
    def recognize(cls, files: Sequence[Path]) -> bool:
        from regard.modalities.time_series.files import holds_series

        return bool(holds_series(files))

    @classmethod
    def suggest_task(cls, files: Sequence[Path]) -> tuple[str, str]:
        from regard.modalities.time_series.files import holds_series

        return "forecast", holds_series(files)

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        from regard.modalities.time_series.columns import holds_dates

        if not holds_dates(sample.cells):
            return None
        return ColumnKind(name="dates", reason="times or dates", score=8)

    def read(self, request: ReadRequest) -> FileSet:
        from regard.modalities.time_series.splits import SplitSeries

        config = self.config
        return SplitSeries(
            request.files,
            request.columns,
            borders=names_in(config.borders),
            format=request.format,
            time=config.time,
            id=config.id,
            known=names_in(config.known),
            static=names_in(config.static),
            step=config.step,
            fill=config.fill,
            strict=request.strict,
            encoding=request.encoding,
        )

    def items(self, path: Path, encoder: Any, *, strict: bool = True) -> Iterator[tuple[str, Any]]:
        from regard.data.labelled import ColumnSelection
        from regard.data.sources import ReadRequest

        columns = ColumnSelection(targets=encoder.columns[: encoder.n_channels])
        files = self.read(ReadRequest([path], columns, strict=strict))
        for chunk in files.records():
            for number, series in enumerate(chunk.texts):
                yield chunk.place(number), series

    def fit_encoder(self, items: Iterable[Any]) -> Steps:
        from regard.tokenizers.series import Steps

        series = list(items)
        known = names_in(self.config.known)
        return Steps.train(
            series,
            columns=(*series[0].columns, *known),
            n_known=len(known),
            static=names_in(self.config.static),
            lookback=self.config.lookback,
            horizon=self.config.horizon,
            season=self.config.season,
        )

    def defaults(self, tables: Tables, source: FileSet, kind: OutputKind) -> list[str]:
        raise UsageError("series are forecast: --task forecast")

    def report(self, sources: DataSource, why: str) -> Any:
        from regard.modalities.time_series.report import inspect_series

        return inspect_series(sources, why)
