"""Components about records: numbers in words, escaping, and what is refused."""

import numpy as np
import pytest

from regard.look.page import Answer, Confusion, MoleculeMaps, Page, ShownRecord, ValueRange
from regard.look.page.records import percent

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("probability", "words"),
    [(1.0, ">99.9%"), (0.9234, "92.3%"), (0.05, "5.0%"), (0.0003169, "0.03%"), (1e-6, "<0.01%"),
     (0.0, "0.00%")],
)  # fmt: skip
def test_probabilities_are_percentages(probability, words):
    assert percent(probability) == words


def test_without_scripts_words_are_complete_and_escaped():
    record = ShownRecord(picture={"text": MARKUP}, prediction="predicted b", truth="true a")
    parts = [
        Answer(headline=MARKUP, options=[(MARKUP, 0.25)]),
        Confusion(counts=[[1, 2], [3, 4]], classes=["a", MARKUP], records=[record], note="n"),
    ]
    for part in parts:
        assert "&lt;img" in part.fallback() and "<img" not in part.fallback()
    page = Page("t")
    page.add(*parts)
    assert "<img" not in page.render() and "25.0%" in parts[0].fallback()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="verdict must be one of"):
        Answer(headline="a", verdict="perhaps")
    with pytest.raises(ValueError, match="predicted must name options"):
        Answer(headline="a", options=[("a", 1.0)], predicted=[1])
    with pytest.raises(ValueError, match="one entry per row of counts"):
        Confusion(counts=np.eye(2), classes=["a"])
    with pytest.raises(ValueError, match="one entry per count, and one more"):
        ValueRange(edges=[0, 1], counts=[1, 2], value=0.5)
    shape = {"maps": np.zeros((1, 1, 2)), "names": ["m"], "paths": [], "size": (9.0, 9.0)}
    with pytest.raises(ValueError, match="one entry per atom"):
        MoleculeMaps(**shape, scale="diverging", atoms=[("C", 1.0, 1.0)])
