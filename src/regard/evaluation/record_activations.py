"""The activations of a model while it reads the records of a shard, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Ints, LabelledExamples, blocks
from regard.data.shards import Shard
from regard.decoding.engine import device_of, evaluating
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.tokenizers import Tokenizer

BATCH_TOKENS = 1 << 12  # positions read at once: attention weights are T times as many
BATCH_LOGITS = 1 << 24  # 64 MB


@dataclass(frozen=True, eq=False)
class RecordActivations:
    """Records of a shard, by number, as a model has read them, and what it computed.

    `valid` (B, T) is False for padding, and at the end token of models that never read one. Long
    records are cut to what the model reads at once.
    """

    records: Ints  # (B,)
    ids: Tensor  # (B, T), or (B, T, V) of features
    valid: Tensor
    outputs: Tensor  # of `Model.read_batch`
    activations: dict[str, Tensor]  # (B, ...) each


def in_records(shard: Shard, size: int, most: int) -> Shard:
    """Return a shard of records; of running text, at most so many evenly spaced blocks of `size`
    tokens.
    """
    if not shard.is_text:
        return shard
    return blocks(shard, max(1, min(most, shard.tokens // size)), size)


def count_records(shard: Shard) -> int:
    """Return the number of records; several views of one count as one."""
    return shard.records // shard.views


def read_records(
    model: Any,
    shard: Shard,
    tokenizer: Tokenizer,
    patterns: Iterable[str] = (),
    *,
    records: Ints | None = None,
    edits: Iterable[Edit] = (),
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[RecordActivations]:
    """Yield the records of a shard, or some of them, grouped by length, with the activations that
    match the patterns, on the CPU.
    """
    if shard.targets is None:
        shard = replace(shard, targets=np.zeros(shard.records, np.int64))
    examples = LabelledExamples(shard, tokenizer, int(model.config.max_len), first=True)
    device, patterns, edits = device_of(model), tuple(patterns), tuple(edits)
    most = min(batch_tokens, BATCH_LOGITS // model.vocab_size)
    for batch in examples.batches(most, records):
        assert batch.segments is not None
        tap = Tap(patterns, edits=edits)
        with evaluating(model):
            source = Inputs(batch.ids, batch.segments).to(device)
            outputs = model.read_batch(source, tap=tap)
        valid = batch.segments > 0
        if not model.reads_end:
            rows, last = torch.arange(len(valid)), valid.sum(1) - 1
            valid[rows, last] &= batch.ids[rows, last] != tokenizer.end
        yield RecordActivations(
            batch.items,
            batch.ids,
            valid,
            outputs.float().cpu(),
            {name: x.float().cpu() for name, x in tap.activations.items()},
        )


def strongest_positions(strength: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest strength (B, U) of each unit, given those (B, U, T) at all positions, and
    its position (B, U); only positions that are `inside` (B, T) count. Where none is, it is -inf.
    """
    largest, positions = strength.masked_fill(~inside[:, None], -torch.inf).max(-1)
    return largest, positions
