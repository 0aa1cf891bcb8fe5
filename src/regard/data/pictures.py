"""Pictures with labels, as records like any others.

What holds them: IDX files with a file of labels, NumPy arrays (`.npy` with a file of labels, `.npz`
with both), a folder for every class, or a table of paths and labels. A record is told from others
by its pixels; a damaged picture is a damaged record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard.data.formats import Tally
from regard.data.labelled import LABEL, Asked, Examples, Labelled
from regard.data.picture_files import (
    ARRAYS,
    SUFFIXES,
    Array,
    as_bytes,
    as_images,
    cells_of,
    coloured,
    is_idx,
    pictures_in,
    read_arrays,
    read_idx,
    read_picture,
    resized,
    suffix,
)
from regard.data.readers import TABLES
from regard.data.targets import unchecked
from regard.errors import UsageError, UserError
from regard.tokens.patches import Image

IMAGES = "images"  # data.format
SEEN = 50  # picture files whose headers say whether there are colours
TOGETHER = 1024  # pictures of a chunk
HELD = 1 << 30  # bytes of a file of arrays that is kept in memory
# How the names of files with pictures and with their labels differ.
Cells = list[tuple[str, ...]]  # of each picture
NAMES = (("images-idx3", "labels-idx1"), ("images", "labels"), ("image", "label"), ("x_", "y_"))


@dataclass(frozen=True, slots=True)
class Shown(Examples):
    """Some pictures, in `texts`, and what is asked of each."""

    names: Sequence[str] = ()  # where each stands
    digests: Sequence[str] = ()

    @property
    def keys(self) -> Sequence[str]:
        """See Examples: what the pixels are."""
        return self.digests

    def place(self, i: int) -> str:
        """Where picture i stands."""
        return self.names[i]


def holds_pictures(paths: Sequence[Path]) -> bool:
    """Are these files or folders of pictures?"""
    for path in paths:
        if path.is_dir():
            return next(iter(pictures_in([path])), None) is not None
        if suffix(path) in (*SUFFIXES, *ARRAYS) or (path.is_file() and is_idx(path)):
            return True
    return False


class Pictures(Labelled):
    """Files of pictures as records with targets. `side` is how many pixels both sides are brought
    to; 0 leaves them.
    """

    called: ClassVar[str] = "labels"  # what the targets are, in words

    def __init__(
        self, paths: Sequence[Path], asked: Asked, *, strict: bool = False, side: int = 0
    ) -> None:
        self.paths, self.asked, self.strict, self.side = list(paths), asked, strict, side
        self.format, self.encoding, self.check = IMAGES, "utf-8", unchecked
        self.names, self.classes = (LABEL,), ()
        self._tally, self._layout = Tally(strict), None
        for path in self.paths:
            if not path.exists():
                raise UserError(f"{path}: no such file or folder")
        self.files = list(pictures_in(self.paths))
        if not self.files:
            raise UserError(f"{self.paths[0]}: holds no pictures ({' '.join(SUFFIXES)})")
        self.size = sum(file.stat().st_size for file in self.files)
        self._beside_files: dict[Path, Path] = {}  # files of labels, by that of the pictures
        self._paths: Labelled | None = None
        self._colours: bool | None = None
        self._held: dict[Path, tuple[Array, Cells, Cells]] = {}
        self._settle()

    def _settle(self) -> None:
        """Choose where the pictures and their targets stand."""
        first = self.files[0]
        name = first.name.lower().removesuffix(".gz")
        if name.rpartition(".")[2] in TABLES:
            self._paths = Labelled(self.files, self.asked, strict=self.strict)
            self.names = self._paths.names
            self.why = f"a table of paths to pictures, {self._paths.why}"
        elif suffix(first) in SUFFIXES:
            classes = sorted({file.parent.name for file in self.files})
            self.why = f"a folder for every class: {', '.join(classes[:5])}"
        elif suffix(first) == ".npz":
            keys = self._keys(read_arrays(first), first)
            self.why = f"arrays {keys[0]!r} and {keys[1]!r}"
        else:
            self._beside_files = {path: self._labels_of(path) for path in self.files}
            kind = "IDX" if is_idx(first) else "NumPy arrays"
            self.why = f"{kind}, labels from {self._beside_files[first].name}"

    @property
    def all_files(self) -> list[Path]:
        """See Files."""
        return [*self.files, *self._beside_files.values()]

    @property
    def two_texts(self) -> bool:
        """See Labelled."""
        return False

    @property
    def tells(self) -> bool:
        """See Labelled: names of folders are classes."""
        return suffix(self.files[0]) not in SUFFIXES

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        """See Labelled: names of folders are classes wherever they are."""
        return ()

    def _labels_of(self, path: Path) -> Path:
        """The file of labels beside one of pictures: the one named, or the one that is named as the
        pictures are.
        """
        named = self.asked.targets[0] if len(self.asked.targets) == 1 else ""
        if named and Path(named).is_file() and path == self.files[0]:
            return Path(named)
        tried = []
        for images, labels in NAMES:
            for one, two in ((images, labels), (images.upper(), labels.upper())):
                if one in path.name:
                    tried.append(path.with_name(path.name.replace(one, two)))
        for found in tried:
            if found.is_file():
                return found
        looked = f"; looked for {tried[0].name}" if tried else ""
        raise UsageError(
            f"{path}: where are the {self.called}? name their file with --target{looked}"
        )

    def _keys(self, arrays: dict[str, Array], path: Path) -> tuple[str, str]:
        """The names of the pictures and of the targets in a .npz file."""
        shown = ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in arrays.items())
        input, target = self.asked.inputs[0], (self.asked.targets or ("",))[0]
        flags = (input, "--input"), (target, "--target")
        aside = tuple((name, "data.split or data.group") for name in self.asked.asides)
        for name, flag in flags + aside:
            if name and name not in arrays:
                raise UsageError(f"{flag} {name}: {path} has no such array; it holds {shown}")
        large = [n for n, a in arrays.items() if a.ndim in (3, 4) and a.dtype.kind in "buif"]
        if not input and len(large) != 1:
            raise UsageError(f"{path}: which array is the pictures? --input; it holds {shown}")
        images = input or large[0]
        count = len(arrays[images])
        known = (images, *self.asked.asides)
        small = [n for n, a in arrays.items() if a.shape == (count,) and n not in known]
        if not target and len(small) != 1:
            raise UsageError(
                f"{path}: which array is the {self.called}? --target; it holds {shown}"
            )
        return images, target or small[0]

    def examples(self) -> Iterator[Examples]:
        """See Labelled."""
        tally = self._tally = Tally(self.strict)
        empty = True
        for chunk in self._chunks(tally):
            if chunk.texts:
                empty = False
                yield chunk
        if empty:
            raise self._nothing(tally)

    def _chunks(self, tally: Tally) -> Iterator[Shown]:
        if self._paths is not None:
            for chunk in self._paths.examples():
                rows = zip(
                    chunk.texts, chunk.targets, map(chunk.place, range(len(chunk))), strict=True
                )
                base = chunk.path.parent
                found: list[tuple[Path, tuple[str, ...], str]] = [
                    (base / name, cells, place) for name, cells, place in rows
                ]
                asides = chunk.asides or [()] * len(found)
                yield self._opened(chunk.path, found, asides, tally)
            tally.skipped += self._paths.skipped
            tally.problems += self._paths.problems
        elif suffix(self.files[0]) in SUFFIXES:
            for first in range(0, len(self.files), TOGETHER):
                some = self.files[first : first + TOGETHER]
                found = [(path, (path.parent.name,), str(path)) for path in some]
                yield self._opened(some[0], found, [()] * len(found), tally)
        else:
            for path in self.files:
                yield from self._arrays(path, tally)

    def _opened(
        self,
        path: Path,
        rows: Sequence[tuple[Path, tuple[str, ...], str]],
        asides: Sequence[tuple[str, ...]],
        tally: Tally,
    ) -> Shown:
        """Picture files with their targets; what is damaged goes to `tally`."""
        if self._colours is None:
            self._colours = coloured([file for file, _, _ in rows[:SEEN]])
        kept: list[tuple[Any, ...]] = []
        for (file, cells, place), aside in zip(rows, asides, strict=True):
            try:
                image = read_picture(file, colours=self._colours)
            except ValueError as error:
                tally.damaged(f"{place}: {'' if str(file) == place else f'{file} '}{error}")
                continue
            kept.append((image, cells, place, aside))
        return self._shown(path, kept, tally)

    def _loaded(self, path: Path) -> tuple[Array, Cells, Cells]:
        """The pictures of a file of arrays, their targets and what else was asked for; the latest
        is held, unless it is large, since files are read several times.
        """
        if path in self._held:
            return self._held[path]
        asides: list[Cells] = []
        if path in self._beside_files:
            beside = self._beside_files[path]
            images = read_idx(path) if is_idx(path) else read_arrays(path)[""]
            targets = read_idx(beside) if is_idx(beside) else read_arrays(beside).get("")
        else:
            arrays, beside = read_arrays(path), path
            one, two = self._keys(arrays, path)
            images, targets = arrays[one], arrays[two]
            asides = [cells_of(arrays[name], path) for name in self.asked.asides]
        if targets is None:
            raise UserError(f"{beside}: must hold one array of {self.called}")
        images, cells = as_images(images, path), cells_of(targets, beside)
        for each, what in ((cells, self.called), *((aside, "beside them") for aside in asides)):
            if len(each) != len(images):
                raise UserError(
                    f"{path} has {len(images):,} pictures, {beside} {len(each):,} {what}"
                )
        more = [sum(parts, ()) for parts in zip(*asides, strict=True)] or [()] * len(cells)
        self._held = {path: (images, cells, more)} if images.nbytes <= HELD else {}
        return images, cells, more

    def _arrays(self, path: Path, tally: Tally) -> Iterator[Shown]:
        """The pictures of a file of arrays with their targets."""
        images, cells, asides = self._loaded(path)
        self.names = (LABEL,) if not cells or len(cells[0]) == 1 else _numbered(len(cells[0]))
        unit = images.dtype.kind == "f" and images.size > 0 and float(np.nanmax(images)) <= 1
        for first in range(0, len(images), TOGETHER):
            some, sound = as_bytes(images[first : first + TOGETHER], unit)
            kept = []
            for i, image in enumerate(some):
                place = f"{path}[{first + i}]"
                if sound[i]:
                    kept.append((image, cells[first + i], place, asides[first + i]))
                else:
                    tally.damaged(f"{place}: pixels must be numbers from 0 to 255, or to 1")
            yield self._shown(path, kept, tally)

    def _shown(self, path: Path, rows: Sequence[tuple[Any, ...]], tally: Tally) -> Shown:
        """Rows of picture, targets, place and asides, those with wrong targets left out."""
        kept = []
        for image, cells, place, aside in rows:
            try:
                cells = tuple(self._label(cell.strip()) for cell in cells)
                if not any(cells):
                    raise ValueError("no target")
                self.check("", cells, self.names)
            except ValueError as error:
                tally.damaged(f"{place}: {error}")
                continue
            kept.append((resized(image, self.side), cells, place, aside))
        images: list[Any] = [row[0] for row in kept]
        return Shown(
            path,
            images,
            range(len(kept)),
            targets=[row[1] for row in kept],
            asides=[row[3] for row in kept] if self.asked.asides else (),
            names=[row[2] for row in kept],
            digests=[digest(image) for image in images],
        )


def digest(image: Image) -> str:
    """What tells a picture from others."""
    found = hashlib.blake2b(repr(image.shape).encode(), digest_size=12)
    found.update(np.ascontiguousarray(image).data)
    return found.hexdigest()


def unlabelled(paths: Sequence[Path], channels: int, side: int = 0) -> Iterator[tuple[str, Image]]:
    """Pictures of which nothing is known, each with its place; a damaged one is a UserError."""
    files = list(pictures_in(paths))
    if not files:
        raise UserError(f"{paths[0]}: holds no pictures ({' '.join(SUFFIXES)})")
    for path in files:
        if suffix(path) in SUFFIXES:
            try:
                yield str(path), resized(read_picture(path, colours=channels != 1), side)
            except ValueError as error:
                raise UserError(f"{path}: {error}") from None
            continue
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder")
        arrays = {"": read_idx(path)} if is_idx(path) else read_arrays(path)
        large = [array for array in arrays.values() if array.ndim in (3, 4)]
        if len(large) != 1:
            raise UserError(f"{path}: must hold one array of pictures, got {len(large)}")
        images = as_images(large[0], path)
        unit = images.dtype.kind == "f" and images.size > 0 and float(np.nanmax(images)) <= 1
        made, sound = as_bytes(images, unit)
        if not sound.all():
            wrong = int(np.flatnonzero(~sound)[0])
            raise UserError(f"{path}[{wrong}]: pixels must be numbers from 0 to 255, or to 1")
        yield from ((f"{path}[{i}]", resized(image, side)) for i, image in enumerate(made))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"{LABEL}{i + 1}" for i in range(count))


def paths_in_table(source: Labelled) -> bool:
    """Are the texts of a table paths to pictures?"""
    if source.format not in TABLES or source.two_texts:
        return False
    first = next(iter(source.examples()), None)
    return first is not None and any(text.lower().endswith(SUFFIXES) for text in first.texts[:1])
