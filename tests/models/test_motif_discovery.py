"""The search for motifs, against enumeration and planted motifs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UsageError, UserError
from regard.models.motif_discovery import Collection, MotifFit, best_run, discover, score_dyads
from regard.models.motifs import (
    DNA,
    PROTEIN,
    Background,
    MarkovMotif,
    MotifAlphabet,
    PositionWeightMatrix,
)

BINARY = MotifAlphabet("ab")
SITES = ["TGACTCATA", "TGACTCAGC", "TGAGTCACA", "TTACTCATG", "TGACNCATA"]


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
