"""Files inside zip archives: `splits.zip:splits/train.csv` is a path like any other."""

from __future__ import annotations

import os
import zipfile
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, cast

from regard.errors import UserError

LISTED = 8  # members named where none, or a wrong one, was asked for
BROKEN = (zipfile.BadZipFile, RuntimeError, NotImplementedError)  # damaged, encrypted, unknown


def located(path: Path) -> tuple[Path, str]:
    """The file on the disk that a path leads to, and the member of that archive, or ""."""
    archive, found, member = str(path).partition(".zip:")
    if not found or not member or os.path.exists(path):
        return path, ""
    return Path(archive + ".zip"), member


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, or of a member of an archive, decompressed as they are read."""
    archive, member = located(path)
    if not member:
        return path.open("rb")
    try:
        with zipfile.ZipFile(archive) as packed:  # an open member outlives its archive's object
            return cast(BinaryIO, packed.open(member))
    except KeyError:
        raise UserError(f"{archive}: holds no {member!r}; {_hint(archive, member)}") from None
    except BROKEN as error:
        raise UserError(f"{archive}: cannot be unpacked: {str(error).lower()}") from None


def size(path: Path) -> int:
    """Bytes of a file; of a member, those it unpacks to."""
    archive, member = located(path)
    if not member:
        return path.stat().st_size
    opened(path).close()  # says what is wrong with it
    with zipfile.ZipFile(archive) as packed:
        return packed.getinfo(member).file_size


def members(archive: Path) -> list[str]:
    """The names of the files in an archive, without folders and hidden ones."""
    try:
        with zipfile.ZipFile(archive) as packed:
            names = [info.filename for info in packed.infolist() if not info.is_dir()]
    except (*BROKEN, OSError):
        return []
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))


def listed(archive: Path) -> str:
    """What an archive holds, in words."""
    names = members(archive)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"it holds {', '.join(names[:LISTED]) or 'no files'}{more}"


def _hint(archive: Path, member: str) -> str:
    close = get_close_matches(member, members(archive), n=1)
    return f"did you mean {close[0]!r}?" if close else listed(archive)
