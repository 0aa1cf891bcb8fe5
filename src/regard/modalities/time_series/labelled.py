"""Series as records with labels or values: of a whole series, or of each of its steps.

A long table has a row for each step, a column that names the series, and columns of targets. A
table may also hold one series a row, as those of the UCR archive do; a file of arrays holds many
series and their targets; and a folder of series, one a file, stands for each class.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.formats import SkippedRecords, folder_name
from regard.data.labelled import LABEL, ColumnSelection
from regard.data.media import (
    ARRAY_SUFFIXES,
    Array,
    MediaChunk,
    MediaFiles,
    MediaRow,
    RowOrProblem,
    describe_arrays,
    files_in,
    read_arrays,
    read_headers,
    require_array,
    suffix,
    target_cells,
)
from regard.data.report import MediaReport, media_report
from regard.data.sources import DataSource
from regard.data.targets import GAP, Cells, Notation, notation_of
from regard.data.text_files import SPLIT_FOLDERS
from regard.errors import UsageError, UserError
from regard.modalities.point_clouds.files import TargetTable
from regard.modalities.time_series.columns import (
    TIME_NAMES,
    Columns,
    Floats,
    SeriesTable,
    choose_notation,
    detect_format,
    filled_cells,
    find_time,
    holds_numbers,
    open_table,
    read_numbers,
)
from regard.modalities.time_series.files import (
    Series,
    SeriesBuilder,
    SeriesFiles,
    SeriesRows,
    TableRows,
)
from regard.modalities.time_series.times import Step
from regard.registry import TABLES

SERIES = "series"  # data.format
VALUE_ARRAYS = ("X", "series", "signals")  # names in a .npz
TARGET_ARRAYS = ("y", "labels", "label", "targets", "target", "Y")
FEW_COLUMNS = 8  # of numbers, from which on a row may be a series
SAMPLE = 1000  # rows that tell what a table holds
STEP_NUMBER = re.compile(r"^(\D*?)[\s_.\-]*(\d+)$")  # the name of a column: a word and a number
SHOWN = 5


class StepLabels(str):
    """The labels of the steps of a series, as one cell; its elements are the labels."""

    labels: tuple[str, ...]

    def __new__(cls, labels: Sequence[str]) -> StepLabels:
        cell = super().__new__(cls, "\x1f".join(labels))
        cell.labels = tuple(labels)
        return cell

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def strip(self, characters: str | None = None, /) -> StepLabels:
        return self

    def first(self, count: int) -> StepLabels:
        """Return the labels of the first steps."""
        return StepLabels(self.labels[:count])


def first_label(cell: str) -> str:
    """Return the first known label of steps, or another cell as it is."""
    labels: Sequence[str] = getattr(cell, "labels", (cell,))
    return next((label for label in labels if label != GAP), "")


@dataclass(frozen=True, eq=False)
class LabelledSeries(Series):
    """A series with the cells of its static columns at each step, (T,) for each column."""

    labels: tuple[tuple[str, ...], ...] = ()


class LabelledBuilder(SeriesBuilder):
    """Builds series that keep the cells of static columns at each step; they may change."""

    def _place_on_grid(self, group: SeriesRows, numbers: Floats, step: Step) -> Any:
        path, line, series = super()._place_on_grid(group, numbers, step)
        positions = step.index(group.distinct)
        labels = []
        for column in self.rows.static:
            cells = [""] * len(series)
            for position, row in zip(positions.tolist(), group.last.tolist(), strict=True):
                cells[position] = column[row]
            labels.append(tuple(cells))
        fields = {name: getattr(series, name) for name in series.__dataclass_fields__}
        return path, line, LabelledSeries(**fields, labels=tuple(labels))

    def _static_cells(self, group: SeriesRows) -> tuple[str, ...]:
        return ()


class LongTables(SeriesFiles):
    """Long tables whose static columns are targets."""

    def new_builder(self, rows: TableRows, skipped: SkippedRecords) -> SeriesBuilder:
        return LabelledBuilder(self.roles, rows, skipped)

    def _note_static(self, items: Sequence[Series], skipped: SkippedRecords) -> None:
        """Targets are no covariates: there is nothing to note."""


@dataclass(frozen=True)
class TableShape:
    """What a table holds: a series a row, in `columns`, or series one below another."""

    wide: bool
    columns: tuple[str, ...] = ()
    id: str = ""
    time: str = ""
    why: str = ""


def shape_of(table: SeriesTable, taken: Sequence[str], id: str = "", time: str = "") -> TableShape:
    """Return what a table holds besides the columns that are `taken` for targets."""
    sample = {name: cells[:SAMPLE] for name, cells in table.sample(SAMPLE).items()}
    names = [name for name in sample if name not in taken]
    others = [name for name in names if filled_cells(sample[name])]
    time = time or find_time(sample, taken) or find_unordered_time(sample, taken)
    if not id and are_steps(others, sample):
        count = f"{len(others):,} steps of a row"
        return TableShape(True, tuple(others), why=f"a series a row, in {count}")
    if not id:
        id = find_series_column(sample, [*taken, time], time)
    why = f"series in {id!r}" if id else ""
    return TableShape(False, id=id, time=time, why=why)


def find_unordered_time(sample: Columns, taken: Sequence[str]) -> str:
    """Return the column of whole numbers that is named as times are, or "": rows may be in any
    order.
    """
    for name, cells in sample.items():
        filled = filled_cells(cells)
        named = name.strip().lower() in TIME_NAMES and name not in taken
        if named and filled and all(cell.isdecimal() for cell in filled):
            return name
    return ""


def are_steps(names: Sequence[str], sample: Columns) -> bool:
    """Return whether columns are the steps of a series: many, all of numbers, and numbered one
    after the other.
    """
    if len(names) < FEW_COLUMNS:
        return False
    matches = [STEP_NUMBER.match(name) for name in names]
    if not all(matches) or len({match[1] for match in matches if match}) > 1:
        return False
    steps = [int(match[2]) for match in matches if match]
    rising = all(b - a == 1 for a, b in pairwise(steps))
    return rising and all(holds_numbers(sample[name]) for name in names)


def find_series_column(sample: Columns, taken: Sequence[str], time: str) -> str:
    """Return the column that names the series of a row, or "": its cells stay the same over many
    rows, in which times rise. Of several, one whose name is or ends with id, or the one with most
    series.
    """
    candidates: dict[str, int] = {}
    for name, cells in sample.items():
        distinct = len(set(cells))
        if name in taken or not distinct >= 2 or 2 * distinct > len(cells) or "" in cells:
            continue
        changes = sum(a != b for a, b in pairwise(cells))
        mixed = bool(time) and len({*zip(cells, sample[time], strict=True)}) == len(cells)
        integral = all("." not in cell for cell in cells)  # values are rarely whole numbers
        if integral and (changes == distinct - 1 or (mixed and not holds_numbers(cells))):
            candidates[name] = distinct
    named = [name for name in candidates if re.search(r"(^|[\W_])id\s*$", name, re.IGNORECASE)]
    return max(named or candidates, key=lambda name: candidates[name], default="")


def holds_labels(paths: Sequence[Path], targets: Sequence[str], id: str = "") -> bool:
    """Return whether targets are labels of series, rather than numbers to forecast: they are texts,
    or each series has one, or they stand in a file.
    """
    if not targets or any(Path(name).is_file() for name in targets):
        return bool(targets)
    try:
        if suffix(paths[0]) in ARRAY_SUFFIXES:
            shapes = {name: header.shape for name, header in read_headers(paths[0])}
            items = {shape[0] for shape in shapes.values() if len(shape) > 1}
            return all(shapes.get(name, (0,))[:1] == (n,) for name in targets for n in items)
        wanted = [name for name in targets if not name.isdecimal()]
        table = open_table(paths[0], detect_format(paths[0]), wanted=wanted)
        names = [resolve(name, table.names) for name in targets]
        shape = shape_of(table, names, id)
        sample = table.sample()
        if shape.wide or any(not holds_numbers(sample[name]) for name in names):
            return True
        if shape.id not in sample:
            return False
        keys = sample[shape.id]
        pairs = [len(set(zip(keys, sample[name], strict=True))) for name in names]
        return max(pairs) == len(set(keys)) < len(keys)
    except (UserError, OSError, KeyError):
        return False


def class_folders_of(paths: Sequence[Path]) -> bool:
    """Return whether a folder holds a folder of tables or arrays for every class."""
    if len(paths) != 1 or not paths[0].is_dir():
        return False
    names = {folder_name(file) for file in files_in(paths, SeriesRecords.endings)}
    parents = {file.parent.parent for file in files_in(paths, SeriesRecords.endings)}
    splits = {name.lower() for name in names} & SPLIT_FOLDERS
    return len(names) > 1 and len(parents) == 1 and not splits


def holds_labelled_series(paths: Sequence[Path]) -> str:
    """Return why files are labelled series by themselves, without a column of targets, or ""."""
    try:
        if class_folders_of(paths):
            first = next(files_in(paths, SeriesRecords.endings))
            return "a folder of series for every class" if numeric_file(first) else ""
        first = paths[0]
        if first.suffix.lower() != ".npz" or not first.is_file():
            return ""
        headers = dict(read_headers(first))
        values = [name for name in VALUE_ARRAYS if name in headers]
        labels = [name for name in TARGET_ARRAYS if name in headers]
        if not values or not labels or headers[values[0]].dtype.kind not in "fiu":
            return ""
        shape = headers[values[0]].shape
        fits = len(shape) == 2 or (len(shape) == 3 and shape[2] > 3)
        return f"series in {values[0]!r}, targets in {labels[0]!r}" if fits else ""
    except (UserError, OSError):
        return ""


def numeric_file(path: Path) -> bool:
    """Return whether a file holds an array of numbers, or a table of numbers and times."""
    if suffix(path) in ARRAY_SUFFIXES:
        shapes = [header.shape for _, header in read_headers(path)]
        return len(shapes) == 1 and len(shapes[0]) in (1, 2)
    format = detect_format(path)
    if format not in TABLES:
        return False
    columns = open_table(path, format).sample(SAMPLE)
    time = find_time(columns)
    return all(holds_numbers(cells) for name, cells in columns.items() if name != time)


def holds_labelled_table(paths: Sequence[Path], targets: Sequence[str]) -> str:
    """Return why a table with columns of targets holds series besides them, or ""."""
    try:
        first = paths[0]
        format = detect_format(first) if first.is_file() else ""
        if format not in TABLES:
            return ""
        table = open_table(first, format, wanted=[n for n in targets if not n.isdecimal()])
        names = [resolve(name, table.names) for name in targets]
        if not all(name in table.names for name in names):
            return ""
        shape = shape_of(table, names)
        if shape.wide:
            return shape.why
        sample = table.sample(SAMPLE)
        time = find_time(sample, names)
        rest = [n for n in table.names if n not in (*names, shape.id, time)]
        numbers = [n for n in rest if filled_cells(sample[n]) and holds_numbers(sample[n])]
        texts = [n for n in rest if n not in numbers and len(set(sample[n])) * 2 > len(sample[n])]
        return shape.why if shape.id and numbers and not texts else ""
    except (UserError, OSError, IndexError):
        return ""


def resolve(name: str, names: Sequence[str]) -> str:
    """Return the column that is named, or numbered from 1."""
    if name not in names and name.isdecimal() and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    return name


class SeriesRecords(MediaFiles):
    """Files of series as records with targets. `columns` are those of values, by default all of
    numbers; `options` are those of `SeriesFiles`, for tables with a row for each step.
    """

    medium, endings = (
        SERIES,
        tuple(
            [
                *(end for name in TABLES for end in TABLES[name].suffixes),
                ".parquet",
                *ARRAY_SUFFIXES,
            ]
        ),
    )

    def __init__(
        self,
        paths: Sequence[Path],
        asked: ColumnSelection,
        *,
        columns: Sequence[str] = (),
        exclude: Sequence[str] = (),
        labelled: bool = True,
        longest: int = 0,
        strict: bool = False,
        **options: Any,
    ) -> None:
        """`exclude` are columns that hold no values; where columns are numbered and not more than
        the steps of the `longest` series, these are not there.
        """
        self.value_columns, self.labelled, self.options = tuple(columns), labelled, options
        self.exclude, self.longest = tuple(exclude), longest
        self.by_folder = False  # a folder is a class
        self.shape: TableShape | None = None
        self.changing: dict[str, str] = {}  # where the first of each target changes in a series
        self._target_table: TargetTable | None = None
        self._n_read = 0
        super().__init__(paths, asked, strict=strict)

    def lists_paths(self) -> bool:
        return False

    def locate_targets(self) -> str:
        first, targets = self.files[0], self.asked.targets
        self.by_folder = self.labelled and not targets and class_folders_of(self.paths)
        if self.by_folder:
            return self.use_folder_names()
        if suffix(first) in ARRAY_SUFFIXES:
            self.names = targets or (LABEL,)
            return "NumPy arrays"
        file = self.asked.labels
        if len(targets) == 1 and Path(targets[0]).is_file():
            file, targets = Path(targets[0]), ()
        table = self.open(first)
        names = tuple(resolve(name, table.names) for name in targets)
        taken = [*names, *self.asked.asides]
        if table.header or len(table.names) > self.longest:
            taken += [name for name in self.exclude if name in table.names]
        self.shape = shape_of(
            table, taken, str(self.options.get("id", "")), str(self.options.get("time", ""))
        )
        why = self.shape.why or "one series"
        if file is not None and self.labelled:
            self._target_table = TargetTable(file, targets or ("2",))
            self.names = targets or (LABEL,)
            where = self._target_table.match(self._first_name())
            return f"{table.format}: {why}, targets from {file.name}, {where}"
        if not targets and self.labelled:
            raise UsageError(
                f"{first}: where are the labels? say --target COLUMN, --target FILE of labels by "
                "id, or give a folder of series for every class"
            )
        for name in names:
            if name not in table.names:
                raise UsageError(
                    f"--target {name}: {first} has no such column; it has "
                    f"{', '.join(table.names[:12])}"
                )
        self.names = names if self.labelled else (LABEL,)
        return f"{table.format}: {why}" + (f", targets in {', '.join(names)}" if names else "")

    def value_names(self) -> tuple[str, ...]:
        """Return the columns of values of tables with a row for each step; of others, none."""
        if self.shape is None and not self.by_folder:
            return ()
        if self.shape is not None and self.shape.wide:
            return ()
        if suffix(self.files[0]) in ARRAY_SUFFIXES:
            return ()
        return self.value_columns or self.long_table(self.files[0], self.targets_read).names

    @property
    def targets_read(self) -> tuple[str, ...]:
        """The columns of targets that a table has."""
        apart = self._target_table is not None or self.by_folder or not self.labelled
        return () if apart else self.names

    def taken(self) -> tuple[str, ...]:
        """Return the columns of a table that hold no values."""
        return (*self.exclude, *self.targets_read, *self.asked.asides) if self.shape else ()

    def _first_name(self) -> str:
        for row in self.rows_of_table(self.files[0], ()):
            return "" if isinstance(row, str) else row.where
        return ""

    def open(self, path: Path) -> SeriesTable:
        format = detect_format(path)
        if format not in TABLES:
            raise UserError(f"{path}: is read as {format or 'plain text'}, which holds no series")
        wanted = [*self.asked.targets, *self.asked.asides, str(self.options.get("id", ""))]
        return open_table(path, format, wanted=[n for n in wanted if n and not n.isdecimal()])

    @property
    def all_files(self) -> list[Path]:
        target_file = self._target_table.path if self._target_table else None
        return [*self.files, *([target_file] if target_file else [])]

    def digest(self, item: Floats) -> str:
        digest = hashlib.blake2b(repr(item.shape).encode(), digest_size=12)
        digest.update(np.ascontiguousarray(item).data)
        return digest.hexdigest()

    def read(self, path: Path) -> Floats:
        row = next(self.rows(path), None)
        if row is None or isinstance(row, str):
            raise ValueError(row or "holds nothing")
        values: Floats = row.item
        return values

    def rows(self, path: Path) -> Iterator[RowOrProblem]:
        if path == self.files[0]:
            self._n_read = 0
        targets = self.targets_read
        if self.by_folder:
            rows = self._file_rows(path)
        elif not self.labelled and suffix(path) == ".npy":
            rows = (
                row._replace(cells=()) if not isinstance(row, str) else row
                for row in self._file_rows(path)
            )
        elif suffix(path) in ARRAY_SUFFIXES:
            rows = self._array_rows(path)
        elif self.shape is not None and self.shape.wide:
            rows = self._wide_rows(path, targets)
        else:
            rows = self.rows_of_table(path, targets)
        for row in rows:
            number = self._n_read
            self._n_read += 1
            if isinstance(row, str) or self._target_table is None:
                yield row
                continue
            try:
                cells = self._target_table.cells(row.where, number)
                yield row._replace(cells=cells, where=f"{path} ({row.where})")
            except ValueError as error:
                yield f"{path}: {error}"

    # One series a file.

    def _file_rows(self, path: Path) -> Iterator[RowOrProblem]:
        """Yield the one series of a file, whose folder is its class."""
        if suffix(path) in ARRAY_SUFFIXES:
            arrays = [a for a in read_arrays(path).values() if a.ndim in (1, 2)]
            if len(arrays) != 1 or arrays[0].dtype.kind not in "biuf" or not arrays[0].size:
                yield f"{path}: must hold one array (steps,) or (steps, columns) of numbers"
                return
            values = arrays[0].reshape(len(arrays[0]), -1).astype(float)
            yield MediaRow(values, (folder_name(path),), str(path))
            return
        for row in self.rows_of_table(path, ()):
            if isinstance(row, str):
                yield row
            else:
                yield row._replace(cells=(folder_name(path),), where=str(path))

    # One series a row.

    def _wide_rows(self, path: Path, targets: Sequence[str]) -> Iterator[RowOrProblem]:
        assert self.shape is not None
        table, steps = self.open(path), self.shape.columns
        if missing := [name for name in (*steps, *targets) if name not in table.names]:
            raise UserError(f"{path}: has no column {missing[0]!r}, unlike {self.files[0]}")
        sample = table.sample()
        notations = [choose_notation(sample[name], commas=table.commas) for name in steps]
        blank = dict.fromkeys(("", *self.asked.missing), "nan")
        names = [*steps, *self.targets_read, *self.asked.asides]
        for columns, lines in table.batches(names, SkippedRecords()):
            values = np.empty((len(lines), len(steps)))
            damaged: dict[int, str] = {}
            for i, notation in enumerate(notations):
                values[:, i], bad = read_numbers(columns[i], notation, blank)
                for row in bad:
                    damaged.setdefault(row, f"{columns[i][row][:40]!r} is no number")
            rest = columns[len(steps) :]
            for i, line in enumerate(lines):
                cells = tuple(column[i] for column in rest)
                labels, asides = cells[: len(targets)], cells[len(targets) :]
                yield self._row(
                    values[i][:, None], labels, f"{path}:{line}", damaged.get(i), asides
                )

    def _row(
        self,
        values: Floats,
        cells: Cells,
        where: str,
        damage: str | None = None,
        asides: Cells = (),
    ) -> RowOrProblem:
        """Return a series without missing steps at its end; a problem if nothing is left."""
        if damage:
            return f"{where}: {damage}"
        known = np.flatnonzero(np.isfinite(values).any(1))
        if not len(known):
            return f"{where}: has no number"
        length = int(known[-1]) + 1
        values = np.where(np.isinf(values[:length]), np.nan, values[:length])
        shorter = tuple(
            cell.first(length) if cell.__class__ is StepLabels else cell for cell in cells
        )
        return MediaRow(np.ascontiguousarray(values), shorter, where, asides)

    # A row for each step.

    def rows_of_table(self, path: Path, targets: Sequence[str]) -> Iterator[RowOrProblem]:
        """Yield the series of a table with a row for each step."""
        files = self.long_table(path, targets)
        items: list[tuple[LabelledSeries, str]] = []
        for chunk in files.records():
            items += [(series, chunk.place(i)) for i, series in enumerate(chunk.texts)]  # type: ignore[misc]
        self._skipped_records.notes |= {
            key: note for key, note in files._skipped_records.notes.items() if key != "no times"
        }
        yield from files.problems
        for number, (series, _) in enumerate(items):
            for i, name in enumerate(targets):
                if name not in self.changing and len(set(series.labels[i]) - {""}) > 1:
                    self.changing[name] = self._change(series, i, items[number][1])
        count = len(targets)
        for series, location in items:
            cells = tuple(map(self._step_labels, series.labels[:count]))
            others = series.labels[count : count + len(self.asked.asides)]
            asides = tuple(next(filter(None, row), "") for row in others)
            where = series.name if not targets else f"{location} ({series.name})".replace(" ()", "")
            yield self._row(series.values, cells, where or location, None, asides)

    def _step_labels(self, cells: Sequence[str]) -> StepLabels:
        return StepLabels([GAP if cell in ("", *self.asked.missing) else cell for cell in cells])

    def long_table(self, path: Path, targets: Sequence[str]) -> LongTables:
        """Return the reader of a table with a row for each step."""
        static = [*targets, *self.asked.asides]
        options = dict(self.options)
        if self.shape is not None and self.shape.id:
            options["id"] = self.shape.id
        if self.shape is not None and self.shape.time:
            options["time"] = self.shape.time
        columns = self.value_columns
        if not columns and self.exclude:
            present = set(self.open(path).names)
            static += [n for n in self.exclude if n in present and n not in static]
        return LongTables(
            [path],
            ColumnSelection(targets=columns, missing=self.asked.missing),
            static=static,
            strict=self.strict,
            **options,
        )

    @staticmethod
    def _change(series: LabelledSeries, column: int, place: str) -> str:
        """Return where and how a target changes within a series."""
        cells = [cell for cell in series.labels[column] if cell]
        other = next(cell for cell in cells if cell != cells[0])
        name = f"series {series.name!r}" if series.name else "the series"
        return f"{name} ({place}), from {cells[0][:40]!r} to {other[:40]!r}"

    def targets_of(self, cells: Cells, location: str, skipped: SkippedRecords) -> Cells | None:
        if not self.labelled:
            return ()
        return super().targets_of(tuple(map(self._cell, cells)), location, skipped)

    def _cell(self, cell: str) -> str:
        """Return the labels of all steps where each has its own, or else the one they share."""
        labels: Sequence[str] = getattr(cell, "labels", ())
        if not labels or self.kind.aligned or (self.changing and not self.kind.written):
            return cell
        return first_label(cell)

    def _chunk_of(self, rows: Sequence[RowOrProblem], skipped: SkippedRecords) -> MediaChunk:
        if self.changing and self.kind.written and not self.kind.aligned:
            name, where = next(iter(self.changing.items()))
            raise UsageError(
                f"--target {name}: changes within {where}; a label for each step is --task "
                "position-label, and --task forecast predicts the next numbers"
            )
        return super()._chunk_of(rows, skipped)

    def _written(self) -> Iterator[Cells]:
        rows = self._all_rows() if self._cached_rows is None else iter(self._cached_rows)
        for row in rows:
            if not isinstance(row, str):
                yield tuple(map(first_label, row.cells))

    @property
    def notations(self) -> list[Notation]:
        if self.shape is None or self._target_table is not None:
            return [Notation() for _ in self.names]
        if self._notations is None:
            columns = zip(*self._written(), strict=True)
            commas = self.open(self.files[0]).commas
            self._notations = [notation_of(column, commas=commas) for column in columns]
        return self._notations

    # Arrays.

    def _array_rows(self, path: Path) -> Iterator[RowOrProblem]:
        """Yield the series of a .npz or .npy file with its targets."""
        arrays = read_arrays(path)
        name = self._values_name(arrays, path)
        values = arrays[name].astype(float)
        if values.ndim == 2:
            values = values[..., None]
        if values.shape[2] > values.shape[1]:
            values = values.swapaxes(1, 2)  # the longer axis is time
        cells = self._array_targets(path, arrays, name, values.shape[:2])
        for i, series in enumerate(values):
            yield self._row(series, cells[i] if cells else (), f"{path}[{i}]")

    def _values_name(self, arrays: Mapping[str, Array], path: Path) -> str:
        given = self.asked.inputs[0]
        if given:
            require_array(dict(arrays), given, "--input", path)
            return given
        fitting = [n for n, a in arrays.items() if a.ndim in (2, 3) and a.dtype.kind in "biuf"]
        named = [n for n in (*VALUE_ARRAYS, "") if n in fitting]
        if not named and len(fitting) != 1:
            raise UsageError(
                f"{path}: which array is the series? --input; {describe_arrays(dict(arrays))}"
            )
        return (named or fitting)[0]

    def _array_targets(
        self, path: Path, arrays: Mapping[str, Array], values: str, shape: tuple[int, ...]
    ) -> list[Cells]:
        """Return the targets of each series; none if they are not asked for."""
        if not self.labelled:
            return []
        if len(self.asked.targets) == 1 and Path(self.asked.targets[0]).is_file():
            file = Path(self.asked.targets[0])
            arrays = {LABEL: next(iter(read_arrays(file).values()))}
            names: Sequence[str] = (LABEL,)
        else:
            present = [n for n in TARGET_ARRAYS if n in arrays and n != values]
            names = self.asked.targets or tuple(present[:1])
        if not names:
            raise UsageError(
                f"{path}: which array is the targets? --target; {describe_arrays(dict(arrays))}"
            )
        for name in names:
            require_array(dict(arrays), name, "--target", path)
        columns = [self._target_column(path, name, arrays[name], shape) for name in names]
        widths = [len(column[0]) for column in columns]
        self.names = tuple(names)
        if len(names) == 1 and widths[0] > 1:
            self.names = tuple(f"{names[0]}{i + 1}" for i in range(widths[0]))
        return [tuple(c for cells in row for c in cells) for row in zip(*columns, strict=True)]

    def _target_column(
        self, path: Path, name: str, array: Array, shape: tuple[int, ...]
    ) -> list[Cells]:
        if len(array) != shape[0]:
            raise UserError(f"{path}: {shape[0]:,} series, but {len(array):,} targets in {name!r}")
        cells = target_cells(array, path)
        if array.ndim == 2 and array.shape == shape and array.dtype.kind in "biuSU":
            self.changing.setdefault(name, f"{path}: it has a label for each step")
            return [(self._step_labels(row),) for row in cells]
        return cells


def unlabelled_series(
    paths: Sequence[Path], columns: Sequence[str], *, strict: bool, **options: Any
) -> Iterator[tuple[str, Floats | str]]:
    """Yield the series of files, each after its name or place; a damaged one is a UserError or,
    unless `strict`, what is wrong with it.
    """
    records = SeriesRecords(paths, ColumnSelection(), columns=columns, labelled=False, **options)
    for path in records.files:
        for row in records.rows(path):
            if isinstance(row, str):
                if strict:
                    raise UserError(row)
                location, _, problem = row.partition(": ")
                yield location, problem or row
            else:
                yield row.where, row.item


@dataclass(frozen=True, kw_only=True)
class SeriesRecordsReport(MediaReport):
    """What `inspect_records` found: steps of the shortest, a usual and the longest series."""

    steps: tuple[int, int, int]
    columns: list[str]
    missing: float

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        least, middle, most = self.steps
        rows = [
            ("read as", f"{self.format} ({self.why})"),
            ("series", f"{self.records:,}"),
            ("steps", f"{least:,} to {most:,}, half have {middle:,} or fewer"),
            ("columns", ", ".join(self.columns[:12]) + ", …" * (len(self.columns) > 12)),
        ]
        if self.missing:
            rows.append(("missing", f"{self.missing:.1%} of the values"))
        return rows + self.rest()

    def to_json(self) -> dict[str, Any]:
        if self.labels is not None:
            return MediaReport.to_json(self)
        names = ("format", "why", "records", "steps", "columns", "missing", "copies")
        return {name: getattr(self, name) for name in names}


def inspect_records(sources: DataSource, why: str) -> SeriesRecordsReport:
    """Return the report on series whose task is known."""
    items = [values for chunk in sources.chunks() for values in chunk.texts]
    counts = sorted(map(len, items))
    reader: Any = sources.train
    unknown, total = sum(int(np.isnan(v).sum()) for v in items), sum(v.size for v in items)
    return SeriesRecordsReport(
        **media_report(sources, why),
        steps=(counts[0], counts[len(counts) // 2], counts[-1]),
        columns=list(reader.value_names()) or [str(i + 1) for i in range(items[0].shape[1])],
        missing=unknown / max(1, total),
    )
