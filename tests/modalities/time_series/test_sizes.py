"""Sizes of models by the number and length of series."""

from types import SimpleNamespace

import numpy as np
import pytest

from regard.errors import UserError
from regard.modalities.time_series.sizes import SeriesSizes, size_series_model


def chunk(*items):
    return SimpleNamespace(texts=list(items))


def test_sizes_count_lengths_columns_and_what_is_missing():
    gap = np.zeros((4, 2))
    gap[1] = np.nan
    facts = SeriesSizes.of([chunk(gap, np.zeros((9, 2))), chunk(np.zeros((6, 2)))])
    assert (facts.count, facts.shortest, facts.longest, facts.channels) == (3, 4, 9, 2)
    assert facts.missing == pytest.approx(2 / 38)
    with pytest.raises(UserError, match="cannot be mixed"):
        SeriesSizes.of([chunk(gap, np.zeros((3, 1)))])


def test_settings_that_are_given_are_kept():
    tables = {"task": {"name": "label"}, "input": {"patch": 5}, "model": {"d_model": 32}}
    tables |= {"train": {}}
    lines = size_series_model(tables, SeriesSizes(200, 50, 100, 1, 0.0), "csv", "as asked")
    assert tables["model"]["max_len"] == 21 and tables["model"]["d_model"] == 32
    assert "patches of 5 steps (as asked)" in lines[0] and "as asked" in lines[1]
