"""Records in tables: CSV, TSV, JSON Lines, Parquet, FASTA, and lines cut at their first blank.

A column is named, or numbered from 1. Where only one column looks like text it need not be named;
the others, for pairs and labelled records, must be.

FASTA has a header line that begins with `>`, and a sequence on the lines below it. Blanks within
sequences, blank lines and lines that begin with `;` (comments of the first FASTA) are dropped;
letters keep their case. The first word of a header is the id; a `name=value` in it is a field that
can be read by its name.
"""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from regard.data import formats
from regard.data.formats import (
    LINE_LIMIT,
    UTF8,
    Archives,
    SkippedRecords,
    decoded_lines,
    head,
    require_encoding,
    too_long,
)
from regard.errors import UsageError, UserError

USUAL = ("text", "sequence", "name", "smiles", "sentence")  # names of text columns
SAMPLE = 200  # rows that tell text from numbers
FORM = 0.95  # share of the cells below a header that differ from it in form
HEAD_ROWS = 20_000  # at most, from which a sample is taken
PARQUET_ROWS = 10_000  # of a batch
BATCH = 2 << 20  # characters of records in a batch ...
FITTED, FEWEST, SAME = 1000, 10, 0.99  # lines that tell a table, and share of equal widths
ROW = 64  # ... where a row, however short, counts as this many
FLAGS = ("--input", "--target")  # the options that name the columns of pairs

T = TypeVar("T")
Batch = tuple[list[list[str]], list[int]]  # the texts of each column, and their line numbers


class Layout(Protocol):
    """How the records of a file are read."""

    has_columns: ClassVar[bool]  # are `names` those of columns or keys?

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def why(self) -> str:
        """What is read, in words."""

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        """Yield the texts of the columns, empty ones too; damaged records go to `skipped`."""


@dataclass(frozen=True)
class TableReader:
    """The layout of CSV or TSV files."""

    has_columns: ClassVar[bool] = True

    delimiter: str
    quoted: bool
    header: bool
    names: tuple[str, ...]  # of the columns that are read: in the header, or numbers from 1
    titled: bool  # lines of one field before the first row are titles
    why: str
    encoding: str = UTF8
    columns: tuple[str, ...] = ()  # all that the header names
    batch: int = BATCH  # characters that are read at once, about

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        width, indices = 0, [0]
        for batch in _Rows(path, self).batches():
            texts: list[list[str]] = [[] for _ in self.names]
            lines: list[int] = []
            for line, row in batch:
                if isinstance(row, str):
                    skipped.damaged(row)
                elif not row:
                    skipped.blank += 1
                elif not width and self.titled and len(row) == 1:
                    skipped.damaged(f"{path}:{line}: a title or comment, not a row of the table")
                elif not width and self.header:
                    width, indices = len(row), self._indices(path, row)
                else:
                    if not width:
                        width, indices = len(row), self._indices(path, row)
                    if len(row) != width:
                        skipped.damaged(f"{path}:{line}: {len(row)} fields, expected {width}")
                        continue
                    for column, index in zip(texts, indices, strict=True):
                        column.append(row[index])
                    lines.append(line)
            yield texts, lines

    def _indices(self, path: Path, row: list[str]) -> list[int]:
        names = row if self.header else []
        indices = []
        for column in self.names:
            if column in names:
                indices.append(names.index(column))
            elif _is_number(column) and 1 <= int(column) <= len(row):
                indices.append(int(column) - 1)
            else:
                raise UserError(f"{path}: has no column {column!r}; it has {listed(names or row)}")
        return indices


