"""Files of time series: tables with a column for every target, tables with the series one below
another, and NumPy arrays.

A wide table has a column of times and one column for each target; a long table also has a column
that names the series of a row. Unsorted rows, repeated times and gaps are repaired; `remarks` has
the count of each repair and the file and line of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.column_kinds import SEQUENCE, CellSample, recognize
from regard.data.formats import (
    UTF8,
    SkippedRecords,
    expand,
    is_archive,
    known_suffixes,
    list_files,
    split_member,
)
from regard.data.labelled import ColumnSelection, columns_of
from regard.data.media import ARRAY_SUFFIXES, describe_arrays, read_arrays, suffix
from regard.data.targets import Notation
from regard.data.text_files import Chunk, FileSet
from regard.errors import UsageError, UserError, did_you_mean
from regard.modalities.time_series.columns import (
    ARRAYS,
    MAX_REPEATED,
    TIME_ROWS,
    ColumnRoles,
    Columns,
    Floats,
    SeriesTable,
    choose_notation,
    detect_format,
    filled_cells,
    find_time,
    have_repeats,
    holds_numbers,
    is_free_text,
    join_cells,
    number_columns,
    open_table,
    read_numbers,
)
from regard.modalities.time_series.times import (
    NUMBER,
    YEARS,
    Array,
    DaylightSaving,
    Integers,
    Step,
    Times,
    find_daylight_saving,
    find_step,
    format_count,
    format_time,
    parse_step,
    parse_times,
)
from regard.registry import TABLES
from regard.tokenizers.series import StaticColumn, find_season, to_number
from regard.tokenizers.tokenizer import PLAIN, Canonical

FILLS = {
    "mask": "",
    "forward": "the value before",
    "linear": "a line between neighbours",
    "zero": "0",
}
ROLE_ROWS = 1000  # that tell numbers from texts and ids
MAX_SPARSE = 20, 10_000  # steps per row, and steps, beyond which a time must be wrong
SHOWN = 6  # columns named in a remark


@dataclass(frozen=True, eq=False)
class Series:
    """One series at equal steps of time; NaN is missing."""

    name: str  # its id, "" for the only one
    values: Floats  # (T, C), the targets
    known: Floats  # (T, K), covariates that are known in the future
    static: tuple[str, ...]  # cells of static columns
    start: np.datetime64 | int  # the time of the first step
    step: Step
    columns: tuple[str, ...] = ()  # names of the targets

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of steps and of targets."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def season(self) -> int:
        """The season in steps; 0: none was found."""
        columns = [self.values[:, i] for i in range(self.values.shape[1])]
        return find_season(columns, self.step.periods)

    @property
    def times(self) -> Array:
        """The time of each step."""
        return self.step.times(self.start, len(self))

    def times_after(self, steps: int, count: int) -> list[str]:
        """Return the times of `count` steps, the first of them `steps` after the start, as text."""
        return [format_time(time) for time in self.step.times(self.start, count, skip=steps)]


Located = tuple[Path, int, Series]  # a series with the file and line that it begins at


@dataclass(frozen=True, slots=True)
class SeriesChunk(Chunk):
    """Series of one file, in `texts`."""

    def keys(self, form: Canonical = PLAIN) -> Sequence[str]:
        return [_digest(series) for series in self.texts]


def _digest(series: Any) -> str:
    digest = hashlib.blake2b(f"{series.shape} {series.start}".encode(), digest_size=12)
    digest.update(np.ascontiguousarray(series.values).data)
    return digest.hexdigest()


def holds_series(files: Sequence[Path]) -> str:
    """Return why the first of these files is a table of time series, or ""; only its head is read.

    A column of times, one of numbers at least, and no free text make one; beside texts, the numbers
    of rows do not count. Arrays may hold anything.
    """
    try:
        first = next(iter(_series_files([Path(path) for path in files])), None)
        if first is None or suffix(first) in ARRAY_SUFFIXES:
            return ""
        format = detect_format(first)
        if format not in TABLES:
            return ""
        columns = open_table(first, format).sample(TIME_ROWS)
    except (UserError, OSError):
        return ""
    time = find_time(columns, strict=True)
    if not time:
        return ""
    repeated = have_repeats(columns[time])
    others = [cells for name, cells in columns.items() if name != time and filled_cells(cells)]
    texts = [cells for cells in others if not holds_numbers(cells)]
    n_numbers = len(others) - len(texts)
    if texts:
        n_numbers -= sum(map(number_rows, others))
    if not n_numbers or any(is_free_text(cells, repeated=repeated) for cells in texts):
        return ""
    if any(recognize(CellSample(cells=filled_cells(cells))).rank == SEQUENCE for cells in texts):
        return ""  # molecules with the days of their measurement are no series
    return f"times in {time!r} and {format_count(n_numbers, 'column')} of numbers"


def number_rows(cells: Sequence[str]) -> bool:
    """Return whether cells are whole numbers that grow from row to row, as the numbers of rows."""
    if not all(cell.strip().isdecimal() for cell in cells):
        return False
    return all(int(a) < int(b) for a, b in pairwise(cells))


def _series_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield files, and the tables and arrays in folders and archives."""
    tables = (ending for name in TABLES for ending in TABLES[name].suffixes)
    endings = (*tables, *ARRAY_SUFFIXES)
    for path in paths:
        if not path.is_dir() and not is_archive(path):
            yield from expand([path])
            continue
        files = list_files(path, lambda name: suffix(Path(name)) in endings)
        if not files:
            raise UserError(f"{path}: holds no tables or arrays ({' '.join(endings)})")
        yield from files


