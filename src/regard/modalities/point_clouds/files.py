"""Files of point clouds with targets, and the report of `regard data` on them.

Point clouds are XYZ (one molecule or many, or plain lines of numbers), PLY (text and binary), OFF;
`.npz`, with an array (count, points, d) or all points end to end with `lengths`, and optionally
`features` and `atoms`; or `.npy`. They may be in a folder for every class or in a table of paths
and labels. Targets are an array, a key in the comment line of a molecule, an integer property of
every vertex, or a table with the names of the clouds or in their order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.formats import read_unpacked
from regard.data.labelled import LABEL, ColumnSelection
from regard.data.media import (
    ARRAY_SUFFIXES,
    MAX_BYTES,
    Array,
    MediaFiles,
    MediaRow,
    RowOrProblem,
    describe_arrays,
    files_in,
    numbered,
    read_arrays,
    read_headers,
    require_array,
    suffix,
    target_cells,
    unlabelled_items,
)
from regard.data.report import MediaReport, media_report
from regard.data.sources import DataSource
from regard.data.targets import Cells
from regard.errors import UsageError, UserError
from regard.modalities.images.files import IMAGE_SUFFIXES, IMAGES, holds_images
from regard.tokenizers.points import NO_ATOMS, SYMBOLS, PointCloud, Points

POINTS = "points"  # data.format
POINT_SUFFIXES = (".xyz", ".ply", ".off")
ATOMIC_NUMBERS = {symbol: z for z, symbol in enumerate(SYMBOLS, start=1)}
CLASS_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of points
KEY_VALUE = re.compile(r"""([A-Za-z_]\w*)=("[^"]*"|'[^']*'|\S+)""")
PLY_TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"}
PLY_TYPES |= {"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2"}
PLY_TYPES |= {"uint16": "u2", "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"}
PLY_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
COLORS = ("red", "green", "blue", "alpha")  # bytes in PLY
NORMALS = ("nx", "ny", "nz")  # left out: they would have to rotate with the cloud
POINT_ARRAYS = ("points", "coordinates", "xyz", "positions")  # names in a .npz
FEATURE_DTYPES = {"features": "biuf", "atoms": "iu"}  # kinds of dtype of arrays beside the points

Floats = NDArray[np.float32]
Properties = list[tuple[str, str, str]]  # name, type, and the type of the length of a list

ignore_overflow = np.errstate(over="ignore", invalid="ignore")  # `_check_finite` refuses infinity


class Frame(NamedTuple):
    """A point cloud, its name, and the values by key that its file states; of a value for every
    point, a letter each.
    """

    cloud: PointCloud
    name: str = ""
    values: dict[str, str] = {}  # noqa: RUF012 - never written to


FrameOrProblem = Frame | str  # a str says what is wrong, and where


def read_frames(path: Path, mesh_points: int) -> Iterator[FrameOrProblem]:
    """Yield every point cloud of a file, or what is wrong with it."""
    data = read_unpacked(path, MAX_BYTES)
    try:
        if suffix(path) == ".ply":
            yield _read_ply(data, mesh_points)._replace(name=path.stem)
        elif suffix(path) == ".off":
            yield _read_off(data, mesh_points)._replace(name=path.stem)
        else:
            yield from _read_xyz(data, path.name.removesuffix(".gz").removesuffix(".xyz"))
    except ValueError as error:
        yield str(error)


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is no text: byte {error.start} is not UTF-8") from None


def _check_finite(cloud: PointCloud, where: str) -> PointCloud:
    if not (np.isfinite(cloud.points).all() and np.isfinite(cloud.features).all()):
        raise ValueError(f"{where}: coordinates and features must be finite numbers")
    return cloud


