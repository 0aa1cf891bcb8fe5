"""The modality of time series: what it recognizes, how it cuts, what it reports."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data import Roles
from regard.data.sources import DataSource
from regard.data.task_inference import infer_task
from regard.errors import UsageError
from regard.modalities.time_series import TimeSeries, TimeSeriesConfig
from regard.recipe import DataRecipe

ROLES = Roles(input=True)


@pytest.fixture
def file(tmp_path):
    steps = np.arange(120)
    times = np.datetime64("2021-01-01", "D") + steps.astype("m8[D]")
    rows = [
        f"{t},{np.sin(2 * np.pi * i / 7):.4f},{i}"
        for t, i in zip(times, steps.tolist(), strict=True)
    ]
    path = tmp_path / "sales.csv"
    path.write_text("\n".join(["day,shop,web", *rows]) + "\n")
    return path


def source(file, data=None, **config):
    recipe = DataRecipe(train=(str(file),), valid_fraction=0.1, test_fraction=0.2, **(data or {}))
    return DataSource(recipe, ROLES, TimeSeries(TimeSeriesConfig(**config)))


def parts(file, **config):
    data = config.pop("data", None)
    return [(c.split, len(c.texts[0])) for c in source(file, data, **config).chunks()]


def test_a_table_of_times_and_numbers_is_recognized(file):
    assert TimeSeries.recognize([file])
    inferred = infer_task(DataRecipe(train=(str(file),)))
    assert inferred.task == "forecast" and "'day'" in inferred.why


def test_a_table_of_texts_is_not(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = [f"a good film number {i},{i % 2}" for i in range(40)]
    path.write_text("\n".join(["review,stars", *rows]) + "\n")
    assert not TimeSeries.recognize([path])
    assert infer_task(DataRecipe(train=(str(path),), target="stars")).task == "label"


def test_the_end_of_every_series_is_held_out(file):
    assert parts(file) == [(0, 84), (1, 12), (2, 24)]
    assert parts(file, data={"train_fraction": 0.5}) == [(0, 42), (1, 12), (2, 24)]


def test_parts_begin_where_the_part_before_ends(file):
    chunks = list(source(file).chunks())
    begins = [str(chunk.texts[0].start)[:10] for chunk in chunks]
    assert begins == ["2021-01-01", "2021-03-26", "2021-04-07"]
    web = np.concatenate([chunk.texts[0].values[:, 1] for chunk in chunks])
    assert web.tolist() == list(range(120))


@pytest.mark.parametrize(
    ("borders", "lengths"),
    [
        ("60,90", [(0, 60), (1, 30), (2, 30)]),
        ("60,90,100", [(0, 60), (1, 30), (2, 10)]),
        ("2021-02-01,2021-03-01,2021-04-01", [(0, 31), (1, 28), (2, 31)]),
    ],
)
def test_borders_are_steps_or_times(file, borders, lengths):
    assert parts(file, borders=borders) == lengths


@pytest.mark.parametrize("borders", ["90,60", "60", "0,5,9"])
def test_borders_that_do_not_rise_are_refused(file, borders):
    with pytest.raises(UsageError, match=r"input\.borders must"):
        parts(file, borders=borders)


def test_the_report_names_step_season_and_columns(file):
    report = TimeSeries().report(source(file), "asked")
    rows = dict(report.rows())
    assert rows["step"] == "1 day" and rows["season"].startswith("7 steps")
    assert rows["web"].startswith("mean 59.5")
    document = report.to_json()
    assert document["symbols"] == 120 and document["suggestion"]["task"] == "forecast"


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="horizon must be from 0"):
        TimeSeriesConfig(horizon=-1)
