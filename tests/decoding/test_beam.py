"""Beam search against exhaustive search, against a plain one in Python, and against greedy."""

from __future__ import annotations

import math

import pytest
import torch

from regard.decoding import Beam, ForbiddenTransitions, Greedy, Trace, generate
from regard.layers.cache import ContextWindow, DecodeState, KVCache, RecurrentState

V, END, BANNED = 5, 2, (0,)
PROMPTS = [[1], [1, 3], [4, 4, 1], [3], [1, 4, 3, 3]]


@pytest.mark.parametrize("case", range(10))
def test_with_pruning_off_beam_search_is_exhaustive(any_model, case, brute_force):
    """50 prompts each: 500 cases a model, over lengths, penalties and forbidden transitions."""
    noise = torch.Generator().manual_seed(case)
    model = any_model(V, case)
    prompts = torch.randint(1, V, (50, 3), generator=noise).tolist()
    max_new = 1 + case % 4
    forbidden = set()
    if case % 2:
        pairs = torch.rand(V, V, generator=noise) < 0.35
        forbidden = {(a, b) for a, b in torch.nonzero(pairs).tolist()}
    penalty = [0.0, 1.0, 0.6, -0.7, 2.5][case % 5]
    n_best = 1 + case % 7
    strategy = Beam(width=(V - len(BANNED)) ** max_new * 2, length_penalty=penalty, n_best=n_best)
    found = generate(
        model,
        prompts,
        strategy,
        max_new=max_new,
        end=END,
        banned=BANNED,
        constraint=ForbiddenTransitions.from_pairs(forbidden, V) if forbidden else None,
        batch_size=1 << 20,
    )
    expected = brute_force.exhaustive(model, prompts, max_new, forbidden, end=END, banned=BANNED)
    for one, everything in zip(found, expected, strict=True):
        brute_force.assert_equal(one, brute_force.best(everything, penalty, n_best))


def plain_beam_search(next_log_probs, model, prompt, width, max_new, forbidden):
    """The same search for one prompt with lists and no early stop: all its sequences."""
    live, sequences = [([], [])], []
    for _ in range(max_new):
        table = next_log_probs(model, [[*prompt, *ids] for ids, _ in live], forbidden, BANNED)
        sequences += [
            (*one, "dead") for one, row in zip(live, table, strict=True) if max(row) == -math.inf
        ]
        longer = [
            ([*ids, b], [*log_probs, row[b]])
            for (ids, log_probs), row in zip(live, table, strict=True)
            for b in range(V)
            if row[b] > -math.inf
        ]
        longer = sorted(longer, key=lambda one: -sum(one[1]))[: 2 * width if width > 1 else 1]
        sequences += [(*one, "ended") for one in longer[:width] if one[0][-1] == END]
        live = [one for one in longer if one[0][-1] != END][:width]
        if not live:
            break
    return sequences + [(*one, "cut off") for one in live]


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.2, -0.5])
def test_narrow_beams_equal_a_plain_search_that_never_stops_early(
    any_model, width, penalty, brute_force
):
    for seed in range(3):
        model = any_model(V, seed)
        forbidden = {(3, 4), (4, END), (1, 1)} if seed == 1 else set()
        found = generate(
            model,
            PROMPTS,
            Beam(width, penalty, width),
            max_new=8,
            end=END,
            banned=BANNED,
            constraint=ForbiddenTransitions.from_pairs(forbidden, V),
        )
        for prompt, one in zip(PROMPTS, found, strict=True):
            everything = plain_beam_search(
                brute_force.next_log_probs, model, prompt, width, 8, forbidden
            )
            brute_force.assert_equal(one, brute_force.best(everything, penalty, width))


@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0])
def test_a_beam_of_one_is_greedy(any_model, penalty):
    for seed in range(6):
        model = any_model(V, seed)
        settings = {"max_new": 7, "end": END, "banned": BANNED}
        greedy = generate(model, PROMPTS, Greedy(), **settings)
        beams = generate(model, PROMPTS, Beam(width=1, length_penalty=penalty), **settings)
        for (a,), (b,) in zip(greedy, beams, strict=True):
            assert (a.ids, a.finished) == (b.ids, b.finished)
            assert b.log_probs == pytest.approx(a.log_probs, abs=1e-12)


def test_scores_add_up_and_the_n_best_are_sorted_and_distinct(any_model):
    for penalty in (0.0, 0.7):
        found = generate(
            any_model(V, 3), PROMPTS, Beam(6, penalty, 6), max_new=6, end=END, banned=BANNED
        )
        for sequences in found:
            ended = [one.score for one in sequences if one.finished]
            assert ended == sorted(ended, reverse=True)
            assert [one.finished for one in sequences] == sorted(
                (one.finished for one in sequences), reverse=True
            )
            assert len({tuple(one.ids) for one in sequences}) == len(sequences) == 6
            for one in sequences:
                assert one.score == sum(one.log_probs) / len(one.ids) ** penalty


def test_the_best_sequence_is_not_lost_to_the_first_that_finish(markov):
    """A good long sequence behind many short poor ones: stopping once W have finished loses it."""
    model = markov(V, 0)
    p = torch.full((V,), 1e-9, dtype=torch.float64)
    model.table[:] = p.scatter(0, torch.tensor([3, END]), torch.tensor([0.6, 0.4]).double()).log()
    model.table[3, 3] = p.scatter(0, torch.tensor([4]), torch.tensor([1.0]).double()).log()
    model.table[3, 4] = p.scatter(0, torch.tensor([4]), torch.tensor([1.0]).double()).log()
    model.table[4, 4] = p.scatter(0, torch.tensor([END]), torch.tensor([1.0]).double()).log()
    (found,) = generate(
        model, [[1]], Beam(width=2, length_penalty=1.0), max_new=9, end=END, banned=BANNED
    )
    assert found[0].ids == [3, 3, 4, 4, END]


