"""A user's files as a stream of text records, or of running text, in bounded memory.

`TextFiles` takes files and folders, decides what they hold, and streams them: `records` for one
record per line, table cell or JSON object; `text` and `documents` for running text, where every
file is a document. Files are UTF-8 unless another encoding is given, plain, compressed with gzip,
or members of zip archives.
"""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from regard.data.archives import Archives
from regard.data.class_folders import WholeFiles
from regard.data.fasta import entries, fasta
from regard.data.formats import (
    UTF8,
    SkippedRecords,
    decoded_lines,
    decoded_text,
    detect,
    expand,
    extension,
    known_encoding,
)
from regard.data.tables import BlankSeparated, Layout, objects, table
from regard.errors import UsageError, UserError, did_you_mean
from regard.tokenizers.tokenizer import PLAIN, Canonical

if TYPE_CHECKING:
    from regard.data.targets import OutputKind

TABLES = ("csv", "tsv", "jsonl")
FORMATS = ("auto", "lines", "text", "files", *TABLES, "fasta", "smi", "labelled")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one file."""

    path: Path
    texts: list[str]
    lines: Sequence[int]  # the line each text begins on
    sources: Sequence[str] = ()  # of pairs, whose targets are the texts
    targets: Sequence[tuple[str, ...]] = ()  # of labelled records; "" is missing
    asides: Sequence[tuple[str, ...]] = ()  # cells of other columns, such as the split

    def __len__(self) -> int:
        return len(self.texts)

    def keys(self, form: Canonical = PLAIN) -> Sequence[str]:
        """Return what identifies the records for duplicates, splits and leaks: the canonical form
        of the texts or, of pairs, of the sources.
        """
        return form.all(self.sources or self.texts)

    def place(self, i: int) -> str:
        """Return where record i stands, as file:line."""
        return f"{self.path}:{self.lines[i]}"


@dataclass(frozen=True, slots=True)
class Document:
    """The running text of one file or, of FASTA, of one sequence."""

    path: Path
    encoding: str = UTF8
    sequence: str = ""

    def text(self) -> Iterator[str]:
        """Yield the text in pieces of a few million characters."""
        return iter([self.sequence]) if self.sequence else decoded_text(self.path, self.encoding)


class FileSet(ABC):
    """Files or folders that are read as one data set, in one format.

    `why` is the reason for the format. Damaged records are skipped and counted or, if `strict`, an
    error. `blank`, `skipped`, `problems` and `remarks` describe the latest pass over the records.
    """

    format: str
    why: str
    form: Canonical = PLAIN  # in which records are compared
    plannable: ClassVar[bool] = False  # records may be split by their labels, columns or groups
    names: tuple[str, ...] = ()  # of the targets

    @property
    def tells(self) -> bool:
        """Whether targets may be texts, rather than labels."""
        return False

    @property
    def two_texts(self) -> bool:
        """Whether every record has two texts."""
        return False

    @property
    def class_files(self) -> tuple[str, ...]:
        """The class of each file, where each holds one class."""
        return ()

    def __init__(
        self, paths: Sequence[Path], format: str, strict: bool, encoding: str = UTF8
    ) -> None:
        if format not in FORMATS:
            raise UsageError(
                f"unknown data.format {format!r}; {did_you_mean(format, list(FORMATS))}"
            )
        self.paths = [Path(path) for path in paths]
        self._archives = Archives()
        self.files = self._expanded()
        self.size = sum(map(self._archives.size, self.files))
        self.strict, self.encoding = strict, known_encoding(encoding)
        self._skipped_records = SkippedRecords(strict)
        self._layout: Layout | None = None
        self._fasta_documents = False  # is running text that of FASTA?

    def _expanded(self) -> list[Path]:
        return expand(self.paths)

    def _read_as(self, format: str, why: str, columns: Sequence[str]) -> None:
        """Fix the format, and the columns of a table or keys of JSON objects that are read."""
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
            self._fasta_documents = True
            self.why = f"{why}, each sequence of FASTA a document"
        elif format == "fasta":
            self._layout = fasta(first, (), encoding)
        elif format == "files":
            self._layout = WholeFiles(encoding)
        elif format in ("smi", "labelled"):
            self._layout = BlankSeparated(("1" if format == "smi" else "2",), encoding)
        if self._layout:
            self.why = f"{why}, {self._layout.why}"

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        """Return the classes of other files, if each of these holds one class."""
        return ()

    @property
    def labels_apart(self) -> bool:
        """Whether the labels stand in a file of their own, given as data.target."""
        return False

    def require(self, kind: OutputKind, train: FileSet) -> None:  # noqa: B027
        """Treat labels of another kind as damage; numbers are written as in the training files."""

    @property
    def blank(self) -> int:
        return self._skipped_records.blank

    @property
    def skipped(self) -> int:
        """The number of damaged records."""
        return self._skipped_records.skipped

    @property
    def problems(self) -> list[str]:
        """What is wrong with the first few damaged records, each with its file and line."""
        return list(self._skipped_records.problems)

    @property
    def spaced(self) -> dict[str, tuple[int, str]]:
        """Targets with blanks around them: how many, and the first."""
        return self._skipped_records.spaced

    @property
    def remarks(self) -> list[str]:
        """Lines about incomplete records, repeated ids, and how numbers are written."""
        return self._skipped_records.remarks()

    def keys(self, chunk: Chunk) -> Sequence[str]:
        """Return what identifies the records of a chunk for duplicates, splits and leaks."""
        return chunk.keys(self.form)

    @abstractmethod
    def records(self) -> Iterator[Chunk]:
        """Yield every record in order, a few megabytes at a time; an error if there is none."""

    def _new_pass(self, read: Callable[[SkippedRecords], Iterator[Chunk]]) -> Iterator[Chunk]:
        """Yield the chunks that are not empty; an error if there is none."""
        skipped = self._skipped_records = SkippedRecords(self.strict)
        empty = True
        for chunk in read(skipped):
            if chunk.texts:
                empty = False
                yield chunk
        if empty:
            raise self._nothing(skipped)

    def documents(self) -> Iterator[Document]:
        """Yield the documents of running text: files or, of FASTA, sequences."""
        if self.format != "text":
            raise ValueError(f"{self.format} files have no documents; read records()")
        if not self._fasta_documents:
            yield from (Document(path, self.encoding) for path in self.files)
            return
        skipped = self._skipped_records = SkippedRecords(self.strict)
        for path in self.files:
            for entry in entries(path, skipped, self.encoding, longest=math.inf):
                yield Document(path, self.encoding, entry.text)

    def text(self) -> Iterator[str]:
        """Yield the text of all documents in pieces; an error if there is none."""
        empty = True
        for document in self.documents():
            for piece in document.text():
                empty = False
                yield piece
        if empty:
            raise self._nothing(SkippedRecords())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of tables or keys of JSON objects that are read; () for other files."""
        return self._layout.names if self._layout and self._layout.has_columns else ()

    @property
    def all_files(self) -> list[Path]:
        """Every file that is read, with files of targets."""
        return self.files

    def hashes(self) -> tuple[str, dict[str, str]]:
        """Return a hash of the names and bytes of all files, wherever they are stored, and the name
        of each file by the hash of its bytes.
        """
        total = hashlib.blake2b(digest_size=16)
        files: dict[str, str] = {}
        for path in self.all_files:
            digest = hashlib.blake2b(digest_size=16)
            try:
                with self._archives.open(path) as stream:
                    label = f"{self._name(path)}\0{self._archives.size(path)}\0"
                    total.update(label.encode(errors="surrogateescape"))
                    while block := stream.read(1 << 20):
                        total.update(block)
                        digest.update(block)
            except OSError as error:
                raise UserError(f"{path}: cannot be read: {error.strerror}") from None
            files[digest.hexdigest()] = self._name(path)
        return total.hexdigest(), files

    def _name(self, path: Path) -> str:
        """Return the name of a file relative to the folder that was given."""
        roots = [root for root in self.paths if root in path.parents]
        return os.fspath(path.relative_to(roots[0])) if roots else path.name

    def _nothing(self, skipped: SkippedRecords) -> UserError:
        files = f"{self.files[0]}" + (f" and {len(self.files) - 1} more" if self.files[1:] else "")
        if skipped.incomplete:
            damaged = f"; {skipped.skipped:,} more are damaged" if skipped.skipped else ""
            reasons = "; ".join(skipped.describe_incomplete())
            return UserError(f"{files}: no record can be used: {reasons}{damaged}")
        if skipped.skipped:
            return UserError(
                f"{files}: all {skipped.skipped:,} records are damaged; first: "
                f"{skipped.problems[0]}"
            )
        return UserError(f"{files}: nothing to read ({skipped.blank:,} blank records)")


