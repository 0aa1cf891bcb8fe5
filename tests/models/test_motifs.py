"""Motif models against rational arithmetic, slow loops and enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError, UserError
from regard.models.motifs import (
    DNA,
    Background,
    MarkovMotif,
    MotifAlphabet,
    MotifClassifier,
    PositionWeightMatrix,
)

BINARY = MotifAlphabet("ab")
SITES = ["TGACTCATA", "TGACTCAGC", "TGAGTCACA", "TTACTCATG", "TGACNCATA"]


def map_by_hand(sites, j, context, letter, alphas, base, letters):
    """p_k at position j by the recursion, in fractions; only contexts inside the motif."""
    k = len(context)
    if k < 0 or len(alphas) == 0:
        return base[letter]
    shorter = (
        map_by_hand(sites, j, context[1:], letter, alphas[:-1], base, letters)
        if k
        else base[letter]
    )
    matching = [s for s in sites if j >= k and s[j - k : j] == context and s[j] in letters]
    n = sum(s[j] == letter for s in matching)
    return (n + alphas[-1] * shorter) / (len(matching) + alphas[-1])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text("ACGTN", min_size=4, max_size=4), min_size=1, max_size=12),
    st.integers(0, 2),
)
def test_conditionals_are_the_map_of_the_nested_prior(sites, order):
    base = [Fraction(1, 8), Fraction(1, 4), Fraction(1, 8), Fraction(1, 2)]
    motif = MarkovMotif.fit(sites, order=order, background=Background.of([float(b) for b in base]))
    alphas = [Fraction(7) * 3**k for k in range(order + 1)]
    priors = dict(zip("ACGT", base, strict=True))
    for j in range(4):
        for word in itertools.product("ACGT", repeat=order):
            row = sum(DNA.letters.index(c) * 4 ** (order - 1 - i) for i, c in enumerate(word))
            exact = [
                map_by_hand(sites, j, "".join(word), a, alphas, priors, "ACGT") for a in "ACGT"
            ]
            assert sum(exact) == 1
            np.testing.assert_allclose(
                motif.conditionals[order][j, row], [float(x) for x in exact], rtol=1e-12
            )


def test_a_weight_matrix_is_counts_plus_pseudocounts():
    matrix = PositionWeightMatrix.fit(
        ["AAC", "ACC", "ATN"], pseudocount=0.5, background=Background.of([0.1, 0.2, 0.3, 0.4])
    )
    third = [Fraction(1, 20), 2 + Fraction(1, 10), Fraction(3, 20), Fraction(1, 5)]
    assert matrix.probabilities[2] == pytest.approx([float(x / Fraction(5, 2)) for x in third])
    assert matrix.probabilities[0, 0] == pytest.approx((3 + 0.05) / 3.5)
    assert matrix.sites == 3
    assert matrix.consensus[0] == "A" and matrix.consensus[2] == "C"


def test_order_0_is_the_weight_matrix_with_the_same_prior():
    background = Background.of([0.4, 0.3, 0.2, 0.1])
    matrix = PositionWeightMatrix.fit(SITES, pseudocount=5.0, background=background)
    markov = MarkovMotif.fit(SITES, order=0, beta=5.0, background=background)
    np.testing.assert_array_equal(matrix.conditionals[0], markov.conditionals[0])
    windows = ["TGACTCATA", "AAAAAAAAA", "NNNCCCGGG"]
    np.testing.assert_array_equal(matrix.score(windows), markov.score(windows))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_motif_is_a_distribution_over_windows(order):
    motif = MarkovMotif.fit(["abaab", "bbaab", "abbbb"], BINARY, order=order, beta=0.7)
    every = ["".join(w) for w in itertools.product("ab", repeat=5)]
    p = np.exp(motif.log_likelihood(every))
    assert p.sum() == pytest.approx(1, abs=1e-12)
    marginals = [
        [sum(q for w, q in zip(every, p, strict=True) if w[j] == a) for a in "ab"] for j in range(5)
    ]
    np.testing.assert_allclose(motif.probabilities, marginals, rtol=1e-12)


def test_samples_have_the_probabilities_of_the_motif():
    motif = MarkovMotif.fit(["aba", "bba", "abb", "abb"], BINARY, order=1, beta=0.5)
    samples = motif.sample(20_000, np.random.default_rng(0))
    every = np.array(list(itertools.product(range(2), repeat=3)))
    frequencies = np.bincount(samples @ [4, 2, 1], minlength=8) / len(samples)
    np.testing.assert_allclose(frequencies, np.exp(motif.log_likelihood(every)), atol=0.02)


def test_an_unknown_letter_is_summed_out_at_order_0():
    motif = PositionWeightMatrix.fit(SITES)
    filled = np.exp(motif.log_likelihood([f"TGA{a}TCATA" for a in "ACGT"])).sum()
    assert np.exp(motif.log_likelihood(["TGANTCATA"]))[0] == pytest.approx(filled)


def slow_score(motif, window):
    """log-odds letter by letter, from the conditionals themselves."""
    total = 0.0
    for model, sign in ((motif.conditionals, 1), (motif.background.conditionals, -1)):
        for j, letter in enumerate(window):
            if letter not in motif.alphabet.letters:
                continue
            k = 0
            while k < len(model) - 1 and k < j and window[j - k - 1] in motif.alphabet.letters:
                k += 1
            context = 0
            for c in window[j - k : j]:
                context = context * motif.alphabet.size + motif.alphabet.letters.index(c)
            table = model[k][j] if sign > 0 else model[k]
            total += sign * math.log(table[context, motif.alphabet.letters.index(letter)])
    return total


@pytest.mark.parametrize(("order", "background_order"), [(0, 0), (1, 0), (2, 2), (0, 2)])
def test_a_scan_is_the_slow_loop(order, background_order):
    random = np.random.default_rng(order)
    sequence = "".join(random.choice(list("ACGTN"), 60, p=[0.2, 0.3, 0.2, 0.2, 0.1]))
    background = Background.fit([sequence * 3], order=background_order)
    motif = MarkovMotif.fit(SITES, order=order, background=background)
    scan = motif.scan(sequence)
    assert len(scan.scores) == 2 * (60 - 9 + 1)
    complement = str.maketrans("ACGT", "TGCA")
    for position, strand, score in zip(*scan, strict=True):
        window = sequence[position : position + 9]
        if strand < 0:
            window = window.translate(complement)[::-1]
        assert score == pytest.approx(slow_score(motif, window), abs=1e-10)
        assert motif.score([window])[0] == pytest.approx(score, abs=1e-12)
    above = motif.scan(sequence, threshold=0.0)
    assert above.scores.tolist() == [s for s in scan.scores if s >= 0]
    assert motif.scan("ACG").scores.size == 0


@settings(max_examples=20, deadline=None)
@given(st.text("ACGTN", min_size=3, max_size=30))
def test_the_other_strand_scans_to_the_mirror_image(sequence):
    motif = MarkovMotif.fit(["ACG", "ACC", "TCG"], order=1)
    scan = motif.scan(sequence)
    reverse = motif.scan(DNA.reverse_complement(DNA.encode(sequence)))
    mirror = {(len(sequence) - 3 - p, -s): v for p, s, v in zip(*reverse, strict=True)}
    assert mirror == {(p, s): v for p, s, v in zip(*scan, strict=True)}


def test_information_and_its_bounds():
    matrix = PositionWeightMatrix.of_counts(
        [[4, 0, 0, 0], [1, 1, 1, 1], [2, 2, 0, 0]], pseudocount=0
    )
    np.testing.assert_allclose(matrix.information(), [2, 0, 1], atol=1e-12)
    skewed = PositionWeightMatrix.of_counts(
        [[4, 0, 0, 0]], pseudocount=0, background=Background.of([0.125, 0.375, 0.25, 0.25])
    )
    assert skewed.information(against_background=True)[0] == pytest.approx(3)


def test_background_is_the_markov_chain_of_its_counts():
    background = Background.fit(["AACAN", "CA"], order=1, alpha=1.0)
    letters = [(4 + 0.25) / 7, (2 + 0.25) / 7, 0.25 / 7, 0.25 / 7]
    np.testing.assert_allclose(background.frequencies, letters)
    after_a = [(1 + letters[0]) / 3, (1 + letters[1]) / 3, letters[2] / 3, letters[3] / 3]
    np.testing.assert_allclose(background.conditionals[1][0], after_a)
    both = Background.fit(["AACAN", "CA"], both_strands=True).frequencies
    np.testing.assert_allclose(both, both[::-1])


def test_a_classifier_is_bayes_rule_over_motifs():
    sequences, labels = ["AAC", "AAG", "TTC", "TTG", "TAC"], ["x", "x", "y", "y", "y"]
    classifier = MotifClassifier(1, beta=1.0).fit(sequences, labels)
    base = Background.fit(sequences)
    joint = []
    for label, prior in (("x", 2 / 5), ("y", 3 / 5)):
        members = [s for s, other in zip(sequences, labels, strict=True) if other == label]
        motif = MarkovMotif.fit(members, order=1, beta=1.0, background=base)
        joint.append(math.log(prior) + motif.log_likelihood(["TAG"])[0])
    assert classifier.decision_function(["TAG"])[0] == pytest.approx(joint[1] - joint[0])
    assert classifier.predict(sequences) == labels
    three = MotifClassifier(0).fit([*sequences, "GGG"], [*labels, "z"])
    odds, p = three.decision_function(sequences), np.exp(three.predict_log_proba(sequences))
    np.testing.assert_allclose(odds, np.log(p / (1 - p)), rtol=1e-9)
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_order_1_separates_labels_that_no_weight_matrix_can():
    """Both labels have the same letters at every position; only their pairing differs."""
    sequences = ["AA", "CC"] * 20 + ["AC", "CA"] * 20
    labels = [0] * 40 + [1] * 40
    assert MotifClassifier(1).fit(sequences, labels).predict(["AA", "AC"]) == [0, 1]
    assert MotifClassifier(0).fit(sequences, labels).decision_function(["AA"])[0] == pytest.approx(
        0
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DNA.encode("ACJT"), "'J' at position 3"),
        (lambda: DNA.encode("AC\U0001f600"), "at position 3"),
        (lambda: PositionWeightMatrix.fit(["ACG", "AC"]), "one length, got 2 to 3"),
        (lambda: PositionWeightMatrix.fit([]), "nothing to align"),
        (lambda: PositionWeightMatrix.fit(SITES).score(["ACG"]), "must have 9 letters, got 3"),
        (lambda: PositionWeightMatrix.fit(["ab"], BINARY).scan("ab"), "has no complement"),
        (lambda: PositionWeightMatrix.of_counts([[1, 2, 3]]), r"must be \(W, 4\)"),
        (lambda: PositionWeightMatrix.of_counts([[1, 2, 3, -1]]), "0 or more"),
        (lambda: PositionWeightMatrix.of_counts([[1, 2, 3, 4]], pseudocount=-1), "pseudocount"),
        (lambda: MarkovMotif.fit(SITES, order=20), "order 20"),
        (lambda: MarkovMotif.fit(SITES, beta=math.nan), "beta"),
        (lambda: MotifClassifier().fit(["A", "C"], ["x", "x"]), "two or more different labels"),
        (lambda: MotifClassifier().fit(["A", "C"], ["x"]), "2 sequences need as many labels"),
        (lambda: MotifClassifier().predict(["A"]), "not been fitted"),
        (lambda: MotifAlphabet("AA"), "different letters"),
        (lambda: MotifAlphabet("AC", complement="AA"), "complement"),
        (lambda: Background.of([1, 2, 3]), "4 numbers"),
    ],
)
def test_errors_name_the_problem(call, message):
    with pytest.raises((UserError, UsageError), match=message):
        call()


def test_case_is_ignored_where_the_alphabet_does_not_use_it():
    assert DNA.encode("acgtn").tolist() == DNA.encode("ACGTN").tolist() == [0, 1, 2, 3, 4]
    assert MotifAlphabet("aA").encode("aAA").tolist() == [0, 1, 1]
