"""Logos: heights are information, letters are text, and the file stands alone."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError
from regard.look.figures import colours
from regard.look.logo import CAP, UNIT, heights, logo
from regard.models.motifs import (
    DNA,
    PROTEIN,
    Background,
    MarkovMotif,
    MotifAlphabet,
    PositionWeightMatrix,
)

SVG = "{http://www.w3.org/2000/svg}"


def stacks(document, height, most):
    """Letters of the picture from bottom to top with their bits, by position on the x axis."""
    found = {}
    for text in ET.fromstring(document).iter(f"{SVG}text"):
        if "textLength" not in text.attrib:
            continue
        numbers = re.findall(r"-?[\d.]+(?:e-?\d+)?", text.attrib["transform"])
        x, y, _, tall = map(float, numbers)
        assert float(text.attrib["font-size"]) == pytest.approx(UNIT / CAP, rel=1e-5)
        found.setdefault(x, []).append((y, text.text, tall * UNIT / height * most))
    return [[(c, bits) for _, c, bits in sorted(found[x], reverse=True)] for x in sorted(found)]


def entropy_by_hand(row):
    return -sum(p * math.log2(p) for p in row if p)


@pytest.mark.parametrize("order", [0, 1])
def test_stacks_are_as_tall_as_their_information(order):
    motif = MarkovMotif.fit(["ACGT", "ACCT", "ATGT", "ACGA"], order=order, beta=0.5)
    drawn = stacks(logo(motif, height=200), 200, 2.0)
    assert len(drawn) == 4
    for stack, row in zip(drawn, motif.probabilities, strict=True):
        information = 2 - entropy_by_hand(row)
        assert sum(bits for _, bits in stack) == pytest.approx(information, abs=2e-3)
        for letter, bits in stack:
            share = row[DNA.letters.index(letter)] * information
            assert bits == pytest.approx(share, rel=1e-4)
        tallest = max(stack, key=lambda pair: pair[1])
        assert stack[-1] == tallest  # on top
    np.testing.assert_allclose(heights(motif).sum(axis=1), motif.information())


def test_against_a_background_a_stack_is_relative_entropy():
    background = Background.of([0.4, 0.3, 0.2, 0.1])
    motif = PositionWeightMatrix.fit(["ACT", "AGT"], background=background)
    bits = motif.information(against_background=True)
    by_hand = [
        sum(p * math.log2(p / b) for p, b in zip(row, [0.4, 0.3, 0.2, 0.1], strict=True))
        for row in motif.probabilities
    ]
    np.testing.assert_allclose(bits, by_hand)
    drawn = stacks(logo(motif, against_background=True, height=100), 100, max(by_hand))
    assert [sum(b for _, b in stack) for stack in drawn] == pytest.approx(by_hand, abs=5e-3)


def test_a_flat_motif_has_no_letters_and_colours_are_the_house_ones():
    flat = PositionWeightMatrix.of_counts(np.ones((3, 4)))
    assert stacks(logo(flat), 140, 2) == []
    for alphabet in (DNA, PROTEIN, MotifAlphabet("xyz")):
        motif = PositionWeightMatrix.of_counts(np.eye(alphabet.size), alphabet, pseudocount=0)
        picture = logo(motif)
        used = set(re.findall(r'textLength[^>]*fill="([^"]+)"', picture))
        assert len(used) >= 3 and used <= set(colours("series"))


def test_the_picture_is_named_and_stands_alone():
    document = logo(PositionWeightMatrix.fit(["ACGT"]), "AP-1 <1>")
    root = ET.fromstring(document)
    assert root.find(f"{SVG}title").text == "AP-1 <1>"
    assert "ACGT" in root.find(f"{SVG}desc").text
    assert root.attrib["role"] == "img"
    assert set(root.attrib["aria-labelledby"].split()) == {
        e.attrib["id"] for e in root if "id" in e.attrib
    }
    assert "href" not in document and "url(" not in document and "<script" not in document


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.text("<>&\"' ab]\x00\x1b\u202e\uffff", min_size=2, max_size=8))
def test_every_letter_and_title_is_text(title, letters):
    letters = "".join(dict.fromkeys(letters + "xy"))
    motif = PositionWeightMatrix.of_counts(
        np.eye(len(letters)), MotifAlphabet(letters), pseudocount=0
    )
    root = ET.fromstring(logo(motif, title))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg",
        "title",
        "desc",
        "rect",
        "path",
        "text",
    }


def test_sizes_are_positive():
    with pytest.raises(UsageError, match="must be positive"):
        logo(PositionWeightMatrix.fit(["A"]), height=0)
