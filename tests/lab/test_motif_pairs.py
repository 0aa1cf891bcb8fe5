"""Pairs of motifs: where they are, what the label says, and what tells nothing about it."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batching import IGNORE
from regard.lab.distance import ASK, DIFFERENT, SAME, SLACK, START, draw, length_of
from regard.models.motifs import DNA

SIGMAS = 5.0  # a test of chance that fails once in a million


def texts(pairs):
    return ["".join(DNA.letters[i] for i in row) for row in pairs.letters]


@settings(max_examples=40, deadline=None)
@given(distance=st.integers(1, 70), many=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_every_sequence_holds_two_motifs_so_far_apart_and_the_label_compares_them(
    distance, many, seed
):
    pairs = draw(distance, many, np.random.default_rng(seed))
    form = rf"[AT]*(GGCC|CCGG)([AT]{{{distance - 1}}})(GGCC|CCGG)[AT]*"
    for text, begin, label in zip(texts(pairs), pairs.begins, pairs.labels, strict=True):
        found = re.fullmatch(form, text)
        assert found is not None and len(text) == length_of(distance)
        assert found.start(1) == begin <= SLACK
        assert bool(label) == (found[1] == found[3])
    assert abs(2 * int(pairs.labels.sum()) - many) <= 1
    assert [re.sub("^[AT]*|[AT]*$", "", t) for t in texts(pairs)] == [
        re.sub("^[AT]*|[AT]*$", "", "".join(DNA.letters[i] for i in row)) for row in pairs.aligned
    ]


def test_neither_motif_alone_nor_any_letter_nor_the_composition_tells_the_label():
    pairs = draw(6, 40_000, np.random.default_rng(3))
    same, letters = pairs.labels, pairs.letters
    spread = 2 / np.sqrt(len(same))  # of a difference of two shares of half the sequences, at most
    composition = np.stack([(letters == digit).sum(1) for digit in range(DNA.size)], axis=1)
    assert (composition[:, 1:3] == 4).all()  # C and G, in every sequence
    assert abs(composition[same, 0].mean() - composition[~same, 0].mean()) < SIGMAS * spread * 2.5
    for digits in (letters, pairs.aligned):
        for digit in range(DNA.size):
            gap = (digits[same] == digit).mean(0) - (digits[~same] == digit).mean(0)  # (L,)
            assert np.abs(gap).max() < SIGMAS * spread / 2
    first = pairs.aligned[:, 0] == DNA.letters.index("G")
    second = pairs.aligned[:, 4 + 6 - 1] == DNA.letters.index("G")
    for motif in (first, second):
        assert abs(motif[same].mean() - motif[~same].mean()) < SIGMAS * spread / 2
    assert ((first == second) == same).all()  # and both together tell all


def test_a_batch_asks_for_the_label_alone():
    pairs = draw(5, 7, np.random.default_rng(0))
    batch = pairs.batch()
    assert batch.ids.shape == (7, length_of(5) + 2) and batch.symbols == 7
    assert (batch.ids[:, 0] == START).all() and (batch.ids[:, -1] == ASK).all()
    assert (batch.targets[:, :-1] == IGNORE).all()
    expected = [SAME if label else DIFFERENT for label in pairs.labels]
    assert batch.targets[:, -1].tolist() == expected
    assert torch.equal(batch.ids[:, 1:-1], torch.from_numpy(pairs.letters))


def test_a_shard_holds_the_sequences_of_one_label():
    pairs = draw(5, 9, np.random.default_rng(1))
    parts = [pairs.shard(label) for label in (False, True)]
    assert [part.records for part in parts] == [5, 4]
    for label, part in zip((False, True), parts, strict=True):
        rows = [part.record(i).tolist() for i in range(part.records)]
        assert rows == pairs.ids[pairs.labels == label].tolist()


def test_no_pair_is_closer_than_touching():
    with pytest.raises(ValueError, match="distance and many must be 1 or more, got 0 and 3"):
        draw(0, 3, np.random.default_rng(0))
