"""Files of images with labels or captions, and the report of `regard data` on them.

Images are PNG, JPEG and what else Pillow (the extra `vision`) reads, in a folder for every class or
in a table of paths and labels; IDX files (LeCun's MNIST) with a file of labels; or NumPy arrays,
`.npy` with a file of labels or `.npz` with both. An image is an array (height, width, C) of bytes.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from regard.data.formats import MAX_DEFLATE_RATIO, Archives, folder_name, is_archive, read_unpacked
from regard.data.labelled import ColumnSelection
from regard.data.media import (
    ARRAY_SUFFIXES,
    CHUNK_ITEMS,
    MAX_BYTES,
    Array,
    MediaChunk,
    MediaFiles,
    MediaRow,
    RowOrProblem,
    describe_arrays,
    files_in,
    numbered,
    read_arrays,
    require_array,
    suffix,
    target_cells,
    unlabelled_items,
)
from regard.data.report import ITEMS_SHOWN, MediaReport, media_report
from regard.data.sources import DataSource
from regard.data.targets import Cells
from regard.errors import UsageError, UserError, missing_extra
from regard.tokenizers.patches import IMAGE_CHANNELS, Image, Patches

IMAGES = "images"  # data.format
IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif"),
    *(".tif", ".tiff", ".webp", ".ppm", ".pgm"),
)
PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # those, and no others
GRAY_MODES = ("1", "L", "LA", "I", "I;16", "F")
MAX_PIXELS = 64 << 20  # of an image that is decoded
MAX_FILE = 1 << 28  # bytes that are read of an image file
N_INSPECTED = 50  # files whose headers tell whether there are colors
IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
# How the names of files of images and of their labels differ.
LABEL_NAMES = (
    ("images-idx3", "labels-idx1"),
    ("images", "labels"),
    ("image", "label"),
    ("x_", "y_"),
)
PART_WORDS = {"test": {"test", "t10k"}, "valid": {"valid", "validation", "val", "dev"}}
PIXEL_RANGE = "pixels must be numbers from 0 to 255, or to 1"


def is_idx(path: Path) -> bool:
    """Return whether a file begins as IDX does."""
    try:
        head = read_unpacked(path, 4)
    except UserError:
        return False
    return len(head) == 4 and head[:2] == b"\0\0" and head[2] in IDX_TYPES and 1 <= head[3] <= 4


def read_idx(path: Path) -> Array:
    """Return the array of an IDX file."""
    head = read_unpacked(path, 4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in IDX_TYPES or not head[3]:
        raise UserError(f"{path}: is no IDX file: it must begin with two zero bytes and a type")
    dtype, ndim = np.dtype(IDX_TYPES[head[2]]), head[3]
    start = 4 + 4 * ndim
    sizes = read_unpacked(path, start)[4:]
    if len(sizes) < 4 * ndim:
        raise UserError(f"{path}: ends within its header")
    shape = np.frombuffer(sizes, ">u4").tolist()
    size = math.prod(shape) * dtype.itemsize
    if size > min(MAX_BYTES, MAX_DEFLATE_RATIO * path.stat().st_size):
        raise UserError(
            f"{path}: its header says {size:,} bytes of data, more than the file can hold; "
            "it is truncated or damaged"
        )
    data = read_unpacked(path, start + size + 1)[start:]
    if len(data) != size:
        raise UserError(
            f"{path}: holds {len(data):,} bytes of data where its header says {size:,}; "
            "it is truncated or damaged"
        )
    return np.frombuffer(data, dtype).reshape(shape)


def _as_images(array: Array, path: Path) -> Array:
    """Return an array of images as (R, height, width, C), wherever its channels are."""
    if array.ndim == 3:
        array = array[..., None]
    elif (
        array.ndim == 4
        and array.shape[1] in IMAGE_CHANNELS
        and array.shape[3] not in IMAGE_CHANNELS
    ):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.dtype.kind not in "buif" or array.shape[3] > 64:
        raise UserError(
            f"{path}: images are numbers of shape (count, height, width) or (count, height, "
            f"width, channels), got {array.dtype} {array.shape}"
        )
    if 0 in array.shape[1:]:
        raise UserError(f"{path}: the images have no pixels: {array.shape}")
    return array


def _is_unit_range(images: Array) -> bool:
    """Return whether white is 1: the pixels are floats, none larger than 1."""
    if images.dtype.kind != "f" or not images.size:
        return False
    return bool(np.fmax.reduce(images, axis=None) <= 1)  # ignores NaN


def _to_bytes(images: Array, unit_range: bool) -> tuple[Array, NDArray[np.bool_]]:
    """Return images as bytes, and which of them are valid: finite and within the range."""
    if images.dtype == np.uint8:
        return images, np.ones(len(images), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        values = images.astype(np.float64) * (255 if unit_range else 1)
        inside = ((values >= 0) & (values <= 255)).reshape(len(values), -1)
    valid: NDArray[np.bool_] = np.logical_and.reduce(inside, axis=1)
    return np.round(np.where(np.isfinite(values), values, 0)).clip(0, 255).astype(np.uint8), valid


def pillow() -> Any:
    """Return Pillow's Image module; if it is missing, raise with the command that installs it."""
    try:
        from PIL import Image as module
    except ImportError:
        raise missing_extra("pillow", "vision") from None
    return module


