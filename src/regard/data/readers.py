"""Sequences in FASTA: a header line that begins with `>`, and the sequence on the lines below it.

Sequences may span lines; blanks in them, blank lines and lines that begin with `;` (comments of the
first FASTA) are left out, and letters keep their case. A header is an id, its first word, and
whatever follows; `name=value` in it can be asked for by its name.

Records under a key of JSON objects, one object a line (JSON Lines).

A user's files as a stream of text records, or of running text, in bounded memory.

`Source` takes files and folders, decides what they hold and says why, and streams them: `records`
for one record a line, a table cell or a JSON object; `text` and `documents` for running text, where
every file is one document. Files are UTF-8 unless another encoding is asked for, plain, compressed
with gzip, or members of zip archives.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regard.data import formats
from regard.data.archives import Archives
from regard.data.class_folders import WholeFiles
from regard.data.formats import (
    UTF8,
    SkippedRecords,
    blocks,
    decoded_lines,
    detect,
    expand,
    extension,
    head,
    invalid_utf8,
    known_encoding,
    too_long,
)
from regard.data.tables import (
    BATCH,
    ROW,
    SAMPLE,
    USUAL,
    Batch,
    BlankSeparated,
    TableReader,
    hint,
    listed,
    table,
    two_needed,
)
from regard.errors import UsageError, UserError, did_you_mean
from regard.tokenizers.tokenizer import PLAIN, Canonical

WHOLE = ("header", "id")  # what can be asked of any header
FIELD = re.compile(r"(?:^|\s)([^\s=]+)=(\S*)")


class Entry(NamedTuple):
    """One sequence: its header without the `>`, and the line that stands on."""

    header: str
    text: str
    line: int

    @property
    def id(self) -> str:
        """The first word of the header."""
        return (self.header.split(maxsplit=1) or [""])[0]


@dataclass(frozen=True)
class Fasta:
    """How to read FASTA files: the sequence and, after it, what the `names` ask of the header."""

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8

    def batches(self, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
        """The sequences and what was asked of their headers, and the headers' lines."""
        columns: list[list[str]] = [[] for _ in range(1 + len(self.names))]
        lines: list[int] = []
        size = 0
        for entry in entries(path, tally, self.encoding):
            for column, cell in zip(columns, [entry.text, *self.cells(entry)], strict=True):
                column.append(cell)
            lines.append(entry.line)
            size += len(entry.text) + ROW
            if size > BATCH:
                yield columns, lines
                columns, lines, size = [[] for _ in columns], [], 0
        yield columns, lines

    def cells(self, entry: Entry) -> list[str]:
        """What the names ask of a header; "" where it does not say."""
        if not self.names:
            return []
        fields: dict[str, str] = dict(FIELD.findall(entry.header))
        fields |= {"header": entry.header, "id": entry.id}
        return [fields.get(name, "") for name in self.names]


def fasta(
    path: Path, names: Sequence[str], encoding: str = UTF8, flag: str = "data.target"
) -> Fasta:
    """Decide how FASTA like the file at `path` is read; names that no header has are an error."""
    top = head(path, encoding)[0]
    headers = re.findall(r"^>(.*)$", top, re.MULTILINE)
    if not headers and len(top) < formats.HEAD:
        raise UserError(
            f"{path}: is read as fasta, but no line begins with > (a header); sequences without "
            "headers, one a line, are --set data.format=lines"
        )
    fields = list(dict.fromkeys(key for header in headers for key, _ in FIELD.findall(header)))
    for name in names:
        if name not in (*WHOLE, *fields):
            raise UsageError(
                f"{path}: no header has {name}=… ({flag}); {hint(name, [*WHOLE, *fields])}"
            )
    asked = f" and {', '.join(names)} of its header" if names else ""
    return Fasta(tuple(names), f"each sequence{asked}", encoding)


