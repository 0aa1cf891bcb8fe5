"""A loaded forecaster: times, units and intervals of the future, covariates, measuring files."""

from __future__ import annotations

import numpy as np
import pytest

from regard.api import load, train_recipe
from regard.errors import UserError
from regard.pipelines import EvaluationRequest
from regard.planning import plan_recipe

L, H = 24, 5


def write(path, values, names, days=0):
    times = np.datetime64("2024-03-01", "D") + (np.arange(len(values)) + days).astype("m8[D]")
    rows = [
        ",".join([str(t), *("" if np.isnan(x) else f"{x:.5f}" for x in row)])
        for t, row in zip(times, values, strict=True)
    ]
    path.write_text("\n".join([f"day,{','.join(names)}", *rows]) + "\n")
    return path


def week(steps, start=0):
    return 100 + 10 * np.sin(2 * np.pi * (start + np.arange(steps)) / 7)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecaster")
    values = week(300)[:, None] + 0.1 * np.random.default_rng(0).normal(size=(300, 1))
    file = write(folder / "sales.csv", values, ["sales"])
    recipe, _ = plan_recipe(
        [file],
        task={"name": "forecast"},
        input={"horizon": H, "lookback": L},
        model={"name": "ridge"},
    )
    train_recipe(recipe, folder / "run")
    return folder


def test_the_future_has_the_times_and_the_unit_of_the_file(trained):
    rows = load(trained / "run").forecast_file(trained / "sales.csv")
    assert [row["time"] for row in rows] == [f"2024-12-{26 + i}" for i in range(H)]
    expected = week(H, start=300)
    assert [row["prediction"] for row in rows] == pytest.approx(expected, abs=0.5)
    assert all(row["low"] < row["prediction"] < row["high"] for row in rows)
    assert all(row["high"] - row["low"] < 2 for row in rows)


def test_rows_after_the_last_target_do_not_move_the_forecast(trained, tmp_path):
    values = np.concatenate([week(300), np.full(3, np.nan)])[:, None]
    file = write(tmp_path / "later.csv", values, ["sales"])
    rows = load(trained / "run").forecast_file(file)
    assert rows[0]["time"] == "2024-12-26"


def test_a_series_shorter_than_the_look_back_is_forecast_from_what_there_is(trained, tmp_path):
    file = write(tmp_path / "short.csv", week(15)[:, None], ["sales"])
    rows = load(trained / "run").forecast_file(file)
    assert len(rows) == H and all(np.isfinite(row["prediction"]) for row in rows)


def test_a_file_of_other_data_is_measured(trained, tmp_path):
    file = write(tmp_path / "next.csv", week(80, start=21)[:, None], ["sales"])
    evaluation = load(trained / "run").evaluate(EvaluationRequest(files=[file]))
    assert evaluation.document["windows"] == 80 - L - H + 1
    assert evaluation.document["metrics"]["mae"]["value"] < 0.5


def test_the_held_out_windows_give_the_metrics_on_record(trained):
    forecaster = load(trained / "run")
    metrics = forecaster.evaluate(EvaluationRequest()).document["metrics"]
    stored = forecaster.run.metadata["metrics"]["test"]
    assert metrics["mse_standardized"] == pytest.approx(stored["mse_standardized"], rel=1e-6)


def test_covariates_must_be_known_for_the_horizon(tmp_path):
    holiday = (np.arange(320) % 10 == 0).astype(float)
    values = np.stack([week(320) + 20 * holiday, holiday], axis=1)
    file = write(tmp_path / "with.csv", values[:300], ["sales", "holiday"])
    recipe, _ = plan_recipe(
        [file],
        task={"name": "forecast"},
        data={"target": "sales"},
        input={"horizon": H, "lookback": L, "known": "holiday"},
        model={"name": "ridge"},
    )
    train_recipe(recipe, tmp_path / "run")
    forecaster = load(tmp_path / "run")
    with pytest.raises(UserError, match=r"holiday must be known for the 5 steps"):
        forecaster.forecast_file(file)
    values[300:, 0] = np.nan
    rows = forecaster.forecast_file(write(tmp_path / "all.csv", values, ["sales", "holiday"]))
    errors = [row["prediction"] - (week(320) + 20 * holiday)[300 + i] for i, row in enumerate(rows)]
    assert np.abs(errors).max() < 3  # day 300 is a holiday


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """Series that rise in the north and fall in the south, hidden by noise."""
    folder = tmp_path_factory.mktemp("shops")
    random, lines = np.random.default_rng(0), ["day,shop,region,sales"]
    for shop in range(6):
        region, slope = (("north", 0.5), ("south", -0.5))[shop % 2]
        sales = slope * np.arange(120) + 3 * random.normal(size=120)
        lines += [f"{day},{shop},{region},{x:.3f}" for day, x in enumerate(sales)]
    (folder / "shops.csv").write_text("\n".join(lines) + "\n")
    for model, static in (("ridge", ""), ("ridge", "region"), ("boosting", "region")):
        recipe, _ = plan_recipe(
            [folder / "shops.csv"],
            data={"target": "sales"},
            task={"name": "forecast"},
            input={"horizon": 8, "lookback": 8, "time": "day", "id": "shop", "static": static},
            model={"name": model},
        )
        train_recipe(recipe, folder / f"{model}{static}")
    return folder


def test_static_columns_tell_what_a_look_back_hides(shops):
    names = ("ridge", "ridgeregion", "boostingregion")
    without, ridge, boosting = (load(shops / name) for name in names)
    request = EvaluationRequest()
    errors = [
        one.evaluate(request).reports["test"].metrics()["rmse"].value for one in (without, ridge)
    ]
    assert errors[1] < 0.9 * errors[0]
    assert boosting.tokenizer.columns == ("sales", "region=north", "region=south")
    assert boosting.model.config.n_known == 2


def test_static_columns_need_no_future_rows_and_unseen_categories_are_noted(shops, tmp_path):
    text = (shops / "shops.csv").read_text().splitlines()
    rows = [line for line in text[1:] if line.split(",")[1] == "0"][:10]
    file = tmp_path / "new.csv"
    file.write_text("\n".join([text[0], *rows]) + "\n")
    forecaster = load(shops / "ridgeregion")
    assert {row["note"] for row in forecaster.forecast_file(file)} == {""}
    north = [row["prediction"] for row in forecaster.forecast_file(file)]
    file.write_text(file.read_text().replace("north", "south"))
    south = [row["prediction"] for row in forecaster.forecast_file(file)]
    assert north[-1] - south[-1] > 2
    file.write_text(file.read_text().replace("south", "west"))
    west = forecaster.forecast_file(file)
    assert {row["note"] for row in west} == {"training has no region 'west'"}
    assert south[-1] < west[-1]["prediction"] < north[-1]
