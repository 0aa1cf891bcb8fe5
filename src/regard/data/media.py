"""Labelled items that are no text, such as images and point clouds, as records like any others.

Items come in folders, one for every class, in a table of paths and labels, or in files of the
subclass. A record is identified by the content of its item; a damaged item is a damaged record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from regard.data.archives import Archives, folder_name, is_archive, list_files, split_member
from regard.data.formats import SkippedRecords
from regard.data.labelled import LABEL, ColumnSelection, LabelledChunk, LabelledFiles
from regard.data.pairs import Pairs
from regard.data.targets import UNDECIDED, Cells, Notation
from regard.data.text_files import TABLES
from regard.errors import UserError
from regard.tokenizers.tokenizer import PLAIN, Canonical

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
        if suffix(self.files[0]).removeprefix(".") in TABLES:
            self._paths = LabelledFiles(self.files, self.asked, strict=self.strict)
            self.names = self._paths.names
            self.why = f"a table of paths to {self.medium}, {self._paths.why}"
        else:
            self.why = self.locate_targets()

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
        skipped = self._skipped_records = SkippedRecords(self.strict)
        empty = True
        rows = self._read_rows() if self._cached_rows is None else iter(self._cached_rows)
        while batch := list(islice(rows, CHUNK_ITEMS)):
            chunk = self._chunk_of(batch, skipped)
            if chunk.texts:
                empty = False
                yield chunk
        if self._paths is not None:
            skipped.skipped += self._paths.skipped
            skipped.problems += self._paths.problems
            skipped.incomplete |= self._paths._skipped_records.incomplete
        if empty:
            raise self._nothing(skipped)

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
