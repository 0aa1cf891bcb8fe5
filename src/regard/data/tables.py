"""Records in the cells of a table (CSV, TSV).

The column is the one asked for, by name or by number from 1, or the only one that looks like text.
Pairs and labelled records need more than one; all but the one of the input must be asked for.

Lines cut at their first blank: SMILES and a name, or a label and a text.

Column 1 is what stands before the blank, column 2 the rest of the line. Files of molecules (`.smi`)
are written so, and many classic sets of labelled sentences.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from regard.data.formats import LINE_LIMIT, UTF8, SkippedRecords, decoded_lines, head, too_long
from regard.errors import UsageError, UserError

USUAL = ("text", "sequence", "name", "smiles", "sentence")  # columns taken without being asked for
SAMPLE = 200  # rows looked at to tell text from numbers
BATCH = 2 << 20  # characters of records handed on at a time ...
ROW = 64  # ... where a row, however short, weighs as much as this many

Batch = tuple[list[list[str]], list[int]]  # the texts of each column, and the lines they begin on
FLAGS = ("--input", "--target")  # that ask for the columns of pairs, in order


@dataclass(frozen=True)
class TableReader:
    """How to read a family of tables alike: the delimiter, the quotes, the header, the columns."""

    delimiter: str
    quoted: bool
    header: bool
    names: tuple[str, ...]  # of the columns: each one of the header, or else a number from 1
    titled: bool  # lines of one field before the first row are titles
    why: str
    encoding: str = UTF8
    columns: tuple[str, ...] = ()  # all that the header names

    def batches(self, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
        """The columns' cells, in order, empty ones too; damaged rows go to `tally`."""
        rows = _Rows(path, self)
        width, places = 0, [0]
        for batch in rows.batches():
            texts: list[list[str]] = [[] for _ in self.names]
            lines: list[int] = []
            for line, row in batch:
                if isinstance(row, str):
                    tally.damaged(row)
                elif not row:
                    tally.blank += 1
                elif not width and self.titled and len(row) == 1:
                    tally.damaged(f"{path}:{line}: a title or comment, not a row of the table")
                elif not width and self.header:
                    width, places = len(row), self._places(path, row)
                else:
                    if not width:
                        width, places = len(row), self._places(path, row)
                    if len(row) != width:
                        tally.damaged(f"{path}:{line}: {len(row)} fields, expected {width}")
                        continue
                    for column, place in zip(texts, places, strict=True):
                        column.append(row[place])
                    lines.append(line)
            yield texts, lines

    def _places(self, path: Path, row: list[str]) -> list[int]:
        names = row if self.header else []
        places = []
        for column in self.names:
            if column in names:
                places.append(names.index(column))
            elif _is_number(column) and 1 <= int(column) <= len(row):
                places.append(int(column) - 1)
            else:
                raise UserError(f"{path}: has no column {column!r}; it has {listed(names or row)}")
        return places


class _Rows:
    """Rows of one file, each with its first line, parsed by the csv module in bounded memory."""

    def __init__(self, path: Path, layout: TableReader) -> None:
        self.path, self.encoding = path, layout.encoding
        self.fed = 0  # characters given to the parser since the last row was complete
        self.line = 1  # the first of the row being read
        self.ended = False
        self.bad: deque[tuple[int, str]] = deque()  # lines read, not UTF-8
        self.reader = csv.reader(
            self._feed(),
            delimiter=layout.delimiter,
            quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
            strict=True,
        )

    def _feed(self) -> Iterator[str]:
        for block in decoded_lines(self.path, self.encoding):
            self.bad += [(block.first + i, problem) for i, problem in block.bad.items()]
            for text in block.texts:
                self.fed += len(text) + 1
                if self.fed > LINE_LIMIT:
                    raise too_long(self.path, self.line)
                yield text + "\n"
        self.ended = True

    def batches(self) -> Iterator[list[tuple[int, list[str] | str]]]:
        """Rows, or what is wrong with them, a few megabytes at a time."""
        while not self.ended:
            with _wide_fields():
                batch = list(self._batch())
            yield batch

    def _batch(self) -> Iterator[tuple[int, list[str] | str]]:
        size = 0
        while size < BATCH:
            self.fed, self.line = 0, self.reader.line_num + 1
            try:
                row = next(self.reader, None)
            except csv.Error as error:
                if self.ended:
                    where = f"{self.path}:{self.line}"
                    raise UserError(f"{where}: a quote opens and never closes") from None
                row, problem = [], f"{self.path}:{self.line}: {error}"
            else:
                problem = self._problem(self.line)
            if row is None:
                return
            size += self.fed + ROW
            yield self.line, problem or row

    def _problem(self, line: int) -> str:
        found = ""
        while self.bad and self.bad[0][0] <= self.reader.line_num:
            number, problem = self.bad.popleft()
            found = found or (problem if number >= line else "")
        return found


