"""Batches of records, labelled records, pairs and running text: order, content, padding."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import batching as module
from regard.data.batching import (
    IGNORE,
    LabelledExamples,
    LabelledLoader,
    Order,
    TokenLoader,
    bucket,
    choose_row,
    draw,
    drawn_order,
    lay_out,
    lay_out_pairs,
    pack,
    padding_share,
    sample,
    windows,
)
from regard.data.shards import Shard, ShardWriter
from regard.data.targets import marked
from regard.errors import UsageError, UserError
from regard.evaluation.eval_data import shard_of
from regard.tokenizers import Characters

some_lengths = st.lists(st.integers(1, 23), min_size=1, max_size=40).map(
    lambda xs: np.array(xs, dtype=np.int64)
)


def cells(layout, lengths):
    """Every (row, column) that a layout uses, sequence by sequence."""
    for member, row, column in zip(layout.members, layout.row, layout.column, strict=True):
        for step in range(lengths[member]):
            yield int(row), int(column) + step


def best_fit_decreasing(lengths, width):
    """What is left free in every row, by scanning all rows for each sequence."""
    free = []
    for length in sorted(lengths.tolist(), reverse=True):
        fitting = [space for space in free if space >= length]
        if fitting:
            free[free.index(min(fitting))] -= length
        else:
            free.append(width - length)
    return free


@settings(max_examples=80, deadline=None)
@given(lengths=some_lengths, extra=st.integers(0, 30))
def test_packing_is_best_fit_decreasing_and_nothing_overlaps(lengths, extra):
    layout = pack(lengths, int(lengths.max()) + extra)
    used = list(cells(layout, lengths))
    assert sorted(layout.members) == list(range(lengths.size))
    assert len(set(used)) == len(used) == lengths.sum()
    assert max(column for _, column in used) < layout.width
    free = [layout.width - sum(row == r for row, _ in used) for r in range(layout.n_rows)]
    assert sorted(free) == sorted(best_fit_decreasing(lengths, layout.width))
    for row in range(layout.n_rows):  # segments count from 1, left to right
        inside = layout.row == row
        in_order = layout.segment[inside][np.argsort(layout.column[inside])]
        assert in_order.tolist() == list(range(1, inside.sum() + 1))


@settings(max_examples=80, deadline=None)
@given(lengths=some_lengths)
def test_buckets_hold_every_sequence_once_sorted_and_waste_little(lengths):
    layouts = bucket(lengths)
    members = np.concatenate([layout.members for layout in layouts])
    assert sorted(members) == list(range(lengths.size))
    assert np.all(np.diff(lengths[members]) <= 0)
    for layout in layouts:
        assert layout.width == lengths[layout.members].max()
        assert layout.row.tolist() == list(range(layout.n_rows))
        assert not layout.column.any()
        assert layout.segment is None
    assert padding_share(layouts, int(lengths.sum())) < 0.05


def test_a_few_odd_lengths_join_their_neighbours():
    lengths = np.array([20] * 100 + [19, 18] + [10] * 100 + [9])
    assert [(x.width, x.n_rows) for x in bucket(lengths)] == [(20, 102), (10, 101)]


@settings(max_examples=50, deadline=None)
@given(lengths=some_lengths, row=st.sampled_from([0, 23, 50]), most=st.integers(0, 200))
def test_parts_respect_the_limit_and_lose_nothing(lengths, row, most):
    whole, parts = lay_out(lengths, row, 0), lay_out(lengths, row, most)
    members = [m for part in parts for m in part.members]
    assert sorted(members) == list(range(lengths.size))
    assert sum(p.n_rows for p in parts) == sum(w.n_rows for w in whole)
    for part in parts:
        assert not most or part.n_rows == 1 or part.n_rows * part.width <= most
        used = list(cells(part, lengths))
        assert len(set(used)) == len(used)
        assert {r for r, _ in used} == set(range(part.n_rows))


def test_nothing_to_lay_out_gives_no_layout():
    assert lay_out(np.empty(0, dtype=np.int64), 8, 100) == []


def test_the_row_is_the_shortest_that_wastes_little():
    rng = np.random.default_rng(0)
    names = [rng.integers(3, 16, size=512) for _ in range(4)]
    row = choose_row(names, longest=15, limit=1024)
    shares = {
        width: padding_share([pack(x, width) for x in names], int(sum(x.sum() for x in names)))
        for width in (16, 24, 32, 48, 64)
    }
    assert row == min(width for width, share in shares.items() if share < 0.03)


@pytest.mark.parametrize("limit", [40, 41, 1000])
def test_the_row_falls_back_on_the_best_within_the_limit(limit):
    awkward = [np.array([33])]  # no row wastes under 3%: the shortest candidate wastes least
    assert choose_row(awkward, longest=33, limit=limit) == 40
    assert choose_row(awkward, longest=33, limit=34) == 34


START, END, PAD = 0, 1, 2


@dataclass
class Tokens:
    """Ids 0, 1, 2 are <S>, <E>, <P>; token i stands for i % 3 + 1 symbols."""

    dtype: object = np.uint32
    vocab_size: int = 100_000
    start: int = START
    end: int = END
    pad: int = PAD
    symbols: np.ndarray = field(default_factory=lambda: np.arange(100_000) % 3 + 1)
    byte_counts: np.ndarray = field(default_factory=lambda: np.ones(100_000, dtype=np.int64))


TOKENS = Tokens()
slow_files = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def build(path, lengths, kind="records"):
    """A shard whose every content token is different, so that a token names its place."""
    ids = np.arange(3, 3 + sum(lengths))
    with ShardWriter(path, TOKENS) as writer:
        if kind == "records":
            writer.add(ids, np.array(lengths))
        else:
            for part in np.split(ids, np.cumsum(lengths)[:-1]):
                writer.begin_text()
                writer.add_text(part)
                writer.end_text()
    return Shard.open(path)


def names(count, seed=0):
    """Lengths like those of first names."""
    return np.clip(np.random.default_rng(seed).normal(6.1, 1.6, count), 2, 15).astype(int).tolist()


def pieces(record, max_len):
    """The slow oracle of items: (inputs, targets) of consecutive windows."""
    ids = record.tolist()
    inputs, targets = ids[:-1], ids[1:]
    cuts = range(0, len(inputs), max_len)
    return [(tuple(inputs[c : c + max_len]), tuple(targets[c : c + max_len])) for c in cuts]


def unpack(batch):
    """(inputs, targets) of every sequence in a batch, row by row, from segments or padding."""
    for b in range(batch.ids.shape[0]):
        ids, targets = batch.ids[b].tolist(), batch.targets[b].tolist()
        if batch.segments is None:
            real = [t for t in range(len(ids)) if ids[t] != PAD]
            assert real == list(range(len(real)))  # padded on the right
            runs = [real]
        else:
            marks = batch.segments[b].tolist()
            runs = [[t for t in range(len(ids)) if marks[t] == s] for s in range(1, max(marks) + 1)]
            assert all(run == list(range(run[0], run[-1] + 1)) for run in runs)
            assert all(ids[t] == PAD for t in range(len(ids)) if marks[t] == 0)
        kept = [t for run in runs for t in run]
        assert all(targets[t] == IGNORE for t in range(len(ids)) if t not in kept)
        for run in runs:
            yield tuple(ids[t] for t in run), tuple(targets[t] for t in run)


def epoch(loader, number=0, world=1):
    """The batches of the steps that make up one epoch; needs a whole number of steps."""
    steps = round(loader.steps_per_epoch)
    assert steps == loader.steps_per_epoch
    for step in range(number * steps, (number + 1) * steps):
        for rank in range(world):
            yield from loader.step(step, rank, world)


def same(a, b):
    """Are two micro-batches equal in everything?"""
    segments = a.segments is b.segments is None or torch.equal(a.segments, b.segments)
    tensors = torch.equal(a.ids, b.ids) and torch.equal(a.targets, b.targets)
    return segments and tensors and np.array_equal(a.items, b.items)


def test_ignored_targets_are_those_the_models_ignore():
    from regard.models import language_model

    assert language_model.IGNORE == IGNORE


@slow_files
@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    max_len=st.integers(3, 25),
    supports_packing=st.booleans(),
    micro=st.sampled_from([0, 26, 60]),
)
def test_an_epoch_holds_every_item_exactly_once(
    tmp_path, lengths, max_len, supports_packing, micro
):
    shard = build(tmp_path / "x", lengths)
    loader = TokenLoader(
        shard,
        TOKENS,
        max_len=max_len,
        batch_tokens=1,
        seed=3,
        supports_packing=supports_packing,
        micro_tokens=micro,
    )
    loader.items_per_step = max(k for k in (1, 2, 3, 5) if loader.items % k == 0)
    wanted = Counter(x for r in range(shard.records) for x in pieces(shard.record(r), max_len))
    assert loader.items == sum(wanted.values())
    assert loader.windowed == sum(length + 1 > max_len for length in lengths)
    for number in range(2):
        batches = list(epoch(loader, number))
        assert Counter(x for batch in batches for x in unpack(batch)) == wanted
        assert sorted(i for b in batches for i in b.items) == list(range(loader.items))
        assert sum(b.tokens for b in batches) == shard.tokens - shard.records
        assert sum(b.symbols for b in batches) == shard.symbols
    for batch in batches:
        assert batch.ids.dtype == batch.targets.dtype == torch.int64
        assert (batch.segments is not None) == supports_packing
        assert not micro or batch.ids.numel() <= micro


@pytest.mark.parametrize("supports_packing", [False, True])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_out_the_same_steps(tmp_path, supports_packing, world):
    lengths = [3, 1, 25, 8, 0, 2, 17, 4, 6]
    loader = TokenLoader(
        build(tmp_path / "x", lengths),
        TOKENS,
        max_len=7,
        batch_tokens=31,
        seed=5,
        supports_packing=supports_packing,
    )
    for n in range(6):
        alone = loader.step(n)
        shared = [b for rank in range(world) for b in loader.step(n, rank, world)]
        assert Counter(x for b in alone for x in unpack(b)) == Counter(
            x for b in shared for x in unpack(b)
        )
        assert sum(b.symbols for b in alone) == sum(b.symbols for b in shared)
        numbers = set().union(*(loader.records_of(n, rank, world) for rank in range(world)))
        assert sorted(numbers) == loader.records_of(n)


def test_more_ranks_than_items_leaves_some_with_nothing(tmp_path):
    loader = TokenLoader(
        build(tmp_path / "x", [3, 4]),
        TOKENS,
        max_len=9,
        batch_tokens=99,
        seed=0,
        supports_packing=True,
    )
    assert loader.items_per_step == 2  # an item never comes twice in a step
    assert [len(loader.step(0, rank, 3)) for rank in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("supports_packing", [False, True])
@pytest.mark.parametrize("kind", ["records", "text"])
def test_a_step_is_the_same_after_opening_again(tmp_path, supports_packing, kind):
    def loader(seed=8):
        shard = Shard.open(tmp_path / "x")
        return TokenLoader(
            shard, TOKENS, max_len=6, batch_tokens=40, seed=seed, supports_packing=supports_packing
        )

    build(tmp_path / "x", [3, 40, 7, 5, 21, 9], kind)
    first = loader()
    streamed = [first.step(n) for n in range(9)]
    sought = loader().step(7)
    assert len(sought) == len(streamed[7])
    assert all(same(a, b) for a, b in zip(sought, streamed[7], strict=True))
    other = loader(seed=9).step(7)
    assert not all(same(a, b) for a, b in zip(sought, other, strict=False))


def test_steps_say_which_records_they_read(tmp_path):
    shard = build(tmp_path / "x", [3, 30, 2, 14, 0])
    loader = TokenLoader(shard, TOKENS, max_len=6, batch_tokens=12, seed=1, supports_packing=True)
    seen = set()
    for n in range(8):
        tokens = [t for b in loader.step(n) for t in b.ids.flatten().tolist() if t > PAD]
        found = {int(shard.record_of(np.flatnonzero(shard.ids == t))[0]) for t in tokens}
        assert found <= set(loader.records_of(n))
        seen |= set(loader.records_of(n))
    assert seen == {0, 1, 2, 3, 4}


@slow_files
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=4), max_len=st.integers(2, 19))
def test_running_text_fills_every_window_from_one_stream(tmp_path, lengths, max_len):
    shard = build(tmp_path / "x", lengths, "text")
    loader = TokenLoader(
        shard, TOKENS, max_len=max_len, batch_tokens=10**6, seed=4, supports_packing=True
    )
    stream = shard.ids.tolist()
    width = min(max_len, len(stream) - 1)
    assert loader.items == loader.items_per_step == max(1, (len(stream) - max_len) // max_len)
    assert loader.padding == 0
    seen = set()
    for number in range(30):
        (batch,) = loader.step(number)  # an epoch at a time
        items, spans = loader.spans(np.arange(loader.items) + number * loader.items)
        assert batch.segments is None
        assert batch.ids.shape == (loader.items, width)
        assert np.array_equal(batch.items, items)
        symbols = []
        for row, start in enumerate(spans.starts.tolist()):
            follow = stream[start + 1 : start + width + 1]
            assert batch.ids[row].tolist() == stream[start : start + width]
            assert batch.targets[row].tolist() == [IGNORE if t == START else t for t in follow]
            symbols += [1 if t == END else t % 3 + 1 for t in follow if t != START]
            seen |= set(range(start, start + width))
        assert (batch.tokens, batch.symbols) == (len(symbols), sum(symbols))
        assert np.all(np.diff(np.sort(spans.starts)) == max_len)  # a grid: nothing twice an epoch
    assert len(seen) > 0.8 * (len(stream) - 1)  # no stretch of the text is out of reach


@pytest.mark.parametrize("kind", ["records", "text"])
def test_one_marker_for_start_and_end_still_scores_every_end(tmp_path, kind):
    """Vocabularies such as GPT-2's mark both with one token: `<S>` must be told by its place."""
    tokens = Tokens(start=END, end=END)
    with ShardWriter(tmp_path / "x", tokens) as writer:
        if kind == "records":
            writer.add(np.array([5, 6, 7]), np.array([2, 0, 1]))
        else:
            for piece in ([5, 6], [], [7]):
                writer.begin_text()
                writer.add_text(np.array(piece, dtype=np.int64))
                writer.end_text()
    shard = Shard.open(tmp_path / "x")
    assert shard.ids.tolist() == [1, 5, 6, 1, 1, 1, 1, 7, 1]
    batches = windows(shard, tokens, max_len=4, stride=2, batch_tokens=9, supports_packing=True)
    assert scored(shard, batches) == Counter([1, 2, 3, 5, 7, 8])


