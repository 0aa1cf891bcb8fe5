"""Decoding what follows from sources: sentences of like length together, each answered as if alone.

Sources are padded to a multiple of `BLOCK`, and only those of one width share a batch: the answer
to one, the limit on its length included, does not depend on those beside it, and a recorded
step serves batch after batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding.engine import (
    DecodeSession,
    Generated,
    Pool,
    Strategy,
    device_of,
    evaluating,
    generate,
)
from regard.layers.embeddings import Inputs
from regard.models.language_model import Constrain
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel

Array = NDArray[np.integer]

BLOCK = 8  # widths of sources are multiples of this
MORE = 8  # tokens by which a source counts as longer than it is, when its target is limited
USUAL = 2.0  # times so many tokens may the target have then, where no data have told


class SourceReader:
    """A translator that has read its sources, in memory that serves one batch after another."""

    def __init__(self, model: Seq2SeqModel) -> None:
        self.model = model
        self.shape: tuple[int, ...] = ()  # of the sources
        self.conditioned: ConditionedLM
        self.workspace: DecodeSession

    def read(self, source: Inputs) -> None:
        """Read these sources, in the memory of those before where that has the shape."""
        if self.shape == tuple(source.ids.shape):
            self.conditioned.read(source)
            return
        self.conditioned = self.model.condition(source)
        self.workspace, self.shape = DecodeSession(self.conditioned), tuple(source.ids.shape)


class TranslationRequest:
    """Translates batch after batch with one model, in the memory of a batch before where one has
    the shape. Any number of threads may use it at the same time.
    """

    def __init__(self, model: Seq2SeqModel) -> None:
        self.device = device_of(model)
        self.readings = Pool(lambda: SourceReader(model))

    @contextmanager
    def condition(self, source: Inputs) -> Iterator[tuple[ConditionedLM, DecodeSession]]:
        """The language model of what follows from these sources, and where to decode it."""
        shape = tuple(source.ids.shape)
        with self.readings.borrow(lambda reading: reading.shape == shape) as reading:
            reading.read(source.to(self.device))
            yield reading.conditioned, reading.workspace


def translate(
    model: Seq2SeqModel,
    sources: Sequence[Sequence[int] | Array],
    strategy: Strategy,
    *,
    start: int,
    end: int,
    pad: int = 0,
    banned: Sequence[int] = (),
    constraint: Constrain | None = None,
    max_new: int = 0,
    ratio: float = USUAL,
    batch_size: int = 64,
    interpreting: TranslationRequest | None = None,
    keys: Sequence[int] | None = None,
) -> list[list[Generated]]:
    """What follows from each source, its ids with the end token at the last, or (S, V) tokens that
    are numbers: a list for each.

    `Greedy` and `Sample` give one sequence, `Beam` its n best. `max_new` limits their tokens (0:
    `ratio` for each of the source's, and of MORE), which are never more than the model's max_len.
    `batch_size` is how many rows are decoded together, beams counted. `keys` number the sources for
    samples and traces.
    """
    results: list[list[Generated]] = [[] for _ in sources]
    most, keys = model.config.max_len, range(len(sources)) if keys is None else keys
    interpreting = interpreting or TranslationRequest(model)
    with evaluating(model):
        for numbers, width in batches(sources, max(1, batch_size // strategy.rows)):
            some = [torch.from_numpy(np.array(sources[number])) for number in numbers]
            ids = torch.full((len(numbers), width, *some[0].shape[1:]), pad, dtype=some[0].dtype)
            segments = torch.zeros(len(numbers), width, dtype=torch.int64)
            for row, own in enumerate(some):
                ids[row, : len(own)], segments[row, : len(own)] = own, 1
            with interpreting.condition(Inputs(ids, segments)) as (given, workspace):
                found = generate(
                    given,
                    [[start]] * len(numbers),
                    strategy,
                    max_new=min(max_new or math.ceil(ratio * (width + MORE)), most),
                    end=end,
                    pad=pad,
                    banned=banned,
                    constraint=constraint,
                    batch_size=len(numbers) * strategy.rows,
                    workspace=workspace,
                    keys=[keys[number] for number in numbers],
                )
            for number, several in zip(numbers, found, strict=True):
                results[number] = several
    return results


def batches(
    sources: Sequence[Sequence[int] | Array], count: int
) -> Iterator[tuple[list[int], int]]:
    """Numbers of at most `count` sources of one width, and that width; the longest first."""
    widths = [-(-max(1, len(source)) // BLOCK) * BLOCK for source in sources]
    for width in sorted(set(widths), reverse=True):
        alike = [number for number, own in enumerate(widths) if own == width]
        for first in range(0, len(alike), count):
            yield alike[first : first + count], width
