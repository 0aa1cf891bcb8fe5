"""Labelled items that are no text, such as images and point clouds, as records like any others.

Items come in folders, one for every class, in a table of paths and labels, or in files of the
subclass. A record is identified by the content of its item; a damaged item is a damaged record.

NumPy's files, .npy and .npz, read as data.

Headers are checked against the size of the file before memory is taken, and Python objects are
never unpickled. Arrays of numbers and texts are read; structured arrays and objects are not.
"""

from __future__ import annotations

import io
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from regard.data.formats import (
    Archives,
    Member,
    SkippedRecords,
    archive_files,
    folder_name,
    is_archive,
    list_files,
    open_archive,
    read_unpacked,
    split_member,
)
from regard.data.labelled import LABEL, ColumnSelection, LabelledChunk, LabelledFiles
from regard.data.targets import UNDECIDED, Cells, Notation
from regard.data.text_files import Chunk, Pairs
from regard.errors import UsageError, UserError, quoted
from regard.registry import TABLES
from regard.tokenizers.tokenizer import PLAIN, Canonical

ARRAY_SUFFIXES = (".npy", ".npz")
MAX_BYTES = 8 << 30  # that a file of arrays may unpack to
MAX_HEADER = 10_000  # characters

Array = NDArray[Any]


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


class Header(NamedTuple):
    """The header of a .npy file."""

    dtype: np.dtype[Any]
    fortran: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: Readable) -> Header:
    """Read the header of a .npy file, and no more; ValueError if it is none."""
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} is unknown")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that Python 2 has written
            shape, fortran, dtype = read(file, max_header_size=MAX_HEADER)
    except Exception as error:  # whatever NumPy raises of a damaged header
        raise ValueError(f"its header cannot be read: {quoted(str(error) or error)}") from None
    if dtype.hasobject:
        raise ValueError("holds Python objects, which are not read")
    if dtype.kind not in "biufSU" or min(shape, default=0) < 0:
        raise ValueError(f"holds values of type {quoted(dtype)}, which are not read")
    return Header(dtype, fortran, shape)


