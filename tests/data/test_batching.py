"""Batches against slow plain-Python oracles: what is in them, when, and how often it is scored."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.batching import IGNORE, TokenLoader, windows
from regard.data.shards import Shard, ShardWriter
from regard.errors import UsageError, UserError

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