def test_the_grid_of_running_text_moves_every_epoch(tmp_path):
    shard = build(tmp_path / "x", [500], "text")
    loader = TokenLoader(shard, TOKENS, max_len=20, batch_tokens=60, seed=4, supports_packing=False)
    shifts = [loader.spans(np.array([e * loader.items]))[1].starts.item() % 20 for e in range(200)]
    assert set(shifts) == set(range(20))
    assert [b.ids.shape for b in loader.step(3)] == [(3, 20)]


def test_records_much_longer_than_the_window_are_treated_as_running_text(tmp_path):
    long = TokenLoader(
        build(tmp_path / "x", [90, 110]),
        TOKENS,
        max_len=10,
        batch_tokens=50,
        seed=0,
        supports_packing=True,
    )
    short = TokenLoader(
        build(tmp_path / "y", [60, 80]),
        TOKENS,
        max_len=10,
        batch_tokens=50,
        seed=0,
        supports_packing=True,
    )
    assert (long.running, short.running) == (True, False)
    assert (long.windowed, short.windowed) == (2, 2)


def test_one_item_per_record_needs_no_index(tmp_path):
    shard = build(tmp_path / "x", names(50))
    loader = TokenLoader(shard, TOKENS, max_len=16, batch_tokens=40, seed=0, supports_packing=True)
    items, spans = loader.spans(np.arange(50))
    assert loader._pieces is None
    assert np.array_equal(shard.record_of(spans.starts), items)