def _read_xyz(data: bytes, name: str) -> Iterator[FrameOrProblem]:
    """Yield molecules, each the number of atoms, a comment line and a line `element x y z` per
    atom; or the cloud of plain lines of coordinates.
    """
    lines = _decode(data).splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise ValueError("is empty")
    if len(lines[first].split()) > 1:
        yield Frame(_read_coordinates(lines), name)
        return
    i, number = first, 0
    while i < len(lines):
        if not lines[i].strip():
            i += 1
            continue
        if not lines[i].strip().isdigit() or not 1 <= int(lines[i]) <= len(lines):
            raise ValueError(f"line {i + 1}: must be the number of atoms, got {lines[i][:40]!r}")
        count = int(lines[i])
        if i + 2 + count > len(lines):
            raise ValueError(f"line {i + 1}: {count} atoms, but the file ends before them")
        comment = lines[i + 1].strip()
        values = {key: value.strip("\"'") for key, value in KEY_VALUE.findall(comment)}
        molecule_name = (comment.split() or [""])[0]
        if not molecule_name or "=" in molecule_name:
            molecule_name = f"{name}[{number}]" if number else name
        try:
            yield Frame(_read_atoms(lines[i + 2 : i + 2 + count], i + 3), molecule_name, values)
        except ValueError as error:
            yield str(error)
        i, number = i + 2 + count, number + 1


@ignore_overflow
def _read_atoms(lines: Sequence[str], first: int) -> PointCloud:
    """Return the atoms of lines, of which the first has the number `first`."""
    atoms, points = np.empty(len(lines), np.uint8), np.empty((len(lines), 3), np.float32)
    for i, line in enumerate(lines):
        words = line.split()
        try:
            symbol = words[0].capitalize()
            atoms[i] = int(symbol) if symbol.isdigit() else ATOMIC_NUMBERS[symbol]
            points[i] = [float(word) for word in words[1:4]]
            if not 1 <= atoms[i] <= len(SYMBOLS):
                raise KeyError(symbol)
        except (KeyError, IndexError, ValueError, OverflowError):
            raise ValueError(
                f"line {first + i}: must be an element and three coordinates, got {line[:60]!r}"
            ) from None
    cloud = PointCloud(points, np.zeros((len(lines), 0), np.float32), atoms)
    return _check_finite(cloud, f"line {first}")


@ignore_overflow
def _read_coordinates(lines: Sequence[str]) -> PointCloud:
    """Return the points of lines of two or three coordinates and features."""
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
    return _check_finite(PointCloud(table[:, :3], table[:, 3:]), "a point")


@ignore_overflow
def _read_off(data: bytes, mesh_points: int) -> Frame:
    lines = [line.partition("#")[0].split() for line in _decode(data).splitlines()]
    lines = [words for words in lines if words]
    magic = re.fullmatch(r"([A-Z]*OFF)(\d*)", lines[0][0]) if lines else None
    if magic is None:
        raise ValueError("is no OFF file: its first word must be OFF")
    counts = [magic[2]] * bool(magic[2]) + lines[0][1:]  # some files have OFF490 518 0
    lines = [counts, *lines[1:]] if counts else lines[1:]
    try:
        n_vertices, n_faces = int(lines[0][0]), int(lines[0][1])
        if n_vertices < 1 or n_faces < 0 or 1 + n_vertices + n_faces > len(lines):
            raise ValueError
        vertices = np.array([words[:3] for words in lines[1 : 1 + n_vertices]], np.float64)
        faces = [
            [int(word) for word in words[1 : 1 + int(words[0])]]
            for words in lines[1 + n_vertices : 1 + n_vertices + n_faces]
        ]
    except (ValueError, IndexError):
        raise ValueError("its counts do not fit its vertices and faces") from None
    return Frame(_sample_mesh(vertices[:, :3], np.zeros((n_vertices, 0)), faces, mesh_points))


@ignore_overflow
def _read_ply(data: bytes, mesh_points: int) -> Frame:
    """Return the vertices of a PLY file, or points of its faces.

    Integer properties of vertices are labels by their names; other properties, and colors, are
    features. Normals are left out.
    """
    header, end, body = data.partition(b"end_header")
    lines = header.decode("ascii", "replace").splitlines()
    if not lines or lines[0].strip() != "ply" or not end:
        raise ValueError("is no PLY file: it must begin with ply and have an end_header")
    body = body[body.find(b"\n") + 1 :]
    formats = (line[7:].split(" ")[0].strip() for line in lines if line.startswith("format "))
    format = next(formats, "")
    if format not in PLY_BYTE_ORDERS:
        raise ValueError(f"format must be one of {', '.join(PLY_BYTE_ORDERS)}, got {format!r}")
    reader = _PlyBody(body, PLY_BYTE_ORDERS[format])
    tables = {element[0]: reader.table(*element) for element in _ply_elements(lines)}
    vertices = tables.get("vertex")
    if vertices is None or not {"x", "y", "z"} <= set(vertices):
        raise ValueError("has no vertices with x, y and z")
    points = np.stack([vertices[axis] for axis in "xyz"], 1)
    labels: dict[str, str] = {}
    features = []
    for name, values in vertices.items():
        if name in ("x", "y", "z", *NORMALS) or isinstance(values, list):
            continue
        is_integer = values.dtype.kind in "iu"
        if not is_integer or name in COLORS:
            features.append(values / 255 if is_integer else values)
        elif values.min() >= 0 and values.max() < len(CLASS_LETTERS):
            labels[name] = _letters(values)
    stacked = np.stack(features, 1) if features else np.zeros((len(points), 0))
    faces: list[list[int]] = [] if labels else next(iter(tables.get("face", {}).values()), [])
    return Frame(_sample_mesh(points, stacked, faces, mesh_points), values=labels)