def read_array(file: Readable, size: int) -> Array:
    """Read the array of a .npy file of `size` bytes."""
    header = read_header(file)
    if header.size > size:
        raise ValueError(
            f"its header says {header.size:,} bytes of numbers, but it has {size:,} in all"
        )
    data = file.read(header.size)
    if len(data) != header.size:
        raise ValueError(f"ends after {len(data):,} of {header.size:,} bytes of numbers")
    if not header.dtype.itemsize:
        return np.zeros(header.shape, header.dtype)
    flat = np.frombuffer(data, header.dtype)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def read_headers(path: Path) -> list[tuple[str, Header]]:
    """Return the names and headers of the arrays of a file; none if it is damaged."""
    try:
        return [(name, read_header(file)) for name, file, _ in _open_arrays(path, MAX_HEADER + 16)]
    except (UserError, ValueError):
        return []


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file by name, or the array of a .npy file under ""."""
    try:
        return {name: read_array(file, size) for name, file, size in _open_arrays(path, MAX_BYTES)}
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is no NumPy file, or a damaged one: {error}") from None


def _open_arrays(path: Path, max_bytes: int) -> Iterator[tuple[str, Readable, int]]:
    """Yield the name, the stream and the size of each .npy file in an archive, or of the one that
    `path` is, of which at most `max_bytes` are read.
    """
    if read_unpacked(path, 4) != b"PK\x03\x04":
        data = read_unpacked(path, max_bytes)
        yield "", io.BytesIO(data), len(data)
        return
    with open_archive(path, max_bytes=MAX_BYTES) as archive:
        for info in archive_files(archive):
            with Member(path, archive, info.filename) as file:
                yield info.filename.removesuffix(".npy"), file, info.file_size


def describe_arrays(arrays: dict[str, Array]) -> str:
    """Return what a file of arrays holds, for a message."""
    return "it holds " + ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in arrays.items())


def require_array(arrays: dict[str, Array], name: str, flag: str, path: Path) -> None:
    """Refuse the name of an array that a file does not hold; `flag` is the option it is from."""
    if name not in arrays:
        raise UsageError(f"{flag} {name}: {path} has no such array; {describe_arrays(arrays)}")


def target_cells(array: Array, path: Path) -> list[tuple[str, ...]]:
    """Return targets as a table would write them, from an array (R,) or (R, n)."""
    if array.ndim not in (1, 2) or array.dtype.kind not in "buifSU":
        raise UserError(
            f"{path}: targets are numbers or texts of shape (count,) or (count, n), "
            f"got {array.dtype} {array.shape}"
        )
    rows = (array if array.ndim == 2 else array[:, None]).tolist()
    return [tuple(_format_cell(cell) for cell in row) for row in rows]


def _format_cell(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        if value != value:
            return ""  # NaN: missing
        return str(int(value)) if value.is_integer() else repr(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


CHUNK_ITEMS = 1024  # items of a chunk
MAX_CACHED_BYTES = 1 << 30  # of items that stay in memory: all are read some ten times


@dataclass(frozen=True, slots=True)
class MediaChunk(LabelledChunk):
    """Consecutive items, in `texts`, with their targets; of captions, the items are `sources`."""

    digests: Sequence[str] = ()

    def keys(self, form: Canonical = PLAIN) -> Sequence[str]:
        return self.digests


class MediaRow(NamedTuple):
    """An item, its targets as written, and where it stands."""

    item: Any
    cells: Cells
    where: str
    asides: Cells = ()
    digest: str = ""


RowOrProblem = MediaRow | str  # a str says what is wrong, and where


class MediaFiles(LabelledFiles):
    """Files of items as records with targets."""

    medium: ClassVar[str]  # the name in data.format
    endings: ClassVar[tuple[str, ...]]  # of files in folders
    items = "records"
    plain_bytes = 0

    def __init__(
        self, paths: Sequence[Path], asked: ColumnSelection, *, strict: bool = False
    ) -> None:
        self.paths, self.asked, self.strict = list(paths), asked, strict
        self.format, self.encoding, self.kind = self.medium, "utf-8", UNDECIDED
        self.names, self.classes = (LABEL,), ()
        self._skipped_records, self._layout = SkippedRecords(strict), None
        self._archives, self._folders = Archives(), {}
        self.written_as, self._notations, self._signs = self, None, None
        self.by_name = False
        self._cached_rows: list[RowOrProblem] | None = None
        for path in self.paths:
            if not path.exists():
                raise UserError(f"{path}: no such file or folder")
        self.files = list(files_in(self.paths, self.endings))
        if not self.files:
            raise UserError(f"{self.paths[0]}: holds no {self.medium} ({' '.join(self.endings)})")
        self.size = sum(map(self._archives.size, self.files))
        self._paths: LabelledFiles | None = None
        if self.lists_paths():
            self._paths = LabelledFiles(self.files, self.asked, strict=self.strict)
            self.names = self._paths.names
            self.why = f"a table of paths to {self.medium}, {self._paths.why}"
        else:
            self.why = self.locate_targets()

    def lists_paths(self) -> bool:
        """Return whether the first file is a table of paths to items, rather than of items."""
        return suffix(self.files[0]).removeprefix(".") in TABLES

    @abstractmethod
    def locate_targets(self) -> str:
        """Decide where items and their targets are; return the reason."""

    @abstractmethod
    def rows(self, path: Path) -> Iterator[RowOrProblem]:
        """Yield the rows of a file."""

    @abstractmethod
    def read(self, path: Path) -> Any:
        """Return the one item of a file; ValueError says what is wrong with it."""

    @abstractmethod
    def digest(self, item: Any) -> str:
        """Return a hash of the content of an item."""

    def nbytes(self, item: Any) -> int:
        """Return the size of an item in memory."""
        return int(item.nbytes)

    def transform(self, item: Any) -> Any:
        """Return an item as models read it."""
        return item

    def inspect_paths(self, files: Sequence[Path]) -> None:
        """Look at the first files of a table before any is read."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self._paths.columns if self._paths else ()

    @property
    def two_texts(self) -> bool:
        return False

    @property
    def tells(self) -> bool:
        return False

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        return ()  # names of folders are classes wherever the folders are

    def use_folder_names(self) -> str:
        """Take the names of folders as classes; return the reason."""
        self.by_name = True
        classes = sorted(set(map(folder_name, self.files)))
        return f"a folder for every class: {', '.join(classes[:5])}"

    def examples(self) -> Iterator[MediaChunk]:
        yield from self._new_pass(self._read_batches)

    def amount(self, chunk: Chunk) -> int:
        return len(chunk)

    def _read_batches(self, skipped: SkippedRecords) -> Iterator[MediaChunk]:
        rows = self._read_rows() if self._cached_rows is None else iter(self._cached_rows)
        while batch := list(islice(rows, CHUNK_ITEMS)):
            yield self._chunk_of(batch, skipped)
        if self._paths is not None:
            skipped.skipped += self._paths.skipped
            skipped.problems += self._paths.problems
            skipped.incomplete |= self._paths._skipped_records.incomplete

    def _read_rows(self) -> Iterator[RowOrProblem]:
        cached, size = list[RowOrProblem](), 0
        for row in self._all_rows():
            if not isinstance(row, str):
                item = self.transform(row.item)
                row = row._replace(item=item, digest=self.digest(item))
                size += self.nbytes(item)
            if size <= MAX_CACHED_BYTES:
                cached.append(row)
            elif cached:
                cached.clear()
            yield row
        if size <= MAX_CACHED_BYTES:
            self._cached_rows = cached

    def _all_rows(self) -> Iterator[RowOrProblem]:
        if self._paths is None:
            for path in self.files:
                yield from self.rows(path)
            return
        for chunk in self._paths.examples():
            files = [chunk.path.parent / name for name in chunk.texts]
            self.inspect_paths(files)
            asides = chunk.asides or [()] * len(chunk)
            for i, (file, cells) in enumerate(zip(files, chunk.targets, strict=True)):
                yield self.row_of_file(file, cells, chunk.place(i), asides[i])

    def row_of_file(self, file: Path, cells: Cells, where: str, asides: Cells = ()) -> RowOrProblem:
        """Return the row of a file that holds one item."""
        try:
            return MediaRow(self.read(file), cells, where, asides)
        except ValueError as error:
            return f"{where}: {'' if str(file) == where else f'{file} '}{error}"

    def _written(self) -> Iterator[Cells]:
        """Yield the targets of a table; without one, signs and notations are not looked for."""
        return self._paths._written() if self._paths is not None else iter(())

    @property
    def notations(self) -> list[Notation]:
        if self._paths is not None:
            return self._paths.notations
        return [Notation() for _ in self.names]  # not cached: names may be known late

    def _chunk_of(self, rows: Sequence[RowOrProblem], skipped: SkippedRecords) -> MediaChunk:
        valid: list[MediaRow] = []
        for row in rows:
            if isinstance(row, str):
                skipped.damaged(row)
                continue
            try:
                stripped = tuple(cell.strip() for cell in row.cells)
                cells = self.targets_of(stripped, row.where, skipped)
                if cells is not None:
                    self.kind.check(row.item, cells, self.names)
                    valid.append(row._replace(cells=cells))
            except ValueError as error:
                skipped.damaged(f"{row.where}: {error}")
        return MediaChunk(
            self.files[0],
            [row.item for row in valid],
            range(len(valid)),
            targets=[row.cells for row in valid],
            asides=[row.asides for row in valid] if self.asked.asides else (),
            names=[row.where for row in valid],
            digests=[row.digest for row in valid],
        )


