"""Two columns of the user's table: points (x, y), or keys and values.

The columns of those names where the header has both, else the first two.

A file as one stream of characters: what experiments on the user's own text read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.bundled import NAMES
from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.data.formats import SkippedRecords, head
from regard.data.readers import TextFiles
from regard.data.tables import table
from regard.errors import UserError
from regard.training.loop import seed_of


def two_columns(path: Path, names: tuple[str, str]) -> tuple[list[str], list[str], list[int]]:
    """Both columns as text, and the line of each row; UserError names what cannot be read."""
    if not path.is_file():
        raise UserError(f"no file at {path}")
    kind = "tsv" if path.suffix.lower() == ".tsv" else "csv"
    top = head(path)[0].partition("\n")[0]
    delimiter = "\t" if kind == "tsv" else ";" if ";" in top and "," not in top else ","
    fields = [field.strip(' "\r') for field in top.split(delimiter)]
    if len(fields) < 2:
        raise UserError(f"{path}:1: one column, two are needed ({names[0]} and {names[1]})")
    known = {field.lower(): field for field in fields}
    wanted = [known.get(name, "") for name in names]
    if not all(wanted):
        wanted = ["1", "2"]
    layout, tally = table(path, kind, wanted), SkippedRecords()
    first: list[str] = []
    second: list[str] = []
    lines: list[int] = []
    for texts, at in layout.batches(path, tally):
        first, second, lines = [*first, *texts[0]], [*second, *texts[1]], [*lines, *at]
    if tally.problems:
        raise UserError(tally.problems[0])
    return first, second, lines


def points_of(path: Path, least: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x and y (N,) in the order of x; UserError unless there are `least` points, all numbers."""
    texts = two_columns(path, ("x", "y"))
    made = np.array(
        [[_number(path, line, cell) for cell in (x, y)] for x, y, line in zip(*texts, strict=True)]
    ).reshape(-1, 2)
    if len(made) < least:
        raise UserError(f"{path}: {len(made)} points, at least {least} are needed")
    if made[:, 0].min() == made[:, 0].max():
        raise UserError(f"{path}: every x is {made[0, 0]:g}; there is nothing to interpolate")
    made = made[np.argsort(made[:, 0], kind="stable")]
    return made[:, 0], made[:, 1]


def _number(path: Path, line: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}:{line}: x and y must be numbers, got {cell[:40]!r}")
    return value


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
    source = TextFiles([path or NAMES])
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