@dataclass(eq=False)
class TableRows:
    """The rows of all files, in order."""

    files: Sequence[Path]
    static: list[list[str]]  # by column
    file: list[int] = field(default_factory=list)  # index of the file of each row
    lines: list[int] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    numbers: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (R, C + K)
    damaged: list[tuple[int, int]] = field(default_factory=list)  # rows and columns of `numbers`

    def location(self, row: Any) -> str:
        """Return the file and line of a row."""
        return f"{self.files[self.file[row]]}:{self.lines[row]}"


@dataclass(eq=False)
class SeriesRows:
    """The rows of one series, sorted by time."""

    name: str
    rows: Integers  # (R,), indices into TableRows
    times: Array  # (R,)
    late: NDArray[np.bool_]  # (R,), whether the file has a later time above the row
    distinct: Array = field(init=False)  # (T,), times
    counts: Integers = field(init=False)  # (T,), rows of each of them
    last: Integers = field(init=False)  # (T,), the last of these rows

    def __post_init__(self) -> None:
        self.distinct, self.counts = np.unique(self.times, return_counts=True)
        self.last = self.rows[np.cumsum(self.counts) - 1]

    @classmethod
    def sort(cls, name: str, rows: Integers, times: Array) -> SeriesRows:
        """Sort rows by time; none is late if the newest come first."""
        order = np.argsort(times, kind="stable")
        newest_first = len(times) > 1 and bool((times[1:] <= times[:-1]).all())
        late = (times < np.maximum.accumulate(times)) & (not newest_first)
        return cls(name, rows[order], times[order], late[order])