@pytest.mark.parametrize(
    ("lengths", "max_len", "batch_tokens"),
    [
        (names(3_000), 32, 4_096),
        (np.random.default_rng(1).integers(1, 250, 800).tolist(), 256, 8_192),
        (np.random.default_rng(2).lognormal(3, 1.2, 900).astype(int).tolist(), 128, 6_000),
    ],
    ids=["names", "uniform", "wild"],
)
@pytest.mark.parametrize("supports_packing", [False, True])
def test_padding_stays_small(tmp_path, lengths, max_len, batch_tokens, supports_packing):
    shard = build(tmp_path / "x", lengths)
    loader = TokenLoader(
        shard,
        TOKENS,
        max_len=max_len,
        batch_tokens=batch_tokens,
        seed=0,
        supports_packing=supports_packing,
    )
    steps = [loader.step(n) for n in range(5, 15)]
    area = sum(b.ids.numel() for step in steps for b in step)
    real = sum(b.tokens for step in steps for b in step)
    assert 1 - real / area < 0.05
    assert abs(loader.padding - (1 - real / area)) < 0.02
    assert 0.7 < real / (10 * batch_tokens) < 1.3
    if supports_packing:
        assert {b.ids.shape[1] for step in steps for b in step} == {loader.row}
        assert loader.row <= max(1024, max_len)


