"""Interpolation, smoothing and learned attention against their formulas; lookup and its limits."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from regard.errors import UserError
from regard.lab import kernels as lab
from regard.lab.experiment import Options
from regard.lab.kernels import (
    FULL,
    INVERSE,
    PRINTED,
    Attention,
    Dictionary,
    fit,
    kernels,
    letter_triples,
    lookup,
    mean_entropy,
    misspell,
    smooth,
    wave,
)
from regard.layers.attention import negative_distance, negative_log_distance

X = np.array([1.36, 3.40, 4.8, 6.05])
Y = np.array([1.79, -1.77, 0.4, -2.17])


def weighted_means(kernel, queries):
    weights = np.array([[kernel(abs(q - x)) for x in X] for q in queries])
    return weights @ Y / weights.sum(1)


@pytest.mark.parametrize(
    ("score", "kernel"),
    [
        (negative_log_distance, lambda d: 1 / d),
        (negative_distance, lambda d: np.exp(-d)),
        (lab.gaussian(0.7), lambda d: np.exp(-(d**2) / (2 * 0.7**2))),
    ],
)
def test_each_weighted_mean_is_attention_with_its_score(score, kernel):
    queries = np.array([0.9, 2.0, 4.21, 5.5])
    values, weights = smooth(queries, (X, Y), score)
    assert np.allclose(values, weighted_means(kernel, queries), atol=1e-5)
    assert np.allclose(weights.sum(1), 1, atol=1e-6) and weights.shape == (4, 4)


def test_parameter_free_attention_is_a_softmax_of_products_and_learning_starts_there():
    model = Attention((X, Y), learned=False, valued=False)
    queries = np.array([2.2, 4.21])
    codes, keys = model.code(queries).double().numpy(), model.code(X).double().numpy()
    weights = np.exp(codes @ keys.T)
    expected = (weights @ Y) / weights.sum(1)
    assert np.allclose(model(queries).detach().numpy(), expected, atol=1e-4)
    learned = Attention((X, Y), learned=True, valued=True)
    assert np.allclose(learned(queries).detach().numpy(), expected, atol=1e-4)


def test_a_point_left_out_does_not_influence_its_own_prediction():
    model = Attention((X, Y), learned=True, valued=True)
    moved = Attention((X, Y + np.array([0, 9.0, 0, 0])), learned=True, valued=True)
    gap = (model(X, leave_one_out=True) - moved(X, leave_one_out=True)).detach().abs()
    assert gap[1] < 1e-5 and (gap[[0, 2, 3]] > 1e-4).all()
    points = (X, Y + np.array([0, 9.0, 0, 0]))
    gap = np.subtract(
        *(smooth(X, p, lab.gaussian(1.0), leave_one_out=True)[0] for p in ((X, Y), points))
    )
    assert abs(gap[1]) < 1e-5 and (np.abs(gap[[0, 2, 3]]) > 1e-4).all()


def test_learning_lowers_the_error_on_points_left_out():
    random = np.random.default_rng(0)
    points = lab.sample(24, random)
    model = Attention(points, learned=True, valued=True)
    before = model(points[0], leave_one_out=True).detach().numpy()
    after = fit(points, 40, valued=True, seed=0)(points[0], leave_one_out=True).numpy()
    assert lab.rms(after - points[1]) < 0.9 * lab.rms(before - points[1])


def test_the_wave_passes_through_the_three_points_the_lecture_prints():
    for x, y in PRINTED:
        assert abs(wave(np.array([x]))[0] - y) < 1e-3


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(lab, "SMALL", lab.Plan(draws=2, points=16, tested=20, steps=5))


def test_kernels_quick_form_reports_every_kind_of_weights(tiny):
    result = kernels(Options(quick=True))
    assert [row[0] for row in result.tables[0].rows] == [*lab.FIXED, lab.TUNED, lab.LEARNED, FULL]
    assert [claim.holds for claim in result.claims[:3]] == [True] * 3
    again = kernels(Options(quick=True))
    assert [c.measured for c in again.claims] == [c.measured for c in result.claims]


def test_users_points_are_read_by_name_and_checked(tiny, tmp_path):
    path = tmp_path / "points.csv"
    rows = [f"{i},{i * 0.5 + 0.01 * i * i},{i}" for i in range(14)]
    path.write_text("y,x,other\n" + "\n".join(rows) + "\n")
    result = kernels(Options(quick=True, file=path))
    xs = np.array(result.figures[0].series[0][1])
    assert np.allclose(xs, [i * 0.5 + 0.01 * i * i for i in range(14)])
    assert INVERSE in [row[0] for row in result.tables[0].rows]
    path.write_text("x,y\n1,2\n2,three\n" + "\n".join(f"{i},1" for i in range(20)))
    with pytest.raises(UserError, match=r"points\.csv:3: x and y must be numbers, got 'three'"):
        kernels(Options(quick=True, file=path))
    path.write_text("x,y\n1,2\n")
    with pytest.raises(UserError, match="1 points, at least 12 are needed"):
        kernels(Options(quick=True, file=path))
    with pytest.raises(UserError, match="no file at"):
        kernels(Options(quick=True, file=tmp_path / "none.csv"))


def test_lookup_weights_are_a_softmax_of_cosines_over_the_temperature():
    dictionary = Dictionary(["abab", "bcd", "a"], ["x", "y", "z"])
    weights = dictionary.look_up(["abc"], 0.5)[0].numpy()
    known = {triple for key in dictionary.keys for triple in letter_triples(key)}
    query = Counter([" ab", "abc", "bc "])
    n_unknown = sum(n for triple, n in query.items() if triple not in known)
    length = math.sqrt(sum(n * n for t, n in query.items() if t in known) + n_unknown**2)
    cosines = []
    for key in dictionary.keys:
        counts = Counter(letter_triples(key))
        product = sum(n * counts[triple] for triple, n in query.items())
        cosines.append(product / (length * math.sqrt(sum(n * n for n in counts.values()))))
    expected = np.exp(np.array(cosines) / 0.5)
    assert np.allclose(weights, expected / expected.sum(), atol=1e-6)
    assert letter_triples("Abc") == [" ab", "abc", "bc "]


def test_cold_it_is_the_dict_and_hot_it_is_the_mean():
    dictionary = Dictionary(["red", "green", "blue"], ["1", "2", "3"])
    cold, hot = (dictionary.look_up(dictionary.keys, t) for t in (1e-3, 1e6))
    assert np.allclose(cold, np.eye(3), atol=1e-6) and np.allclose(hot, 1 / 3, atol=1e-5)
    assert mean_entropy(cold) < 1e-3 and math.isclose(mean_entropy(hot), np.log2(3), abs_tol=1e-4)


def test_misspelled_keys_have_one_letter_less():
    keys = ["alpha", "beta", "g"]
    for key, query in zip(keys, misspell(keys, np.random.default_rng(1)), strict=True):
        assert len(query) == len(key) - 1
        assert any(key[:i] + key[i + 1 :] == query for i in range(len(key)))


def test_every_claim_of_lookup_holds_for_the_films():
    result = lookup(Options())
    assert len(result.claims) == 4 and all(claim.holds for claim in result.claims)
    assert all(row[1] == "KeyError" for row in result.tables[0].rows)


def test_a_users_dictionary_is_read_and_checked(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("house\tHaus\nmouse\tMaus\ntree\tBaum\n")
    result = lookup(Options(file=path))
    assert {row[2] for row in result.tables[0].rows} == {"Haus", "Maus", "Baum"}
    path.write_text("house\tHaus\nhouse\tHeim\n")
    with pytest.raises(UserError, match=r"words\.tsv:2: the key 'house' is on line 1 already"):
        lookup(Options(file=path))
    path.write_text("house\tHaus\n")
    with pytest.raises(UserError, match="1 keys; from 2 to 2,000"):
        lookup(Options(file=path))
    path.write_text("house\nmouse\n")
    with pytest.raises(UserError, match="one column, two are needed"):
        lookup(Options(file=path))


def test_values_that_are_numbers_are_averaged():
    dictionary = Dictionary(["north", "south", "east"], ["1", "2.5", "-4"])
    table = lab.misspelled_table(dictionary, ["nort", "outh"])
    assert table.columns[-1] == "weighted mean of the values"
    weights = dictionary.look_up(["nort", "outh"], 0.05).numpy()
    assert np.allclose([row[-1] for row in table.rows], weights @ [1, 2.5, -4])
    assert Dictionary(["a", "b"], ["1", "x"]).numbers() is None
