"""Records that a trained model is applied to, read in the same way as its training files.

`InputReader` stores how those files were read: format, columns and classes. Its method `records`
streams the records of another file, or of standard input, in order. A record has the id of its
FASTA header or id column, or else its line number. A record that cannot be read is kept, with a
note on the reason. `RecordNotes` adds notes on records that are empty, longer than the context of
the model, contain symbols unknown to the tokenizer, or are invalid, such as a SMILES that RDKit
cannot parse.
"""

from __future__ import annotations

import re
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from regard.data.formats import (
    FASTA,
    UTF8,
    SkippedRecords,
    decoded_lines,
    detect,
    expand,
    extension,
    head,
    invalid_utf8,
    is_archive,
    refuse_binary,
)
from regard.data.labelled import ColumnSelection, columns_of
from regard.data.media import CHUNK_ITEMS
from regard.data.shards import Shard
from regard.data.sources import ReadRequest, SourceChunk
from regard.data.tables import (
    BlankSeparated,
    fasta,
    two_needed,
)
from regard.data.text_files import FileSet, WholeFiles, aligned, known_formats, one_of, texts_in
from regard.errors import UsageError, UserError, did_you_mean
from regard.recipe import MISSING
from regard.registry import TABLES
from regard.tokenizers import Tokenizer
from regard.tokenizers.tokenizer import Ids

LOOKED_INTO = 1000  # at most this many records are searched for unknown symbols
SHOWN = 5  # symbols and records listed


COUNTED = ("count", "records", "symbols", "changed", "places")


