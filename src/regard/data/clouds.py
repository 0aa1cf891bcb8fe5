"""Point clouds with targets, as records like any others.

What holds them: `.npz` (an array (count, points, d), or all points end to end with `lengths`, and
`features`, `atoms` and the targets beside), `.npy`, `.xyz` of many molecules, `.ply`, `.off`; a
folder for every class, or a table of paths and labels. Targets are an array, a key of the line
about a molecule, a whole number of every vertex, or a table by name, or in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.array_files import MOST, Array, headers, read_arrays
from regard.data.cloud_files import LETTERS, Found, Frame, frames_of, letters, sound, text_of
from regard.data.collected import Collected, Row, files_in, numbered
from regard.data.formats import Tally
from regard.data.labelled import LABEL, Asked
from regard.data.packed import unpacked
from regard.data.picture_files import (
    ARRAYS,
    SUFFIXES,
    cells_of,
    suffix,
)
from regard.data.pictures import IMAGES, holds_pictures
from regard.errors import UsageError, UserError
from regard.tokens.points import NO_ATOMS, Cloud

POINTS = "points"  # data.format
ENDINGS = (".xyz", ".ply", ".off")
NAMED = ("points", "coordinates", "xyz", "positions")  # what an array of points may be called
HELD = 128 << 20  # bytes of files whose clouds are kept in memory
BESIDE = ("lengths", "features", "atoms")  # of a .npz: what is told of points, no targets
KINDS = {"features": "biuf", "atoms": "iu"}  # of numbers


def form_of(paths: Sequence[Path]) -> str:
    """What these files or folders hold that is no text: points, images or nothing such."""
    if holds_clouds(paths):
        return POINTS
    return IMAGES if holds_pictures(paths) else ""


def holds_clouds(paths: Sequence[Path]) -> bool:
    """Are these files or folders of point clouds?"""
    for path in paths:
        if path.is_dir():
            if next(iter(files_in([path], SUFFIXES)), None) is not None:
                return False
            path = next(iter(files_in([path], (*ENDINGS, *ARRAYS))), path)
        if suffix(path) in ENDINGS:
            return True
        if suffix(path) in ARRAYS and path.is_file():
            return any(_like_points(name, h.shape, h.dtype) for name, h in headers(path))
    return False


def _like_points(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    called = name in NAMED and len(shape) in (2, 3)
    return called or (dtype.kind == "f" and len(shape) in (2, 3) and shape[-1] in (2, 3))


class Clouds(Collected):
    """Files of point clouds as records with targets. `surface` points are drawn from a mesh."""

    what, endings = POINTS, (*ENDINGS, *ARRAYS)

    def __init__(
        self, paths: Sequence[Path], asked: Asked, *, strict: bool = False, surface: int = 1024
    ) -> None:
        self.surface = surface
        self._listing: TargetTable | None = None
        self._seen = 0
        self._held: dict[Path, list[Found]] = {}  # files are read several times
        self._digests: dict[int, str] = {}  # of clouds that are held
        super().__init__(paths, asked, strict=strict)

    def settle(self) -> str:
        """See Collected."""
        asked, first = self.asked, self.files[0]
        named = asked.targets[0] if len(asked.targets) == 1 else ""
        beside = asked.labels
        if beside is None and named and Path(named).is_file():
            beside = Path(named)
        self.from_folder = False
        if beside is not None and suffix(beside) not in ARRAYS:
            columns = asked.targets if asked.labels is not None else ()
            self._listing = TargetTable(beside, columns or ("2",))
            self.names = columns or (LABEL,)
            found = next((f for f in self._frames(first) if isinstance(f, Frame)), None)
            by_name = self._listing.settle(found.name if found else "")
            return f"targets from {beside.name}, {by_name}"
        if asked.targets and beside is None:
            self.names = asked.targets
            return f"targets are {', '.join(asked.targets)} of every cloud"
        if suffix(first) in ARRAYS and not any(path.is_dir() for path in self.paths):
            return "NumPy arrays" if beside is None else f"NumPy arrays, targets from {beside.name}"
        self.from_folder = True
        if len({file.parent for file in self.files}) < 2:
            raise UsageError(
                f"{first}: where are the labels? say --target with a file of them, or a key, or "
                "give a folder for every class"
            )
        return self.by_folder()

    @property
    def all_files(self) -> list[Path]:
        """See Files."""
        beside = self._listing.path if self._listing else self.asked.labels
        return [*self.files, *([beside] if beside else [])]

    def read(self, path: Path) -> Cloud:
        """See Collected."""
        if not path.is_file():
            raise ValueError("is not there")
        found = next(self._frames(path), "holds nothing")
        if isinstance(found, str):
            raise ValueError(found)
        return found.cloud

    def weight(self, thing: Cloud) -> int:
        """See Collected."""
        return thing.points.nbytes + thing.features.nbytes

    def digest(self, thing: Cloud) -> str:
        """See Collected: the same whatever the order of the points."""
        if not self._held:
            return digest(thing)
        if id(thing) not in self._digests:
            self._digests[id(thing)] = digest(thing)
        return self._digests[id(thing)]

    def _frames(self, path: Path) -> Iterator[Found]:
        """The clouds of a file, held from the first time on where all files are small."""
        if path in self._held:
            return iter(self._held[path])
        found = (
            arrays_of(path, self.asked.inputs[0])
            if suffix(path) in ARRAYS
            else frames_of(path, self.surface)
        )
        if self._paths is not None or self.size > HELD:
            return found
        self._held[path] = list(found)
        return iter(self._held[path])

    def rows(self, path: Path, tally: Tally) -> Iterator[Row]:
        """See Collected."""
        if path == self.files[0]:
            self._seen = 0
        targets = self._array_targets(path)
        for i, found in enumerate(self._frames(path)):
            place = f"{path}[{i}]" if i or self._many(path) else str(path)
            number = self._seen
            self._seen += 1
            if isinstance(found, str):
                tally.damaged(f"{place}: {found}")
                continue
            try:
                cells = targets[i] if targets is not None else self._cells(found, path, number)
            except (ValueError, IndexError) as error:
                tally.damaged(f"{place}: {error if str(error) else 'has no target'}")
                continue
            yield Row(found.cloud, cells, place)

    def _many(self, path: Path) -> bool:
        return not self.from_folder and suffix(path) in (".xyz", *ARRAYS)

    def _cells(self, frame: Frame, path: Path, number: int) -> tuple[str, ...]:
        """The targets of a cloud, which is that number of all."""
        if self._listing is not None:
            return self._listing.cells(frame.name, number)
        if self.from_folder:
            return (path.parent.name,)
        for key in self.names:
            if key not in frame.told:
                known = ", ".join(frame.told) or "nothing"
                raise ValueError(f"it says nothing of {key!r}; it tells {known}")
        return tuple(frame.told[key] for key in self.names)

    def _array_targets(self, path: Path) -> list[tuple[str, ...]] | None:
        """The targets in a .npz file, or in the array beside a .npy file; None: elsewhere."""
        if suffix(path) not in ARRAYS or self.from_folder or self._listing is not None:
            return None
        arrays = read_arrays(path)
        if suffix(path) == ".npy":
            beside = self.asked.labels or Path((self.asked.targets or ("",))[0])
            if not beside.is_file():
                raise UsageError(f"{path}: where are the targets? name their file with --target")
            cells = cells_of(read_arrays(beside).get("", np.zeros(0)), beside)
            self.names = numbered(len(cells[0]) if cells else 1)
            return cells
        key = points_key(arrays, path, self.asked.inputs[0])
        points, lengths = arrays[key], arrays.get("lengths")
        check_lengths(path, lengths, points)
        count = len(points) if lengths is None else len(lengths)
        names = self.asked.targets
        if not names:
            small = [
                n for n, a in arrays.items() if n not in (key, *BESIDE) and a.shape[:1] == (count,)
            ]
            if len(small) != 1:
                raise UsageError(f"{path}: which array is the targets? --target; {shown(arrays)}")
            names = (small[0],)
        for name in names:
            if name not in arrays:
                raise UsageError(f"--target {name}: {path} has no such array; {shown(arrays)}")
        self.names = names
        own = arrays[names[0]]
        each = own.shape == (points.shape[:2] if lengths is None else points.shape[:1])
        if len(names) == 1 and each and own.dtype.kind in "biu":
            return [(text,) for text in _lettered(own, points, lengths, path)]
        columns = [cells_of(arrays[name], path) for name in names]
        for name, cells in zip(names, columns, strict=True):
            if len(cells) != count:
                raise UserError(f"{path} has {count:,} clouds, {name} {len(cells):,} targets")
        if len(names) == 1 and columns[0] and len(columns[0][0]) > 1:
            self.names = tuple(f"{names[0]}{i + 1}" for i in range(len(columns[0][0])))
        return [
            tuple(cell for cells in row for cell in cells) for row in zip(*columns, strict=True)
        ]


def _lettered(own: Array, points: Array, lengths: Array | None, path: Path) -> Iterator[str]:
    """Classes of points, cloud by cloud, a letter each; those of padding left out."""
    if own.size and not 0 <= int(own.min()) <= int(own.max()) < len(LETTERS):
        raise UserError(f"{path}: classes of points are whole numbers from 0 to {len(LETTERS) - 1}")
    if lengths is None:
        for row, cloud in zip(own, points, strict=True):
            yield letters(row[np.isfinite(cloud).all(1)])
    else:
        ends = np.cumsum(lengths)
        yield from (letters(own[b - n : b]) for b, n in zip(ends, lengths, strict=True))


def shown(arrays: dict[str, Array]) -> str:
    """What a file of arrays holds, in words."""
    return "it holds " + ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in arrays.items())


def check_lengths(path: Path, lengths: Array | None, points: Array) -> None:
    """Refuse arrays that are no clouds, or lengths that are not those of all points together."""
    if not points.ndim:
        raise UserError(f"{path}: points must be an array of clouds, got one number")
    if lengths is None:
        return
    whole = lengths.ndim == 1 and lengths.dtype.kind in "iu" and lengths.size > 0
    least, most = (int(lengths.min()), int(lengths.max())) if whole else (0, 0)
    if not 1 <= least <= most <= len(points) or int(lengths.sum()) != len(points):
        raise UserError(f"{path}: lengths must be positive and sum to the {len(points):,} points")


def points_key(arrays: dict[str, Array], path: Path, input: str) -> str:
    """The name of the array of points."""
    if input:
        if input not in arrays:
            raise UsageError(f"--input {input}: {path} has no such array; {shown(arrays)}")
        return input
    named = [name for name in NAMED if name in arrays]
    likely = named or [n for n, a in arrays.items() if _like_points(n, a.shape, a.dtype)]
    if not likely:
        raise UsageError(f"{path}: which array is the points? --input; {shown(arrays)}")
    return likely[0]


def arrays_of(path: Path, input: str = "") -> Iterator[Found]:
    """The clouds of a file of arrays: points that are NaN are none."""
    arrays = read_arrays(path)
    key = "" if suffix(path) == ".npy" else points_key(arrays, path, input)
    points, lengths = arrays[key], arrays.get("lengths")
    check_lengths(path, lengths, points)
    if points.ndim == 2 and lengths is None:
        points = points[None]
    if points.dtype.kind not in "iuf" or points.ndim != (2 if lengths is not None else 3):
        raise UserError(
            f"{path}: points are numbers of shape (count, points, d), or (all points, d) with "
            f"lengths, got {points.dtype} {points.shape}"
        )
    told = {name: arrays[name] for name in BESIDE[1:] if name in arrays}
    for name, array in told.items():
        if array.shape[: points.ndim - 1] != points.shape[:-1]:
            raise UserError(f"{path}: {name} must be told of every point, got {array.shape}")
        if array.dtype.kind not in KINDS[name]:
            raise UserError(f"{path}: {name} must be numbers, got {array.dtype}")
    ends = None if lengths is None else np.cumsum(lengths)
    for i in range(len(points) if lengths is None else len(lengths)):
        part: Any = i
        if ends is not None and lengths is not None:
            part = slice(int(ends[i] - lengths[i]), int(ends[i]))
        try:
            yield Frame(_cloud(points[part], {n: a[part] for n, a in told.items()}))
        except ValueError as error:
            yield str(error)


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def _cloud(points: Array, told: dict[str, Array]) -> Cloud:
    """One cloud of arrays, padding left out."""
    there = ~np.isnan(points).all(1) if points.dtype.kind == "f" else np.ones(len(points), bool)
    atoms = told.get("atoms")
    if atoms is not None:
        there &= atoms > 0
    if not there.any():
        raise ValueError("has no points")
    features = told.get("features", np.zeros((len(points), 0), np.float32))
    features = features.reshape(len(points), -1)[there].astype(np.float32)
    numbers = NO_ATOMS if atoms is None else atoms[there].astype(np.uint8)
    return sound(Cloud(points[there].astype(np.float32), features, numbers), "a point")


class TargetTable:
    """Targets in a table of text: a name and targets a line, with blanks, tabs or commas between,
    by name where the names are those of clouds, else in their order. Columns are numbered from 1,
    or named in the first line.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.by_name = path, False
        try:
            lines = text_of(unpacked(path, MOST)).splitlines()
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
        rows = [line.replace(",", " ").split() for line in lines]
        found = [(i + 1, row) for i, row in enumerate(rows) if row and not row[0].startswith("#")]
        if not found:
            raise UserError(f"{path}: holds no targets")
        head, wide = found[0][1], len(found[0][1])
        if any(not column.isdigit() for column in columns):
            for column in columns:
                if column not in head:
                    raise UsageError(f"--target {column}: {path} has {', '.join(head)}")
            places, found = [head.index(column) for column in columns], found[1:]
        else:
            places = [int(column) - 1 if wide > 1 else 0 for column in columns]
        self.rows: list[tuple[str, ...]] = []
        self.names: dict[str, int] = {}
        for line, row in found:
            if len(row) <= max(places):
                raise UserError(f"{path}:{line}: has {len(row)} columns, not {max(places) + 1}")
            if row[0] in self.names and wide > 1:
                self.names[row[0]] = -1  # told twice: no name
            self.names.setdefault(row[0], len(self.rows))
            self.rows.append(tuple(row[place] for place in places))

    def settle(self, name: str) -> str:
        """Choose how targets are found, by the name of the first cloud; in words."""
        self.by_name = self.names.get(name, -1) >= 0
        return "by name" if self.by_name else "in order"

    def cells(self, name: str, number: int) -> tuple[str, ...]:
        """The targets of a cloud; ValueError where there are none."""
        at = self.names.get(name, -1) if self.by_name else number
        if not 0 <= at < len(self.rows):
            raise ValueError(f"{name or number} has no line in {self.path}")
        return self.rows[at]