class SeriesFiles(FileSet):
    """Files as time series. `time`, `id`, `known` and `static` name columns; `time` and `id` may
    name several, separated by commas, whose cells are joined.
    """

    items = "series"
    plain_bytes = 0

    def __init__(
        self,
        paths: Sequence[Path],
        columns: ColumnSelection,
        *,
        format: str = "auto",
        time: str = "",
        id: str = "",
        known: Sequence[str] = (),
        static: Sequence[str] = (),
        step: str = "",
        fill: str = "mask",
        strict: bool = False,
        encoding: str = UTF8,
    ) -> None:
        if fill not in FILLS:
            raise UsageError(f"input.fill = {fill!r}: {did_you_mean(fill, list(FILLS))}")
        text_format = "auto" if format in ARRAYS else format
        super().__init__(paths, text_format, strict, encoding)
        self.missing, self.fill = columns.missing, fill
        self.step = parse_step(step) if step else None
        self.format = format if format != "auto" else detect_format(self.files[0], self.encoding)
        if self.format not in (*ARRAYS, *TABLES):
            raise UsageError(
                f"{self.files[0]}: is read as {self.format or 'plain text'}, which holds no time "
                f"series; they stand in {', '.join((*TABLES, *ARRAYS))}: --set data.format"
            )
        self._notations: dict[str, Notation] = {}
        self._column_notes: dict[str, str] = {}
        self._chunks: list[SeriesChunk] | None = None
        self._requested = ColumnRoles(
            columns_of(time), columns_of(id), columns.targets, tuple(known), tuple(static)
        )
        if self.format in ARRAYS:
            self._plan_arrays()
        else:
            self._plan_table()
        self.names = self.roles.targets

    def _expanded(self) -> list[Path]:
        return list(_series_files(self.paths))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.roles.all

    def amount(self, chunk: Chunk) -> int:
        return len(chunk)

    def records(self) -> Iterator[Chunk]:
        if self._chunks is None:
            self._chunks = list(self._new_pass(self._read))
        yield from self._chunks

    # Which columns are read.

    def _plan_table(self) -> None:
        """Decide what each column is for; what is not named is found in the first rows."""
        first = self.files[0]
        self.table = self._open(first)
        sample = self.table.sample()
        columns = {name: cells[:ROLE_ROWS] for name, cells in sample.items()}
        self.roles = self._requested.resolve(self.table.names, first).infer(columns, first)
        unread = [name for name in columns if name not in self.roles.all]
        if unread and not self._requested.targets:
            are = "is text and is" if len(unread) == 1 else "are texts and are"
            example = next(iter(filled_cells(columns[unread[0]])), "")[:40]
            self._column_notes["texts"] = (
                f"{_list_columns(unread)} {are} not read ({example!r}); input.static or input.id "
                "can name such columns"
            )
        for name in self.roles.numbers:
            notation = choose_notation(sample[name], commas=self.table.commas)
            self._notations[name] = notation
            if not notation.usual:
                self._column_notes.setdefault(
                    notation.words, f"column {name!r} and those like it: read with {notation.words}"
                )
        self.why = self._reason(self._first_step(columns))

    def _open(self, path: Path) -> SeriesTable:
        return open_table(path, self.format, self.encoding, self._requested.names())

    def _first_step(self, columns: Columns) -> str:
        """Return the step of the first rows of the first series, in words, or ""."""
        if self.step or not self.roles.time:
            return self.step.name if self.step else ""
        cells = join_cells(columns, self.roles.time, " ")
        ids = join_cells(columns, self.roles.id, "/") or [""] * len(cells)
        times = parse_times([cell for cell, id in zip(cells, ids, strict=True) if id == ids[0]])
        try:
            values = np.unique(np.delete(times.values, times.bad))
            return find_step(values, unit=_unit(times)).name
        except UserError:
            return ""

    def _reason(self, step: str) -> str:
        """Return what the files are read as, in words."""
        roles = self.roles
        time = f"time in {' and '.join(map(repr, roles.time))}" if roles.time else "no times"
        series = f"series in {' and '.join(map(repr, roles.id))}, " if roles.id else ""
        parts = [f"{series}{time}"]
        parts += [f"step {step}"] if step else []
        parts += [format_count(len(roles.targets), "target")]
        parts += [f"{len(roles.known):,} known in the future"] if roles.known else []
        return f"{self.format}, {'long' if roles.id else 'wide'}: {', '.join(parts)}"

    # Rows.

    def _load(self, skipped: SkippedRecords) -> TableRows:
        """Read the rows of all files."""
        rows = TableRows(self.files, [[] for _ in self.roles.static])
        numbers = []
        for i, path in enumerate(self.files):
            for batch, lines in self._open_matching(path).batches(self.roles.all, skipped):
                if lines:
                    columns = dict(zip(self.roles.all, batch, strict=True))
                    numbers.append(self._read_batch(rows, path, columns, lines, skipped))
                    rows.lines += lines
                    rows.file += [i] * len(lines)
        if numbers:
            rows.numbers = np.concatenate(numbers)
        return rows

    def _open_matching(self, path: Path) -> SeriesTable:
        """Open a table that must have the columns of the first."""
        first = self.files[0]
        table = self.table if path == first else self._open(path)
        if other := set(table.names) ^ set(self.table.names):
            name = min(other)
            has, lacks = (path, first) if name in table.names else (first, path)
            raise UserError(
                f"{path}: its columns differ from those of {first}: {has.name} has {name!r}, "
                f"{lacks.name} does not"
            )
        return table

    def _read_batch(
        self,
        rows: TableRows,
        path: Path,
        columns: Columns,
        lines: list[int],
        skipped: SkippedRecords,
    ) -> Floats:
        """Add the texts of a batch to the rows; return its numbers."""
        rows.times += join_cells(columns, self.roles.time, " ")
        rows.ids += join_cells(columns, self.roles.id, "/")
        for static, name in zip(rows.static, self.roles.static, strict=True):
            cells = [cell.strip() for cell in columns[name]]
            static += ["" if cell in self.missing else cell for cell in cells]
        missing = dict.fromkeys(("", *self.missing), "nan")
        numbers = np.empty((len(lines), len(self.roles.numbers)))
        for i, name in enumerate(self.roles.numbers):
            numbers[:, i], bad = read_numbers(columns[name], self._notations[name], missing)
            rows.damaged += [(len(rows.lines) + row, i) for row in bad]
            for row in bad:
                cell = columns[name][row].strip()[:40]
                skipped.damaged(f"{path}:{lines[row]}: {cell!r} in column {name!r} is no number")
        return numbers

    # Times.

    def _parse(self, rows: TableRows, skipped: SkippedRecords) -> Times | None:
        """Parse the times of all rows; None if there is no column of them."""
        if not self.roles.time and self.step and self.step.dated:
            raise UsageError(f"input.step = {self.step.name!r}, but there is no column of times")
        if not self.roles.time:
            skipped.notes["no times"] = "no column of times was found: rows are steps 0, 1, 2, …"
            return None
        times = parse_times(rows.times)
        name = " and ".join(map(repr, self.roles.time))
        if not times.notation:
            raise UserError(
                f"{rows.location(0)}: {rows.times[0][:40]!r} in column {name} is no known time, "
                "such as 2020-12-31 23:00"
            )
        for row in times.bad:
            cell = rows.times[row][:40]
            skipped.damaged(f"{rows.location(row)}: {cell!r} in column {name} is no time")
        for i, remark in enumerate(times.remarks):
            skipped.notes[f"notation {i}"] = f"column {name}: {remark}"
        if self.step and self.step.dated != times.dated:
            kind = "dates" if times.dated else "numbers"
            raise UsageError(f"input.step = {self.step.name!r}, but the times are {kind}")
        return times

    def _group(
        self, rows: TableRows, times: Times | None, skipped: SkippedRecords
    ) -> list[SeriesRows]:
        """Sort the rows of each series by time."""
        codes: dict[Any, int] = {}
        ids = rows.ids if self.roles.id else rows.file
        code = np.fromiter((codes.setdefault(id, len(codes)) for id in ids), np.int64, len(ids))
        if times is not None:
            code[times.bad] = -1
        order = np.argsort(code, kind="stable")
        bounds = np.searchsorted(code[order], np.arange(len(codes) + 1))
        names = self._file_names()
        groups = []
        for id, i in codes.items():
            members = order[bounds[i] : bounds[i + 1]]
            if len(members):
                values = np.arange(len(members)) if times is None else times.values[members]
                name = id if self.roles.id else names[id]
                groups.append(SeriesRows.sort(name, members, values))
        if not groups:
            raise self._nothing(skipped)
        return groups

    def _file_names(self) -> list[str]:
        """Return the names of series that are files: their stems, if these differ."""
        if len(self.files) == 1:
            return [""]
        stems = [_stem(Path(split_member(path)[1] or path).name) for path in self.files]
        if len(set(stems)) == len(stems):
            return stems
        return [_stem(self._name(path)) for path in self.files]

    def _find_step(
        self, groups: Sequence[SeriesRows], rows: TableRows, times: Times | None
    ) -> Step:
        """Return the step that all series have in common."""
        if times is None:
            return Step(1, NUMBER)
        unit = _unit(times)
        longest = max(groups, key=lambda group: len(group.distinct))
        step = find_step(
            longest.distinct, unit=unit, locate=lambda i: rows.location(longest.last[i])
        )
        others = [group for group in groups if not step.fits(group.distinct)]
        if not others:
            return step
        try:
            joint = find_step(np.unique(np.concatenate([g.distinct for g in groups])), unit=unit)
        except UserError:
            joint = step
        if all(joint.fits(group.distinct) for group in groups):
            return joint
        raise UserError(
            f"{rows.location(others[0].rows[0])}: the times of series {others[0].name!r} are not "
            f"at steps of {step.name}, as those of {longest.name!r} are; --set input.step=1h, for "
            "example, averages the rows of each hour"
        )

    # Series.

    def _read(self, skipped: SkippedRecords) -> Iterator[SeriesChunk]:
        """Yield the series of all files; the remarks are complete after the last."""
        skipped.notes |= self._column_notes
        if self.format in ARRAYS:
            located = self._read_arrays(skipped)
        else:
            located = self._read_tables(skipped)
        if not located:
            return
        self._check_columns([series for _, _, series in located], skipped)
        located = self._fill_missing(_leave_out_empty(located, skipped), skipped)
        for path in dict.fromkeys(path for path, _, _ in located):
            items: list[Any] = [series for file, _, series in located if file == path]
            yield SeriesChunk(path, items, [line for file, line, _ in located if file == path])

    def _read_tables(self, skipped: SkippedRecords) -> list[Located]:
        rows = self._load(skipped)
        if not rows.lines:
            return []
        times = self._parse(rows, skipped)
        groups = self._group(rows, times, skipped)
        builder = self.new_builder(rows, skipped)
        if self.step:
            located = builder.average(groups, self.step)
        else:
            _refuse_repeats(groups, rows)
            step = self._find_step(groups, rows, times)
            self.why = self._reason(step.name if times is not None else "")
            located = [builder.build(group, step) for group in groups]
        builder.write_notes()
        return located

    def new_builder(self, rows: TableRows, skipped: SkippedRecords) -> SeriesBuilder:
        """Return what builds series of rows."""
        return SeriesBuilder(self.roles, rows, skipped)

    def _check_columns(self, items: Sequence[Series], skipped: SkippedRecords) -> None:
        """Refuse columns without any number; note those that are constant."""
        blocks = [np.concatenate([series.values, series.known], axis=1) for series in items]
        values = np.concatenate(blocks)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
        names = self.roles.numbers
        if np.isnan(low).any():
            name = names[int(np.argmax(np.isnan(low)))]
            raise UserError(f"{self.files[0]}: column {name!r} has no number in any row")
        constant = np.flatnonzero(low == high)
        if len(constant) and len(values) > 1:
            are = "is constant" if len(constant) == 1 else "are constant"
            columns = _list_columns([names[i] for i in constant])
            skipped.notes["constant"] = f"{columns} {are} ({low[constant[0]]:.6g}) and kept"
        self._note_static(items, skipped)

    def _note_static(self, items: Sequence[Series], skipped: SkippedRecords) -> None:
        """Note how static columns are read."""
        for i, name in enumerate(self.roles.static):
            cells = [series.static[i] for series in items]
            skipped.notes[f"static {name}"] = f"static column {name!r} {_describe_static(cells)}"

    def _fill_missing(self, located: list[Located], skipped: SkippedRecords) -> list[Located]:
        """Fill missing values with the method of input.fill."""
        if self.fill == "mask":
            return located
        results = [(path, line, *fill_series(series, self.fill)) for path, line, series in located]
        if total := sum(count for *_, count in results):
            cells = "missing value was" if total == 1 else "missing values were"
            skipped.notes["filled"] = f"{total:,} {cells} filled with {FILLS[self.fill]}"
        return [(path, line, series) for path, line, series, _ in results]

    # Arrays.

    def _plan_arrays(self) -> None:
        first = self.files[0]
        for role in ("time", "id", "static"):
            if getattr(self._requested, role):
                raise UsageError(f"input.{role}: {first} is an array, without such columns")
        if self.step:
            raise UsageError(f"input.step: {first} is an array, without times")
        self._width = _load_array(first).shape[2]
        columns = number_columns(self._width)
        roles = self._requested.resolve(columns, first)
        free = tuple(name for name in columns if name not in roles.known)
        self.roles = replace(roles, targets=roles.targets or free)
        self.why = self._reason("")

    def _read_arrays(self, skipped: SkippedRecords) -> list[Located]:
        skipped.notes["no times"] = "arrays have no times: rows are steps 0, 1, 2, …"
        picks = [
            [int(name) - 1 for name in names] for names in (self.roles.targets, self.roles.known)
        ]
        located = []
        for path, stem in zip(self.files, self._file_names(), strict=True):
            array = _load_array(path)  # (N, T, C)
            if array.shape[2] != self._width:
                raise UserError(
                    f"{path}: has {array.shape[2]:,} columns, {self.files[0]} has {self._width:,}"
                )
            for index in np.argwhere(np.isinf(array)):
                skipped.damaged(f"{path}[{', '.join(map(str, index))}]: is infinite")
            array[np.isinf(array)] = np.nan
            for i, values in enumerate(array):
                name = "/".join(filter(None, [stem, str(i) if len(array) > 1 else ""]))
                targets, known = (np.ascontiguousarray(values[:, pick]) for pick in picks)
                step = Step(1, NUMBER)
                located.append((path, i, Series(name, targets, known, (), 0, step, self.names)))
        blocks = [block for _, _, series in located for block in (series.values, series.known)]
        if missing := sum(int(np.isnan(block).sum()) for block in blocks):
            skipped.notes["missing"] = f"{missing:,} missing values in the arrays"
        return located


