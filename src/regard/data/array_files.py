"""NumPy's files, .npy and .npz, read as data: their headers are checked against their sizes before
any memory is taken, and Python objects are never unpickled.

The format: numpy.lib.format. Arrays of numbers and of texts are read; records and objects are not.
"""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.archives import Member, archive_at, files_of, unpacked
from regard.errors import UserError, quoted

MOST = 8 << 30  # bytes that a file of arrays may unpack to
LONGEST = 10_000  # characters of a header; NumPy reads no more either
HEADER = re.compile(
    r"\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*"
    r"'shape':\s*\(((?:\d{1,18}L?,\s*)*(?:\d{1,18}L?)?)\)\s*,?\s*\}",
    re.ASCII,
)
KINDS = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248]|f16|S\d{1,6}|U\d{1,6})")

Array = NDArray[Any]


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many."""


class Header(NamedTuple):
    """What a .npy file says of its array."""

    dtype: np.dtype[Any]
    fortran: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: Readable) -> Header:
    """The header of a .npy file, which is read as far as its array; ValueError if it is none."""
    magic = file.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise ValueError("it does not begin as a .npy file does")
    width = 2 if magic[6] == 1 else 4
    raw = file.read(width)
    length = struct.unpack("<H" if width == 2 else "<I", raw)[0] if len(raw) == width else 0
    if not 0 < length <= LONGEST:
        raise ValueError(f"its header has {length:,} characters; at most {LONGEST:,} are read")
    text = file.read(length).decode("utf-8", "replace").strip()
    found = HEADER.fullmatch(text)
    if found is None:
        if "'|O'" in text or "'O'" in text:
            raise ValueError("holds Python objects, which are not read")
        raise ValueError(f"its header cannot be read: {quoted(text)}")
    if KINDS.fullmatch(found[1]) is None:
        what = "Python objects" if "O" in found[1] else f"values of type {quoted(found[1])}"
        raise ValueError(f"holds {what}, which are not read")
    shape = tuple(int(n) for n in re.findall(r"\d+", found[3]))
    if len(shape) > 32:
        raise ValueError(f"its array has {len(shape)} dimensions; at most 32 are read")
    return Header(np.dtype(found[1]), found[2] == "True", shape)


def read_array(file: Readable, size: int) -> Array:
    """The array of a .npy file of so many bytes."""
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


def headers(path: Path) -> list[tuple[str, Header]]:
    """The headers of the arrays of a file by name; nothing of a damaged one, which is told when it
    is read.
    """
    try:
        return [(name, read_header(file)) for name, file, _ in arrays_in(path, LONGEST + 16)]
    except (UserError, ValueError):
        return []


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name, or that of a .npy file, which has none."""
    try:
        return {name: read_array(file, size) for name, file, size in arrays_in(path, MOST)}
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is no NumPy file, or a damaged one: {error}") from None


def arrays_in(path: Path, most: int) -> Iterator[tuple[str, Readable, int]]:
    """The .npy files in an archive, or the one that a file is: the name of each, its bytes, at most
    so many where it is no archive, and how many there are.
    """
    if unpacked(path, 4) != b"PK\x03\x04":
        data = unpacked(path, most)
        yield "", io.BytesIO(data), len(data)
        return
    with archive_at(path, most=MOST) as packed:
        for info in files_of(packed):
            with Member(path, packed, info.filename) as file:
                yield info.filename.removesuffix(".npy"), file, info.file_size