def scored(shard, batches):
    """How often each index into shard.ids was scored, checking each target on the way."""
    counts = Counter()
    for batch in batches:
        positions, targets = batch.positions.flatten(), batch.targets.flatten()
        assert torch.equal(positions == -1, targets == IGNORE)
        kept = positions[positions >= 0]
        assert targets[targets != IGNORE].tolist() == shard.ids[kept.numpy()].tolist()
        counts.update(kept.tolist())
    return counts


@slow_files
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=9),
    max_len=st.integers(1, 19),
    part=st.floats(0, 1),
    supports_packing=st.booleans(),
    kind=st.sampled_from(["records", "text"]),
)
def test_evaluation_scores_every_symbol_exactly_once(
    tmp_path, lengths, max_len, part, supports_packing, kind
):
    stride = max(1, round(part * max_len))
    shard = build(tmp_path / "x", lengths, kind)
    batches = list(
        windows(
            shard,
            TOKENS,
            max_len=max_len,
            stride=stride,
            batch_tokens=37,
            supports_packing=supports_packing,
        )
    )
    wanted = [i for i, token in enumerate(shard.ids.tolist()) if token != START]
    assert scored(shard, batches) == Counter(wanted)
    for batch in batches:
        assert batch.ids.numel() <= max(37, batch.ids.shape[1])
        assert (batch.segments is not None) == (supports_packing and kind == "records")