class _Rows:
    """The rows of a file with their line numbers, parsed by the csv module in bounded memory."""

    def __init__(self, path: Path, layout: TableReader) -> None:
        self.path, self.encoding, self.batch = path, layout.encoding, layout.batch
        self.fed = 0  # characters given to the parser since the last row was complete
        self.line = 1  # the first of the row that is being read
        self.ended = False
        self.bad: deque[tuple[int, str]] = deque()  # lines that are not UTF-8
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
        """Yield rows, or what is wrong with them, a few megabytes at a time."""
        while not self.ended:
            with _long_fields():
                batch = list(self._batch())
            yield batch

    def _batch(self) -> Iterator[tuple[int, list[str] | str]]:
        size = 0
        while size < self.batch:
            self.fed, self.line = 0, self.reader.line_num + 1
            try:
                row = next(self.reader, None)
            except csv.Error as error:
                if self.ended:
                    raise UserError(
                        f"{self.path}:{self.line}: a quote opens and never closes"
                    ) from None
                row, problem = [], f"{self.path}:{self.line}: {error}"
            else:
                problem = self._problem(self.line)
            if row is None:
                return
            size += self.fed + ROW
            yield self.line, problem or row

    def _problem(self, first: int) -> str:
        first_problem = ""
        while self.bad and self.bad[0][0] <= self.reader.line_num:
            line, problem = self.bad.popleft()
            first_problem = first_problem or (problem if line >= first else "")
        return first_problem


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let the csv module read fields as long as a row may be; its limit is global."""
    before = csv.field_size_limit(2 * LINE_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class TableFormat(ABC):
    """A format of tables, whose records have columns. Its name in `registry.TABLES` is data.format.

    To add one, write a subclass and a line in `registry.py`, or name it as an entry point of the
    group "regard.formats".
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]  # of files
    unit: ClassVar[str] = "COLUMN"  # what --input and --target name

    @classmethod
    @abstractmethod
    def columns(
        cls, path: Path, encoding: str = UTF8, *, wanted: Sequence[str] = (), named: bool = True
    ) -> list[str]:
        """Return the names of the columns; without a header there are none or, unless they must be
        `named`, the cells of the first row. A first row that holds a `wanted` name is a header.
        """

    @classmethod
    @abstractmethod
    def layout(
        cls,
        path: Path,
        columns: Sequence[str],
        *,
        flags: Sequence[str] = FLAGS,
        texts: int = 2,
        encoding: str = UTF8,
    ) -> Layout:
        """Return how tables like the file at `path` are read.

        A single column may be "" and is then chosen; so may the first of several, unless `flags`,
        the options that name them, are those of pairs. The first `texts` columns hold texts.
        """

    @classmethod
    @abstractmethod
    def recognize(cls, line: str, columns: Sequence[str], *, trained: bool) -> str:
        """Return why a file that begins with this line has these columns of a run, or "".

        `trained` is whether the training files had this format.
        """

    @classmethod
    @abstractmethod
    def sample(cls, path: Path, encoding: str = UTF8, *, rows: int) -> dict[str, list[str]]:
        """Return so many cells of each column, by its name or, without a header, its number. They
        are spread over the head of the file, which may be sorted.
        """

    @classmethod
    def fits(cls, lines: Sequence[str]) -> str:
        """Return why the lines of a file without a telling name are such a table, or ""."""
        return ""

    @classmethod
    def remark(cls, path: Path, encoding: str = UTF8) -> str:
        """Return what a table holds that cannot be read as it is, and what to do, else ""."""
        return ""

    @classmethod  # noqa: B027
    def require(cls, path: Path, columns: Sequence[str], encoding: str, flag: str) -> None:
        """Raise a UsageError for a column that is missing, unless `layout` does so."""