class UnknownSymbols:
    """Count the unknown symbols of a split; with `strict`, they are an error."""

    def __init__(self, tokenizer: Tokenizer, strict: bool) -> None:
        self.tokenizer, self.strict = tokenizer, strict
        self.count = self.records = 0
        self.symbols: Counter[str] = Counter()  # of the first LOOKED_INTO records
        self.changed: Counter[str] = Counter()
        self.places: list[str] = []

    def add(self, chunk: SourceChunk, ids: Ids, lengths: Ids) -> None:
        """Count the unknown symbols of a chunk; if strict, raise a UserError for the first record.

        Every chunk of running text counts as one record.
        """
        self.changed += self.tokenizer.count_substitutions(chunk.texts)
        totals = np.concatenate([[0], np.cumsum(ids == self.tokenizer.unk)])
        n_unknown = np.diff(totals[np.cumsum(lengths)], prepend=0)  # (R,)
        self.count += int(totals[-1])
        for i in np.flatnonzero(n_unknown).tolist():
            self.records += 1
            if self.records > LOOKED_INTO:
                continue
            location = chunk.place(i) if chunk.place else "running text"
            symbols = self.tokenizer.count_unknown(chunk.texts[i])
            if self.strict:
                raise UserError(
                    f"{location}: unknown to {self.tokenizer.name}: {_listed(symbols)}; "
                    "with strict = true no record may have any"
                )
            self.symbols += symbols
            if len(self.places) < SHOWN:
                self.places.append(f"{location} ({int(n_unknown[i]):,})")

    def state(self) -> dict[str, Any]:
        """Return all that was counted, for `restore`."""
        return {name: getattr(self, name) for name in COUNTED}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on counting from a state."""
        for name in COUNTED:
            setattr(self, name, type(getattr(self, name))(state[name]))

    def facts(self) -> dict[str, Any]:
        """Return the counts for the manifest and regard.json."""
        return {
            "unknown": self.count,
            "unknown_records": self.records,
            "unknown_symbols": dict(self.symbols.most_common(20)),
            "unknown_places": self.places,
            "read_as_others": dict(self.changed),
        }

    def lines(self, split: str) -> list[str]:
        """Return the lines to log for a split."""
        lines = []
        if self.count:
            lines.append(
                f"unknown in {self.records:,} records of {split}: {_listed(self.symbols)}; "
                + ", ".join(self.places)
                + (", …" if self.records > SHOWN else "")
            )
        if self.changed:
            lines.append(
                f"{self.changed.total():,} symbols of {split} are read as others: "
                + _listed(self.changed, str)
            )
        return lines


def _listed(symbols: Counter[str], show: Any = repr) -> str:
    """Return the most frequent symbols with their counts."""
    parts = [f"{show(symbol)} × {n:,}" for symbol, n in symbols.most_common(SHOWN)]
    return ", ".join(parts) + (", …" if len(symbols) > SHOWN else "") or "symbols it cannot name"


FIRST_BATCH, MAX_BATCH = 64, 4096  # records of a file
FIRST_READ, MAX_READ = 4 << 10, 256 << 10  # bytes of a stream
MAX_OPENING = 1 << 20  # bytes of a stream that determine its format
SAMPLED_LINES = 20  # lines that must all begin with a label
STANDARD = "standard input"
BOM = b"\xef\xbb\xbf"
PLAIN = ("lines", "text")  # formats with one record per line

Log = Callable[[str], None]
Lines = tuple[list[str], dict[int, str]]  # texts, and problems by index


def quiet(line: str) -> None:
    """Log nothing."""


class Item(NamedTuple):
    """One record: a text, an image or a point cloud, or "" with a note on the problem."""

    text: Any
    id: str  # from the file, or else the line number
    second: str = ""  # the second text or the target of a pair
    note: str = ""  # why it could not be read
    named: bool = False  # whether the id is from the file
    shown: str = ""  # the name of an image or a point cloud to print


@dataclass(frozen=True, kw_only=True)
class InputReader:
    """How a run read its training files; by default, as files without columns."""

    format: str = ""  # such as csv or fasta, as detected
    inputs: tuple[str, ...] = ()  # columns of the text, or of two texts
    targets: tuple[str, ...] = ()  # columns of the targets, or keys of FASTA headers
    classes: tuple[str, ...] = ()  # of the files, in order, if each contained one class
    labels: str = ""  # a file of targets by id
    pattern: str = ""  # its first group is the label within the target cell
    encoding: str = UTF8
    per_line: bool = False  # whether a line of a file in a class folder is a record
    missing: tuple[str, ...] = MISSING  # cells that mean a missing target
    strip: bool = False  # whether spaces around texts are removed
    files: Mapping[str, str] = field(default_factory=dict)  # names of the files by hash
    known: frozenset[str] = frozenset()  # classes of the run: a line may begin with one
    fingerprint: str = ""  # of all files
    format_asked: str = ""  # by the user, instead of the detected one
    input_asked: bool = False
    target_asked: bool = False

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> InputReader:
        """Return the reader described by a run's metadata; imported runs have the default."""
        if "reading" not in data:
            return cls()
        reading: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in data["reading"].items()
            if key in cls.__dataclass_fields__
        }
        classes = data["targets"]["classes"] if "targets" in data else ()
        return cls(
            format=data.get("format", ""),
            known=frozenset(classes[0] if classes else ()),
            fingerprint=data.get("fingerprints", {}).get("train", ""),
            **reading,
        )

    def asked(self, *, input: str = "", target: str = "", format: str = "auto") -> InputReader:
        """Return this reader with the options of a user."""
        if format not in (known := known_formats()):
            raise UsageError(f"unknown --format {format!r}; {did_you_mean(format, known)}")
        reader = self if format == "auto" else replace(self, format_asked=format)
        if input:
            reader = replace(reader, inputs=columns_of(input), input_asked=True)
        if target:
            reader = replace(reader, targets=columns_of(target), target_asked=True)
        return reader

    @property
    def first_text(self) -> InputReader:
        """This reader with the first text only: the source of pairs."""
        return replace(self, inputs=self.inputs[:1])

    def trained_on(self, files: FileSet) -> list[str]:
        """Return the names of the files that the run was trained on, by their hashes."""
        if not self.files and not self.fingerprint:
            return []
        fingerprint, by_hash = files.hashes()
        same = [name for digest, name in by_hash.items() if digest in self.files]
        return same or (list(by_hash.values()) if fingerprint == self.fingerprint else [])

    def format_of(self, path: Path) -> tuple[str, str]:
        """Return the format of a file, and the reason."""
        if self.format_asked:
            return self.format_asked, "as asked"
        if extension(path):
            return extension(path), "by the name"
        return self.guess("" if self.format == "files" else head(path, self.encoding)[0])

    def running_text(self, path: Path) -> str:
        """Return why a file is running text, or "".

        It is if it looks so, and the format of the training files was running text or is unknown.
        """
        if self.format_asked or extension(path) or self.format not in ("", "text"):
            return ""
        format, why = detect(expand([path]), self.encoding)
        return why if format == "text" else ""

    def format_to_measure(self, files: Sequence[Path]) -> str:
        """Return the format of files with targets: that of the training files, or "auto"."""
        extensions = {extension(path) for path in files}
        if self.format_asked:
            return self.format_asked
        if self.format == "text" and extensions <= {"", "fasta"}:
            return "text"
        if extensions != {""} or any(path.is_dir() or is_archive(path) for path in files):
            return "auto"
        format = self.guess(head(files[0], self.encoding)[0])[0]
        if format == "files":
            return "auto"
        return "labelled" if format == "lines" and self.format == "labelled" else format

    def guess(self, top: str) -> tuple[str, str]:
        """Return the format of a file by its beginning, and the reason."""
        if self.format == "files":
            return "files", "one file is one record, as in training; --format lines reads lines"
        if FASTA.match(top):
            return "fasta", "a header with > and a sequence below it"
        first = next((line for line in top.split("\n") if line.strip()), "")
        if self.inputs and self.inputs[0]:
            for name in TABLES:
                trained = self.format == name
                if why := TABLES[name].recognize(first, self.inputs, trained=trained):
                    return name, why
        if self.format == "smi":
            return "smi", "as in training"
        if self.format == "labelled" and self._begin_with_labels(top):
            return "labelled", "each line begins with a class of the run"
        return "lines", "one record a line"

    def _begin_with_labels(self, top: str) -> bool:
        lines = [line for line in top.split("\n")[:SAMPLED_LINES] if line.strip()]
        words = [line.split(maxsplit=1)[0] for line in lines]
        if self.pattern:
            matches = [re.search(self.pattern, word) for word in words]
            words = [(m.group(min(1, m.re.groups)) or "") if m else "" for m in matches]
        return bool(words) and self.known >= set(words)

    def records(
        self, path: Path | None, modality: Any, encoder: Any, log: Log
    ) -> Iterator[list[Item]]:
        """Yield batches of the records of a file, a folder or standard input, in order.

        Files of media contain items, or paths relative to the folder of the file. Raises a
        UserError if no record can be read.
        """
        if encoder.reads_text and path is not None and modality.recognize([path]):
            batches = _texts_of(modality.read(ReadRequest([path], ColumnSelection())))
        elif encoder.reads_text:
            batches = self._texts(path, log)
        elif path is not None and (path.is_dir() or modality.holds_items(path)):
            batches = _grouped(_items(path, modality, encoder), CHUNK_ITEMS)
        else:
            base = Path() if path is None else path.parent
            if path is not None and self.format_of(path)[0] == "fasta":
                raise UserError(f"{path}: holds sequences, and the run reads {modality.words[1]}")
            batches = (
                [_open_item(item, modality, encoder, base) for item in items]
                for items in self._texts(path, log)
            )
        return _check_readable(batches, str(path or STANDARD))

    def pairs(self, files: Sequence[Path], log: Log) -> Iterator[list[Item]]:
        """Yield sources with targets as `second`, from two files of lines or from a table."""
        if len(files) == 2 and not any(map(extension, files)) and not self.format_asked:
            expand(files)
            damaged = _DamagedRecords()
            batches = aligned(files, damaged, self.encoding)
            rows = (row for batch in batches for row in damaged.merged(files[1], *batch))
            items = (self._item(row, 2, False) for row in rows)
            return _check_readable(_grouped(items), str(files[0]))
        path = None if str(files[0]) == "-" else files[0]
        plain = path and path.is_file() and self.format_of(path)[0] not in TABLES
        if len(files) != 1 or plain:
            raise UsageError(
                "pairs need two files, the sources and the targets line by line, or a table with "
                f"--input and --target; got {len(files)}, the first {files[0]}"
            )
        columns = next(iter(self.inputs), ""), next(iter(self.targets), "")
        both = replace(self, inputs=columns)
        return _check_readable(both._texts(path, log), str(path or STANDARD))

    def _texts(self, path: Path | None, log: Log) -> Iterator[list[Item]]:
        if path is None:
            yield from self._stream(sys.stdin.buffer, STANDARD, log)
        elif path.is_dir() or is_archive(path):
            files = texts_in(path) if self.format == "files" else expand([path])
            logs = chain([log], repeat(quiet))  # only the first file is logged
            items = (
                item
                for file, log_file in zip(files, logs, strict=False)
                for batch in self._file(file, *self.format_of(file), log_file)
                for item in batch
            )
            yield from _grouped(items)
        elif path.exists() and not stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as raw:
                yield from self._stream(raw, str(path), log)
        else:
            yield from self._file(path, *self.format_of(path), log)

    def _stream(self, raw: BinaryIO, name: str, log: Log) -> Iterator[list[Item]]:
        """Read a pipe: lines as they arrive, other formats at the end of the stream."""
        opening = opening_of(raw)
        compressed = opening.startswith(b"\x1f\x8b")
        if not compressed and self.encoding == UTF8:
            refuse_binary(Path(name), opening)
        top = opening.removeprefix(BOM).decode(errors="replace").replace("\r\n", "\n")
        format = self.format_asked or self.guess(top)[0]
        if not compressed and format in PLAIN and self.encoding == UTF8:
            self._refuse_two(name, format)
            yield from self._numbered(lines_of_stream(raw, opening, name), name)
            return
        with saved(raw, opening, name) as path:
            yield from self._file(path, *self.format_of(path), log, name)

    def _file(
        self, path: Path, format: str, why: str, log: Log, name: str = ""
    ) -> Iterator[list[Item]]:
        name = name or str(path)
        if format in PLAIN:
            self._refuse_two(name, format)
            yield from self._numbered(lines_of_file(path, self.encoding), name)
            return
        if format == "files":
            log(f"{name}: read as {format} ({why})")
            yield [self._file_as_item(path, name)]
            return
        damaged = _DamagedRecords()
        layout, texts, has_id = self._layout(path, format)
        log(f"{name}: read as {format} ({why}), {layout.why}")
        batches = layout.batches(path, damaged)
        rows = (row for batch in batches for row in damaged.merged(path, *batch))
        yield from _grouped(self._item(row, texts, has_id) for row in rows)

    def _file_as_item(self, path: Path, name: str) -> Item:
        """Return a file as one record, whose id is its name."""
        self._refuse_two(name, "files")
        skipped = SkippedRecords()
        for (texts,), _ in WholeFiles(self.encoding).batches(path, skipped):
            return Item(texts[0].strip() if self.strip else texts[0], name, named=True)
        problem = skipped.problems[0].removeprefix(f"{path}:").strip()
        return Item("", name, note=problem, named=True)

    def _item(self, row: tuple[int, tuple[str, ...], str], texts: int, has_id: bool) -> Item:
        """Return a row of one or two texts and, with `has_id`, an id."""
        line, cells, problem = row
        if problem:
            return Item("", f"line {line}" if has_id else str(line), note=problem, named=has_id)
        id = cells[texts].strip() if has_id else ""
        first, second = cells[0], cells[1] if texts == 2 else ""
        if self.strip:
            first, second = first.strip(), second.strip()
        if texts == 2 and bool(first.strip()) != bool(second.strip()):
            return Item("", id or str(line), note="one of the two texts is empty", named=has_id)
        return Item(first, id or str(line), second, named=has_id)

    def _numbered(self, chunks: Iterable[Lines], name: str) -> Iterator[list[Item]]:
        """Yield lines as items, numbered from 1."""
        count = 0
        for texts, problems in chunks:
            texts = [text.strip() for text in texts] if self.strip else texts
            items = [Item(text, str(count + i)) for i, text in enumerate(texts, start=1)]
            for i, problem in problems.items():
                words = problem.removeprefix(f"{name}:{count + i + 1}: ")
                items[i] = items[i]._replace(text="", note=words)
            count += len(texts)
            yield items

    def _layout(self, path: Path, format: str) -> tuple[Any, int, bool]:
        """Return the layout of a file, the number of texts per record, and if an id follows."""
        if format in TABLES:
            return self._columns(path, format)
        self._refuse_two(str(path), format)
        if format == "fasta":
            return fasta(path, ("id",), self.encoding), 1, True
        if format == "smi":
            return BlankSeparated(("1", "2"), self.encoding), 1, True
        if format == "labelled":
            return BlankSeparated(("2",), self.encoding), 1, False
        raise UsageError(f"{path}: --format {format} has no records of text")

    def _columns(self, path: Path, format: str) -> tuple[Any, int, bool]:
        """Return the layout of a table with the selected columns and that of ids, if any."""
        inputs = self.inputs or ("",)
        flag = "--input" if self.input_asked else "the run was trained on it; --input names another"
        table, encoding = TABLES[format], self.encoding
        table.require(path, inputs, encoding, flag)
        names = table.columns(path, encoding, wanted=inputs)
        if len(inputs) == 2 and not all(inputs):
            raise two_needed(path, table.unit, names)
        ids = id_column(names, inputs)
        flags = [*[flag] * len(inputs), "its ids"]
        layout = table.layout(
            path, [*inputs, *ids], flags=flags, texts=len(inputs), encoding=encoding
        )
        return layout, len(inputs), bool(ids)

    def _refuse_two(self, name: str, format: str) -> None:
        if len(self.inputs) > 1:
            columns = " and ".join(map(repr, filter(None, self.inputs)))
            raise UsageError(
                f"{name}: is read as {format}, which has one text a record, and two are needed"
                f"{f', the columns {columns}' if columns else ''}: give a table ({one_of(TABLES)})"
            )


