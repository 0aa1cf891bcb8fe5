"""A file as one stream of characters: what experiments on the user's own text read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.bundled import NAMES
from regard.data.batching import IGNORE, Batch
from regard.data.readers import Source
from regard.errors import UserError
from regard.train.loop import seed_of

MOST = 2_000_000  # characters read of a file
TESTED = 0.1  # of the stream, at its end


@dataclass(frozen=True, eq=False)
class Stream:
    """Ids (N,) of characters, `letters` what they stand for; the last tenth is for testing."""

    ids: NDArray[np.int64]
    letters: str

    @property
    def train(self) -> NDArray[np.int64]:
        """What is learned from."""
        return self.ids[: len(self.ids) - int(TESTED * len(self.ids))]

    @property
    def test(self) -> NDArray[np.int64]:
        """What nobody has learned from."""
        return self.ids[len(self.ids) - int(TESTED * len(self.ids)) :]


def stream_of(path: Path | None, least: int) -> Stream:
    """The user's file, or the bundled names; UserError unless it has `least` characters."""
    source = Source([path or NAMES])
    if source.format == "text":
        parts = chain(source.text())
    else:
        records = [text for chunk in source.records() for text in chunk.texts]
        order = np.random.default_rng(0).permutation(len(records))  # a file may be sorted
        parts = chain.from_iterable((records[i], "\n") for i in order)
    text, size = [], 0
    for part in parts:
        text.append(part)
        size += len(part)
        if size >= MOST:
            break
    whole = "".join(text)[:MOST]
    if len(whole) < least:
        raise UserError(f"{path}: {len(whole):,} characters, at least {least:,} are needed")
    codes = np.frombuffer(whole.encode("utf-32-le"), dtype="<u4")
    letters, ids = np.unique(codes, return_inverse=True)
    return Stream(ids.astype(np.int64), "".join(map(chr, letters.tolist())))


def windows(ids: NDArray[np.int64], length: int, most: int) -> Batch:
    """Windows side by side, spread over the ids, each asked for all that follows its first."""
    room = (len(ids) - 1) // length
    at = np.unique(np.linspace(0, room - 1, min(most, room)).astype(np.int64)) * length
    return _batch(ids, at, length)


def drawn(ids: NDArray[np.int64], length: int, many: int, seed: int, step: int) -> Batch:
    """Windows drawn at random, for a step of training."""
    random = np.random.default_rng(seed_of(seed, step))
    return _batch(ids, random.integers(0, len(ids) - length, many), length)


def _batch(ids: NDArray[np.int64], at: NDArray[np.int64], length: int) -> Batch:
    rows = torch.from_numpy(ids[at[:, None] + np.arange(length + 1)])  # (B, T + 1)
    inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    many = int((targets != IGNORE).sum())
    return Batch(inputs, targets, None, np.arange(len(at)), many, many)
