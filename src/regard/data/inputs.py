"""Symbols that a tokenizer does not know, or reads as others: how many, which, in which records.

What is no text, by its name: the pictures or point clouds of a file, or one of them.

What a thing is read as, the tokenizer of a run says, and `told`, what the run knows of its data.

Records that a trained model is applied to, read as the run read its training files.

`InputReader` is what a run knows of those files: their format, columns and classes. Its `records`
streams those of another file, or of standard input, in their order. Every record has an id: that of
its FASTA header or id column, or else the number of its line. One that cannot be read stays in its
place, with a note that says why.

What a user should know of the records that a model is applied to: a note for each, and counts.

A note says that a record could not be read, is empty, is longer than what the model reads, has
symbols that the tokenizer does not know, or is not what its symbols stand for, such as a SMILES
that RDKit cannot parse.
"""

from __future__ import annotations

import csv
import json
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

from regard.data.archives import is_archive
from regard.data.class_folders import WholeFiles, texts_in
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
    refuse_binary,
)
from regard.data.images import unlabelled
from regard.data.labelled import columns_of
from regard.data.media import TOGETHER
from regard.data.pairs import aligned
from regard.data.point_clouds import form_of, unlabelled_point_clouds
from regard.data.readers import FORMATS, TABLES, FileSet, fasta, keys_in, objects
from regard.data.shards import Shard
from regard.data.sources import SourceChunk
from regard.data.tables import BlankSeparated, columns_in, hint, table, two_needed
from regard.errors import UsageError, UserError, did_you_mean
from regard.recipe import MISSING
from regard.tokenizers import Patches, Points, Tokenizer
from regard.tokenizers.tokenizer import Ids

LOOKED_INTO = 1000  # records of which it is said what is unknown in them
SHOWN = 5  # symbols, and records, that are named


class UnknownSymbols:
    """What is unknown on one side of the data; `strict` allows nothing."""

    def __init__(self, tokenizer: Tokenizer, strict: bool) -> None:
        self.tokenizer, self.strict = tokenizer, strict
        self.count = self.records = 0
        self.symbols: Counter[str] = Counter()  # of the records that were looked into
        self.changed: Counter[str] = Counter()
        self.places: list[str] = []

    def note(self, piece: SourceChunk, ids: Ids, lengths: Ids) -> None:
        """Take account of a piece and the ids it became; a UserError names the record, if strict.

        Records are counted piece by piece, so that of running text each piece counts as one.
        """
        self.changed += self.tokenizer.changed(piece.texts)
        totals = np.concatenate([[0], np.cumsum(ids == self.tokenizer.unk)])
        found = np.diff(totals[np.cumsum(lengths)], prepend=0)  # (R,)
        self.count += int(totals[-1])
        for number in np.flatnonzero(found).tolist():
            self.records += 1
            if self.records > LOOKED_INTO:
                continue
            place = piece.place(number) if piece.place else "running text"
            symbols = self.tokenizer.unknown(piece.texts[number])
            if self.strict:
                raise UserError(
                    f"{place}: unknown to {self.tokenizer.kind}: {_listed(symbols)}; "
                    "with tokens.strict no record may have any"
                )
            self.symbols += symbols
            if len(self.places) < SHOWN:
                self.places.append(f"{place} ({int(found[number]):,})")

    def facts(self) -> dict[str, Any]:
        """For the manifest and regard.json."""
        return {
            "unknown": self.count,
            "unknown_records": self.records,
            "unknown_symbols": dict(self.symbols.most_common(20)),
            "unknown_places": self.places,
            "read_as_others": dict(self.changed),
        }

    def words(self, side: str) -> list[str]:
        """What there is to say of this side, line by line."""
        lines = []
        if self.count:
            lines.append(
                f"unknown in {self.records:,} records of {side}: {_listed(self.symbols)}; "
                + ", ".join(self.places)
                + (", …" if self.records > SHOWN else "")
            )
        if self.changed:
            lines.append(
                f"{self.changed.total():,} symbols of {side} are read as others: "
                + _listed(self.changed, str)
            )
        return lines


