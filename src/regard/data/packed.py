"""The bytes of a file that is read whole, unpacked where it is gzip, within limits."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

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
