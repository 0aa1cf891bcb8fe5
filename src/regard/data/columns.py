"""The files of a shard: written under a temporary name with a running checksum, mapped to read."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError

CHUNK = 1 << 20  # tokens or offsets worked on at once: a few tens of MB with all temporaries

Array = NDArray[Any]


class Column:
    """One file being written: a temporary name, a running checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        self.digest = blake2b()
        self.file: BinaryIO = open(self.temporary, "wb")  # noqa: SIM115 - outlives this call

    def write(self, values: Array) -> None:
        """Append values."""
        data = np.ascontiguousarray(values).view(np.uint8).data
        self.digest.update(data)
        self.file.write(data)

    def finish(self) -> None:
        """Put all of it on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def discard(self) -> None:
        """Remove the file, though a full disk makes close fail too, when it flushes."""
        try:
            self.file.close()
        except OSError:
            pass
        finally:
            self.temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def damaged(file: Path, why: str) -> UserError:
    """Something is wrong with a file of a shard."""
    return UserError(f"{file} is damaged: {why}; delete the shard and build it again")


def map_file(file: Path, dtype: np.dtype[Any], size: int) -> Array:
    """A file of so many numbers, mapped; another size is an error."""
    try:
        found, wanted = file.stat().st_size, size * dtype.itemsize
        if found != wanted:
            raise damaged(file, f"it must hold {wanted} bytes, got {found}")
        return np.memmap(file, dtype=dtype, mode="r") if size else np.empty(0, dtype=dtype)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from error


def verify_file(file: Path, expected: str) -> None:
    """Read all of a file; another checksum is an error."""
    digest = blake2b()
    try:
        with open(file, "rb") as opened:
            while data := opened.read(8 * CHUNK):
                digest.update(data)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from error
    if digest.hexdigest() != expected:
        raise damaged(file, "its checksum does not match")