@pytest.mark.parametrize("kind", ["records", "text"])
@pytest.mark.parametrize("stride", [1, 3, 7, 8])
def test_evaluation_gives_every_target_the_context_it_can(tmp_path, kind, stride):
    """Oracle: a target sees all of its record, or at least max_len - stride + 1 inputs of it."""
    max_len = 8
    shard = build(tmp_path / "x", [30, 5, 8, 7, 0], kind)
    stream = shard.ids.tolist()
    for batch in windows(
        shard,
        TOKENS,
        max_len=max_len,
        stride=stride,
        batch_tokens=50,
        supports_packing=kind == "records",
    ):
        for b, t in (batch.positions >= 0).nonzero().tolist():
            place = int(batch.positions[b, t])
            begin = int(shard.offsets[shard.record_of(place)]) if kind == "records" else 0
            first = t
            if batch.segments is not None:
                while first and batch.segments[b, first - 1] == batch.segments[b, t]:
                    first -= 1
            else:
                first = 0
            seen = t - first + 1
            assert batch.ids[b, first : t + 1].tolist() == stream[place - seen : place]
            assert seen >= min(place - begin, max_len - stride + 1)
            assert place - seen >= begin


def test_evaluation_batches_are_lazy_and_padding_is_small(tmp_path):
    shard = build(tmp_path / "x", names(4_000))
    for supports_packing in (False, True):
        batches = list(
            islice(
                windows(
                    shard,
                    TOKENS,
                    max_len=32,
                    stride=16,
                    batch_tokens=2_048,
                    supports_packing=supports_packing,
                ),
                10,
            )
        )
        area = sum(b.ids.numel() for b in batches)
        assert sum(int((b.ids != PAD).sum()) for b in batches) > 0.95 * area
        assert 10 >= len(batches) > 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_len": 0}, "max_len must be at least 1, got 0"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        ({"micro_tokens": -1}, "micro_tokens must be 0 or at least 5, .* got -1"),
        ({"micro_tokens": 4}, "micro_tokens must be 0 or at least 5, .* got 4"),
    ],
)
def test_wrong_settings_are_named(tmp_path, change, message):
    shard = build(tmp_path / "x", [4, 2])
    settings_ = {"max_len": 9, "batch_tokens": 20, "seed": 0, "supports_packing": True} | change
    with pytest.raises(UsageError, match=message):
        TokenLoader(shard, TOKENS, **settings_)


def test_wrong_data_and_wrong_calls_are_named(tmp_path):
    shard = build(tmp_path / "x", [4, 2])
    with pytest.raises(UserError, match="written with 100000 tokens, this tokenizer has 9"):
        TokenLoader(
            shard, Tokens(vocab_size=9), max_len=9, batch_tokens=9, seed=0, supports_packing=True
        )
    with pytest.raises(UserError, match="holds no records"):
        TokenLoader(
            build(tmp_path / "y", []),
            TOKENS,
            max_len=9,
            batch_tokens=9,
            seed=0,
            supports_packing=True,
        )
    with pytest.raises(UsageError, match=r"stride must lie in \[1, max_len = 9\], got 10"):
        windows(shard, TOKENS, max_len=9, stride=10, batch_tokens=9, supports_packing=True)
    loader = TokenLoader(shard, TOKENS, max_len=9, batch_tokens=9, seed=0, supports_packing=True)
    for call in ((-1, 0, 1), (0, 2, 2)):
        with pytest.raises(ValueError, match=f"got step {call[0]}, rank {call[1]}"):
            loader.step(*call)


