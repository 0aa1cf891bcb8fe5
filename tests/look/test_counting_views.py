"""Views of counting models against counting by hand, and of hidden Markov models against trying
every path.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.look import counting_views
from regard.look.counting_views import frequent_contexts, longest_ngrams, ngram_ids
from regard.look.internals import ForwardTrace, add_inside
from regard.look.page import Bars, Facts, Heatmap, Lines, Page, Table, Tagged
from regard.models.counts import Bigram, CountConfig
from regard.models.dirichlet_ngram import DirichletNGram, DirichletNGramConfig
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.kneser_ney import KneserNey, KneserNeyConfig, discounts
from regard.models.ngrams import count
from regard.tokenizers import Characters

RECORDS = ["abba", "cab", "bac", "abc", "baab", "abbacab", "abba"]
TOKENIZER = Characters.train([*RECORDS, "d"])  # d is known and never seen
SHARD = shard_of(RECORDS, TOKENIZER)
SPELT = [[TOKENIZER.start, *TOKENIZER.encode(r).tolist(), TOKENIZER.end] for r in RECORDS]
ALPHA = 2.0


def bayes(**options):
    options = {"order": 3, "alpha": ALPHA, "prior": "symmetric"} | options
    model = DirichletNGram(TOKENIZER.vocab_size, DirichletNGramConfig(**options))
    model.fit(SHARD, None, print)
    return model


def kneser_ney(order=3):
    model = KneserNey(TOKENIZER.vocab_size, KneserNeyConfig(order=order))
    model.fit(SHARD, None, print)
    return model


def trace_text(model, text, **options):
    ids = [TOKENIZER.start, *TOKENIZER.encode(text).tolist()]
    return ForwardTrace(model, TOKENIZER, ids, **{"continues": False} | options)


def panels(model, text, **options):
    page = Page("inside")
    add_inside(page, trace_text(model, text, **options))
    return page


def tables(page):
    return {c.title: c for c in page.components if isinstance(c, Table)}


def grams(n):
    """How often each n-gram occurs, by hand."""
    return Counter(tuple(r[i : i + n]) for r in SPELT for i in range(len(r) - n + 1))


def column(table, name):
    at = list(table.columns).index(name)
    return [row[at] for row in table.rows]


def mass(low, high, a, b):
    """P(low < X < high) for X ~ Beta(a, b), by the trapezoidal rule."""
    x = np.linspace(low, high, 20_001)
    log_b = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return np.trapezoid(np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - log_b), x)


def test_posteriors_of_the_text_are_those_of_a_dirichlet_prior():
    found = tables(panels(bayes(), "abd"))["The text under the posterior"]
    assert column(found, "context") == ["<S>", "<S>a", "ab", "bd"]
    assert column(found, "next") == ["a", "b", "d", "<E>"]
    possible = TOKENIZER.vocab_size - 1  # all but <S>
    spelled = [TOKENIZER.start, *TOKENIZER.encode("abd").tolist(), TOKENIZER.end]
    for t, row in enumerate(found.rows):
        context, symbol = tuple(spelled[max(0, t - 1) : t + 1]), spelled[t + 1]
        n = grams(len(context) + 1)[(*context, symbol)]
        total = sum(k for g, k in grams(len(context) + 1).items() if g[:-1] == context)
        a = 1 + ALPHA / possible + n
        b = possible + ALPHA + total - a
        low, high = map(float, row[6].split(" to "))
        assert row[2:4] == [n, total]
        assert row[4] == pytest.approx((n + ALPHA / possible) / (total + ALPHA))
        assert row[5] == pytest.approx(a / (a + b))
        assert mass(max(low, 1e-9), high, a, b) == pytest.approx(0.95, abs=0.01)  # four decimals
        assert row[7] == pytest.approx(-math.log2(row[4]))


def test_the_most_used_contexts_are_the_longest_that_were_counted_most():
    found = tables(panels(bayes(), "a"))
    (title,) = [t for t in found if "most frequent contexts" in t]
    contexts = Counter()
    for gram, n in grams(3).items():
        contexts[gram[:-1]] += n
    assert sorted(column(found[title], "n(context)")) == sorted(contexts.values())[-15:]
    for row in found[title].rows:
        after = [n for g, n in grams(3).items() if "".join(map(TOKENIZER.text, g[:-1])) == row[0]]
        assert row[2:4] == [max(after), sum(after)]


def test_a_model_without_a_context_shows_its_symbols():
    found = tables(panels(bayes(order=1), "ab"))["The most frequent symbols"]
    assert column(found, "context")[0] == "∅"
    seen = Counter(i for r in SPELT for i in r[1:])
    assert column(found, "n(context, next)") == sorted(seen.values(), reverse=True)


def test_strengths_stand_beside_what_was_counted():
    model = bayes(alpha=-1.0, prior="hierarchical")
    page = panels(model, "ab")
    found = tables(page)["Concentration of the priors"]
    assert column(found, "α") == model.alphas.tolist()
    seen = [len(set(g[-1] for g in grams(1)) - {TOKENIZER.start}), len(grams(2)), len(grams(3))]
    assert column(found, "n-grams seen") == seen
    contexts = [1, *(len({g[:-1] for g in grams(n)}) for n in (2, 3))]
    assert column(found, "contexts seen") == contexts
    (curve,) = [c for c in page.components if isinstance(c, Lines)]
    assert list(curve.series[0][2]) == model.alphas.tolist()


def test_every_n_gram_can_be_spelt():
    table = count(SHARD, 4)
    nodes = range(TOKENIZER.vocab_size, TOKENIZER.vocab_size + len(table.codes))
    known = {**grams(2), **grams(3), **grams(4)}
    assert {tuple(ngram_ids(table, n)) for n in nodes} == set(known)
    assert [known[tuple(ngram_ids(table, n))] for n in nodes] == table.counts.tolist()
    assert ngram_ids(table, 3) == [3]
    assert len(frequent_contexts(table, 2)) == 2


@pytest.mark.parametrize("make", [kneser_ney, bayes], ids=["kneser-ney", "map"])
@pytest.mark.parametrize("continues", [False, True])
def test_who_answers_is_the_longest_n_gram_that_occurs(make, continues):
    model = make(order=4)
    text = trace_text(model, "abbcad", continues=continues)
    spelled = [*text.ids, TOKENIZER.end][: len(text.ids) + (not continues)]
    expected = []
    for t in range(1, len(spelled)):
        windows = [
            n for n in range(1, min(4, t + 1) + 1) if grams(n)[tuple(spelled[t + 1 - n : t + 1])]
        ]
        expected.append(max(windows, default=0))
    assert longest_ngrams(text, model) == expected
    page = panels(model, "abbcad", continues=continues)
    (bars,) = [c for c in page.components if isinstance(c, Bars)]
    assert dict(zip(bars.labels, bars.values, strict=True)) == {
        **{f"{n} symbol{'s' * (n > 1)}": expected.count(n) for n in range(4, 0, -1)},
        "never seen": expected.count(0),
    }
    shown = tables(page)["Symbol by symbol"]
    assert column(shown, "symbols") == expected
    assert [len(spelled) for spelled in column(shown, "symbol")] == [1] * 6 + [3] * (not continues)


def test_the_bits_of_the_table_are_the_models_own():
    model = kneser_ney()
    shown = tables(panels(model, "abba"))["Symbol by symbol"]
    ids = torch.tensor([SPELT[0]])
    logs = model.logits(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])
    assert column(shown, "bits") == pytest.approx(
        (-logs.flatten() / math.log(2)).tolist(), abs=1e-5
    )


def test_discounts_are_those_of_symbols_seen_before():
    found = tables(panels(kneser_ney(), "ab"))["Discounts"]
    for order in (1, 2, 3):
        known = grams(order)
        counted = []
        for gram, n in known.items():
            before = {g[0] for g in grams(order + 1) if g[1:] == gram}
            counted.append(n if order == 3 or gram[0] == TOKENIZER.start else len(before))
        if order == 1:
            counted = [len({g[0] for g in grams(2) if g[1:] == gram}) for gram in known]
        row = found.rows[order - 1]
        assert row[:2] == [order, sum(n > 0 for n in counted)]
        assert row[2:5] == pytest.approx(list(discounts(torch.tensor(counted))))
    assert found.rows[0][5] is None


def test_what_is_left_to_shorter_contexts_completes_what_was_kept():
    """Over all contexts of two symbols: one less the share of the discounted counts."""
    model = kneser_ney()
    found = tables(panels(model, "ab"))["Discounts"]
    cuts = (0.0, *found.rows[2][2:5])
    contexts = {}
    for gram, n in grams(3).items():
        contexts.setdefault(gram[:-1], []).append(n)
    left = [sum(cuts[min(n, 3)] for n in seen) / sum(seen) for seen in contexts.values()]
    assert found.rows[2][5] == f"{sum(left) / len(left):.0%}"


def test_a_long_text_is_cut_in_the_tables(monkeypatch):
    monkeypatch.setattr("regard.look.counting_views.MOST_ROWS", 3)
    found = tables(panels(kneser_ney(), "abbacab"))
    (title,) = [t for t in found if t.startswith("Symbol by symbol")]
    assert title.endswith("its first 3 symbols") and len(found[title].rows) == 3
    assert all(a and b for a, b in pairwise(column(found[title], "longest n-gram seen")))


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def bigram():
    model = Bigram(TOKENIZER.vocab_size, CountConfig())
    model.fit(SHARD, None, print)
    return model


def test_the_transition_table_is_counted_by_hand():
    page = panels(bigram(), "abba")
    (table,) = of(page, Heatmap)
    pairs = [p for r in RECORDS for p in zip(["<S>", *r], [*r, "<E>"], strict=True)]
    assert list(table.rows) == ["<S>", *"abc"] and list(table.columns) == ["<E>", *"abc"]
    for i, previous in enumerate(table.rows):
        total = sum(a == previous for a, _ in pairs)
        expected = [pairs.count((previous, following)) / total for following in table.columns]
        assert table.array()[i] == pytest.approx(expected, abs=1e-6)
    facts = dict(of(page, Facts)[-1].facts)
    assert facts["transitions counted"] == len(pairs)
    assert facts["different pairs seen"] == len(set(pairs))
    (chain,) = of(page, Table)
    steps = [["<S>", "a"], ["a", "b"], ["b", "b"], ["b", "a"], ["a", "<E>"]]
    assert [row[:2] for row in chain.rows] == steps
    assert chain.rows[1][2:4] == [pairs.count(("a", "b")), sum(a == "a" for a, _ in pairs)]


def test_a_large_alphabet_shows_the_rows_of_the_text(monkeypatch):
    monkeypatch.setattr(counting_views, "MOST_SYMBOLS", 5)
    (table,) = of(panels(bigram(), "cab"), Heatmap)
    assert list(table.rows) == ["<S>", "c", "a", "b"]
    assert table.array().sum(1) == pytest.approx(np.ones(4), abs=1e-6)


LETTERS = Characters.train(["abc"])


def markov(**options):
    torch.manual_seed(3)
    model = HiddenMarkov(LETTERS.vocab_size, HiddenMarkovConfig(**{"n_states": 3} | options))
    model.marker.fill_(LETTERS.start)
    return model


def hidden_panels(model, text, continues=False):
    ids = [LETTERS.start, *LETTERS.encode(text).tolist()]
    page = Page("inside")
    add_inside(page, ForwardTrace(model, LETTERS, ids, continues))
    return page


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
    model, symbols = markov(), LETTERS.encode("abcab").tolist()
    (shown,) = of(hidden_panels(model, "abcab", continues), Tagged)
    spelled = symbols if continues else [*symbols, LETTERS.end]
    best, _ = max(paths(model, spelled), key=lambda pair: pair[1])
    assert list(shown.tags) == [None, *(f"state {i + 1}" for i in best)]
    assert list(shown.tokens) == ["<S>", *"abcab", *([] if continues else ["<E>"])]


def test_states_are_weighed_over_all_paths():
    model, symbols = markov(), LETTERS.encode("abca").tolist()
    shown, *_ = of(hidden_panels(model, "abca"), Heatmap)
    weights = np.zeros((4, 3))
    for states, p in paths(model, symbols):
        weights[range(4), states] += p
    weights /= weights.sum(1, keepdims=True)
    assert shown.array()[1:] == pytest.approx(weights, abs=1e-6)
    assert not shown.array()[0].any()  # <S>


def test_tables_hold_the_models_own_numbers_by_name():
    model = markov()
    _, moves, emits = of(hidden_panels(model, "ab"), Heatmap)
    states = [int(name.split()[1]) - 1 for name in moves.rows]
    assert sorted(states) == [0, 1, 2] and moves.rows == moves.columns == emits.columns
    for i, state in enumerate(states):
        assert moves.array()[i] == pytest.approx(model.transition[state][states].numpy())
        for j, name in enumerate(emits.rows):
            symbol = [LETTERS.text(x) for x in range(model.vocab_size)].index(name)
            assert emits.array()[j, i] == pytest.approx(float(model.emission[symbol, state]))
    favourites = [int(model.emission[:, state].argmax()) for state in states]
    assert favourites == sorted(favourites)


def test_states_that_only_move_on_keep_their_order():
    _, moves, _ = of(hidden_panels(markov(n_states=5, topology="left-right"), "ab"), Heatmap)
    assert moves.rows == [f"state {i + 1}" for i in range(5)]
    assert np.tril(moves.array(), k=-1).max() == 0


def test_many_states_and_symbols_are_thinned_out(monkeypatch):
    monkeypatch.setattr("regard.look.counting_views.MOST_STATES", 4)
    monkeypatch.setattr("regard.look.counting_views.MOST_EMITTED", 2)
    visited, moves, emits = of(hidden_panels(markov(n_states=9), "abc"), Heatmap)
    assert "4 most visited" in visited.title and "4 of 9" in moves.title
    assert moves.array().shape == (4, 4) and emits.array().shape == (2, 4)


def test_a_state_is_described_by_what_it_emits():
    model = markov()
    (shown,) = of(hidden_panels(model, "ab"), Tagged)
    for name, note in shown.notes.items():
        state = int(name.split()[1]) - 1
        best = LETTERS.text(int(model.emission[:, state].argmax()))
        assert note.startswith(f"emits {best} {float(model.emission[:, state].max()):.0%}")


def test_what_is_never_said_has_no_row_among_the_emissions():
    ids, page = [LETTERS.start, *LETTERS.encode("ab").tolist()], Page("inside")
    never = [LETTERS.pad, LETTERS.unk]
    add_inside(page, ForwardTrace(markov(), LETTERS, ids, False, banned=never))
    *_, emits = of(page, Heatmap)
    assert not {"<pad>", "<unk>"} & set(emits.rows) and {"a", "<E>"} <= set(emits.rows)