def entries(
    path: Path, tally: SkippedRecords, encoding: str = UTF8, *, longest: float | None = None
) -> Iterator[Entry]:
    """Every sequence in order; one of more symbols than `longest`, or than a record may have, is an
    error.

    To `tally` go headers without a sequence, sequences before the first header, and lines that are
    not UTF-8 or are headers after blanks, which damage the sequence they stand in; ids that come
    again are noted.
    """
    met: dict[str, int] = {}  # id to its line
    doubled: set[str] = set()  # ids of more than one
    for header, line, parts, problem in _stretches(path, encoding, longest or formats.LINE_LIMIT):
        text = "".join(parts)
        entry = Entry(header or "", text, line)
        if problem:
            tally.damaged(problem)
        elif header is None:
            if text:
                tally.damaged(f"{path}:{line}: a sequence before the first header (a line with >)")
        elif not text:
            tally.damaged(f"{path}:{line}: the header {header[:40]!r} has no sequence")
        else:
            first = met.setdefault(entry.id, line) if entry.id else line
            if first != line:
                problem = f"{path}:{line}: the id {entry.id[:40]!r} was on line {first:,} already"
                tally.again(entry.id, problem, times=1 if entry.id in doubled else 2)
                doubled.add(entry.id)
            yield entry


def _stretches(
    path: Path, encoding: str, longest: float
) -> Iterator[tuple[str | None, int, list[str], str]]:
    """(header, its line, the parts of its sequence, what is wrong), headers or not, in order."""
    header: str | None = None
    parts: list[str] = []
    start, problem, size = 1, "", 0
    for block in decoded_lines(path, encoding):
        for i, text in enumerate(block.texts):
            if text.startswith(">"):
                yield header, start, parts, problem
                header, start, parts, problem = text[1:].strip(), block.first + i, [], ""
                size = 0
            elif text and not text.startswith(";"):
                part = "".join(text.split())
                if part.startswith(">") and not problem:
                    problem = f"{path}:{block.first + i}: blanks before >; a header has none"
                if part and header is None and not parts:
                    start = block.first + i
                parts.append(part)
                size += len(part)
                if size > longest:
                    raise too_long(path, start)
            problem = problem or block.bad.get(i, "")
    yield header, start, parts, problem


