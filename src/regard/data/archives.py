"""The bytes of a file that is read whole, unpacked where it is gzip, within limits.

Files inside zip archives: `splits.zip:splits/train.csv` is a path like any other.

What an archive says of itself is checked before anything is unpacked: how many members it has, and
how much they unpack to for their packed size.
"""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, cast

from regard.errors import UserError

FREE = 1 << 30  # bytes that packed data may hold, whatever its own size
DEFLATED = 1100  # times its size that gzip data can unpack to, at most
RATIO = 200  # beyond that, so many times its own size: more than data has, far less than a bomb


def limit(size: int) -> int:
    """How many bytes may come of packed data of this size."""
    return max(FREE, RATIO * size)


def unpacked(path: Path, most: int) -> bytes:
    """The first bytes of a file, at most so many, unpacked where it is gzip."""
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if not zipped:
                return raw.read(most)
            bound = limit(path.stat().st_size)
            with gzip.GzipFile(fileobj=raw) as stream:
                found = stream.read(min(most, bound + 1))
        if len(found) > bound:
            raise UserError(
                f"{path}: unpacks to more than {bound >> 20:,} MB, {RATIO} times its size or more; "
                "unpack it first"
            )
        return found
    except EOFError:
        raise UserError(f"{path}: the gzip data ends too early; the file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: the packed data is corrupt: {str(error).lower()}") from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None


LISTED = 8  # members named where none, or a wrong one, was asked for
MEMBERS = 1_000_000  # members of an archive
# What zipfile raises of data that is damaged, encrypted or packed in a way it does not know.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    OverflowError,
    ValueError,
    LookupError,
    AttributeError,
    OSError,
)


def located(path: Path) -> tuple[Path, str]:
    """The file on the disk that a path leads to, and the member of that archive, or ""."""
    archive, found, member = str(path).partition(".zip:")
    if not found or not member or os.path.exists(path):
        return path, ""
    return Path(archive + ".zip"), member


@contextmanager
def archive_at(path: Path, *, most: int = 0) -> Iterator[zipfile.ZipFile]:
    """An open archive, as `checked_archive` gives it, which is closed in the end."""
    with checked_archive(path, most=most) as packed:
        yield packed


def checked_archive(path: Path, *, most: int = 0) -> zipfile.ZipFile:
    """An open archive; one that is damaged, or would unpack to more than it may, or than `most`
    bytes, is a UserError.
    """
    try:
        packed, bound = zipfile.ZipFile(path), limit(path.stat().st_size)
    except BROKEN as error:
        raise _broken(path, error) from None
    try:
        infos = packed.infolist()
        if len(infos) > MEMBERS:
            raise UserError(f"{path}: has {len(infos):,} members; at most {MEMBERS:,} are read")
        total = sum(info.file_size for info in infos)
        if total > bound:
            raise UserError(
                f"{path}: would unpack to {total >> 20:,} MB, more than {bound >> 20:,} MB "
                f"and {RATIO} times its size; unpack it first"
            )
        if most and total > most:
            raise UserError(f"{path}: would take {total >> 30} GB, more than {most >> 30} GB")
    except UserError:
        packed.close()
        raise
    return packed


def files_of(packed: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """What an archive holds, without folders."""
    return [info for info in packed.infolist() if info.filename and info.filename[-1] != "/"]


class Member:
    """A member of an archive that is being read; what is wrong with it is a UserError."""

    def __init__(self, archive: Path, packed: zipfile.ZipFile, name: str) -> None:
        self.archive = archive
        try:
            self.stream = cast(BinaryIO, packed.open(name))  # outlives `packed`
        except BROKEN as error:
            raise _broken(archive, error) from None

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        try:
            return self.stream.read(size)
        except BROKEN as error:
            raise _broken(self.archive, error) from None

    def seek(self, place: int) -> int:
        """Go to a place, counted from the beginning."""
        try:
            return self.stream.seek(place)
        except BROKEN as error:
            raise _broken(self.archive, error) from None

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _broken(archive: Path, error: Exception) -> UserError:
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return UserError(f"{archive}: cannot be read: {(error.strerror or str(error)).lower()}")
    reason = str(error).lower() or type(error).__name__
    return UserError(f"{archive}: cannot be unpacked: {reason}")


def folder_of(path: Path) -> str:
    """The name of the folder that holds a file, or a member of an archive."""
    return Path(located(path)[1] or path).parent.name


def is_archive(path: Path) -> bool:
    """Is it a zip archive?"""
    return path.suffix == ".zip" and path.is_file() and zipfile.is_zipfile(path)


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, or of a member of an archive, decompressed as they are read."""
    archive, member = located(path)
    if not member:
        return path.open("rb")
    with archive_at(archive) as packed:
        if member in packed.NameToInfo:
            return cast(BinaryIO, Member(archive, packed, member))
    raise UserError(f"{archive}: holds no {member!r}; {_hint(archive, member)}")


class Archives:
    """Opens files and members of archives; an archive stays open while its members follow one
    another, for the list of them is long to read.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._packed: zipfile.ZipFile | None = None

    def open(self, path: Path) -> BinaryIO:
        """See `opened`."""
        archive, member = located(path)
        if not member:
            return path.open("rb")
        packed = self._archive(archive)
        if member not in packed.NameToInfo:
            return opened(path)  # says what there is
        return cast(BinaryIO, Member(archive, packed, member))

    def size(self, path: Path) -> int:
        """See `size`."""
        archive, member = located(path)
        packed = self._archive(archive) if member else None
        if packed is None or member not in packed.NameToInfo:
            return size(path)
        return packed.getinfo(member).file_size

    def _archive(self, path: Path) -> zipfile.ZipFile:
        if self._packed is None or self._path != path:
            self._path, self._packed = path, checked_archive(path)
        return self._packed


def size(path: Path) -> int:
    """Bytes of a file; of a member, those it unpacks to."""
    archive, member = located(path)
    if not member:
        return path.stat().st_size
    opened(path).close()  # says what is wrong with it
    with archive_at(archive) as packed:
        return packed.getinfo(member).file_size


def members(archive: Path) -> list[str]:
    """The names of the files in an archive, without folders and hidden ones."""
    try:
        with archive_at(archive) as packed:
            names = [info.filename for info in files_of(packed)]
    except UserError:
        return []
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))


def describe_members(archive: Path) -> str:
    """What an archive holds, in words."""
    names = members(archive)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"it holds {', '.join(names[:LISTED]) or 'no files'}{more}"


def _hint(archive: Path, member: str) -> str:
    close = get_close_matches(member, members(archive), n=1)
    return f"did you mean {close[0]!r}?" if close else describe_members(archive)