class _DamagedRecords(SkippedRecords):
    """Damaged records with their lines, to report them in order."""

    def __init__(self) -> None:
        super().__init__()
        self._problems: list[str] = []

    def damaged(self, problem: str) -> None:
        self._problems.append(problem)

    def merged(
        self, path: Path, columns: list[list[str]], lines: Sequence[int]
    ) -> list[tuple[int, tuple[str, ...], str]]:
        """Return the line, cells and problem of the valid and the damaged records of a batch."""
        cells = zip(*columns, strict=True)
        rows = [(line, row, "") for line, row in zip(lines, cells, strict=True)]
        if self._problems:
            for problem in self._problems:
                number, _, words = problem.removeprefix(f"{path}:").partition(": ")
                rows.append((int(number), (), words) if number.isdecimal() else (0, (), problem))
            self._problems.clear()
            rows.sort(key=lambda row: row[0])
        return rows


def _texts_of(source: FileSet) -> Iterator[list[Item]]:
    """Yield the records of a reader, with their lines as ids."""
    for chunk in source.records():
        yield [Item(text, str(n)) for text, n in zip(chunk.texts, chunk.lines, strict=True)]


def _items(path: Path, modality: Any, encoder: Any) -> Iterator[Item]:
    """Yield the items of a file or a folder, with their locations as ids."""
    for location, item in modality.items(path, encoder, strict=False):
        damaged = isinstance(item, str)
        yield Item("" if damaged else item, location, note=item if damaged else "", shown=location)


