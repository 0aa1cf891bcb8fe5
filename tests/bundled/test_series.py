"""The synthetic load: the same every time, with the seasons it was made of."""

from __future__ import annotations

import numpy as np

from regard.bundled.series import save_series
from regard.data.labelled import ColumnSelection
from regard.modalities.time_series.files import SeriesFiles
from regard.tokenizers.series import find_season


def test_the_same_seed_gives_the_same_table(tmp_path):
    one, two = (save_series(tmp_path / name, 500).read_text() for name in ("a.csv", "b.csv"))
    assert one == two != save_series(tmp_path / "c.csv", 500, seed=1).read_text()


def test_the_load_has_a_season_of_a_day_and_a_few_gaps(tmp_path):
    files = SeriesFiles([save_series(tmp_path / "load.csv")], ColumnSelection(targets=("load",)))
    (chunk,) = files.records()
    values = chunk.texts[0].values[:, 0]
    assert 0 < np.isnan(values).sum() < 0.01 * len(values)
    assert find_season([values]) in (24, 168)