def epoch_of(n, seed, epoch):
    return Order(n, seed)(np.arange(epoch * n, (epoch + 1) * n))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 10**9),
)
def test_every_epoch_is_a_permutation(n, seed, epoch):
    assert sorted(epoch_of(n, seed, epoch).tolist()) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 4**6 - 1, 4**6, 4**6 + 1, 2**13, 50_021])
def test_sizes_around_powers_of_two_are_permuted_too(n):
    assert np.array_equal(np.sort(epoch_of(n, 5, 3)), np.arange(n))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), n=st.integers(1, 50), seed=st.integers(0, 99))
def test_seeking_gives_what_streaming_gives(data, n, seed):
    stream = Order(n, seed)(np.arange(4 * n))
    some = data.draw(st.lists(st.integers(0, 4 * n - 1), max_size=9))
    assert Order(n, seed)(np.array(some, dtype=np.int64)).tolist() == [stream[p] for p in some]


def test_blocks_do_not_show_and_the_shape_is_kept(monkeypatch):
    positions = np.arange(60).reshape(3, 4, 5) + 1_000
    whole = Order(17, 2)(positions)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert whole.shape == (3, 4, 5)
    assert whole.dtype == np.int64
    assert np.array_equal(Order(17, 2)(positions), whole)


def test_epochs_and_seeds_differ():
    orders = [epoch_of(30, seed, epoch) for seed in range(4) for epoch in range(5)]
    assert len({tuple(order.tolist()) for order in orders}) == 20


def test_huge_data_sets_are_ordered_without_storing_anything():
    n = 3 * 2**40 + 1
    items = Order(n, 1)(np.arange(2 * n, 2 * n + 5_000))
    assert items.min() >= 0
    assert items.max() < n
    assert len(set(items.tolist())) == 5_000
    assert abs(items.mean() / n - 0.5) < 4 / np.sqrt(12 * 5_000)


@pytest.mark.parametrize("n", [2, 3, 5, 11, 100])
def test_the_first_item_of_an_epoch_is_uniform(n):
    epochs = 200 * n
    for firsts in (
        Order(n, 7)(np.arange(epochs) * n),
        np.array([Order(n, seed)(np.array([0]))[0] for seed in range(20 * n)]),
    ):
        expected = firsts.size / n
        chi = ((np.bincount(firsts, minlength=n) - expected) ** 2 / expected).sum()
        assert chi < (n - 1) + 5 * np.sqrt(2 * (n - 1)) + 5


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_every_permutation_of_a_few_items_is_equally_likely(n):
    every = {order: i for i, order in enumerate(permutations(range(n)))}
    epochs = 100 * len(every)
    orders = Order(n, 3)(np.arange(epochs * n)).reshape(epochs, n)
    counts = np.bincount([every[tuple(o)] for o in orders.tolist()], minlength=len(every))
    chi = ((counts - 100) ** 2 / 100).sum()
    assert chi < len(every) + 5 * np.sqrt(2 * len(every)) + 5


def test_neighbours_are_uncorrelated_within_and_across_epochs():
    n = 10_007
    epochs = [epoch_of(n, 11, epoch) for epoch in range(3)]
    for order in epochs:
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4 / np.sqrt(n)
        assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 4 / np.sqrt(n)
        assert np.count_nonzero(np.abs(np.diff(order)) == 1) < 20  # 2 expected
    for before, after in pairwise(epochs):
        assert abs(np.corrcoef(before, after)[0, 1]) < 4 / np.sqrt(n)


