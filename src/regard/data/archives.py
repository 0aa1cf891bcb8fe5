"""Compressed files: gzip data, and members of zip archives.

`splits.zip:splits/train.csv` is a path like any other. The sizes that an archive states are checked
before anything is unpacked, so that a small file cannot fill the memory.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, cast

from regard.errors import UserError

FREE_BYTES = 1 << 30  # that compressed data may unpack to, whatever its own size
MAX_RATIO = 200  # beyond that, times its own size: more than real data has, far less than a bomb
MAX_DEFLATE_RATIO = 1100  # what deflate can reach at all
MAX_MEMBERS = 1_000_000  # of an archive
N_LISTED = 8  # members named in a message
HIDDEN = (".", "__")  # beginnings of names


def max_unpacked(size: int) -> int:
    """Return how many bytes compressed data of this size may unpack to."""
    return max(FREE_BYTES, MAX_RATIO * size)


@contextmanager
def gzip_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file, gzip data or not, into a UserError."""
    try:
        yield
    except EOFError:
        raise UserError(f"{path}: the gzip data ends too early; the file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: the gzip data is corrupt: {str(error).lower()}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {describe_error(error)}") from None


@contextmanager
def zip_errors(path: Path) -> Iterator[None]:
    """Turn what zipfile raises of an archive, which may be anything, into a UserError."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise UserError(f"{path}: cannot be read: {describe_error(error)}") from None
    except Exception as error:
        reason = str(error).lower() or type(error).__name__
        raise UserError(f"{path}: cannot be unpacked: {reason}") from None


def read_unpacked(path: Path, max_bytes: int) -> bytes:
    """Return the first bytes of a file, decompressed if it is gzip data."""
    with gzip_errors(path), open(path, "rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not is_gzip:
            return raw.read(max_bytes)
        limit = max_unpacked(path.stat().st_size)
        with gzip.GzipFile(fileobj=raw) as stream:
            data = stream.read(min(max_bytes, limit + 1))
    if len(data) > limit:
        raise UserError(
            f"{path}: unpacks to more than {limit >> 20:,} MB, {MAX_RATIO} times its size or more; "
            "unpack it first"
        )
    return data


def describe_error(error: Exception) -> str:
    """Return the reason of an error of the file system, in lower case."""
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).lower()


def split_member(path: Path) -> tuple[Path, str]:
    """Return the file on disk that a path leads to and the member of that archive, or ""."""
    archive, separator, member = str(path).partition(".zip:")
    if not separator or not member or os.path.exists(path):
        return path, ""
    return Path(archive + ".zip"), member


def folder_name(path: Path) -> str:
    """Return the name of the folder of a file, or of a member of an archive."""
    return Path(split_member(path)[1] or path).parent.name


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive."""
    return path.suffix == ".zip" and path.is_file() and zipfile.is_zipfile(path)


def open_archive(path: Path, *, max_bytes: int = 0) -> zipfile.ZipFile:
    """Open a zip archive; one that is damaged or unpacks to too much is a UserError."""
    with zip_errors(path):
        archive, limit = zipfile.ZipFile(path), max_unpacked(path.stat().st_size)
    infos = archive.infolist()
    total = sum(info.file_size for info in infos)
    problem = ""
    if len(infos) > MAX_MEMBERS:
        problem = f"has {len(infos):,} members; at most {MAX_MEMBERS:,} are read"
    elif total > limit:
        problem = (
            f"would unpack to {total >> 20:,} MB, more than {limit >> 20:,} MB and {MAX_RATIO} "
            "times its size; unpack it first"
        )
    elif max_bytes and total > max_bytes:
        problem = f"would take {total >> 30} GB, more than {max_bytes >> 30} GB"
    if problem:
        archive.close()
        raise UserError(f"{path}: {problem}")
    return archive


class Member:
    """The bytes of a member of an archive; damaged data is a UserError."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str) -> None:
        self.path = path
        with zip_errors(path):
            self.stream = cast(BinaryIO, archive.open(name))  # stays open when `archive` is closed

    def read(self, size: int = -1) -> bytes:
        with zip_errors(self.path):
            return self.stream.read(size)

    def seek(self, offset: int) -> int:
        with zip_errors(self.path):
            return self.stream.seek(offset)

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Archives:
    """Opens files and members of archives.

    The last archive stays open, since reading its list of members takes long.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._archive: zipfile.ZipFile | None = None

    def open(self, path: Path) -> BinaryIO:
        """Open a file or a member of an archive."""
        file, member = split_member(path)
        if not member:
            return path.open("rb")
        archive, info = self._find(file, member)
        return cast(BinaryIO, Member(file, archive, info.filename))

    def size(self, path: Path) -> int:
        """Return the bytes of a file, or those that a member unpacks to."""
        file, member = split_member(path)
        return self._find(file, member)[1].file_size if member else path.stat().st_size

    def _find(self, path: Path, member: str) -> tuple[zipfile.ZipFile, zipfile.ZipInfo]:
        if self._archive is None or self._path != path:
            self._path, self._archive = path, open_archive(path)
        try:
            return self._archive, self._archive.getinfo(member)
        except KeyError:
            close = get_close_matches(member, list_members(path), n=1)
            hint = f"did you mean {close[0]!r}?" if close else describe_members(path)
            raise UserError(f"{path}: holds no {member!r}; {hint}") from None


def list_files(
    path: Path, accepts: Callable[[str], bool], *, hidden: tuple[str, ...] = HIDDEN
) -> list[Path]:
    """Return the files in a folder or archive whose names are accepted, sorted, without hidden
    files and folders.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be read: {describe_error(error)}")

    if is_archive(path):
        members = [name.split("/") for name in list_members(path)]
        return [
            Path(f"{path}:{'/'.join(parts)}")
            for parts in members
            if accepts(parts[-1]) and not any(part.startswith(hidden) for part in parts)
        ]
    files = []
    for parent, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(hidden)]
        files += [Path(parent, n) for n in names if accepts(n) and not n.startswith(hidden)]
    return sorted(files)


def archive_files(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the members of an archive that are no folders."""
    return [i for i in archive.infolist() if i.filename and not i.filename.endswith("/")]


def list_members(path: Path) -> list[str]:
    """Return the sorted names of the files in an archive, without hidden ones."""
    try:
        with open_archive(path) as archive:
            names = [info.filename for info in archive_files(archive)]
    except UserError:
        return []
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))


def describe_members(path: Path) -> str:
    """Return what an archive holds, for a message."""
    names = list_members(path)
    more = f" and {len(names) - N_LISTED} more" if len(names) > N_LISTED else ""
    return f"it holds {', '.join(names[:N_LISTED]) or 'no files'}{more}"
