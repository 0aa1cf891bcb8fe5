"""Files that hold pictures: IDX (LeCun's MNIST), NumPy arrays, PNG, JPEG and what else Pillow, the
extra `vision`, reads. Each picture is (height, width, C) bytes.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from regard.data.archives import DEFLATED, Archives, unpacked
from regard.data.array_files import MOST, Array
from regard.errors import UserError, missing_extra
from regard.tokenizers.patches import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
ARRAYS = (".npy", ".npz")
PIXELS = 64 << 20  # of a picture that is decoded
CHANNELS = (1, 3, 4)  # a side of so many is that of the channels
KINDS = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}  # of IDX, by their number
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # those of SUFFIXES, and no others
# What Pillow's decoders raise of damaged pictures.
UNDECODABLE = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    AssertionError,
    MemoryError,
    struct.error,
    zlib.error,
)
PACKED = 1 << 28  # bytes that are read of a picture file
GREY = ("1", "L", "LA", "I", "I;16", "F")  # Pillow's modes without colours


def suffix(path: Path) -> str:
    """The ending of a name, in lower case, that of packing left out."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def is_idx(path: Path) -> bool:
    """Does a file begin as IDX does?"""
    try:
        head = unpacked(path, 4)
    except UserError:
        return False
    return len(head) == 4 and head[:2] == b"\0\0" and head[2] in KINDS and 1 <= head[3] <= 4


def read_idx(path: Path) -> Array:
    """The array of an IDX file."""
    head = unpacked(path, 4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in KINDS or not head[3]:
        raise UserError(f"{path}: is no IDX file: it must begin with two zero bytes and a type")
    dtype, dims = np.dtype(KINDS[head[2]]), head[3]
    start = 4 + 4 * dims
    sizes = unpacked(path, start)[4:]
    if len(sizes) < 4 * dims:
        raise UserError(f"{path}: ends within its header")
    shape = np.frombuffer(sizes, ">u4").tolist()
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > min(MOST, DEFLATED * path.stat().st_size):  # more than any packing can hold
        raise UserError(
            f"{path}: its header says {wanted:,} bytes of data, more than the file can hold; "
            "it is truncated or damaged"
        )
    data = unpacked(path, start + wanted + 1)[start:]
    if len(data) != wanted:
        raise UserError(
            f"{path}: holds {len(data):,} bytes of data where its header says {wanted:,}; "
            "it is truncated or damaged"
        )
    return np.frombuffer(data, dtype).reshape(shape)


def as_images(array: Array, path: Path) -> Array:
    """(R, height, width, C) of an array of pictures, whichever side its channels are on."""
    if array.ndim == 3:
        array = array[..., None]
    elif array.ndim == 4 and array.shape[1] in CHANNELS and array.shape[3] not in CHANNELS:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.dtype.kind not in "buif" or array.shape[3] > 64:
        raise UserError(
            f"{path}: pictures are numbers of shape (count, height, width) or (count, height, "
            f"width, channels), got {array.dtype} {array.shape}"
        )
    if 0 in array.shape[1:]:
        raise UserError(f"{path}: the pictures have no pixels: {array.shape}")
    return array


def is_unit(pictures: Array) -> bool:
    """Is white 1, as in arrays of numbers that are not whole and none of which is larger?"""
    if pictures.dtype.kind != "f" or not pictures.size:
        return False
    return bool(np.fmax.reduce(pictures, axis=None) <= 1)  # NaN counts nothing


def as_bytes(pictures: Array, unit: bool) -> tuple[Array, NDArray[np.bool_]]:
    """Pictures as bytes, and which of them are sound: finite and from 0 to 255, or to 1 where that
    is white (`unit`).
    """
    if pictures.dtype == np.uint8:
        return pictures, np.ones(len(pictures), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        values = pictures.astype(np.float64) * (255 if unit else 1)
        inside = ((values >= 0) & (values <= 255)).reshape(len(values), -1)
    sound: NDArray[np.bool_] = np.logical_and.reduce(inside, axis=1)
    return np.round(np.where(np.isfinite(values), values, 0)).clip(0, 255).astype(np.uint8), sound


def cells_of(array: Array, path: Path) -> list[tuple[str, ...]]:
    """Targets as written, from an array (R,) or (R, n) of numbers or texts."""
    if array.ndim not in (1, 2) or array.dtype.kind not in "buifSU":
        raise UserError(
            f"{path}: targets are numbers or texts of shape (count,) or (count, n), "
            f"got {array.dtype} {array.shape}"
        )
    rows = array.reshape(len(array), -1).tolist()
    return [tuple(written(cell) for cell in row) for row in rows]


def written(value: Any) -> str:
    """A number as a table would have it; a missing one is empty."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        if value != value:
            return ""
        return str(int(value)) if value.is_integer() else repr(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


def pillow() -> Any:
    """Pillow's Image module; where it is missing, what to install."""
    try:
        from PIL import Image as module
    except ImportError:
        raise missing_extra("pillow", "vision") from None
    return module


@contextmanager
def picture_at(path: Path, archives: Archives | None = None) -> Iterator[Any]:
    """A picture file, opened by Pillow and not yet decoded; ValueError says what is wrong with it.

    How many pixels it says to have is checked before memory is taken for them.
    """
    module = pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters of a damaged file is raised
            with (
                (archives or Archives()).open(path) as file,
                module.open(io.BytesIO(file.read(PACKED)), formats=FORMATS) as image,
            ):
                if math.prod(image.size) > PIXELS:
                    wide, high = image.size
                    raise ValueError(f"{wide:,} × {high:,} pixels; at most {PIXELS:,} are decoded")
                yield image
    except (*UNDECODABLE, module.DecompressionBombError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(
            f"is no picture that can be read: {said or type(error).__name__}"
        ) from None


def coloured(paths: Sequence[Path], archives: Archives | None = None) -> bool:
    """Has any of these picture files colours? Damaged ones are told later."""
    for path in paths:
        try:
            with picture_at(path, archives) as image:
                if image.mode not in GREY:
                    return True
        except ValueError:
            continue
    return False


def read_picture(path: Path, *, colours: bool, archives: Archives | None = None) -> Image:
    """A picture file as bytes, in colours or grey; ValueError says what is wrong with it."""
    with picture_at(path, archives) as image:
        image.load()
        return np.atleast_3d(np.array(image.convert("RGB" if colours else "L"), np.uint8))


def resized(image: Image, side: int) -> Image:
    """A picture with both sides of so many pixels (bilinear, smoothed where it gets smaller)."""
    if not side or image.shape[:2] == (side, side):
        return image
    pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
    made = F.interpolate(pixels, (side, side), mode="bilinear", antialias=True)
    found: Image = made[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()
    return found