@contextmanager
def _wide_fields() -> Iterator[None]:
    """Let the csv module take fields of any length that a row may have, here and only here."""
    before = csv.field_size_limit(2 * LINE_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def table(
    path: Path,
    format: str,
    columns: Sequence[str],
    *,
    flags: Sequence[str] = FLAGS,
    encoding: str = UTF8,
) -> TableReader:
    """Decide how tables like the file at `path` are read.

    An only column may be "" to choose it, and so may the first of more where `flags`, the options
    that ask for them, are not those of pairs.
    """
    delimiter, quoted, rows, header = _looked_at(path, format, columns, encoding)
    names = rows[0]
    labels = names if header else []
    chosen = list(columns)
    if not chosen[0] and (len(chosen) == 1 or flags is not FLAGS):
        chosen[0] = _choose(path, labels, rows[header:] or rows, len(names), chosen[1:])
    chosen = [_asked(path, *asked, names, header) for asked in zip(flags, chosen, strict=False)]
    said = f"column{'s' * (len(chosen) > 1)} {' and '.join(map(repr, chosen))}"
    why = f"{'with' if header else 'without'} a header, {'text in ' * (flags is FLAGS)}{said}"
    wide = len(names) > 1
    return TableReader(delimiter, quoted, header, tuple(chosen), wide, why, encoding, tuple(labels))


def columns_in(
    path: Path,
    format: str,
    columns: Sequence[str] = (),
    encoding: str = UTF8,
    *,
    named: bool = True,
) -> list[str]:
    """The names of the columns of a table, or the keys of objects; where it has no header none or,
    unless they must be `named`, the first row.
    """
    if format == "jsonl":
        from regard.data.readers import keys_in

        return keys_in(path, encoding)
    _, _, rows, header = _looked_at(path, format, columns, encoding)
    return rows[0] if header or not named else []


def _looked_at(
    path: Path, format: str, columns: Sequence[str], encoding: str
) -> tuple[str, bool, list[list[str]], bool]:
    """The delimiter of a table, whether it is quoted, its first rows, and whether the first of them
    is a header.
    """
    text, complete = head(path, encoding)
    if not complete and "\n" in text:
        text = text[: text.rindex("\n")]
    lines = [line + "\n" for line in text.split("\n")]
    delimiter = "\t"
    if format == "csv":
        top = next((line for line in lines if line.strip()), "")
        delimiter = ";" if ";" in top and "," not in top else ","
    quoted = format == "csv" or _quotes_work(lines, complete)
    rows = _sample(lines, delimiter, quoted, columns)
    if not rows:
        raise UserError(f"{path}: holds no {format} rows")
    header = any(column in rows[0] for column in columns if column) or _has_header(rows)
    return delimiter, quoted, rows, header


def _asked(path: Path, flag: str, column: str, names: list[str], header: bool) -> str:
    """A column that was asked for, by its name where it has one of its own."""
    if not column:
        raise two_needed(path, "COLUMN", names)
    if column in names:
        return column
    if not _is_number(column):
        raise UsageError(f"{path}: has no column {column!r} ({flag}); {hint(column, names)}")
    if not 1 <= int(column) <= len(names):
        raise UsageError(f"{path}: has no column {column} ({flag}); it has {len(names)} columns")
    name = names[int(column) - 1]
    return name if header and names.count(name) == 1 else column


def two_needed(path: Path, unit: str, names: list[str]) -> UsageError:
    return UsageError(
        f"{path}: which hold the pairs? say --input {unit} --target {unit} "
        f"(data.input, data.target); it has {listed(names) or 'none'}"
    )


def _quotes_work(lines: list[str], complete: bool) -> bool:
    """Whether a TSV quotes its fields; many do not, and then a quote is a character like others."""
    if not any(line.startswith('"') or '\t"' in line for line in lines):
        return False
    reader = csv.reader(iter(lines), delimiter="\t", strict=True)
    widths = set()
    try:
        with _wide_fields():
            for row in reader:
                widths |= {len(row)} - {0}
    except csv.Error:
        return not complete and reader.line_num == len(lines) and len(widths) == 1
    return len(widths) == 1


def _sample(
    lines: list[str], delimiter: str, quoted: bool, columns: Sequence[str]
) -> list[list[str]]:
    """The first rows of one width; titles before a wider table are not among them."""
    reader = csv.reader(
        iter(lines),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    rows: list[list[str]] = []
    with _wide_fields():
        while len(rows) < SAMPLE:
            try:
                row = next(reader, None)
            except csv.Error:
                continue
            if row is None:
                break
            if row:
                rows.append(row)
    wide = [row for row in rows if len(row) > 1]
    named = rows and (rows[0][0] in columns or rows[0][0].lower() in USUAL)
    if rows and len(rows[0]) == 1 and not named and 2 * len(wide) > len(rows):
        rows = wide
    return [row for row in rows if len(row) == len(rows[0])]


def _has_header(rows: list[list[str]]) -> bool:
    """Whether the first row names the columns: a usual name, or unlike the values below it."""
    top, below = rows[0], rows[1:]
    if len(set(top)) < len(top) or any(not cell or not _is_text(cell) for cell in top):
        return False
    if any(cell.strip().lower() in USUAL for cell in top):
        return True
    for i, cell in enumerate(top):
        values = [row[i] for row in below if row[i]]
        if values and not any(map(_is_text, values)):
            return True
        if len(values) >= 4 and cell not in values and 2 * len(set(values)) <= len(values):
            return True
    return False


def _choose(
    path: Path, names: list[str], rows: list[list[str]], width: int, taken: Sequence[str]
) -> str:
    """The column of the text, where there is only one that it can be; not one of those taken."""
    labels = names if len(set(names)) == width else [str(i + 1) for i in range(width)]
    usual = [name for name in names if name.strip().lower() in USUAL and name not in taken]
    texts = [
        label
        for i, label in enumerate(labels)
        if 2 * sum(_is_text(row[i]) for row in rows) > sum(bool(row[i]) for row in rows)
        and not {label, str(i + 1)} & set(taken)
    ]
    for found in (usual, texts):
        if len(found) == 1:
            return found[0]
    raise UsageError(
        f"{path}: which column holds the text? say --input COLUMN (data.input); "
        f"it has {listed(labels)}"
    )


def _is_text(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return any(map(str.isalpha, cell))
    return False


def _is_number(column: str) -> bool:
    return column.isascii() and column.isdecimal() and len(column) < 10


def _shown(name: str) -> str:
    return name[:40] if name.isprintable() else repr(name[:40])


def listed(names: list[str]) -> str:
    """Names of columns in a few words."""
    shown = ", ".join(map(_shown, names[:20]))
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def hint(column: str, names: list[str]) -> str:
    """The nearest of the names to one that is not among them, and all of them."""
    close = get_close_matches(column, names, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"it has {listed(names)}"


@dataclass(frozen=True)
class BlankSeparated:
    """How to read such lines: which columns, in which order."""

    names: tuple[str, ...]  # "1" and "2"
    encoding: str = UTF8

    @property
    def why(self) -> str:
        """What is read, in words."""
        kinds = {"1": "up to the first blank", "2": "after the first blank"}
        return f"text {kinds[self.names[0]]} of a line"

    def batches(self, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
        """The columns' texts, in order, empty ones too; lines not UTF-8 go to `tally`."""
        places = [int(name) - 1 for name in self.names]
        for block in decoded_lines(path, self.encoding):
            columns: list[list[str]] = [[] for _ in places]
            lines = []
            for i, line in enumerate(block.texts):
                if i in block.bad:
                    tally.damaged(block.bad[i])
                elif not line.strip():
                    tally.blank += 1
                else:
                    halves = [*line.split(maxsplit=1), ""]
                    for column, place in zip(columns, places, strict=True):
                        column.append(halves[place].rstrip())
                    lines.append(block.first + i)
            yield columns, lines
