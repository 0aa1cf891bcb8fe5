"""Codes of positions by their laws, and the table of schemes trained short and tested long."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.errors import UserError
from regard.lab import positions as lab
from regard.lab.extrapolation import Course, claims, measure
from regard.lab.inputs import drawn, stream_of, windows
from regard.lab.positions import bits, nearest, period, residual, shift_map, waves
from regard.lab.result import Options
from regard.layers.positions import POSITIONS


def test_codes_are_the_formula_and_the_binary_number():
    code, many = waves(40, 8, 100.0), 40
    for p in (0, 7, 39):
        for i in range(4):
            angle = p / 100 ** (2 * i / 8)
            assert np.allclose(
                code[p, 2 * i : 2 * i + 2], [math.sin(angle), math.cos(angle)], atol=1e-6
            )
    assert [
        int("".join("1" if b > 0 else "0" for b in row[::-1]), 2) for row in bits(many)
    ] == list(range(many))


def test_a_shift_is_a_rotation_and_shifts_add_up():
    a, b = shift_map(3, 16), shift_map(5, 16)
    assert np.allclose(a @ b, shift_map(8, 16)) and np.allclose(a @ a.T, np.eye(16))
    code = waves(50, 16)
    assert np.allclose(code[3:], code[:-3] @ a.T, atol=1e-6)
    assert residual(waves(200), 7) < 1e-5 < 0.1 < residual(bits(256), 7)


def test_the_nearest_two_codes_are_those_a_plain_search_finds():
    codes = np.random.default_rng(0).standard_normal((30, 3))
    plain = min(np.linalg.norm(a - b) for i, a in enumerate(codes) for b in codes[:i])
    assert nearest(codes) == pytest.approx(plain)
    assert nearest(np.concatenate([codes, codes[:1]])) == pytest.approx(0, abs=1e-6)
    assert period(np.tile([1.0, 1, -1, -1], 8)) == 4


def test_windows_ask_for_what_follows_and_the_end_is_never_trained_on(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefghij" * 30)
    stream = stream_of(path, 100)
    assert stream.letters[stream.test[0]] == "b" and len(stream.test) == 30  # and a newline
    batch = drawn(stream.train, 12, 5, 0, 3)
    assert batch.ids.shape == (5, 12) and (batch.ids[:, 1:] == batch.targets[:, :-1]).all()
    assert (batch.ids % 10 + 1 == batch.targets).all()
    assert windows(stream.test, 7, 9).ids.shape == (4, 7)
    with pytest.raises(UserError, match="301 characters, at least 302"):
        stream_of(path, 302)


def test_schemes_get_one_budget_and_losses_by_place():
    course = Course(steps=2, seeds=1, length=8, times=4, batch=2, tested=4)
    found = measure(course, stream_of(None, 1000), Options())
    assert list(found) == list(POSITIONS) and course.ends == [0, 8, 16, 32]
    for seeds in found.values():
        assert len(seeds) == 1 and len(seeds[0]) == 3 and 1 < min(seeds[0]) <= max(seeds[0]) < 9


def test_a_scheme_that_rises_breaks_and_one_that_does_not_holds():
    flat, steep = [[2.0, 2.0, 2.01], [2.0, 2.0, 2.009]], [[2.0, 2.5, 3.0], [2.0, 2.0, 2.98]]
    found = {name: steep for name in POSITIONS} | {"t5": flat, "alibi": flat}
    assert all(claim.holds for claim in claims(found))
    swapped = {n: flat if v is steep else steep for n, v in found.items()}
    assert all(claim.holds is False for claim in claims(swapped))
    # seeds that disagree, or one alone, do not tell
    apart = {name: [[2.0, 2.0, 2.02], [2.0, 2.0, 2.4]] for name in POSITIONS}
    for few in (apart, {name: rows[:1] for name, rows in found.items()}):
        assert all(claim.holds is None for claim in claims(few))


def test_claims_about_codes_hold():
    found = lab.claims(lab.SMALL)
    assert len(found) == 7 and all(claim.holds for claim in found)