class Delimited(TableFormat):
    """Tables with a row a line, and a delimiter between the cells."""

    delimiters: ClassVar[tuple[str, ...]]  # the first is the usual one
    between: ClassVar[str] = "delimiters"  # what stands between cells, in words
    least: ClassVar[int] = 3  # cells of a row that are no accident

    @classmethod
    def fits(cls, lines: Sequence[str]) -> str:
        rows = [line for line in lines[:FITTED] if not line.startswith("#")]
        for delimiter in cls.delimiters if len(rows) >= FEWEST else ():
            with _long_fields():
                widths = Counter(len(next(csv.reader([row], delimiter=delimiter))) for row in rows)
            width, count = widths.most_common(1)[0]
            if width >= cls.least and count >= SAME * widths.total():
                return f"{width} cells a line, {cls.between} between them"
        return ""

    @classmethod
    def columns(
        cls, path: Path, encoding: str = UTF8, *, wanted: Sequence[str] = (), named: bool = True
    ) -> list[str]:
        _, _, rows, header = cls._sniff(path, wanted, encoding)
        return rows[0] if header or not named else []

    @classmethod
    def recognize(cls, line: str, columns: Sequence[str], *, trained: bool) -> str:
        for delimiter in cls.delimiters:
            cells = next(csv.reader([line], delimiter=delimiter), [])
            if all(column.isdecimal() for column in columns):
                matches = trained and len(cells) >= max(2, *map(int, columns))
            else:
                matches = set(columns) <= set(cells)
            if matches:
                return f"columns as in training, {delimiter!r} between them"
        return ""

    @classmethod
    def layout(
        cls,
        path: Path,
        columns: Sequence[str],
        *,
        flags: Sequence[str] = FLAGS,
        texts: int = 2,
        encoding: str = UTF8,
    ) -> TableReader:
        delimiter, quoted, rows, header = cls._sniff(path, columns, encoding)
        names = rows[0]
        labels = names if header else []
        chosen = list(columns)
        if not chosen[0] and (len(chosen) == 1 or flags is not FLAGS):
            chosen[0] = _choose(path, labels, rows[header:] or rows, len(names), chosen[1:])
        chosen = [
            _resolve(path, flag, column, names, header)
            for flag, column in zip(flags, chosen, strict=False)
        ]
        listing = f"column{'s' * (len(chosen) > 1)} {' and '.join(map(repr, chosen))}"
        why = (
            f"{'with' if header else 'without'} a header, {'text in ' * (flags is FLAGS)}{listing}"
        )
        titled = len(names) > 1
        return TableReader(
            delimiter, quoted, header, tuple(chosen), titled, why, encoding, tuple(labels)
        )

    @classmethod
    def sample(cls, path: Path, encoding: str = UTF8, *, rows: int) -> dict[str, list[str]]:
        require_encoding(path, encoding)
        _, _, top, header = cls._sniff(path, (), encoding, HEAD_ROWS)
        unique = header and len(set(top[0])) == len(top[0])
        names = top[0] if unique else [str(i + 1) for i in range(len(top[0]))]
        chosen = _spread(top[header:], rows)
        return {name: [row[i] for row in chosen] for i, name in enumerate(names)}

    @classmethod
    def _sniff(
        cls, path: Path, columns: Sequence[str], encoding: str, n_rows: int = SAMPLE
    ) -> tuple[str, bool, list[list[str]], bool]:
        """Return the delimiter of a table, whether it uses quotes, its first rows, and whether the
        first of them is a header.
        """
        text, complete = head(path, encoding)
        if not complete and "\n" in text:
            text = text[: text.rindex("\n")]
        lines = [line + "\n" for line in text.split("\n")]
        delimiter = cls._delimiter(next((line for line in lines if line.strip()), ""))
        quoted = cls._quotes(lines, complete)
        rows = _sample(lines, delimiter, quoted, columns, n_rows)
        if not rows:
            raise UserError(f"{path}: holds no {cls.name} rows")
        header = any(_heads(rows, column) for column in columns) or _has_header(rows)
        return delimiter, quoted, rows, header

    @classmethod
    def _delimiter(cls, top: str) -> str:
        """Return the delimiter of the first line: the usual one, unless only another occurs."""
        usual, *others = cls.delimiters
        return next((d for d in others if d in top and usual not in top), usual)

    @classmethod
    def _quotes(cls, lines: list[str], complete: bool) -> bool:
        """Return whether cells are quoted."""
        return True


