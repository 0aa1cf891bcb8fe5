"""Labelled things that are no text, as records like any others: pictures, point clouds.

What holds them differs from kind to kind, and is told by subclasses; what is the same is here: a
folder for every class, or a table of paths and labels; a record is told from others by its bytes; a
damaged thing is a damaged record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from regard.data.archives import Archives, folder_of, is_archive, members
from regard.data.formats import SkippedRecords
from regard.data.image_files import suffix
from regard.data.labelled import LABEL, ColumnSelection, LabelledChunk, LabelledFiles
from regard.data.readers import TABLES
from regard.data.targets import UNDECIDED, Notation
from regard.errors import UserError
from regard.tokenizers.tokenizer import PLAIN as AS_WRITTEN
from regard.tokenizers.tokenizer import Canonical

TOGETHER = 1024  # things of a chunk
KEPT = 1 << 29  # bytes of things that are kept in memory between passes


@dataclass(frozen=True, slots=True)
class MediaChunk(LabelledChunk):
    """Some things, in `texts`, and what is asked of each."""

    digests: Sequence[str] = ()

    def keys(self, form: Canonical = AS_WRITTEN) -> Sequence[str]:
        """See Examples: what the bytes are."""
        return self.digests


class MediaRow(NamedTuple):
    """A thing, its targets as written, and where it stands."""

    thing: Any
    cells: tuple[str, ...]
    place: str
    aside: tuple[str, ...] = ()


class MediaFiles(LabelledFiles):
    """Files of things as records with targets."""

    what: ClassVar[str]  # data.format
    endings: ClassVar[tuple[str, ...]]  # of files that hold one thing each

    def __init__(
        self, paths: Sequence[Path], asked: ColumnSelection, *, strict: bool = False
    ) -> None:
        self.paths, self.asked, self.strict = list(paths), asked, strict
        self.format, self.encoding, self.kind = self.what, "utf-8", UNDECIDED
        self.names, self.classes = (LABEL,), ()
        self._tally, self._layout = SkippedRecords(strict), None
        self._archives, self._folders = Archives(), {}
        self.written_as, self._notations, self._signs = self, None, None
        self.by_name = False
        self._passed: tuple[Any, SkippedRecords, list[MediaChunk]] | None = (
            None  # under which check, and what
        )
        for path in self.paths:
            if not path.exists():
                raise UserError(f"{path}: no such file or folder")
        self.files = list(files_in(self.paths, self.endings))
        if not self.files:
            raise UserError(f"{self.paths[0]}: holds no {self.what} ({' '.join(self.endings)})")
        self.size = sum(map(self._archives.size, self.files))
        self._paths: LabelledFiles | None = None
        if suffix(self.files[0]).removeprefix(".") in TABLES:
            self._paths = LabelledFiles(self.files, self.asked, strict=self.strict)
            self.names = self._paths.names
            self.why = f"a table of paths to {self.what}, {self._paths.why}"
        else:
            self.why = self.settle()

    @abstractmethod
    def settle(self) -> str:
        """Choose where things and their targets stand; why so."""

    @abstractmethod
    def rows(self, path: Path, tally: SkippedRecords) -> Iterator[MediaRow]:
        """What a file holds; what is damaged goes to `tally`."""

    @abstractmethod
    def read(self, path: Path) -> Any:
        """The one thing that a file holds; ValueError says what is wrong with it."""

    @abstractmethod
    def digest(self, thing: Any) -> str:
        """What tells a thing from others."""

    def weight(self, thing: Any) -> int:
        """Bytes of a thing."""
        return int(thing.nbytes)

    def finished(self, thing: Any) -> Any:
        """A thing as it is used."""
        return thing

    def begin(self, files: Sequence[Path]) -> None:
        """Look at the first files of a table before any is read."""

    @property
    def columns(self) -> tuple[str, ...]:
        """See Files: those of a table of paths."""
        return self._paths.columns if self._paths else ()

    @property
    def two_texts(self) -> bool:
        """See Labelled."""
        return False

    @property
    def tells(self) -> bool:
        """See Labelled: those that captions tell say so."""
        return False

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        """See Labelled: names of folders are classes wherever they are."""
        return ()

    def by_folder(self) -> str:
        """Why folders are classes, in words."""
        self.by_name = True
        classes = sorted(set(map(folder_of, self.files)))
        return f"a folder for every class: {', '.join(classes[:5])}"

    def examples(self) -> Iterator[LabelledChunk]:
        """See Labelled."""
        if self._passed is not None and self._passed[0] is self.kind:
            _, self._tally, chunks = self._passed
            yield from chunks
            return
        tally = self._tally = SkippedRecords(self.strict)
        kept, taken, empty = list[MediaChunk](), 0, True
        for chunk in self._chunks(tally):
            if chunk.texts:
                empty = False
                taken += sum(self.weight(thing) for thing in chunk.texts)
                kept.append(chunk)
                if taken > KEPT:
                    kept.clear()
                yield chunk
        if empty:
            raise self._nothing(tally)
        if taken <= KEPT:  # all of it will be read again, some ten times
            self._passed = self.kind, tally, kept

    def _chunks(self, tally: SkippedRecords) -> Iterator[MediaChunk]:
        rows = self._listed(tally)
        while some := list(islice(rows, TOGETHER)):
            yield self._shown(some, tally)

    def _listed(self, tally: SkippedRecords) -> Iterator[MediaRow]:
        """Every thing, in order."""
        if self._paths is None:
            for path in self.files:
                yield from self.rows(path, tally)
            return
        for chunk in self._paths.examples():
            base = chunk.path.parent
            self.begin([base / name for name in chunk.texts])
            asides = chunk.asides or [()] * len(chunk)
            for i, (name, cells) in enumerate(zip(chunk.texts, chunk.targets, strict=True)):
                place = chunk.place(i)
                yield from self.one(base / name, cells, place, tally, asides[i])
        tally.skipped += self._paths.skipped
        tally.problems += self._paths.problems
        tally.left |= self._paths._tally.left

    def one(
        self,
        file: Path,
        cells: tuple[str, ...],
        place: str,
        tally: SkippedRecords,
        aside: tuple[str, ...] = (),
    ) -> Iterable[MediaRow]:
        """The row of a file that holds one thing; none where it is damaged."""
        try:
            return [MediaRow(self.read(file), cells, place, aside)]
        except ValueError as error:
            tally.damaged(f"{place}: {'' if str(file) == place else f'{file} '}{error}")
            return []

    def _written(self) -> Iterator[tuple[str, ...]]:
        """See Labelled: of a table alone; what is no text comes with numbers, as a rule."""
        return self._paths._written() if self._paths is not None else iter(())

    @property
    def notations(self) -> list[Notation]:
        """See Labelled: names of targets may be known late."""
        if self._paths is not None:
            return self._paths.notations
        return [Notation() for _ in self.names]

    def _shown(self, rows: Sequence[MediaRow], tally: SkippedRecords) -> MediaChunk:
        """Rows as records, those with wrong targets left out."""
        kept: list[MediaRow] = []
        for row in rows:
            try:
                written = tuple(cell.strip() for cell in row.cells)
                cells = self.targets_of(written, row.place, tally)
                if cells is None:
                    continue
                self.kind.check(row.thing, cells, self.names)
            except ValueError as error:
                tally.damaged(f"{row.place}: {error}")
                continue
            kept.append(row._replace(thing=self.finished(row.thing), cells=cells))
        things: list[Any] = [row.thing for row in kept]
        return MediaChunk(
            self.files[0],
            things,
            range(len(kept)),
            targets=[row.cells for row in kept],
            asides=[row.aside for row in kept] if self.asked.asides else (),
            names=[row.place for row in kept],
            digests=[self.digest(thing) for thing in things],
        )


def files_in(paths: Sequence[Path], endings: tuple[str, ...]) -> Iterator[Path]:
    """The files among paths, and those in folders and archives that end so, sorted, without hidden
    ones.
    """
    for path in paths:
        if is_archive(path):
            names = (name for name in members(path) if suffix(Path(name)) in endings)
            hidden = (".", "__")
            yield from (
                Path(f"{path}:{name}")
                for name in names
                if not any(part.startswith(hidden) for part in name.split("/"))
            )
            continue
        if not path.is_dir():
            yield path
            continue
        found = sorted(file for file in path.rglob("*") if suffix(file) in endings)
        yield from (
            f for f in found if not any(p.startswith(".") for p in f.relative_to(path).parts)
        )


def numbered(count: int) -> tuple[str, ...]:
    """Names of so many targets that no column names."""
    return (LABEL,) if count == 1 else tuple(f"{LABEL}{i + 1}" for i in range(count))


def paths_in_table(source: LabelledFiles, endings: tuple[str, ...]) -> bool:
    """Are the texts of a table paths to such files?"""
    if source.format not in TABLES or source.two_texts:
        return False
    first = next(iter(source.examples()), None)
    return first is not None and any(text.lower().endswith(endings) for text in first.texts[:1])
