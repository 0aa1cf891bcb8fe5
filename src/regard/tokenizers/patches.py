"""Images as tokens: an image is cut into square patches (Dosovitskiy et al. 2021,
arXiv:2010.11929).

A token is the row and column of a patch, counted from 1, and its pixels, channel by channel. A
record is `<S>`, at row 0 and column 0 and without pixels, and the patches row by row. If the sides
are multiples of the patch, a stock ViTImageProcessor gives the pixels that our models see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.tokenizers.tokenizer import Document, Featurizer, Ids, read_json

N_COORDINATES = 2  # numbers before the pixels: row and column, from 1
IMAGE_CHANNELS = (1, 3, 4)  # an axis of this size is that of the channels
MAX_PATCHES = 255  # per side: what a byte can count

Image = NDArray[np.uint8]  # (height, width, C)


def default_patch(side: int) -> int:
    """Return the patch size for images whose shorter side is at least `side` pixels."""
    sizes = ((12, 2), (48, 4), (128, 8))
    return next((patch for limit, patch in sizes if side <= limit), 16)


class Patches(Featurizer):
    """Square patches of images of any size; sides are padded by repeating the last row and column.

    `height` and `width` are the largest in training; `uniform`: all images have this size. `mean`
    and `deviation` are those of the channels in training, white being 1.
    """

    name: ClassVar[str] = "patches"
    modality = "images"
    options: ClassVar[Mapping[str, Any]] = {"patch": 0}
    words: ClassVar[tuple[str, str]] = ("image", "images")
    item: ClassVar[str] = "an image of shape (height, width[, channels]), or the path of one"

    def __init__(
        self,
        patch: int,
        height: int,
        width: int,
        mean: Sequence[float],
        deviation: Sequence[float],
        *,
        uniform: bool = True,
    ) -> None:
        self.patch, self.height, self.width, self.uniform = patch, height, width, uniform
        self.mean, self.deviation = tuple(map(float, mean)), tuple(map(float, deviation))
        super().__init__(N_COORDINATES + patch * patch * self.channels, np.uint8)

    def reads(self, value: object) -> bool:
        if not isinstance(value, np.ndarray):
            return isinstance(value, str | Path) or hasattr(value, "getbands")  # of Pillow
        channels_last = value.shape[-1] in IMAGE_CHANNELS
        channels_first = value.shape[0] == self.channels
        return value.ndim == 2 or (value.ndim == 3 and (channels_last or channels_first))

    def reads_alone(self, value: object) -> bool:
        """Of shape (1, height, width), it is a list of one image."""
        if isinstance(value, np.ndarray) and value.ndim == 3 and value.shape[0] == 1:
            return value.shape[-1] in IMAGE_CHANNELS
        return self.reads(value)

    @property
    def channels(self) -> int:
        """C: 1 for gray images, 3 for color."""
        return len(self.mean)

    @property
    def model_config(self) -> dict[str, Any]:
        rows, columns = (-(-side // self.patch) for side in (self.height, self.width))
        return {
            "patch": self.patch,
            "rows": rows,
            "columns": columns,
            "uniform": self.uniform,
            "mean": self.mean,
            "deviation": self.deviation,
        }

    @classmethod
    def train(cls, texts: Iterable[Any], size: int = 0, *, patch: int = 0) -> Self:
        """Measure images; a `patch` of 0 is chosen by their size."""
        count, sums, squares = 0, np.zeros(1), np.zeros(1)
        sizes: set[tuple[int, int]] = set()
        for image in texts:
            pixels = image.reshape(-1, image.shape[2]).astype(np.float64) / 255
            if sizes and len(sums) != image.shape[2]:
                raise UserError(
                    f"images of {len(sums)} and of {image.shape[2]} channels cannot be mixed"
                )
            sums, squares = sums + pixels.sum(0), squares + np.square(pixels).sum(0)
            count += len(pixels)
            sizes.add(image.shape[:2])
        if not sizes:
            raise UserError("there is no image to measure")
        height, width = (max(size[i] for size in sizes) for i in range(2))
        mean = sums / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
        deviation = np.where(deviation > 1e-6, deviation, 1.0)  # 1 for a constant channel
        return cls(
            patch or default_patch(min(min(size) for size in sizes)),
            height,
            width,
            np.round(mean, 6).tolist(),
            np.round(deviation, 6).tolist(),
            uniform=len(sizes) == 1,
        )

    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        """Return the tokens (N, V) of all images (height, width, C), `<S>` before each, and the
        number of tokens of each.
        """
        parts, lengths = [np.empty((0, self.vocab_size), np.uint8)], []
        for _, images in groupby(texts, lambda image: image.shape):
            tokens = self._cut_patches(np.stack(list(images)))
            parts.append(tokens.reshape(-1, self.vocab_size))
            lengths += [tokens.shape[1]] * len(tokens)
        return np.concatenate(parts), np.array(lengths, np.int64)

    def _cut_patches(self, images: Image) -> NDArray[np.uint8]:
        """Return the (B, 1 + N, V) tokens of images (B, height, width, C) of one size."""
        count, height, width, channels = images.shape
        if channels != self.channels:
            raise UserError(f"an image has {channels} channels, the model reads {self.channels}")
        side = self.patch
        rows, columns = -(-height // side), -(-width // side)
        if max(rows, columns) > MAX_PATCHES:
            raise UserError(
                f"an image of {height} × {width} pixels has more than {MAX_PATCHES} patches of "
                f"{side} a side: set input.patch higher"
            )
        padding = (0, 0), (0, rows * side - height), (0, columns * side - width), (0, 0)
        padded = np.pad(images, padding, mode="edge")
        grid = padded.reshape(count, rows, side, columns, side, channels)
        tokens = np.zeros((count, 1 + rows * columns, self.vocab_size), np.uint8)
        tokens[:, 1:, 0] = np.repeat(np.arange(1, rows + 1), columns)
        tokens[:, 1:, 1] = np.tile(np.arange(1, columns + 1), rows)
        pixels = grid.transpose(0, 1, 3, 5, 2, 4)  # (B, rows, columns, C, side, side)
        tokens[:, 1:, N_COORDINATES:] = pixels.reshape(count, rows * columns, -1)
        return tokens

    def decode_record(self, record: NDArray[Any]) -> Image:
        """Return the image (height, width, C) of a record's tokens (1 + N, V), with the padding."""
        patches = np.asarray(record)[1:]
        rows, columns = int(patches[:, 0].max()), int(patches[:, 1].max())
        shape = rows, columns, self.channels, self.patch, self.patch
        pixels = patches[:, N_COORDINATES:].reshape(shape).transpose(0, 3, 1, 4, 2)
        return pixels.reshape(rows * self.patch, columns * self.patch, -1).astype(np.uint8)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Describe the image of tokens in words."""
        tokens = np.asarray(ids)
        if tokens.ndim != 2 or len(tokens) < 2:
            return "an image"
        rows, columns = (int(n) * self.patch for n in tokens[:, :N_COORDINATES].max(0))
        return f"an image of {rows} × {columns} pixels"

    def round_trip(self, item: Image) -> bool:
        height, width, _ = item.shape
        return bool(np.array_equal(self.decode_record(self.encode(item))[:height, :width], item))

    def sample_items(self, count: int) -> list[Image]:
        random = np.random.default_rng(0)
        images = []
        for number in range(count):
            height, width = self.height, self.width
            if number % 2:
                height, width = (max(1, n * (number + 1) // count) for n in (height, width))
            shape = height, width, self.channels
            images.append(random.integers(0, 256, shape, dtype=np.uint8))
        return images

    def document(self) -> Document:
        return {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "size": {"height": self.height, "width": self.width},
            "resample": 2,  # bilinear, as ViT's own; nothing changes where sizes agree
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.deviation),
            "patch_size": self.patch,
            "one_size": self.uniform,
        }

    @classmethod
    def recognises(cls, document: Document) -> bool:
        others = (key for key in document if key != "image_processor_type")
        return not any(key.endswith("_processor_type") for key in others)

    @classmethod
    def load(cls, path: str | Path, *, patch: int = 0) -> Self:
        """Return the featurizer of a preprocessor_config.json; UserError if it is damaged.

        Files that others wrote do not name the side of a `patch`.
        """
        return cls.from_document(read_json(path)[1], str(path), patch=patch)

    @classmethod
    def from_document(cls, document: Document, name: str, *, patch: int = 0) -> Self:
        try:
            size = document["size"]
            if isinstance(size, int):  # in older files
                size = {"height": size, "width": size}
            height, width = int(size["height"]), int(size["width"])
            mean, deviation = (list(map(float, document[f"image_{n}"])) for n in ("mean", "std"))
            side, uniform = int(patch or document["patch_size"]), document.get("one_size", True)
            if not document.get("do_normalize", True):
                mean, deviation = [0.0] * len(mean), [1.0] * len(mean)
            valid = 1 <= side <= 1 << 10 and min(height, width) >= 1 and len(mean) == len(deviation)
            if not valid or not 1 <= len(mean) <= 64 or not min(deviation) > 0:
                raise ValueError("sizes must be positive, and there is a deviation for every mean")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{name} is damaged: {error}") from None
        return cls(side, height, width, mean, deviation, uniform=bool(uniform))
