"""Views of counting models against counting by hand, and of hidden Markov models against trying
every path.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.look import classical_views
from regard.look.classical_views import frequent_contexts, longest_ngrams, ngram_ids, written
from regard.look.internals import ForwardTrace, add_inside
from regard.look.page import Bars, Contributions, Facts, Heatmap, Logo, Page, Table, Tagged
from regard.look.prediction_page import prediction_page
from regard.models.class_counts import ClassMarkov, MarkovConfig, PWMClassifier, PwmConfig
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.linear import (
    LinearConfig,
    LinearSvm,
    Logistic,
    NaiveBayes,
    NaiveBayesConfig,
    NbSvm,
    NbSvmConfig,
    Ridge,
    WindowConfig,
    WindowLogistic,
)
from regard.models.ngrams import (
    Bigram,
    CountConfig,
    DirichletNGram,
    DirichletNGramConfig,
    KneserNey,
    KneserNeyConfig,
    count,
    discounts,
)
from regard.pipelines.predictor import Predictor
from regard.registry import TOKENIZERS
from regard.tokenizers import Characters, Kmers, Words

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
        mean, *edges = row[4].replace("[", "").replace("]", "").split()
        low, high = (float(edge.rstrip(",")) for edge in edges)
        assert row[2:4] == [n, total]
        assert row[5] == pytest.approx((n + ALPHA / possible) / (total + ALPHA))
        assert float(mean) == pytest.approx(a / (a + b), abs=5e-5)
        assert low < float(mean) < high
        assert mass(max(low, 1e-9), high, a, b) == pytest.approx(0.95, abs=0.01)  # four decimals
        assert row[6] == pytest.approx(-math.log2(row[5]))


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
    monkeypatch.setattr("regard.look.classical_views.MOST_ROWS", 3)
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
        assert table.array()[i] / 1000 == pytest.approx(expected, abs=1e-6)
    assert table.scale == "logarithmic" and table.unit == "of 1,000"
    facts = dict(of(page, Facts)[-1].facts)
    assert facts["transitions counted"] == len(pairs)
    assert facts["different pairs seen"] == len(set(pairs))
    (chain,) = of(page, Table)
    steps = [["<S>", "a"], ["a", "b"], ["b", "b"], ["b", "a"], ["a", "<E>"]]
    assert [row[:2] for row in chain.rows] == steps
    assert chain.rows[1][2:4] == [pairs.count(("a", "b")), sum(a == "a" for a, _ in pairs)]


def test_a_large_alphabet_shows_the_rows_of_the_text(monkeypatch):
    monkeypatch.setattr(classical_views, "MOST_SYMBOLS", 5)
    (table,) = of(panels(bigram(), "cab"), Heatmap)
    assert list(table.rows) == ["<S>", "c", "a", "b"]
    assert table.array().sum(1) == pytest.approx(np.full(4, 1000), abs=1e-3)


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
    states = [int(name.split()[0]) - 1 for name in shown.rows]
    assert sorted(states) == [0, 1, 2] and list(shown.columns) == ["<S>", *"abca"]
    assert shown.array()[:, 1:] == pytest.approx(weights[:, states].T, abs=1e-6)
    assert not shown.array()[:, 0].any()  # <S>
    likely = max(paths(model, [*symbols, LETTERS.end]), key=lambda pair: pair[1])[0][:4]
    assert sorted(shown.marks, key=lambda mark: mark[1]) == [
        (states.index(state), t) for t, state in enumerate(likely, start=1)
    ]


def test_only_states_that_a_text_uses_are_drawn_in_the_order_of_their_use(monkeypatch):
    monkeypatch.setattr(classical_views, "LEAST_USED", 0.3)
    shown, *_ = of(hidden_panels(markov(n_states=9), "abcab"), Heatmap)
    assert 0 < len(shown.rows) < 9 and "other states are below 30% everywhere" in shown.title
    assert (shown.array().max(1) >= 0.3).all()
    centres = (shown.array() * np.arange(6)).sum(1) / shown.array().sum(1)
    assert (np.diff(centres) >= 0).all()


def test_tables_hold_the_models_own_numbers_by_name():
    model = markov()
    _, emits, moves = of(hidden_panels(model, "ab"), Heatmap)
    states = [int(name) - 1 for name in moves.rows]
    assert sorted(states) == [0, 1, 2] and moves.rows == moves.columns == emits.columns
    for i, state in enumerate(states):
        assert moves.array()[i] == pytest.approx(model.transition[state][states].numpy())
        for j, name in enumerate(emits.rows):
            symbol = [LETTERS.text(x) for x in range(model.vocab_size)].index(name)
            assert emits.array()[j, i] == pytest.approx(float(model.emission[symbol, state]))
    favourites = [int(model.emission[:, state].argmax()) for state in states]
    assert favourites == sorted(favourites)


def test_states_that_only_move_on_keep_their_order():
    *_, moves = of(hidden_panels(markov(n_states=5, topology="left-right"), "ab"), Heatmap)
    assert moves.rows == [str(i + 1) for i in range(5)]
    assert np.tril(moves.array(), k=-1).max() == 0


def test_many_states_and_symbols_are_thinned_out(monkeypatch):
    monkeypatch.setattr("regard.look.classical_views.MOST_STATES", 4)
    monkeypatch.setattr("regard.look.classical_views.MOST_EMITTED", 2)
    used, emits, moves = of(hidden_panels(markov(n_states=9), "abc"), Heatmap)
    assert len(used.rows) <= 4 and "other states" in used.title and "4 of 9" in moves.title
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
    _, emits, _ = of(page, Heatmap)
    assert not {"<pad>", "<unk>"} & set(emits.rows) and {"a", "<E>"} <= set(emits.rows)


CLASSES = ("none", "promoter")
TARGETS = Targets("label", ("kind",), (CLASSES,))
WIDTH, SITE = 14, 5  # the motif begins at position 6, counted from 1
FAMILIES = {
    "logistic": (Logistic, LinearConfig(order=2, places="each", weighting="tf-idf", strength=1.0)),
    "svm": (LinearSvm, LinearConfig(order=3, places="each", weighting="counts", strength=1.0)),
    "nb-svm": (NbSvm, NbSvmConfig(order=2, places="each", strength=1.0)),
    "naive-bayes": (NaiveBayes, NaiveBayesConfig(order=2, places="each", alpha=1.0)),
    "anywhere": (Logistic, LinearConfig(order=2, places="any", weighting="counts", strength=1.0)),
}
READ = "GATTCTATAGATTA"  # has the motif


def drawn(count=60, width=WIDTH):
    """Half of them have TATA at one place."""
    random = np.random.default_rng(0)
    found = []
    for i in range(count):
        letters = random.choice(list("ACGT"), width)
        if i % 2:
            letters[SITE : SITE + 4] = list("TATA")
        found.append("".join(letters))
    return found


def fitted(
    family,
    config,
    texts=None,
    targets=TARGETS,
    truths=None,
    kind="nucleotides",
    max_len=WIDTH + 4,
):
    """An examiner whose model has learned from texts, in turn of the one class and the other."""
    texts = texts or drawn()
    tokenizer = TOKENIZERS[kind].train(texts)
    width = len(targets.names if targets.task == "value" else targets.classes[0])
    config = dataclasses.replace(config, task=targets.task, n_outputs=width, max_len=max_len)
    model = family(tokenizer.vocab_size, config)
    predictor = Predictor(model, tokenizer, targets)
    truths = np.arange(len(texts), dtype=np.int32) % 2 if truths is None else truths
    model.fit(dataclasses.replace(predictor.shard(texts), targets=truths), None, lambda line: None)
    return predictor


def decision(predictor, text):
    """The scores of all classes less their mean, as the model itself says them."""
    tokenizer = predictor.tokenizer
    row = [tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end]
    ids = torch.tensor([row])
    scores = predictor.model.predict(Inputs(ids, torch.ones_like(ids)))[0].double()
    return (scores - scores.mean()).tolist() if predictor.targets.task == "label" else scores


@pytest.mark.parametrize("name", FAMILIES)
def test_the_features_that_are_named_make_up_the_score(name):
    """Features placed at positions were read as others: `<unk>VM (second text)` for DNA, or an
    error about the id -1.
    """
    predictor = fitted(*FAMILIES[name])
    page = prediction_page(predictor, READ, title="")
    (table,) = [t for t in of(page, Table) if t.title.startswith("The score of")]
    best = predictor.predictions([READ])[0].label
    assert table.title == f"The score of {best}"
    *terms, bias, score = table.rows
    assert (bias[0], score[0]) == ("bias", "score")
    wanted = decision(predictor, READ)[CLASSES.index(best)]
    assert score[3] == pytest.approx(wanted, abs=1e-6)
    assert sum(v * w for _, v, w, _ in terms) + bias[3] == pytest.approx(wanted, abs=1e-6)
    assert [v * w for _, v, w, _ in terms] == pytest.approx([added for *_, added in terms])
    framed, order = ["<S>", *READ, "<E>"], predictor.model.config.order
    positional = predictor.model.config.n_positions > 1
    there = set()
    for n in range(1, order + 1):
        for at in range(len(framed) - n + 1):
            gram = framed[at : at + n]
            if n == 1 and gram[0] in ("<S>", "<E>"):
                continue
            place = f" at {at}" if positional and gram[0] != "<S>" else ""
            there.add("".join(gram) + place)
    named = [row[0] for row in terms]
    assert len(set(named)) == len(named) and set(named) <= there
    assert len(named) > 10


def test_the_largest_coefficients_are_those_of_the_planted_site():
    page = prediction_page(fitted(*FAMILIES["svm"]), "", title="")
    (table,) = of(page, Table)
    site = {f"{'TATA'[i : i + n]} at {SITE + 1 + i}" for n in (1, 2, 3) for i in range(5 - n)}
    first = table.rows[CLASSES.index("promoter")][1].split(", ")[:6]
    assert len(first) == 6 and {term.partition(" (")[0] for term in first} <= site
    assert "second text" not in page.render() and "&lt;unk&gt;" not in page.render()


def test_values_are_sums_of_named_terms_too():
    """Ridge regression, whose scores are values in their own unit."""
    texts = drawn()
    truths = np.array([[text.count("A") * 1.5 + 7] for text in texts], np.float32)
    config = LinearConfig(order=1, places="any", weighting="counts", strength=0.01)
    predictor = fitted(Ridge, config, texts, Targets("value", ("share",)), truths)
    page = prediction_page(predictor, READ, title="")
    (table,) = [t for t in of(page, Table) if t.title == "The score of share"]
    *terms, bias, _ = table.rows
    assert {name: value for name, value, *_ in terms} == {c: READ.count(c) for c in "ACGT"}
    assert sum(v * w for _, v, w, _ in terms) + bias[3] == pytest.approx(
        READ.count("A") * 1.5 + 7, abs=0.01
    )


def test_overlapping_words_are_written_apart():
    tokenizer = Kmers.train(["ACGT"], k=3, stride=1)
    ids = tokenizer.encode("ACGTA").tolist()
    assert written(ids[2:4], tokenizer) == "ACG CGT"
    words = Words.train(["to be"])
    assert written(words.encode("to be").tolist(), words) == "to be"


def test_spaces_are_part_of_a_name():
    texts = ["a b", "ab ", " ab", "b a", "ba ", " ba"] * 4
    config = LinearConfig(order=2, places="any", weighting="counts", strength=1.0)
    predictor = fitted(Logistic, config, texts, kind="characters")
    page = prediction_page(predictor, "a b", title="")
    (table,) = [t for t in of(page, Table) if t.title.startswith("The score of")]
    names = {row[0] for row in table.rows[:-2]}
    assert names == {"a", "b", "·", "<S>a", "a·", "·b", "b<E>"}


def test_pwm_shows_its_matrix_and_its_logo():
    predictor = fitted(PWMClassifier, PwmConfig(pseudocount=1.0))
    page = prediction_page(predictor, READ, title="")
    wanted = decision(predictor, READ)
    best = int(np.argmax(wanted))
    (added,) = of(page, Contributions)
    (sums,) = [f for f in of(page, Facts) if f.title]
    assert list(added.tokens) == list(READ)
    facts = dict(sums.facts)
    assert sum(added.rows[0][1]) + facts["bias"] == pytest.approx(wanted[best], abs=1e-6)
    assert facts["score"] == pytest.approx(wanted[best], abs=1e-6)
    (matrix,) = [h for h in of(page, Heatmap) if h.title.startswith("Weight matrix")]
    assert matrix.title == "Weight matrix of promoter"
    assert list(matrix.rows) == list("ACGT")
    assert list(matrix.columns) == [str(i + 1) for i in range(WIDTH)]
    by_hand = sum(
        matrix.array()["ACGT".index(letter), i] for i, letter in enumerate(READ)
    )  # the promoter's
    bias = float(predictor.model.bias[1] - predictor.model.bias.mean())
    assert by_hand + bias == pytest.approx(wanted[1], abs=1e-6)
    logos = of(page, Logo)
    assert [logo.title for logo in logos] == [f"Sequence logo of {name}" for name in CLASSES]
    tall = logos[1].array()
    assert "".join("ACGT"[i] for i in tall[SITE : SITE + 4].argmax(1)) == "TATA"
    counts = np.array([[t[j] == a for a in "ACGT"] for t in drawn()[1::2] for j in [SITE]])
    shares = (counts.sum(0) + 0.25) / (len(counts) + 1)
    most = 2 + (shares * np.log2(shares)).sum()
    assert tall[SITE].sum() == pytest.approx(most, abs=0.1)  # the prior is not quite even


def test_long_matrices_have_logos_in_pieces():
    config = PwmConfig(pseudocount=1.0)
    predictor = fitted(PWMClassifier, config, drawn(20, 120), max_len=200)
    page = prediction_page(predictor, "", title="")
    logos = of(page, Logo)
    assert [(one.first, len(one.array())) for one in logos] == 2 * [(1, 50), (51, 50), (101, 20)]
    assert of(page, Heatmap)[0].array().shape == (4, 120)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_markov_shows_its_transitions(order):
    texts = [text[: 8 + i % 5] for i, text in enumerate(drawn())]
    predictor = fitted(ClassMarkov, MarkovConfig(order=order), texts)
    page = prediction_page(predictor, READ, title="")
    wanted = decision(predictor, READ)
    best = int(np.argmax(wanted))
    (added,) = of(page, Contributions)
    facts = dict(next(f for f in of(page, Facts) if f.title).facts)
    assert list(added.tokens) == [*READ, "<E>"]
    assert sum(added.rows[0][1]) + facts["bias"] == pytest.approx(wanted[best], abs=1e-5)
    *tables, differ = of(page, Heatmap)
    assert [t.title for t in tables] == [f"P(next | before), {name}" for name in CLASSES]
    assert differ.title == "What a transition adds to the score of promoter"
    for table in tables:
        assert set(table.columns) == {*"ACGT", "<E>"}
        assert table.array().sum(1) == pytest.approx(np.ones(len(table.rows)), abs=0.05)
    total = float(predictor.model.bias[1] - predictor.model.bias.mean())
    framed = ["<S>", *READ, "<E>"]
    for at in range(1, len(framed)):
        context = "".join(framed[max(0, at - order + 1) : at]) if order > 1 else "any"
        if context not in differ.rows:  # `<S>` alone, which is shorter than the rows
            assert order > 2 and at == 1
            total += added.rows[0][1][0] * (1 if best == 1 else -1)
            continue
        cell = list(differ.rows).index(context), list(differ.columns).index(framed[at])
        total += differ.array()[cell]
    assert total == pytest.approx(wanted[1], abs=1e-4)


def test_labels_at_positions_show_the_coefficients_around_them():
    targets = Targets("position-label", ("where",), (("X", "Y"),))
    texts = drawn(20)
    config = WindowConfig(window=3, strength=1.0)
    tokenizer = TOKENIZERS["nucleotides"].train(texts)
    config = dataclasses.replace(config, task="position-label", n_outputs=2, max_len=WIDTH + 4)
    model = WindowLogistic(tokenizer.vocab_size, config)
    predictor = Predictor(model, tokenizer, targets)
    shard = predictor.shard(texts)
    truths = np.full(shard.tokens, -1, np.int16)
    follows = np.asarray(shard.ids)[1:] == tokenizer.encode("A")[0]
    inside = np.asarray(shard.ids) > 3
    truths[inside] = np.append(follows, False)[inside]
    model.fit(dataclasses.replace(shard, targets=truths), None, lambda line: None)
    page = prediction_page(predictor, READ, title="")
    one = next(h for h in of(page, Heatmap) if h.title == "Coefficients of Y")
    assert list(one.columns) == ["-1", "0", "+1"]
    place = np.unravel_index(one.array().argmax(), one.array().shape)
    assert (one.rows[place[0]], one.columns[place[1]]) == ("A", "+1")