def _describe_static(cells: Sequence[str]) -> str:
    """Return how a static column is read, given its cell of each series."""
    if len(set(cells)) == 1:
        return f"is the same in all series ({cells[0][:40]!r}) and tells nothing"
    column, different = StaticColumn.learn("", cells), len(set(filter(None, cells)))
    if not column.categories:
        return "is read as numbers"
    numbers = [cell for cell in cells if not np.isnan(to_number(cell))]
    if numbers:
        other = next(cell for cell in cells if cell and np.isnan(to_number(cell)))
        return f"has {different:,} categories: {other[:40]!r} is no number"
    if different > len(column.categories):
        rest = f"the {len(column.categories)} most frequent are told apart, the others are not"
        return f"has {different:,} categories: {rest}"
    return f"has {different:,} categories"


def _load_array(path: Path) -> Floats:
    """Return the series of an array file as (N, T, C)."""
    arrays = read_arrays(path)
    fitting = [a for a in arrays.values() if a.ndim in (1, 2, 3) and a.dtype.kind in "biuf"]
    if len(fitting) != 1:
        raise UserError(
            f"{path}: must hold one array of numbers of shape (steps,), (steps, columns) or "
            f"(series, steps, columns); {describe_arrays(arrays)}"
        )
    array: Floats = fitting[0].astype(np.float64)
    if not array.size:
        raise UserError(f"{path}: the array is empty: {describe_arrays(arrays)}")
    return array if array.ndim == 3 else array.reshape(1, len(array), -1)