def _letters(classes: NDArray[Any]) -> str:
    return "".join(CLASS_LETTERS[int(n)] for n in classes)


def _ply_elements(lines: Sequence[str]) -> list[tuple[str, int, Properties]]:
    """Return the elements that the header of a PLY file declares: names, counts, properties."""
    elements: list[tuple[str, int, Properties]] = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        try:
            if words[:1] == ["element"]:
                elements.append((words[1], int(words[2]), []))
            elif words[:2] == ["property", "list"]:
                elements[-1][2].append((words[4], PLY_TYPES[words[3]], PLY_TYPES[words[2]]))
            elif words[:1] == ["property"]:
                elements[-1][2].append((words[2], PLY_TYPES[words[1]], ""))
        except (IndexError, KeyError, ValueError):
            raise ValueError(f"line {number}: cannot be read: {line[:60]!r}") from None
    return elements


class _PlyBody:
    """The numbers of a PLY file after its header; they are text if there is no byte order."""

    def __init__(self, body: bytes, order: str) -> None:
        self.order, self.position = order, 0
        self.data: Any = body if order else _decode(body).split()

    def table(self, name: str, count: int, properties: Properties) -> dict[str, Any]:
        """Return the next element: columns of numbers or, of list properties, of lists."""
        if not 0 <= count <= len(self.data):
            raise ValueError(f"{count} of {name}, but the file ends before them")
        if self.order and not any(length_type for _, _, length_type in properties):
            dtype = np.dtype([(key, self.order + type) for key, type, _ in properties])
            rows = self._take_binary(dtype, count)
            return {key: rows[key].astype(type) for key, type, _ in properties}
        columns: dict[str, list[Any]] = {key: [] for key, _, _ in properties}
        try:
            for _ in range(count):
                for key, type, length_type in properties:
                    length = int(self._take(length_type, 1)[0]) if length_type else 1
                    values = self._take(type, length)
                    columns[key].append(list(map(int, values)) if length_type else values[0])
        except (ValueError, OverflowError):
            raise ValueError(f"{name} {len(columns[properties[0][0]])} cannot be read") from None
        return {
            key: columns[key] if length_type else np.array(columns[key], type)
            for key, type, length_type in properties
        }

    def _take(self, type: str, count: int) -> list[float]:
        if self.order:
            values: list[float] = self._take_binary(np.dtype(self.order + type), count).tolist()
            return values
        words = self.data[self.position : self.position + count]
        if len(words) != count:
            raise ValueError("ends too early")
        self.position += count
        return [float(word) for word in words]

    def _take_binary(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        size = dtype.itemsize * count
        if count < 0 or self.position + size > len(self.data):
            raise ValueError("ends too early")
        values = np.frombuffer(self.data, dtype, count, self.position)
        self.position += size
        return values


@ignore_overflow
def _sample_mesh(
    points: NDArray[Any], features: NDArray[Any], faces: Sequence[Sequence[int]], mesh_points: int
) -> PointCloud:
    """Return the vertices or, where there are faces, `mesh_points` points of their surface."""
    if not len(points):
        raise ValueError("has no points")
    vertices = PointCloud(points.astype(np.float32), features.astype(np.float32))
    triangles = np.array(
        [(face[0], face[i], face[i + 1]) for face in faces for i in range(1, len(face) - 1)], int
    )
    if not mesh_points or not len(triangles):
        return _check_finite(vertices, "a vertex")
    if triangles.min() < 0 or triangles.max() >= len(points):
        raise ValueError(f"a face has a vertex that is not one of the {len(points)}")
    random = np.random.default_rng(0)
    a, b, c = (points[triangles[:, i]].astype(np.float64) for i in range(3))
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    if not (np.isfinite(areas).all() and areas.sum() > 0):
        return _check_finite(vertices, "a vertex")
    chosen = random.choice(len(triangles), mesh_points, p=areas / areas.sum())
    u, v = random.random((2, mesh_points, 1))
    outside = u + v > 1  # in the other half of the parallelogram
    u, v = np.where(outside, 1 - u, u), np.where(outside, 1 - v, v)

    def interpolate(values: NDArray[Any]) -> Floats:
        p, q, r = (values[triangles[chosen, i]].astype(np.float64) for i in range(3))
        mixed: Floats = (p + u * (q - p) + v * (r - p)).astype(np.float32)
        return mixed

    return _check_finite(PointCloud(interpolate(points), interpolate(features)), "a vertex")


def read_array_frames(path: Path, input: str = "") -> Iterator[FrameOrProblem]:
    """Yield the point clouds of an array file; points that are NaN are padding."""
    arrays = read_arrays(path)
    key = "" if suffix(path) == ".npy" else _points_name(arrays, path, input)
    points, lengths = arrays[key], arrays.get("lengths")
    _check_lengths(path, lengths, points)
    if points.ndim == 2 and lengths is None:
        points = points[None]
    if points.dtype.kind not in "iuf" or points.ndim != (2 if lengths is not None else 3):
        raise UserError(
            f"{path}: points are numbers of shape (count, points, d), or (all points, d) with "
            f"lengths, got {points.dtype} {points.shape}"
        )
    extras = {name: arrays[name] for name in FEATURE_DTYPES if name in arrays}
    for name, array in extras.items():
        if array.shape[: points.ndim - 1] != points.shape[:-1]:
            raise UserError(f"{path}: {name} must have a row for every point, got {array.shape}")
        if array.dtype.kind not in FEATURE_DTYPES[name]:
            raise UserError(f"{path}: {name} must be numbers, got {array.dtype}")
    index: Sequence[Any] = range(len(points))
    if lengths is not None:
        ends = np.cumsum(lengths).tolist()
        index = [slice(end - n, end) for end, n in zip(ends, lengths.tolist(), strict=True)]
    for i in index:
        try:
            yield Frame(_without_padding(points[i], {n: a[i] for n, a in extras.items()}))
        except ValueError as error:
            yield str(error)


@ignore_overflow
def _without_padding(points: Array, extras: dict[str, Array]) -> PointCloud:
    real = ~np.isnan(points).all(1) if points.dtype.kind == "f" else np.ones(len(points), bool)
    atoms = extras.get("atoms")
    if atoms is not None:
        real &= atoms > 0
    if not real.any():
        raise ValueError("has no points")
    features = extras.get("features", np.zeros((len(points), 0), np.float32))
    features = features.reshape(len(points), -1)[real].astype(np.float32)
    numbers = NO_ATOMS if atoms is None else atoms[real].astype(np.uint8)
    cloud = PointCloud(points[real].astype(np.float32), features, numbers)
    return _check_finite(cloud, "a point")


def points_in_memory(value: Any, dimensions: int) -> Any:
    """Return an array (points, d) as a point cloud; anything else is not changed."""
    is_points = isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] == dimensions
    return _without_padding(value, {}) if is_points else value


