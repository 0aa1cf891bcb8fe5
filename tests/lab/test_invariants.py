"""Laws of attention: the linear program against hulls known by hand, and the quick form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.lab.experiment import Options
from regard.lab.invariants import distance_to_hull, entropy, invariants, variance


def test_the_linear_program_separates_a_square_from_points_outside():
    square = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    assert distance_to_hull(np.array([0.3, 0.9]), square) < 1e-9
    assert distance_to_hull(np.array([1.0, 1.0]), square) < 1e-9
    assert abs(distance_to_hull(np.array([1.5, 0.5]), square) - 0.5) < 1e-9
    assert abs(distance_to_hull(np.array([-1.0, 2.0]), square) - 2.0) < 1e-9


def test_entropy_of_equal_and_of_certain_weights_and_variance_about_zero():
    assert entropy(torch.zeros(3, 16)).value == pytest.approx(4.0)
    assert entropy(torch.tensor([[0.0, 500.0, 0.0]] * 2)).value == pytest.approx(0.0)
    assert variance(torch.tensor([1.0, -3.0])).value == 5.0


def test_every_claim_of_the_quick_form_holds():
    result = invariants(Options(quick=True, seed=2))
    assert len(result.claims) == 11
    assert [claim.name for claim in result.claims if not claim.holds] == []
    differences = dict(result.tables[0].rows)
    assert set(differences) >= {"none", "rotary", "alibi", "learned"}


def test_the_global_random_state_is_unchanged():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    invariants(Options(quick=True))
    assert torch.equal(torch.rand(2), expected)