def _unit(times: Times) -> str:
    """Return the unit of times that are integers."""
    return "year" if times.notation == YEARS else NUMBER


def _stem(name: str) -> str:
    """Return a name without the endings of formats."""
    name = name.removesuffix(".gz")
    stem, dot, ending = name.rpartition(".")
    known = (*known_suffixes(), ".txt", *ARRAY_SUFFIXES)
    return stem if dot and f".{ending.lower()}" in known else name


def _list_columns(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:SHOWN]))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{'column' if len(names) == 1 else 'columns'} {shown}{more}"


def _leave_out_empty(located: list[Located], skipped: SkippedRecords) -> list[Located]:
    """Return the series that have values."""
    empty = [item for item in located if np.isnan(item[2].values).all()]
    if empty:
        path, line, series = empty[0]
        have = "1 series has no value and is"
        if len(empty) > 1:
            have = f"{len(empty):,} series have no value and are"
        skipped.notes["empty"] = f"{have} left out; first: {series.name!r} ({path}:{line})"
    return [item for item in located if not np.isnan(item[2].values).all()]


def _refuse_repeats(groups: Sequence[SeriesRows], rows: TableRows) -> None:
    """Refuse rows of several series without a column that names them."""
    for group in groups:
        repeats = len(group.rows) - len(group.distinct)
        if repeats > MAX_REPEATED * len(group.rows) and repeats > 2:
            i = int(np.argmax(group.counts > 1))
            which = f" of series {group.name!r}" if group.name else ""
            raise UsageError(
                f"{rows.location(group.last[i])}: {repeats:,} of {len(group.rows):,} rows{which} "
                f"repeat a time, first {format_time(group.distinct[i])}; if the rows of several "
                "series are mixed, --set input.id=COLUMN names them, several as input.id=A,B"
            )


