"""Sliding-window attention: bands against the mask over all pairs, its cost, the rolling cache."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import and_

import pytest
import torch
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, MaskAndBias, attend
from regard.layers.masks import Causal, Documents, Window
from regard.layers.positions import ALiBi
from regard.layers.sliding_window import (
    MIN_BLOCK,
    TILE,
    Blocks,
    Tiles,
    WindowedAttention,
    WindowLayout,
    make_band,
)

CPU = torch.device("cpu")


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def make_mask(width, first, ahead, documents, length):
    parts = [] if ahead else [Causal()]
    if documents:
        at = torch.arange(length).expand(2, -1)
        ends = torch.tensor([[length // 3], [length // 2]])
        parts.append(Documents(1 + (at >= ends).long()))
    return reduce(and_, [*parts, Window(width, first)])


def qkv(length, seed=0):
    return [random(2, heads, length, 4, seed=seed + i) for i, heads in enumerate((4, 2, 2))]


CASES = list(itertools.product([1, 7, MIN_BLOCK + 1, 90], [0, 3], [False, True], [False, True]))


SLOW = pytest.param("tiles", marks=pytest.mark.slow)  # half a second each


@pytest.mark.parametrize(("width", "first", "ahead", "documents"), CASES)
@pytest.mark.parametrize("kind", ["blocks", "biased", SLOW])
@pytest.mark.filterwarnings("ignore:flex_attention called without")  # slow here, and exact
def test_a_band_is_the_mask_over_all_pairs(kind, width, first, ahead, documents):
    length = 301
    mask = make_mask(width, first, ahead, documents, length)
    layout = WindowLayout(length, max(MIN_BLOCK, width - 1), first, ahead)
    bias = band_bias = None
    if kind == "tiles":
        band = Tiles(mask, width, layout, CPU)
    else:
        band = Blocks(mask, layout, 2 if documents else 1, CPU)
    if kind == "biased":
        at, alibi = torch.arange(length), ALiBi(4)
        bias = alibi.bias(at, at)
        band_bias = band.bias(alibi.bias, at)
    tensors = [x.requires_grad_(kind == "blocks") for x in qkv(length)]
    expected = attend(*tensors, mask, bias=bias)
    got = attend(*tensors, band, bias=band_bias)
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
def test_tiles_are_those_with_an_allowed_pair_and_full_where_all_pairs_are_allowed(
    width, first, ahead, documents
):
    length = 4 * TILE + 9
    mask = make_mask(width, first, ahead, documents, length)
    blocks = Tiles(mask, width, WindowLayout(length, width, first, ahead), CPU).blocks
    tiles = -(-length // TILE)
    window = make_mask(width, first, ahead, False, length)
    allowed = window.tensor(2, tiles * TILE, tiles * TILE, CPU)[0, 0]
    allowed = allowed.view(tiles, TILE, tiles, TILE).transpose(1, 2)
    needed, complete = allowed.any(-1).any(-1), allowed.all(-1).all(-1)
    full = dense(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    partial = dense(blocks.kv_num_blocks, blocks.kv_indices)
    assert torch.equal(partial | full, needed) and not (partial & full).any()
    assert not (full & ~complete).any()
    if not documents and not ahead and not first:
        assert torch.equal(full, complete)
    assert not (documents and full.any())


def dense(counts, indices):
    """(Q, S) booleans from the number of tiles in each row and their indices."""
    booleans = torch.zeros(indices.shape[-2:], dtype=torch.bool)
    for row, (count, tiles) in enumerate(zip(counts[0, 0], indices[0, 0], strict=True)):
        booleans[row, tiles[:count].long()] = True
    return booleans


def count_pairs(length, width):
    """The number of query-key pairs of one attention, and the band."""
    mask = Causal() & Window(width)
    band = make_band(
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
    (one, band), (two, _) = count_pairs(1 << 10, 100), count_pairs(1 << 11, 100)
    assert band.allowed.numel() <= 2 * 100 * 100 * 4  # not a mask of n² anywhere
    assert 1.9 < two / one < 2.1
    full = count_pairs(1 << 11, 1 << 11)[0]  # which has no band
    assert two < full / 8
    assert count_pairs(150, 100)[1] is None  # too short for a band to help


def test_a_rolling_cache_stores_the_last_positions_and_the_first():
    torch.manual_seed(0)
    layer = WindowedAttention(8, 2, width=5, first=2)
    state = layer.new_state(1, 100, torch.zeros(1))
    assert state.k.shape == (1, 2, 7, 4)
    x = random(1, 30, 8)
    expected = layer(x, AttentionContext(windowed=MaskAndBias(Causal() & Window(5, 2))))
    for t in range(30):
        got = layer(x[:, t : t + 1], AttentionContext(slots=t, end=t + 1), state)
        torch.testing.assert_close(got, expected[:, t : t + 1], atol=1e-6, rtol=0)
        stored = {p for p in state.positions(t + 1, CPU).tolist() if p >= 0}
        assert stored == {p for p in range(t + 1) if p < 2 or p > t - 5}


def test_a_cache_has_no_more_slots_than_its_capacity():
    assert WindowedAttention(8, 2, width=50).new_state(3, 9, torch.zeros(1)).slots == 9


def test_a_bias_rules_out_flex_attention():
    mask = Causal() & Window(5)
    tiles = Tiles(mask, 5, WindowLayout(300, MIN_BLOCK, 0, False), CPU)
    with pytest.raises(ValueError, match="take no bias"):
        tiles.bias(ALiBi(4).bias, torch.arange(300))
