"""What `regard look` shows of a hidden Markov model, against trying every path."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from regard.look.forward_trace import ForwardTrace
from regard.look.internals import add_inside
from regard.look.page import Heatmap, Page, Tagged
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abc"])


def markov(**options):
    torch.manual_seed(3)
    model = HiddenMarkov(TOKENIZER.vocab_size, HiddenMarkovConfig(**{"n_states": 3} | options))
    model.marker.fill_(TOKENIZER.start)
    return model


def panels(model, text, continues=False):
    ids = [TOKENIZER.start, *TOKENIZER.encode(text).tolist()]
    page = Page("inside")
    add_inside(page, ForwardTrace(model, TOKENIZER, ids, continues))
    return page


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def paths(model, symbols):
    """Every sequence of states and its joint probability with the symbols."""
    first, moves, emits = (x.numpy() for x in (model.initial, model.transition, model.emission))
    for states in product(range(len(first)), repeat=len(symbols)):
        p = first[states[0]] * emits[symbols[0], states[0]]
        for before, state, symbol in zip(states, states[1:], symbols[1:], strict=False):
            p *= moves[before, state] * emits[symbol, state]
        yield states, p


@pytest.mark.parametrize("continues", [False, True])
def test_the_path_is_the_best_of_all_and_covers_the_end_of_a_record(continues):
    model, symbols = markov(), TOKENIZER.encode("abcab").tolist()
    (shown,) = of(panels(model, "abcab", continues), Tagged)
    spelled = symbols if continues else [*symbols, TOKENIZER.end]
    best, _ = max(paths(model, spelled), key=lambda found: found[1])
    assert list(shown.tags) == [None, *(f"state {i + 1}" for i in best)]
    assert list(shown.tokens) == ["<S>", *"abcab", *([] if continues else ["<E>"])]


def test_states_are_weighed_over_all_paths():
    model, symbols = markov(), TOKENIZER.encode("abca").tolist()
    shown, *_ = of(panels(model, "abca"), Heatmap)
    weights = np.zeros((4, 3))
    for states, p in paths(model, symbols):
        weights[range(4), states] += p
    weights /= weights.sum(1, keepdims=True)
    assert shown.array()[1:] == pytest.approx(weights, abs=1e-6)
    assert not shown.array()[0].any()  # <S>


def test_tables_hold_the_models_own_numbers_by_name():
    model = markov()
    _, moves, emits = of(panels(model, "ab"), Heatmap)
    states = [int(name.split()[1]) - 1 for name in moves.rows]
    assert sorted(states) == [0, 1, 2] and moves.rows == moves.columns == emits.columns
    for i, state in enumerate(states):
        assert moves.array()[i] == pytest.approx(model.transition[state][states].numpy())
        for j, name in enumerate(emits.rows):
            symbol = [TOKENIZER.text(x) for x in range(model.vocab_size)].index(name)
            assert emits.array()[j, i] == pytest.approx(float(model.emission[symbol, state]))
    favourites = [int(model.emission[:, state].argmax()) for state in states]
    assert favourites == sorted(favourites)


def test_states_that_only_move_on_keep_their_order():
    _, moves, _ = of(panels(markov(n_states=5, topology="left-right"), "ab"), Heatmap)
    assert moves.rows == [f"state {i + 1}" for i in range(5)]
    assert np.tril(moves.array(), k=-1).max() == 0


def test_many_states_and_symbols_are_thinned_out(monkeypatch):
    monkeypatch.setattr("regard.look.counting_views.MOST_STATES", 4)
    monkeypatch.setattr("regard.look.counting_views.MOST_EMITTED", 2)
    seen, moves, emits = of(panels(markov(n_states=9), "abc"), Heatmap)
    assert "4 most visited" in seen.title and "4 of 9" in moves.title
    assert moves.array().shape == (4, 4) and emits.array().shape == (2, 4)


def test_a_state_is_described_by_what_it_emits():
    model = markov()
    (shown,) = of(panels(model, "ab"), Tagged)
    for name, note in shown.notes.items():
        state = int(name.split()[1]) - 1
        best = TOKENIZER.text(int(model.emission[:, state].argmax()))
        assert note.startswith(f"emits {best} {float(model.emission[:, state].max()):.0%}")


def test_what_is_never_said_has_no_row_among_the_emissions():
    ids, page = [TOKENIZER.start, *TOKENIZER.encode("ab").tolist()], Page("inside")
    never = [TOKENIZER.pad, TOKENIZER.unk]
    add_inside(page, ForwardTrace(markov(), TOKENIZER, ids, False, banned=never))
    *_, emits = of(page, Heatmap)
    assert not {"<pad>", "<unk>"} & set(emits.rows) and {"a", "<E>"} <= set(emits.rows)
