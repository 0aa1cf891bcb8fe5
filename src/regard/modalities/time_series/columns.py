"""Columns of tables of time series: which there are, and what each is for.

Tables are CSV, TSV, JSON Lines or Parquet. Columns that no option names are found by their
contents: times mostly rise, ids repeat, and the other columns of numbers are targets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.formats import UTF8, SkippedRecords, extension, head
from regard.data.media import ARRAY_SUFFIXES, suffix
from regard.data.tables import BATCH, Batch, Layout, TableReader, hint, listed
from regard.data.targets import NOTATIONS, Notation, censored, notation_of, number
from regard.errors import UsageError, UserError
from regard.modalities.time_series.times import YEARS, Times, parse_times
from regard.recipe import MISSING
from regard.registry import TABLES

Floats = NDArray[np.float64]
Columns = Mapping[str, Sequence[str]]  # cells by column

ARRAYS = tuple(ending.removeprefix(".") for ending in ARRAY_SUFFIXES)
SAMPLE_ROWS = 20_000  # that decide how numbers are written, ...
SAMPLE_CELLS = 1_000_000  # ... unless the table is very wide
SAMPLE_BATCH = 1 << 16  # characters read at once
TIME_ROWS = 200  # that tell times from other cells
HEAD_LINES = 50  # that decide the delimiter
NOTATION_CELLS = 300  # of each kind that decide how a column writes numbers
MOST = 0.8  # share of cells that are numbers in a column of numbers
MAX_BAD = 0.2  # share of damaged cells in a column of times
RISING = 0.6  # share of rows whose time is not before that of the row above
MAX_REPEATED = 0.2  # share of rows that repeat a time, beyond which a column of ids is missing
LONG_TEXT = 40  # characters
# Names of columns of integers that count time.
TIME_NAMES = (
    *("time", "t", "step", "index", "date", "ds", "timestamp", "datetime", "year", "month"),
    *("day", "hour", "week", "minute", "second", "period", "tick", "jahr", "zeit", "datum"),
)


def detect_format(path: Path, encoding: str = UTF8) -> str:
    """Return the format of a file by its name or, of plain text, by its delimiters; or ""."""
    ending = suffix(path).removeprefix(".")
    if ending in ARRAYS:
        return ending
    if known := extension(path):
        return known
    lines = _first_lines(path, encoding)
    for delimiter, format in (("\t", "tsv"), (";", "csv"), (",", "csv")):
        counts = Counter(line.count(delimiter) for line in lines)
        if lines and counts.most_common(1)[0][0] and counts[0] <= 0.1 * len(lines):
            return format
    return ""


def _first_lines(path: Path, encoding: str) -> list[str]:
    text, _ = head(path, encoding)
    return [line for line in text.split("\n")[:HEAD_LINES] if line.strip()]


@dataclass(frozen=True)
class SeriesTable:
    """A table on disk and the names of its columns, which are numbers from 1 without a header."""

    path: Path
    format: str
    encoding: str
    names: tuple[str, ...]
    reader: TableReader | None = None  # of all cells of CSV and TSV, those of the header too
    header: bool = False

    @property
    def commas(self) -> bool:
        """Whether decimal commas are to be expected."""
        return self.reader is not None and self.reader.delimiter == ";"

    def batches(
        self, names: Sequence[str], skipped: SkippedRecords, size: int = BATCH
    ) -> Iterator[Batch]:
        """Yield the cells of columns and their lines, about `size` characters of CSV or TSV at a
        time; damaged rows go to `skipped`.
        """
        header = self.header
        for columns, lines in self._layout(names, size).batches(self.path, skipped):
            if header and lines:
                columns, lines, header = [cells[1:] for cells in columns], lines[1:], False
            yield columns, lines

    def _layout(self, names: Sequence[str], size: int) -> Layout:
        if self.reader is not None:
            numbers = tuple(str(self.names.index(name) + 1) for name in names)
            return replace(self.reader, names=numbers, batch=size)
        flags = ["--target"] * len(names)
        layout: Layout = TABLES[self.format].layout(
            self.path, tuple(names), flags=flags, texts=0, encoding=self.encoding
        )
        return layout

    def sample(self, rows: int = SAMPLE_ROWS) -> dict[str, list[str]]:
        """Return the first cells of each column."""
        columns: list[list[str]] = [[] for _ in self.names]
        for batch, _ in self.batches(self.names, SkippedRecords(), SAMPLE_BATCH):
            for column, cells in zip(columns, batch, strict=True):
                column.extend(cell.strip() for cell in cells)
            if len(columns[0]) >= min(rows, SAMPLE_CELLS // len(columns)):
                break
        return {name: column[:rows] for name, column in zip(self.names, columns, strict=True)}


def open_table(
    path: Path, format: str, encoding: str = UTF8, wanted: Sequence[str] = ()
) -> SeriesTable:
    """Open a table; a first row with a `wanted` name is a header."""
    if getattr(TABLES[format], "delimiters", ()):
        return _open_delimited(path, format, encoding, wanted)
    names = tuple(TABLES[format].columns(path, encoding))
    if not names:
        raise UserError(f"{path}: holds no {format} columns")
    return SeriesTable(path, format, encoding, names)


def _open_delimited(path: Path, format: str, encoding: str, wanted: Sequence[str]) -> SeriesTable:
    """Open CSV or TSV; the cells below the first row decide whether it is a header."""
    cls = TABLES[format]
    reader: TableReader = cls.layout(path, ["1"], flags=("input.time",), encoding=encoding)
    delimiter, width = reader.delimiter, len(cls.columns(path, encoding, named=False))
    lines = _first_lines(path, encoding)
    semicolons, frequency = Counter(line.count(";") for line in lines).most_common(1)[0]
    if delimiter == "," and semicolons and frequency >= MOST * len(lines):
        delimiter, width = ";", semicolons + 1  # commas are decimal commas
    reader = replace(reader, delimiter=delimiter, header=False, titled=width > 1, columns=())
    table = SeriesTable(path, format, encoding, number_columns(width), reader)
    columns = list(table.sample(TIME_ROWS).values())
    top = [column[0] if column else "" for column in columns]
    if not any(name in top for name in wanted) and not _has_header(columns):
        return table
    for name, count in Counter(filter(None, top)).items():
        if count > 1:
            raise UserError(f"{path}: two columns are called {name!r}; rename one of them")
    unnamed = (n if n not in top else f"column {n}" for n in table.names)
    names = tuple(name or other for name, other in zip(top, unnamed, strict=True))
    return replace(table, names=names, header=True)


def number_columns(count: int) -> tuple[str, ...]:
    """Return the names of columns without a header."""
    return tuple(str(i + 1) for i in range(count))


def _has_header(columns: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row is text where numbers or times follow below."""
    top = [column[0] if column else "" for column in columns]
    if len(top) > 1 and not top[0] and top[1:] == [str(i) for i in range(len(top) - 1)]:
        return True  # of a data frame without names of columns
    for cell, column in zip(top, columns, strict=True):
        below = filled_cells(column[1:])
        if not cell or cell in MISSING or not below:
            continue
        is_text = not _is_number(cell) and len(parse_times([cell]).bad) > 0
        if is_text and (
            holds_numbers(below) or len(parse_times(below).bad) <= MAX_BAD * len(below)
        ):
            return True
    return False


