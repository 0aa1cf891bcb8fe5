"""Decode states: reordered rows keep their own past, and only what differs is copied."""

from __future__ import annotations

import pytest
import torch

from regard.layers.cache import DecodeState, KVCache

GROUPS, WIDTH, CAPACITY = 2, 3, 12


def write(state, histories, token):
    """Every row writes its own number at its next position; the histories record it."""
    rows = len(histories)
    values = torch.arange(token, token + rows).float()
    k = values[:, None, None, None].expand(rows, GROUPS, 1, WIDTH)
    slots = torch.tensor([[len(history)] for history in histories])
    state.layers[0].write(k, -k, slots, CAPACITY)
    ragged = isinstance(state.length, torch.Tensor) and not state.fixed
    state.advance(torch.ones(rows, dtype=torch.int64) if ragged else None, 1)
    for history, value in zip(histories, values.tolist(), strict=True):
        history.append(value)


def check_rows(state, histories):
    layer = state.layers[0]
    for row, history in enumerate(histories):
        expected = torch.tensor(history)[None, :, None].expand(GROUPS, -1, WIDTH)
        assert torch.equal(layer.k[row, :, : len(history)], expected)
        assert torch.equal(layer.v[row, :, : len(history)], -expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ragged", [False, True])
def test_selected_rows_have_the_past_of_their_parents(ragged, seed):
    generator = torch.Generator().manual_seed(seed)
    state = DecodeState([KVCache(2, GROUPS, CAPACITY, WIDTH, torch.zeros(1))], 2, CAPACITY)
    histories = [[], []]
    for token in (100, 200):
        write(state, histories, token)
    if ragged:  # the second row forgets one of its two tokens
        histories[1].pop()
        state.length = torch.tensor([2, 1])
    state.expand(3)
    histories = [list(history) for history in histories for _ in range(3)]
    for step in range(8):
        if step == 4:
            state.fix()
        parents = torch.randint(0, 3, (2, 3), generator=generator)
        parents = (parents + torch.tensor([[0], [3]])).flatten()
        state.select(parents)
        histories = [list(histories[parent]) for parent in parents.tolist()]
        check_rows(state, histories)
        if step % 3:  # now and then rows are reordered twice before they grow
            write(state, histories, 1000 * (step + 1))
            check_rows(state, histories)


def test_only_positions_that_differ_are_copied(monkeypatch):
    state = DecodeState([KVCache(4, GROUPS, CAPACITY, WIDTH, torch.zeros(1))], 4, CAPACITY)
    histories, copied = [[] for _ in range(4)], []
    select = KVCache.select
    monkeypatch.setattr(
        KVCache,
        "select",
        lambda self, parents, columns: (copied.append(columns), select(self, parents, columns)),
    )
    for step, parents in enumerate([[0, 0, 0, 0], [1, 0, 2, 3], [0, 1, 2, 3], [1, 1, 2, 2]]):
        write(state, histories, 10 * (step + 1))
        state.select(torch.tensor(parents))
        histories = [list(histories[parent]) for parent in parents]
        check_rows(state, histories)
    # all from row 0; two swap, one token apart; none moves; two follow others
    assert [(columns.start, columns.stop) for columns in copied] == [(0, 1), (1, 2), (3, 3), (1, 4)]


def test_rows_of_every_width_keep_their_memory():
    """A step recorded for four beams read freed memory once three beams had come in between."""
    layer = KVCache(2, 1, 8, 4, torch.zeros(1))
    state = DecodeState([layer], 2, 8)

    def addresses(width):
        state.reset()
        state.expand(width)
        state.fix()
        return layer.k.data_ptr(), layer.v.data_ptr(), state.length.data_ptr()

    first = addresses(4)
    assert addresses(3) != first
    assert addresses(4) == first