def test_drawn_words_depend_on_seed_counter_and_stream():
    words = [
        draw(seed, np.array([counter]), stream=stream).item()
        for seed in range(3)
        for counter in range(4)
        for stream in range(5)
    ]
    assert len(set(words)) == 60
    bits = np.unpackbits(draw(0, np.arange(4_096)).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(bits.size)


def test_mistakes_name_the_value():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        Order(0, 1)
    with pytest.raises(ValueError, match="positions must be at least 0, got -3"):
        Order(4, 1)(np.array([2, -3]))


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


LETTERS = Characters.train(["abcdefghij"])


def labelled_classes(classes, views=1):
    """Records of 4 to 6 tokens whose first letter is their class."""
    texts = ["abcdefghij"[c] * (2 + i % 3) for i, c in enumerate(classes) for _ in range(views)]
    shard = shard_of(texts, LETTERS)
    targets = np.repeat(np.array(classes, np.int32), views)
    return dataclasses.replace(shard, targets=targets, views=views)


def test_a_sample_of_records_sorted_by_label_has_every_class():
    """The first 32 validation records of a sorted table are of one class."""
    shard = labelled_classes([0] * 120 + [1] * 60 + [2] * 20)
    part = sample(shard, shard.tokens // 10, 3, block=9)
    assert np.bincount(part.targets).tolist() == [12, 6, 2]
    assert 0.05 < part.tokens / shard.tokens < 0.15
    first = [LETTERS.decode(part.record(i)[1:2]) for i in range(part.records)]
    assert first == ["abc"[c] for c in part.targets]  # each with its own target


@pytest.mark.parametrize("count", [1, 7, 50, 199])
def test_a_smaller_sample_lies_in_a_larger_one_and_classes_keep_their_shares(count):
    classes = np.array([0] * 150 + [1] * 50)
    order = drawn_order(labelled_classes(classes.tolist()), 0)
    assert sorted(order.tolist()) == list(range(200))
    ones = int(classes[order[:count]].sum())
    assert abs(ones - count / 4) <= 1


def test_the_seed_alone_decides_and_another_seed_draws_others():
    shard = labelled_classes([0, 1] * 50)
    one, same, other = (sample(shard, 100, seed, block=9) for seed in (5, 5, 6))
    assert np.array_equal(one.ids, same.ids) and not np.array_equal(one.ids, other.ids)


def test_views_of_a_record_stay_together():
    part = sample(labelled_classes([0, 1, 2, 3] * 10, views=2), 60, 0, block=9)
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
    shard = labelled_classes([0, 1])
    assert sample(shard, shard.tokens, 0, block=9) is shard


files = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
lengths = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), min_size=1, max_size=14)


class PairTokens:
    """Ids 0, 1, 2 are <S>, <E>, <P>; every other stands for one symbol."""

    dtype, vocab_size, start, end, pad = np.uint32, 1 << 20, START, END, PAD
    symbols = byte_counts = np.ones(1 << 20, dtype=np.int64)


PAIR_TOKENS = PairTokens()


def write(path, sizes, first):
    """A shard of records of these sizes whose every token is different, from `first` on."""
    with ShardWriter(path, PAIR_TOKENS) as writer:
        writer.add(np.arange(first, first + sum(sizes)), np.array(sizes))
    return Shard.open(path)


def build_pairs(folder, pairs):
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


