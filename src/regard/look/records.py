"""Single records on pages: how an item is drawn, the text it was read from, and its true target.

`register_picture(TokenizerClass)` adds how the items of a modality are drawn.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import FOLDER, MANIFEST, reopen
from regard.data.shards import Shard
from regard.data.sources import DataSource, SourceChunk
from regard.errors import UserError
from regard.look.page.document import cell, encode_bytes, numbers
from regard.look.page.records import Picture, ShownRecord
from regard.pipelines.predictor import Predictor
from regard.recipe import SPLITS
from regard.tokenizers import Patches, Points, Tokenizer
from regard.tokenizers.biology import AlphabetTokenizer
from regard.tokenizers.spans import token_spans
from regard.tokenizers.step_patches import StepPatches

MOST_READ = 64 << 20  # bytes of the files that are read once more for the texts of records
MOST_LISTED = 300  # records of one list
MOST_BYTES = 500_000  # of their pictures
MOST_PIXELS = 64  # of a side of a small image
MOST_POINTS = 256  # of a small point cloud
MOST_STEPS = 200  # of a small series
MOST_CHANNELS = 3
CONTEXT = 8  # tokens before and after a position that are quoted

DrawPicture = Callable[[Any, NDArray[Any], str], Picture]  # of a tokenizer, a record and its text
PICTURES: dict[type[Any], DrawPicture] = {}


def register_picture(*tokenizers: type[Any]) -> Callable[[DrawPicture], DrawPicture]:
    """Register how an item is drawn small, by the class of its tokenizer."""

    def register(draw: DrawPicture) -> DrawPicture:
        PICTURES.update(dict.fromkeys(tokenizers, draw))
        return draw

    return register


def draw_picture(tokenizer: Tokenizer, record: NDArray[Any], text: str = "") -> Picture:
    """Return how the item of a record is drawn; `text` is what it was read from, if known."""
    for cls in type(tokenizer).__mro__:
        if cls in PICTURES:
            return PICTURES[cls](tokenizer, record, text)
    return {"text": text or tokenizer.decode_record(record)}


def mark_position(tokenizer: Tokenizer, record: NDArray[Any], position: int) -> str:
    """Return the text of a record around a position, whose token stands in brackets."""
    left, token, right = split_at(tokenizer, record, position, CONTEXT)
    return f"{left}[{token}]{right}"


def split_at(
    tokenizer: Tokenizer, record: NDArray[Any], position: int, context: int = 0
) -> tuple[str, str, str]:
    """Return the text of a record before a position, at it and after it, without markers; of at
    most `context` tokens on both sides, all if it is 0.
    """
    before, after = tokenizer.markers
    has_end = after and record[-1] == tokenizer.end  # records of features have none
    ids = record[: len(record) - after] if has_end else record
    if after and record[0] != tokenizer.start:  # blocks of a text have none
        before = 0
    first = max(before, position - context) if context else before
    ids = ids[first : position + 1 + context if context else len(ids)]
    at = position - first
    if not tokenizer.reads_text:  # features, which have no places in a text
        left, token, right = map(tokenizer.decode, (ids[:at], ids[at : at + 1], ids[at + 1 :]))
        return left, token, right
    text = tokenizer.decode(ids)
    start, stop = token_spans(text, ids, tokenizer)[at].tolist()
    start += len(text[start:stop]) - len(text[start:stop].lstrip() or text[start:stop])
    return text[:start], text[start:stop], text[stop:]


def has_picture(tokenizer: Tokenizer) -> bool:
    """Return whether the items of a tokenizer are drawn in a way of their own."""
    return any(cls in PICTURES for cls in type(tokenizer).__mro__)


@register_picture(AlphabetTokenizer)
def draw_letters(tokenizer: AlphabetTokenizer, record: NDArray[Any], text: str) -> Picture:
    return {"text": text or tokenizer.decode_record(record), "mono": True}


@register_picture(Patches)
def draw_image(tokenizer: Patches, record: NDArray[Any], text: str) -> Picture:
    return shrink_image(tokenizer.decode_record(record))


def shrink_image(image: NDArray[np.uint8]) -> Picture:
    """Return an image (H, W, C) as a small one, the mean of blocks of pixels."""
    image = displayable(image)
    step = -(-max(image.shape[:2]) // MOST_PIXELS)
    rows, columns = (n // step * step for n in image.shape[:2])
    blocks = image[:rows, :columns].reshape(rows // step, step, columns // step, step, -1)
    small = blocks.mean((1, 3)).round().astype(np.uint8)
    return {"pixels": encode_bytes(small), "size": list(small.shape)}


def displayable(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of 1 or 3 channels; others are averaged."""
    if image.shape[2] in (1, 3):
        return image
    return np.repeat(image.mean(2, keepdims=True).astype(np.uint8), 1, axis=2)