class TextFiles(FileSet):
    """Files as records of one text each, or as running text.

    The format "auto" is detected. `column` names a column (or numbers it from 1) or a JSON key; it
    may be left out where only one fits.
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
        why = "as asked"
        if format == "auto":
            format, why = detect(self.files, self.encoding)
        self._read_as(format, why, [column])

    def records(self) -> Iterator[Chunk]:
        if self.format == "text":
            raise ValueError("running text has no records; read text() or documents()")
        yield from self._new_pass(self._chunks)

    def _chunks(self, skipped: SkippedRecords) -> Iterator[Chunk]:
        for path in self.files:
            if self._layout is None:
                for texts, lines in lines_of(path, skipped, self.encoding):
                    yield Chunk(path, texts, lines)
                continue
            for (texts,), numbers in self._layout.batches(path, skipped):
                full = [i for i, text in enumerate(texts) if text]
                skipped.blank += len(texts) - len(full)
                yield Chunk(path, [texts[i] for i in full], [numbers[i] for i in full])


def lines_of(
    path: Path, skipped: SkippedRecords, encoding: str = UTF8
) -> Iterator[tuple[list[str], Sequence[int]]]:
    """Yield the lines that are not blank, and their numbers."""
    for first, texts, bad in decoded_lines(path, encoding):
        if not bad and "" not in texts:
            yield texts, range(first, first + len(texts))
            continue
        for problem in bad.values():
            skipped.damaged(problem)
        full = [i for i, text in enumerate(texts) if text and i not in bad]
        skipped.blank += len(texts) - len(bad) - len(full)
        yield [texts[i] for i in full], [first + i for i in full]