def filled_cells(cells: Sequence[str]) -> list[str]:
    """Return the cells that are not missing."""
    return [cell for cell in cells if cell and cell not in MISSING]


def holds_numbers(cells: Sequence[str]) -> bool:
    """Return whether most cells are numbers, or all are empty."""
    filled = filled_cells(cells)
    count = len(filled)  # of numbers, at most
    for cell in filled:
        count -= not _is_number(cell)
        if count < MOST * len(filled):
            return False  # texts are known by their first cells
    return True


def _is_number(cell: str) -> bool:
    if number(cell) is not None or censored(cell):
        return True
    return any(notation.spell(cell) is not None for notation in NOTATIONS)


def choose_notation(cells: Sequence[str], *, commas: bool) -> Notation:
    """Return how a column writes its numbers."""
    filled = filled_cells(cells)
    others = islice((cell for cell in filled if number(cell) is None), NOTATION_CELLS)
    usual = islice((cell for cell in filled if number(cell) is not None), NOTATION_CELLS)
    return notation_of([*others, *usual], commas=commas)


def read_numbers(
    cells: Sequence[str], notation: Notation, missing: Mapping[str, str]
) -> tuple[Floats, list[int]]:
    """Return the numbers of cells, NaN where missing or damaged, and the indices of damaged ones.

    `missing` maps cells that mean a missing value, among them "", to "nan".
    """
    texts = cells
    if notation == Notation(",") and not any("." in cell for cell in cells):
        texts = [cell.replace(",", ".") for cell in cells]
    if notation.usual or texts is not cells:
        try:
            values = np.array([float(missing.get(text, text)) for text in texts], np.float64)
        except ValueError:
            pass
        else:
            if not np.isinf(values).any():
                return values, []
    values, bad = np.full(len(cells), np.nan), []
    for i, cell in enumerate(map(str.strip, cells)):
        if cell in missing:
            continue
        spelled = notation.spell(cell)
        if spelled is None:
            bad.append(i)
        else:
            values[i] = float(spelled)
    return values, bad


