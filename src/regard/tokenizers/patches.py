"""Images as tokens: a picture is cut into square patches, and each is a token (Dosovitskiy et al.
2021, arXiv:2010.11929).

A token of text is one of V ids; a token here is V numbers: where the patch stands, its row and its
column counted from 1, and then its pixels, channel by channel. A record is `<S>` and the patches
row by row; `<S>` stands at row 0, column 0, and has no pixels. What comes after, from shards to
training, only knows that tokens are V numbers each.

It is saved as Hugging Face's `preprocessor_config.json`: where the sides are whole patches, a stock
ViTImageProcessor gives the pixels that our models see.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.tokenizers.tokenizer import SPECIALS, Ids, Tokenizer, read_json

PLACE = 2  # numbers before the pixels: row and column, from 1
MOST = 255  # patches a side, which a byte can count
# The side of a patch where it is left open: up to so many pixels of the shorter side, this.
SIDES = ((12, 2), (48, 4), (128, 8))
LARGE = 16

Image = NDArray[np.uint8]  # (height, width, C)


class Patches(Tokenizer):
    """Square patches of images of any size, whose sides are filled up by repeating the last row and
    column of pixels. `height` and `width` are the largest that training has; `uniform` says that
    all are so large. Channels have this mean and deviation in training, white being 1.
    """

    kind: ClassVar[str] = "patches"
    file: ClassVar[str] = "preprocessor_config.json"
    item: ClassVar[str] = "an image of shape (height, width, channels), or the path of one"

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
        super().__init__([b""] * len(SPECIALS))
        self.raw = [json.dumps(self.document(), sort_keys=True).encode()]  # told apart by this
        self.vocab_size = PLACE + patch * patch * self.channels
        self.dtype = np.dtype(np.uint8)

    def reads(self, value: object) -> bool:
        """See Tokenizer."""
        return isinstance(value, str | Path) or (isinstance(value, np.ndarray) and value.ndim == 3)

    @property
    def channels(self) -> int:
        """C: 1 of grey pictures, 3 of coloured ones."""
        return len(self.mean)

    @property
    def decides(self) -> dict[str, Any]:
        """What a model's configuration has from here."""
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
        least = min(min(size) for size in sizes)
        side = patch or next((own for most, own in SIDES if least <= most), LARGE)
        mean = sums / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 0))
        deviation = np.where(spread > 1e-6, spread, 1.0)  # a channel that is always the same
        told = (np.round(x, 6).tolist() for x in (mean, deviation))
        return cls(side, height, width, *told, uniform=len(sizes) == 1)

    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        """The tokens (N, V) of all images (height, width, C), `<S>` before each, and how many each
        has.
        """
        parts, lengths = [], []
        first = 0
        while first < len(texts):
            last = first + 1
            while last < len(texts) and texts[last].shape == texts[first].shape:
                last += 1
            tokens = self._cut(np.stack(texts[first:last]))
            parts.append(tokens.reshape(-1, self.vocab_size))
            lengths += [tokens.shape[1]] * (last - first)
            first = last
        flat = np.concatenate(parts) if parts else np.empty((0, self.vocab_size), np.uint8)
        return flat, np.array(lengths, np.int64)

    def _cut(self, images: Image) -> NDArray[np.uint8]:
        """(B, 1 + N, V) tokens of images (B, height, width, C) of one size."""
        count, height, width, channels = images.shape
        if channels != self.channels:
            raise UserError(f"an image has {channels} channels, the model reads {self.channels}")
        side = self.patch
        rows, columns = -(-height // side), -(-width // side)
        if max(rows, columns) > MOST:
            raise UserError(
                f"an image of {height} × {width} pixels has more than {MOST} patches of {side} "
                "a side: set tokens.patch higher"
            )
        more = (0, 0), (0, rows * side - height), (0, columns * side - width), (0, 0)
        whole = np.pad(images, more, mode="edge")
        cut = whole.reshape(count, rows, side, columns, side, channels)
        tokens = np.zeros((count, 1 + rows * columns, self.vocab_size), np.uint8)
        tokens[:, 1:, 0] = np.repeat(np.arange(1, rows + 1), columns)
        tokens[:, 1:, 1] = np.tile(np.arange(1, columns + 1), rows)
        pixels = cut.transpose(0, 1, 3, 5, 2, 4)  # (B, rows, columns, C, side, side)
        tokens[:, 1:, PLACE:] = pixels.reshape(count, rows * columns, -1)
        return tokens

    def picture(self, ids: NDArray[Any]) -> Image:
        """The image (height, width, C) of a record's tokens (1 + N, V), filled up to patches."""
        patches = np.asarray(ids)[1:]
        rows, columns = int(patches[:, 0].max()), int(patches[:, 1].max())
        shape = rows, columns, self.channels, self.patch, self.patch
        pixels = patches[:, PLACE:].reshape(shape).transpose(0, 3, 1, 4, 2)
        return pixels.reshape(rows * self.patch, columns * self.patch, -1).astype(np.uint8)

    def content(self, record: Ids) -> Ids:
        """See Tokenizer: `<S>` is among what encoding gives."""
        return record

    def read_back(self, record: Ids) -> Image:
        """See Tokenizer; filled up to patches."""
        return self.picture(record)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """What the tokens of an image are, in words."""
        found = np.asarray(ids)
        if found.ndim != 2 or len(found) < 2:
            return "an image"
        rows, columns = (int(n) * self.patch for n in found[:, :PLACE].max(0))
        return f"an image of {rows} × {columns} pixels"

    def text(self, id: int) -> str:
        """See Tokenizer: tokens that are numbers have no names."""
        return f"{id}"

    def document(self) -> dict[str, Any]:
        """The contents of preprocessor_config.json."""
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

    def save(self, path: str | Path) -> None:
        """See Tokenizer."""
        Path(path).write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, *, patch: int = 0) -> Self:
        """The tokenizer of a preprocessor_config.json; the side of a `patch` stands in there, or is
        given, where somebody else wrote it.
        """
        document = read_json(path)[1]
        try:
            size = document["size"]
            if isinstance(size, int):  # as older files have it
                size = {"height": size, "width": size}
            height, width = int(size["height"]), int(size["width"])
            mean, deviation = (list(map(float, document[f"image_{n}"])) for n in ("mean", "std"))
            side, uniform = int(patch or document["patch_size"]), document.get("one_size", True)
            if not document.get("do_normalize", True):
                mean, deviation = [0.0] * len(mean), [1.0] * len(mean)
            sound = 1 <= side <= 1 << 10 and min(height, width) >= 1 and len(mean) == len(deviation)
            if not sound or not 1 <= len(mean) <= 64 or not min(deviation) > 0:
                raise ValueError("sizes must be positive, and there is a deviation for every mean")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return cls(side, height, width, mean, deviation, uniform=bool(uniform))