@dataclass(frozen=True)
class JsonLines:
    """JSON Lines: an object with texts under `names` on every line, or a string if only one is.

    What lies under the names after the first `texts` may be a number or a truth value too, and null
    or missing is empty.
    """

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8
    texts: int = 2

    def batches(self, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
        """The texts, in order, empty ones too; lines that are no such objects go to `tally`."""
        for block in decoded_lines(path, self.encoding):
            texts: list[list[str]] = [[] for _ in self.names]
            lines: list[int] = []
            for i, raw in enumerate(block.texts):
                line = block.first + i
                if i in block.bad:
                    tally.damaged(block.bad[i])
                    continue
                if not raw.strip():
                    tally.blank += 1
                    continue
                try:
                    found = self._texts(raw)
                except ValueError as error:
                    tally.damaged(f"{path}:{line}: {error}")
                    continue
                for column, text in zip(texts, found, strict=True):
                    column.append(text)
                lines.append(line)
            yield texts, lines

    def _texts(self, raw: str) -> list[str]:
        value = _parse(raw)
        if isinstance(value, str) and len(self.names) == 1:
            value = {self.names[0]: value}
        if not isinstance(value, dict):
            keys = " and ".join(map(repr, self.names))
            raise ValueError(f"expected text under {keys}, got {type(value).__name__}")
        found = [self._text(raw, value, key) for key in self.names[: self.texts]]
        return found + [_cell(raw, value.get(key), key) for key in self.names[self.texts :]]

    def _text(self, raw: str, values: dict[str, object], key: str) -> str:
        if key not in values:
            raise ValueError(f"no key {key!r}; it has {listed(list(values)) or 'none'}")
        if not isinstance(values[key], str):
            raise ValueError(f"expected text under {key!r}, got {type(values[key]).__name__}")
        return _cell(raw, values[key], key)


def _cell(raw: str, value: object, key: str) -> str:
    """A value as a table would write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a text or a number under {key!r}, got {type(value).__name__}")
    if isinstance(value, str) and "\\u" in raw:
        _refuse_surrogates(value)
    return str(value)


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(f"{half} is half of a pair, which is no character") from None


def _parse(raw: str) -> object:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except ValueError:  # Python converts no whole number of more than 4,300 digits
        raise ValueError("not JSON that can be read: a number has thousands of digits") from None


def objects(path: Path, keys: Sequence[str], *, texts: int = 2, encoding: str = UTF8) -> JsonLines:
    """Decide under which keys the texts lie in JSON Lines like the file at `path`.

    An only key may be "" to choose it, and so may the first where not all are of texts.
    """
    if all(keys):
        found = f"text under {' and '.join(map(repr, keys))}"
        return JsonLines(tuple(keys), found, encoding, texts)
    samples, strings = _sampled(path, encoding)
    named = _named(samples)
    if len(keys) > 1 and (len(keys) <= texts or not all(keys[1:])):
        raise two_needed(path, "KEY", named)
    if not samples:
        return JsonLines(("text",), "a string a line" if strings else "text under 'text'", encoding)
    usual = [key for key in named if key.lower() in USUAL and key not in keys]
    strings_at = [
        key
        for key in named
        if key not in keys and any(isinstance(sample.get(key), str) for sample in samples)
    ]
    for only in (usual, strings_at):
        if len(only) == 1:
            why = f"text under {only[0]!r}"
            return JsonLines((only[0], *keys[1:]), why, encoding, texts)
    raise UsageError(
        f"{path}: which key holds the text? say --input KEY (data.input); it has {listed(named)}"
    )


def keys_in(path: Path, encoding: str = UTF8) -> list[str]:
    """The keys of the first objects in JSON Lines, each once."""
    return _named(_sampled(path, encoding)[0])


def _sampled(path: Path, encoding: str) -> tuple[list[dict[str, object]], int]:
    """The first objects in JSON Lines, and how many strings stand among them."""
    samples: list[dict[str, object]] = []
    strings = 0
    for raw in islice(head(path, encoding)[0].split("\n"), SAMPLE):
        try:
            value = _parse(raw)
        except ValueError:
            continue
        strings += isinstance(value, str)
        if isinstance(value, dict):
            samples.append(value)
    return samples, strings


def _named(samples: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for sample in samples for key in sample))


FORMATS = (
    *("auto", "lines", "text", "files", "csv", "tsv", "jsonl", "fasta", "smi", "labelled"),
    "images",
)
TABLES = ("csv", "tsv", "jsonl")


@dataclass(frozen=True, slots=True)
class Record:
    """One record and where it stands, as file:line."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Chunk(Sequence[Record]):
    """Some consecutive records of one file; `texts` is the fast way in, records cost more."""

    path: Path
    texts: list[str]
    lines: Sequence[int]  # the line each text begins on
    sources: Sequence[str] = ()  # what each text answers, where they come in pairs

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, i: int) -> Record:  # type: ignore[override]  # no slices: slice `texts`
        return Record(self.texts[i], self.place(i))

    def keys(self, form: Canonical = PLAIN) -> Sequence[str]:
        """What copies, splits and leaks go by: the sources of pairs, or else the texts, in the form
        in which they are compared.
        """
        return form.all(self.sources or self.texts)

    def place(self, i: int) -> str:
        """Where text i stands."""
        return f"{self.path}:{self.lines[i]}"


@dataclass(frozen=True, slots=True)
class Document:
    """The running text of one file."""

    path: Path
    encoding: str = UTF8

    def text(self) -> Iterator[str]:
        """The text in pieces of a few million characters; "\\r\\n" becomes "\\n", all else stays.

        Bytes that are not UTF-8 are an error: leaving them out would join what was apart.
        """
        held = b""  # of a character that the next block completes
        carriage = ""  # a "\r" whose "\n" may follow in the next block
        line, column = 1, 0  # of the first held byte
        for block in blocks(self.path, self.encoding):
            data = held + block
            try:
                text, used = codecs.utf_8_decode(data, "strict", False)
            except UnicodeDecodeError as error:
                raise self._invalid(data, error.start, line, column) from None
            if ends := data.count(b"\n", 0, used):
                line, column = line + ends, used - data.rfind(b"\n", 0, used) - 1
            else:
                column += used
            held = data[used:]
            text = (carriage + text).replace("\r\n", "\n")
            carriage = "\r" if text.endswith("\r") else ""
            if text := text.removesuffix("\r"):
                yield text
        if held:
            raise self._invalid(held, 0, line, column)
        if carriage:
            yield carriage

    def place(self, offset: int) -> str:
        """Where the character at `offset` of the text stands."""
        return f"{self.path}@{offset}"

    def _invalid(self, data: bytes, start: int, line: int, column: int) -> UserError:
        ends = data.count(b"\n", 0, start)
        offset = start - data.rfind(b"\n", 0, start) - 1 if ends else column + start
        return UserError(invalid_utf8(self.path, line + ends, offset, data[start]))


