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
    PROTEIN,
    Background,
    Collection,
    MarkovMotif,
    MotifAlphabet,
    MotifClassifier,
    MotifFit,
    PositionWeightMatrix,
    best_run,
    discover,
    score_dyads,
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


def texts(digits, letters="ACGT"):
    return ["".join(letters[i] for i in row) for row in digits]


def test_posteriors_of_zoops_are_those_of_enumeration():
    """The mixture of each sequence, from probabilities of complete sequences."""
    sequences = ["ACGTTGCA", "CCNGTAC", "AT", "GACGT"]
    background = Background.fit(sequences, order=1)
    motif = MarkovMotif.fit(["ACG", "ACC", "TCG"], order=1, background=background)
    collection = Collection([DNA.encode(s) for s in sequences], background, True)
    fit = MotifFit(collection, motif, share=0.3)
    fit.expect()

    def chain(sequence, j):
        """log P of letter j given the one before, N summed out or shortening the context."""
        if sequence[j] == "N":
            return 0.0
        a = DNA.letters.index(sequence[j])
        if j and sequence[j - 1] != "N":
            return math.log(background.conditionals[1][DNA.letters.index(sequence[j - 1]), a])
        return math.log(background.frequencies[a])

    expected, total = {}, 0.0
    for n, sequence in enumerate(sequences):
        positions = [i for i in range(len(sequence) - 2) if "N" not in sequence[i : i + 3]]
        if not positions:
            continue
        weights = {None: 0.7 * math.exp(sum(chain(sequence, j) for j in range(len(sequence))))}
        for i, strand in itertools.product(positions, (1, -1)):
            rest = sum(chain(sequence, j) for j in range(len(sequence)) if not i <= j < i + 3)
            window = DNA.encode(sequence[i : i + 3])
            if strand < 0:
                window = DNA.reverse_complement(window)
            inside = motif.log_likelihood(window[None])[0]
            weights[i, strand] = 0.3 / (2 * len(positions)) * math.exp(rest + inside)
        evidence = sum(weights.values())
        total += math.log(evidence) - math.log(weights[None] / 0.7)
        expected |= {(n, *key): w / evidence for key, w in weights.items() if key is not None}
    posteriors = {}
    for start, posterior in zip(fit.windows.starts, fit.posteriors, strict=True):
        site = fit.data.site(int(start), 3, float(posterior))
        posteriors[site.sequence, site.position, site.strand] = site.posterior
    assert posteriors == pytest.approx(expected, rel=1e-9)
    assert fit.log_likelihood == pytest.approx(total, rel=1e-9)


def plant(random, motif, count=60, length=80, share=0.8):
    """Return random sequences with a motif in some of them, and its position and strand there."""
    digits, sites = random.integers(0, 4, (count, length)), {}
    for n, site in enumerate(motif.sample(round(share * count), random)):
        start = int(random.integers(0, length - motif.width + 1))
        strand = int(random.choice([1, -1]))
        window = site if strand > 0 else DNA.reverse_complement(site)
        digits[n, start : start + motif.width] = window
        sites[n] = start, strand
    return digits, sites


@pytest.mark.parametrize("seed", range(3))
def test_the_objective_of_em_never_decreases(seed):
    random = np.random.default_rng(seed)
    digits, _ = plant(random, PositionWeightMatrix.fit(SITES), count=20, length=40)
    background = Background.fit(list(digits), order=2, both_strands=True)
    columns = random.dirichlet(np.ones(4), 7)
    start = PositionWeightMatrix.of_counts(columns, pseudocount=0.0, background=background)
    fit = MotifFit(Collection(list(digits), background, True), start)
    fit.expect()
    objectives = [fit.objective]
    for _ in range(40):
        fit.maximise()
        fit.expect()
        objectives.append(fit.objective)
    assert np.diff(objectives).min() >= -1e-7
    assert objectives[-1] > objectives[0] + 1


def test_a_planted_motif_is_found_with_its_sites_and_width():
    """Nearly as many sites are found as with the true motif and its true frequency."""
    truth = PositionWeightMatrix.fit(["TTGCAGGACA"], pseudocount=0.3)
    digits, planted = plant(np.random.default_rng(5), truth)
    (discovered,) = discover(texts(digits), (6, 14))
    background = Background.uniform()
    oracle = MotifFit(Collection(list(digits), background, True), truth, share=0.8)
    oracle.expect()
    orientation = {"TTGCAGGACA": 1, "TGTCCTGCAA": -1}[discovered.motif.consensus]

    def count_correct(sites, sign):
        return sum(planted.get(s.sequence) == (s.position, s.strand * sign) for s in sites)

    assert count_correct(oracle.sites(), 1) > 35
    assert count_correct(discovered.sites, orientation) >= count_correct(oracle.sites(), 1) - 2
    assert 0.7 < discovered.share < 0.9
    assert discovered.score > 0
    again = discover(texts(digits), (6, 14))[0]
    np.testing.assert_array_equal(again.motif.probabilities, discovered.motif.probabilities)


