"""Batches of pairs: which target stands with which source, how often, and how little is padding."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.batching import IGNORE, TokenLoader, windows
from regard.data.collate import lay_out_pairs, padding_share
from regard.data.shards import Shard, ShardWriter
from regard.errors import UsageError, UserError

START, END, PAD = 0, 1, 2
files = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
lengths = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), min_size=1, max_size=14)


class Tokens:
    """Ids 0, 1, 2 are <S>, <E>, <P>; every other stands for one symbol."""

    dtype, vocab_size, start, end, pad = np.uint32, 1 << 20, START, END, PAD
    symbols = byte_counts = np.ones(1 << 20, dtype=np.int64)


TOKENS = Tokens()


def write(path, sizes, first):
    """A shard of records of these sizes whose every token is different, from `first` on."""
    with ShardWriter(path, TOKENS) as writer:
        writer.add(np.arange(first, first + sum(sizes)), np.array(sizes))
    return Shard.open(path)


def build(folder, pairs):
    """A shard of pairs with these (source, target) sizes; no token is in both sides."""
    source = write(folder / "x-source", [s for s, _ in pairs], 1 << 19)
    return write(folder / "x", [t for _, t in pairs], 3).paired(source)


def like_sentences(count, seed=0):
    """Sizes like those of Multi30k: mean 13, deviation 5, correlation 0.8."""
    random = np.random.default_rng(seed)
    cov = [[25, 20], [20, 25]]
    drawn = random.multivariate_normal([13, 13], cov, count)
    return [tuple(pair) for pair in np.maximum(1, np.round(drawn)).astype(int).tolist()]


def wanted(shard, r):
    """Source, inputs and targets of record r, as plain tuples: the oracle."""
    record, source = shard.record(r).tolist(), shard.source.record(r).tolist()
    return tuple(source[1:]), tuple(record[:-1]), tuple(record[1:])


def unpack(batch):
    """The same of every pair in a batch, read off the tensors alone."""
    assert batch.source.ids.dtype == batch.source.segments.dtype == torch.int64
    assert batch.source.ids.shape[0] == batch.ids.shape[0]
    for b in range(batch.ids.shape[0]):
        numbers, beside = batch.segments, batch.source.segments[b]
        marks = (batch.ids[b] != PAD).long() if numbers is None else numbers[b]
        assert sorted(set(marks.tolist()) - {0}) == sorted(set(beside.tolist()) - {0})
        assert torch.all(batch.targets[b][marks == 0] == IGNORE)
        for s in range(1, int(beside.max()) + 1):
            for x in (marks == s, beside == s):
                at = x.nonzero().flatten().tolist()
                assert at == list(range(at[0], at[-1] + 1))  # one stretch
            rows = batch.source.ids[b][beside == s], batch.ids[b], batch.targets[b]
            yield (
                tuple(rows[0].tolist()),
                tuple(rows[1][marks == s].tolist()),
                tuple(rows[2][marks == s].tolist()),
            )


@files
@given(
    pairs=lengths,
    max_len=st.integers(6, 20),
    supports_packing=st.booleans(),
    micro=st.sampled_from([0, 41]),
)
def test_an_epoch_holds_every_pair_that_fits_exactly_once(
    tmp_path, pairs, max_len, supports_packing, micro
):
    shard = build(tmp_path, [*pairs, (3, 3)])  # one that fits in any case
    loader = TokenLoader(
        shard,
        TOKENS,
        max_len=max_len,
        batch_tokens=1,
        seed=3,
        supports_packing=supports_packing,
        micro_tokens=micro,
    )
    fits = [r for r, pair in enumerate([*pairs, (3, 3)]) if max(pair) < max_len]
    assert (loader.items, loader.dropped) == (len(fits), len(pairs) + 1 - len(fits))
    assert loader.windowed == 0 and not loader.running
    loader.items_per_step = max(k for k in (1, 2, 3, 5, 7) if loader.items % k == 0)
    loader._pool = 1 if supports_packing else loader.items // loader.items_per_step
    loader._pooled = (-1, [])
    for epoch in range(2):
        steps = range(loader.items // loader.items_per_step)
        batches = [b for n in steps for b in loader.step(n + epoch * len(steps))]
        found = Counter(x for batch in batches for x in unpack(batch))
        assert found == Counter(wanted(shard, r) for r in fits)
        assert sorted(i for b in batches for i in b.items) == list(range(len(fits)))
        assert sum(b.tokens for b in batches) == sum(len(wanted(shard, r)[1]) for r in fits)
        assert sum(b.symbols for b in batches) == sum(b.tokens for b in batches)
    for batch in batches:
        assert (batch.segments is not None) == supports_packing
        assert not micro or batch.ids.numel() + batch.source.ids.numel() <= micro


@files
@given(
    pairs=lengths,
    max_len=st.integers(1, 20),
    supports_packing=st.booleans(),
    most=st.integers(1, 90),
)
def test_evaluation_scores_every_target_once_beside_its_own_source(
    tmp_path, pairs, max_len, supports_packing, most
):
    shard = build(tmp_path, pairs)
    batches = list(
        windows(
            shard,
            TOKENS,
            max_len=max_len,
            stride=1,
            batch_tokens=most,
            supports_packing=supports_packing,
        )
    )
    found = Counter(x for batch in batches for x in unpack(batch))
    assert found == Counter(wanted(shard, r) for r in range(len(pairs)))
    places = torch.cat([b.positions[b.positions >= 0] for b in batches])
    assert sorted(places.tolist()) == [i for i, id in enumerate(shard.ids.tolist()) if id != START]
    for batch in batches:
        area = batch.ids.numel() + batch.source.ids.numel()
        assert area <= most or batch.ids.shape[0] == 1
        assert (batch.segments is not None) == supports_packing
        kept = batch.targets[batch.targets != IGNORE]
        assert kept.tolist() == shard.ids[batch.positions[batch.positions >= 0].numpy()].tolist()
        if any(max(len(source), len(inputs)) > max_len for source, inputs, _ in unpack(batch)):
            assert len(list(unpack(batch))) == 1  # whole, and alone


@pytest.mark.parametrize("supports_packing", [False, True])
@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_share_out_the_same_pairs(tmp_path, supports_packing, world):
    shard = build(tmp_path, like_sentences(40))
    loader = TokenLoader(
        shard, TOKENS, max_len=25, batch_tokens=200, seed=5, supports_packing=supports_packing
    )
    for n in range(5):
        alone = Counter(x for b in loader.step(n) for x in unpack(b))
        shared = [loader.step(n, rank, world) for rank in range(world)]
        assert Counter(x for part in shared for b in part for x in unpack(b)) == alone
        assert {wanted(shard, r) for r in loader.records_of(n)} == set(alone)
    again = TokenLoader(
        shard, TOKENS, max_len=25, batch_tokens=200, seed=5, supports_packing=supports_packing
    ).step(4)
    for one, two in zip(again, loader.step(4), strict=True):
        assert torch.equal(one.ids, two.ids) and torch.equal(one.source.ids, two.source.ids)


def test_few_shapes_hold_the_same_pairs_in_one_rectangle_a_step(tmp_path):
    shard = build(tmp_path, [(7, t) for _, t in like_sentences(60)])
    options = {"max_len": 25, "batch_tokens": 200, "seed": 5, "supports_packing": False}
    loader = TokenLoader(shard, TOKENS, **options, few=True)
    seen, shapes = Counter(), set()
    for n in range(round(3 * loader.steps_per_epoch)):
        (batch,) = loader.step(n)
        shapes |= {(tuple(batch.ids.shape), tuple(batch.source.ids.shape))}
        for row in unpack(batch):
            seen[row] += 1
        assert {wanted(shard, r) for r in loader.records_of(n)} == set(unpack(batch))
    longest = max(len(target) for _, _, target in map(lambda r: wanted(shard, r), range(60)))
    rows = loader.items_per_step
    assert shapes == {((rows, -(-longest // 8) * 8), (rows, 8))}
    assert sum(seen.values()) == rows * round(3 * loader.steps_per_epoch)
    parts = TokenLoader(shard, TOKENS, **options, few=True, micro_tokens=80).step(0)
    assert len(parts) > 1
    assert all(part.ids.numel() + part.source.ids.numel() <= 80 for part in parts)
    assert Counter(x for part in parts for x in unpack(part)) == Counter(unpack(loader.step(0)[0]))


def areas(batches):
    """Positions, and those that hold something, of both sides."""
    real = sum(b.tokens + int((b.source.segments > 0).sum()) for b in batches)
    return sum(b.ids.numel() + b.source.ids.numel() for b in batches), real


@pytest.mark.parametrize("supports_packing", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 1.3, 0.6])
def test_padding_of_sentences_stays_below_five_percent_of_both_sides(
    tmp_path, supports_packing, ratio
):
    sizes = [(s, max(1, round(ratio * t))) for s, t in like_sentences(4000)]
    shard = build(tmp_path, sizes)
    loader = TokenLoader(
        shard, TOKENS, max_len=64, batch_tokens=4096, seed=0, supports_packing=supports_packing
    )
    steps = [loader.step(n) for n in range(10, 20)]
    area, real = areas([b for step in steps for b in step])
    assert 1 - real / area < 0.05
    assert abs(loader.padding - (1 - real / area)) < 0.02
    assert all(0.8 < sum(b.tokens for b in step) / 4096 < 1.2 for step in steps)
    if supports_packing:
        assert all(len(step) == 1 for step in steps)
        shapes = {(step[0].ids.shape, step[0].source.ids.shape) for step in steps}
        assert len({(a[1], b[1]) for a, b in shapes}) <= 2  # few shapes: rows differ, widths hardly
        assert {width % 8 for a, b in shapes for width in (a[1], b[1])} == {0}
        assert max(a[1] for a, _ in shapes) < 16 * np.mean([t for _, t in sizes])
    else:
        assert sum(map(len, steps)) < 8 * len(steps)  # few rectangles
    evaluated = windows(
        shard, TOKENS, max_len=64, stride=1, batch_tokens=4096, supports_packing=supports_packing
    )
    total = sum(b.ids.numel() + b.source.ids.numel() for b in evaluated)
    assert 1 - (shard.tokens + shard.source.tokens - 2 * shard.records) / total < 0.07


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40),
    rows=st.sampled_from([(0, 0), (8, 8), (24, 40)]),
    most=st.sampled_from([0, 60, 130]),
)
def test_layouts_of_pairs_overlap_nowhere(pairs, rows, most):
    firsts, seconds = np.array(pairs).T
    layouts = lay_out_pairs(firsts, seconds, rows, most)
    assert sorted(i for x in layouts for i in x.members.tolist()) == list(range(len(pairs)))
    for layout in layouts:
        assert not most or layout.area <= most
        for side, sizes in ((layout, firsts), (layout.beside, seconds)):
            assert np.array_equal(side.members, layout.members)
            assert np.array_equal(side.row, layout.row)
            taken = np.zeros((side.n_rows, side.width), dtype=int)
            for member, row, column in zip(side.members, side.row, side.column, strict=True):
                assert column + sizes[member] <= side.width
                taken[row, column : column + sizes[member]] += 1
            assert taken.max() == 1 and np.all(taken.any(axis=1))
    if not any(rows):
        assert padding_share(layouts, int(firsts.sum() + seconds.sum())) < 0.05


def test_pairs_out_of_proportion_are_dropped_when_asked(tmp_path):
    shard = build(tmp_path, [(6, 3), (3, 7), (4, 4), (0, 2), (2, 0), (0, 3)])
    loader = TokenLoader(
        shard, TOKENS, max_len=9, batch_tokens=99, seed=0, supports_packing=True, max_ratio=2
    )
    assert loader.dropped == 2  # 7 for 3, and 3 for none, which counts as one
    assert loader.records_of(0) == [0, 2, 3, 4]


def test_what_cannot_be_batched_says_why(tmp_path):
    shard = build(tmp_path, [(9, 3), (2, 9)])
    with pytest.raises(UserError, match=r"none of the 2 training pairs.*model.max_len = 9 tokens$"):
        TokenLoader(shard, TOKENS, max_len=9, batch_tokens=9, seed=0, supports_packing=True)
    with pytest.raises(UserError, match=r"or of more than 1\.5 times the other's$"):
        TokenLoader(
            shard, TOKENS, max_len=9, batch_tokens=9, seed=0, supports_packing=True, max_ratio=1.5
        )
    with pytest.raises(
        UsageError, match="at least 20, the length of the longest target and source"
    ):
        TokenLoader(
            shard,
            TOKENS,
            max_len=10,
            batch_tokens=9,
            seed=0,
            supports_packing=True,
            micro_tokens=19,
        )
    other = write(tmp_path / "y", [1], 3)
    with pytest.raises(UserError, match=r"x-source must hold as many records as .*y, got 2 and 1"):
        other.paired(shard.source)
