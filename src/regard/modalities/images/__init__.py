"""Images: cut into patches, each of them a token (Dosovitskiy et al. 2021, arXiv:2010.11929)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data.column_kinds import CellSample, ColumnKind
from regard.modalities import Augmentation, Modality, Tables, recognize_paths
from regard.recipe import check_fraction, check_range
from regard.registry import MODELS

if TYPE_CHECKING:
    from torch import nn

    from regard.data.sources import DataSource, ReadRequest
    from regard.data.targets import OutputKind
    from regard.data.text_files import FileSet
    from regard.look.page.records import Picture
    from regard.tokenizers.patches import Patches

INSPECTED = 20_000  # images
BATCH_IMAGES = 64  # in a step, about
MIN_BATCH_TOKENS = 2048
WORDY = 0.08  # spaces per character from which captions have words ...
MIN_SUBWORD_CHARACTERS = 20_000  # ... and characters from which subwords can be learned
CHARACTERS_PER_TOKEN = 40  # of captions, for one token of the vocabulary: they are short
MAX_VOCAB = 8_000


@dataclass(frozen=True, kw_only=True)
class ImagesConfig:
    """How images become patches."""

    name: str = "images"
    patch: int = 0  # pixels a side; 0 = by the size of the images
    resize: int = 0  # pixels that both sides are brought to; 0 = as they are

    def __post_init__(self) -> None:
        check_range("patch", self.patch, 1 << 10)
        check_range("resize", self.resize, 1 << 14)


@dataclass
class ImageFacts:
    """Counts over the first images."""

    records: int = 0
    sizes: set[tuple[int, int]] = field(default_factory=set)
    channels: int = 1
    complete: bool = True

    def add(self, images: Sequence[Any]) -> None:
        """Count more images."""
        self.sizes |= {image.shape[:2] for image in images}
        self.channels = images[0].shape[2]
        self.records += len(images)
        self.complete = self.records < INSPECTED

    @property
    def description(self) -> str:
        """How many, how large, in words."""
        color = {1: "grey", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        height, width = (max(size[i] for size in self.sizes) for i in range(2))
        up_to = "" if len(self.sizes) == 1 else "up to "
        more = "" if self.complete else "more than "
        return f"{more}{self.records:,} of {up_to}{height} × {width} pixels, {color}"


class Images(Modality):
    """Images: files, folders of classes, arrays, or tables of paths."""

    name = "images"
    kind = "patches"
    words = ("image", "images")
    has_pictures = True
    array_axes = (3, 4)
    Config: ClassVar[type] = ImagesConfig

    def picture(self, item: Any) -> Picture:
        from regard.look.records import shrink_image

        return shrink_image(item)

    @classmethod
    def recognize(cls, files: Sequence[Path]) -> bool:
        from regard.modalities.images.files import holds_images

        return holds_images(files)

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        from regard.modalities.images.files import IMAGE_SUFFIXES

        return recognize_paths(sample, IMAGE_SUFFIXES, cls)

    @classmethod
    def parts(cls, folder: Path) -> dict[str, list[Path]]:
        from regard.modalities.images.files import published_parts

        return published_parts(folder)

    def read(self, request: ReadRequest) -> FileSet:
        from regard.modalities.images.files import Captions, ImageFiles

        reader = Captions if request.paired else ImageFiles
        options = {"strict": request.strict, "resize": self.config.resize}
        return reader(request.files, request.columns, **options)

    def items(self, path: Path, encoder: Any, *, strict: bool = True) -> Iterator[tuple[str, Any]]:
        from regard.modalities.images.files import unlabelled_images

        return unlabelled_images([path], encoder.channels, self.config.resize, strict=strict)

    def from_memory(self, values: list[Any], encoder: Any) -> list[Any]:
        from regard.modalities.images.files import images_in_memory

        return images_in_memory(values, encoder.channels, self.config.resize)

    def fit_encoder(self, items: Iterable[Any]) -> Patches:
        from regard.tokenizers.patches import Patches

        return Patches.train(items, patch=self.config.patch)

    def defaults(self, tables: Tables, source: FileSet, kind: OutputKind) -> list[str]:
        from regard.training.defaults import fill_split

        facts = inspect_images(chunk.texts for chunk in source.records())
        patches, length = choose_patches(tables["input"], facts)
        task = tables["task"]["name"]
        first = f"data: images ({source.why}), {facts.description} → task {task}, {patches}"
        fill_split(tables["data"], facts.records)
        return [first, size_image_model(tables, facts, length)]

    def pair_defaults(self, tables: Tables, source: FileSet) -> list[str]:
        captions = CaptionFacts()
        facts = inspect_images(captions.add(chunk) for chunk in source.records())
        patches, length = choose_patches(tables["input"], facts)
        tokens = choose_caption_tokenizer(tables["output"], captions)
        task = tables["task"]["name"]
        first = (
            f"data: images ({source.why}), {facts.description}, {captions.characters:,} "
            f"characters of captions → task {task}, {patches}, captions as {tokens}"
        )
        return [first, size_captioner(tables, facts, captions, length)]

    def report(self, sources: DataSource, why: str) -> Any:
        from regard.modalities.images.files import inspect_images

        return inspect_images(sources, why)


def inspect_images(batches: Iterable[Sequence[Any]]) -> ImageFacts:
    """Count over the first images."""
    facts = ImageFacts()
    for images in batches:
        facts.add(images)
        if not facts.complete:
            break
    return facts


def choose_patches(table: Tables, facts: ImageFacts) -> tuple[str, int]:
    """Fill in the side of patches; return what they are, and how many tokens that makes."""
    from regard.tokenizers.patches import default_patch

    why = "as asked" if table.get("patch") else "by their size"
    side = table["patch"] = table.get("patch") or default_patch(min(map(min, facts.sizes)))
    rows, columns = (max(-(-size[i] // side) for size in facts.sizes) for i in range(2))
    return f"{rows} × {columns} patches of {side} × {side} ({why})", rows * columns + 1


def _fill_image_shape(
    tables: Tables, fields: Any, facts: ImageFacts, length: int
) -> tuple[int, int, str]:
    """Fill in depth, width and dropout; return depth and width, and what they were chosen for, ""
    if they were given.
    """
    from regard.training.defaults import IMAGE_MODELS, default_shape, fill_shape, hardware

    shape = default_shape(IMAGE_MODELS, facts.records, facts.records * length, tables)
    given = fill_shape(tables["model"], {**fields, "dropout": None}, shape)
    reason = "" if given else f", for {facts.records:,} images and {hardware()}"
    return shape.n_layers, shape.d_model, reason


def _fill_augment(tables: Tables) -> str:
    """Fill in the augmentation unless one is given; return it in words."""
    from regard.training.defaults import AUGMENT_IMAGES

    augment = tables["augment"]
    if not any(key in augment for key in AUGMENT_IMAGES):
        augment |= AUGMENT_IMAGES
    augment.setdefault("name", "images")
    values = (f"{key} {augment[key]:g}" for key in AUGMENT_IMAGES if augment.get(key))
    return ", ".join(values) or "nothing"


def size_image_model(tables: Tables, facts: ImageFacts, length: int) -> str:
    """Fill in depth, width and training settings; return the line that says so."""
    from regard.training.defaults import IMAGE_MODELS, default_network, fill_batch

    model = tables["model"]
    name = default_network(IMAGE_MODELS, tables)
    fields = MODELS.get(name, tables["task"]["name"], Images.kind).Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    n_layers, d_model, reason = _fill_image_shape(tables, fields, facts, length)
    shape = f"{n_layers} × {d_model}{reason}" if reason else "as asked"
    augment = _fill_augment(tables)
    tokens = max(MIN_BATCH_TOKENS, BATCH_IMAGES * length)
    fill_batch(tables["train"], tokens, large=facts.records > 5_000)
    return f"model: {name} {shape}, {length} tokens each; images augmented by {augment}"


@dataclass
class CaptionFacts:
    """Counts over the first captions."""

    characters: int = 0
    spaces: int = 0
    longest: int = 0  # characters
    words: int = 0  # in the caption that has most

    def add(self, chunk: Any) -> Sequence[Any]:
        """Count the captions of a chunk; return its images."""
        for text in chunk.texts:
            self.characters += len(text)
            self.spaces += text.count(" ")
            self.longest = max(self.longest, len(text))
            self.words = max(self.words, text.count(" ") + 1)
        images: Sequence[Any] = chunk.sources
        return images


def choose_caption_tokenizer(table: Tables, facts: CaptionFacts) -> str:
    """Fill in the tokenizer of captions; return what and why."""
    why = "as asked"
    if table.get("tokenizer", "auto") == "auto":
        wordy = facts.spaces > WORDY * facts.characters
        subwords = wordy and facts.characters >= MIN_SUBWORD_CHARACTERS
        table["tokenizer"] = "bpe" if subwords else "words" if wordy else "characters"
        why = "parts of words" if subwords else "few words" if wordy else "no words"
    if table["tokenizer"] == "bpe" and not table.get("vocab_size"):
        size = facts.characters // CHARACTERS_PER_TOKEN // 8 * 8
        table["vocab_size"] = max(512, min(MAX_VOCAB, size))
    of = f" of {table['vocab_size']:,}" if table.get("vocab_size") else ""
    return f"{table['tokenizer']}{of} ({why})"


def size_captioner(tables: Tables, facts: ImageFacts, captions: CaptionFacts, length: int) -> str:
    """Fill in depth, width and training settings; return the line that says so."""
    from regard.recipe import TrainRecipe
    from regard.training.defaults import IMAGE_MODELS, default_network, has_gpu

    model, train, tokenizer = tables["model"], tables["train"], tables["output"]["tokenizer"]
    name = default_network(IMAGE_MODELS, tables)
    fields = MODELS.get(name, tables["task"]["name"], Images.kind).Config.__dataclass_fields__
    # punctuation is a word too
    longest = 2 * captions.words if tokenizer == "words" else captions.longest
    model.setdefault("max_len", max(16, min(512, -(-(longest + 2) // 16) * 16)))
    if "d_model" not in fields:
        return f"model: {name}: nothing to size"
    n_layers, d_model, reason = _fill_image_shape(tables, fields, facts, length)
    shape = f"{n_layers} + {n_layers} × {d_model}{reason}" if reason else "as asked"
    augment = _fill_augment(tables)
    if "batch_tokens" not in train:  # of captions, so that BATCH_IMAGES are read
        per_token = 1 if tokenizer in ("characters", "bytes") else 5
        each = captions.characters / max(1, facts.records) / per_token
        images = BATCH_IMAGES * (4 if has_gpu() and facts.records > 2_000 else 1)
        train["batch_tokens"] = max(64, round(images * (each + 1)))
    longest_pair = 2 * model["max_len"] + length
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, longest_pair))
    return (
        f"model: {name} {shape}, {length} patches an image, context {model['max_len']}; images "
        f"augmented by {augment}"
    )


@dataclass(frozen=True, kw_only=True)
class ImageAugmentConfig:
    """How images are changed at random; each number is the largest change in both directions."""

    name: str = "images"
    shift: float = 0.0  # share of a side
    rotate: float = 0.0  # degrees
    scale: float = 0.0  # share
    flip: bool = False  # mirror half of the images, left to right
    cutout: float = 0.0  # side of a covered square, as a share
    color_jitter: float = 0.0  # change of brightness and contrast of each channel

    def __post_init__(self) -> None:
        for key in ("shift", "scale", "cutout", "color_jitter"):
            check_fraction(key, getattr(self, key))
        if self.rotate < 0:
            raise ValueError(f"rotate must be at least 0, got {self.rotate}")


class ImageAugment(Augmentation):
    """Random changes of images, on the device."""

    Config: ClassVar[type] = ImageAugmentConfig
    kind = Images.kind

    def module(self, config: Any, *, aligned: bool) -> nn.Module | None:
        from regard.modalities.images.augmentation import RandomImageTransform

        return RandomImageTransform(
            self.config, config.patch, config.grid if config.uniform else None
        )