def _listed(symbols: Counter[str], show: Any = repr) -> str:
    """The most frequent, with their numbers."""
    parts = [f"{show(symbol)} × {n:,}" for symbol, n in symbols.most_common(SHOWN)]
    return ", ".join(parts) + (", …" if len(symbols) > SHOWN else "") or "symbols it cannot name"


SURFACE = 1024  # points of a mesh, where a run does not say


def things_in(
    path: Path, tokenizer: Patches | Points, told: Mapping[str, Any], *, strict: bool = True
) -> Iterator[tuple[str, Any]]:
    """The pictures or clouds of a file or a folder, each with its place; a damaged one is a
    UserError or, unless `strict`, what is wrong with it.
    """
    if isinstance(tokenizer, Patches):
        side = int(told.get("resize", 0))
        yield from unlabelled([path], tokenizer.channels, side, strict=strict)
    else:
        surface = int(told.get("surface", SURFACE))
        yield from unlabelled_point_clouds([path], surface, strict=strict)


def opened(
    items: Iterable[Any], tokenizer: Tokenizer, told: Mapping[str, Any], base: Path = Path()
) -> list[Any]:
    """What a model reads: texts as they are or, for a tokenizer of images or point clouds, those
    that paths name; see `thing_named`.
    """
    if not isinstance(tokenizer, Patches | Points):
        return list(items)
    return [
        thing_named(str(one).strip(), tokenizer, told, base)[1]
        if isinstance(one, str | Path)
        else one
        for one in items
    ]


def thing_named(
    name: str, tokenizer: Patches | Points, told: Mapping[str, Any], base: Path = Path()
) -> tuple[str, Any]:
    """A picture or a cloud, after its place, by the path of its file from the folder `base`, or by
    its number in a file of many: digits.npz[12]. UserError where there is none.
    """
    if not name:
        raise UserError("an empty path names no file")
    file, bracket, number = name.rstrip("]").rpartition("[")
    several = bool(bracket) and number.isdigit() and not (base / name).exists()
    path, wanted = (base / file, int(number)) if several else (base / name, 0)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    found = next(islice(things_in(path, tokenizer, told), wanted, None), None)
    if found is None:
        what = "picture" if isinstance(tokenizer, Patches) else "cloud"
        raise UserError(f"{path}: has no {what} {wanted}")
    return found


FEW, MANY = 64, 4096  # records of a file handed on together: at first, and at most
LITTLE, MUCH = 4 << 10, 256 << 10  # bytes of a stream read at a time: at first, and at most
OPENING = 1 << 20  # bytes of a stream looked at to tell its format
LINES_SEEN = 20  # lines looked at to tell whether each begins with a label
STANDARD = "standard input"
BOM = b"\xef\xbb\xbf"
PLAIN = ("lines", "text")  # formats that have one record a line here

Say = Callable[[str], None]
Lines = tuple[list[str], dict[int, str]]  # and what is wrong with some, by their places


def quiet(words: str) -> None:
    """Say nothing."""


class Item(NamedTuple):
    """One record: a text, an image or a point cloud, or "" where the note says what is wrong."""

    text: Any
    id: str  # its own, or else the number of its line
    second: str = ""  # the second text, or the target, where two are read
    note: str = ""  # why it could not be read
    named: bool = False  # is the id its own?
    shown: str = ""  # what stands for an image or a point cloud in print


