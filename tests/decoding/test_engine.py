"""The decoding loop: batches, caches, limits, streaming, dead ends, memory that is used again."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from regard.decoding import (
    Beam,
    DecodeSession,
    ForbiddenTransitions,
    Greedy,
    Sample,
    generate,
)
from regard.decoding import engine as engine_module
from regard.decoding.engine import MAX_IDLE, Pool
from regard.errors import UserError
from regard.models.decoder import Decoder, modern

V, END = 7, 2
PROMPTS = [[1], [1, 4], [1, 3, 5, 6, 4], [1, 6, 6], [1, 5, 3], [1, 4, 4, 4]]
STRATEGIES = [
    Greedy(),
    Sample(seed=3),
    Sample(temperature=0.7, top_k=4, top_p=0.8, seed=5),
    Beam(width=3, n_best=2),
    Beam(width=2, length_penalty=0.8),
]
SETTINGS = {"max_new": 9, "end": END, "banned": (0, 1)}
RECORDED = {"max_new": 40, "end": 2, "banned": [2]}  # enough steps to record one


def summarize(results):
    """Results with log-probabilities to nine digits."""
    return [
        [(g.ids, [round(p, 9) for p in g.log_probs], g.finished, g.dead_end) for g in one]
        for one in results
    ]


def window_logits(model, window, constraint=None, banned=(0, 1)):
    """The oracle: the logits after a list of ids, with no cache at all."""
    logits = model.logits(torch.tensor([window]))[:, -1].clone()
    logits[:, list(banned)] = -math.inf
    if constraint is not None:
        for after in range(V):
            if (window[-1], after) in constraint:
                logits[0, after] = -math.inf
    return logits[0]


def greedy_by_hand(model, prompt, max_new, context=None):
    window, ids, log_probs = list(prompt), [], []
    while len(ids) < max_new and END not in ids:
        if context is not None and len(window) > context:
            window = window[-max(1, context // 2) :]
        distribution = window_logits(model, window).log_softmax(-1)
        ids.append(int(distribution.argmax()))
        log_probs.append(float(distribution.max()))
        window.append(ids[-1])
    return ids, log_probs


@pytest.mark.parametrize("seed", range(4))
def test_greedy_with_a_cache_equals_recomputing_every_prefix(any_model, seed):
    model = any_model(V, seed)
    for prompt, (one,) in zip(PROMPTS, generate(model, PROMPTS, Greedy(), **SETTINGS), strict=True):
        ids, log_probs = greedy_by_hand(model, prompt, SETTINGS["max_new"])
        assert one.ids == ids
        assert one.log_probs == pytest.approx(log_probs, abs=1e-12)
        assert one.score == sum(one.log_probs)
        assert one.finished == (ids[-1] == END)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("context", [None, 4])
def test_a_ragged_batch_equals_its_rows_alone_whatever_the_batch_size(any_model, strategy, context):
    model = any_model(V, 1)
    settings = SETTINGS | {"context": context}
    expected = summarize(generate(model, PROMPTS, strategy, **settings))
    for batch_size in (1, 4):
        assert (
            summarize(generate(model, PROMPTS, strategy, **settings, batch_size=batch_size))
            == expected
        )
    if not isinstance(strategy, Sample):  # a sample's key is its number in the list
        alone = [generate(model, [prompt], strategy, **settings)[0] for prompt in PROMPTS]
        assert summarize(alone) == expected


@pytest.mark.parametrize("context", [1, 2, 3, 5, 8])
def test_past_the_context_a_row_goes_on_from_its_last_half(remembers, context):
    """Rows pass the limit at different steps; each must restart only when it is itself too long."""
    for seed in range(5):
        model = remembers(V, seed)
        found = generate(model, PROMPTS, Greedy(), **SETTINGS | {"max_new": 17, "context": context})
        for prompt, (one,) in zip(PROMPTS, found, strict=True):
            assert one.ids == greedy_by_hand(model, prompt, 17, context)[0]


def test_the_capacity_of_the_state_is_the_context(remembers, monkeypatch):
    model = remembers(V, 2)
    capacities = []
    init_state = model.init_state
    monkeypatch.setattr(
        model, "init_state", lambda batch, n: capacities.append(n) or init_state(batch, n)
    )
    generate(model, PROMPTS, Greedy(), **SETTINGS | {"max_new": 20, "context": 6})
    assert max(capacities) == 6


def test_a_state_is_restarted_no_sooner_than_it_must(markov):
    model = markov(V, 0)
    model.table[..., END] = -50.0
    generate(model, [[1, 4]], Greedy(), max_new=9, end=END, context=6)
    one, restart = (1, 1), (1, 3)
    assert model.calls == [(1, 2), one, one, one, one, restart, one, one, one]
    model.calls.clear()
    generate(model, [[1, 4]], Greedy(), max_new=5, end=END, context=6)
    assert model.calls == [(1, 2), one, one, one, one]


def test_beams_keep_their_own_past_through_a_restart(remembers):
    """Each beam's log-probabilities must be those of its own windows, by the oracle."""
    context, max_new = 5, 11
    for seed in range(6):
        model = remembers(V, seed)
        settings = SETTINGS | {"max_new": max_new, "context": context}
        for prompt, found in zip(
            PROMPTS, generate(model, PROMPTS, Beam(width=4, n_best=3), **settings), strict=True
        ):
            for one in found:
                window = list(prompt)
                for token, log_prob in zip(one.ids, one.log_probs, strict=True):
                    if len(window) > context:
                        window = window[-(context // 2) :]
                    expected = window_logits(model, window).log_softmax(-1)[token]
                    assert log_prob == pytest.approx(float(expected), abs=1e-12)
                    window.append(token)


@pytest.mark.parametrize("strategy", STRATEGIES[:3])
def test_streamed_tokens_equal_the_whole(any_model, strategy):
    model = any_model(V, 3)
    streamed = {number: [] for number in range(len(PROMPTS))}
    settings = SETTINGS | {"on_token": lambda number, token: streamed[number].append(token)}
    found = generate(model, PROMPTS, strategy, **settings, batch_size=4)
    assert summarize(found) == summarize(generate(model, PROMPTS, strategy, **SETTINGS))
    assert [streamed[number] for number in range(len(PROMPTS))] == [one.ids for (one,) in found]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_looking_at_the_tokens_rarely_changes_nothing(any_model, strategy, monkeypatch):
    """On an accelerator the host looks every few steps: rows then run on past their end."""
    model = any_model(V, 4)
    often = summarize(generate(model, PROMPTS, strategy, **SETTINGS))
    calls = len(model.calls)
    read_prompts = engine_module.DecodeBatch.read_prompts

    def read_and_run_ahead(self):
        self.every = 4
        return read_prompts(self)

    monkeypatch.setattr(engine_module.DecodeBatch, "read_prompts", read_and_run_ahead)
    assert summarize(generate(model, PROMPTS, strategy, **SETTINGS)) == often
    assert len(model.calls) - calls >= calls


def test_decoding_stops_as_soon_as_all_rows_have_ended(markov):
    model = markov(V, 0)
    model.table[..., END] = 50.0
    (one,) = generate(model, [[1, 4]], Greedy(), **SETTINGS)[0]
    assert one.ids == [END] and one.finished
    assert model.calls == [(1, 2)]


def test_the_prompt_goes_in_at_once_and_each_token_after_it(markov):
    model = markov(V, 0)
    model.table[..., END] = -50.0
    generate(model, [[1, 4, 5]], Greedy(), max_new=4, end=END)
    assert model.calls == [(1, 3), (1, 1), (1, 1), (1, 1)]


def test_log_probs_can_be_left_out(any_model):
    model = any_model(V, 5)
    with_them = generate(model, PROMPTS, Greedy(), **SETTINGS)
    without = generate(model, PROMPTS, Greedy(log_probs=False), **SETTINGS)
    assert [one.ids for (one,) in without] == [one.ids for (one,) in with_them]
    assert all(one.log_probs == [] and one.score == 0 for (one,) in without)


@pytest.mark.parametrize("strategy", [Greedy(), Greedy(log_probs=False), Sample(), Beam(width=3)])
def test_a_dead_end_is_reported_and_nothing_forbidden_is_generated(markov, strategy):
    """After 4 only 5 may come, after 5 nothing: never a NaN, never a token that is ruled out."""
    model = markov(V, 6)
    pairs = [(4, b) for b in range(V) if b != 5] + [(5, b) for b in range(V)]
    (found,) = generate(
        model,
        [[1, 4]],
        strategy,
        max_new=6,
        end=END,
        constraint=ForbiddenTransitions.from_pairs(pairs, V),
    )
    assert found[0].ids == [5]
    assert found[0].dead_end and not found[0].finished
    assert found[0].score == 0  # the one legal token had probability 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_prompt_that_is_itself_a_dead_end_gives_an_empty_sequence(markov, strategy):
    constraint = ForbiddenTransitions.from_pairs([(4, b) for b in range(V)], V)
    dead, alive = generate(
        markov(V, 6), [[1, 4], [1, 3]], strategy, **SETTINGS, constraint=constraint
    )
    assert dead[0].ids == [] and dead[0].dead_end and dead[0].score == 0
    assert alive[0].ids and not (alive[0].finished and alive[0].dead_end)


def test_a_model_that_never_saw_a_transition_dies_there_without_a_constraint(markov):
    """Counting models give -inf themselves; an unseen context must end the row, not crash."""
    model = markov(V, 6)
    model.table[:] = -math.inf
    model.table[:, 4, 5] = 0.0
    for strategy in STRATEGIES:
        (one, *_) = generate(model, [[1, 4]], strategy, **SETTINGS)[0]
        assert (one.ids, one.log_probs, one.dead_end) == ([5], [0.0], True)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_diverged_model_is_an_error_and_no_dead_end(markov, strategy, value):
    model = markov(V, 6)
    model.table[:, 4] = value
    with pytest.raises(UserError, match="not finite"):
        generate(model, [[1, 4]], strategy, **SETTINGS)


def test_half_precision_logits_are_normalised_in_full(markov, monkeypatch):
    model = markov(V, 6)
    step = model.step
    monkeypatch.setattr(model, "step", lambda *a: step(*a).bfloat16())
    (one,) = generate(model, [[1, 4]], Greedy(), max_new=1, end=END)[0]
    exact = model.table[1, 4].bfloat16().double().log_softmax(-1).max()
    assert one.log_probs[0] == pytest.approx(float(exact), abs=1e-6)


def test_a_model_in_training_decodes_without_dropout_and_goes_back_to_training(markov):
    model = markov(V, 6).train()
    modes = []
    model.register_buffer("unused", torch.zeros(1))
    step = model.step
    model.step = lambda *a: modes.append(model.training) or step(*a)
    generate(model, [[1]], Greedy(), max_new=1, end=END)
    assert modes == [False] and model.training


def test_no_prompts_give_no_sequences(markov):
    assert generate(markov(V), [], Greedy(), **SETTINGS) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_new": 0}, "max_new must be at least 1, got 0"),
        ({"context": 0}, "context must be at least 1 or None, got 0"),
        ({"end": V}, f"end must be an id from 0 to {V - 1}, got {V}"),
        ({"pad": -1}, f"pad must be an id from 0 to {V - 1}, got -1"),
        ({"banned": [9]}, f"banned must be an id from 0 to {V - 1}, got 9"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(markov, changed, message):
    with pytest.raises(ValueError, match=message):
        generate(markov(V), [[1]], Greedy(), **SETTINGS | changed)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], r"prompts\[1\] is empty"), ([1, 7], r"prompts\[1\] holds 7"), ([-1], "holds -1")],
)
def test_a_wrong_prompt_is_named(markov, prompt, message):
    with pytest.raises(ValueError, match=message):
        generate(markov(V), [[1], prompt], Greedy(), **SETTINGS)


