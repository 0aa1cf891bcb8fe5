"""The page about a forecaster: its numbers are those of the run."""

from __future__ import annotations

import numpy as np
import pytest

from regard.api import load, train_recipe
from regard.evaluation.forecasting import load_forecasts
from regard.look.forecast_page import answer_forecast, describe_window, forecast_page
from regard.look.page import Answer, AttentionMaps, Lines, Table
from regard.look.records import signed
from regard.planning import plan_recipe
from regard.tasks import LookRequest

L, H = 32, 6


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    steps = np.arange(260)
    wave = np.sin(2 * np.pi * steps / 8)[:, None] * [2.0, 5.0] + [1.0, 9.0]
    rows = [f"{i},{a:.4f},{b:.4f}" for i, (a, b) in enumerate(wave)]
    (folder / "two.csv").write_text("\n".join(["step,a,b", *rows]) + "\n")
    recipe, _ = plan_recipe(
        [folder / "two.csv"],
        assignments=["train.steps=4", "train.batch_tokens=400", "train.device=cpu"],
        task={"name": "forecast"},
        input={"horizon": H, "lookback": L, "time": "step"},
        model={"name": "transformer", "n_layers": 2, "d_model": 16},
    )
    train_recipe(recipe, folder / "run")
    return folder


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def titles(page):
    return [section.title for section in page.sections]


def test_the_page_has_every_part_and_is_written(run, tmp_path):
    page = forecast_page(load(run / "run"), LookRequest())
    expected = ["Forecast", "What the forecast rests on", "Attention between patches"]
    rest = ["Errors by step", "The worst windows", "Season", "The model"]
    assert titles(page) == [*expected, *rest]
    assert page.write(tmp_path / "page.html").exists()
    (maps,) = of(page, AttentionMaps)
    assert np.asarray(maps.weights).sum(-1) == pytest.approx(1, abs=1e-5)
    changes = next(lines for lines in of(page, Lines) if "without a piece" in lines.title)
    (_, steps, values), (answer,) = changes.series[0], of(page, Answer)
    assert len(values) == L and min(values) >= 0 and steps[-1] == 0
    assert answer.label == "forecast of a, the next step" and "off by" in answer.notes[1]
    assert len(of(page, Table)) == 1


def test_the_answer_is_the_forecast_with_its_error_in_the_unit_of_the_data(run):
    forecaster = load(run / "run")
    _, windows, _ = forecaster.windows()
    window = windows.take(np.array([windows.records - 1]))
    forecast, _, truth = describe_window(forecaster, window)
    answer = answer_forecast(forecast, 1, truth[:, 1])
    error = np.abs(forecast.point[:, 1] - truth[:, 1]).mean()
    assert f"off by {signed(error)} on average" in answer.notes[1]
    low, high = forecast.fan[:, 1, 0], forecast.fan[:, 1, -1]
    inside = sum(a <= x <= b for a, x, b in zip(low, truth[:, 1], high, strict=True))
    assert f"{inside} of the {H} known steps" in answer.notes[1]
    assert answer.headline == signed(forecast.point[0, 1])


def test_history_truth_and_forecast_are_in_the_unit_of_the_data(run):
    forecaster = load(run / "run")
    _, windows, _ = forecaster.windows()
    window = windows.take(np.array([windows.records - 1]))
    forecast, history, truth = describe_window(forecaster, window)
    steps = np.arange(260)
    b = 5 * np.sin(2 * np.pi * steps / 8) + 9
    assert truth[:, 1] == pytest.approx(b[-H:], abs=1e-3)
    assert history[-1, 1] == pytest.approx(b[-H - 1], abs=1e-3)
    assert (forecast.fan[..., 0] <= forecast.fan[..., -1]).all()


def test_errors_by_step_are_those_of_the_run(run):
    page = forecast_page(load(run / "run"), LookRequest())
    chart = next(c for c in of(page, Lines) if c.title == "Error by step")
    stored = load_forecasts(run / "run", ("a", "b"))
    name, _, values = chart.series[0]
    assert name == "RMSE"
    expected = np.sqrt(stored.by_step[:, 1] / stored.by_step[:, 0])
    assert values == pytest.approx(expected.tolist())


def test_a_file_is_continued(run):
    page = forecast_page(load(run / "run"), LookRequest(text=str(run / "two.csv"), target="b"))
    chart = of(page, Lines)[0]
    assert chart.title == "b" and [name for name, *_ in chart.series] == ["past", "forecast"]