def _open_item(item: Item, modality: Any, encoder: Any, base: Path) -> Item:
    """Return a record whose text is a path with the item at this path."""
    name = item.text.strip()
    if not name or item.note:
        return item
    try:
        return item._replace(text=modality.open(name, encoder, base)[1], shown=name)
    except UserError as error:
        return item._replace(text="", note=str(error), shown=name)


def id_column(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the column of record ids, if there is one: its name is, or ends with, id."""
    free = [name for name in names if name not in taken and names.count(name) == 1]
    exact = [name for name in free if name.strip().lower() == "id"]
    suffixed = [name for name in free if re.search(r"[\W_]id\s*$", name, re.IGNORECASE)]
    return (exact or suffixed)[:1]


def _check_readable(batches: Iterable[list[Item]], name: str) -> Iterator[list[Item]]:
    """Yield the same batches; raise a UserError at the end if no record could be read."""
    total, damaged, first = 0, 0, ""
    for items in batches:
        yield items
        total += len(items)
        for item in items:
            if item.note:
                damaged += 1
                source = name if str(item.id) == name else f"{name}, record {item.id}"
                first = first or f"{source}: {item.note}"
    if total == damaged == 1:
        raise UserError(first)
    if total and damaged == total:
        raise UserError(f"{name}: none of the {total:,} records can be read; first: {first}")


def _grouped(items: Iterable[Item], most: int = MAX_BATCH) -> Iterator[list[Item]]:
    """Yield lists of items, short ones first."""
    iterator, count = iter(items), FIRST_BATCH
    while batch := list(islice(iterator, min(count, most))):
        yield batch
        count *= 2


def lines_of_file(path: Path, encoding: str = UTF8) -> Iterator[Lines]:
    """Yield batches of all lines of a file, with the problems of invalid ones by index."""
    count = FIRST_BATCH
    for _, texts, problems in decoded_lines(path, encoding):
        start = 0
        while start < len(texts):
            stop = start + count
            yield (
                texts[start:stop],
                {i - start: p for i, p in problems.items() if start <= i < stop},
            )
            start, count = stop, min(2 * count, MAX_BATCH)


def lines_of_stream(
    stream: BinaryIO, opening: bytes = b"", name: str = STANDARD
) -> Iterator[Lines]:
    """Yield the lines of a stream after its `opening`, as `lines_of_file` does.

    A batch has the lines that are available, so that a pipe is answered without delay.
    """
    number, size, rest = 1, FIRST_READ, b""
    block = opening.removeprefix(BOM) or stream.read1(size)  # type: ignore[attr-defined]
    while block:
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield _decoded(lines, number, name)
            number, size = number + len(lines), min(2 * size, MAX_READ)
        block = stream.read1(size)  # type: ignore[attr-defined]
    if rest:
        yield _decoded([rest], number, name)


def _decoded(lines: list[bytes], first: int, name: str) -> Lines:
    """Return lines as texts, and the problems of invalid ones by index."""
    texts, problems = [], {}
    for i, line in enumerate(lines):
        try:
            texts.append(line.decode().rstrip("\r"))
        except UnicodeDecodeError as error:
            texts.append("")
            problems[i] = invalid_utf8(Path(name), first + i, error.start, line[error.start])
    return texts, problems


def opening_of(stream: BinaryIO) -> bytes:
    """Read the first non-blank line of a stream, or two lines if it may be FASTA."""
    opening = b""
    while len(opening) < MAX_OPENING:
        lines = [line for line in opening.split(b"\n")[:-1] if line.strip()]
        needed = 2 if lines and lines[0].lstrip(BOM).startswith((b">", b";")) else 1
        if len(lines) >= needed:
            break
        block = stream.read1(FIRST_READ)  # type: ignore[attr-defined]
        if not block:
            break
        opening += block
    return opening


@contextmanager
def saved(stream: BinaryIO, opening: bytes, name: str) -> Iterator[Path]:
    """Save a stream in a temporary file; errors mention its name instead of the path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, STANDARD)
        with path.open("wb") as file:
            file.write(opening)
            shutil.copyfileobj(stream, file, MAX_READ)
        try:
            yield path
        except UserError as error:
            raise type(error)(str(error).replace(str(path), name)) from None


