"""`lab dimensions`: the claims in the quick form, the elbow against a known curve."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UserError
from regard.lab.dimensions import SMALL, dimensions, find_elbow, gain_share, generate
from regard.lab.experiment import Options

pytest.importorskip("numba")


@pytest.mark.slow
def test_every_claim_of_the_quick_form_holds():
    result = dimensions(Options(quick=True))
    assert len(result.claims) == 4
    assert [claim.name for claim in result.claims if not claim.holds] == []
    assert [row[0] for row in result.tables[0].rows] == list(SMALL.widths)


def test_the_elbow_is_where_a_curve_bends():
    falling = {1: 3.0, 2: 2.5, 4: 2.0, 8: 1.0, 16: 0.98, 32: 0.97, 64: 0.97}
    assert find_elbow(falling) == 8
    assert gain_share({1: 3.0, 2: 2.0, 4: 1.0}, 2) == pytest.approx(0.5)
    assert gain_share({1: 1.0, 2: 2.0}, 2) == 1.0  # there is nothing to gain


def test_the_generated_text_depends_on_its_seed_alone():
    assert generate(5, 1) == generate(5, 1) != generate(5, 2)
    assert all(len(line.split()) == 12 for line in generate(5, 1))


def test_a_users_file_has_one_claim_and_a_short_one_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b\nc d\n")
    with pytest.raises(UserError, match="2 lines with words; 20 are needed at least"):
        dimensions(Options(quick=True, file=path))
    path.write_text("\n".join(generate(300, 0)) + "\n")
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    result = dimensions(Options(quick=True, file=path))
    assert torch.equal(torch.rand(2), expected)
    assert [claim.name for claim in result.claims] == ["30 numbers suffice"]
    assert "text.txt" in result.figures[0].title
