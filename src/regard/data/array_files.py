"""NumPy's files, .npy and .npz, read as data.

Headers are checked against the size of the file before memory is taken, and Python objects are
never unpickled. Arrays of numbers and texts are read; structured arrays and objects are not.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from regard.data.archives import Member, archive_files, open_archive, read_unpacked
from regard.errors import UsageError, UserError, quoted

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
