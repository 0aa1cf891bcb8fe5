"""Codes of positions by their laws, and the table of schemes trained short and tested long."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.lab.experiment import Options, read_stream
from regard.lab.positions import (
    SMALL,
    Plan,
    binary_codes,
    code_claims,
    extrapolation_claims,
    measure,
    period,
    shift_map,
    shift_residual,
    sinusoidal_codes,
)
from regard.layers.positions import POSITIONS


def test_codes_are_the_formula_and_the_binary_number():
    codes, n = sinusoidal_codes(40, 8, 100.0), 40
    for p in (0, 7, 39):
        for i in range(4):
            angle = p / 100 ** (2 * i / 8)
            pair = [math.sin(angle), math.cos(angle)]
            assert np.allclose(codes[p, 2 * i : 2 * i + 2], pair, atol=1e-6)
    digits = ["".join("1" if bit > 0 else "0" for bit in row[::-1]) for row in binary_codes(n)]
    assert [int(text, 2) for text in digits] == list(range(n))


def test_a_shift_is_a_rotation_and_shifts_add_up():
    a, b = shift_map(3, 16), shift_map(5, 16)
    assert np.allclose(a @ b, shift_map(8, 16)) and np.allclose(a @ a.T, np.eye(16))
    codes = sinusoidal_codes(50, 16)
    assert np.allclose(codes[3:], codes[:-3] @ a.T, atol=1e-6)
    linear, binary = shift_residual(sinusoidal_codes(200), 7), shift_residual(binary_codes(256), 7)
    assert linear < 1e-5 < 0.1 < binary


def test_the_period_is_that_of_the_strongest_frequency():
    assert period(np.tile([1.0, 1, -1, -1], 8)) == 4
    assert period(np.sin(np.arange(60) * 2 * np.pi / 12)) == 12


def test_all_schemes_have_one_budget_and_losses_by_stretch():
    plan = Plan(steps=2, seeds=1, length=8, times=4, batch=2, tested=4)
    losses = measure(plan, read_stream(None, 1000), Options())
    assert list(losses) == list(POSITIONS) and plan.ends == [0, 8, 16, 32]
    for seeds in losses.values():
        assert len(seeds) == 1 and len(seeds[0]) == 3 and 1 < min(seeds[0]) <= max(seeds[0]) < 9


def test_a_scheme_that_rises_breaks_and_one_that_does_not_holds():
    flat, steep = [[2.0, 2.0, 2.01], [2.0, 2.0, 2.009]], [[2.0, 2.5, 3.0], [2.0, 2.0, 2.98]]
    losses = {name: steep for name in POSITIONS} | {"t5": flat, "alibi": flat}
    assert all(claim.holds for claim in extrapolation_claims(losses))
    swapped = {name: flat if rows is steep else steep for name, rows in losses.items()}
    assert all(claim.holds is False for claim in extrapolation_claims(swapped))
    # seeds that disagree, or a single one, do not decide
    different = {name: [[2.0, 2.0, 2.02], [2.0, 2.0, 2.4]] for name in POSITIONS}
    for few in (different, {name: rows[:1] for name, rows in losses.items()}):
        assert all(claim.holds is None for claim in extrapolation_claims(few))


def test_claims_about_codes_hold():
    claims = code_claims(SMALL.codes)
    assert len(claims) == 7 and all(claim.holds for claim in claims)


@pytest.mark.parametrize("scheme", ["rotary", "learned"])
def test_models_have_positions_for_the_longest_test(scheme):
    config = SMALL.config(scheme)
    assert config.positions == scheme and config.max_len == SMALL.length * SMALL.times