def digest(cloud: Cloud) -> str:
    """What tells a cloud from others, whatever the order of its points."""
    parts = [cloud.points, cloud.features]
    parts += [cloud.atoms[:, None].astype(np.float32)] if len(cloud.atoms) else []
    table = np.concatenate(parts, 1).astype("<f4")
    order = np.lexsort(table.T[::-1])
    found = hashlib.blake2b(repr(table.shape).encode(), digest_size=12)
    found.update(np.ascontiguousarray(table[order]).data)
    return found.hexdigest()


def unlabelled_clouds(
    paths: Sequence[Path], surface: int, *, strict: bool = True
) -> Iterator[tuple[str, Cloud | str]]:
    """Clouds of which nothing is known, each with its place; a damaged one is a UserError or,
    unless `strict`, what is wrong with it.
    """
    files = list(files_in(paths, (*ENDINGS, *ARRAYS)))
    if not files:
        raise UserError(f"{paths[0]}: holds no point clouds ({' '.join((*ENDINGS, *ARRAYS))})")
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder")
        many = suffix(path) in (".xyz", *ARRAYS)
        found = arrays_of(path) if suffix(path) in ARRAYS else frames_of(path, surface)
        for i, one in enumerate(found):
            place = f"{path}[{i}]" if many else str(path)
            if strict and isinstance(one, str):
                raise UserError(f"{place}: {one}")
            yield place, one if isinstance(one, str) else one.cloud