@dataclass(frozen=True, kw_only=True)
class InputReader:
    """How a run read the files that it was trained on; by default, as files without columns."""

    format: str = ""  # such as csv or fasta, as it was found
    inputs: tuple[str, ...] = ()  # columns of the text, or of two texts
    targets: tuple[str, ...] = ()  # columns of the targets, or keys of FASTA headers
    classes: tuple[str, ...] = ()  # of the files, in their order, where each held a class
    labels: str = ""  # a file of targets by id
    pattern: str = ""  # its first group is the label in what the target's column holds
    encoding: str = UTF8
    per_line: bool = False  # is a line of a file in a folder of classes a record?
    missing: tuple[str, ...] = MISSING  # cells that say that there is no target
    strip: bool = False  # are blanks around texts dropped?
    files: Mapping[str, str] = field(default_factory=dict)  # hashes of the files, to their names
    known: frozenset[str] = frozenset()  # classes of the run: a line may begin with one
    fingerprint: str = ""  # of all files together
    format_asked: str = ""  # the user's, which replaces what is found
    input_asked: bool = False
    target_asked: bool = False

    @classmethod
    def stored(cls, told: Mapping[str, Any]) -> InputReader:
        """What the metadata of a run says, checked before; an imported run says nothing."""
        if "reading" not in told:
            return cls()
        reading: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in told["reading"].items()
            if key in cls.__dataclass_fields__
        }
        classes = told["targets"]["classes"] if "targets" in told else ()
        return cls(
            format=told.get("format", ""),
            known=frozenset(classes[0] if classes else ()),
            fingerprint=told.get("fingerprints", {}).get("train", ""),
            **reading,
        )

    def asked(self, *, input: str = "", target: str = "", format: str = "auto") -> InputReader:
        """The same with what a user asks for in its place."""
        if format not in FORMATS:
            raise UsageError(f"unknown --format {format!r}; {did_you_mean(format, list(FORMATS))}")
        found = self if format == "auto" else replace(self, format_asked=format)
        if input:
            found = replace(found, inputs=columns_of(input), input_asked=True)
        if target:
            found = replace(found, targets=columns_of(target), target_asked=True)
        return found

    @property
    def first_text(self) -> InputReader:
        """The same, of which the first text alone is read: the source of pairs."""
        return replace(self, inputs=self.inputs[:1])

    def trained_on(self, files: FileSet) -> list[str]:
        """The names of those files that the run was trained on, which their hashes tell."""
        if not self.files and not self.fingerprint:
            return []
        whole, each = files.hashes()
        same = [name for digest, name in each.items() if digest in self.files]
        return same or (list(each.values()) if whole == self.fingerprint else [])

    def format_of(self, path: Path) -> tuple[str, str]:
        """The format of a file, and the reason in a few words."""
        if self.format_asked:
            return self.format_asked, "as asked"
        if extension(path):
            return extension(path), "by the name"
        return self.guess("" if self.format == "files" else head(path, self.encoding)[0])

    def running_text(self, path: Path) -> str:
        """Why a file is running text, which has no records: where the run's own was, or nothing is
        known of it, and the file looks so; "" where it is not.
        """
        if self.format_asked or extension(path) or self.format not in ("", "text"):
            return ""
        format, why = detect(expand([path]), self.encoding)
        return why if format == "text" else ""

    def format_to_measure(self, files: Sequence[Path]) -> str:
        """The format of files that hold targets too: what the run's own files had, where theirs
        promise none; "auto" leaves it to the reader of them.
        """
        promised = {extension(path) for path in files}
        if self.format_asked:
            return self.format_asked
        if self.format == "text" and promised <= {"", "fasta"}:
            return "text"
        if promised != {""} or any(path.is_dir() or is_archive(path) for path in files):
            return "auto"
        found = self.guess(head(files[0], self.encoding)[0])[0]
        if found == "files":
            return "auto"
        return "labelled" if found == "lines" and self.format == "labelled" else found

    def guess(self, top: str) -> tuple[str, str]:
        """The format of a file without a telling name, by its beginning, and why."""
        if self.format == "files":
            return "files", "one file is one record, as in training; --format lines reads lines"
        if FASTA.match(top):
            return "fasta", "a header with > and a sequence below it"
        first = next((line for line in top.split("\n") if line.strip()), "")
        if self.inputs and self.inputs[0]:
            if first.lstrip().startswith("{") and _has_keys(first, self.inputs):
                return "jsonl", "an object a line"
            for delimiter, format in ((",", "csv"), (";", "csv"), ("\t", "tsv")):
                if self._heads(next(csv.reader([first], delimiter=delimiter), []), format):
                    return format, f"columns as in training, {delimiter!r} between them"
        if self.format == "smi":
            return "smi", "as in training"
        if self.format == "labelled" and self._begin_with_labels(top):
            return "labelled", "each line begins with a class of the run"
        return "lines", "one record a line"

    def _heads(self, cells: list[str], format: str) -> bool:
        """Does the first row of a table have the columns of the run, by name or by number?"""
        if all(column.isdecimal() for column in self.inputs):
            return self.format == format and len(cells) >= max(2, *map(int, self.inputs))
        return set(self.inputs) <= set(cells)

    def _begin_with_labels(self, top: str) -> bool:
        lines = [line for line in top.split("\n")[:LINES_SEEN] if line.strip()]
        words = [line.split(maxsplit=1)[0] for line in lines]
        if self.pattern:
            found = [re.search(self.pattern, word) for word in words]
            words = [
                (one.group(1) or "") if one and one.re.groups else one.group() if one else ""
                for one in found
            ]
        return bool(words) and self.known >= set(words)

    def records(
        self, path: Path | None, tokenizer: Tokenizer, told: Mapping[str, Any], say: Say
    ) -> Iterator[list[Item]]:
        """What a model with this tokenizer is applied to, some at a time, all in their places:
        the records of a file, a folder or standard input. For a model of images or point clouds a
        file holds those, or the paths of them from its own folder. `told` is what the run knows of
        its data. An error where no record can be read.
        """
        if not isinstance(tokenizer, Patches | Points):
            batches = self._texts(path, say)
        elif path is not None and (path.is_dir() or form_of([path])):
            batches = _grouped(_things(path, tokenizer, told), TOGETHER)
        else:
            base = Path() if path is None else path.parent
            batches = (
                [_opened(item, tokenizer, told, base) for item in items]
                for items in self._texts(path, say)
            )
        return readable(batches, str(path or STANDARD))

    def pairs(self, files: Sequence[Path], say: Say) -> Iterator[list[Item]]:
        """Sources and, as `second`, their targets: of two files line by line, or of one table."""
        if len(files) == 2 and not any(map(extension, files)) and not self.format_asked:
            expand(files)
            tally = _Kept()
            batches = aligned(files, tally, self.encoding)
            rows = (row for batch in batches for row in tally.merged(files[1], *batch))
            return readable(_grouped(self._item(row, 2, False) for row in rows), str(files[0]))
        path = None if str(files[0]) == "-" else files[0]
        plain = path and path.is_file() and self.format_of(path)[0] not in TABLES
        if len(files) != 1 or plain:
            raise UsageError(
                "pairs need two files, the sources and the targets line by line, or a table with "
                f"--input and --target; got {len(files)}, the first {files[0]}"
            )
        columns = next(iter(self.inputs), ""), next(iter(self.targets), "")
        both = replace(self, inputs=columns)
        return readable(both._texts(path, say), str(path or STANDARD))

    def _texts(self, path: Path | None, say: Say) -> Iterator[list[Item]]:
        if path is None:
            yield from self._stream(sys.stdin.buffer, STANDARD, say)
        elif path.is_dir() or is_archive(path):
            files = texts_in(path) if self.format == "files" else expand([path])
            said = chain([say], repeat(quiet))  # of the first, for all
            items = (
                item
                for file, tell in zip(files, said, strict=False)
                for some in self._file(file, *self.format_of(file), tell)
                for item in some
            )
            yield from _grouped(items)
        elif path.exists() and not stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as raw:
                yield from self._stream(raw, str(path), say)
        else:
            yield from self._file(path, *self.format_of(path), say)

    def _stream(self, raw: BinaryIO, name: str, say: Say) -> Iterator[list[Item]]:
        """What comes through a pipe: lines as they come, anything else once all of it is there."""
        opening = opening_of(raw)
        packed = opening.startswith(b"\x1f\x8b")
        if not packed and self.encoding == UTF8:
            refuse_binary(Path(name), opening)
        top = opening.removeprefix(BOM).decode(errors="replace").replace("\r\n", "\n")
        format = self.format_asked or self.guess(top)[0]
        if not packed and format in PLAIN and self.encoding == UTF8:
            self._refuse_two(name, format)
            yield from self._numbered(lines_of_stream(raw, opening, name), name)
            return
        with saved(raw, opening, name) as path:
            yield from self._file(path, *self.format_of(path), say, name)

    def _file(
        self, path: Path, format: str, why: str, say: Say, name: str = ""
    ) -> Iterator[list[Item]]:
        """The records of one file in a format."""
        name = name or str(path)
        if format in PLAIN:
            self._refuse_two(name, format)
            yield from self._numbered(lines_of_file(path, self.encoding), name)
            return
        if format == "files":
            say(f"{name}: read as {format} ({why})")
            yield [self._whole(path, name)]
            return
        tally = _Kept()
        layout, texts, own = self._layout(path, format)
        say(f"{name}: read as {format} ({why}), {layout.why}")
        rows = (row for batch in layout.batches(path, tally) for row in tally.merged(path, *batch))
        yield from _grouped(self._item(row, texts, own) for row in rows)

    def _whole(self, path: Path, name: str) -> Item:
        """A file that is one record, called by its name."""
        self._refuse_two(name, "files")
        tally = SkippedRecords()
        for (texts,), _ in WholeFiles(self.encoding).batches(path, tally):
            return Item(texts[0].strip() if self.strip else texts[0], name, named=True)
        problem = tally.problems[0].removeprefix(f"{path}:").strip()
        return Item("", name, note=problem, named=True)

    def _item(self, row: tuple[int, tuple[str, ...], str], texts: int, own: bool) -> Item:
        """A row of one text or two and, where there are such, an id of its own."""
        line, cells, problem = row
        if problem:
            return Item("", f"line {line}" if own else str(line), note=problem, named=own)
        id = cells[texts].strip() if own else ""
        one, two = cells[0], cells[1] if texts == 2 else ""
        if self.strip:
            one, two = one.strip(), two.strip()
        if texts == 2 and bool(one.strip()) != bool(two.strip()):
            return Item("", id or str(line), note="one of the two texts is empty", named=own)
        return Item(one, id or str(line), two, named=own)

    def _numbered(self, chunks: Iterable[Lines], name: str) -> Iterator[list[Item]]:
        """Lines as items, numbered from 1."""
        number = 0
        for texts, bad in chunks:
            texts = [text.strip() for text in texts] if self.strip else texts
            items = [Item(text, str(number + i)) for i, text in enumerate(texts, start=1)]
            for i, problem in bad.items():
                words = problem.removeprefix(f"{name}:{number + i + 1}: ")
                items[i] = items[i]._replace(text="", note=words)
            number += len(texts)
            yield items

    def _layout(self, path: Path, format: str) -> tuple[Any, int, bool]:
        """How to read a file in a format that has parts; how many of them are texts, and whether
        an id comes after those.
        """
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
        """The columns of a table: those of the run, or those asked for, and that of ids."""
        inputs = self.inputs or ("",)
        flag = "--input" if self.input_asked else "the run was trained on it; --input names another"
        if format == "jsonl":
            names = keys_in(path, self.encoding)
            wrong = [key for key in inputs if key and names and key not in names]
            if wrong:
                shown = hint(wrong[0], names)
                raise UsageError(f"{path}: has no key {wrong[0]!r} ({flag}); {shown}")
        else:
            names = columns_in(path, format, inputs, self.encoding)
        if len(inputs) == 2 and not all(inputs):
            raise two_needed(path, "KEY" if format == "jsonl" else "COLUMN", names)
        own = id_column(names, inputs)
        columns = [*inputs, *own]
        if format == "jsonl":
            layout: Any = objects(path, columns, texts=len(inputs), encoding=self.encoding)
        else:
            flags = [*[flag] * len(inputs), "its ids"]
            layout = table(path, format, columns, flags=flags, encoding=self.encoding)
        return layout, len(inputs), bool(own)

    def _refuse_two(self, name: str, format: str) -> None:
        if len(self.inputs) > 1:
            columns = " and ".join(map(repr, filter(None, self.inputs)))
            raise UsageError(
                f"{name}: is read as {format}, which has one text a record, and two are needed"
                f"{f', the columns {columns}' if columns else ''}: give a table (csv, tsv, jsonl)"
            )


