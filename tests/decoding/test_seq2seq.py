"""Translating many sources against each alone, against brute force, and by the keys of samples."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.decoding import Beam, ForbiddenTransitions, Greedy, Sample, Trace, generate
from regard.decoding.engine import BLOCK, group_by_width, translate
from regard.layers.cache import ContextWindow, DecodeState
from regard.layers.embeddings import Inputs
from regard.models.encoder_decoder import EncoderDecoder, modern
from regard.models.language_model import LanguageModel

V, START, END, BANNED = 5, 1, 2, (0,)
CLOSE = 1e-5  # scores of fp32 sequences that count as a tie


def sharp(vocab_size, seed, n_layers=2, d_model=32, max_len=20, dtype=torch.float32):
    """A random translator with sharp attention and predictions: no ties."""
    torch.manual_seed(seed)
    config = dataclasses.replace(modern(n_layers, d_model), n_heads=2, n_kv_heads=2, d_head=8)
    config = dataclasses.replace(config, dropout=0.0, tied=False, max_len=max_len)
    model = EncoderDecoder(vocab_size, config).eval().to(dtype)
    with torch.no_grad():
        model.head.weight *= 5
        for block in model.decoder.blocks:
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return model


def sources(seed, count, vocab_size, longest):
    """Random sources with their ends."""
    noise = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=noise).tolist()
    ids = [torch.randint(3, vocab_size, (n,), generator=noise).tolist() for n in lengths]
    return [[*row, END] for row in ids]


def count_differences(found, expected):
    """How many results differ from those expected, and how many of these are ties."""
    different = ties = 0
    for one, other in zip(found, expected, strict=True):
        if [a.ids for a in one] != [b.ids for b in other]:
            close = all(abs(a.score - b.score) < CLOSE for a, b in zip(one, other, strict=True))
            ties, different = ties + close, different + (not close)
    return different, ties


class Uncached(LanguageModel):
    """A translator that reads sources and targets again for every token."""

    def __init__(self, model, source):
        super().__init__(model.vocab_size, model.config)
        self.model, self.source = model, source

    def init_state(self, batch, capacity):
        return DecodeState(
            [ContextWindow(torch.zeros(batch, 0, dtype=torch.int64))], batch, capacity
        )

    def step(self, ids, lengths, state):
        (past,) = state.layers
        past.ids = torch.cat([past.ids, ids], 1)  # (B, T)
        return self.logits(past.ids)[:, -1]

    def logits(self, ids, segments=None, *, tap=None):
        times = len(ids) // len(self.source.ids)
        rows = (x.repeat_interleave(times, 0) for x in (self.source.ids, self.source.segments))
        return self.model.condition(Inputs(*rows)).logits(ids)

    def score(self, ids, targets, segments=None, *, constrain=None):
        raise NotImplementedError


def without_cache(model, given, strategy, max_new, banned):
    """The targets of each source, in batches of equal length and without caches, so that neither
    caches nor padding can cause an error.
    """
    found = [None] * len(given)
    for length in {len(source) for source in given}:
        numbers = [number for number, source in enumerate(given) if len(source) == length]
        rows = torch.tensor([given[number] for number in numbers])
        results = generate(
            Uncached(model, Inputs(rows, torch.ones_like(rows))),
            [[START]] * len(numbers),
            strategy,
            max_new=max_new,
            end=END,
            banned=banned,
            batch_size=len(numbers) * strategy.rows,
        )
        for number, one in zip(numbers, results, strict=True):
            found[number] = one
    return found


def options(**more):
    return {"start": START, "end": END, "banned": [0, 1], **more}


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(4, 1.0, 2), Sample(seed=5)], ids=repr)
def test_every_source_is_translated_as_if_alone_and_without_a_cache(strategy, count):
    model = sharp(30, seed=1, max_len=10)
    given = sources(2, count, 30, 19)
    batched = translate(model, given, strategy, batch_size=64, **options(max_new=10))
    assert len({tuple(found[0].ids) for found in batched}) > count // 3  # it does read its source
    assert all(1 not in one.ids and 0 not in one.ids for found in batched for one in found)
    alone = [
        translate(model, [source], strategy, batch_size=1, keys=[n], **options(max_new=10))[0]
        for n, source in enumerate(given)
    ]
    mismatches, ties = count_differences(batched, alone)
    if isinstance(strategy, Sample):  # a draw may fall on the border of two tokens
        assert mismatches + ties <= count // 100
        return
    assert mismatches == 0 and ties <= count // 100
    mismatches, ties = count_differences(batched, without_cache(model, given, strategy, 10, [0, 1]))
    assert mismatches == 0 and ties <= count // 100


class Conditioned:
    """A model conditioned on one source, for any number of rows."""

    def __init__(self, model, source):
        self.model, self.source = model, torch.tensor([source])

    def logits(self, ids):
        rows = self.source.expand(len(ids), -1)
        return self.model.condition(Inputs(rows, torch.ones_like(rows))).logits(ids)


@pytest.mark.parametrize("case", range(10))
@torch.no_grad()
def test_a_beam_of_everything_finds_what_brute_force_finds(case, brute_force):
    """50 sources each: 500 cases, over lengths and penalties, half with forbidden transitions."""
    model = sharp(V, case, n_layers=1, d_model=16, dtype=torch.float64)
    given = sources(case, 50, V, 4)
    max_new, n_best = 1 + case % 3, 1 + case % 4
    penalty = [0.0, 1.0, 0.6, -0.7, 2.5][case % 5]
    forbidden = set()
    if case % 2:
        chance = torch.rand(V, V, generator=torch.Generator().manual_seed(case))
        forbidden = set(map(tuple, torch.nonzero(chance < 0.3).tolist()))
    constraint = ForbiddenTransitions.from_pairs(forbidden, V) if forbidden else None
    found = translate(
        model,
        given,
        Beam(V**max_new, penalty, n_best),
        batch_size=1 << 20,
        **options(banned=BANNED, max_new=max_new, constraint=constraint),
    )
    for source, one in zip(given, found, strict=True):
        (everything,) = brute_force.exhaustive(
            Conditioned(model, source), [[START]], max_new, forbidden, end=END, banned=BANNED
        )
        brute_force.assert_equal(one, brute_force.best(everything, penalty, n_best))


def test_the_n_best_are_different_and_the_best_come_first():
    model = sharp(30, seed=4)
    for found in translate(
        model, sources(5, 20, 30, 9), Beam(6, 1.0, 6), start=START, end=END, banned=[0, 1]
    ):
        ended = [one.score for one in found if one.finished]
        assert ended == sorted(ended, reverse=True)
        assert [one.finished for one in found] == sorted((o.finished for o in found), reverse=True)
        assert len({tuple(one.ids) for one in found}) == len(found) == 6


def test_no_target_is_longer_than_max_len():
    model = sharp(30, seed=6, max_len=9)
    for limit, length in ((0, 9), (5, 5), (100, 9)):
        endless = options(banned=[0, 1, END], max_new=limit)  # none of them can end
        found = translate(model, sources(7, 5, 30, 8), Greedy(), **endless)
        assert [len(one.ids) for (one,) in found] == [length] * 5


def test_learned_positions_end_where_their_table_ends():
    torch.manual_seed(0)
    config = dataclasses.replace(modern(1, 16), n_heads=2, n_kv_heads=2, d_head=8)
    config = dataclasses.replace(config, positions="learned", max_len=10)
    model = EncoderDecoder(12, config).eval()
    (found,) = translate(model, [[3] * 9 + [END]], Greedy(), start=1, end=END, banned=[0, 1, END])
    assert len(found[0].ids) == 10


def test_keys_number_the_sources_of_samples_and_traces():
    model = sharp(30, seed=8)
    given = sources(9, 6, 30, 9)
    whole = translate(model, given, Sample(seed=3), **options())
    part = translate(model, given[4:], Sample(seed=3), keys=[4, 5], **options())
    other = translate(model, given[4:], Sample(seed=3), **options())
    assert [one.ids for (one,) in part] == [one.ids for (one,) in whole[4:]]
    assert [one.ids for (one,) in other] != [one.ids for (one,) in part]
    trace = Trace()
    translate(model, given[4:], Beam(2, trace=trace), keys=[4, 5], **options())
    assert sorted(trace.trees) == [4, 5]


def test_sources_of_one_width_share_a_batch():
    given = sources(10, 50, 30, 40)
    batched = []
    for numbers, width in group_by_width(given, 7):
        assert width % BLOCK == 0 and len(numbers) <= 7
        assert all(width - BLOCK < len(given[number]) <= width for number in numbers)
        batched += numbers
    assert sorted(batched) == list(range(50))