@contextmanager
def _open_image(path: Path, archives: Archives | None) -> Iterator[Any]:
    """Open an image file with Pillow without decoding it; ValueError says what is wrong with it.

    The number of pixels in its header is checked before memory is taken for them.
    """
    module = pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damage that matters is raised
            with (
                (archives or Archives()).open(path) as file,
                module.open(io.BytesIO(file.read(MAX_FILE)), formats=PILLOW_FORMATS) as image,
            ):
                if math.prod(image.size) > MAX_PIXELS:
                    width, height = image.size
                    raise ValueError(
                        f"{width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are decoded"
                    )
                yield image
    except Exception as error:  # Pillow's decoders raise anything if an image is damaged
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(
            f"is no image that can be read: {reason or type(error).__name__}"
        ) from None


def _has_color(paths: Sequence[Path], archives: Archives) -> bool:
    """Return whether any of these image files has colors; damaged ones are reported later."""
    for path in paths:
        try:
            with _open_image(path, archives) as image:
                if image.mode not in GRAY_MODES:
                    return True
        except ValueError:
            continue
    return False


def read_image(path: Path, *, color: bool, archives: Archives | None = None) -> Image:
    """Return an image file as bytes, in RGB or gray; ValueError says what is wrong with it."""
    with _open_image(path, archives) as image:
        image.load()
        return np.atleast_3d(np.array(image.convert("RGB" if color else "L"), np.uint8))


