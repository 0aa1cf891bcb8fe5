"""Files that hold point clouds: XYZ of one molecule or many, plain lines of numbers, PLY (text and
binary) and OFF. Arrays are read by `clouds`. What is wrong with a file is a ValueError that names
the line.

Point clouds with targets, as records like any others.

What holds them: `.npz` (an array (count, points, d), or all points end to end with `lengths`, and
`features`, `atoms` and the targets beside), `.npy`, `.xyz` of many molecules, `.ply`, `.off`; a
folder for every class, or a table of paths and labels. Targets are an array, a key of the line
about a molecule, a whole number of every vertex, or a table by name, or in the same order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.archives import unpacked
from regard.data.array_files import MOST, Array, headers, read_arrays
from regard.data.formats import SkippedRecords
from regard.data.image_files import ARRAYS, SUFFIXES, cells_of, suffix
from regard.data.images import IMAGES, holds_images
from regard.data.labelled import LABEL, ColumnSelection
from regard.data.media import MediaFiles, MediaRow, files_in, numbered
from regard.errors import UsageError, UserError
from regard.tokenizers.points import NO_ATOMS, PointCloud

SYMBOLS = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br
Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er
Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md
No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
""".split()  # noqa: SIM905 - a list would be a page long
NUMBERS = {name: z for z, name in enumerate(SYMBOLS, start=1)}
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of classes of points
TOLD = re.compile(r"""([A-Za-z_]\w*)=("[^"]*"|'[^']*'|\S+)""")
TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"}
TYPES |= {"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2"}
TYPES |= {"uint16": "u2", "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"}
COLOURS = ("red", "green", "blue", "alpha")  # of PLY: bytes
NORMALS = ("nx", "ny", "nz")  # left out: they would have to turn with the cloud

Floats = NDArray[np.float32]


class Frame(NamedTuple):
    """A cloud, what it is called, and what its file says of it: values by key; of keys that are
    told of every point, a letter each.
    """

    cloud: PointCloud
    name: str = ""
    told: dict[str, str] = {}  # noqa: RUF012 - never written to


Found = Frame | str  # or what is wrong with it, and where


def frames_of(path: Path, surface: int) -> Iterator[Found]:
    """Every cloud of a file; those that are damaged as what is wrong with them."""
    data = unpacked(path, MOST)
    try:
        if suffix(path) == ".ply":
            yield read_ply(data, surface)._replace(name=path.stem)
        elif suffix(path) == ".off":
            yield read_off(data, surface)._replace(name=path.stem)
        else:
            yield from read_xyz(data, path.name.removesuffix(".gz").removesuffix(".xyz"))
    except ValueError as error:
        yield str(error)