class _Kept(SkippedRecords):
    """Damaged records with their lines, so that each can stand in its place."""

    def __init__(self) -> None:
        super().__init__()
        self._problems: list[str] = []

    def damaged(self, problem: str) -> None:
        """See Tally."""
        self._problems.append(problem)

    def merged(
        self, path: Path, columns: list[list[str]], lines: Sequence[int]
    ) -> list[tuple[int, tuple[str, ...], str]]:
        """The line, cells and problem of each record of a batch and of those that are damaged."""
        cells = zip(*columns, strict=True)
        rows = [(line, row, "") for line, row in zip(lines, cells, strict=True)]
        if self._problems:
            for problem in self._problems:
                number, _, words = problem.removeprefix(f"{path}:").partition(": ")
                rows.append((int(number), (), words) if number.isdecimal() else (0, (), problem))
            self._problems.clear()
            rows.sort(key=lambda row: row[0])
        return rows


def _things(path: Path, tokenizer: Patches | Points, told: Mapping[str, Any]) -> Iterator[Item]:
    """The images or point clouds of a file or a folder, by their places."""
    for place, thing in things_in(path, tokenizer, told, strict=False):
        if isinstance(thing, str):
            yield Item("", place, note=thing, shown=place)
        else:
            yield Item(thing, place, shown=place)