def test_a_second_motif_is_found_and_order_1_models_its_pairing():
    random = np.random.default_rng(8)
    first = PositionWeightMatrix.fit(["TTGACGCAAT"], pseudocount=0.3)
    digits, _ = plant(random, first, length=70)
    variants = np.array([DNA.encode(s) for s in ("GGCCTTAAGG", "GGCCGGTTGG")])
    for row in digits:
        row[:10] = variants[random.integers(0, 2)]
    discovered = discover(texts(digits), 10, order=1, n_motifs=2, revcomp=False)
    assert [len(one.motif.consensus) for one in discovered] == [10, 10]
    pair = next(one for one in discovered if one.motif.consensus.startswith("GGCC"))
    words = ["GGCCTTAAGG", "GGCCGGTTGG", "GGCCTGATGG"]
    scores = pair.motif.score(words)
    assert min(scores[:2]) > scores[2] + 1  # the mixture of both is no site
    assert {site.position for site in pair.sites} == {0}


def test_noise_scores_below_zero():
    digits = np.random.default_rng(2).integers(0, 4, (40, 50))
    assert all(one.score < 0 for one in discover(texts(digits), (6, 10)))


def test_a_protein_motif_is_found_on_its_one_strand():
    random = np.random.default_rng(4)
    digits = random.integers(0, 20, (40, 40))
    word = PROTEIN.encode("CWHKPYGC")
    for row in digits[:30]:
        window = row[(start := random.integers(0, 33)) : start + 8]
        window[:] = np.where(random.random(8) < 0.85, word, window)
    best = discover(texts(digits, PROTEIN.letters), 8, revcomp=False, alphabet=PROTEIN)[0]
    assert best.motif.consensus == "CWHKPYGC"


def test_dyads_count_sequences_by_hand():
    sequences = ["ACGTTTACG", "TTTTTTTTT", "ACGNACG"]
    data = Collection([DNA.encode(s) for s in sequences], Background.uniform(), False)
    for z, letters, gap in score_dyads(data, 8):
        words = ["".join(DNA.letters[i] for i in row) for row in letters]
        observed = np.zeros(len(words))
        positions = []
        for s in sequences:
            starts = range(len(s) - 5 - gap)
            dyads = [s[i : i + 3] + s[i + 3 + gap : i + 6 + gap] for i in starts]
            dyads = [word for word in dyads if "N" not in word]
            positions.append(len(dyads))
            for word in set(dyads):
                observed[words.index(word)] += 1
        p = 1 - np.exp(-np.array(positions) / 4**6)
        expected = (observed - p.sum()) / math.sqrt((p * (1 - p)).sum() + 1e-9)
        np.testing.assert_allclose(z, expected, rtol=1e-9)


@given(st.lists(st.integers(-5, 5), min_size=3, max_size=9), st.integers(1, 3), st.integers(3, 5))
def test_the_best_run_of_columns_is_that_of_all_runs(gains, narrowest, widest):
    start, width = best_run(np.array(gains, float), narrowest, widest)
    sums = [
        sum(gains[i : i + w])
        for w in range(narrowest, widest + 1)
        for i in range(len(gains) - w + 1)
    ]
    assert narrowest <= width <= widest and 0 <= start <= len(gains) - width
    assert sum(gains[start : start + width]) == max(sums)


def test_sequences_that_are_too_short_are_skipped():
    discovered = discover(["ACGTACGTAA", "", "ACG", "NNNNNNNNNN"], 6, n_motifs=5)
    assert all(site.sequence == 0 for one in discovered for site in one.sites)


@pytest.mark.parametrize(
    ("sequences", "width", "options", "message"),
    [
        (["ACGT"], 1, {}, "width must be 2 or more"),
        (["ACGT"], (8, 6), {}, "width"),
        (["ACGT"], 8, {}, "no sequence has 8 letters"),
        (["ACGTACGT"], 4, {"n_motifs": 0}, "n_motifs"),
        (["ab"], 2, {"alphabet": MotifAlphabet("ab")}, "revcomp=False"),
        (["ACGT"], 2, {"background": Background.uniform(PROTEIN)}, "same alphabet"),
        (["ACGT"], 2, {"background": Background.of([1, 1, 1, 0])}, "every letter"),
    ],
)
def test_errors_name_the_argument(sequences, width, options, message):
    with pytest.raises((UserError, UsageError), match=message):
        discover(sequences, width, **options)
