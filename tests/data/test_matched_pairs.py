"""Batches of pairs: whole records, numbers of equal ones, one batch a step."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.matched_pairs import PairExamples, PairLoader, distinct_records
from regard.errors import UsageError
from regard.evaluation.eval_data import shard_of
from regard.registry import TOKENIZERS

SOURCES = ["ab", "b", "ab", "abc", "c"]
TEXTS = ["xx", "y", "z", "y", "xyz"]


@pytest.fixture(scope="module")
def tokenizer():
    return TOKENIZERS["characters"].train([*SOURCES, *TEXTS])


@pytest.fixture(scope="module")
def shard(tokenizer):
    return shard_of(TEXTS, tokenizer).paired(shard_of(SOURCES, tokenizer))


def test_equal_records_have_one_number(shard):
    assert distinct_records(shard).tolist() == [0, 1, 2, 1, 3]
    assert distinct_records(shard.source).tolist() == [0, 1, 0, 2, 3]


def test_a_batch_has_whole_texts_beside_their_sources(shard, tokenizer):
    batch = PairExamples(shard, tokenizer, 16).fill(np.array([3, 0]))
    texts = [row[part > 0] for row, part in zip(batch.ids, batch.segments, strict=True)]
    assert [tokenizer.decode(row[1:-1].tolist()) for row in texts] == ["y", "xx"]
    assert all(row[0] == tokenizer.start and row[-1] == tokenizer.end for row in texts)
    rows = zip(batch.source.ids, batch.source.segments, strict=True)
    sources = [tokenizer.decode(row[part > 0][1:-1].tolist()) for row, part in rows]
    assert sources == ["abc", "ab"]
    assert batch.targets.tolist() == [[2, 1], [0, 0]]
    assert batch.symbols == 2


def test_a_step_is_one_batch_and_ranks_share_its_pairs(shard, tokenizer):
    options = {"max_len": 16, "batch_tokens": 12, "seed": 1}
    loader = PairLoader(shard, tokenizer, **options)
    (batch,) = loader.step(0)
    assert len(batch.items) == loader.items_per_step > 1
    parts = [loader.step(0, rank, 2) for rank in range(2)]
    items = sorted(i for part in parts for one in part for i in one.items.tolist())
    assert items == sorted(batch.items.tolist()) == loader.records_of(0)
    assert 0 <= loader.padding < 1


def test_a_batch_cannot_be_cut(shard, tokenizer):
    with pytest.raises(UsageError, match="micro_tokens must be 0 or at least 30, got 3"):
        PairLoader(shard, tokenizer, max_len=16, batch_tokens=12, seed=1, micro_tokens=3)
