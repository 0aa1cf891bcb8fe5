"""Logos: heights are information, and letters are drawn as figures."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from regard.look.figures import colours, save
from regard.look.logo import letter_bits, motif_logo
from regard.models.motifs import (
    DNA,
    PROTEIN,
    Background,
    MarkovMotif,
    MotifAlphabet,
    PositionWeightMatrix,
)


def entropy_by_hand(row):
    return -sum(p * math.log2(p) for p in row if p)


@pytest.mark.parametrize("order", [0, 1])
def test_stacks_are_as_tall_as_their_information(order):
    motif = MarkovMotif.fit(["ACGT", "ACCT", "ATGT", "ACGA"], order=order, beta=0.5)
    logo = motif_logo(motif)
    assert logo.most == 2 and logo.title == f"motif {motif.consensus}"
    stacks = logo.stacks(1e-9)
    assert len(stacks) == 4
    for stack, row in zip(stacks, motif.probabilities, strict=True):
        information = 2 - entropy_by_hand(row)
        assert sum(bits for _, bits, _ in stack) == pytest.approx(information, abs=2e-3)
        for letter, bits, _ in stack:
            assert bits == pytest.approx(row[DNA.letters.index(letter)] * information, rel=1e-4)
        assert stack[-1] == max(stack, key=lambda entry: entry[1])  # the tallest is on top
    np.testing.assert_allclose(letter_bits(motif).sum(axis=1), motif.information())


def test_against_a_background_a_stack_is_relative_entropy():
    shares = [0.4, 0.3, 0.2, 0.1]
    motif = PositionWeightMatrix.fit(["ACT", "AGT"], background=Background.of(shares))
    by_hand = [
        sum(p * math.log2(p / b) for p, b in zip(row, shares, strict=True))
        for row in motif.probabilities
    ]
    logo = motif_logo(motif, against_background=True)
    np.testing.assert_allclose(logo.array().sum(1), by_hand)
    assert logo.most == pytest.approx(max(by_hand))


def test_a_flat_motif_has_no_letters_and_colours_are_those_of_the_series():
    flat = motif_logo(PositionWeightMatrix.of_counts(np.ones((3, 4))))
    assert flat.stacks(1e-9) == [[], [], []]
    for alphabet in (DNA, PROTEIN, MotifAlphabet("xyz")):
        motif = PositionWeightMatrix.of_counts(np.eye(alphabet.size), alphabet, pseudocount=0)
        used = {colour for stack in motif_logo(motif).stacks(1e-9) for _, _, colour in stack}
        assert len(used) >= 3 and used <= set(range(len(colours("series"))))


def test_a_logo_can_be_saved_as_svg(tmp_path):
    path = save([motif_logo(PositionWeightMatrix.fit(["ACGT"]), "AP-1 <1>")], tmp_path / "logo.svg")
    ElementTree.parse(path)
    drawn = set(re.findall(r"fill: (#\w+)", path.read_text()))
    assert {colours("series")[i] for i in (0, 1, 2, 4)} <= drawn  # C, T, A and G
