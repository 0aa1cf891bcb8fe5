"""The slides' worked examples: every printed number comes out, and small cases known by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.lab import slides
from regard.lab.experiment import Options


@pytest.fixture(scope="module")
def result():
    return slides.slides(Options(quick=True, seed=1))


def test_every_claim_holds(result):
    assert [claim.name for claim in result.claims if not claim.holds] == []
    assert len(result.claims) == 24


def test_every_lecture_but_the_titles_has_a_claim(result):
    assert {claim.name[:3] for claim in result.claims} == {"000", "001", "002", "003", "004"}


def test_every_figure_is_explained(result):
    assert result.reading and len(result.readings) == len(result.figures) - 1
    assert all(result.readings)


def test_pairs_are_counted_with_their_markers():
    letters, counts = slides.count_pairs(["ab", "b"])
    assert letters == ["<S>", "a", "b", "<E>"]
    assert counts.tolist() == [[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 2], [0, 0, 0, 0]]


def test_a_name_ends_where_the_end_is_drawn():
    letters, counts = slides.count_pairs(["ab"])  # a chain: nothing is left to chance
    random = np.random.default_rng(0)
    assert slides.sample_name(counts, letters, random) == "ab"
    assert slides.bits_per_letter("ab", counts, letters) == 0


def test_steps_of_two_words_by_hand():
    assert slides.count_steps(2, True).tolist() == [[3, 4], [2, 3], [1, 2]]
    assert slides.count_steps(2, False).tolist() == [[3, 3], [2, 2], [1, 1]]


def test_ranks_are_shared_by_intervals_that_overlap():
    assert slides.rank_by_bound([5, 4, 1], [7, 6, 2]) == [1, 1, 3]
    assert slides.rank_by_bound([5, 4, 4], [7, 4, 6]) == [1, 2, 1]


def test_what_it_refers_to_follows_from_the_adjective():
    ids, nouns = slides.draw_sentences(50, np.random.default_rng(0))
    words = (*slides.ANIMALS, *slides.PLACES)
    for row, noun in zip(ids.tolist(), nouns.tolist(), strict=True):
        sentence = [slides.VOCABULARY[i] for i in row]
        at = 1 if sentence[-1] in slides.STATES else 6
        assert sentence[at] == words[noun] and sentence[slides.IT] == "it"


def test_the_global_random_state_is_unchanged():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    slides.slides(Options(quick=True))
    assert torch.equal(torch.rand(2), expected)
