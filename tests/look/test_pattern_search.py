"""Texts that a pattern matches are those of `re`; what takes too long is stopped."""

import re
import time

import pytest

from regard.look.pattern_search import PatternError, search_texts

TEXTS = ["a cat", "CAT", "", "catalog", "ein Käfer", "two\nlines", '"quoted" \\ 😀']


@pytest.mark.parametrize("pattern", ["cat", "^cat$", "ä", "^$", "[^a-z ]", "^l.n", "😀", '"'])
def test_matches_are_those_of_re_in_any_case(pattern):
    expected = [re.search(pattern, text, re.IGNORECASE) is not None for text in TEXTS]
    assert search_texts(pattern, TEXTS, 10.0) == expected
    assert search_texts(pattern, [], 10.0) == []


def test_an_endless_search_ends_when_its_time_is_over():
    began = time.monotonic()
    with pytest.raises(PatternError, match=r"takes more than 0\.3 seconds on these records"):
        search_texts("(a+)+$", ["a" * 60 + "b"], 0.3)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "(?P<x", "(" * 5000 + ")" * 5000])
def test_what_is_no_pattern_is_said(pattern):
    with pytest.raises(PatternError, match="is no regular expression"):
        search_texts(pattern, TEXTS, 10.0)