@register_picture(Points)
def draw_cloud(tokenizer: Points, record: NDArray[Any], text: str) -> Picture:
    return thin_cloud(tokenizer.decode_cloud(np.asarray(record)).points)


def thin_cloud(points: NDArray[Any]) -> Picture:
    """Return some of the points (N, d), in space."""
    points = points[:: -(-len(points) // MOST_POINTS)]
    spatial = np.zeros((len(points), 3))
    spatial[:, : min(3, points.shape[1])] = points[:, :3]
    return {"points": np.round(spatial, 3).tolist()}


@register_picture(StepPatches)
def draw_series(tokenizer: StepPatches, record: NDArray[Any], text: str) -> Picture:
    return thin_series(tokenizer.decode_record(np.asarray(record)))


def thin_series(values: NDArray[Any]) -> Picture:
    """Return some steps of some channels of a series (T, C)."""
    values = values[:: -(-len(values) // MOST_STEPS), :MOST_CHANNELS]
    return {"curves": [numbers(np.round(row, 4)) for row in values.T]}


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a split that a page shows; numbers are those without views."""

    predictor: Predictor
    split: str
    shard: Shard

    def row(self, number: int) -> NDArray[Any]:
        """Return the stored record, in its first view."""
        return np.asarray(self.shard.record(number * self.shard.views))

    def pictures(self, chosen: Sequence[int]) -> Iterator[Picture]:
        """Yield how records are drawn."""
        tokenizer = self.predictor.tokenizer
        for one, text in zip(chosen, self.texts(chosen), strict=True):
            yield draw_picture(tokenizer, self.row(one), text)

    @cached_property
    def originals(self) -> dict[int, str]:
        """The texts of all records as they are in the files."""
        return read_texts(self) if self.predictor.tokenizer.reads_text else {}

    def texts(self, chosen: Sequence[int]) -> list[str]:
        """Return the texts that records were read from; where the files are gone, what their
        tokens say; "" for other items.
        """
        tokenizer = self.predictor.tokenizer
        if not tokenizer.reads_text:
            return [""] * len(chosen)
        second, originals = self.shard.source, self.originals
        texts = []
        for one in chosen:
            text = originals.get(one) or tokenizer.decode_record(self.row(one))
            if second is not None and one not in originals:
                other = np.asarray(second.record(one * self.shard.views))
                text += f" | {tokenizer.decode_record(other)}"
            texts.append(text)
        return texts

    def list_examples(
        self, chosen: Sequence[int], describe: Callable[[int, Picture], ShownRecord]
    ) -> list[ShownRecord]:
        """Return the first of these records as examples, as many as a page should hold."""
        chosen, size, examples = list(chosen)[:MOST_LISTED], 0, list[ShownRecord]()
        for one, picture in zip(chosen, self.pictures(chosen), strict=True):
            size += len(json.dumps(picture))
            if size > MOST_BYTES:
                break
            examples.append(describe(one, picture))
        return examples


@dataclass(frozen=True)
class FileRecord:
    """A record as it is in the files: its text, and its location as file:line, "" where unknown."""

    text: str
    location: str


def read_texts(records: Records) -> dict[int, str]:
    """Return the texts of records, by number, from the files of the run; {} where they are gone."""
    return {number: one.text for number, one in find_in_files(records).items()}


def find_in_files(records: Records) -> dict[int, FileRecord]:
    """Return the records of the files of a run, by number; {} where the files are gone.

    Tokens do not say what an unknown word was. A record is found by its tokens and targets; equal
    ones are in the order of the files.
    """
    predictor, wanted = records.predictor, defaultdict[bytes, list[int]](list)
    for one in range(records.shard.records // records.shard.views):
        wanted[_key(records.row(one), _targets(records, one))].append(one)
    files: dict[int, FileRecord] = {}
    try:
        chunks = _chunks_of_split(predictor, records.split)
    except (UserError, OSError):
        return {}
    for chunk in chunks:
        rows = _rows_of(predictor, chunk)
        second = chunk.sources or [""] * len(chunk.texts)
        for i, (text, other, row) in enumerate(zip(chunk.texts, second, rows, strict=True)):
            if wanted.get(row):
                location = chunk.place(i) if chunk.place else ""
                joined = f"{text} | {other}" if other else text
                files[wanted[row].pop(0)] = FileRecord(joined, location)
    return files


def _chunks_of_split(predictor: Predictor, split: str) -> list[SourceChunk]:
    """Return the records of a split as they are in the files, if these are there and small."""
    if predictor.run is None or not (predictor.run / FOLDER / MANIFEST).exists():
        return []
    source = DataSource.of(predictor.run.recipe, str(predictor.run.path))
    if source.text or sum(files.size for files in source.readers) > MOST_READ:
        return []
    return [chunk for chunk in source.chunks() if chunk.split == SPLITS.index(split)]


def _rows_of(predictor: Predictor, chunk: SourceChunk) -> Iterator[bytes]:
    """Yield the key of each record of a chunk."""
    ids, lengths = predictor.tokenizer.encode_batch(chunk.texts)
    ends = np.cumsum(lengths)
    before, _ = predictor.tokenizer.markers
    for i, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        targets = predictor.targets.encode([chunk.targets[i]])
        row = np.concatenate([np.zeros(before, ids.dtype), ids[end - length : end], [0]])
        yield _key(row, targets)


def _key(row: NDArray[Any], targets: NDArray[Any]) -> bytes:
    return np.asarray(row[1:-1], np.int64).tobytes() + np.asarray(targets, np.float64).tobytes()


def _targets(records: Records, one: int) -> NDArray[Any]:
    """Return the targets of a record as they are encoded: without those of markers."""
    shard, at = records.shard, one * records.shard.views
    assert shard.targets is not None
    if not shard.aligned:
        return np.atleast_1d(np.asarray(shard.targets[at]))
    return np.asarray(shard.targets[shard.offsets[at] + 1 : shard.offsets[at + 1] - 1])


@dataclass(frozen=True, eq=False)
class KnownTarget:
    """The split that holds an item, and its true targets there."""

    split: str
    values: NDArray[Any]  # a class (), or one number for each label, value or position


def find_target(predictor: Predictor, item: Shard, parts: Sequence[Records]) -> KnownTarget | None:
    """Return the target of an item if it is a record of the run; None if it is none of them."""
    record = np.asarray(item.record(0))
    shards = {part.split: part.shard for part in parts} | _splits_of(predictor)
    for split, shard in shards.items():
        lengths = np.diff(shard.offsets)[:: shard.views]
        for one in np.flatnonzero(lengths == len(record)) * shard.views:
            if shard.source is None and np.array_equal(shard.record(int(one)), record):
                assert shard.targets is not None
                if shard.aligned:
                    first, last = int(shard.offsets[one]), int(shard.offsets[one + 1])
                    return KnownTarget(split, np.asarray(shard.targets[first:last]))
                return KnownTarget(split, np.asarray(shard.targets[one]))
    return None


def _splits_of(predictor: Predictor) -> dict[str, Shard]:
    """Return the shards of a run whose data are there."""
    if predictor.run is None or not (predictor.run / FOLDER / MANIFEST).exists():
        return {}
    return reopen(predictor.run.path).splits


def training_values(predictor: Predictor, parts: Sequence[Records]) -> tuple[str, NDArray[Any]]:
    """Return the name of a split and its true values (R, O): those of training, if they are there,
    or else of the given records.
    """
    shards = _splits_of(predictor) or {part.split: part.shard for part in parts}
    for split, shard in shards.items():
        assert shard.targets is not None
        return split, np.asarray(shard.targets[:: shard.views], np.float64)
    return "", np.empty((0, predictor.targets.n_outputs))


def signed(value: float) -> str:
    """Return a value in three digits, or all before the point, with a minus sign."""
    short = value if abs(value) >= 100 else float(f"{value:.3g}")
    return cell(float(short)).replace("-", "−")
