"""Files that hold point clouds: XYZ of one molecule or many, plain lines of numbers, PLY (text and
binary) and OFF. Arrays are read by `clouds`. What is wrong with a file is a ValueError that names
the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.array_files import MOST
from regard.data.packed import unpacked
from regard.data.picture_files import suffix
from regard.tokens.points import Cloud

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

    cloud: Cloud
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
def molecule(lines: Sequence[str], first: int) -> Cloud:
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
    return sound(Cloud(points, np.zeros((len(lines), 0), np.float32), atoms), f"line {first}")


@np.errstate(over="ignore", invalid="ignore")  # what is infinite then, is refused
def bare(lines: Sequence[str]) -> Cloud:
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
    return sound(Cloud(table[:, :3], table[:, 3:]), "a point")


def sound(cloud: Cloud, where: str) -> Cloud:
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
) -> Cloud:
    """The vertices, or so many points drawn from the faces, where there are any."""
    if not len(points):
        raise ValueError("has no points")
    cloud = Cloud(points.astype(np.float32), features.astype(np.float32))
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

    return sound(Cloud(mixed(points), mixed(features)), "a vertex")
