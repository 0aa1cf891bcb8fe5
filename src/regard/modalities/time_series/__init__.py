"""Time series: numbers at equal steps of time, in the columns of a table or in arrays.

To be forecast they are read in windows, which split them in time. To be labelled, or filled in,
each is an item, cut into patches of a few steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.data.column_kinds import CellSample, ColumnKind
from regard.errors import UsageError
from regard.modalities import Modality, Tables
from regard.recipe import check_range

if TYPE_CHECKING:
    from regard.data import Roles
    from regard.data.sources import DataSource, ReadRequest
    from regard.data.targets import OutputKind
    from regard.data.text_files import FileSet
    from regard.look.page.records import Picture
    from regard.recipe import DataRecipe
    from regard.tokenizers import Tokenizer


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
    patch: int = 0  # steps of a token of series with labels; 0 = by their lengths
    columns: str = ""  # of the values of series with labels; "" = all of numbers
    exclude: str = ""  # columns that hold no values

    def __post_init__(self) -> None:
        check_range("horizon", self.horizon, 1 << 16)
        check_range("lookback", self.lookback, 1 << 20)
        check_range("season", self.season, 1 << 20)
        check_range("patch", self.patch, 1 << 12)


def names_in(cell: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in cell.split(",") if name.strip())


class TimeSeries(Modality):
    """Series in the columns of tables, one below another, or in arrays."""

    name = "time-series"
    kind = "series"
    words = ("series", "time series")
    has_pictures = True
    array_axes = (2,)
    Config: ClassVar[type] = TimeSeriesConfig

    def picture(self, item: Any) -> Picture:
        from regard.look.records import thin_series

        return thin_series(getattr(item, "values", item))  # of a series to forecast, or an array

    @classmethod
    def recognize(cls, files: Sequence[Path]) -> bool:
        from regard.modalities.images.files import holds_images
        from regard.modalities.time_series.files import holds_series
        from regard.modalities.time_series.labelled import holds_labelled_series

        if any(path.is_dir() for path in files) and holds_images(files):
            return False
        return bool(holds_labelled_series(files) or holds_series(files))

    @classmethod
    def recognize_table(cls, files: Sequence[Path], targets: Sequence[str]) -> bool:
        from regard.modalities.time_series.labelled import holds_labelled_table

        return bool(holds_labelled_table(files, targets))

    def holds_items(self, path: Path) -> bool:
        from regard.data.media import suffix
        from regard.modalities.time_series.labelled import SeriesRecords

        return suffix(path) in SeriesRecords.endings

    def suggest_task(self, files: Sequence[Path], targets: Sequence[str]) -> tuple[str, str]:
        from regard.modalities.time_series.files import holds_series
        from regard.modalities.time_series.labelled import holds_labelled_series, holds_labels

        if holds_labelled_series(files) or holds_labels(files, targets, self.config.id):
            return "", ""
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
        if request.labelled or config.patch:
            return self.read_records(request)
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

    def read_records(self, request: ReadRequest) -> FileSet:
        """Return the reader of series that are records."""
        from regard.modalities.time_series.labelled import SeriesRecords

        config, options = self.config, self.options
        return SeriesRecords(
            request.files,
            request.columns,
            columns=names_in(config.columns),
            exclude=names_in(config.exclude),
            labelled=request.labelled,
            strict=request.strict,
            encoding=request.encoding,
            **options,
        )

    @property
    def options(self) -> dict[str, Any]:
        """How tables with a row for each step are read."""
        config = self.config
        return {"time": config.time, "id": config.id, "step": config.step, "fill": config.fill}

    def items(self, path: Path, encoder: Any, *, strict: bool = True) -> Iterator[tuple[str, Any]]:
        if self.config.patch:
            from regard.modalities.time_series.labelled import unlabelled_series

            exclude, values = names_in(self.config.exclude), names_in(self.config.columns)
            more: Any = self.options | {"exclude": exclude, "longest": encoder.longest}
            yield from unlabelled_series([path], values, strict=strict, **more)
            return
        from regard.data.labelled import ColumnSelection
        from regard.data.sources import ReadRequest

        columns = ColumnSelection(targets=encoder.columns[: encoder.n_channels])
        files = self.read(ReadRequest([path], columns, strict=strict))
        for chunk in files.records():
            for number, series in enumerate(chunk.texts):
                yield chunk.place(number), series

    def from_memory(self, values: list[Any], encoder: Any) -> list[Any]:
        """Series may have their steps in the second axis."""
        columns = len(encoder.columns)
        return [one.T if one.ndim == 2 and one.shape[1] != columns else one for one in values]

    def fit_encoder(self, items: Iterable[Any]) -> Tokenizer:
        from regard.tokenizers.series import Steps

        if self.config.patch:
            from regard.tokenizers.step_patches import StepPatches

            columns = names_in(self.config.columns)
            return StepPatches.train(items, patch=self.config.patch, columns=columns)
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
        from regard.modalities.time_series.sizes import SeriesSizes, fill_columns, size_series_model
        from regard.training.defaults import fill_split

        facts = SeriesSizes.of(source.records())
        fill_split(tables["data"], facts.count)
        table = tables["input"]
        fill_columns(table, source, facts)
        why = "as asked" if table.get("patch") else "by their length"
        if kind.aligned:
            if table.get("patch", 1) != 1:
                raise UsageError("input.patch must be 1 where each step has a label")
            table["patch"], why = 1, "each has a label"
        return size_series_model(tables, facts, f"{source.why}", why)

    def masked_defaults(self, tables: Tables, data: DataRecipe, roles: Roles) -> list[str]:
        from regard.data.sources import DataSource
        from regard.modalities.time_series.sizes import SeriesSizes, fill_columns, size_series_model

        as_records = TimeSeries(replace(self.config, patch=self.config.patch or 1))
        source = DataSource(data, roles, as_records).train
        facts = SeriesSizes.of(source.records())
        tables["input"]["name"] = self.name
        fill_columns(tables["input"], source, facts)
        why = "as asked" if self.config.patch else "by their length"
        return size_series_model(tables, facts, source.why, why)

    def report(self, sources: DataSource, why: str) -> Any:
        if sources.train.continuous:
            from regard.modalities.time_series.report import inspect_series

            return inspect_series(sources, why)
        from regard.modalities.time_series.labelled import inspect_records

        return inspect_records(sources, why)
