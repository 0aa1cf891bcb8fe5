"""Laws of attention: the linear program against hulls known by hand, and the quick form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.lab.invariants import distance_to_hull, entropies, invariants
from regard.lab.result import Options

pytest.importorskip("scipy")


def test_the_program_tells_a_square_from_what_is_outside():
    square = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    assert distance_to_hull(np.array([0.3, 0.9]), square) < 1e-9
    assert distance_to_hull(np.array([1.0, 1.0]), square) < 1e-9
    assert abs(distance_to_hull(np.array([1.5, 0.5]), square) - 0.5) < 1e-9
    assert abs(distance_to_hull(np.array([-1.0, 2.0]), square) - 2.0) < 1e-9


def test_entropy_of_equal_and_of_certain_weights():
    assert entropies(torch.zeros(3, 16)).value == pytest.approx(4.0)
    assert entropies(torch.tensor([[0.0, 500.0, 0.0]] * 2)).value == pytest.approx(0.0)


def test_every_claim_of_the_quick_form_holds():
    result = invariants(Options(quick=True, seed=2))
    assert len(result.claims) == 11
    assert [claim.name for claim in result.claims if not claim.holds] == []
    moved = dict(result.tables[0].rows)
    assert set(moved) >= {"none", "rotary", "alibi", "learned"}


def test_nobody_elses_random_numbers_are_disturbed():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    invariants(Options(quick=True))
    assert torch.equal(torch.rand(2), expected)
