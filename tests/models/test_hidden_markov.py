"""The hidden Markov model against enumerating every path, and against automatic derivatives."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import START, shard

from regard.layers.tap import Tap
from regard.models import hidden_markov
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig, make_blocks
from regard.models.language_model import IGNORE

TOPOLOGIES = ("ergodic", "left-right")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(n_states, vocab_size, seed=0, **options):
    """A model with random tables that knows `<S>`, as after training."""
    torch.manual_seed(seed)
    model = HiddenMarkov(vocab_size, HiddenMarkovConfig(n_states=n_states, **options))
    model.marker.fill_(START)
    model.anywhere.copy_(torch.rand(n_states, dtype=torch.float64).softmax(0))
    if model.config.topology == "ergodic":
        model.initial.copy_(torch.rand(n_states, dtype=torch.float64).softmax(0))
    model.emission[START] = 0
    model.emission.div_(model.emission.sum(0))
    return model


def paths(model, symbols, at_start):
    """Yield every path of states through the symbols, and its joint probability with them."""
    first = (model.initial if at_start else model.anywhere).tolist()
    move, emit = model.transition.tolist(), model.emission.tolist()
    for path in itertools.product(range(len(first)), repeat=len(symbols)):
        p = first[path[0]] * emit[symbols[0]][path[0]]
        for a, b, x in zip(path, path[1:], symbols[1:], strict=False):
            p *= move[a][b] * emit[x][b]
        yield path, p


CASES = st.tuples(
    st.integers(1, 3),
    st.integers(0, 99),
    st.sampled_from(TOPOLOGIES),
    st.lists(st.sampled_from([0, 2, 3, 4]), min_size=1, max_size=5),
    st.booleans(),
)


@given(CASES)
@settings(max_examples=60, deadline=None)
def test_likelihood_posterior_and_best_path_equal_enumeration(case):
    n_states, seed, topology, symbols, at_start = case
    model = make(n_states, 5, seed, topology=topology)
    every = list(paths(model, symbols, at_start))
    total = math.fsum(p for _, p in every)
    ids = torch.tensor([[START, *symbols] if at_start else symbols])
    shift = len(ids[0]) - len(symbols)
    posterior, path = model.posterior(ids)[0, shift:], model.viterbi(ids)[0, shift:].tolist()
    for t in range(len(symbols)):
        for state in range(n_states):
            share = math.fsum(p for other, p in every if other[t] == state) / total
            assert math.isclose(posterior[t, state], share, rel_tol=1e-9, abs_tol=1e-12)
    best = max(p for _, p in every)
    assert math.isclose(dict(every)[tuple(path)], best, rel_tol=1e-9)
    if at_start:  # every symbol is scored, so the scores are the likelihood
        scores = model.score(ids[:, :-1], ids[:, 1:])
        assert math.isclose(float(scores.sum()), math.log(total), rel_tol=1e-5)
        assert not model.posterior(ids)[0, 0].any() and model.viterbi(ids)[0, 0] == -1


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_expected_counts_are_derivatives_of_the_log_likelihood(topology):
    model = make(4, 6, topology=topology)
    rows = [([3, 4, 5, 2], True), ([5, 5, 3], False), ([2], True)]
    tables = (model.initial, model.anywhere, model.transition, model.emission)
    leaves = [table.clone().requires_grad_() for table in tables]
    total = torch.zeros((), dtype=torch.float64)
    for symbols, at_start in rows:  # by the definition
        alpha = leaves[0 if at_start else 1] * leaves[3][symbols[0]]
        for x in symbols[1:]:
            alpha = (alpha @ leaves[2]) * leaves[3][x]
        total = total + alpha.sum().log()
    gradients = torch.autograd.grad(total, leaves)
    expected = [table * gradient for table, gradient in zip(tables, gradients, strict=True)]
    lengths = np.array([len(symbols) for symbols, _ in rows])
    flat = np.concatenate([symbols for symbols, _ in rows])
    at_start = np.array([at_start for _, at_start in rows])
    (block,) = make_blocks(flat, np.cumsum(lengths) - lengths, lengths, at_start, 10)
    counts = model.expect(block)
    assert math.isclose(counts.log_likelihood, total.item(), rel_tol=1e-12)
    emission = torch.zeros_like(model.emission)
    emission[counts.symbols] = counts.emission
    for got, want in zip(
        (counts.initial, counts.anywhere, counts.transition, emission), expected, strict=True
    ):
        torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-10)


RECORDS = st.lists(st.lists(st.integers(3, 6), max_size=12), min_size=1, max_size=8)


@given(RECORDS, st.sampled_from(TOPOLOGIES), st.sampled_from([0.0, 0.1, 2.0]), st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_no_pass_lowers_the_objective_and_impossible_moves_stay_so(
    records, topology, smoothing, max_len
):
    torch.manual_seed(len(records))
    config = HiddenMarkovConfig(
        n_states=4, topology=topology, max_jump=1, smoothing=smoothing, max_len=max_len
    )
    model, data = HiddenMarkov(7, config), shard(records, 7)
    before = -math.inf
    for _ in range(6):
        now = model.improve(data).objective
        assert now >= before - 1e-9 * abs(now)
        before = now
    sums = [model.initial.sum(), model.anywhere.sum(), *model.transition.sum(1)]
    sums += [*model.emission.sum(0)]
    assert all(math.isclose(x, 1, rel_tol=1e-12) for x in sums)
    assert not model.transition[~config.allowed_transitions()].any()
    assert not model.emission[START].any()
    assert bool(smoothing) <= bool((model.emission[[0, 2, 3, 4, 5, 6]] > 0).all())
    if topology == "left-right":
        assert model.initial.tolist() == [1, 0, 0, 0]
        assert model.transition.count_nonzero() <= 7


def test_a_pass_gives_the_same_bits_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(hidden_markov, "TOKENS", 64)
    random = np.random.default_rng(0)
    data = shard([random.integers(3, 9, n).tolist() for n in random.integers(1, 20, 200)], 9)
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        model = make(5, 9)
        passes = [model.improve(data) for _ in range(3)]
        assert torch.get_num_threads() == threads
        results.append((passes, [x.clone() for x in model.state_dict().values()]))
    torch.set_num_threads(1)
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_the_log_likelihood_of_a_pass_is_the_score_of_the_model_before_it():
    data = shard([[3, 4], [4, 4, 5, 3, 3], []], 6)
    model, again = make(3, 6), make(3, 6)
    measured = model.improve(data).log_likelihood
    total = 0.0
    for number in range(data.records):
        ids = torch.from_numpy(data.record(number).astype(np.int64))[None]
        total += float(again.score(ids[:, :-1], ids[:, 1:]).sum())
    assert math.isclose(measured, total, rel_tol=1e-6)


def test_a_start_marker_restarts_the_chain_in_every_method():
    model = make(3, 6)
    row = torch.tensor([[4, 5, START, 3, 3, START, 5, 4]])
    logits = model.logits(row)
    torch.testing.assert_close(logits[:, 2:5], model.logits(row[:, 2:5]))
    torch.testing.assert_close(logits[:, 5:], model.logits(row[:, 5:]))
    posterior, states = model.posterior(row), model.viterbi(row)
    torch.testing.assert_close(posterior[:, 2:5], model.posterior(row[:, 2:5]))
    assert torch.equal(states[:, 5:], model.viterbi(row[:, 5:]))
    state, steps = model.init_state(1, 8), []
    for x in row.unbind(1):
        steps.append(model.step(x[:, None], None, state))
    assert torch.equal(torch.stack(steps, 1), logits)
    targets = row.roll(-1, 1)
    targets[0, [1, 4, 7]] = IGNORE
    logs = logits.log_softmax(-1).gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    expected = logs.masked_fill(targets == IGNORE, 0)
    torch.testing.assert_close(model.score(row, targets), expected, atol=1e-6, rtol=1e-6)


def test_neither_other_rows_nor_padding_change_states():
    model = make(4, 7)
    ids = torch.randint(3, 7, (5, 9), generator=torch.Generator().manual_seed(1))
    ids[[0, 2, 3], 0] = START
    lengths = torch.tensor([9, 1, 4, 6, 9])
    posterior, states = model.posterior(ids, lengths), model.viterbi(ids, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = ids[row : row + 1, :n]
        torch.testing.assert_close(posterior[row, :n], model.posterior(alone)[0])
        assert torch.equal(states[row, :n], model.viterbi(alone)[0])
        assert not posterior[row, n:].any() and bool((states[row, n:] == -1).all())


def test_long_sequences_neither_underflow_nor_lose_their_sums():
    model = make(6, 8, topology="left-right", max_jump=1)
    ids = torch.randint(3, 8, (2, 900), generator=torch.Generator().manual_seed(2))
    scores, posterior = model.score(ids[:, :-1], ids[:, 1:]), model.posterior(ids)
    assert bool(torch.isfinite(scores).all())
    assert scores.sum(1).max() < -1000  # its exponential underflows in fp64
    torch.testing.assert_close(posterior.sum(-1), torch.ones(2, 900, dtype=torch.float64))
    assert bool((model.viterbi(ids).diff() >= 0).all())  # never backwards


def test_without_smoothing_a_symbol_never_counted_is_impossible_and_changes_no_state():
    model, data = make(3, 6, smoothing=0.0), shard([[3, 4, 3, 4]] * 3, 6)
    for _ in range(5):
        model.improve(data)
    ids, targets = torch.tensor([[START, 3, 5, 4]]), torch.tensor([[3, 5, 4, 3]])
    scores = model.score(ids, targets)[0].tolist()
    assert scores[1] == -math.inf and all(map(math.isfinite, (scores[0], scores[2], scores[3])))
    assert not model.posterior(ids).isnan().any()


def test_a_constraint_renormalises_what_is_left():
    model, ids = make(3, 6), torch.tensor([[START, 3, 4]])

    def forbid(logits, previous):
        return logits.index_fill(-1, torch.tensor([5]), -torch.inf)

    logs = model.logits(ids)
    logs[..., 5] = -torch.inf
    got = model.score(ids, torch.tensor([[3, 4, IGNORE]]), constrain=forbid)
    want = logs.log_softmax(-1)[0, [0, 1], [3, 4]]
    torch.testing.assert_close(got, torch.tensor([[*want.tolist(), 0.0]]))


def test_a_cycle_is_learned_that_the_last_symbol_does_not_determine():
    """aab aab …: a chain of symbols cannot tell the two a apart, states can."""
    torch.manual_seed(3)
    model = HiddenMarkov(5, HiddenMarkovConfig(n_states=6, smoothing=1e-3))
    data = shard([[3, 3, 4] * 3] * 20, 5)
    for _ in range(60):
        last = model.improve(data)
    ending = math.log(3) + 2 * math.log(3 / 2)  # only which b is the last remains uncertain
    assert math.isclose(-last.log_likelihood / data.records, ending, rel_tol=1e-2)


def test_the_tap_receives_the_states():
    model, tap = make(4, 6), Tap(["states"])
    ids = torch.tensor([[START, 3, 5]])
    model.logits(ids, tap=tap)
    assert (
        torch.equal(tap.activations["states"], model.posterior(ids)) and len(tap.activations) == 1
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n_states": 0}, "n_states"),
        ({"max_jump": 0}, "max_jump"),
        ({"smoothing": -1}, "smoothing"),
    ],
)
def test_invalid_options_are_named(options, name):
    with pytest.raises(ValueError, match=name):
        HiddenMarkovConfig(**options)


def test_packed_rows_are_refused():
    with pytest.raises(ValueError, match="packed"):
        make(2, 5).logits(torch.tensor([[1, 3]]), torch.tensor([[1, 1]]))
