"""What `regard look` shows of counting models, against counting by hand."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.look.counting_views import answering, most_used, spelt
from regard.look.forward_trace import ForwardTrace
from regard.look.internals import add_inside
from regard.look.page import Bars, Lines, Page, Table
from regard.models.dirichlet_ngram import DirichletNGram, DirichletNGramConfig
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


def reading(model, text, **options):
    ids = [TOKENIZER.start, *TOKENIZER.encode(text).tolist()]
    return ForwardTrace(model, TOKENIZER, ids, **{"continues": False} | options)


def panels(model, text, **options):
    page = Page("inside")
    add_inside(page, reading(model, text, **options))
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
    (title,) = [t for t in found if "seen most" in t]
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
    found = tables(page)["Strength of the priors"]
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
    assert {tuple(spelt(table, n)) for n in nodes} == set(known)
    assert [known[tuple(spelt(table, n))] for n in nodes] == table.counts.tolist()
    assert spelt(table, 3) == [3]
    assert len(most_used(table, 2)) == 2


@pytest.mark.parametrize("make", [kneser_ney, bayes], ids=["kneser-ney", "map"])
@pytest.mark.parametrize("continues", [False, True])
def test_who_answers_is_the_longest_n_gram_that_occurs(make, continues):
    model = make(order=4)
    text = reading(model, "abbcad", continues=continues)
    spelled = [*text.ids, TOKENIZER.end][: len(text.ids) + (not continues)]
    expected = []
    for t in range(1, len(spelled)):
        windows = [
            n for n in range(1, min(4, t + 1) + 1) if grams(n)[tuple(spelled[t + 1 - n : t + 1])]
        ]
        expected.append(max(windows, default=0))
    assert answering(text, model) == expected
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
