"""Batches of labelled records: each once, whole, with what is asked of it; cut where too long."""

from dataclasses import replace

import numpy as np
import pytest

from regard.data.batching import LabelledExamples, LabelledLoader
from regard.data.targets import marked
from regard.evaluation.eval_data import shard_of
from regard.tokenizers import Characters

TOKENIZER = Characters("abcdefgh")
TEXTS = ["abc", "h", "gfedcba", "aabb", "ce", "dddddd"] * 5


def labelled(targets, seconds=None):
    shard = shard_of(TEXTS, TOKENIZER)
    shard = shard if seconds is None else shard.paired(shard_of(seconds, TOKENIZER))
    return replace(shard, targets=targets)


def rows(batch):
    """Each record's number, its tokens without padding, and its target."""
    for row, record in enumerate(batch.items.tolist()):
        there = batch.segments[row] > 0
        assert (batch.ids[row][~there] == TOKENIZER.pad).all()
        yield record, batch.ids[row][there].tolist(), batch.targets[row].numpy()


@pytest.mark.parametrize("most", [8, 30, 1000])
def test_every_record_is_read_whole_and_once_beside_its_target(most):
    values = np.stack([np.arange(30), -np.arange(30)], axis=1).astype(np.float32)
    values[4, 1] = np.nan
    asked, seen = LabelledExamples(labelled(values), TOKENIZER, 12), []
    for batch in asked.batches(most):
        assert batch.ids.numel() <= max(most, 12)
        for record, ids, target in rows(batch):
            seen.append(record)
            expected = [TOKENIZER.start, *TOKENIZER.encode(TEXTS[record]), TOKENIZER.end]
            assert ids == expected
            np.testing.assert_array_equal(target, values[record])
    assert sorted(seen) == list(range(30))
    assert asked.cut == 0
    assert sum(batch.symbols for batch in asked.batches(most)) == 59  # a gap is not asked


def test_labels_of_positions_stand_where_their_symbols_do():
    lengths = np.array([len(text) for text in TEXTS])
    letters = np.concatenate([np.arange(n) % 3 for n in lengths])
    shard = replace(labelled(marked(letters, lengths)), aligned=True)
    asked = LabelledExamples(shard, TOKENIZER, 12)
    for batch in asked.batches(40):
        assert batch.targets.shape == batch.ids.shape
        for record, ids, target in rows(batch):
            n = lengths[record]
            assert target[: n + 2].tolist() == [-1, *(i % 3 for i in range(n)), -1]
            assert (target[n + 2 :] == -1).all()
            assert len(ids) == n + 2
    assert sum(batch.symbols for batch in asked.batches(40)) == lengths.sum()


def test_two_texts_share_a_row_and_the_longer_is_cut_first():
    seconds = ["hg"] * 30
    asked = LabelledExamples(labelled(np.arange(30, dtype=np.int32), seconds), TOKENIZER, 8)
    for batch in asked.batches(64):
        for record, ids, target in rows(batch):
            one, two = TEXTS[record], seconds[record]
            first = [TOKENIZER.start, *TOKENIZER.encode(one), TOKENIZER.end]
            room = 8 - len(two) - 1
            expected = [*first[:room], *TOKENIZER.encode(two), TOKENIZER.end]
            assert ids == [int(i) for i in expected]
            assert target == record
    assert asked.cut == sum(len(text) + 2 + 3 > 8 for text in TEXTS)


def test_a_step_is_a_function_of_its_number_and_shared_by_processes():
    shard = labelled(np.arange(30, dtype=np.int32))
    loader = LabelledLoader(shard, TOKENIZER, max_len=12, batch_tokens=40, seed=3, micro_tokens=24)
    epochs = [r for n in range(60) for r in loader.records_of(n)]
    assert len(set(np.bincount(epochs[: 30 * (len(epochs) // 30)]).tolist())) <= 2
    for n in (0, 7):
        whole = [r for batch in loader.step(n) for r in batch.items.tolist()]
        again = [r for batch in loader.step(n) for r in batch.items.tolist()]
        assert whole == again
        parts = [r for rank in range(3) for b in loader.step(n, rank, 3) for r in b.items.tolist()]
        assert sorted(parts) == sorted(whole) == loader.records_of(n)
        for batch in loader.step(n):
            assert batch.ids.numel() <= 24 or len(batch.ids) == 1


def test_few_shapes_hold_the_same_records_in_one_rectangle_a_step():
    texts = ["a" * n for n in range(1, 41)]
    shard = replace(shard_of(texts, TOKENIZER), targets=np.arange(40, dtype=np.int32))
    options = {"max_len": 30, "batch_tokens": 90, "seed": 3}
    tight, few = (LabelledLoader(shard, TOKENIZER, **options, few=x) for x in (False, True))
    shapes = set()
    for n in range(30):
        (batch,) = few.step(n)
        shapes.add(tuple(batch.ids.shape))
        assert batch.ids.size(0) == few.items_per_step
        want = [row for part in tight.step(n) for row in rows(part)]
        assert sorted(map(repr, rows(batch))) == sorted(map(repr, want))
    assert 1 < len(shapes) <= 6
    parts = LabelledLoader(shard, TOKENIZER, **options, few=True, micro_tokens=60).step(0)
    assert len(parts) > 1 and all(part.ids.numel() <= 60 for part in parts)


def test_packed_rows_hold_the_same_records_side_by_side():
    texts = ["abcdefgh"[: 1 + n % 8] for n in range(60)]
    shard = replace(shard_of(texts, TOKENIZER), targets=np.arange(60, dtype=np.int32))
    options = {"max_len": 30, "batch_tokens": 120, "seed": 3}
    tight = LabelledLoader(shard, TOKENIZER, **options)
    packed = LabelledLoader(shard, TOKENIZER, **options, few=True, supports_packing=True)
    for n in range(8):
        (batch,) = packed.step(n)
        found = []
        for row, numbers in zip(batch.ids, batch.segments, strict=True):
            for number in range(1, int(numbers.max()) + 1):
                found.append(row[numbers == number].tolist())
        assert batch.ids.size(1) == packed.row and len(batch.targets) == len(found)
        for ids, target, item in zip(found, batch.targets.tolist(), batch.items, strict=True):
            assert ids == [TOKENIZER.start, *TOKENIZER.encode(texts[target]), TOKENIZER.end]
            assert target == item
        want = sorted(i for part in tight.step(n) for i in part.items.tolist())
        assert sorted(batch.items.tolist()) == want
    assert packed.padding < 0.15