def text_of(data: bytes) -> str:
    """Text of a file; ValueError where it is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is no text: byte {error.start} is not UTF-8") from None


def read_xyz(data: bytes, name: str) -> Iterator[Found]:
    """Molecules: the number of atoms, a line about them, and a line `element x y z` for each, over
    and over; or no such thing: lines of coordinates.
    """
    lines = text_of(data).splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise ValueError("is empty")
    if len(lines[first].split()) > 1:
        yield Frame(bare(lines), name)
        return
    at, number = first, 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        if not lines[at].strip().isdigit() or not 1 <= int(lines[at]) <= len(lines):
            raise ValueError(f"line {at + 1}: must be the number of atoms, got {lines[at][:40]!r}")
        count = int(lines[at])
        if at + 2 + count > len(lines):
            raise ValueError(f"line {at + 1}: {count} atoms, but the file ends before them")
        about = lines[at + 1].strip()
        told = {key: value.strip("\"'") for key, value in TOLD.findall(about)}
        word = (about.split() or [""])[0]
        own = word if word and "=" not in word else (name if not number else f"{name}[{number}]")
        try:
            yield Frame(molecule(lines[at + 2 : at + 2 + count], at + 3), own, told)
        except ValueError as error:
            yield str(error)
        at, number = at + 2 + count, number + 1


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def molecule(lines: Sequence[str], first: int) -> PointCloud:
    """The atoms of lines, the first of which has this number."""
    atoms, points = np.empty(len(lines), np.uint8), np.empty((len(lines), 3), np.float32)
    for i, line in enumerate(lines):
        words = line.split()
        try:
            symbol = words[0].capitalize()
            atoms[i] = int(symbol) if symbol.isdigit() else NUMBERS[symbol]
            points[i] = [float(word) for word in words[1:4]]
            if not 1 <= atoms[i] <= len(SYMBOLS):
                raise KeyError(symbol)
        except (KeyError, IndexError, ValueError, OverflowError):
            raise ValueError(
                f"line {first + i}: must be an element and three coordinates, got {line[:60]!r}"
            ) from None
    return sound(PointCloud(points, np.zeros((len(lines), 0), np.float32), atoms), f"line {first}")


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def bare(lines: Sequence[str]) -> PointCloud:
    """Points of lines of two or three coordinates, and features."""
    rows: list[list[float]] = []
    for i, line in enumerate(lines):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            rows.append([float(word) for word in words])
            if len(rows[-1]) != len(rows[0]) or len(words) < 2:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"line {i + 1}: must be {len(rows[0]) if rows else 3} numbers, got {line[:60]!r}"
            ) from None
    table = np.array(rows, np.float32)
    return sound(PointCloud(table[:, :3], table[:, 3:]), "a point")


def sound(cloud: PointCloud, where: str) -> PointCloud:
    """The cloud, if its numbers are."""
    if not (np.isfinite(cloud.points).all() and np.isfinite(cloud.features).all()):
        raise ValueError(f"{where}: coordinates and features must be finite numbers")
    return cloud


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def read_off(data: bytes, surface: int) -> Frame:
    """OFF: vertices, and faces between them."""
    lines = [line.partition("#")[0].split() for line in text_of(data).splitlines()]
    lines = [words for words in lines if words]
    kind = re.fullmatch(r"([A-Z]*OFF)(\d*)", lines[0][0]) if lines else None
    if kind is None:
        raise ValueError("is no OFF file: its first word must be OFF")
    begun = [kind[2]] * bool(kind[2]) + lines[0][1:]  # some write OFF490 518 0
    rest = [begun, *lines[1:]] if begun else lines[1:]
    try:
        count, faces = int(rest[0][0]), int(rest[0][1])
        if count < 1 or faces < 0 or 1 + count + faces > len(rest):
            raise ValueError
        numbers = np.array([words[:3] for words in rest[1 : 1 + count]], np.float64)
        corners = [
            [int(word) for word in words[1 : 1 + int(words[0])]]
            for words in rest[1 + count : 1 + count + faces]
        ]
    except (ValueError, IndexError):
        raise ValueError("its counts do not fit its vertices and faces") from None
    return Frame(meshed(numbers[:, :3], np.zeros((count, 0)), corners, surface))


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def read_ply(data: bytes, surface: int) -> Frame:
    """PLY: vertices with what is told of each, and faces. A property that is no coordinate, normal
    or whole number is a feature, colours too; a whole number is a label, by its name.
    """
    header, found, body = data.partition(b"end_header")
    lines = header.decode("ascii", "replace").splitlines()
    if not lines or lines[0].strip() != "ply" or not found:
        raise ValueError("is no PLY file: it must begin with ply and have an end_header")
    body = body[body.find(b"\n") + 1 :]
    kind = next(
        (line[7:].split(" ")[0].strip() for line in lines if line.startswith("format ")), ""
    )
    orders = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
    if kind not in orders:
        raise ValueError(f"format must be one of {', '.join(orders)}, got {kind!r}")
    tables: dict[str, Any] = {}
    reader = PlyWords(body) if kind == "ascii" else PlyBytes(body, orders[kind])
    for name, count, properties in ply_elements(lines):
        tables[name] = reader.table(name, count, properties)
    vertices = tables.get("vertex")
    if vertices is None or not {"x", "y", "z"} <= set(vertices):
        raise ValueError("has no vertices with x, y and z")
    points = np.stack([vertices[axis] for axis in "xyz"], 1)
    others = {n: v for n, v in vertices.items() if n not in ("x", "y", "z", *NORMALS)}
    whole = {n: v for n, v in others.items() if v.dtype.kind in "iu" and n not in COLOURS}
    shades = [v / 255 if n in COLOURS and v.dtype.kind in "iu" else v for n, v in others.items()
              if n not in whole]  # fmt: skip
    features = np.stack(shades, 1) if shades else np.zeros((len(points), 0))
    told = {n: letters(v) for n, v in whole.items() if v.min() >= 0 and v.max() < len(LETTERS)}
    faces = tables.get("face", {})
    corners: list[list[int]] = [] if told else next(iter(faces.values()), [])
    return Frame(meshed(points, features, corners, surface), told=told)


def letters(classes: NDArray[Any]) -> str:
    """Classes of points, whole numbers below 62, as a letter each."""
    return "".join(LETTERS[int(n)] for n in classes)


Properties = list[tuple[str, str, str]]  # name, type, and that of the length of a list


def ply_elements(lines: Sequence[str]) -> list[tuple[str, int, Properties]]:
    """What a header lists."""
    found: list[tuple[str, int, Properties]] = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        try:
            if words[:1] == ["element"]:
                found.append((words[1], int(words[2]), []))
            elif words[:2] == ["property", "list"]:
                found[-1][2].append((words[4], TYPES[words[3]], TYPES[words[2]]))
            elif words[:1] == ["property"]:
                found[-1][2].append((words[2], TYPES[words[1]], ""))
        except (IndexError, KeyError, ValueError):
            raise ValueError(f"line {number}: cannot be read: {line[:60]!r}") from None
    return found


class PlyWords:
    """The body of a PLY file of text."""

    def __init__(self, body: bytes) -> None:
        self.words, self.at = text_of(body).split(), 0

    def table(self, name: str, count: int, properties: Properties) -> dict[str, Any]:
        """The next element: columns of numbers, or of lists."""
        if not 0 <= count <= len(self.words):
            raise ValueError(f"{count} of {name}, but the file ends before them")
        found: dict[str, Any] = {key: [] for key, _, _ in properties}
        try:
            for _ in range(count):
                for key, _, many in properties:
                    length = int(self.words[self.at]) if many else 1
                    self.at += bool(many)
                    row = [float(w) for w in self.words[self.at : self.at + length]]
                    if len(row) != length:
                        raise IndexError
                    self.at += length
                    found[key].append([int(x) for x in row] if many else row[0])
        except (IndexError, ValueError, OverflowError):
            raise ValueError(f"{name} {len(found[properties[0][0]])} cannot be read") from None
        kinds = {key: kind for key, kind, many in properties if not many}
        return {k: np.array(v, kinds[k]) if k in kinds else v for k, v in found.items()}


class PlyBytes:
    """The body of a binary PLY file."""

    def __init__(self, body: bytes, order: str) -> None:
        self.body, self.order, self.at = body, order, 0

    def table(self, name: str, count: int, properties: Properties) -> dict[str, Any]:
        """The next element: columns of numbers, or of lists."""
        if not any(many for _, _, many in properties):
            dtype = np.dtype([(key, self.order + kind) for key, kind, _ in properties])
            rows = self.take(dtype, count, name)
            return {key: rows[key].astype(rows[key].dtype.newbyteorder("=")) for key, _, _ in
                    properties}  # fmt: skip
        found: dict[str, Any] = {key: [] for key, _, _ in properties}
        for _ in range(count):
            for key, kind, many in properties:
                length = int(self.take(np.dtype(self.order + many), 1, name)[0]) if many else 1
                row = self.take(np.dtype(self.order + kind), length, name).tolist()
                found[key].append(row if many else row[0])
        return found

    def take(self, dtype: np.dtype[Any], count: int, name: str) -> NDArray[Any]:
        """The next numbers."""
        size = dtype.itemsize * count
        if count < 0 or self.at + size > len(self.body):
            raise ValueError(f"ends within its {name}")
        found = np.frombuffer(self.body, dtype, count, self.at)
        self.at += size
        return found


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def meshed(
    points: NDArray[Any], features: NDArray[Any], faces: Sequence[Sequence[int]], surface: int
) -> PointCloud:
    """The vertices, or so many points drawn from the faces, where there are any."""
    if not len(points):
        raise ValueError("has no points")
    cloud = PointCloud(points.astype(np.float32), features.astype(np.float32))
    triangles = np.array(
        [(face[0], face[i], face[i + 1]) for face in faces for i in range(1, len(face) - 1)], int
    )
    if not surface or not len(triangles):
        return sound(cloud, "a vertex")
    if triangles.min() < 0 or triangles.max() >= len(points):
        raise ValueError(f"a face has a vertex that is not one of the {len(points)}")
    random = np.random.default_rng(0)
    a, b, c = (points[triangles[:, i]].astype(np.float64) for i in range(3))
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    if not (np.isfinite(areas).all() and areas.sum() > 0):
        return sound(cloud, "a vertex")
    chosen = random.choice(len(triangles), surface, p=areas / areas.sum())
    one, two = random.random((2, surface, 1))
    over = one + two > 1  # the other half of the parallelogram
    one, two = np.where(over, 1 - one, one), np.where(over, 1 - two, two)

    def mixed(values: NDArray[Any]) -> Floats:
        p, q, r = (values[triangles[chosen, i]].astype(np.float64) for i in range(3))
        found: Floats = (p + one * (q - p) + two * (r - p)).astype(np.float32)
        return found

    return sound(PointCloud(mixed(points), mixed(features)), "a vertex")


POINTS = "points"  # data.format
ENDINGS = (".xyz", ".ply", ".off")
NAMED = ("points", "coordinates", "xyz", "positions")  # what an array of points may be called
HELD = 128 << 20  # bytes of files whose clouds are kept in memory
BESIDE = ("lengths", "features", "atoms")  # of a .npz: what is told of points, no targets
KINDS = {"features": "biuf", "atoms": "iu"}  # of numbers


def form_of(paths: Sequence[Path]) -> str:
    """What these files or folders hold that is no text: points, images or nothing such."""
    if holds_point_clouds(paths):
        return POINTS
    return IMAGES if holds_images(paths) else ""


def holds_point_clouds(paths: Sequence[Path]) -> bool:
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


class PointCloudFiles(MediaFiles):
    """Files of point clouds as records with targets. `surface` points are drawn from a mesh."""

    what, endings = POINTS, (*ENDINGS, *ARRAYS)

    def __init__(
        self,
        paths: Sequence[Path],
        asked: ColumnSelection,
        *,
        strict: bool = False,
        surface: int = 1024,
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

    def read(self, path: Path) -> PointCloud:
        """See Collected."""
        if not path.is_file():
            raise ValueError("is not there")
        found = next(self._frames(path), "holds nothing")
        if isinstance(found, str):
            raise ValueError(found)
        return found.cloud

    def weight(self, thing: PointCloud) -> int:
        """See Collected."""
        return thing.points.nbytes + thing.features.nbytes

    def digest(self, thing: PointCloud) -> str:
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

    def rows(self, path: Path, tally: SkippedRecords) -> Iterator[MediaRow]:
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
            yield MediaRow(found.cloud, cells, place)

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
def _cloud(points: Array, told: dict[str, Array]) -> PointCloud:
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
    return sound(PointCloud(points[there].astype(np.float32), features, numbers), "a point")


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


def digest(cloud: PointCloud) -> str:
    """What tells a cloud from others, whatever the order of its points."""
    parts = [cloud.points, cloud.features]
    parts += [cloud.atoms[:, None].astype(np.float32)] if len(cloud.atoms) else []
    table = np.concatenate(parts, 1).astype("<f4")
    order = np.lexsort(table.T[::-1])
    found = hashlib.blake2b(repr(table.shape).encode(), digest_size=12)
    found.update(np.ascontiguousarray(table[order]).data)
    return found.hexdigest()


def unlabelled_point_clouds(
    paths: Sequence[Path], surface: int, *, strict: bool = True
) -> Iterator[tuple[str, PointCloud | str]]:
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