# What is repaired, in the singular and in the plural.
REPAIRS = {
    "unsorted": (
        "row was out of order and was sorted in",
        "rows were out of order and were sorted in",
    ),
    "repeated": (
        "row repeats a time; the last row was kept",
        "rows repeat a time; the last row of each was kept",
    ),
    "repeated hour": (
        "hour occurs twice, as when daylight saving ends; its values were averaged",
        "hours occur twice, as when daylight saving ends; their values were averaged",
    ),
    "skipped hour": (
        "hour is skipped, as when daylight saving begins, and is missing",
        "hours are skipped, as when daylight saving begins, and are missing",
    ),
    "static": (
        "static column changes within a series; its first cell counts",
        "static cells change within a series; the first counts",
    ),
}


@dataclass(eq=False)
class SeriesBuilder:
    """Builds series of sorted rows, and counts what is repaired."""

    roles: ColumnRoles
    rows: TableRows
    skipped: SkippedRecords
    repairs: dict[str, tuple[int, str]] = field(default_factory=dict)  # count, first location
    missing_steps: int = 0
    longest_gap: tuple[int, str] = (0, "")  # steps, and the time and location before it

    def build(self, group: SeriesRows, step: Step) -> Located:
        """Return a series on the grid of a step; hours that clocks repeat are averaged."""
        saving = find_daylight_saving(group.distinct, group.counts, step)
        numbers = self.rows.numbers[group.last]
        twice = np.isin(group.times, group.distinct[saving.repeated])
        pairs = np.arange(twice.sum()) // 2
        numbers[saving.repeated] = _group_means(
            self.rows.numbers[group.rows[twice]], pairs, len(saving.repeated)
        )
        self._count_repairs(group, saving, twice)
        self._count_gaps(group, step, saving.skipped)
        return self._place_on_grid(group, numbers, step.anchored(group.distinct))

    def average(self, groups: Sequence[SeriesRows], step: Step) -> list[Located]:
        """Return series whose rows are averaged to a step."""
        located, n_rows, n_steps = [], 0, 0
        for group in groups:
            starts, where = np.unique(step.floor(group.times), return_inverse=True)
            if len(starts) < len(group.times) or (starts != group.times).any():
                n_rows, n_steps = n_rows + len(group.times), n_steps + len(starts)
            self._count("unsorted", np.sort(group.rows[group.late]))
            first = np.searchsorted(where, np.arange(len(starts)))
            binned = SeriesRows(group.name, group.rows[first], starts, group.late[first])
            self._count_gaps(binned, step, np.zeros(0, np.int64))
            means = _group_means(self.rows.numbers[group.rows], where, len(starts))
            located.append(self._place_on_grid(binned, means, step))
        if n_rows:
            self.skipped.notes["averaged"] = (
                f"{n_rows:,} rows were averaged into {n_steps:,} steps of {step.name}"
            )
        return located

    def _place_on_grid(self, group: SeriesRows, numbers: Floats, step: Step) -> Located:
        """Return a series with the numbers of each distinct time, NaN at other steps."""
        times = group.distinct
        positions = step.index(times)
        length = int(positions[-1]) + 1
        if length > max(MAX_SPARSE[1], MAX_SPARSE[0] * len(positions)):
            i = int(np.argmax(np.diff(positions))) + 1
            raise UserError(
                f"{self.rows.location(group.last[i])}: {format_time(times[i])} comes "
                f"{positions[i] - positions[i - 1]:,} steps of {step.name} after the last; "
                f"{len(positions):,} rows would become {length:,}: correct that time, or --set "
                "input.step to a longer step"
            )
        grid = np.full((length, numbers.shape[1]), np.nan)
        grid[positions] = numbers
        width = len(self.roles.targets)
        series = Series(
            group.name,
            np.ascontiguousarray(grid[:, :width]),
            np.ascontiguousarray(grid[:, width:]),
            self._static_cells(group),
            times[0] if step.dated else int(times[0]),
            step,
            self.roles.targets,
        )
        first = int(group.rows.min())
        return self.rows.files[self.rows.file[first]], self.rows.lines[first], series

    def _static_cells(self, group: SeriesRows) -> tuple[str, ...]:
        """Return the static cells of the first row of a series."""
        first = int(group.rows.min())
        for column in self.rows.static:
            changes = (row for row in group.rows if column[row] != column[first])
            self._count("static", list(islice(changes, 1)))
        return tuple(column[first] for column in self.rows.static)

    def _count(self, repair: str, rows: Any, count: int | None = None) -> None:
        """Count repaired rows, or a number of repairs at these rows."""
        if len(rows):
            total, first = self.repairs.get(repair, (0, self.rows.location(rows[0])))
            self.repairs[repair] = total + (len(rows) if count is None else count), first

    def _count_repairs(
        self, group: SeriesRows, saving: DaylightSaving, twice: NDArray[np.bool_]
    ) -> None:
        """Count repairs of one series; rows of hours that clocks repeat are `twice` there."""
        self._count("unsorted", np.sort(group.rows[group.late & ~twice]))
        extra = group.counts - 1
        extra[saving.repeated] = 0
        self._count("repeated", group.last[extra > 0], int(extra.sum()))
        if len(saving.repeated):
            days = np.unique(group.distinct[saving.repeated].astype("M8[D]"))
            self._count("repeated hour", group.last[saving.repeated], len(days))
        self._count("skipped hour", group.last[saving.skipped])

    def _count_gaps(self, group: SeriesRows, step: Step, skipped_hours: Integers) -> None:
        missing = np.diff(step.index(group.distinct)) - 1
        missing[skipped_hours - 1] = 0
        self._count("gaps", group.last[:-1][missing > 0])
        self.missing_steps += int(missing.sum())
        size = int(missing.max(initial=0))
        if size > self.longest_gap[0]:
            i = int(np.argmax(missing))
            location = self.rows.location(group.last[i])
            self.longest_gap = size, f"{format_time(group.distinct[i])} ({location})"

    def write_notes(self) -> None:
        """Write notes on what was repaired, and on missing cells."""
        notes = self.skipped.notes
        for repair, (singular, plural) in REPAIRS.items():
            if repair in self.repairs:
                count, first = self.repairs[repair]
                words = f"1 {singular}" if count == 1 else f"{count:,} {plural}"
                notes[repair] = f"{words}; first: {first}"
        if "gaps" in self.repairs:
            (count, first), (size, before) = self.repairs["gaps"], self.longest_gap
            notes["gaps"] = f"1 gap of {format_count(size, 'step')} after {before}"
            if count > 1:
                notes["gaps"] = (
                    f"{count:,} gaps of {self.missing_steps:,} missing steps in all, the longest "
                    f"of {size:,} steps after {before}; first after {first}"
                )
        empty = np.isnan(self.rows.numbers)
        empty[tuple(np.array(self.rows.damaged, np.int64).reshape(-1, 2).T)] = False
        if empty.any():
            totals = zip(self.roles.numbers, empty.sum(axis=0).tolist(), strict=True)
            counts = [f"{name!r} {total:,}" for name, total in totals if total]
            more = f" and {len(counts) - SHOWN} more columns" if len(counts) > SHOWN else ""
            first = self.rows.location(int(np.argmax(empty.any(axis=1))))
            notes["missing"] = f"missing cells: {', '.join(counts[:SHOWN])}{more}; first: {first}"


