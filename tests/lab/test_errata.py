"""The errata: both halves of every statement, for several seeds, and formulas by hand."""

from __future__ import annotations

import math

import pytest
import torch

from regard.lab.errata import errata, norm_deviations, relative, zipf
from regard.lab.experiment import Options
from regard.lectures import load_errata


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_claim_holds(seed):
    result = errata(Options(quick=True, seed=seed))
    assert [claim.name for claim in result.claims if not claim.holds] == []
    assert len(result.claims) == 22


def test_the_table_has_all_statements():
    (table,) = errata(Options(quick=True)).tables
    assert [row[0] for row in table.rows] == list(load_errata())


def test_deviations_after_the_norm_against_the_formulas():
    inside, outside = norm_deviations(0.01)
    assert inside == pytest.approx(0.01 / math.sqrt(1e-4 + 1e-5), abs=1e-9)
    assert outside == pytest.approx(0.01 / (0.01 + 1e-5), abs=1e-9)


def test_zipf_and_relative_differences_by_hand():
    assert zipf().sum() == pytest.approx(1) and zipf()[0, 0] == pytest.approx(2 * zipf()[0, 1])
    assert relative(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 4.0])) == 0.25
