"""The memory of decoding: one batch after another uses it again, two at the same time never."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.decoding import DecodeSession, Greedy, generate
from regard.decoding.engine import IDLE, Pool
from regard.models.decoder import Decoder, modern

OPTIONS = {"max_new": 40, "end": 2, "banned": [2]}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    return Decoder(19, dataclasses.replace(modern(2, 32), max_len=64)).eval()


def always(item):
    return True


def test_an_item_is_used_again_but_never_twice_at_once():
    pool = Pool(object)
    with pool.borrow(always) as first, pool.borrow(always) as second:
        assert first is not second
    with pool.borrow(lambda item: item is first) as again:
        assert again is first
    with pool.borrow(lambda item: False) as other:  # none fits: an old one, not a third
        assert other is second


def test_the_item_of_a_failed_call_is_dropped():
    pool = Pool(object)
    with pytest.raises(RuntimeError), pool.borrow(always) as item:
        raise RuntimeError
    with pool.borrow(always) as next_item:
        assert next_item is not item


def test_a_pool_keeps_only_so_many():
    pool = Pool(object)
    borrowed = [pool.borrow(always) for _ in range(IDLE + 5)]
    for one in borrowed:
        one.__enter__()
    for one in borrowed:
        one.__exit__(None, None, None)
    assert len(pool.idle) == IDLE


def test_batches_of_one_shape_cost_one_recording(model):
    space, steps = DecodeSession(model), set()
    for prompt in ([1, 5], [1, 7], [1, 9]):
        generate(model, [prompt], Greedy(), workspace=space, **OPTIONS)
        (slot,) = space.slots.idle
        assert slot.step is not None
        steps.add(id(slot.step))
    assert len(steps) == 1


def test_a_call_inside_a_call_leaves_it_alone(model):
    """A listener may use the model that is decoding."""
    space = DecodeSession(model)
    (plain,) = generate(model, [[1, 5]], Greedy(), **OPTIONS)
    (inner,) = generate(model, [[1, 7]], Greedy(), **OPTIONS)
    heard = []

    def listener(number, token):
        heard.append(generate(model, [[1, 7]], Greedy(), workspace=space, **OPTIONS)[0][0].ids)

    (outer,) = generate(model, [[1, 5]], Greedy(), workspace=space, on_token=listener, **OPTIONS)
    assert outer[0].ids == plain[0].ids
    assert len(heard) == 40 and all(ids == inner[0].ids for ids in heard)