def suffix(path: Path) -> str:
    """Return the suffix of a name in lower case, without that of gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def files_in(paths: Sequence[Path], endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files among paths, and those with these endings in folders and archives, sorted,
    without hidden ones.
    """
    for path in paths:
        if path.is_dir() or is_archive(path):
            yield from list_files(path, lambda name: suffix(Path(name)) in endings)
        else:
            yield path


def unlabelled_items(
    paths: Sequence[Path],
    endings: tuple[str, ...],
    noun: str,
    read: Callable[[Path], Iterator[tuple[str, Any]]],
    *,
    strict: bool,
) -> Iterator[tuple[str, Any]]:
    """Yield the items that `read` gives for each file, each with its place; a damaged one, a str,
    is an error if `strict`.
    """
    files = list(files_in(paths, endings))
    if not files:
        raise UserError(f"{paths[0]}: holds no {noun} ({' '.join(endings)})")
    for path in files:
        if not split_member(path)[0].is_file():
            raise UserError(f"{path}: no such file or folder")
        for where, item in read(path):
            if strict and isinstance(item, str):
                raise UserError(f"{where}: {item}")
            yield where, item


def numbered(count: int) -> tuple[str, ...]:
    """Return the names of so many targets that no column names."""
    return (LABEL,) if count == 1 else tuple(f"{LABEL}{i + 1}" for i in range(count))


def paths_in_table(source: LabelledFiles, endings: tuple[str, ...]) -> bool:
    """Return whether the texts of a table are paths to files with these endings."""
    if source.format not in TABLES or source.two_texts:
        return False
    first = next(iter(source.examples()), None)
    return first is not None and any(text.lower().endswith(endings) for text in first.texts[:1])


def paths_in_pairs(pairs: Pairs, endings: tuple[str, ...]) -> bool:
    """Return whether the sources of pairs are paths to files with these endings."""
    first = next(iter(pairs.records()), None)
    return first is not None and first.sources[0].lower().endswith(endings)