class Csv(Delimited):
    """Comma-separated values; in many countries a semicolon stands between them."""

    name, suffixes, delimiters = "csv", (".csv",), (",", ";")
    between = "commas or semicolons"


class Tsv(Delimited):
    """Tab-separated values."""

    name, suffixes, delimiters = "tsv", (".tsv",), ("\t",)
    between, least = "tabs", 2

    @classmethod
    def _quotes(cls, lines: list[str], complete: bool) -> bool:
        return _tsv_quotes(lines, complete)


def _resolve(path: Path, flag: str, column: str, names: list[str], header: bool) -> str:
    """Return the name of a column, if it has a unique one, or its number."""
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
    """Return the error for pairs whose columns or keys are not both named."""
    return UsageError(
        f"{path}: which hold the pairs? say --input {unit} --target {unit} "
        f"(data.input, data.target); it has {listed(names) or 'none'}"
    )


def _tsv_quotes(lines: list[str], complete: bool) -> bool:
    """Return whether a TSV quotes its fields; in many, a quote is a character like others."""
    if not any(line.startswith('"') or '\t"' in line for line in lines):
        return False
    reader = csv.reader(iter(lines), delimiter="\t", strict=True)
    widths = set()
    try:
        with _long_fields():
            for row in reader:
                widths |= {len(row)} - {0}
    except csv.Error:
        return not complete and reader.line_num == len(lines) and len(widths) == 1
    return len(widths) == 1


def _sample(
    lines: list[str], delimiter: str, quoted: bool, columns: Sequence[str], n_rows: int
) -> list[list[str]]:
    """Return the first rows of one width, without titles before a wider table."""
    reader = csv.reader(
        iter(lines), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    )
    rows: list[list[str]] = []
    with _long_fields():
        while len(rows) < n_rows:
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


