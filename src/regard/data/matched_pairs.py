"""Batches of pairs that are matched with each other: whole texts, and the sources that they belong
to.

The targets of a batch are two numbers for each pair: pairs with the same source have the first one
in common, pairs with the same text the second.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import (
    Batch,
    LabelledExamples,
    LabelledLoader,
    Layout,
    rectangles,
)
from regard.data.shards import Shard, TokenTable
from regard.errors import UsageError
from regard.layers.embeddings import Inputs

Ints = NDArray[np.int64]
SAMPLED = 4  # steps laid out beforehand, to measure padding and memory


def distinct_records(shard: Shard) -> Ints:
    """Return a number (R,) for each record, the same for equal ones, from 0 in their order."""
    known: dict[bytes, int] = {}
    numbers = np.empty(shard.records, np.int64)
    for i in range(shard.records):
        key = blake2b(np.ascontiguousarray(shard.record(i)).tobytes(), digest_size=16).digest()
        numbers[i] = known.setdefault(key, len(known))
    return numbers


class PairExamples:
    """The pairs of a shard, to fill into batches; texts are truncated to `max_len`."""

    cut: int  # texts that are longer

    def __init__(self, shard: Shard, tokenizer: TokenTable | None, max_len: int) -> None:
        if shard.source is None:
            raise ValueError("pairs are matched, but the shard has no sources")
        none = np.zeros(shard.records, np.int32)
        texts = replace(shard, source=None, targets=none)
        self.texts = LabelledExamples(texts, tokenizer, max_len)
        self.sources = LabelledExamples(replace(shard.source, targets=none), None, max_len)
        self.records = shard.records
        self.keys = np.stack([distinct_records(shard.source), distinct_records(shard)], 1)  # (R, 2)
        self.sizes = self.texts.sizes
        self.cut = self.texts.cut + self.sources.cut

    def text_ids(self, records: Ints) -> NDArray[np.int64]:
        """Return the tokens of the texts of records, one after the other."""
        return _content(self.texts, records)

    def source_ids(self, records: Ints) -> NDArray[np.int64]:
        """Return the tokens of the sources of records, one after the other."""
        return _content(self.sources, records)

    def layout(self, records: Ints, *, widest: bool = False) -> Layout:
        """Return a layout with a row for each record, as wide as the longest of them or, with
        `widest`, of all.
        """
        widths = []
        for part in (self.texts, self.sources):
            sizes = part.sizes if widest else part.sizes[records]
            widths.append(int(sizes.max(initial=1)))
        return rectangles(len(records), widths[0], 0, widths[1])[0]

    def fill(self, records: Ints, *, widest: bool = False) -> Batch:
        """Return the batch of these records, in their order."""
        layout = self.layout(records, widest=widest)
        assert layout.beside is not None
        texts = self.texts.fill(records, replace(layout, beside=None))
        sources = self.sources.fill(records, layout.beside)
        assert sources.segments is not None
        return Batch(
            texts.ids,
            torch.from_numpy(self.keys[records]),
            texts.segments,
            items=records,
            tokens=len(records),
            symbols=len(records),
            source=Inputs(sources.ids, sources.segments),
        )


def _content(part: LabelledExamples, records: Ints) -> NDArray[np.int64]:
    spans = zip(part.starts[records], part.lengths[records], strict=True)
    parts = [part.ids[start : start + length] for start, length in spans]
    return np.concatenate(parts).astype(np.int64)


class PairLoader(LabelledLoader):
    """Training batches of pairs: each step is one batch, in which all texts are compared with all
    sources. `batch_tokens` counts those of texts, `micro_tokens` those of texts and sources.
    """

    examples: PairExamples  # type: ignore[assignment]

    def __init__(self, shard: Shard, tokenizer: TokenTable, **options: Any) -> None:
        super().__init__(shard, tokenizer, **options)
        steps = [self._rows(self._positions(n)) for n in range(SAMPLED)]
        areas = [self.examples.layout(records, widest=self.few).area for records in steps]
        sizes = self.examples.texts.sizes + self.examples.sources.sizes
        self.padding = 1 - sum(int(sizes[records].sum()) for records in steps) / sum(areas)
        area = max(areas)
        if 0 < self.micro_tokens < area:
            raise UsageError(
                f"train.micro_tokens must be 0 or at least {area:,}, got {self.micro_tokens:,}: "
                "all pairs of a step are compared with each other, so a step is one batch; lower "
                "train.batch_tokens for less memory"
            )

    def make_examples(self, shard: Shard, max_len: int, seed: int) -> PairExamples:  # type: ignore[override]
        return PairExamples(shard, self.table, max_len)

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        records = self.order(self._positions(n, rank, world))
        return [self.examples.fill(records, widest=self.few)] if len(records) else []

    def _layouts(self, records: Ints) -> list[Layout]:
        return [self.examples.layout(records, widest=self.few)] if len(records) else []