def _opened(item: Item, tokenizer: Patches | Points, told: Mapping[str, Any], base: Path) -> Item:
    """The image or point cloud at the path that a record is."""
    name = item.text.strip()
    if not name or item.note:
        return item
    try:
        return item._replace(text=thing_named(name, tokenizer, told, base)[1], shown=name)
    except UserError as error:
        return item._replace(text="", note=str(error), shown=name)


def id_column(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The column that names records, if there is one: called id, or something that ends so."""
    free = [name for name in names if name not in taken and names.count(name) == 1]
    whole = [name for name in free if name.strip().lower() == "id"]
    ends = [name for name in free if re.search(r"[\W_]id\s*$", name, re.IGNORECASE)]
    return (whole or ends)[:1]


def readable(batches: Iterable[list[Item]], name: str) -> Iterator[list[Item]]:
    """The same batches; an error at their end if no record of them could be read."""
    total, damaged, first = 0, 0, ""
    for items in batches:
        yield items
        total += len(items)
        for item in items:
            if item.note:
                damaged += 1
                first = first or f"{name}, record {item.id}: {item.note}"
    if total and damaged == total:
        raise UserError(f"{name}: none of the {total:,} records can be read; first: {first}")


def _grouped(items: Iterable[Item], most: int = MANY) -> Iterator[list[Item]]:
    """Items in lists, few at first."""
    stream, count = iter(items), FEW
    while some := list(islice(stream, min(count, most))):
        yield some
        count *= 2


def lines_of_file(path: Path, encoding: str = UTF8) -> Iterator[Lines]:
    """All lines of a file, blank ones too, some at a time, and what is wrong with those, by their
    places, that are no text.
    """
    count = FEW
    for _, texts, bad in decoded_lines(path, encoding):
        at = 0
        while at < len(texts):
            here = {i - at: problem for i, problem in bad.items() if at <= i < at + count}
            yield texts[at : at + count], here
            at, count = at + count, min(2 * count, MANY)


def lines_of_stream(
    stream: BinaryIO, opening: bytes = b"", name: str = STANDARD
) -> Iterator[Lines]:
    """The lines of a stream after its `opening`, those together that are there at a time: a pipe
    is never waited for while a line of it could be answered. As `lines_of_file`.
    """
    number, size, held = 1, LITTLE, b""
    block = opening.removeprefix(BOM) or stream.read1(size)  # type: ignore[attr-defined]
    while block:
        *lines, held = (held + block).split(b"\n")
        if lines:
            yield _decoded(lines, number, name)
            number, size = number + len(lines), min(2 * size, MUCH)
        block = stream.read1(size)  # type: ignore[attr-defined]
    if held:
        yield _decoded([held], number, name)


def _decoded(lines: list[bytes], first: int, name: str) -> Lines:
    """Lines as texts, and what is wrong with those that are none."""
    texts, bad = [], {}
    for i, line in enumerate(lines):
        try:
            texts.append(line.decode().rstrip("\r"))
        except UnicodeDecodeError as error:
            texts.append("")
            bad[i] = invalid_utf8(Path(name), first + i, error.start, line[error.start])
    return texts, bad


def opening_of(stream: BinaryIO) -> bytes:
    """The first line of a stream that holds something, or the first two where it may be the header
    of FASTA, and whatever comes along with them.
    """
    found = b""
    while len(found) < OPENING:
        lines = [line for line in found.split(b"\n")[:-1] if line.strip()]
        wanted = 2 if lines and lines[0].lstrip(BOM).startswith((b">", b";")) else 1
        if len(lines) >= wanted:
            break
        block = stream.read1(LITTLE)  # type: ignore[attr-defined]
        if not block:
            break
        found += block
    return found


@contextmanager
def saved(stream: BinaryIO, opening: bytes, name: str) -> Iterator[Path]:
    """A stream as a file that is gone afterwards; errors call it by its name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, STANDARD)
        with path.open("wb") as file:
            file.write(opening)
            shutil.copyfileobj(stream, file, MUCH)
        try:
            yield path
        except UserError as error:
            raise type(error)(str(error).replace(str(path), name)) from None