def find_time(columns: Columns, taken: Sequence[str] = (), *, strict: bool = False) -> str:
    """Return the column of times, or "": the first of dates, or else one of integers.

    Integers must count steps, in a column that is named as times are or, unless `strict`, is the
    first; and there must be other columns of numbers.
    """
    counter = ""
    free = [name for name in columns if name not in taken]
    for i, name in enumerate(free):
        times = _parse_column(columns[name][:TIME_ROWS], ordered=strict)
        if times is not None and times.dated:
            return name
        if times is not None and not counter:
            counter = name if _counts_steps(times, name, first=i == 0 and not strict) else ""
    others = [name for name in free if name != counter and holds_numbers(columns[name])]
    return counter if others else ""


def _parse_column(cells: Sequence[str], *, ordered: bool) -> Times | None:
    """Return the times of a column without damaged ones; None if few are times, or not in order,
    which numbers must be, and dates if `ordered`.
    """
    filled = filled_cells(cells)
    if len(filled) < 2 or len(filled) < MOST * len(cells):
        return None
    times = parse_times(filled)
    if not times.notation or len(times.bad) > MAX_BAD * len(filled):
        return None
    times = replace(times, values=np.delete(times.values, times.bad), bad=times.bad[:0])
    deltas = np.diff(times.values).astype(np.int64)
    monotone = (deltas >= 0).mean() >= RISING or (deltas <= 0).mean() >= 0.9
    return times if monotone or (times.dated and not ordered) else None


def holds_dates(cells: Sequence[str]) -> bool:
    """Return whether nearly all cells are dates, in any order."""
    if not any(any(map(str.isdigit, cell)) for cell in cells[:10]):
        return False
    times = parse_times(cells)
    return times.dated and len(times.bad) <= (1 - MOST) / 2 * len(cells)


def _counts_steps(times: Times, name: str, *, first: bool) -> bool:
    """Return whether integers in order count steps, by the name of their column or if `first`."""
    deltas = np.diff(times.values)
    rises = deltas[deltas > 0].tolist()
    if name.strip().lower() in TIME_NAMES or times.notation == YEARS:
        return bool(rises) and Counter(rises).most_common(1)[0][1] >= RISING * len(rises)
    return first and set(rises) <= {1} and bool((deltas != 0).all())


def find_id(columns: Columns, times: Sequence[str], taken: Sequence[str], path: Path) -> str:
    """Return the one column of texts that names the series of each row, or ""."""
    repeated = have_repeats(times)
    texts = [name for name in columns if name not in taken and not holds_numbers(columns[name])]
    ids = [name for name in texts if _holds_ids(columns[name], repeated=repeated)]
    if len(ids) > 1 and repeated:
        raise UsageError(
            f"{path}: times repeat, so rows of several series are mixed; which column names the "
            f"series? --set input.id=COLUMN, one of {', '.join(ids)}, or several: "
            f"input.id={','.join(ids[:2])}"
        )
    return ids[0] if len(ids) == 1 else ""


def have_repeats(times: Sequence[str]) -> bool:
    """Return whether times repeat, as where the rows of several series are mixed."""
    return len(set(times)) < (1 - MAX_REPEATED) * len(times)


