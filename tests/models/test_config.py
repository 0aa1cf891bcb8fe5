"""Checks of configuration fields: what they accept, and what their errors name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from regard.models.config import check_choices, check_dropout, check_ranges


def test_bounds_belong_to_the_range():
    for value in (1, 5):
        check_ranges(SimpleNamespace(n_layers=value), n_layers=5)
    check_ranges(SimpleNamespace(window=0), least=0, window=5)


@pytest.mark.parametrize("value", [0, 6])
def test_a_value_outside_the_range_is_refused_by_name(value):
    with pytest.raises(ValueError, match=f"^n_layers must be from 1 to 5, got {value}$"):
        check_ranges(SimpleNamespace(d_model=3, n_layers=value), d_model=4, n_layers=5)


def test_an_unknown_choice_is_refused_with_the_allowed_ones():
    check_choices(SimpleNamespace(norm="rms"), norm=("rms", "layer"))
    with pytest.raises(ValueError, match=r"^norm must be one of rms, layer, got 'batch'$"):
        check_choices(SimpleNamespace(norm="batch"), norm={"rms": 1, "layer": 2})


def test_dropout_is_a_probability_below_one():
    check_dropout(SimpleNamespace(dropout=0.0))
    for value in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
            check_dropout(SimpleNamespace(dropout=value))
