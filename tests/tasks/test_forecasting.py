"""Forecasting from a file to a run: defaults, no leak from the future, quantiles, comparison."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.api import compare, load, train_recipe
from regard.data.corpus import prepare, reopen
from regard.errors import UsageError, UserError
from regard.evaluation.forecasting import load_forecasts
from regard.planning import plan_recipe
from regard.recipe import override
from regard.tasks.forecasting import ForecastingConfig, levels
from regard.verify import verify

STEPS, SEASON = 400, 12
SMALL = ["train.steps=6", "train.eval_every=3", "train.batch_tokens=400", "train.device=cpu"]
WINDOW = {"horizon": 6, "lookback": 30}


def write(path, values, names=("load", "heat")):
    times = np.datetime64("2024-01-01T00", "h") + np.arange(len(values), dtype="m8[h]")
    rows = [
        ",".join([str(t), *("" if np.isnan(x) else f"{x:.4f}" for x in row)])
        for t, row in zip(times, values, strict=True)
    ]
    path.write_text("\n".join([f"time,{','.join(names)}", *rows]) + "\n")
    return path


def waves(steps=STEPS, seed=0):
    random = np.random.default_rng(seed)
    wave = np.sin(2 * np.pi * np.arange(steps) / SEASON)[:, None] * [5.0, 1.0] + [50.0, 3.0]
    return wave + 0.3 * random.normal(size=(steps, 2))


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "load.csv", waves())


def planned(file, model="nlinear", input=None, **tables):
    return plan_recipe(
        [file],
        assignments=SMALL,
        task={"name": "forecast", **tables.pop("task", {})},
        input={**WINDOW, **(input or {})},
        model={"name": model, **tables.pop("model", {})},
        **tables,
    )[0]


def test_a_table_of_times_and_numbers_is_forecast_and_the_defaults_say_why(file):
    recipe, lines = plan_recipe([file])
    assert recipe.task.name == "forecast" and recipe.input.name == "time-series"
    assert recipe.input.season == recipe.input.horizon == SEASON
    assert recipe.model.config.max_len == recipe.input.lookback
    assert "step 1 hour" in lines[0] and f"season of {SEASON} steps (by autocorr" in lines[0]
    assert (recipe.data.valid_fraction, recipe.data.test_fraction) == (0.1, 0.2)


@pytest.mark.parametrize("model", ["nlinear", "transformer", "ridge", "seasonal-naive", "decoder"])
def test_a_run_is_trained_measured_loaded_and_verified(file, tmp_path, model):
    recipe = planned(file, model)
    result = train_recipe(recipe, tmp_path / "run")
    test = result.splits["test"]
    assert {"mse_standardized", "skill", "coverage_80", "mae (load)"} <= test.keys()
    stored = load_forecasts(tmp_path / "run", ("load", "heat"))
    assert stored.records == round(0.2 * STEPS) - WINDOW["horizon"] + 1
    report = verify(tmp_path / "run")
    assert report.ok, [check for check in report.checks if not check.ok]
    names = {check.name for check in report.checks}
    assert {"batch = single", "causality by gradient", "metrics on record"} <= names


def test_a_resumed_run_is_verified_to_the_bit(file, tmp_path):
    train_recipe(planned(file), tmp_path / "run")
    checks = {check.name: check for check in verify(tmp_path / "run").checks}
    assert checks["resume bit-equality"].ok


def test_nothing_after_the_training_part_changes_what_is_learned(tmp_path):
    """A leak is planted: the future is a hundred times as large."""
    values = waves()
    future = values.copy()
    future[round(0.7 * STEPS) :] *= 100
    weights, encoders = [], []
    for name, series in (("now", values), ("later", future)):
        recipe = planned(write(tmp_path / f"{name}.csv", series), model="ridge")
        recipe = recipe.replace(data={"valid_fraction": 0.0, "test_fraction": 0.3})
        train_recipe(recipe, tmp_path / name)
        weights.append(load(tmp_path / name).model.state_dict())
        encoders.append(json.loads((tmp_path / name / "preprocessor_config.json").read_text()))
    assert encoders[0] == encoders[1]
    for key, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][key]), key


def test_a_scale_that_has_seen_the_future_would_be_caught(tmp_path):
    """The same with statistics of all steps: the encoder changes."""
    from regard.tokenizers.series import PlainSeries, Steps

    values = waves()
    future = values.copy()
    future[round(0.7 * STEPS) :] *= 100
    options = {"columns": ("load", "heat"), "lookback": 30, "horizon": 6}
    leaking = [
        Steps.train([PlainSeries(one, np.empty((STEPS, 0)))], **options) for one in (values, future)
    ]
    assert leaking[0].document() != leaking[1].document()


def test_borders_are_steps_or_times_and_the_rest_is_left_out(file, tmp_path):
    for borders in ("200,260,320", "2024-01-09 08:00,2024-01-11 20:00,2024-01-14 08:00"):
        folder = tmp_path / borders[:6]
        corpus = prepare(planned(file, input={"borders": borders}), folder, lambda line: None)
        assert [len(one.starts) for one in corpus.splits.values()] == [165, 55, 55]
        assert reopen(folder).test.records == 55
    with pytest.raises(UsageError, match="neither a number of steps nor a time"):
        prepare(planned(file, input={"borders": "a,b"}), tmp_path / "x", lambda line: None)


def test_quantiles_are_predicted_in_order(file, tmp_path):
    recipe = planned(file, task={"quantiles": "0.1,0.5,0.9"})
    train_recipe(recipe, tmp_path / "run")
    forecaster = load(tmp_path / "run")
    assert forecaster.model.config.quantiles == (0.1, 0.5, 0.9)
    rows = forecaster.forecast_file(file)
    assert all(row["low"] <= row["prediction"] <= row["high"] for row in rows)


@pytest.mark.parametrize("text", ["0.5,0.1", "0,0.5", "a", "0.5,1"])
def test_quantiles_that_do_not_rise_are_refused(text):
    with pytest.raises(ValueError, match="quantiles must"):
        ForecastingConfig(quantiles=text)


def test_levels_are_read_from_a_list():
    assert levels("0.1, 0.5,0.9") == (0.1, 0.5, 0.9) and levels("") == ()


def test_missing_values_and_gaps_do_not_reach_the_loss(tmp_path):
    values = waves()
    values[50:60, 0] = np.nan
    values[100:110] = np.nan
    file = write(tmp_path / "gaps.csv", values)
    result = train_recipe(planned(file), tmp_path / "run")
    assert np.isfinite(result.splits["test"]["mse_standardized"].value)


def test_too_short_a_series_names_what_to_lower(tmp_path):
    file = write(tmp_path / "short.csv", waves(40))
    recipe = planned(file)
    with pytest.raises(UserError, match=r"lower --lookback or --horizon"):
        prepare(recipe, tmp_path / "run", lambda line: None)


def test_rows_are_compared_on_the_same_windows(file, tmp_path, rows_here):
    result = compare(
        [file],
        tmp_path / "compare",
        models=["seasonal-naive", "ridge", "nlinear"],
        task="forecast",
        horizon=6,
        lookback=30,
        **override({}, SMALL),
    )
    rows = {row.model: row for row in result.comparison.rows}
    assert set(rows) == {"seasonal-naive", "ridge", "nlinear"}
    assert rows["ridge"].rank < rows["nlinear"].rank  # six steps teach little
    columns, _ = result.comparison.table()
    assert "MSE [95%]" in columns and "skill" in columns
    assert (tmp_path / "compare" / "compare.html").exists()


def test_a_table_that_does_not_look_like_series_is_read_as_one_if_asked(tmp_path):
    """`--task forecast --horizon 5` was told that there is no such option."""
    random = np.random.default_rng(0)
    times = np.datetime64("2024-01-01", "s") + random.integers(0, 10**7, 100).astype("m8[s]")
    rows = [f"{t},{i}" for i, t in enumerate(times)]
    (tmp_path / "shuffled.csv").write_text("\n".join(["t,v", *rows]) + "\n")
    with pytest.raises(UserError, match="not at equal steps"):
        plan_recipe(
            [tmp_path / "shuffled.csv"], task={"name": "forecast"}, options={"horizon": "5"}
        )


def test_the_horizon_alone_makes_a_table_without_times_a_series(tmp_path):
    file = tmp_path / "numbers.csv"
    file.write_text("load,price\n" + "\n".join(f"{i % 7},{i % 5}" for i in range(200)))
    for option, value in (("horizon", 5), ("lookback", 21)):
        model = {"name": "naive"}
        recipe, _ = plan_recipe(
            [file], options={option: str(value)}, data={"target": "load"}, model=model
        )
        assert recipe.task.name == "forecast" and getattr(recipe.input, option) == value