def _has_keys(line: str, keys: Sequence[str]) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and set(keys) <= set(value)


NOTES_SHOWN = 3  # unknown symbols that a note names
# What is counted, in words: of one record, and of more.
KINDS = {
    "damaged": ("could not be read", "could not be read"),
    "empty": ("is empty", "are empty"),
    "long": ("is longer than the model's context", "are longer than the model's context"),
    "unknown": ("has unknown symbols", "have unknown symbols"),
    "invalid": ("is not valid", "are not valid"),
}


@dataclass(frozen=True)
class TokenLimit:
    """The most tokens of a record that a model uses; of a longer one it uses `used` of them."""

    tokens: int
    used: int
    end: str = "first"  # or last

    def note(self, tokens: int) -> str:
        """What becomes of a record of so many tokens, if it is too long."""
        if tokens <= self.tokens:
            return ""
        return f"truncated: {tokens:,} tokens, the model reads the {self.end} {self.used:,}"


@dataclass
class RecordNotes:
    """Notes on records, batch by batch, and how many there are of each kind.

    `room` is None where a model reads records of any length. `empty` says whether an empty record
    has a note.
    """

    tokenizer: Tokenizer
    room: TokenLimit | None = None
    seconds: Tokenizer | None = None  # that of the second texts, where they are targets
    empty: bool = True
    records: int = 0
    noted: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def of(self, items: Sequence[Item]) -> list[str]:
        """The note of each record, "" where there is nothing to say."""
        found: list[dict[str, str]] = [{} for _ in items]
        texts = [i for i, item in enumerate(items) if self._readable(item, found[i])]
        if texts and not isinstance(self.tokenizer, Patches | Points):
            self._look(items, texts, found)
        for item, kinds in zip(items, found, strict=True):
            self.records += 1
            self.noted += bool(kinds)
            for kind, words in kinds.items():
                self.counts[kind] = self.counts.get(kind, 0) + 1
                self.first.setdefault(kind, f"{item.id} ({words})")
        return ["; ".join(kinds.values()) for kinds in found]

    def _readable(self, item: Item, found: dict[str, str]) -> bool:
        """Is there something to look into? What there is to say otherwise goes to `found`."""
        if item.note:
            found["damaged"] = item.note
        elif isinstance(item.text, str) and not item.text.strip():
            if self.empty:
                found["empty"] = "empty"
        else:
            return True
        return False

    def _look(self, items: Sequence[Item], places: list[int], found: list[dict[str, str]]) -> None:
        """What the tokenizer makes of texts, and what is wrong with what they stand for."""
        texts = [items[i].text for i in places]
        lengths = self._unknown(self.tokenizer, texts, places, found)
        twice = [items[i].second for i in places]
        if any(twice):
            more = self._unknown(self.seconds or self.tokenizer, twice, places, found)
            lengths = lengths if self.seconds else lengths + more + 1
        for i, length in zip(places, lengths.tolist(), strict=True):
            if self.room and (words := self.room.note(length)):
                found[i]["long"] = words
        for i, words in zip(places, self.tokenizer.problems(texts), strict=True):
            if words:
                found[i]["invalid"] = words

    def _unknown(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        places: Sequence[int],
        found: list[dict[str, str]],
    ) -> np.ndarray:
        """(R,) tokens of texts; those that have unknown ones are noted."""
        ids, lengths = tokenizer.encode_batch(list(texts))
        totals = np.concatenate([[0], np.cumsum(ids == tokenizer.unk)])
        unknown = np.diff(totals[np.cumsum(lengths)], prepend=0)  # (R,)
        for i in np.flatnonzero(unknown).tolist():
            symbols = tokenizer.unknown(texts[i]).most_common(NOTES_SHOWN)
            shown = ", ".join(f"{symbol[:20]!r}" for symbol, _ in symbols)
            words = f"{unknown[i]:,} of {lengths[i]:,} symbols unknown"
            found[places[i]].setdefault("unknown", words + (f": {shown}" if shown else ""))
        return np.asarray(lengths)

    def of_shard(self, shard: Shard) -> None:
        """Count the records of a shard that are too long or have unknown symbols; numbers, of
        which images are made, have neither.
        """
        if not shard.cuttable:
            return
        offsets, every = np.asarray(shard.offsets), shard.views
        unknown = np.add.reduceat(np.asarray(shard.ids) == self.tokenizer.unk, offsets[:-1])
        lengths = np.diff(offsets) - 2  # without markers
        if shard.source is not None:
            lengths = lengths + np.diff(np.asarray(shard.source.offsets)) - 1
        unknown, lengths = unknown[::every], lengths[::every]
        long = lengths > (self.room.tokens if self.room else np.inf)
        self.records += len(lengths)
        self.noted += int(np.count_nonzero(long | (unknown > 0)))
        for kind, which in (("long", long), ("unknown", unknown > 0)):
            if not which.any():
                continue
            i = int(np.flatnonzero(which)[0])
            words = f"{unknown[i]:,} of {lengths[i]:,} symbols unknown"
            if kind == "long" and self.room:
                words = self.room.note(int(lengths[i]))
            self.counts[kind] = int(np.count_nonzero(which))
            self.first[kind] = f"record {i + 1:,} ({words})"

    def lines(self) -> list[str]:
        """How many records have a note, a line for each kind, with the first."""
        return [
            f"{n:,} of {self.records:,} records {KINDS[kind][n > 1]}; first: {self.first[kind]}"
            for kind, n in self.counts.items()
        ]

    def refuse(self) -> None:
        """A UserError if any record has a note."""
        if self.noted:
            raise UserError(f"{self.noted:,} of {self.records:,} records have notes (--strict)")