@dataclass(frozen=True, slots=True)
class FastaDocument(Document):
    """One sequence of a FASTA file as running text."""

    sequence: str = ""

    def text(self) -> Iterator[str]:
        """The sequence, in one piece."""
        yield self.sequence


class FileSet(ABC):
    """One or more files or folders read as one thing, in a format decided at the first.

    `format` is what was asked for or found; `why` says the reason. Damaged records are left out and
    counted, or refused when `strict`. `blank`, `skipped` and `problems` describe the latest pass
    over the records, as far as it has come.
    """

    format: str
    why: str
    form: Canonical = PLAIN  # in which records are compared

    def __init__(
        self, paths: Sequence[Path], format: str, strict: bool, encoding: str = UTF8
    ) -> None:
        if format not in FORMATS:
            hint = did_you_mean(format, list(FORMATS))
            raise UsageError(f"unknown data.format {format!r}; {hint}")
        self.paths = [Path(path) for path in paths]
        self._archives = Archives()
        self.files = self._expanded()
        self.size = sum(map(self._archives.size, self.files))
        self.strict, self.encoding = strict, known_encoding(encoding)
        self._tally = SkippedRecords(strict)
        self._layout: TableReader | JsonLines | Fasta | BlankSeparated | WholeFiles | None = None
        self._sequenced = False  # is running text that of FASTA?

    def _expanded(self) -> list[Path]:
        """The files that the paths mean."""
        return expand(self.paths)

    def _read_as(self, format: str, why: str, columns: Sequence[str]) -> None:
        """Settle the format, and which columns of a table or keys of objects are read."""
        self.format, self.why = format, why
        first, encoding = self.files[0], self.encoding
        if format in ("csv", "tsv"):
            self._layout = table(first, format, columns, encoding=encoding)
        elif format == "jsonl":
            self._layout = objects(first, columns, encoding=encoding)
        elif any(columns):
            key = "input" if columns[0] else "target"
            raise UsageError(
                f"data.{key} = {columns[0] or columns[1]!r} names a column, but {self.files[0]} is "
                f"read as {format} ({why}); --set data.format=csv, tsv or jsonl has columns"
            )
        elif format == "text" and extension(first) == "fasta":
            self._sequenced = True
            self.why = f"{why}, each sequence of FASTA a document"
        elif format == "fasta":
            self._layout = fasta(first, (), encoding)
        elif format == "files":
            self._layout = WholeFiles(encoding)
        elif format in ("smi", "labelled"):
            self._layout = BlankSeparated(("1" if format == "smi" else "2",), encoding)
        if self._layout:
            self.why = f"{why}, {self._layout.why}"

    @property
    def blank(self) -> int:
        """Records left out because nothing is in them."""
        return self._tally.blank

    @property
    def skipped(self) -> int:
        """Records left out because they are damaged: all of them, counted exactly."""
        return self._tally.skipped

    @property
    def problems(self) -> list[str]:
        """What is wrong with the first few damaged records, each with its file and line."""
        return list(self._tally.problems)

    @property
    def remarks(self) -> list[str]:
        """What else a user should know of the latest pass, a line each: records left out that are
        not damaged, ids that repeat, how numbers are written.
        """
        return self._tally.lines()

    def keys(self, chunk: Chunk) -> Sequence[str]:
        """What copies, splits and leaks of a chunk's records go by."""
        return chunk.keys(self.form)

    @abstractmethod
    def records(self) -> Iterator[Chunk]:
        """Every record in order, a few megabytes at a time; an error if there is none."""

    def documents(self) -> Iterator[Document]:
        """The files of running text, each one document; of FASTA, each sequence is one."""
        if self.format != "text":
            raise ValueError(f"{self.format} files have no documents; read records()")
        if not self._sequenced:
            yield from (Document(path, self.encoding) for path in self.files)
            return
        tally = self._tally = SkippedRecords(self.strict)
        for path in self.files:
            for entry in entries(path, tally, self.encoding, longest=math.inf):
                yield FastaDocument(path, self.encoding, entry.text)

    def text(self) -> Iterator[str]:
        """The documents' text, one after the other, in pieces; an error if there is none."""
        empty = True
        for document in self.documents():
            for piece in document.text():
                empty = False
                yield piece
        if empty:
            raise self._nothing(SkippedRecords())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of tables, or the keys of objects, that are read; of other files, none."""
        return self._layout.names if isinstance(self._layout, TableReader | JsonLines) else ()

    @property
    def all_files(self) -> list[Path]:
        """Every file that is read, those that stand beside the records' own too."""
        return self.files

    def fingerprint(self) -> str:
        """A hash of the files' names, sizes and bytes; the same wherever the files are put."""
        return self.hashes()[0]

    def hashes(self) -> tuple[str, dict[str, str]]:
        """The fingerprint, and the name of each file by a hash of its bytes alone, which is the
        same whatever the file is called.
        """
        total = hashlib.blake2b(digest_size=16)
        files: dict[str, str] = {}
        for path in self.all_files:
            one = hashlib.blake2b(digest_size=16)
            try:
                with self._archives.open(path) as stream:
                    label = f"{self._name(path)}\0{self._archives.size(path)}\0"
                    total.update(label.encode(errors="surrogateescape"))
                    while block := stream.read(1 << 20):
                        total.update(block)
                        one.update(block)
            except OSError as error:
                raise UserError(f"{path}: cannot be read: {error.strerror}") from None
            files[one.hexdigest()] = self._name(path)
        return total.hexdigest(), files

    def _name(self, path: Path) -> str:
        """What a file is called wherever its folder is put."""
        inside = [root for root in self.paths if root in path.parents]
        return os.fspath(path.relative_to(inside[0])) if inside else path.name

    def _nothing(self, tally: SkippedRecords) -> UserError:
        where = f"{self.files[0]}" + (f" and {len(self.files) - 1} more" if self.files[1:] else "")
        if tally.left:
            damaged = f"; {tally.skipped:,} more are damaged" if tally.skipped else ""
            left = "; ".join(tally.left_out())
            return UserError(f"{where}: no record can be used: {left}{damaged}")
        if tally.skipped:
            return UserError(
                f"{where}: all {tally.skipped:,} records are damaged; first: {tally.problems[0]}"
            )
        return UserError(f"{where}: nothing to read ({tally.blank:,} blank records)")


