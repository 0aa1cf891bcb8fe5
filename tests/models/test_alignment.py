"""IBM model 1 against enumerating all alignments, in exact fractions."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import shard

from regard.models import ibm_model1
from regard.models.ibm_model1 import NULL, estimate

SOURCES, TARGETS = 8, 7  # sizes of the vocabularies, markers included

words = st.integers(3, 5)
corpora = st.lists(
    st.tuples(st.lists(words, max_size=3), st.lists(words, max_size=3)), min_size=1, max_size=4
)


def paired(pairs, source_vocab=SOURCES, target_vocab=TARGETS):
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return shard(targets, target_vocab).paired(shard(sources, source_vocab))


def by_enumeration(pairs, iterations):
    """t after so many passes, as {(source, target): t}, None being NULL, and likelihoods before."""
    t = defaultdict(lambda: Fraction(1, TARGETS))
    heard = []
    for _ in range(iterations):
        counts, likelihood = defaultdict(Fraction), Fraction(1)
        for source, target in pairs:
            choices = [None, *source]
            ways = list(itertools.product(choices, repeat=len(target)))
            p = [
                math.prod((t[e, f] for e, f in zip(way, target, strict=True)), start=Fraction(1))
                for way in ways
            ]
            for way, one in zip(ways, p, strict=True):
                for e, f in zip(way, target, strict=True):
                    counts[e, f] += one / sum(p)
            likelihood *= sum(p) / len(choices) ** len(target)
        heard.append(likelihood)
        totals = defaultdict(Fraction)
        for (e, _), n in counts.items():
            totals[e] += n
        t = {pair: n / totals[pair[0]] for pair, n in counts.items()}
    return dict(t), heard


def as_dict(found):
    pairs = [(int(k) // TARGETS, int(k) % TARGETS) for k in found.keys]
    return {
        (None if e == SOURCES else e, f): float(p) for (e, f), p in zip(pairs, found.t, strict=True)
    }


@settings(max_examples=40, deadline=None)
@given(corpora)
def test_a_pass_is_expectation_and_maximisation_over_all_alignments(pairs):
    expected, likelihoods = by_enumeration(pairs, 3)
    heard = []
    found = estimate(paired(pairs), SOURCES, 3, told=heard.append)
    assert as_dict(found) == pytest.approx({k: float(v) for k, v in expected.items()}, abs=1e-12)
    assert heard == pytest.approx([math.log(p) for p in likelihoods], abs=1e-9)


def random_pairs(seed, count=60, low=0):
    generator = np.random.default_rng(seed)

    def sentence(most):
        return generator.integers(3, most, generator.integers(low, 7)).tolist()

    return [(sentence(SOURCES), sentence(TARGETS)) for _ in range(count)]


def test_the_likelihood_never_falls_and_every_word_sums_to_one():
    heard = []
    found = estimate(paired(random_pairs(1)), SOURCES, 40, told=heard.append)
    assert len(heard) == 40 and min(np.diff(heard)) > -1e-9 and heard[-1] > heard[0] + 1
    totals = torch.zeros(SOURCES + 1, dtype=torch.float64)
    totals.index_add_(0, found.keys // TARGETS, found.t)
    seen = {*(e for source, target in random_pairs(1) if target for e in source), SOURCES}
    expected = torch.tensor([float(e in seen) for e in range(SOURCES + 1)]).double()
    torch.testing.assert_close(totals, expected)
    assert bool((found.keys.diff() > 0).all())


def test_a_corpus_in_pieces_gives_the_same_table(monkeypatch):
    pairs = paired(random_pairs(2))
    whole = estimate(pairs, SOURCES, 5)
    monkeypatch.setattr(ibm_model1, "CELLS", 20)
    monkeypatch.setattr(ibm_model1, "KEPT", 0)
    pieces = estimate(pairs, SOURCES, 5)
    assert torch.equal(whole.keys, pieces.keys)
    torch.testing.assert_close(whole.t, pieces.t)
    assert len(list(ibm_model1.cells(pairs, SOURCES, 10))) > 20


def test_the_textbook_example_is_sorted_out():
    """Koehn 2010, section 4.2: das Haus / the house, das Buch / the book, ein Buch / a book."""
    das, haus, buch, ein = range(3, 7)
    the, house, book, a = range(3, 7)
    pairs = [([das, haus], [the, house]), ([das, buch], [the, book]), ([ein, buch], [a, book])]
    found = estimate(paired(pairs), SOURCES, 100)
    table = as_dict(found)
    for e, f in ((das, the), (haus, house), (buch, book), (ein, a)):
        assert max((p, g) for (d, g), p in table.items() if d == e)[1] == f
    assert table[haus, house] > 0.99 and table[ein, a] > 0.99
    for source, target in pairs:
        assert found.links(source, target) == [0, 1]
        assert found.links(source[::-1], target) == [1, 0]


def test_what_never_met_comes_from_nowhere():
    found = estimate(paired([([3], [3]), ([4], [4])]), SOURCES, 20)
    assert found.links([3, 4], [4, 3, 5]) == [1, 0, NULL]
    assert found.links([6], [3]) == [NULL]  # a word never seen: NULL has met everything
    assert found.links([], [3]) == [NULL] and found.links([3], []) == []
    assert float(found.probability(torch.tensor(3), torch.tensor(4))) == 0.0


def test_long_pairs_are_left_out_and_empty_ones_do_no_harm():
    pairs = random_pairs(3)
    long = [([3] * 9, [3]), ([3], [3] * 9), ([], []), ([4], [])]
    plain = estimate(paired(pairs), SOURCES, 4, longest=8)
    found = estimate(paired([*pairs, *long]), SOURCES, 4, longest=8)
    assert torch.equal(plain.keys, found.keys) and torch.equal(plain.t, found.t)
    nothing = estimate(paired([([], []), ([3], [])]), SOURCES, 4)
    assert len(nothing.keys) == 0 and nothing.links([3], [3]) == [NULL]