@pytest.fixture(scope="module")
def decoder():
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


def test_a_pool_keeps_a_limited_number_of_items():
    pool = Pool(object)
    borrowed = [pool.borrow(always) for _ in range(MAX_IDLE + 5)]
    for one in borrowed:
        one.__enter__()
    for one in borrowed:
        one.__exit__(None, None, None)
    assert len(pool.idle) == MAX_IDLE


def test_batches_of_one_shape_cost_one_recording(decoder):
    session, steps = DecodeSession(decoder), set()
    for prompt in ([1, 5], [1, 7], [1, 9]):
        generate(decoder, [prompt], Greedy(), session=session, **RECORDED)
        (slot,) = session.slots.idle
        assert slot.step is not None
        steps.add(id(slot.step))
    assert len(steps) == 1


def test_a_call_inside_a_call_leaves_it_alone(decoder):
    """`on_token` may use the model that is decoding."""
    session = DecodeSession(decoder)
    (plain,) = generate(decoder, [[1, 5]], Greedy(), **RECORDED)
    (inner,) = generate(decoder, [[1, 7]], Greedy(), **RECORDED)
    results = []

    def on_token(number, token):
        results.append(generate(decoder, [[1, 7]], Greedy(), session=session, **RECORDED)[0][0].ids)

    (outer,) = generate(decoder, [[1, 5]], Greedy(), session=session, on_token=on_token, **RECORDED)
    assert outer[0].ids == plain[0].ids
    assert len(results) == 40 and all(ids == inner[0].ids for ids in results)
