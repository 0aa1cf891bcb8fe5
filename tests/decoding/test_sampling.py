"""Sampling: what is kept, in which order, how often it is drawn, and from which numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.decoding import Greedy, Sample, generate
from regard.decoding.sampling import draw, rank, uniforms

V, END = 7, 2


def kept(strategy: Sample, probabilities: list[float]) -> dict[int, float]:
    """The ids that may still be drawn, each with its renormalised probability."""
    weights, ids = strategy.weights(torch.tensor([probabilities]).log())
    ids = torch.arange(len(probabilities))[None] if ids is None else ids
    weights = weights / weights.sum(-1, keepdim=True)
    pairs = zip(ids[0].tolist(), weights[0].tolist(), strict=True)
    return {token: weight for token, weight in pairs if weight > 0}


def by_hand(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """The oracle: the distribution, one token at a time, in plain Python."""
    scaled = logits / temperature
    order = sorted(range(len(scaled)), key=lambda i: (-scaled[i], i))
    order = order[:top_k] if top_k else order
    mass = {i: math.exp(scaled[i] - scaled[order[0]]) for i in order}
    total, reached, chosen = sum(mass.values()), 0.0, []
    for i in order:
        chosen.append(i)
        reached += mass[i] / total
        if reached >= top_p:
            break
    out = np.zeros(len(logits))
    left = sum(mass[i] for i in chosen)
    for i in chosen:
        out[i] = mass[i] / left
    return out


@pytest.mark.parametrize(
    ("top_k", "expected"),
    [
        (0, [0, 1, 2, 3]),
        (1, [1]),
        (2, [1, 3]),
        (3, [1, 2, 3]),
        (4, [0, 1, 2, 3]),
        (9, [0, 1, 2, 3]),
    ],
)
def test_top_k_keeps_exactly_the_k_most_probable(top_k, expected):
    assert sorted(kept(Sample(top_k=top_k), [0.1, 0.4, 0.2, 0.3])) == expected


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (0.01, [1]),  # one token always stays
        (0.5, [1]),  # 0.5 is reached by the first
        (0.51, [1, 3]),  # the token that crosses is kept
        (0.75, [1, 3]),
        (0.76, [0, 1, 3]),  # of two equal ones the lower id comes first
        (0.875, [0, 1, 3]),
        (0.9, [0, 1, 2, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_smallest_set_whose_mass_reaches_p(top_p, expected):
    assert sorted(kept(Sample(top_p=top_p), [0.125, 0.5, 0.125, 0.25])) == expected


@pytest.mark.parametrize("first", [[0.5, 0.4], [0.45, 0.35], [0.65, 0.3], [0.7, 0.15]])
def test_a_mass_that_reaches_p_up_to_rounding_has_reached_it(first):
    """In fp32 0.45 + 0.35 falls short of 0.8, and one more token would be kept."""
    top_p = round(sum(first), 2)
    assert sorted(kept(Sample(top_p=top_p), [*first, 1 - top_p])) == [0, 1]


def test_top_p_acts_on_the_distribution_renormalised_after_top_k():
    """Of 0.4, 0.3, 0.2, 0.1 top-2 leaves 4/7 and 3/7: the first alone reaches 0.55."""
    assert kept(Sample(top_k=2, top_p=0.55), [0.4, 0.3, 0.2, 0.1]) == {0: 1.0}
    assert list(kept(Sample(top_p=0.55), [0.4, 0.3, 0.2, 0.1])) == [0, 1]


def test_temperature_acts_on_the_logits_before_top_p():
    """At temperature 1/2 the odds are squared: 16/25 of the mass is the first token's."""
    hot = kept(Sample(temperature=0.5), [0.8, 0.6, 0.0])
    assert hot == pytest.approx({0: 0.64, 1: 0.36})
    assert list(kept(Sample(temperature=0.5, top_p=0.6), [0.8, 0.6, 0.0])) == [0]
    assert list(kept(Sample(top_p=0.6), [0.8, 0.6, 0.0])) == [0, 1]


@pytest.mark.parametrize("size", [11, 300, 5000])
def test_ties_go_to_the_lower_id_in_small_and_large_vocabularies(size):
    noise = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (3, size), generator=noise).float()
    scores[1] = 0.0
    scores[2, 3:] = -math.inf
    for count in (1, 2, 10):
        values, ids = rank(scores, count)
        for row in range(3):
            order = sorted(range(size), key=lambda i: (-float(scores[row, i]), i))[:count]
            possible = [i for i in order if scores[row, i] > -math.inf]
            assert ids[row, : len(possible)].tolist() == possible
            assert values[row].tolist() == [float(scores[row, i]) for i in order]


@pytest.mark.parametrize("size", [9, 5000])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (2.0, 6, 0.6)]
)
def test_the_distribution_equals_one_made_by_hand(size, temperature, top_k, top_p):
    noise = torch.Generator().manual_seed(size)
    logits = torch.randn(4, size, generator=noise, dtype=torch.float64) * 3
    logits[3] *= 0.01  # nearly flat: the nucleus is larger than what is looked at first
    weights, ids = Sample(temperature, top_k, top_p).weights(logits)
    full = torch.zeros_like(logits)
    full = weights if ids is None else full.scatter(1, ids, weights)
    full = full / full.sum(-1, keepdim=True)
    for row in range(4):
        expected = by_hand(logits[row].numpy(), temperature, top_k, top_p)
        assert np.allclose(full[row].numpy(), expected, atol=1e-6)
        assert ((full[row] > 0).numpy() == (expected > 0)).mean() > 1 - 1e-3