def test_a_negative_length_penalty_does_not_stop_at_the_first_end(markov):
    """The bound of a live beam is then at the shortest length: ln 0.3 < 2 ln 0.7."""
    model = markov(V, 0)
    p = torch.full((V,), 1e-9, dtype=torch.float64)
    model.table[:] = p.scatter(0, torch.tensor([END]), torch.tensor([1.0]).double()).log()
    first = p.scatter(0, torch.tensor([3, END]), torch.tensor([0.7, 0.3]).double())
    model.table[0, 1] = first.log()
    (found,) = generate(
        model, [[1]], Beam(width=2, length_penalty=-1.0), max_new=9, end=END, banned=BANNED
    )
    assert found[0].ids == [3, END]


def test_the_search_stops_when_nothing_better_can_come(markov):
    model = markov(V, 0)
    model.table[..., END] = 4.0
    generate(model, [[1]], Beam(width=3), max_new=50, end=END, banned=BANNED)
    assert len(model.calls) < 10


def test_a_prompt_is_read_once_and_not_once_per_beam(markov):
    """Reading it for every beam multiplies the cost of long prompts by the width."""
    model = markov(V, 1)
    model.table[..., END] = -9.0
    prompts = [[1, 3, 3], [1, 4, 1]]
    generate(model, prompts, Beam(width=4), max_new=3, end=END, banned=BANNED)
    assert model.calls == [(2, 3), (8, 1), (8, 1)]


def test_more_beams_than_successors_give_what_there_is(markov):
    constraint = ForbiddenTransitions.from_pairs([(a, b) for a in range(V) for b in (0, 1, 4)], V)
    (found,) = generate(
        markov(V, 0), [[1]], Beam(9, n_best=9), max_new=2, end=END, constraint=constraint
    )
    assert sorted(one.ids for one in found) == [[END], [3, END], [3, 3]]
    assert [one.finished for one in found] == [True, True, False]


def test_the_traced_tree_is_the_search(remembers):
    model, trace = remembers(V, 4), Trace()
    strategy = Beam(width=3, n_best=3, trace=trace)
    found = generate(model, PROMPTS, strategy, max_new=5, end=END, banned=BANNED, batch_size=6)
    assert sorted(trace.trees) == list(range(len(PROMPTS)))
    for number, sequences in enumerate(found):
        nodes = trace.trees[number]
        assert [node.id for node in nodes] == list(range(len(nodes)))
        paths = {}
        for node in nodes:
            path = [] if node.parent is None else paths[node.parent]
            assert node.step == len(path) + 1
            assert node.parent is None or nodes[node.parent].alive
            paths[node.id] = [*path, node.token]
            assert not (node.alive and node.finished)
        for step in range(1, 6):
            assert sum(node.alive for node in nodes if node.step == step) <= 3
        for one in sequences:
            (leaf,) = [node for node in nodes if paths[node.id] == one.ids]
            assert leaf.finished == one.finished and leaf.alive == (not one.finished)
            assert leaf.score == pytest.approx(sum(one.log_probs), abs=1e-12)


def test_expanding_a_state_puts_the_copies_of_a_row_next_to_each_other():
    layers = [
        KVCache(2, 3, 5, 4, torch.zeros(1)),
        RecurrentState(torch.arange(14.0).view(1, 2, 7), torch.arange(6.0).view(1, 2, 3)),
        ContextWindow(torch.tensor([[8], [9]])),
    ]
    keys, values = torch.arange(2 * 3 * 5 * 4.0).view(2, 3, 5, 4), -torch.ones(2, 3, 5, 4)
    layers[0].write(keys, values, 0, 5)
    state = DecodeState(layers, 2, 5)
    state.advance(torch.tensor([1, 4]), 4)
    state.expand(3)
    rows = [0, 0, 0, 1, 1, 1]
    assert state.batch == 6
    assert state.length.tolist() == [1, 1, 1, 4, 4, 4] and state.longest == 4
    assert torch.equal(layers[0].k, keys[rows]) and torch.equal(layers[0].v, values[rows])
    assert torch.equal(layers[1].vectors[0], torch.arange(14.0).view(1, 2, 7)[:, rows])
    assert torch.equal(layers[1].vectors[1], torch.arange(6.0).view(1, 2, 3)[:, rows])
    assert layers[2].ids[:, 0].tolist() == [8, 8, 8, 9, 9, 9]
    state.select(torch.tensor([0, 3, 3, 5, 1, 4]))
    assert layers[2].ids[:, 0].tolist() == [8, 9, 9, 9, 8, 9]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"n_best": 6}, "n_best must be from 1 to width, got n_best=6 and width=5"),
        ({"n_best": 0}, "n_best must be from 1 to width, got n_best=0"),
        ({"length_penalty": math.nan}, "length_penalty must be from -10 to 10, got nan"),
        ({"length_penalty": 11}, "length_penalty must be from -10 to 10, got 11"),
    ],
)
def test_a_wrong_setting_of_the_beam_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Beam(**settings)


def test_beams_cannot_be_streamed(markov):
    with pytest.raises(ValueError, match="on_token cannot stream beams"):
        generate(markov(V), [[1]], Beam(), max_new=3, end=END, on_token=lambda number, token: None)