def resize_image(image: Image, size: int) -> Image:
    """Return an image of `size` × `size` pixels, bilinear with antialiasing; 0 changes nothing."""
    if not size or image.shape[:2] == (size, size):
        return image
    pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]  # (1, C, H, W)
    resized = F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    result: Image = resized[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()
    return result


def hash_image(image: Image) -> str:
    """Return a hash of the pixels of an image."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=12)
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def holds_images(paths: Sequence[Path]) -> bool:
    """Return whether these are files, folders or archives of images."""
    for path in paths:
        if path.is_dir() or is_archive(path):
            return next(iter(files_in([path], IMAGE_SUFFIXES)), None) is not None
        if suffix(path) in (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES) or (path.is_file() and is_idx(path)):
            return True
    return False


def published_parts(folder: Path) -> dict[str, list[Path]]:
    """Return the files of images in a folder by split: IDX as LeCun's MNIST is downloaded, or NumPy
    arrays, whose names say test (t10k) or valid; {} if there are none.
    """
    if next(iter(files_in([folder], IMAGE_SUFFIXES)), None) is not None:
        return {}
    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files = [path for path in visible if path.is_file()]
    arrays = [path for path in files if suffix(path) == ".npz"]
    arrays += [path for path in files if "idx" in path.name.lower() and _holds_idx(path)]
    parts: dict[str, list[Path]] = {}
    for path in arrays:
        parts.setdefault(_part_of(path.name), []).append(path)
    if parts and "train" not in parts:
        parts = {"train": arrays}
    return parts


def _holds_idx(path: Path) -> bool:
    """Return whether a file is IDX, of images and not of labels."""
    return is_idx(path) and read_unpacked(path, 4)[3] > 2


def _part_of(name: str) -> str:
    """Return the split that the words in the name of a file say."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    for split, known in PART_WORDS.items():
        if words & known:
            return split
    return "train"


class ImageFiles(MediaFiles):
    """Files of images as records with targets; `resize` is the size of both sides in pixels, 0
    keeps the images as they are.
    """

    medium, endings = IMAGES, IMAGE_SUFFIXES
    target_noun: ClassVar[str] = "labels"

    def __init__(
        self,
        paths: Sequence[Path],
        asked: ColumnSelection,
        *,
        strict: bool = False,
        resize: int = 0,
    ) -> None:
        self.resize = resize
        self._label_files: dict[Path, Path] = {}  # by the file of images
        self._color: bool | None = None
        super().__init__(paths, asked, strict=strict)

    def locate_targets(self) -> str:
        first = self.files[0]
        if suffix(first) in IMAGE_SUFFIXES:
            return self.use_folder_names()
        if suffix(first) == ".npz":
            images, targets = self._array_names(read_arrays(first), first)
            return f"arrays {images!r} and {targets!r}"
        self._label_files = {path: self._label_file(path) for path in self.files}
        format = "IDX" if is_idx(first) else "NumPy arrays"
        return f"{format}, labels from {self._label_files[first].name}"

    @property
    def all_files(self) -> list[Path]:
        return [*self.files, *self._label_files.values()]

    @property
    def labels_apart(self) -> bool:
        return any(Path(target).is_file() for target in self.asked.targets)

    @property
    def tells(self) -> bool:
        return suffix(self.files[0]) not in IMAGE_SUFFIXES

    def _label_file(self, path: Path) -> Path:
        """Return the file of labels for a file of images: the target, or one of a similar name."""
        target = self.asked.targets[0] if len(self.asked.targets) == 1 else ""
        if target and Path(target).is_file() and path == self.files[0]:
            return Path(target)
        candidates = []
        for images, labels in LABEL_NAMES:
            for one, two in ((images, labels), (images.upper(), labels.upper())):
                if one in path.name:
                    candidates.append(path.with_name(path.name.replace(one, two)))
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        looked = f"; looked for {candidates[0].name}" if candidates else ""
        raise UsageError(
            f"{path}: where are the {self.target_noun}? name their file with --target{looked}"
        )

    def _array_names(self, arrays: dict[str, Array], path: Path) -> tuple[str, str]:
        listing = describe_arrays(arrays)
        input, target = self.asked.inputs[0], (self.asked.targets or ("",))[0]
        flags = [(input, "--input"), (target, "--target")]
        flags += [(name, "data.split or data.group") for name in self.asked.asides]
        for name, flag in flags:
            if name:
                require_array(arrays, name, flag, path)
        large = [n for n, a in arrays.items() if a.ndim in (3, 4) and a.dtype.kind in "buif"]
        if not input and len(large) != 1:
            raise UsageError(f"{path}: which array is the images? --input; {listing}")
        images = input or large[0]
        if not arrays[images].ndim:
            raise UserError(f"{path}: {images} must hold several images; {listing}")
        count = len(arrays[images])
        small = [
            name
            for name, array in arrays.items()
            if array.shape == (count,) and name not in (images, *self.asked.asides)
        ]
        if not target and len(small) != 1:
            raise UsageError(f"{path}: which array is the {self.target_noun}? --target; {listing}")
        return images, target or small[0]

    def inspect_paths(self, files: Sequence[Path]) -> None:
        if self._color is None:
            self._color = _has_color(files[:N_INSPECTED], self._archives)

    def read(self, path: Path) -> Image:
        return read_image(path, color=bool(self._color), archives=self._archives)

    def transform(self, item: Image) -> Image:
        return resize_image(item, self.resize)

    def digest(self, item: Image) -> str:
        return hash_image(item)

    def rows(self, path: Path) -> Iterator[RowOrProblem]:
        if suffix(path) in IMAGE_SUFFIXES:
            self.inspect_paths(self.files)
            yield self.row_of_file(path, (folder_name(path),), str(path))
            return
        images, cells, asides = self._load_arrays(path)
        self.names = numbered(len(cells[0]) if cells else 1)
        unit_range = _is_unit_range(images)
        for first in range(0, len(images), CHUNK_ITEMS):
            batch, valid = _to_bytes(images[first : first + CHUNK_ITEMS], unit_range)
            for i, image in enumerate(batch):
                where = f"{path}[{first + i}]"
                if valid[i]:
                    yield MediaRow(image, cells[first + i], where, asides[first + i])
                else:
                    yield f"{where}: {PIXEL_RANGE}"

    def _load_arrays(self, path: Path) -> tuple[Array, list[Cells], list[Cells]]:
        """Return the images of an array file, their targets, and the columns for splits."""
        columns: list[list[Cells]] = []
        target_file = self._label_files.get(path, path)
        if path in self._label_files:
            images = read_idx(path) if is_idx(path) else read_arrays(path)[""]
            targets = (
                read_idx(target_file) if is_idx(target_file) else read_arrays(target_file).get("")
            )
        else:
            arrays = read_arrays(path)
            image_name, target_name = self._array_names(arrays, path)
            images, targets = arrays[image_name], arrays[target_name]
            columns = [target_cells(arrays[name], path) for name in self.asked.asides]
        if targets is None:
            raise UserError(f"{target_file}: must hold one array of {self.target_noun}")
        images, cells = _as_images(images, path), target_cells(targets, target_file)
        nouns = [self.target_noun, *self.asked.asides]
        for column, noun in zip([cells, *columns], nouns, strict=False):
            if len(column) != len(images):
                raise UserError(
                    f"{path} has {len(images):,} images, {target_file} {len(column):,} {noun}"
                )
        asides = [sum(row, ()) for row in zip(*columns, strict=True)] or [()] * len(cells)
        return images, cells, asides


class Captions(ImageFiles):
    """Files of images and captions as pairs: the sources are images, the targets texts.

    They are stored as images with labels are. An image may have several captions, a record each;
    duplicates, splits and leaks go by the pixels, so that all of them are in one split.
    """

    target_noun: ClassVar[str] = "captions"

    def __init__(self, paths: Sequence[Path], asked: ColumnSelection, **options: Any) -> None:
        if len(asked.inputs) > 1 or len(asked.targets) > 1:
            raise UsageError("captions need one column of images and one of texts")
        super().__init__(paths, asked, **options)

    def locate_targets(self) -> str:
        if suffix(self.files[0]) in IMAGE_SUFFIXES:
            raise UsageError(
                f"{self.paths[0]}: images without captions; give a table of both, with "
                "--input for the column of paths and --target for that of the captions"
            )
        return super().locate_targets()

    def examples(self) -> Iterator[MediaChunk]:
        for chunk in super().examples():
            if len(chunk.targets[0]) != 1:
                raise UserError(f"{chunk.path}: an image has one caption, got an array of more")
            captions = [cells[0] for cells in chunk.targets]
            yield replace(chunk, texts=captions, sources=chunk.texts)


def unlabelled_images(
    paths: Sequence[Path], channels: int, resize: int = 0, *, strict: bool = True
) -> Iterator[tuple[str, Image | str]]:
    """Yield images without labels, each with its place; a damaged one is a UserError or, unless
    `strict`, what is wrong with it.
    """

    def read(path: Path) -> Iterator[tuple[str, Image | str]]:
        if suffix(path) in IMAGE_SUFFIXES:
            try:
                yield str(path), resize_image(read_image(path, color=channels != 1), resize)
            except ValueError as error:
                yield str(path), str(error)
            return
        arrays = {"": read_idx(path)} if is_idx(path) else read_arrays(path)
        large = [array for array in arrays.values() if array.ndim in (3, 4)]
        if len(large) != 1:
            raise UserError(f"{path}: must hold one array of images, got {len(large)}")
        images = _as_images(large[0], path)
        batch, valid = _to_bytes(images, _is_unit_range(images))
        for i, image in enumerate(batch):
            yield f"{path}[{i}]", resize_image(image, resize) if valid[i] else PIXEL_RANGE

    return unlabelled_items(paths, IMAGE_SUFFIXES, IMAGES, read, strict=strict)


def images_in_memory(values: Sequence[Any], channels: int, resize: int = 0) -> list[Image]:
    """Return images given as arrays (height, width[, C]) or (C, height, width), or by Pillow, as
    files of them would be read. White is 1 if no number of any array is larger.
    """
    mode = "L" if channels == 1 else "RGB"
    arrays = [
        np.asarray(value.convert(mode) if hasattr(value, "getbands") else value) for value in values
    ]
    where = Path("images in memory")
    stacks = [_as_images(array[None], where) for array in arrays]
    unit_range = all(map(_is_unit_range, stacks))
    images = []
    for number, stack in enumerate(stacks):
        (image,), (valid,) = _to_bytes(stack, unit_range)
        if not valid:
            raise UserError(f"image {number}: {PIXEL_RANGE}")
        images.append(resize_image(image, resize))
    return images


@dataclass(frozen=True, kw_only=True)
class ImageReport(MediaReport):
    """What `inspect_images` found. `sizes` count pictures by height and width."""

    sizes: dict[str, int]
    channels: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    patch: int

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        sizes = ", ".join(f"{size} ({n:,})" for size, n in list(self.sizes.items())[:ITEMS_SHOWN])
        more = (
            f" and {len(self.sizes) - ITEMS_SHOWN:,} more" if len(self.sizes) > ITEMS_SHOWN else ""
        )
        rows = [
            ("read as", f"{self.format} ({self.why})"),
            ("images", f"{self.records:,}"),
            ("size", f"{sizes}{more} pixels, {self.channels} channels"),
            ("mean", ", ".join(f"{x:.3f}" for x in self.mean) + " (1 is white)"),
            ("deviation", ", ".join(f"{x:.3f}" for x in self.deviation)),
            ("patches", f"of {self.patch} × {self.patch} pixels"),
        ]
        return rows + self.rest()


def inspect_images(sources: DataSource, why: str) -> ImageReport:
    """Return the report on images whose task is known."""
    sizes: Counter[str] = Counter()
    for chunk in sources.chunks():
        images: Any = chunk.sources or chunk.texts
        sizes.update(f"{image.shape[0]} × {image.shape[1]}" for image in images)
    training = (chunk for chunk in sources.chunks() if chunk.split == 0)
    measured = Patches.train(image for chunk in training for image in chunk.sources or chunk.texts)
    return ImageReport(
        **media_report(sources, why),
        sizes=dict(sizes.most_common()),
        channels=measured.channels,
        mean=measured.mean,
        deviation=measured.deviation,
        patch=measured.patch,
    )