def _group_means(numbers: Floats, groups: Integers, n: int) -> Floats:
    """Return the mean of the rows of each of n groups, ignoring NaN."""
    present = ~np.isnan(numbers)
    sums, counts = np.zeros((n, numbers.shape[1])), np.zeros((n, numbers.shape[1]))
    np.add.at(sums, groups, np.where(present, numbers, 0))
    np.add.at(counts, groups, present)
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def fill_series(series: Series, how: str) -> tuple[Series, int]:
    """Return a series with its missing values filled, and how many were filled.

    Values before the first of a column stay missing unless they are filled with 0, and so do steps
    at the end without any target: they are the future.
    """
    observed = np.flatnonzero(~np.isnan(series.values).all(axis=1))
    end = int(observed[-1]) + 1 if len(observed) else 0
    values, known = series.values.copy(), series.known.copy()
    for block in (values[:end], known):
        for column in block.T:
            _fill_column(column, how)
    before, after = (
        sum(int(np.isnan(block).sum()) for block in blocks)
        for blocks in ((series.values, series.known), (values, known))
    )
    return replace(series, values=values, known=known), before - after


def _fill_column(column: Floats, how: str) -> None:
    present = np.flatnonzero(~np.isnan(column))
    if how == "zero":
        column[np.isnan(column)] = 0
    elif len(present):
        rest = np.arange(present[0], len(column))
        if how == "linear":
            column[rest] = np.interp(rest, present, column[present])
        else:
            column[rest] = column[present[np.searchsorted(present, rest, side="right") - 1]]
