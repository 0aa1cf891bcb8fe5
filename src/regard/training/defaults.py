"""Choosing for a user who gave pictures: patches, size, regularisation, and why.

Choosing for a user who gave pictures with captions: tokens of both, size, changes, and why.

Choosing for a user who gave pairs and nothing else: tokens, size, regularisation, and why.

Choosing for a user who gave point clouds: groups, size, regularisation, and why.

Choosing for a user who gave labelled records: tokens, size, regularisation, and why.

Choosing for a user whose records are to be filled in: tokens, size and context, and why.

Choosing for a user who wants word vectors: tokens, passes, learning rate, and why.

Choosing for a user who gave a file and nothing else: format, tokens, size, budget, and why.

Only what was not asked for is chosen. The rules are few and were set on validation data: characters
for small alphabets; a model whose size follows the data, since a small file is soon memorised;
dropout where it will be seen many times.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.data.captions import Captions
from regard.data.images import ImageFiles
from regard.data.labelled import LabelledFiles
from regard.data.pairs import Pairs, looks_paired
from regard.data.point_clouds import PointCloudFiles
from regard.data.readers import FileSet
from regard.data.report import suggest
from regard.data.sources import DataSource
from regard.data.targets import LABELLED
from regard.models.parameter_matching import Shape, suited
from regard.models.supervised import FittedModel
from regard.recipe import DataRecipe, TrainRecipe, check
from regard.registry import family
from regard.tokenizers.biology import AMBIGUOUS, GAP
from regard.tokenizers.patches import LARGE, SIDES
from regard.tokenizers.smiles import written_as_smiles

IMAGE_LOOKED = 20_000  # pictures looked at
# Up to so many pictures: (layers, width, dropout), on a CPU and on a GPU.
IMAGE_SIZES = (
    (500, (2, 64, 0.1), (2, 64, 0.1)),
    (5_000, (4, 64, 0.1), (4, 128, 0.1)),
    (50_000, (4, 96, 0.1), (6, 192, 0.1)),
    (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
)
# What pictures are changed by in training, where nothing is said: it helps wherever data are few,
# and mirrors nothing, since letters and digits are not what they are in a mirror.
IMAGE_CHANGES = {"shift": 0.1, "rotate": 10.0, "zoom": 0.1}
IMAGE_WHOLE = 2048  # tokens of a step, at least
IMAGE_MANY = 64  # pictures of a step, about


@dataclass
class ImageFacts:
    """What the first pictures are like."""

    records: int = 0
    sizes: set[tuple[int, int]] = field(default_factory=set)
    channels: int = 1
    whole: bool = True  # was that all?

    def add(self, images: Sequence[Any]) -> None:
        """Look at more."""
        self.sizes |= {image.shape[:2] for image in images}
        self.channels = images[0].shape[2]
        self.records += len(images)

    @property
    def least(self) -> int:
        """Pixels of the shortest side."""
        return min(min(size) for size in self.sizes)

    @property
    def shown(self) -> str:
        """Their size in words."""
        colour = {1: "grey", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        tall, wide = (max(size[i] for size in self.sizes) for i in range(2))
        return f"{'' if len(self.sizes) == 1 else 'up to '}{tall} × {wide} pixels, {colour}"


def inspect_images(source: ImageFiles) -> ImageFacts:
    """The first pictures."""
    seen = ImageFacts()
    for chunk in source.examples():
        seen.add(chunk.texts)
        if seen.records >= IMAGE_LOOKED:
            seen.whole = False
            break
    return seen


def choose_images(result: dict[str, Any], source: ImageFiles) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    seen = inspect_images(source)
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    tokens["kind"] = "patches"
    patches, length = cut(tokens, seen)
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown} → task {result['task']}, {patches}"
    )
    return result, [first, size_image_model(model, train, result["task"], seen, length)]


def cut(tokens: dict[str, Any], seen: ImageFacts) -> tuple[str, int]:
    """Fill in the side of patches where it is open; what they are, and how many tokens that is."""
    why = "as asked" if tokens.get("patch") else "by their size"
    side = next((own for most, own in SIDES if seen.least <= most), LARGE)
    side = tokens["patch"] = tokens.get("patch") or side
    rows, columns = (max(-(-size[i] // side) for size in seen.sizes) for i in range(2))
    return f"{rows} × {columns} patches of {side} × {side} ({why})", rows * columns + 1


def where() -> str:
    """What it will be trained on, in words."""
    return "a GPU" if torch.cuda.is_available() else f"{os.cpu_count() or 1} CPU cores"


def sized(model: dict[str, Any], seen: ImageFacts) -> tuple[int, int, str]:
    """Fill in depth, width and dropout where they are open: layers, width, and what they are for;
    nothing where they were asked for.
    """
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in IMAGE_SIZES if seen.records < most)
    n_layers, d_model, dropout = large if torch.cuda.is_available() else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    model.setdefault("dropout", dropout)
    return n_layers, d_model, "" if given else f", for {seen.records:,} images and {where()}"


def size_image_model(
    model: dict[str, Any], train: dict[str, Any], task: str, seen: ImageFacts, length: int
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name = model["name"]
    fields = family(name, task, "patches").Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    n_layers, d_model, words = sized(model, seen)
    shape = f"{n_layers} × {d_model}{words}" if words else "as asked"
    if task == "label":
        train.setdefault("label_smoothing", 0.1)
    if not any(key in train for key in IMAGE_CHANGES):
        train |= IMAGE_CHANGES
    tokens = max(IMAGE_WHOLE, IMAGE_MANY * length)
    if "batch_tokens" not in train:
        many = torch.cuda.is_available() and seen.records > 5_000
        train["batch_tokens"] = tokens * (4 if many else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
    changed = ", ".join(f"{key} {train[key]:g}" for key in IMAGE_CHANGES if train.get(key))
    return f"model: {name} {shape}, {length} tokens each; images changed by {changed or 'nothing'}"


CAPTION_WORDY = 0.08  # spaces per character from which captions have words,
CAPTION_LEAST = 20_000  # and characters from which parts of words can be learned
CAPTION_PER_TOKEN = (
    40  # characters for one token of the vocabulary: captions are short, and words few
)
LARGEST = 8_000  # tokens


@dataclass
class CaptionFacts:
    """What the first captions are like."""

    characters: int = 0
    spaces: int = 0
    longest: int = 0  # characters
    words: int = 0  # of the one that has most


def inspect_captions(source: Captions) -> tuple[ImageFacts, CaptionFacts]:
    """The first pictures and what is said of them."""
    seen, said = ImageFacts(), CaptionFacts()
    for chunk in source.examples():
        seen.add(chunk.sources)
        for text in chunk.texts:
            said.characters += len(text)
            said.spaces += text.count(" ")
            said.longest = max(said.longest, len(text))
            said.words = max(said.words, text.count(" ") + 1)
        if seen.records >= IMAGE_LOOKED:
            seen.whole = False
            break
    return seen, said


def choose_captions(result: dict[str, Any], source: Captions) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    seen, said = inspect_captions(source)
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    tokens["source"] = "patches"
    patches, length = cut(tokens, seen)
    text = choose_caption_tokens(tokens, said)
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown}, {said.characters:,} characters of captions → task "
        f"target, {patches}, captions as {text}"
    )
    return result, [first, size_captioner(model, train, tokens["kind"], seen, said, length)]


def choose_caption_tokens(tokens: dict[str, Any], said: CaptionFacts) -> str:
    """Fill in kind and size of the captions' tokens where they are open; what, and why."""
    why = "as asked"
    if tokens.get("kind", "auto") == "auto":
        wordy = said.spaces > CAPTION_WORDY * said.characters
        parts = wordy and said.characters >= CAPTION_LEAST
        tokens["kind"] = "bpe" if parts else "words" if wordy else "characters"
        why = "parts of words" if parts else "few words" if wordy else "no words"
    if tokens["kind"] == "bpe" and not tokens.get("size"):
        tokens["size"] = max(512, min(LARGEST, said.characters // CAPTION_PER_TOKEN // 8 * 8))
    of = f" of {tokens['size']:,}" if tokens.get("size") else ""
    return f"{tokens['kind']}{of} ({why})"


def size_captioner(
    model: dict[str, Any],
    train: dict[str, Any],
    kind: str,
    seen: ImageFacts,
    said: CaptionFacts,
    length: int,
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so.
    Pictures have `length` tokens.
    """
    model.setdefault("name", "transformer")
    name = model["name"]
    fields = family(name, "target", "patches").Config.__dataclass_fields__
    longest = 2 * said.words if kind == "words" else said.longest  # punctuation is a word too
    model.setdefault("max_len", max(16, min(512, -(-(longest + 2) // 16) * 16)))
    if "d_model" not in fields:
        return f"model: {name}: nothing to size"
    n_layers, d_model, words = sized(model, seen)
    shape = f"{n_layers} + {n_layers} × {d_model}{words}" if words else "as asked"
    train.setdefault("label_smoothing", 0.1)
    train.setdefault("average", 5)
    if not any(key in train for key in IMAGE_CHANGES):
        train |= IMAGE_CHANGES
    each = said.characters / max(1, seen.records) / {"characters": 1, "bytes": 1}.get(kind, 5)
    if "batch_tokens" not in train:  # of captions, so that MANY pictures are seen
        many = IMAGE_MANY * (4 if where() == "a GPU" and seen.records > 2_000 else 1)
        train["batch_tokens"] = max(64, round(many * (each + 1)))
    longer = 2 * model["max_len"] + length
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, longer))
    changed = ", ".join(f"{key} {train[key]:g}" for key in IMAGE_CHANGES if train.get(key))
    return (
        f"model: {name} {shape}, {length} patches to look at, context {model['max_len']}; pictures "
        f"changed by {changed or 'nothing'}, label smoothing {train['label_smoothing']:g}"
    )


PAIR_SAMPLE = 4_000_000  # characters looked at, of both sides
PAIR_WORDY = 0.08  # spaces per character from which a text has words,
PAIR_LEAST = 300_000  # and characters of both sides from which subwords can be learned
PAIR_PER_TOKEN = 400  # characters of both sides for one token of the vocabulary
# Up to so many characters of both sides: (layers of each stack, width, dropout), CPU and GPU.
PAIR_SIZES = (
    (1_500_000, (2, 128, 0.1), (3, 192, 0.1)),
    (12_000_000, (3, 192, 0.1), (4, 256, 0.3)),
    (100_000_000, (4, 256, 0.1), (6, 512, 0.2)),
    (math.inf, (4, 256, 0.0), (6, 512, 0.1)),
)


@dataclass
class PairFacts:
    """What the first pairs are like."""

    pairs: int = 0
    characters: int = 0
    spaces: int = 0
    longest: int = 0  # characters of a side
    whole: bool = True  # was that all?


def choose_pairs(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    pairs = DataSource(data, "target").train
    if isinstance(pairs, Captions):
        return choose_captions(result, pairs)
    assert isinstance(pairs, Pairs)
    seen = inspect_pairs(pairs)
    total = seen.characters
    if not seen.whole:
        total = max(
            total, round(pairs.size * (3 if ".gz" in pairs.files[0].suffixes else 1) / 1.05)
        )
    count = round(seen.pairs * total / max(1, seen.characters))
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = pairs.format
    said = choose_pair_tokens(tokens, seen, total)
    why = looks_paired(pairs.files) or pairs.why
    first = (
        f"data: pairs ({why}), about {count:,} of them, {total:,} characters → task target, {said}"
    )
    second = size_translator(model, tokens["kind"], seen, total)
    if "dropout" in model:  # it learns by gradients
        train.setdefault("label_smoothing", 0.1)
        train.setdefault("average", 5)
        second += f", label smoothing {train['label_smoothing']:g}"
    return result, [first, second]


def inspect_pairs(pairs: Pairs) -> PairFacts:
    """The first pairs, counted."""
    seen = PairFacts()
    for chunk in pairs.records():
        for texts in (chunk.texts, chunk.sources):
            assert texts is not None
            seen.characters += sum(map(len, texts))
            seen.spaces += sum(text.count(" ") for text in texts)
            seen.longest = max(seen.longest, max(map(len, texts)))
        seen.pairs += len(chunk)
        if seen.characters > PAIR_SAMPLE:
            seen.whole = False
            break
    return seen


def choose_pair_tokens(tokens: dict[str, Any], seen: PairFacts, total: int) -> str:
    """Fill in kind and size where they are open; what they are, and why."""
    why = "as asked"
    if tokens.get("kind", "auto") == "auto":
        wordy = seen.spaces > PAIR_WORDY * seen.characters and total >= PAIR_LEAST
        long = seen.longest > 200
        tokens["kind"] = "bpe" if wordy or (long and total >= PAIR_LEAST) else "characters"
        why = "sentences of words" if tokens["kind"] == "bpe" else "short, or few"
    if tokens["kind"] == "bpe" and not tokens.get("size"):
        tokens["size"] = max(512, min(32_000, total // PAIR_PER_TOKEN // 8 * 8))
    of = f" of {tokens['size']:,}" if tokens.get("size") else ""
    sides = "for both sides" if tokens.get("joint", True) else "for each side"
    return f"{tokens['kind']}{of} {sides} ({why})"


def size_translator(model: dict[str, Any], kind: str, seen: PairFacts, total: int) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, "target").Config.__dataclass_fields__
    if "max_len" in fields and "max_len" not in model:
        longest = seen.longest + 1 if kind == "characters" else seen.longest // 2
        model["max_len"] = max(64, min(512, -(-longest // 16) * 16))
    if "d_model" not in fields:
        return f"model: {name}: counts; nothing to size"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in PAIR_SIZES if total < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    if "dropout" in fields:
        model.setdefault("dropout", dropout)
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = f"{n_layers} + {n_layers} × {d_model}, sized for {total:,} characters and {where}"
    sized = "as asked" if given else sized
    return f"model: {name} {sized}, context {model['max_len']}"


POINT_LOOKED = 5_000  # clouds looked at
FEW = 64  # points up to which each is a token
SAMPLES, NEIGHBOURS = 32, 16  # of larger clouds
# Up to so many clouds: (layers, width, dropout), on a CPU and on a GPU.
POINT_SIZES = (
    (500, (2, 64, 0.1), (2, 64, 0.1)),
    (5_000, (3, 64, 0.05), (4, 128, 0.1)),
    (50_000, (4, 96, 0.0), (6, 192, 0.1)),
    (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
)
# What clouds are changed by in training, where nothing is said; molecules by nothing. Turning those
# of space is left to a model that does not see it.
POINT_CHANGES = {"rotate": 0.0, "zoom": 0.1, "jitter": 0.01, "drop": 0.2}
FLAT = {"rotate": 10.0, "zoom": 0.1, "jitter": 0.01, "drop": 0.2}  # those of two dimensions
POINT_WHOLE = 2048  # tokens of a step, at least
POINT_MANY = 32  # clouds of a step, about


@dataclass
class PointCloudFacts:
    """What the first clouds are like."""

    records: int = 0
    counts: list[int] = field(default_factory=list)
    dimensions: int = 3
    features: int = 0
    atoms: bool = False
    whole: bool = True  # was that all?

    @property
    def shown(self) -> str:
        """Their size in words."""
        least, most = min(self.counts), max(self.counts)
        many = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        return f"{many} {'atoms' if self.atoms else 'points'} in {self.dimensions} dimensions"


def inspect_points(source: PointCloudFiles) -> PointCloudFacts:
    """The first clouds."""
    seen = PointCloudFacts()
    for chunk in source.examples():
        clouds: Any = chunk.texts
        seen.counts += [len(cloud) for cloud in clouds]
        seen.dimensions, seen.atoms = clouds[0].points.shape[1], len(clouds[0].atoms) > 0
        seen.features = clouds[0].features.shape[1]
        seen.records += len(clouds)
        if seen.records >= POINT_LOOKED:
            seen.whole = False
            break
    return seen


def choose_points(
    result: dict[str, Any], source: PointCloudFiles
) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    seen, task = inspect_points(source), result["task"]
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    tokens["kind"] = "points"
    most = max(seen.counts)
    each = seen.atoms or most <= FEW or task == "position-label"
    why = "as asked" if tokens.get("samples") or tokens.get("neighbours") else "by their size"
    tokens.setdefault("samples", 0 if each else SAMPLES)
    tokens.setdefault("neighbours", 1 if seen.atoms else min(NEIGHBOURS, most))
    length = 1 + min(tokens["samples"] or most, most)
    told = f"{length - 1} of them are" if tokens["samples"] else "each is"
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown} → task {task}, {told} a token with "
        f"{tokens['neighbours']} neighbours, itself included ({why})"
    )
    second = size_point_model(model, train, task, seen, length)
    return result, [first, second]


def size_point_model(
    model: dict[str, Any], train: dict[str, Any], task: str, seen: PointCloudFacts, length: int
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, task, "points").Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in POINT_SIZES if seen.records < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    if seen.dimensions == 3 and not train.get("rotate"):
        model.setdefault("preset", "molecule" if seen.atoms else "invariant")
    if seen.atoms:
        dropout = 0.0
        if task != "value" and model.get("preset") == "molecule":
            model.setdefault("pooling", "mean")
    model.setdefault("dropout", dropout)
    if task == "label":
        train.setdefault("label_smoothing", 0.1)
    usual = {} if seen.atoms else POINT_CHANGES if seen.dimensions == 3 else FLAT
    if not any(key in train for key in POINT_CHANGES):
        train |= {key: x for key, x in usual.items() if key != "drop" or task != "position-label"}
    tokens = max(POINT_WHOLE, POINT_MANY * length)
    if "batch_tokens" not in train:
        train["batch_tokens"] = tokens * (4 if gpu and seen.records > 5_000 else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = (
        "as asked" if given else f"{n_layers} × {d_model}, for {seen.records:,} clouds and {where}"
    )
    turned = "" if model.get("preset", "modern") == "modern" else ", which sees no rotation"
    changed = ", ".join(f"{key} {train[key]:g}" for key in POINT_CHANGES if train.get(key))
    return (
        f"model: {name} {sized}{turned}, at most {length} tokens each; clouds changed by "
        f"{changed or 'nothing'}"
    )


LABELLED_SAMPLE = 2_000_000  # characters looked at
LABELLED_WORDY = 0.08  # spaces per character from which a text has words
BASES, RARE = "ACGTU", 0.05  # letters of DNA and RNA, and how much else may be among them
FIRST, MOLECULES = 200, 10  # records tried as SMILES, and how many there must be
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
# Up to so many records: (layers, width, dropout), on a CPU and on a GPU.
LABELLED_SIZES = (
    (500, (1, 64, 0.3), (1, 64, 0.3)),
    (5_000, (2, 96, 0.3), (2, 128, 0.3)),
    (50_000, (2, 128, 0.3), (4, 256, 0.3)),
    (math.inf, (4, 192, 0.1), (6, 384, 0.2)),
)


@dataclass
class LabelledFacts:
    """What the first records are like."""

    records: int = 0
    characters: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    words: int = 0  # of the longest
    whole: bool = True  # was that all?
    first: list[str] = field(default_factory=list)  # a few of them

    @property
    def total(self) -> int:
        """Characters."""
        return sum(self.characters.values())

    @property
    def molecules(self) -> bool:
        """Are the first records SMILES, and more than chains of a few letters?"""
        if len(self.first) < MOLECULES or not any(set("=#()[") & set(text) for text in self.first):
            return False
        read = sum(map(written_as_smiles, self.first))
        return read >= (1 - RARE) * len(self.first)

    def share(self, letters: str) -> float:
        """Of the characters, those that are among these letters or the same in lower case."""
        found = sum(n for c, n in self.characters.items() if c.upper() in letters)
        return found / max(1, self.total)


def choose_labelled(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    source = DataSource(data, result["task"]).train
    if isinstance(source, ImageFiles):
        return choose_images(result, source)
    if isinstance(source, PointCloudFiles):
        return choose_points(result, source)
    assert isinstance(source, LabelledFiles)
    seen = inspect_labelled(source)
    count = seen.records
    if not seen.whole:
        count = max(count, round(source.size / max(1, seen.total) * seen.records))
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    why = choose_labelled_tokens(
        tokens, seen, smiles=source.format == "smi" or "smiles" in data.input.lower()
    )
    first = (
        f"data: {source.format} ({source.why}), about {count:,} records → task {result['task']}, "
        f"{tokens['kind']} ({why})"
    )
    second = size_assessor(model, result["task"], tokens["kind"], seen, count)
    if result["task"] == "label":
        train.setdefault("label_smoothing", 0.1)
    return result, [first, second]


def inspect_labelled(source: FileSet) -> LabelledFacts:
    """The first records, counted."""
    seen = LabelledFacts()
    for chunk in source.records():
        for text, more in zip(chunk.texts, chunk.sources or [""] * len(chunk.texts), strict=True):
            both = text + (" " + more if more else "")
            seen.characters.update(both)
            seen.longest = max(seen.longest, len(both))
            seen.words = max(seen.words, both.count(" ") + 1)
        seen.records += len(chunk.texts)
        seen.first += chunk.texts[: FIRST - len(seen.first)]
        if seen.total > LABELLED_SAMPLE:
            seen.whole = False
            break
    return seen


def choose_labelled_tokens(tokens: dict[str, Any], seen: LabelledFacts, *, smiles: bool) -> str:
    """Fill in the kind where it is open; why it is that."""
    if tokens.get("kind", "auto") != "auto":
        return "as asked"
    spaces = seen.characters[" "] / max(1, seen.total)
    kind, why = "characters", f"an alphabet of {len(seen.characters)} characters"
    if smiles:
        kind, why = "smiles", "the column says so"
    elif seen.molecules:
        kind, why = "smiles", "the texts are SMILES of molecules"
    elif spaces > LABELLED_WORDY:
        kind, why = "words", "text of words"
    elif seen.share(BASES) > 1 - RARE and seen.share(BASES + AMBIGUOUS + GAP) == 1:
        kind, why = "nucleotides", "all letters are of DNA or RNA"
    elif seen.share(RESIDUES) > 1 - RARE and len(seen.characters) > len(BASES):
        kind, why = "residues", "nearly all letters are amino acids"
    tokens["kind"] = kind
    return why


def size_assessor(
    model: dict[str, Any], task: str, kind: str, seen: LabelledFacts, records: int
) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, task).Config.__dataclass_fields__
    if "max_len" not in model:
        longest = 2 * seen.words if kind == "words" else seen.longest  # punctuation is a word too
        model["max_len"] = max(16, min(1024, -(-(longest + 3) // 16) * 16))
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go, context {model['max_len']}"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in LABELLED_SIZES if records < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    if "dropout" in fields:
        model.setdefault("dropout", dropout)
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = "as asked" if given else f"{n_layers} × {d_model}, for {records:,} records and {where}"
    return f"model: {name} {sized}, context {model['max_len']}"


RECORD = 200  # characters of running text that count as a record
CONTEXT = {False: 128, True: 512}  # tokens read at once of running text, on a CPU and on a GPU


def choose_masked(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    source = DataSource(data, "masked").train
    running = source.format == "text"
    seen = look_at_text(source) if running else inspect_labelled(source)
    count = seen.records
    if not seen.whole:
        count = max(count, round(source.size / max(1, seen.total) * seen.records))
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    smiles = source.format == "smi" or "smiles" in data.input.lower()
    why = choose_labelled_tokens(tokens, seen, smiles=smiles)
    what = f"about {seen.total:,} characters" if running else f"about {count:,} records"
    first = f"data: {source.format} ({source.why}), {what} → task masked, {tokens['kind']} ({why})"
    if running:
        model.setdefault("max_len", CONTEXT[torch.cuda.is_available()])
    return result, [first, size_assessor(model, "masked", tokens["kind"], seen, count)]


def look_at_text(source: FileSet) -> LabelledFacts:
    """The beginning of running text, counted as records of usual length."""
    seen = LabelledFacts()
    for text in source.text():
        seen.characters.update(text)
        if seen.total > LABELLED_SAMPLE:
            seen.whole = False
            break
    seen.records = max(1, seen.total // RECORD)
    return seen


WIDTH = 100  # of a vector, as gensim's; `regard lab dimensions` shows what more would give
ENOUGH = 40_000_000  # words that are read in all, ...
PASSES = 5, 50  # ... in at least and at most so many passes
EVERY_WORD = 1 << 20  # words that a vocabulary may hold: model.min_count leaves the rare ones out
STEP, VECTOR_LEAST = (
    1 << 16,
    1 << 11,
)  # tokens between two mergings, of large files and of small ones
MERGINGS = 20  # in a pass over a small file
# Skip-gram's is the authors'. CBOW's steps go down the exact gradient of a mean, and so must be
# longer; this was the best of 0.025, 0.075 and 0.15 on WikiText-2.
RATES = {"skipgram": 0.025, "cbow": 0.15}
SEPARATED = 6  # characters of a word and the space after it, about


def choose_vectors(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    source = DataSource(data, "vectors").train
    seen = look_at_text(source) if source.format == "text" else inspect_labelled(source)
    total = seen.total if seen.whole else max(seen.total, source.size)
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    smiles = source.format == "smi" or "smiles" in data.input.lower()
    why = choose_labelled_tokens(tokens, seen, smiles=smiles)
    if tokens["kind"] == "nucleotides" and why != "as asked":
        tokens["kind"], why = "kmers", "words of bases: four letters alone have little to say"
    if tokens["kind"] == "words":
        tokens.setdefault("size", EVERY_WORD)
    name = model.setdefault("name", "skipgram")
    words = max(1, total // (SEPARATED if tokens["kind"] in ("words", "bpe") else 1))
    width = model.setdefault("d_model", 64 * model["size"] if "size" in model else WIDTH)
    train.setdefault("lr", RATES[name])
    train.setdefault("warmup", 0.0)
    train.setdefault("batch_tokens", min(STEP, max(VECTOR_LEAST, words // MERGINGS)))
    first = (
        f"data: {source.format} ({source.why}), about {total:,} characters → task vectors, "
        f"{tokens['kind']} ({why})"
    )
    return result, [first, f"model: {name} of {width} numbers, {passes(model, train, words)}"]


def passes(model: dict[str, Any], train: Mapping[str, Any], words: int) -> str:
    """Fill in how many passes where it is open; in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if model.get("epochs"):
        return f"{model['epochs']:,} passes, as asked"
    if train.get("minutes"):
        return f"{train['minutes']:g} minutes, as asked"
    least, most = PASSES
    model["epochs"] = min(most, max(least, round(ENOUGH / words)))
    return f"{model['epochs']} passes over about {words:,} words (model.epochs changes that)"


SAMPLE = 4_000_000  # characters looked at
# Up to so many characters: (layers, width, dropout) on a CPU, and on a GPU. A small file is seen
# many times in minutes, and what would be memorised must be kept small and disturbed.
SIZES = (
    (20_000, (2, 64, 0.2), (2, 64, 0.2)),
    (100_000, (3, 64, 0.2), (3, 64, 0.2)),
    (400_000, (8, 64, 0.25), (8, 64, 0.25)),
    (3_000_000, (4, 128, 0.1), (6, 384, 0.2)),
    (30_000_000, (5, 192, 0.0), (8, 512, 0.1)),
    (math.inf, (6, 256, 0.0), (12, 768, 0.0)),
)
STATES = 64  # of a hidden Markov model: more gain little on small files and cost their square


def choose(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    if values.get("task") == "vectors":
        return choose_vectors(values)
    if values.get("task") in ("target", "masked", *LABELLED):
        own = {"target": choose_pairs, "masked": choose_masked}
        chosen, lines = own.get(values["task"], choose_labelled)(values)
        kind = chosen["tokens"].get("source") or chosen["tokens"]["kind"]
        if issubclass(family(chosen["model"]["name"], chosen["task"], kind), FittedModel):
            return chosen, lines
        return chosen, [lines[0], f"{lines[1]}, {budget(chosen['train'])}"]
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    sources = DataSource(data)
    source = sources.train
    lengths, characters = sample(sources)
    seen = sum(lengths)
    spaces = characters.get(" ", 0) / max(1, seen)
    total = estimate(sources, seen, characters)
    result.setdefault("data", {})["format"] = source.format
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    hint = suggest(total, len(characters), spaces)
    if tokens.get("kind", "auto") == "auto":
        tokens["kind"] = hint.tokens
        why = hint.why.partition(";")[0]
    else:
        why = "as asked"
    model.setdefault("name", "transformer")
    longest = max(lengths, default=1) + 1
    first = (
        f"data: {source.format} ({source.why}), about {total:,} characters of "
        f"{len(characters)} kinds → task next, {tokens['kind']} ({why})"
    )
    second = size_model(model, source.format == "text", total, longest, tokens["kind"])
    if {"d_model", "n_states"} & set(family(model["name"]).Config.__dataclass_fields__):
        second += f", {budget(result.get('train', {}))}"
    return result, [first, second]


def budget(train: Mapping[str, Any]) -> str:
    """How long it will train, in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if train.get("minutes"):
        return f"{train['minutes']:g} minutes, as asked"
    return f"{TrainRecipe().minutes:g} minutes (--minutes changes that)"


def sample(sources: DataSource) -> tuple[list[int], dict[str, int]]:
    """Lengths of the first records (or stretches of text), and how often each character occurs."""
    lengths: list[int] = []
    counts: dict[str, int] = {}
    taken = 0
    source = sources.train
    texts = (
        source.text() if source.format == "text" else (t for c in source.records() for t in c.texts)
    )
    for text in texts:
        text = text[: SAMPLE - taken]
        for character in set(text) if len(text) < 64 else sorted(set(text)):
            counts[character] = counts.get(character, 0) + text.count(character)
        lengths.append(len(text))
        taken += len(text)
        if taken >= SAMPLE:
            break
    return lengths, counts


def estimate(sources: DataSource, seen: int, characters: Mapping[str, int]) -> int:
    """About how many characters: exact for what was read whole, else from bytes on disk."""
    if seen < SAMPLE:
        return seen
    size = sum(len(c.encode("utf-8", "replace")) * n for c, n in characters.items())
    packed = 3 if any(Path(f).suffix == ".gz" for f in sources.train.files) else 1
    return max(seen, int(sources.train.size * packed * seen / size))


def size_model(model: dict[str, Any], text: bool, total: int, longest: int, kind: str) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    name = model["name"]
    fields = family(name).Config.__dataclass_fields__
    gpu = torch.cuda.is_available()
    if "max_len" in fields and "max_len" not in model:
        most = 1024 if gpu else 256
        longest = 4 * longest if kind == "bytes" else longest  # a character is at most four bytes
        model["max_len"] = most if text else max(16, min(most, -(-longest // 16) * 16))
    if "n_states" in fields:
        if "size" not in model:
            model.setdefault("n_states", STATES)
        sized = f"of {model['n_states']} states" if "n_states" in model else "as asked"
        return f"model: {name} {sized}, passes until nothing is gained"
    if "alpha" in fields:
        order = "as asked" if model.get("order") else "by held-out likelihood"
        alpha = "as asked" if model.get("alpha", -1) >= 0 else "by evidence"
        return f"model: {name}: counts, exactly; order {order}, strength of the priors {alpha}"
    if "d_model" not in fields:
        return f"model: {name}: counts, exactly; nothing to size"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    own = suited(name, Shape(*shape(total, gpu)), model["max_len"])
    if not given:
        model["n_layers"], model["d_model"] = own.n_layers, own.d_model
    model.setdefault("dropout", own.dropout)
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = f"{own.n_layers} × {own.d_model}, sized for {total:,} characters and {where}"
    sized = "as asked" if given else sized
    return f"model: {name} {sized}, context {model['max_len']}, dropout {model['dropout']:g}"


def shape(total: int, gpu: bool) -> tuple[int, int, float]:
    """Layers, width and dropout for so many characters; a GPU affords more once there is data."""
    for most, small, large in SIZES:
        if total < most:
            return large if gpu else small
    raise AssertionError("the last border is infinite")
