"""Decoding from sources: sentences of similar length together, each as if it were alone.

Sources are padded to a multiple of `BLOCK`, and only those of one width share a batch: the result
of one, its length limit included, does not depend on the others, and a recorded step serves batch
after batch.
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
EXTRA = 8  # tokens added to a source's length when its target is limited
RATIO = 2.0  # limit of target tokens per source token, where the data give none


class ConditionedSession:
    """A model conditioned on sources of one shape, in memory that serves batch after batch."""

    conditioned: ConditionedLM
    session: DecodeSession

    def __init__(self, model: Seq2SeqModel) -> None:
        self.model = model
        self.shape: tuple[int, ...] = ()  # of the sources

    def set_source(self, source: Inputs) -> None:
        if self.shape == tuple(source.ids.shape):
            self.conditioned.set_source(source)
            return
        self.conditioned = self.model.condition(source)
        self.session, self.shape = DecodeSession(self.conditioned), tuple(source.ids.shape)


class TranslationSession:
    """The memory for translating with one model, in any number of threads; see DecodeSession."""

    def __init__(self, model: Seq2SeqModel) -> None:
        self.device = device_of(model)
        self.pool = Pool(lambda: ConditionedSession(model))

    @contextmanager
    def condition(self, source: Inputs) -> Iterator[tuple[ConditionedLM, DecodeSession]]:
        """Yield the language model of targets given these sources, and its session."""
        shape = tuple(source.ids.shape)
        with self.pool.borrow(lambda item: item.shape == shape) as item:
            item.set_source(source.to(self.device))
            yield item.conditioned, item.session


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
    ratio: float = RATIO,
    batch_size: int = 64,
    session: TranslationSession | None = None,
    keys: Sequence[int] | None = None,
) -> list[list[Generated]]:
    """Decode the targets of sources: a list for each.

    A source is its ids with the end token, or (S, V) tokens of V numbers. `Greedy` and `Sample`
    give one sequence, `Beam` its n best. `max_new` limits their tokens (0: `ratio` times the
    source's length plus EXTRA); the model's max_len does, too. `batch_size` counts rows, beams
    included. `keys` number the sources for samples and traces.
    """
    results: list[list[Generated]] = [[] for _ in sources]
    keys = range(len(sources)) if keys is None else keys
    session = session or TranslationSession(model)
    with evaluating(model):
        for numbers, width in group_by_width(sources, max(1, batch_size // strategy.rows)):
            inputs = pad_sources([sources[number] for number in numbers], width, pad)
            limit = max_new or math.ceil(ratio * (width + EXTRA))
            with session.condition(inputs) as (conditioned, decode_session):
                sequences = generate(
                    conditioned,
                    [[start]] * len(numbers),
                    strategy,
                    max_new=min(limit, model.config.max_len),
                    end=end,
                    pad=pad,
                    banned=banned,
                    constraint=constraint,
                    batch_size=len(numbers) * strategy.rows,
                    session=decode_session,
                    keys=[keys[number] for number in numbers],
                )
            for number, n_best in zip(numbers, sequences, strict=True):
                results[number] = n_best
    return results


def pad_sources(sources: Sequence[Sequence[int] | Array], width: int, pad: int) -> Inputs:
    """Return a batch of sources, padded to a width."""
    rows = [torch.from_numpy(np.array(source)) for source in sources]
    ids = torch.full((len(rows), width, *rows[0].shape[1:]), pad, dtype=rows[0].dtype)
    segments = torch.zeros(len(rows), width, dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], segments[i, : len(row)] = row, 1
    return Inputs(ids, segments)


def group_by_width(
    sources: Sequence[Sequence[int] | Array], count: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the numbers of at most `count` sources of one width, and the width; widest first."""
    widths = [-(-max(1, len(source)) // BLOCK) * BLOCK for source in sources]
    for width in sorted(set(widths), reverse=True):
        numbers = [number for number, w in enumerate(widths) if w == width]
        for first in range(0, len(numbers), count):
            yield numbers[first : first + count], width
