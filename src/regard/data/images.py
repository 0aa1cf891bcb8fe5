"""Pictures with labels, as records like any others.

What holds them: IDX files with a file of labels, NumPy arrays (`.npy` with a file of labels, `.npz`
with both), a folder for every class, or a table of paths and labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from regard.data.archives import folder_of, is_archive
from regard.data.array_files import Array, read_arrays
from regard.data.formats import SkippedRecords
from regard.data.image_files import (
    ARRAYS,
    SUFFIXES,
    as_bytes,
    as_images,
    cells_of,
    coloured,
    is_idx,
    is_unit,
    read_idx,
    read_picture,
    resized,
    suffix,
)
from regard.data.labelled import ColumnSelection
from regard.data.media import TOGETHER, MediaFiles, MediaRow, files_in, numbered
from regard.errors import UsageError, UserError
from regard.tokenizers.patches import Image

IMAGES = "images"  # data.format
SEEN = 50  # picture files whose headers say whether there are colours
HELD = 1 << 30  # bytes of a file of arrays that is kept in memory
# How the names of files with pictures and with their labels differ.
Cells = list[tuple[str, ...]]  # of each picture
NAMES = (("images-idx3", "labels-idx1"), ("images", "labels"), ("image", "label"), ("x_", "y_"))


def holds_images(paths: Sequence[Path]) -> bool:
    """Are these files or folders of pictures?"""
    for path in paths:
        if path.is_dir() or is_archive(path):
            return next(iter(files_in([path], SUFFIXES)), None) is not None
        if suffix(path) in (*SUFFIXES, *ARRAYS) or (path.is_file() and is_idx(path)):
            return True
    return False


class ImageFiles(MediaFiles):
    """Files of pictures as records with targets. `side` is how many pixels both sides are brought
    to; 0 leaves them.
    """

    what, endings = IMAGES, SUFFIXES
    called: ClassVar[str] = "labels"  # what the targets are, in words

    def __init__(
        self, paths: Sequence[Path], asked: ColumnSelection, *, strict: bool = False, side: int = 0
    ) -> None:
        self.side = side
        self._beside_files: dict[Path, Path] = {}  # files of labels, by that of the pictures
        self._colours: bool | None = None
        self._held: dict[Path, tuple[Array, Cells, Cells]] = {}
        super().__init__(paths, asked, strict=strict)

    def settle(self) -> str:
        """See Collected."""
        first = self.files[0]
        if suffix(first) in SUFFIXES:
            return self.by_folder()
        if suffix(first) == ".npz":
            keys = self._keys(read_arrays(first), first)
            return f"arrays {keys[0]!r} and {keys[1]!r}"
        self._beside_files = {path: self._labels_of(path) for path in self.files}
        kind = "IDX" if is_idx(first) else "NumPy arrays"
        return f"{kind}, labels from {self._beside_files[first].name}"

    @property
    def all_files(self) -> list[Path]:
        """See Files."""
        return [*self.files, *self._beside_files.values()]

    @property
    def tells(self) -> bool:
        """See Labelled: names of folders are classes."""
        return suffix(self.files[0]) not in SUFFIXES

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
        if not arrays[images].ndim:
            raise UserError(f"{path}: {images} must hold several pictures; it holds {shown}")
        count = len(arrays[images])
        known = (images, *self.asked.asides)
        small = [n for n, a in arrays.items() if a.shape == (count,) and n not in known]
        if not target and len(small) != 1:
            raise UsageError(
                f"{path}: which array is the {self.called}? --target; it holds {shown}"
            )
        return images, target or small[0]

    def begin(self, files: Sequence[Path]) -> None:
        """See Collected: whether there are colours."""
        if self._colours is None:
            self._colours = coloured(files[:SEEN], self._archives)

    def read(self, path: Path) -> Image:
        """See Collected."""
        return read_picture(path, colours=bool(self._colours), archives=self._archives)

    def finished(self, thing: Image) -> Image:
        """See Collected."""
        return resized(thing, self.side)

    def digest(self, thing: Image) -> str:
        """See Collected."""
        return digest(thing)

    def rows(self, path: Path, tally: SkippedRecords) -> Iterator[MediaRow]:
        """See Collected."""
        if suffix(path) in SUFFIXES:
            self.begin(self.files)
            yield from self.one(path, (folder_of(path),), str(path), tally)
            return
        images, cells, asides = self._loaded(path)
        self.names = numbered(len(cells[0]) if cells else 1)
        unit = is_unit(images)
        for first in range(0, len(images), TOGETHER):
            some, sound = as_bytes(images[first : first + TOGETHER], unit)
            for i, image in enumerate(some):
                place = f"{path}[{first + i}]"
                if sound[i]:
                    yield MediaRow(image, cells[first + i], place, asides[first + i])
                else:
                    tally.damaged(f"{place}: pixels must be numbers from 0 to 255, or to 1")

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


def digest(image: Image) -> str:
    """What tells a picture from others."""
    found = hashlib.blake2b(repr(image.shape).encode(), digest_size=12)
    found.update(np.ascontiguousarray(image).data)
    return found.hexdigest()


def unlabelled(
    paths: Sequence[Path], channels: int, side: int = 0, *, strict: bool = True
) -> Iterator[tuple[str, Image | str]]:
    """Pictures of which nothing is known, each with its place; a damaged one is a UserError or,
    unless `strict`, what is wrong with it.
    """
    files = list(files_in(paths, SUFFIXES))
    if not files:
        raise UserError(f"{paths[0]}: holds no pictures ({' '.join(SUFFIXES)})")
    for path in files:
        if suffix(path) in SUFFIXES:
            try:
                found: Image | str = resized(read_picture(path, colours=channels != 1), side)
            except ValueError as error:
                if strict:
                    raise UserError(f"{path}: {error}") from None
                found = str(error)
            yield str(path), found
            continue
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder")
        arrays = {"": read_idx(path)} if is_idx(path) else read_arrays(path)
        large = [array for array in arrays.values() if array.ndim in (3, 4)]
        if len(large) != 1:
            raise UserError(f"{path}: must hold one array of pictures, got {len(large)}")
        images = as_images(large[0], path)
        unit = is_unit(images)
        made, sound = as_bytes(images, unit)
        wrong = "pixels must be numbers from 0 to 255, or to 1"
        if strict and not sound.all():
            raise UserError(f"{path}[{int(np.flatnonzero(~sound)[0])}]: {wrong}")
        for i, image in enumerate(made):
            yield f"{path}[{i}]", resized(image, side) if sound[i] else wrong