def _holds_ids(cells: Sequence[str], *, repeated: bool) -> bool:
    """Return whether few texts repeat, one after another or where times are `repeated`."""
    if repeated:
        return not is_free_text(cells, repeated=True)
    distinct = len(set(cells))
    changes = sum(a != b for a, b in pairwise(cells))
    return 2 * distinct <= len(cells) and changes == distinct - 1


def is_free_text(cells: Sequence[str], *, repeated: bool = False) -> bool:
    """Return whether most texts are distinct and, where times are `repeated`, long or of many
    words: names of series are short.
    """
    filled = filled_cells(cells)
    if not filled or 2 * len(set(filled)) <= len(filled):
        return False
    long = sum(len(cell) > LONG_TEXT or len(cell.split()) > 2 for cell in filled)
    return not repeated or 2 * long > len(filled)


ROLE_FLAGS = {
    **{"known": "input.known", "static": "input.static", "targets": "--target"},
    **{"time": "input.time", "id": "input.id"},
}


@dataclass(frozen=True)
class ColumnRoles:
    """What each column of a table is for; times and ids may be joined from several columns."""

    time: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        return (*self.targets, *self.known)

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.time, *self.id, *self.static, *self.numbers)

    def names(self) -> list[str]:
        """Return the names that a header may have; numbers tell nothing."""
        names = {*self.all, ",".join(self.time), ",".join(self.id)}
        return [name for name in sorted(names) if name and not name.isdecimal()]

    def resolve(self, columns: Sequence[str], path: Path) -> ColumnRoles:
        """Return the roles with the columns that are named or numbered here."""
        roles = {}
        for role, flag in ROLE_FLAGS.items():
            names = getattr(self, role)
            joint = ",".join(names)  # a name may contain commas
            if role in ("time", "id") and joint in columns:
                names = (joint,)
            roles[role] = _resolve_names(names, columns, flag, path)
        return ColumnRoles(**roles)

    def infer(self, columns: Columns, path: Path) -> ColumnRoles:
        """Return the roles with times, ids and targets that are found in first cells."""
        roles = self
        if not roles.time and (time := find_time(columns, roles.all)):
            roles = replace(roles, time=(time,))
        times = join_cells(columns, roles.time, " ")
        if not roles.id and (id := find_id(columns, times, roles.all, path)):
            roles = replace(roles, id=(id,))
        if not roles.targets:
            free = [name for name in columns if name not in roles.all]
            targets = tuple(name for name in free if holds_numbers(columns[name]))
            roles = replace(roles, targets=targets)
        roles._check(columns, path)
        return roles

    def _check(self, columns: Columns, path: Path) -> None:
        """Refuse a column that has two roles, targets that are texts, and a table without any."""
        if not self.targets:
            raise UserError(
                f"{path}: no column of numbers is left to forecast; its columns are "
                f"{listed(list(columns))}"
            )
        for name, count in Counter(self.all).items():
            if count > 1:
                raise UsageError(f"{path}: column {name!r} is named for two purposes")
        for name in self.numbers:
            if not holds_numbers(columns[name]):
                example = filled_cells(columns[name])[0][:40]
                raise UsageError(
                    f"{path}: column {name!r} holds texts ({example!r}); series are numbers"
                )


def _resolve_names(
    names: Sequence[str], columns: Sequence[str], flag: str, path: Path
) -> tuple[str, ...]:
    """Return the columns that an option names, or numbers."""
    resolved = []
    for name in names:
        if name not in columns and name.isdecimal() and 1 <= int(name) <= len(columns):
            name = columns[int(name) - 1]
        if name not in columns:
            raise UsageError(
                f"{path}: has no column {name!r} ({flag}); {hint(name, list(columns))}"
            )
        resolved.append(name)
    if len(set(resolved)) < len(resolved):
        raise UsageError(f"{flag} names a column twice: {','.join(names)}")
    return tuple(resolved)


def join_cells(columns: Columns, names: Sequence[str], mark: str) -> list[str]:
    """Return the cells of columns, joined row by row; none if there is no column."""
    return [
        mark.join(cells).strip() for cells in zip(*(columns[name] for name in names), strict=True)
    ]
