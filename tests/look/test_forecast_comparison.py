"""The forecasts of all rows on the page of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from regard.api import train_recipe
from regard.evaluation.forecasting import load_forecasts
from regard.look.forecast_comparison import add_forecasts
from regard.look.page import Forecasts, Page
from regard.planning import plan_recipe

L, H, T = 30, 4, 240


@dataclass(frozen=True)
class Row:
    model: str
    runs: tuple
    predictions: object


@dataclass(frozen=True)
class Rows:
    rows: list
    split: str = "test"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    values = np.random.default_rng(0).normal(size=(T, 2)).cumsum(0) * [1.0, 100.0]
    days = np.datetime64("2024-02-01") + np.arange(T, dtype="m8[D]")
    rows = [f"{day},{a:.6f},{b:.6f}" for day, (a, b) in zip(days, values, strict=True)]
    (folder / "two.csv").write_text("\n".join(["day,a,b", *rows]) + "\n")
    for model in ("naive", "drift"):
        recipe, _ = plan_recipe(
            [folder / "two.csv"],
            options={"horizon": str(H)},
            input={"lookback": L},
            model={"name": model},
        )
        train_recipe(recipe, folder / model)
    rows = [
        Row(m, (folder / m,), load_forecasts(folder / m, ("a", "b"))) for m in ("naive", "drift")
    ]
    return folder, Rows(rows), values, days


def drawn(rows):
    page = Page("comparison")
    add_forecasts(page, rows)
    (component,) = page.components
    assert isinstance(component, Forecasts)
    return page, component


def test_history_truth_and_forecasts_are_those_of_the_file_at_their_times(data):
    _, rows, values, days = data
    _, chart = drawn(rows)
    history, truth, forecasts = (
        np.asarray(x) for x in (chart.history, chart.truth, chart.forecasts)
    )
    assert chart.names == ["naive", "drift"] and list(chart.targets) == ["a", "b"]
    assert len(truth) == round(0.2 * T) - H + 1 and history.shape[1] == 24
    for window in (0, 7, len(truth) - 1):
        times = chart.times[window].astype("M8[D]")
        first = int(np.flatnonzero(days == times[0])[0])
        assert (times == days[first : first + 24 + H]).all()
        seen = values[first : first + 24 + H]
        assert history[window] == pytest.approx(seen[:24], rel=1e-4, abs=1e-3)
        assert truth[window] == pytest.approx(seen[24:], rel=1e-4, abs=1e-3)
        assert forecasts[0, window] == pytest.approx(np.tile(seen[23], (H, 1)), rel=1e-4, abs=1e-3)
    assert (chart.times[-1][-1].astype("M8[D]") == days[-1]) and not chart.labels


def test_without_the_files_steps_are_numbered_and_it_is_said(data):
    folder, rows, _, _ = data
    (folder / "two.csv").rename(folder / "moved.csv")
    try:
        page, chart = drawn(rows)
    finally:
        (folder / "moved.csv").rename(folder / "two.csv")
    assert int(chart.times[-1][-1]) == T - 1
    assert "steps are numbered" in page.render()