def _looks_like_points(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    named = name in POINT_ARRAYS and len(shape) in (2, 3)
    return named or (dtype.kind == "f" and len(shape) in (2, 3) and shape[-1] in (2, 3))


def _points_name(arrays: dict[str, Array], path: Path, input: str) -> str:
    if input:
        require_array(arrays, input, "--input", path)
        return input
    candidates = [name for name in POINT_ARRAYS if name in arrays]
    candidates += [n for n, a in arrays.items() if _looks_like_points(n, a.shape, a.dtype)]
    if not candidates:
        raise UsageError(f"{path}: which array is the points? --input; {describe_arrays(arrays)}")
    return candidates[0]


def _check_lengths(path: Path, lengths: Array | None, points: Array) -> None:
    if not points.ndim:
        raise UserError(f"{path}: points must be an array of point clouds, got one number")
    if lengths is None:
        return
    is_integer = lengths.ndim == 1 and lengths.dtype.kind in "iu" and lengths.size > 0
    least, most = (int(lengths.min()), int(lengths.max())) if is_integer else (0, 0)
    if not 1 <= least <= most <= len(points) or int(lengths.sum()) != len(points):
        raise UserError(f"{path}: lengths must be positive and sum to the {len(points):,} points")


def hash_point_cloud(cloud: PointCloud) -> str:
    """Return a hash of a point cloud that does not depend on the order of its points."""
    parts = [cloud.points, cloud.features]
    parts += [cloud.atoms[:, None].astype(np.float32)] if len(cloud.atoms) else []
    table = np.concatenate(parts, 1).astype("<f4")
    order = np.lexsort(table.T[::-1])
    digest = hashlib.blake2b(repr(table.shape).encode(), digest_size=12)
    digest.update(np.ascontiguousarray(table[order]).data)
    return digest.hexdigest()


def form_of(paths: Sequence[Path]) -> str:
    """Return what these files or folders hold besides text: points, images, or "" for neither."""
    if holds_point_clouds(paths):
        return POINTS
    return IMAGES if holds_images(paths) else ""


def holds_point_clouds(paths: Sequence[Path]) -> bool:
    """Return whether these are files or folders of point clouds."""
    for path in paths:
        if path.is_dir():
            if next(iter(files_in([path], IMAGE_SUFFIXES)), None) is not None:
                return False
            path = next(iter(files_in([path], (*POINT_SUFFIXES, *ARRAY_SUFFIXES))), path)
        if suffix(path) in POINT_SUFFIXES:
            return True
        if suffix(path) in ARRAY_SUFFIXES and path.is_file():
            return any(_looks_like_points(name, h.shape, h.dtype) for name, h in read_headers(path))
    return False


class PointCloudFiles(MediaFiles):
    """Files of point clouds as records with targets; of a mesh, `mesh_points` are sampled."""

    medium, endings = POINTS, (*POINT_SUFFIXES, *ARRAY_SUFFIXES)

    def __init__(
        self,
        paths: Sequence[Path],
        asked: ColumnSelection,
        *,
        strict: bool = False,
        mesh_points: int = 1024,
    ) -> None:
        self.mesh_points = mesh_points
        self._target_table: TargetTable | None = None
        self._from_folder = False
        self._n_read = 0
        super().__init__(paths, asked, strict=strict)

    def locate_targets(self) -> str:
        selection, first = self.asked, self.files[0]
        target_file = selection.labels
        if (
            target_file is None
            and len(selection.targets) == 1
            and Path(selection.targets[0]).is_file()
        ):
            target_file = Path(selection.targets[0])
        if target_file is not None and suffix(target_file) not in ARRAY_SUFFIXES:
            columns = selection.targets if selection.labels is not None else ()
            self._target_table = TargetTable(target_file, columns or ("2",))
            self.names = columns or (LABEL,)
            names = (f.name for f in self._frames(first) if not isinstance(f, str))
            how = self._target_table.match(next(names, ""))
            return f"targets from {target_file.name}, {how}"
        if selection.targets and target_file is None:
            self.names = selection.targets
            return f"targets are {', '.join(selection.targets)} of every point cloud"
        if suffix(first) in ARRAY_SUFFIXES and not any(path.is_dir() for path in self.paths):
            source = "" if target_file is None else f", targets from {target_file.name}"
            return f"NumPy arrays{source}"
        self._from_folder = True
        if len({file.parent for file in self.files}) < 2:
            raise UsageError(
                f"{first}: where are the labels? say --target with a file of them, or a key, or "
                "give a folder for every class"
            )
        return self.use_folder_names()

    @property
    def all_files(self) -> list[Path]:
        target_file = self._target_table.path if self._target_table else self.asked.labels
        return [*self.files, *([target_file] if target_file else [])]

    def read(self, path: Path) -> PointCloud:
        if not path.is_file():
            raise ValueError("does not exist")
        frame = next(self._frames(path), "holds nothing")
        if isinstance(frame, str):
            raise ValueError(frame)
        return frame.cloud

    def nbytes(self, item: PointCloud) -> int:
        return item.points.nbytes + item.features.nbytes

    def digest(self, item: PointCloud) -> str:
        return hash_point_cloud(item)

    def _frames(self, path: Path) -> Iterator[FrameOrProblem]:
        if suffix(path) in ARRAY_SUFFIXES:
            return read_array_frames(path, self.asked.inputs[0])
        return read_frames(path, self.mesh_points)

    def rows(self, path: Path) -> Iterator[RowOrProblem]:
        if path == self.files[0]:
            self._n_read = 0
        has_many = not self._from_folder and suffix(path) in (".xyz", *ARRAY_SUFFIXES)
        targets = self._array_targets(path)
        for i, frame in enumerate(self._frames(path)):
            where = f"{path}[{i}]" if i or has_many else str(path)
            number = self._n_read
            self._n_read += 1
            if isinstance(frame, str):
                yield f"{where}: {frame}"
                continue
            try:
                cells = targets[i] if targets is not None else self._cells(frame, path, number)
                yield MediaRow(frame.cloud, cells, where)
            except IndexError:
                yield f"{where}: has no target"
            except ValueError as error:
                yield f"{where}: {error}"

    def _cells(self, frame: Frame, path: Path, number: int) -> Cells:
        if self._target_table is not None:
            return self._target_table.cells(frame.name, number)
        if self._from_folder:
            return (path.parent.name,)
        for key in self.names:
            if key not in frame.values:
                keys = ", ".join(frame.values) or "no values"
                raise ValueError(f"has no value of {key!r}; it has {keys}")
        return tuple(frame.values[key] for key in self.names)

    def _array_targets(self, path: Path) -> list[Cells] | None:
        """Return the targets in a .npz file, or in the array for a .npy file; None: elsewhere."""
        if suffix(path) not in ARRAY_SUFFIXES or self._from_folder or self._target_table:
            return None
        arrays = read_arrays(path)
        if suffix(path) == ".npy":
            target_file = self.asked.labels or Path((self.asked.targets or ("",))[0])
            if not target_file.is_file():
                raise UsageError(f"{path}: where are the targets? name their file with --target")
            cells = target_cells(read_arrays(target_file).get("", np.zeros(0)), target_file)
            self.names = numbered(len(cells[0]) if cells else 1)
            return cells
        key = _points_name(arrays, path, self.asked.inputs[0])
        points, lengths = arrays[key], arrays.get("lengths")
        _check_lengths(path, lengths, points)
        count = len(points) if lengths is None else len(lengths)
        self.names = self._target_names(path, arrays, (key, "lengths", *FEATURE_DTYPES), count)
        first = arrays[self.names[0]]
        per_point = first.shape == (points.shape[:2] if lengths is None else points.shape[:1])
        if len(self.names) == 1 and per_point and first.dtype.kind in "biu":
            return [(text,) for text in _point_classes(first, points, lengths, path)]
        columns = [target_cells(arrays[name], path) for name in self.names]
        for name, column in zip(self.names, columns, strict=True):
            if len(column) != count:
                raise UserError(
                    f"{path} has {count:,} point clouds, {name} {len(column):,} targets"
                )
        if len(self.names) == 1 and columns[0] and len(columns[0][0]) > 1:
            self.names = tuple(f"{self.names[0]}{i + 1}" for i in range(len(columns[0][0])))
        return [
            tuple(cell for cells in row for cell in cells) for row in zip(*columns, strict=True)
        ]

    def _target_names(
        self, path: Path, arrays: dict[str, Array], taken: Sequence[str], count: int
    ) -> tuple[str, ...]:
        names = self.asked.targets
        if not names:
            small = [n for n, a in arrays.items() if n not in taken and a.shape[:1] == (count,)]
            if len(small) != 1:
                raise UsageError(
                    f"{path}: which array is the targets? --target; {describe_arrays(arrays)}"
                )
            names = (small[0],)
        for name in names:
            require_array(arrays, name, "--target", path)
        return names


def _point_classes(
    classes: Array, points: Array, lengths: Array | None, path: Path
) -> Iterator[str]:
    """Yield the classes of the points of each cloud as letters, without those of padding."""
    n_classes = len(CLASS_LETTERS)
    if classes.size and not 0 <= int(classes.min()) <= int(classes.max()) < n_classes:
        raise UserError(f"{path}: classes of points are whole numbers from 0 to {n_classes - 1}")
    if lengths is None:
        for row, cloud in zip(classes, points, strict=True):
            yield _letters(row[np.isfinite(cloud).all(1)])
    else:
        yield from map(_letters, np.split(classes, np.cumsum(lengths)[:-1]))


class TargetTable:
    """Targets in a text file: lines of a name and targets, separated by blanks, tabs or commas.

    Targets are found by name if the names are those of the point clouds, else by order. Columns are
    numbered from 1 or named in the first line.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.by_name = path, False
        try:
            lines = _decode(read_unpacked(path, MAX_BYTES)).splitlines()
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
        fields = [line.replace(",", " ").split() for line in lines]
        rows = [(i, row) for i, row in enumerate(fields, 1) if row and not row[0].startswith("#")]
        if not rows:
            raise UserError(f"{path}: holds no targets")
        header, width = rows[0][1], len(rows[0][1])
        if any(not column.isdigit() for column in columns):
            for column in columns:
                if column not in header:
                    raise UsageError(f"--target {column}: {path} has {', '.join(header)}")
            indices, rows = [header.index(column) for column in columns], rows[1:]
        else:
            indices = [int(column) - 1 if width > 1 else 0 for column in columns]
        self.rows: list[Cells] = []
        self.names: dict[str, int] = {}  # to the row; -1 for a name that occurs twice
        for line, row in rows:
            if len(row) <= max(indices):
                raise UserError(f"{path}:{line}: has {len(row)} columns, not {max(indices) + 1}")
            if row[0] in self.names and width > 1:
                self.names[row[0]] = -1
            self.names.setdefault(row[0], len(self.rows))
            self.rows.append(tuple(row[index] for index in indices))

    def match(self, name: str) -> str:
        """Decide, by the name of the first point cloud, how targets are found; say how."""
        self.by_name = self.names.get(name, -1) >= 0
        return "by name" if self.by_name else "in order"

    def cells(self, name: str, number: int) -> Cells:
        """Return the targets of a point cloud; ValueError if there are none."""
        index = self.names.get(name, -1) if self.by_name else number
        if not 0 <= index < len(self.rows):
            raise ValueError(f"{name or number} has no line in {self.path}")
        return self.rows[index]


def unlabelled_point_clouds(
    paths: Sequence[Path], mesh_points: int, *, strict: bool = True
) -> Iterator[tuple[str, PointCloud | str]]:
    """Yield point clouds without targets, each with its place; a damaged one is a UserError or,
    unless `strict`, what is wrong with it.
    """

    def read(path: Path) -> Iterator[tuple[str, PointCloud | str]]:
        is_array = suffix(path) in ARRAY_SUFFIXES
        frames = read_array_frames(path) if is_array else read_frames(path, mesh_points)
        for i, frame in enumerate(frames):
            where = f"{path}[{i}]" if is_array or suffix(path) == ".xyz" else str(path)
            yield where, frame if isinstance(frame, str) else frame.cloud

    suffixes = (*POINT_SUFFIXES, *ARRAY_SUFFIXES)
    return unlabelled_items(paths, suffixes, "point clouds", read, strict=strict)


@dataclass(frozen=True, kw_only=True)
class PointCloudReport(MediaReport):
    """What `inspect_point_clouds` found: points of the smallest, a usual and the largest."""

    points: tuple[int, int, int]
    dimensions: int
    features: int
    elements: list[str]
    diameter: float  # twice the radius of the largest

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        least, middle, most = self.points
        rows = [
            ("read as", f"{self.format} ({self.why})"),
            ("point clouds", f"{self.records:,}"),
            ("points", f"{least:,} to {most:,}, half have {middle:,} or fewer"),
            ("dimensions", f"{self.dimensions}, and {self.features} features of a point"),
            ("diameter", f"{self.diameter:.4g} of the largest"),
        ]
        if self.elements:
            rows.append(("elements", " ".join(self.elements)))
        return rows + self.rest()


def inspect_point_clouds(sources: DataSource, why: str) -> PointCloudReport:
    """Return the report on point clouds whose task is known."""
    counts = sorted(len(cloud) for chunk in sources.chunks() for cloud in chunk.texts)
    training = (cloud for chunk in sources.chunks() if chunk.split == 0 for cloud in chunk.texts)
    measured = Points.train(training, scale="kept")
    return PointCloudReport(
        **media_report(sources, why),
        points=(counts[0], counts[len(counts) // 2], counts[-1]),
        dimensions=measured.dimensions,
        features=len(measured.mean),
        elements=[SYMBOLS[z - 1] for z in measured.elements],
        diameter=measured.reach,
    )
