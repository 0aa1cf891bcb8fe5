"""Samples of a shard: drawn by a seed, with every class's share, or blocks all over a text."""

import dataclasses

import numpy as np
import pytest

from regard.data.batching import drawn_order, sample
from regard.evaluation.eval_data import shard_of
from regard.tokenizers import Characters

LETTERS = Characters.train(["abcdefghij"])


def labelled(classes, views=1):
    """Records of 4 to 6 tokens whose first letter is their class."""
    texts = ["abcdefghij"[c] * (2 + i % 3) for i, c in enumerate(classes) for _ in range(views)]
    shard = shard_of(texts, LETTERS)
    targets = np.repeat(np.array(classes, np.int32), views)
    return dataclasses.replace(shard, targets=targets, views=views)


def test_a_sample_of_records_sorted_by_label_has_every_class():
    """The first 32 validation records of a sorted table are of one class."""
    shard = labelled([0] * 120 + [1] * 60 + [2] * 20)
    part = sample(shard, shard.tokens // 10, 3, block=9)
    assert np.bincount(part.targets).tolist() == [12, 6, 2]
    assert 0.05 < part.tokens / shard.tokens < 0.15
    first = [LETTERS.decode(part.record(i)[1:2]) for i in range(part.records)]
    assert first == ["abc"[c] for c in part.targets]  # each with its own target


@pytest.mark.parametrize("count", [1, 7, 50, 199])
def test_a_smaller_sample_lies_in_a_larger_one_and_classes_keep_their_shares(count):
    classes = np.array([0] * 150 + [1] * 50)
    order = drawn_order(labelled(classes.tolist()), 0)
    assert sorted(order.tolist()) == list(range(200))
    ones = int(classes[order[:count]].sum())
    assert abs(ones - count / 4) <= 1


def test_the_seed_alone_decides_and_another_seed_draws_others():
    shard = labelled([0, 1] * 50)
    one, same, other = (sample(shard, 100, seed, block=9) for seed in (5, 5, 6))
    assert np.array_equal(one.ids, same.ids) and not np.array_equal(one.ids, other.ids)


def test_views_of_a_record_stay_together():
    part = sample(labelled([0, 1, 2, 3] * 10, views=2), 60, 0, block=9)
    assert part.records % 2 == 0
    for i in range(0, part.records, 2):
        assert np.array_equal(part.record(i), part.record(i + 1))


def test_blocks_of_running_text_lie_all_over_it():
    text = "".join("abcdefghij"[i * 10 // 1000] for i in range(1000))
    shard = shard_of([text], LETTERS, kind="text")
    part = sample(shard, 100, 0, block=10)
    assert part.kind == "blocks" and part.records == 10
    assert np.diff(part.offsets).tolist() == [10] * 10
    seen = {letter for i in range(10) for letter in LETTERS.decode(part.record(i))}
    assert seen == set("abcdefghij")


def test_a_shard_that_has_no_more_is_taken_whole():
    shard = labelled([0, 1])
    assert sample(shard, shard.tokens, 0, block=9) is shard
