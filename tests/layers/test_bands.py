"""Windowed attention in bands against the mask over all pairs, and what it costs."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import and_

import pytest
import torch
from test_long_convolution import random
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, MaskAndBias, attend
from regard.layers.masks import Causal, Documents, Window
from regard.layers.positions import ALiBi
from regard.layers.sliding_window import LEAST, TILE, Blocks, Tiles, WindowLayout, banded
from regard.layers.windowed_attention import WindowedAttention

CPU = torch.device("cpu")


def mask_of(width, first, ahead, documents, length):
    """A description, as models make it."""
    parts = [] if ahead else [Causal()]
    if documents:
        at = torch.arange(length).expand(2, -1)
        ends = torch.tensor([[length // 3], [length // 2]])
        parts.append(Documents(1 + (at >= ends).long()))
    return reduce(and_, [*parts, Window(width, first)])


def qkv(length, seed=0):
    return [random(2, heads, length, 4, seed=seed + i) for i, heads in enumerate((4, 2, 2))]


CASES = list(itertools.product([1, 7, LEAST + 1, 90], [0, 3], [False, True], [False, True]))


SLOW = pytest.param("tiles", marks=pytest.mark.slow)  # half a second each


@pytest.mark.parametrize(("width", "first", "ahead", "documents"), CASES)
@pytest.mark.parametrize("kind", ["blocks", "biased", SLOW])
@pytest.mark.filterwarnings("ignore:flex_attention called without")  # slow here, and exact
def test_a_band_is_the_mask_over_all_pairs(kind, width, first, ahead, documents):
    length = 301
    mask = mask_of(width, first, ahead, documents, length)
    layout = WindowLayout(length, max(LEAST, width - 1), first, ahead)
    bias = own = None
    if kind == "tiles":
        band = Tiles(mask, width, layout, CPU)
    else:
        band = Blocks(mask, layout, 2 if documents else 1, CPU)
    if kind == "biased":
        at, alibi = torch.arange(length), ALiBi(4)
        bias = alibi.bias(at, at)
        band.top = bias[:, :first]
        own = alibi.bias(layout.queries(at[:, None])[..., 0], layout.keys(at[:, None])[..., 0])
    tensors = [x.requires_grad_(kind == "blocks") for x in qkv(length)]
    expected = attend(*tensors, mask, bias=bias)
    got = attend(*tensors, band, bias=own)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    if kind == "blocks":
        dy = random(*got.shape, seed=9)
        for a, b in zip(
            torch.autograd.grad(got, tensors, dy),
            torch.autograd.grad(expected, tensors, dy),
            strict=True,
        ):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("width", "first", "ahead", "documents"), [*CASES, (300, 5, False, False)])
def test_tiles_are_those_that_hold_a_pair_and_whole_where_all_pairs_are_seen(
    width, first, ahead, documents
):
    length = 4 * TILE + 9
    mask = mask_of(width, first, ahead, documents, length)
    blocks = Tiles(mask, width, WindowLayout(length, width, first, ahead), CPU).blocks
    tiles = -(-length // TILE)
    seen = mask.tensor(2, tiles * TILE, tiles * TILE, CPU) if not documents else None
    if seen is None:
        seen = mask_of(width, first, ahead, False, length).tensor(
            2, tiles * TILE, tiles * TILE, CPU
        )
    seen = seen[0, 0].view(tiles, TILE, tiles, TILE).transpose(1, 2)
    some, every = seen.any(-1).any(-1), seen.all(-1).all(-1)
    whole = dense(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    partly = dense(blocks.kv_num_blocks, blocks.kv_indices)
    assert torch.equal(partly | whole, some) and not (partly & whole).any()
    assert not (whole & ~every).any()
    if not documents and not ahead and not first:
        assert torch.equal(whole, every)
    assert not (documents and whole.any())


def dense(counts, which):
    """(Q, S) booleans from how many tiles are listed in each row, and which."""
    found = torch.zeros(which.shape[-2:], dtype=torch.bool)
    for row, (count, tiles) in enumerate(zip(counts[0, 0], which[0, 0], strict=True)):
        found[row, tiles[:count].long()] = True
    return found


def work(length, width):
    """Pairs of queries and keys of one attention, and the band."""
    mask = Causal() & Window(width)
    band = banded(
        mask, width=width, first=0, ahead=False, batch=1, length=length, device=CPU, flexible=False
    )
    pairs, kernel = 0, F.scaled_dot_product_attention

    def counting(q, k, v, **options):
        nonlocal pairs
        pairs += q.shape[:-1].numel() * k.size(-2)
        return kernel(q, k, v, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", counting)
        attend(*qkv(length), band or mask)
    return pairs, band


def test_the_cost_is_that_of_the_window_times_the_length():
    (one, band), (two, _) = work(1 << 10, 100), work(1 << 11, 100)
    assert band.allowed.numel() <= 2 * 100 * 100 * 4  # not a mask of n² anywhere
    assert 1.9 < two / one < 2.1
    full = work(1 << 11, 1 << 11)[0]  # which has no band
    assert two < full / 8
    assert work(150, 100)[1] is None  # too short for a band to help


def test_a_rolling_cache_holds_the_last_positions_and_the_first():
    torch.manual_seed(0)
    layer = WindowedAttention(8, 2, width=5, first=2)
    state = layer.new_state(1, 100, torch.zeros(1))
    assert state.k.shape == (1, 2, 7, 4)
    x = random(1, 30, 8)
    expected = layer(x, AttentionContext(near=MaskAndBias(Causal() & Window(5, 2))))
    for t in range(30):
        got = layer(x[:, t : t + 1], AttentionContext(places=t, end=t + 1), state)
        torch.testing.assert_close(got, expected[:, t : t + 1], atol=1e-6, rtol=0)
        held = state.held(t + 1, CPU).tolist()
        seen = {p for p in held if p >= 0}
        assert seen == {p for p in range(t + 1) if p < 2 or p > t - 5}


def test_a_cache_has_no_more_slots_than_positions_may_come():
    assert WindowedAttention(8, 2, width=50).new_state(3, 9, torch.zeros(1)).slots == 9