@pytest.mark.parametrize(
    "strategy", [Sample(), Sample(temperature=1.7), Sample(0.8, 4), Sample(1.2, 0, 0.85, 9)]
)
def test_drawn_frequencies_match_the_distribution(markov, strategy):
    model, draws = markov(V, 3), 6000
    found = generate(
        model, [[1, 4]] * draws, strategy, max_new=1, end=END, banned=(0, 1), batch_size=draws
    )
    counts = np.bincount([one.ids[0] for (one,) in found], minlength=V)
    logits = model.table[1, 4].numpy().copy()
    logits[:2] = -1e9
    expected = by_hand(logits, strategy.temperature, strategy.top_k, strategy.top_p) * draws
    possible = expected > 1e-6
    assert counts[~possible].sum() == 0
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert statistic < 20.5  # chi-square, at most 5 degrees of freedom, 0.1%


def test_successive_draws_are_independent(markov):
    """The pair (first, second) of a chain without memory must follow the product."""
    model, draws = markov(V, 3), 6000
    model.table[:] = torch.tensor([0.3, 0.0, -60.0, 0.9, -0.5, 0.2, 0.0], dtype=torch.float64)
    found = generate(model, [[1]] * draws, Sample(seed=4), max_new=2, end=END, batch_size=draws)
    pairs = np.zeros((V, V))
    for (one,) in found:
        pairs[one.ids[0], one.ids[1]] += 1
    p = model.table[0, 0].softmax(-1).numpy()
    expected = np.outer(p, p) * draws
    use = expected > 1e-6
    assert ((pairs - expected)[use] ** 2 / expected[use]).sum() < 66.6  # 35 degrees, 0.1%


def test_log_probs_are_the_models_at_temperature_one(markov):
    model = markov(V, 5)
    (one,) = generate(model, [[1, 3]], Sample(0.3, 3, 0.9), max_new=5, end=END, banned=(0, 1))[0]
    window = [1, 3]
    for token, log_prob in zip(one.ids, one.log_probs, strict=True):
        logits = model.table[window[-2], window[-1]].clone()
        logits[:2] = -math.inf
        assert log_prob == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-12)
        window.append(token)
    assert one.score == sum(one.log_probs)


def test_a_seed_repeats_and_another_differs(remembers):
    model, prompts = remembers(V, 1), [[1]] * 5
    first, again, other = (
        [one.ids for (one,) in generate(model, prompts, Sample(seed=s), max_new=12, end=END)]
        for s in (7, 7, 8)
    )
    assert first == again != other
    assert len({tuple(ids) for ids in first}) > 1  # equal prompts, each with its own numbers


def test_a_longer_limit_only_adds_to_a_sample(remembers):
    model = remembers(V, 1)
    short, long = (generate(model, [[1]] * 4, Sample(seed=3), max_new=n, end=END) for n in (5, 15))
    for (a,), (b,) in zip(short, long, strict=True):
        assert b.ids[:5] == a.ids


@pytest.mark.parametrize("strategy", [Sample(temperature=0), Sample(top_k=1), Sample(top_p=1e-9)])
def test_without_a_choice_sampling_is_greedy(any_model, strategy):
    model, prompts = any_model(V, 2), [[1], [1, 5, 3]]
    settings = {"max_new": 10, "end": END, "banned": (0, 1)}
    sampled = generate(model, prompts, strategy, **settings)
    for (a,), (b,) in zip(sampled, generate(model, prompts, Greedy(), **settings), strict=True):
        assert a.ids == b.ids
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-12)


def test_the_uniform_numbers_are_keyed_by_seed_and_sequence():
    numbers = uniforms(5, [0, 1, 2], 4)
    assert torch.equal(uniforms(5, [2, 0], 9)[:4], numbers[:, [2, 0]])
    assert not torch.isin(uniforms(6, [0, 1, 2], 4), numbers).any()  # (6, 0) is not (5, 1)
    many = uniforms(0, list(range(50)), 400)
    assert float(many.min()) >= 0 and float(many.max()) < 1
    assert float(many.mean()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("edge", [0.0, 1 - 2.0**-24])
def test_the_ends_of_the_unit_interval_never_draw_an_impossible_token(edge):
    noise = torch.Generator().manual_seed(1)
    weights = torch.rand(200, 33, generator=noise)
    weights[torch.rand(200, 33, generator=noise) < 0.5] = 0
    weights[:, 16] += 0.1
    weights[:, [0, -1]] = 0
    drawn = draw(weights, torch.full((200,), edge))
    assert (weights.gather(1, drawn[:, None]) > 0).all()


def test_a_draw_inverts_the_cumulative_distribution():
    weights = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).repeat(5, 1)
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75])
    assert draw(weights, uniform).tolist() == [0, 0, 2, 2, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature must be .* got -1.0"),
        ({"temperature": math.nan}, "temperature must be .* got nan"),
        ({"temperature": math.inf}, "temperature must be .* got inf"),
        ({"temperature": 1e-9}, "temperature must be .* got 1e-09"),
        ({"top_k": -1}, "top_k must be at least 0 .* got -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"seed": -1}, "seed must be from 0 .* got -1"),
    ],
)
def test_a_wrong_setting_of_sampling_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Sample(**settings)