NOTES_SHOWN = 3  # unknown symbols listed in a note
# Kinds of notes, in words: singular and plural.
KINDS = {
    "damaged": ("could not be read", "could not be read"),
    "empty": ("is empty", "are empty"),
    "long": ("is longer than the model's context", "are longer than the model's context"),
    "unknown": ("has unknown symbols", "have unknown symbols"),
    "invalid": ("is not valid", "are not valid"),
}


@dataclass(frozen=True)
class TokenLimit:
    """The maximum number of tokens of a model; it reads `used` tokens of a longer record."""

    tokens: int
    used: int
    end: str = "first"  # or last

    def note(self, tokens: int) -> str:
        """Return the note on a record that is too long, or ""."""
        if tokens <= self.tokens:
            return ""
        return f"truncated: {tokens:,} tokens, the model reads the {self.end} {self.used:,}"


@dataclass
class RecordNotes:
    """Notes on records, and counts by kind of note; without `limit`, no record is too long."""

    tokenizer: Tokenizer
    limit: TokenLimit | None = None
    seconds: Tokenizer | None = None  # of second texts that are targets
    empty: bool = True  # whether empty records have a note
    records: int = 0
    noted: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def of(self, items: Sequence[Item]) -> list[str]:
        """Return the note of each record, or ""."""
        notes: list[dict[str, str]] = [{} for _ in items]
        texts = [i for i, item in enumerate(items) if self._readable(item, notes[i])]
        if texts and self.tokenizer.reads_text:
            self._add_notes(items, texts, notes)
        self.records += len(items)
        for item, kinds in zip(items, notes, strict=True):
            self.noted += bool(kinds)
            for kind, words in kinds.items():
                self.counts[kind] = self.counts.get(kind, 0) + 1
                self.first.setdefault(kind, f"{item.id} ({words})")
        return ["; ".join(kinds.values()) for kinds in notes]

    def _readable(self, item: Item, notes: dict[str, str]) -> bool:
        """Whether a record has content; otherwise, the reason is added to `notes`."""
        if item.note:
            notes["damaged"] = item.note
        elif isinstance(item.text, str) and not item.text.strip():
            if self.empty:
                notes["empty"] = "empty"
        else:
            return True
        return False

    def _add_notes(
        self, items: Sequence[Item], indices: list[int], notes: list[dict[str, str]]
    ) -> None:
        """Add notes on long, unknown and invalid texts."""
        texts = [items[i].text for i in indices]
        lengths = self._add_unknown(self.tokenizer, texts, indices, notes)
        seconds = [items[i].second for i in indices]
        if any(seconds):
            tokenizer = self.seconds or self.tokenizer
            second_lengths = self._add_unknown(tokenizer, seconds, indices, notes)
            lengths = lengths if self.seconds else lengths + second_lengths + 1
        for i, length in zip(indices, lengths.tolist(), strict=True):
            if self.limit and (words := self.limit.note(length)):
                notes[i]["long"] = words
        for i, words in zip(indices, self.tokenizer.problems(texts), strict=True):
            if words:
                notes[i]["invalid"] = words

    def _add_unknown(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        indices: Sequence[int],
        notes: list[dict[str, str]],
    ) -> np.ndarray:
        """Return the (R,) lengths of texts in tokens, and add notes on unknown symbols."""
        ids, lengths = tokenizer.encode_batch(list(texts))
        totals = np.concatenate([[0], np.cumsum(ids == tokenizer.unk)])
        unknown = np.diff(totals[np.cumsum(lengths)], prepend=0)  # (R,)
        for i in np.flatnonzero(unknown).tolist():
            symbols = tokenizer.count_unknown(texts[i]).most_common(NOTES_SHOWN)
            shown = ", ".join(f"{symbol[:20]!r}" for symbol, _ in symbols)
            words = f"{unknown[i]:,} of {lengths[i]:,} symbols unknown"
            notes[indices[i]].setdefault("unknown", words + (f": {shown}" if shown else ""))
        return np.asarray(lengths)

    def of_shard(self, shard: Shard) -> None:
        """Count the records of a shard of texts that are too long or have unknown symbols."""
        if not shard.cuttable:
            return
        offsets, every = np.asarray(shard.offsets), shard.views
        unknown = np.add.reduceat(np.asarray(shard.ids) == self.tokenizer.unk, offsets[:-1])
        lengths = np.diff(offsets) - 2  # without markers
        if shard.source is not None:
            lengths = lengths + np.diff(np.asarray(shard.source.offsets)) - 1
        unknown, lengths = unknown[::every], lengths[::every]
        long = lengths > (self.limit.tokens if self.limit else np.inf)
        self.records += len(lengths)
        self.noted += int(np.count_nonzero(long | (unknown > 0)))
        if self.limit and long.any():
            i = int(np.flatnonzero(long)[0])
            self._count("long", long, i, self.limit.note(int(lengths[i])))
        if unknown.any():
            i = int(np.flatnonzero(unknown)[0])
            words = f"{unknown[i]:,} of {lengths[i]:,} symbols unknown"
            self._count("unknown", unknown, i, words)

    def _count(self, kind: str, which: np.ndarray, first: int, words: str) -> None:
        self.counts[kind] = int(np.count_nonzero(which))
        self.first[kind] = f"record {first + 1:,} ({words})"

    def lines(self) -> list[str]:
        """Return a line for each kind of note: the number of records, and the first."""
        return [
            f"{n:,} of {self.records:,} records {KINDS[kind][n > 1]}; first: {self.first[kind]}"
            for kind, n in self.counts.items()
        ]

    def refuse(self) -> None:
        """Raise a UserError if any record has a note."""
        if self.noted:
            raise UserError(f"{self.noted:,} of {self.records:,} records have notes (--strict)")