class TextFiles(FileSet):
    """Files as single records, or as running text.

    The format "auto" is decided by looking; `column` names a column (or numbers it from 1) or a
    JSON key, and may be left out where only one fits.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        format: str = "auto",
        column: str = "",
        strict: bool = False,
        encoding: str = UTF8,
    ) -> None:
        super().__init__(paths, format, strict, encoding)
        found = (format, "as asked") if format != "auto" else detect(self.files, self.encoding)
        self._read_as(*found, [column])

    def records(self) -> Iterator[Chunk]:
        """Every record in order, a few megabytes at a time; an error if there is none."""
        if self.format == "text":
            raise ValueError("running text has no records; read text() or documents()")
        tally = self._tally = SkippedRecords(self.strict)
        empty = True
        for path in self.files:
            stream = (
                self._cells(path, tally) if self._layout else lines_of(path, tally, self.encoding)
            )
            for texts, lines in stream:
                if texts:
                    empty = False
                    yield Chunk(path, texts, lines)
        if empty:
            raise self._nothing(tally)

    def _cells(self, path: Path, tally: SkippedRecords) -> Iterator[tuple[list[str], list[int]]]:
        assert self._layout is not None
        for (texts,), lines in self._layout.batches(path, tally):
            if "" in texts:
                keep = [i for i, text in enumerate(texts) if text]
                tally.blank += len(texts) - len(keep)
                yield [texts[i] for i in keep], [lines[i] for i in keep]
            else:
                yield texts, lines


def lines_of(
    path: Path, tally: SkippedRecords, encoding: str = UTF8
) -> Iterator[tuple[list[str], Sequence[int]]]:
    """The lines that hold something, and their numbers; the others are counted."""
    for first, texts, bad in decoded_lines(path, encoding):
        if not bad and "" not in texts:
            yield texts, range(first, first + len(texts))
            continue
        for problem in bad.values():
            tally.damaged(problem)
        keep = [i for i, text in enumerate(texts) if text and i not in bad]
        tally.blank += len(texts) - len(bad) - len(keep)
        yield [texts[i] for i in keep], [first + i for i in keep]
