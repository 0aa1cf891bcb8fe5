"""Exact p-values against all words, and scans against the slow loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from regard.errors import UsageError
from regard.models.motif_scan import LEVELS, ScoreDistribution, scan, with_background
from regard.models.motifs import DNA, PROTEIN, Background, MarkovMotif, PositionWeightMatrix

RANDOM = np.random.default_rng(0)
SITES = ["TGACTC", "TGACTA", "TGAGTC", "TTACTC", "TGATTC", "CGACTC"]
TEXT = "".join(RANDOM.choice(list("AACGTT"), 4000))
WORDS = DNA.encode("".join(map("".join, itertools.product("ACGT", repeat=6)))).reshape(-1, 6)


def motif_of(order, background_order):
    background = Background.fit([TEXT], order=background_order)
    if order:
        return MarkovMotif.fit(SITES, order=order, background=background)
    return PositionWeightMatrix.fit(SITES, background=background)


def word_probabilities(background):
    """P of all words of length 6 under the background, by its definition."""
    p = np.ones(len(WORDS))
    for j in range(6):
        known = min(j, background.order)
        context = sum(WORDS[:, j - d] * 4 ** (d - 1) for d in range(1, known + 1))
        p *= background.conditionals[known][context, WORDS[:, j]]
    return p


@pytest.mark.parametrize(("order", "background_order"), [(0, 0), (0, 2), (1, 0), (2, 1), (2, 2)])
def test_p_values_are_those_of_all_words(order, background_order):
    motif = motif_of(order, background_order)
    p = word_probabilities(motif.background)
    assert p.sum() == pytest.approx(1)
    distribution = ScoreDistribution(motif)
    steps = np.concatenate([distribution.window_steps(word) for word in WORDS])
    sorted_steps = np.argsort(steps)
    tails = p[sorted_steps][::-1].cumsum()[::-1]  # P of all words from the i-th least score on
    first = np.searchsorted(steps[sorted_steps], steps)
    np.testing.assert_allclose(distribution.p_values(steps), tails[first], rtol=1e-9)
    assert np.abs(steps * distribution.step - motif.score(WORDS)).max() < 6 * distribution.step


def test_impossible_letters_have_p_value_1():
    motif = PositionWeightMatrix.fit(["ACGT"] * 3, pseudocount=0.0)
    distribution = ScoreDistribution(motif)
    steps = np.concatenate([distribution.window_steps(DNA.encode(w)) for w in ("ACGT", "ACGA")])
    assert distribution.p_values(steps).tolist() == [pytest.approx(1 / 256), 1.0]
    assert scan(with_background(motif, motif.background), [DNA.encode("ACGA")], p_value=1.0)


@pytest.mark.parametrize("chunk", [1 << 20, 7])
@pytest.mark.parametrize("order", [0, 2])
def test_a_scan_is_the_slow_loop(monkeypatch, chunk, order):
    monkeypatch.setattr("regard.models.motif_scan.CHUNK", chunk)
    motif = motif_of(order, 2)
    sequences = [DNA.encode(s) for s in (TEXT[:300], "TGACTC", "", "TGNCTCGAGTCAN", TEXT[300:700])]
    hits = scan(motif, sequences, p_value=0.02)
    expected, tested = [], 0
    distribution = ScoreDistribution(motif)
    for n, digits in enumerate(sequences):
        for i in range(len(digits) - 5):
            for strand in (1, -1):
                window = digits[i : i + 6]
                if (window == 4).any():
                    continue
                tested += 1
                window = window if strand > 0 else DNA.reverse_complement(window)
                (p,) = distribution.p_values(distribution.window_steps(window))
                if p <= 0.02:
                    expected.append((n, i, strand, p))
    found = zip(hits.sequences, hits.positions, hits.strands, hits.p_values, strict=True)
    assert list(found) == expected
    assert hits.tested == tested
    np.testing.assert_allclose(
        hits.scores,
        [
            motif.score((d if s > 0 else DNA.reverse_complement(d))[None])[0]
            for n, i, s, _ in expected
            for d in [sequences[n][i : i + 6]]
        ],
        atol=6 * distribution.step,
    )


def test_q_values_are_those_of_benjamini_and_hochberg():
    hits = scan(motif_of(0, 0), [DNA.encode(TEXT)], p_value=1.0)
    p = hits.p_values
    assert len(hits) == hits.tested == 2 * (len(TEXT) - 5)
    for i in range(0, len(p), 701):
        least = min(q * len(p) / (p <= q).sum() for q in np.unique(p[p >= p[i]]))
        assert hits.q_values[i] == pytest.approx(min(least, 1))


def test_a_protein_is_scanned_on_one_strand():
    motif = PositionWeightMatrix.fit(["WWHKC", "WWHRC"], PROTEIN)
    hits = scan(motif, [PROTEIN.encode("MKVWWHKCLLA")], both_strands=False)
    assert (hits.positions.tolist(), hits.strands.tolist()) == ([3], [1])
    with pytest.raises(UsageError, match="no complement"):
        scan(motif, [PROTEIN.encode("MKVWWHKCLLA")])


def test_arguments_are_checked():
    motif = motif_of(0, 0)
    for value in (0.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="p_value must be"):
            scan(motif, [], p_value=value)
    with pytest.raises(UsageError, match="levels"):
        ScoreDistribution(motif, 1)
    assert LEVELS > 1000
