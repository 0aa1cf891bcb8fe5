"""Figures of components about records."""

import numpy as np
import pytest

from regard.look import record_figures
from regard.look.figures import DRAWINGS, save_all
from regard.look.page import Answer, Confusion, MoleculeMaps, ValueRange

pytest.importorskip("matplotlib")


def test_each_component_is_a_figure(tmp_path):
    assert DRAWINGS[Confusion] is record_figures.draw_confusion
    shown = [
        Answer(headline="a", options=[("a", 0.75), ("b", 0.25)], predicted=[0]),
        Confusion(counts=[[8, 2], [1, 9]], classes=["a", "b"]),
        ValueRange(edges=[0, 1, 2], counts=[3, 4], value=0.5, low=0.1, high=0.9, truth=1.5),
        MoleculeMaps(
            maps=np.array([[[1.0, np.nan]]]),
            names=["left out"],
            scale="diverging",
            paths=[("M 1,1 L 9,9", False, 2.0), ("M 1,1 Q 2,3 4,4 C 1,2 3,4 5,6 Z", True, 0.0)],
            size=(10.0, 10.0),
            atoms=[("C", 1.0, 1.0), ("O", 9.0, 9.0)],
        ),
    ]
    paths = save_all(shown, tmp_path / "figures", "svg")
    assert len(paths) == 4 and all(path.stat().st_size > 4_000 for path in paths)