def _spread(rows: Sequence[T], count: int) -> list[T]:
    """Return so many of the rows, evenly spread."""
    return list(rows[:: max(1, -(-len(rows) // count))])


def _heads(rows: list[list[str]], column: str) -> bool:
    """Return whether the name of a column makes the first row a header; a number that recurs below
    is a value, such as the class 1.
    """
    top, *below = rows
    if not column or column not in top:
        return False
    return not _is_number(column) or column not in [row[top.index(column)] for row in below]


def _has_header(rows: list[list[str]]) -> bool:
    """Return whether the first row has a usual name, or differs in kind from the values below."""
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
        if len(values) >= 4 and _differs_in_form(cell, values):
            return True
    return False


def _differs_in_form(top: str, values: list[str]) -> bool:
    """Return whether a cell is a word above sentences, or above texts that begin with digits."""
    sentences = sum(" " in value.strip() for value in values)
    digits = sum(value.lstrip("+-<>~ ")[:1].isdigit() for value in values)
    word = " " not in top.strip() and top[:1].isalpha()
    return word and max(sentences, digits) >= FORM * len(values)


def _choose(
    path: Path, names: list[str], rows: list[list[str]], width: int, taken: Sequence[str]
) -> str:
    labels = names if len(set(names)) == width else [str(i + 1) for i in range(width)]
    usual = [name for name in names if name.strip().lower() in USUAL and name not in taken]
    texts = [
        label
        for i, label in enumerate(labels)
        if 2 * sum(_is_text(row[i]) for row in rows) > sum(bool(row[i]) for row in rows)
        and not {label, str(i + 1)} & set(taken)
    ]
    for candidates in (usual, texts):
        if len(candidates) == 1:
            return candidates[0]
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


def listed(names: list[str]) -> str:
    """Return a list of column names for a message."""
    shown = [name[:40] if name.isprintable() else repr(name[:40]) for name in names[:20]]
    return ", ".join(shown) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def hint(column: str, names: list[str]) -> str:
    """Return the column name closest to one that does not exist, and all names."""
    close = get_close_matches(column, names, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"it has {listed(names)}"


@dataclass(frozen=True)
class JsonReader:
    """The layout of JSON Lines: on every line an object with the keys `names`, or a string if
    there is only one key.

    The first `texts` keys must hold strings. The others may also hold numbers and booleans, and an
    empty text stands for null or a missing key.
    """

    has_columns: ClassVar[bool] = True

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8
    texts: int = 2

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        return _parse_lines(path, self.encoding, skipped, len(self.names), self._parse)

    def _parse(self, raw: str) -> list[str]:
        value = _parse_json(raw)
        if isinstance(value, str) and len(self.names) == 1:
            value = {self.names[0]: value}
        if not isinstance(value, dict):
            keys = " and ".join(map(repr, self.names))
            raise ValueError(f"expected text under {keys}, got {type(value).__name__}")
        for key in self.names[: self.texts]:
            if key not in value:
                raise ValueError(f"no key {key!r}; it has {listed(list(value)) or 'none'}")
            if not isinstance(value[key], str):
                raise ValueError(f"expected text under {key!r}, got {type(value[key]).__name__}")
        return [_format_cell(raw, value.get(key), key) for key in self.names]


def _parse_lines(
    path: Path,
    encoding: str,
    skipped: SkippedRecords,
    n_columns: int,
    parse: Callable[[str], list[str]],
) -> Iterator[Batch]:
    """Yield the columns of lines, each parsed on its own; a ValueError is damage."""
    for block in decoded_lines(path, encoding):
        columns: list[list[str]] = [[] for _ in range(n_columns)]
        lines: list[int] = []
        for i, text in enumerate(block.texts):
            if i in block.bad:
                skipped.damaged(block.bad[i])
            elif not text.strip():
                skipped.blank += 1
            else:
                try:
                    row = parse(text)
                except ValueError as error:
                    skipped.damaged(f"{path}:{block.first + i}: {error}")
                    continue
                for column, cell in zip(columns, row, strict=True):
                    column.append(cell)
                lines.append(block.first + i)
        yield columns, lines


def _format_cell(raw: str, value: object, key: str) -> str:
    """Return a JSON value as a table would write it; `raw` is its line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a text or a number under {key!r}, got {type(value).__name__}")
    if isinstance(value, str) and "\\u" in raw:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            surrogate = f"\\u{ord(value[error.start]):04x}"
            raise ValueError(f"{surrogate} is half of a pair, which is no character") from None
    return str(value)


def _parse_json(raw: str) -> object:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except ValueError:  # Python converts no integer of more than 4,300 digits
        raise ValueError("not JSON that can be read: a number has thousands of digits") from None


def _object(line: str) -> object:
    """Return the object that a line holds, or None."""
    try:
        return _parse_json(line) if line.startswith("{") else None
    except ValueError:
        return None


class JsonLines(TableFormat):
    """JSON Lines: an object a line, or a string."""

    name, suffixes, unit = "jsonl", (".jsonl", ".ndjson"), "KEY"

    @classmethod
    def fits(cls, lines: Sequence[str]) -> str:
        objects = [isinstance(_object(line), dict) for line in lines[:FITTED]]
        return "an object a line" if len(objects) >= FEWEST and all(objects) else ""

    @classmethod
    def columns(
        cls, path: Path, encoding: str = UTF8, *, wanted: Sequence[str] = (), named: bool = True
    ) -> list[str]:
        return _keys_of(_sample_json(path, encoding)[0])

    @classmethod
    def layout(
        cls,
        path: Path,
        columns: Sequence[str],
        *,
        flags: Sequence[str] = FLAGS,
        texts: int = 2,
        encoding: str = UTF8,
    ) -> JsonReader:
        if all(columns):
            if conversation := _conversation(_sample_json(path, encoding)[0], columns):
                raise UsageError(f"{path}: {conversation}")
            why = f"text under {' and '.join(map(repr, columns))}"
            return JsonReader(tuple(columns), why, encoding, texts)
        samples, strings = _sample_json(path, encoding)
        names = _keys_of(samples)
        if len(columns) > 1 and (len(columns) <= texts or not all(columns[1:])):
            raise two_needed(path, cls.unit, names)
        if not samples:
            return JsonReader(
                ("text",), "a string a line" if strings else "text under 'text'", encoding
            )
        if conversation := _conversation(samples):
            raise UsageError(f"{path}: {conversation}")
        names_left = [key for key in names if key not in columns]
        usual = [key for key in names_left if key.lower() in USUAL]
        strings_at = [
            key for key in names_left if any(isinstance(sample.get(key), str) for sample in samples)
        ]
        for candidates in (usual, strings_at):
            if len(candidates) == 1:
                why = f"text under {candidates[0]!r}"
                return JsonReader((candidates[0], *columns[1:]), why, encoding, texts)
        raise UsageError(
            f"{path}: which key holds the text? say --input KEY (data.input); it has "
            f"{listed(names)}"
        )

    @classmethod
    def sample(cls, path: Path, encoding: str = UTF8, *, rows: int) -> dict[str, list[str]]:
        samples = _spread(_sample_json(path, encoding, HEAD_ROWS)[0], rows)
        return {
            key: [_plain_cell(sample.get(key)) for sample in samples]
            for key in _keys_of(samples)
            if not any(isinstance(sample.get(key), list | dict) for sample in samples)
        }

    @classmethod
    def remark(cls, path: Path, encoding: str = UTF8) -> str:
        return _conversation(_sample_json(path, encoding)[0])

    @classmethod
    def recognize(cls, line: str, columns: Sequence[str], *, trained: bool) -> str:
        if not line.lstrip().startswith("{"):
            return ""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return ""
        return "an object a line" if set(columns) <= set(value) else ""

    @classmethod
    def require(cls, path: Path, columns: Sequence[str], encoding: str, flag: str) -> None:
        names = cls.columns(path, encoding)
        missing = [key for key in columns if key and names and key not in names]
        if missing:
            shown = hint(missing[0], names)
            raise UsageError(f"{path}: has no key {missing[0]!r} ({flag}); {shown}")


class Parquet(TableFormat):
    """Parquet, read with pyarrow; cells are texts, as in other tables."""

    name, suffixes = "parquet", (".parquet", ".pq")

    @classmethod
    def open(cls, path: Path) -> Any:
        """Open a file with pyarrow."""
        try:
            module = import_module("pyarrow.parquet")
        except ImportError:
            raise UserError(
                f"{path}: Parquet is read with pyarrow, which is not installed: pip install pyarrow"
            ) from None
        try:
            with Archives().open(path) as stream:
                return module.ParquetFile(BytesIO(stream.read()))
        except Exception as error:  # pyarrow raises many kinds for a damaged file
            raise UserError(f"{path}: is no Parquet file that can be read: {error}") from None

    @classmethod
    def columns(
        cls, path: Path, encoding: str = UTF8, *, wanted: Sequence[str] = (), named: bool = True
    ) -> list[str]:
        schema = cls.open(path).schema_arrow
        return [name for name in schema.names if not schema.field(name).type.num_fields]

    @classmethod
    def sample(cls, path: Path, encoding: str = UTF8, *, rows: int) -> dict[str, list[str]]:
        names = cls.columns(path)
        batches = ParquetReader(tuple(names)).batches(path, SkippedRecords())
        columns, _ = next(batches, ([[] for _ in names], []))
        return {name: _spread(cells, rows) for name, cells in zip(names, columns, strict=True)}

    @classmethod
    def layout(
        cls,
        path: Path,
        columns: Sequence[str],
        *,
        flags: Sequence[str] = FLAGS,
        texts: int = 2,
        encoding: str = UTF8,
    ) -> ParquetReader:
        names, chosen = cls.columns(path), list(columns)
        if not chosen[0] and (len(chosen) == 1 or flags is not FLAGS):
            sample = cls.sample(path, rows=SAMPLE)
            rows = [list(row) for row in zip(*sample.values(), strict=True)]
            chosen[0] = _choose(path, names, rows, len(names), chosen[1:])
        chosen = [
            _resolve(path, flag, column, names, True)
            for flag, column in zip(flags, chosen, strict=False)
        ]
        listing = f"column{'s' * (len(chosen) > 1)} {' and '.join(map(repr, chosen))}"
        return ParquetReader(tuple(chosen), listing)

    @classmethod
    def recognize(cls, line: str, columns: Sequence[str], *, trained: bool) -> str:
        return ""  # it has no lines


@dataclass(frozen=True)
class ParquetReader:
    """The layout of Parquet files."""

    has_columns: ClassVar[bool] = True

    names: tuple[str, ...]
    why: str = ""

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        file, line = Parquet.open(path), 1
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=list(self.names)):
            columns = [batch.column(name).cast("string").to_pylist() for name in self.names]
            cells = [["" if cell is None else cell for cell in column] for column in columns]
            yield cells, list(range(line, line + batch.num_rows))
            line += batch.num_rows


def _sample_json(
    path: Path, encoding: str, rows: int = SAMPLE
) -> tuple[list[dict[str, object]], int]:
    samples: list[dict[str, object]] = []
    strings = 0
    for raw in islice(head(path, encoding)[0].split("\n"), rows):
        try:
            value = _parse_json(raw)
        except ValueError:
            continue
        strings += isinstance(value, str)
        if isinstance(value, dict):
            samples.append(value)
    return samples, strings


def _conversation(samples: list[dict[str, object]], keys: Sequence[str] = ()) -> str:
    """Return what to do if objects hold conversations, lists of messages with roles, else "".

    With `keys`, only if they are read.
    """
    for key, value in samples[0].items() if samples else ():
        is_read = not keys or key in keys
        if is_read and isinstance(value, list) and value and isinstance(value[0], dict):
            fields = listed(list(value[0]))
            others = [name for name in _keys_of(samples) if name != key]
            more = f" (beside {listed(others)})" if others else ""
            return (
                f"holds conversations under {key!r}{more}, each a list of messages with {fields}; "
                'write each as one text, as in {"text": "user: …\\nassistant: …"}, or a question '
                'and its answer, {"source": …, "target": …}, with --input source --target target'
            )
    return ""


def _plain_cell(value: object) -> str:
    """Return a JSON value that is no list or object as a table would write it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys_of(samples: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for sample in samples for key in sample))


@dataclass(frozen=True)
class BlankSeparated:
    """The layout of lines that are cut at their first blank: column 1 stands before it, column 2
    is the rest. Files of molecules (.smi, SMILES and a name) and many classic sets of labelled
    sentences are written so.
    """

    has_columns: ClassVar[bool] = False

    names: tuple[str, ...]  # "1" and "2"
    encoding: str = UTF8

    @property
    def why(self) -> str:
        return f"text {'up to' if self.names[0] == '1' else 'after'} the first blank of a line"

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        def parse(line: str) -> list[str]:
            fields = [*line.split(maxsplit=1), ""]
            return [fields[int(name) - 1].rstrip() for name in self.names]

        return _parse_lines(path, self.encoding, skipped, len(self.names), parse)


FIELDS = ("header", "id")  # that every header has
NAMED_FIELD = re.compile(r"(?:^|\s)([^\s=]+)=(\S*)")


class Entry(NamedTuple):
    """A sequence, its header without the `>`, and the line of the header."""

    header: str
    text: str
    line: int

    @property
    def id(self) -> str:
        """The first word of the header."""
        return (self.header.split(maxsplit=1) or [""])[0]


@dataclass(frozen=True)
class Fasta:
    """The layout of FASTA files: the sequence and, after it, the fields `names` of its header."""

    has_columns: ClassVar[bool] = False

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        columns: list[list[str]] = [[] for _ in range(1 + len(self.names))]
        lines: list[int] = []
        size = 0
        for entry in entries(path, skipped, self.encoding):
            for column, cell in zip(columns, [entry.text, *self.cells(entry)], strict=True):
                column.append(cell)
            lines.append(entry.line)
            size += len(entry.text) + ROW
            if size > BATCH:
                yield columns, lines
                columns, lines, size = [[] for _ in columns], [], 0
        yield columns, lines

    def cells(self, entry: Entry) -> list[str]:
        """Return the fields of a header, "" for those it lacks."""
        if not self.names:
            return []
        fields: dict[str, str] = dict(NAMED_FIELD.findall(entry.header))
        fields |= {"header": entry.header, "id": entry.id}
        return [fields.get(name, "") for name in self.names]


def fasta(
    path: Path, names: Sequence[str], encoding: str = UTF8, flag: str = "data.target"
) -> Fasta:
    """Return the layout of FASTA like the file at `path`; an unknown field is an error."""
    top = head(path, encoding)[0]
    headers = re.findall(r"^>(.*)$", top, re.MULTILINE)
    if not headers and len(top) < formats.HEAD:
        raise UserError(
            f"{path}: is read as fasta, but no line begins with > (a header); sequences without "
            "headers, one a line, are --set data.format=lines"
        )
    named = dict.fromkeys(name for header in headers for name, _ in NAMED_FIELD.findall(header))
    fields = [*FIELDS, *named]
    for name in names:
        if name not in fields:
            raise UsageError(f"{path}: no header has {name}=… ({flag}); {hint(name, fields)}")
    more = f" and {', '.join(names)} of its header" if names else ""
    return Fasta(tuple(names), f"each sequence{more}", encoding)


def entries(
    path: Path, skipped: SkippedRecords, encoding: str = UTF8, *, longest: float | None = None
) -> Iterator[Entry]:
    """Yield every sequence in order; one longer than `longest`, or than a record may be, is an
    error.

    Headers without a sequence, sequences before the first header, and lines that are not UTF-8 or
    are headers after blanks damage the sequence they belong to. Repeated ids are counted.
    """
    line_of: dict[str, int] = {}  # by id
    repeated: set[str] = set()
    for header, line, parts, problem in _split(path, encoding, longest or formats.LINE_LIMIT):
        text = "".join(parts)
        entry = Entry(header or "", text, line)
        if problem:
            skipped.damaged(problem)
        elif header is None:
            if text:
                skipped.damaged(
                    f"{path}:{line}: a sequence before the first header (a line with >)"
                )
        elif not text:
            skipped.damaged(f"{path}:{line}: the header {header[:40]!r} has no sequence")
        else:
            first = line_of.setdefault(entry.id, line) if entry.id else line
            if first != line:
                problem = f"{path}:{line}: the id {entry.id[:40]!r} was on line {first:,} already"
                skipped.repeat(entry.id, problem, times=1 if entry.id in repeated else 2)
                repeated.add(entry.id)
            yield entry


def _split(
    path: Path, encoding: str, longest: float
) -> Iterator[tuple[str | None, int, list[str], str]]:
    """Yield (header, its line, the parts of its sequence, what is wrong); the first header may be
    missing.
    """
    header: str | None = None
    parts: list[str] = []
    start, problem, size = 1, "", 0
    for block in decoded_lines(path, encoding):
        for line, text in enumerate(block.texts, start=block.first):
            if text.startswith(">"):
                yield header, start, parts, problem
                header, start, parts, problem, size = text[1:].strip(), line, [], "", 0
            elif text and not text.startswith(";"):
                part = "".join(text.split())
                if part.startswith(">") and not problem:
                    problem = f"{path}:{line}: blanks before >; a header has none"
                if part and header is None and not parts:
                    start = line
                parts.append(part)
                size += len(part)
                if size > longest:
                    raise too_long(path, start)
            problem = problem or block.bad.get(line - block.first, "")
    yield header, start, parts, problem
