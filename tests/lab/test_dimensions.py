"""`lab dimensions`: the claims for real in the quick form, the elbow against a drawn curve."""

from __future__ import annotations

import pytest

from regard.errors import UserError
from regard.lab.dimensions import SMALL, dimensions, elbow, gained, made_up
from regard.lab.result import Options

pytest.importorskip("numba")


@pytest.mark.slow
def test_every_claim_of_the_quick_form_holds():
    result = dimensions(Options(quick=True))
    assert len(result.claims) == 4
    assert [claim.name for claim in result.claims if not claim.holds] == []
    assert [row[0] for row in result.tables[0].rows] == list(SMALL.widths)


def test_the_elbow_is_where_a_drawn_curve_bends():
    falling = {1: [3.0], 2: [2.5], 4: [2.0], 8: [1.0], 16: [0.98], 32: [0.97], 64: [0.97]}
    assert elbow(falling) == 8
    assert gained({1: 3.0, 2: 2.0, 4: 1.0}, 2) == pytest.approx(0.5)
    assert gained({1: 1.0, 2: 2.0}, 2) == 1.0  # nothing to gain: all of it


def test_the_made_up_text_repeats_by_its_seed():
    assert made_up(5, 1) == made_up(5, 1) != made_up(5, 2)
    assert all(len(line.split()) == 12 for line in made_up(5, 1))


def test_a_users_own_file_is_read_and_a_short_one_refused(tmp_path):
    (tmp_path / "short.txt").write_text("a b\nc d\n")
    with pytest.raises(UserError, match="2 lines with words"):
        dimensions(Options(quick=True, file=tmp_path / "short.txt"))
