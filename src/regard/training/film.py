"""A film of training: what a model makes of the same held-out records at each validation.

`regard train FILE --film` writes RUN/film.safetensors, less than 5 MB; `Film.open(run)` reads it. A
frame has the 20 highest outputs of 64 records, at their first positions if the model predicts at
each position, a summary of each attention head, and the records in the plane: the means of their
last hidden vectors along the two main directions, turned to fit the frame before.

The film changes nothing in training: it reads the model in evaluation mode, without random numbers.
A frame depends on the weights and the frame before it, so that a run that is stopped and resumed
has the same film.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import Ints
from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.head_scores import score_heads
from regard.evaluation.record_activations import (
    BATCH_TOKENS,
    RecordActivations,
    count_records,
    in_records,
    read_records,
)
from regard.run import Run
from regard.storage import read_tensors, write_tensors
from regard.tokenizers import Tokenizer

FILM = "film.safetensors"  # in a run folder
RECORDS, TOP = 64, 20  # records, and outputs of each position
POSITIONS = 18  # of a record: MOST_FRAMES then take 4.7 MB at most
MOST_FRAMES = 32  # if there are more validations, every second, third … has a frame
BLOCK = 128  # tokens of running text that count as a record
MOST_WEIGHTS = 1 << 25  # attention weights in memory at once: 128 MB
WEIGHTS = "*attention.weights"
ATTENTION = "attention: "  # before the name of a layer
SUMMARY = ("bits", "offset", "first", "previous")  # of a head, fields of HeadScores
HIDDEN = ("norm", "*.output")  # the last of these activations is what the head reads


@dataclass(frozen=True, eq=False)
class Film:
    """F frames of R records at P positions, the K highest outputs of each.

    P is 1 for models that predict once for a record. Beyond the end of a record `ids` is -1.
    """

    steps: Tensor  # (F,)
    records: Tensor  # (R,) their numbers in the validation split
    ids: Tensor  # (R, W) their first tokens; W is 0 where tokens are not ids
    top_ids: Tensor  # (F, R, P, K) the tokens or classes of the outputs, the highest first
    top_logs: Tensor  # (F, R, P, K) their log-probabilities
    normalizers: Tensor  # (F, R, P) the logarithm of the sum of the exponentials of all outputs
    points: Tensor  # (F, R, 2)
    attention: Mapping[str, Tensor] = field(default_factory=dict)  # (F, H, 4) by layer: SUMMARY

    @classmethod
    def open(cls, run: str | Path | Run) -> Self:
        """Read the film of a run, also of one that is still training."""
        path = Run.open(run) / FILM
        if not path.exists():
            raise UserError(f"{run} has no film: train with --film (train.film = true)")
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a film; damage is a UserError."""
        tensors = read_tensors(path)
        layers = {n.removeprefix(ATTENTION): x for n, x in tensors.items() if ATTENTION in n}
        try:
            named = {f.name: tensors[f.name] for f in fields(cls) if f.name != "attention"}
            film = cls(**named, attention=layers)
            frames = {len(x) for x in film.moving.values()}
        except (KeyError, TypeError):
            frames = set()
        if len(frames) != 1:
            raise UserError(
                f"{path} is damaged: it is no film; delete it to train without its past"
            )
        return film

    @property
    def moving(self) -> dict[str, Tensor]:
        """The tensors with a row for each frame."""
        names = ("steps", "top_ids", "top_logs", "normalizers", "points")
        return {name: getattr(self, name) for name in names} | dict(self.attention)

    def probabilities(self, frame: int, record: int, position: int = 0) -> list[tuple[int, float]]:
        """Return the most probable tokens or classes with their probabilities."""
        at = frame, record, position
        p = self.top_logs[at].double().exp()
        return list(zip(self.top_ids[at].tolist(), p.tolist(), strict=True))

    def outputs(self, frame: int, record: int, position: int = 0) -> list[tuple[int, float]]:
        """Return the highest logits or, of models of values, the values."""
        at = frame, record, position
        values = self.top_logs[at].double() + self.normalizers[at].double()
        return list(zip(self.top_ids[at].tolist(), values.tolist(), strict=True))

    def until(self, step: int) -> Self:
        """Return the frames before a step."""
        before = self.steps < step
        moving = {name: x[before] for name, x in self.moving.items()}
        attention = {name: moving.pop(name) for name in self.attention}
        return replace(self, **moving, attention=attention)

    def joined(self, other: Self) -> Self:
        """Return this film with the frames of another one after it."""
        ends = other.moving
        moving = {name: torch.cat([x, ends[name]]) for name, x in self.moving.items()}
        attention = {name: moving.pop(name) for name in self.attention}
        return replace(self, **moving, attention=attention)

    def write(self, path: Path) -> None:
        """Write the film, whole or not at all."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "attention"}
        layers = {ATTENTION + name: x for name, x in self.attention.items()}
        write_tensors(path, named | layers)


def has_frame(step: int, every: int, steps: int) -> bool:
    """Return whether the validation at this step of a run that validates `every` steps has a frame:
    the first, the last, and at most MOST_FRAMES in all.
    """
    stride = math.ceil(steps / every / (MOST_FRAMES - 2))
    return step % (every * max(1, stride)) == 0 or step == steps


def filmed_split(corpus: Corpus, max_len: int) -> Shard:
    """Return the records that a film numbers; of running text, blocks."""
    return in_records(corpus.valid or corpus.train, min(BLOCK, max_len), RECORDS)


class FilmWriter:
    """Takes the frames of a run, and writes the film after each."""

    def __init__(self, run: Path, model: Any, corpus: Corpus) -> None:
        """An error says why there can be no film, before the first step."""
        self.path, self.model, self.tokenizer = run / FILM, model, corpus.tokenizer
        self.shard = filmed_split(corpus, int(model.config.max_len))
        count = count_records(self.shard)
        self.records = np.unique(np.linspace(0, count - 1, min(count, RECORDS)).astype(np.int64))
        if self.path.exists():
            Film.read(self.path)
        try:
            next(self.read(self.records[:1]))
        except UserError as error:
            raise UserError(f"train.film: {error}") from None

    def take(self, step: int) -> None:
        """Add the frame of this step in place of those from there on, which a run that is resumed
        takes again.
        """
        before = Film.read(self.path).until(step) if self.path.exists() else None
        frame = self.frame(step, None if before is None else before.points[-1:])
        (before.joined(frame) if before is not None else frame).write(self.path)

    def frame(self, step: int, before: Tensor | None) -> Film:
        """Return the film of one frame; `before` (1, R, 2) are the points of the frame before."""
        parts = [FramePart.of(batch, self.tokenizer) for batch in self.read(self.records)]
        order = np.argsort(np.concatenate([part.records for part in parts]))
        logs = join_rows([part.logs for part in parts], 0)[order]  # (R, P, K)
        points = project(torch.cat([part.vectors for part in parts])[order].double())
        if before is not None and len(before):
            points = turn_to(points, before[0].double())
        small = logs.size(1) == 1  # one prediction for each record: all digits are kept
        return Film(
            steps=torch.tensor([step]),
            records=torch.from_numpy(self.records),
            ids=join_rows([part.ids for part in parts], -1)[order],
            top_ids=join_rows([part.tokens for part in parts], 0)[order][None],
            top_logs=logs[None].to(torch.float32 if small else torch.float16),
            normalizers=join_rows([part.normalizers for part in parts], 0)[order][None],
            points=points[None].float(),
            attention=self.attention(),
        )

    def read(
        self, records: Ints, *patterns: str, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[RecordActivations]:
        """Yield records as the model reads them now."""
        shard, tokenizer = self.shard, self.tokenizer
        options: dict[str, Any] = {"records": records, "batch_tokens": batch_tokens}
        return read_records(self.model, shard, tokenizer, patterns or HIDDEN, **options)

    def attention(self) -> dict[str, Tensor]:
        """Return a summary (1, H, 4) of each head of each layer: means over the records."""
        (first,) = self.read(self.records[:1], WEIGHTS)
        heads = sum(x.size(1) for x in first.activations.values())
        if not heads:
            return {}
        most = MOST_WEIGHTS // (heads * int(self.model.config.max_len))
        sums: dict[str, Any] = defaultdict(float)
        for batch in self.read(self.records, WEIGHTS, batch_tokens=most):
            segments = batch.valid.long()
            for name, weights in batch.activations.items():
                scores = score_heads(weights, segments=segments, causal=False)
                values = np.array([[getattr(head, key) for key in SUMMARY] for head in scores])
                sums[name] += np.nan_to_num(values) * len(weights)
        return {
            name.removesuffix(".weights"): torch.from_numpy(x / len(self.records)).float()[None]
            for name, x in sums.items()
        }


@dataclass(frozen=True, eq=False)
class FramePart:
    """What a frame shows of the records of a batch; the fields are those of `Film`."""

    records: Ints
    ids: Tensor  # (B, W)
    tokens: Tensor  # (B, P, K)
    logs: Tensor  # (B, P, K)
    normalizers: Tensor  # (B, P)
    vectors: Tensor  # (B, D) means of the last hidden vectors

    @classmethod
    def of(cls, batch: RecordActivations, tokenizer: Tokenizer) -> Self:
        """Return the part of a frame that a batch gives."""
        valid = batch.valid[:, :POSITIONS]
        shown = batch.ids[:, :POSITIONS] if tokenizer.reads_text else valid[:, :0]
        ids = shown.to(torch.int32).masked_fill(~valid[:, : shown.size(1)], -1)
        outputs = batch.outputs
        positional = outputs.dim() > 2
        outputs = outputs[:, :POSITIONS] * valid[..., None] if positional else outputs[:, None]
        normalizers = outputs.logsumexp(-1)
        top = outputs.topk(min(TOP, outputs.size(-1)), -1)
        tokens = top.indices.to(torch.int32 if outputs.size(-1) > 1 << 15 else torch.int16)
        *_, hidden = batch.activations.values()
        inside = batch.valid[..., None]
        vectors = (hidden * inside).sum(1) / inside.sum(1).clamp_min(1)
        logs = top.values - normalizers[..., None]
        return cls(batch.records, ids, tokens, logs, normalizers, vectors)


def join_rows(parts: Sequence[Tensor], value: float) -> Tensor:
    """Join tensors (B, N, ...), padded with a value to the longest N."""
    longest = max(x.size(1) for x in parts)
    padded = []
    for x in parts:
        shape = len(x), longest - x.size(1), *x.shape[2:]
        padded.append(torch.cat([x, x.new_full(shape, value)], 1))
    return torch.cat(padded)


def project(vectors: Tensor) -> Tensor:
    """Return the coordinates (R, 2) of vectors (R, D) along their first principal directions."""
    centred = vectors - vectors.mean(0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    return F.pad(u[:, :2] * s[:2], (0, max(0, 2 - len(s))))


def turn_to(points: Tensor, goal: Tensor) -> Tensor:
    """Return points (R, 2), rotated and mirrored to lie as near to a goal (R, 2) as they can
    (Schönemann 1966, doi:10.1007/BF02289451).
    """
    u, _, v = torch.linalg.svd(points.T @ goal)
    turned: Tensor = points @ u @ v
    return turned
