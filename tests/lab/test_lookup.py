"""A dictionary that becomes fuzzy: its limits by hand, and the user's own."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from regard.errors import UserError
from regard.lab.lookup import Archive, entropy, lookup, misspelt, triples
from regard.lab.result import Options


def test_weights_are_a_softmax_of_cosines_over_the_temperature():
    archive = Archive(["abab", "bcd", "a"], ["x", "y", "z"])
    found = archive.look_up(["abc"], 0.5)[0]
    grams = Counter([" ab", "abc", "bc "])
    cosines = []
    for key in archive.keys:
        padded = f" {key} "
        other = Counter(padded[i : i + 3] for i in range(len(padded) - 2))
        unknown = math.sqrt(sum((n for g, n in grams.items() if g not in known(archive)), 0) ** 2)
        length = math.sqrt(sum(n * n for g, n in grams.items() if g in known(archive)) + unknown**2)
        product = sum(n * other[g] for g, n in grams.items())
        cosines.append(product / (length * math.sqrt(sum(n * n for n in other.values()))))
    weights = np.exp(np.array(cosines) / 0.5)
    assert np.allclose(found, weights / weights.sum(), atol=1e-6)


def known(archive):
    return {gram for key in archive.keys for gram in triples(key)}


def test_cold_it_is_the_dict_and_hot_it_is_the_mean():
    archive = Archive(["red", "green", "blue"], ["1", "2", "3"])
    assert np.allclose(archive.look_up(archive.keys, 1e-3), np.eye(3), atol=1e-6)
    assert np.allclose(archive.look_up(archive.keys, 1e6), 1 / 3, atol=1e-5)
    assert entropy(np.eye(3)) == 0 and math.isclose(entropy(np.full((2, 8), 1 / 8)), 3)


def test_misspelt_keys_have_one_letter_less():
    keys = ["alpha", "beta", "g"]
    for key, wrong in zip(keys, misspelt(keys, np.random.default_rng(1)), strict=True):
        assert len(wrong) == len(key) - 1
        assert any(key[:i] + key[i + 1 :] == wrong for i in range(len(key)))


def test_every_claim_holds_of_the_films():
    result = lookup(Options())
    assert len(result.claims) == 4 and all(claim.holds for claim in result.claims)
    assert all(row[1] == "KeyError" for row in result.tables[0].rows)


def test_a_dictionary_of_the_users_own(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("house\tHaus\nmouse\tMaus\ntree\tBaum\n")
    result = lookup(Options(file=path))
    assert {row[2] for row in result.tables[0].rows} == {"Haus", "Maus", "Baum"}
    path.write_text("house\tHaus\nhouse\tHeim\n")
    with pytest.raises(UserError, match=r"words\.tsv:2: the key 'house' is there already"):
        lookup(Options(file=path))
    path.write_text("house\tHaus\n")
    with pytest.raises(UserError, match="1 keys; from 2 to 2,000"):
        lookup(Options(file=path))
    path.write_text("house\nmouse\n")
    with pytest.raises(UserError, match="one column, two are needed"):
        lookup(Options(file=path))