def unpack_pairs(batch):
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
    shard = build_pairs(tmp_path, [*pairs, (3, 3)])  # one that fits in any case
    loader = TokenLoader(
        shard,
        PAIR_TOKENS,
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
        found = Counter(x for batch in batches for x in unpack_pairs(batch))
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
    shard = build_pairs(tmp_path, pairs)
    batches = list(
        windows(
            shard,
            PAIR_TOKENS,
            max_len=max_len,
            stride=1,
            batch_tokens=most,
            supports_packing=supports_packing,
        )
    )
    found = Counter(x for batch in batches for x in unpack_pairs(batch))
    assert found == Counter(wanted(shard, r) for r in range(len(pairs)))
    places = torch.cat([b.positions[b.positions >= 0] for b in batches])
    assert sorted(places.tolist()) == [i for i, id in enumerate(shard.ids.tolist()) if id != START]
    for batch in batches:
        area = batch.ids.numel() + batch.source.ids.numel()
        assert area <= most or batch.ids.shape[0] == 1
        assert (batch.segments is not None) == supports_packing
        kept = batch.targets[batch.targets != IGNORE]
        assert kept.tolist() == shard.ids[batch.positions[batch.positions >= 0].numpy()].tolist()
        if any(
            max(len(source), len(inputs)) > max_len for source, inputs, _ in unpack_pairs(batch)
        ):
            assert len(list(unpack_pairs(batch))) == 1  # whole, and alone


@pytest.mark.parametrize("supports_packing", [False, True])
@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_share_out_the_same_pairs(tmp_path, supports_packing, world):
    shard = build_pairs(tmp_path, like_sentences(40))
    loader = TokenLoader(
        shard, PAIR_TOKENS, max_len=25, batch_tokens=200, seed=5, supports_packing=supports_packing
    )
    for n in range(5):
        alone = Counter(x for b in loader.step(n) for x in unpack_pairs(b))
        shared = [loader.step(n, rank, world) for rank in range(world)]
        assert Counter(x for part in shared for b in part for x in unpack_pairs(b)) == alone
        assert {wanted(shard, r) for r in loader.records_of(n)} == set(alone)
    again = TokenLoader(
        shard, PAIR_TOKENS, max_len=25, batch_tokens=200, seed=5, supports_packing=supports_packing
    ).step(4)
    for one, two in zip(again, loader.step(4), strict=True):
        assert torch.equal(one.ids, two.ids) and torch.equal(one.source.ids, two.source.ids)


def test_few_shapes_hold_the_same_pairs_in_one_rectangle_a_step(tmp_path):
    shard = build_pairs(tmp_path, [(7, t) for _, t in like_sentences(60)])
    options = {"max_len": 25, "batch_tokens": 200, "seed": 5, "supports_packing": False}
    loader = TokenLoader(shard, PAIR_TOKENS, **options, few=True)
    seen, shapes = Counter(), set()
    for n in range(round(3 * loader.steps_per_epoch)):
        (batch,) = loader.step(n)
        shapes |= {(tuple(batch.ids.shape), tuple(batch.source.ids.shape))}
        for row in unpack_pairs(batch):
            seen[row] += 1
        assert {wanted(shard, r) for r in loader.records_of(n)} == set(unpack_pairs(batch))
    longest = max(len(target) for _, _, target in map(lambda r: wanted(shard, r), range(60)))
    rows = loader.items_per_step
    assert shapes == {((rows, -(-longest // 8) * 8), (rows, 8))}
    assert sum(seen.values()) == rows * round(3 * loader.steps_per_epoch)
    parts = TokenLoader(shard, PAIR_TOKENS, **options, few=True, micro_tokens=80).step(0)
    assert len(parts) > 1
    assert all(part.ids.numel() + part.source.ids.numel() <= 80 for part in parts)
    assert Counter(x for part in parts for x in unpack_pairs(part)) == Counter(
        unpack_pairs(loader.step(0)[0])
    )


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
    shard = build_pairs(tmp_path, sizes)
    loader = TokenLoader(
        shard, PAIR_TOKENS, max_len=64, batch_tokens=4096, seed=0, supports_packing=supports_packing
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
        shard,
        PAIR_TOKENS,
        max_len=64,
        stride=1,
        batch_tokens=4096,
        supports_packing=supports_packing,
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
    shard = build_pairs(tmp_path, [(6, 3), (3, 7), (4, 4), (0, 2), (2, 0), (0, 3)])
    loader = TokenLoader(
        shard, PAIR_TOKENS, max_len=9, batch_tokens=99, seed=0, supports_packing=True, max_ratio=2
    )
    assert loader.dropped == 2  # 7 for 3, and 3 for none, which counts as one
    assert loader.records_of(0) == [0, 2, 3, 4]


def test_what_cannot_be_batched_says_why(tmp_path):
    shard = build_pairs(tmp_path, [(9, 3), (2, 9)])
    with pytest.raises(UserError, match=r"none of the 2 training pairs.*model.max_len = 9 tokens$"):
        TokenLoader(shard, PAIR_TOKENS, max_len=9, batch_tokens=9, seed=0, supports_packing=True)
    with pytest.raises(UserError, match=r"or of more than 1\.5 times the other's$"):
        TokenLoader(
            shard,
            PAIR_TOKENS,
            max_len=9,
            batch_tokens=9,
            seed=0,
            supports_packing=True,
            max_ratio=1.5,
        )
    with pytest.raises(
        UsageError, match="at least 20, the length of the longest target and source"
    ):
        TokenLoader(
            shard,
            PAIR_TOKENS,
            max_len=10,
            batch_tokens=9,
            seed=0,
            supports_packing=True,
            micro_tokens=19,
        )
    other = write(tmp_path / "y", [1], 3)
    with pytest.raises(UserError, match=r"x-source must hold as many records as .*y, got 2 and 1"):
        other.paired(shard.source)
