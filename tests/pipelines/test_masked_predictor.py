"""Candidates of masks, and texts that cannot be filled in."""

from __future__ import annotations

import pytest

from regard.api import load
from regard.errors import UsageError, UserError
from regard.pipelines.masked_predictor import MaskedPredictor

SEQUENCE = "MKDEMKFGLIDEFGMKLILIDEMK"


def test_candidates_are_probabilities_of_the_model(masked_proteins):
    (mask,) = load(masked_proteins, kind=MaskedPredictor).fill("[MASK]" + SEQUENCE[1:], num=100)
    total = sum(one.probability for one in mask.candidates)
    assert total == pytest.approx(1, abs=0.01)  # the markers have hardly any


@pytest.mark.parametrize(
    ("text", "message"),
    [("MKA", r"write \[MASK\] or <mask>"), ("[MASK]" + "A" * 2000, "the model reads")],
)
def test_a_text_that_cannot_be_filled_in_is_an_error(masked_proteins, text, message):
    with pytest.raises((UsageError, UserError), match=message):
        load(masked_proteins).fill(text)
