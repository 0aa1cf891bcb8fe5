"""Steps of series: standardized with the training part alone, and a season by autocorrelation."""

from __future__ import annotations

import json

import numpy as np
import pytest

from regard.errors import UserError
from regard.tokenizers import load
from regard.tokenizers.series import (
    MOST_CATEGORIES,
    PlainSeries,
    StaticColumn,
    Steps,
    autocorrelation,
    find_season,
)


def series(values, known=None):
    values = np.asarray(values, float)
    return PlainSeries(values, np.empty((len(values), 0)) if known is None else known)


def encoder(values, **options):
    options = {"lookback": 4, "horizon": 2, "columns": ("a", "b")} | options
    return Steps.train([series(values)], **options)


def test_columns_have_mean_0_and_deviation_1_without_the_missing_ones():
    values = np.array([[1.0, 5], [3, 5], [np.nan, 5], [5, 5]])
    steps = encoder(values)
    encoded = steps.encode(series(values))
    assert encoded.dtype == np.float32 and np.isnan(encoded[2, 0])
    assert np.nanmean(encoded[:, 0]) == pytest.approx(0, abs=1e-6)
    assert np.nanstd(encoded[:, 0]) == pytest.approx(1, abs=1e-6)
    assert (encoded[:, 1] == 0).all()  # a constant column has no deviation to divide by
    assert steps.restore(encoded) == pytest.approx(values, nan_ok=True, abs=1e-5)


def shop(region, size, steps=6):
    made = series(np.arange(2.0 * steps).reshape(steps, 2), np.ones((steps, 1)))
    made.static = (region, size)
    return made


def test_static_cells_are_known_columns_numbers_or_one_for_each_category():
    shops = [shop("north", "10"), shop("south", "30"), shop("north", "20")]
    steps = Steps.train(
        shops,
        lookback=4,
        horizon=2,
        columns=("a", "b", "price"),
        n_known=1,
        static=("region", "size"),
    )
    assert steps.columns[3:] == ("region=north", "region=south", "size")
    assert steps.n_known == steps.model_config["n_known"] == 4 and steps.n_channels == 2
    encoded = steps.encode(shop("south", "30"))
    sizes = np.array([10.0, 30, 20])
    row = [0, 1, (30 - sizes.mean()) / sizes.std()]
    assert encoded[:, 3:] == pytest.approx(np.tile(row, (6, 1)), abs=1e-6)
    assert not steps.unknown_static(shop("south", "35"))
    assert steps.round_trip(shop("north", "20"))


def test_an_unseen_category_is_all_zeros_and_it_is_said(tmp_path):
    steps = Steps.train(
        [shop("north", "10"), shop("south", "30")],
        lookback=4,
        horizon=2,
        columns=("a", "b", "price"),
        n_known=1,
        static=("region", "size"),
    )
    steps.save(tmp_path / steps.file)
    again = load(tmp_path / "tokenizer.json")
    encoded = again.encode(shop("west", ""))
    assert (encoded[:, 3:5] == 0).all() and np.isnan(encoded[:, 5]).all()
    assert again.unknown_static(shop("west", "")) == "training has no region 'west', no size ''"


def test_a_period_of_the_calendar_is_taken_if_noise_moved_the_peak():
    """Of quarters of an hour with a daily wave, the highest peak was at 94 steps instead of 96."""
    random = np.random.default_rng(3)
    wave = np.sin(2 * np.pi * np.arange(3000) / 96)
    moved = [wave + 0.2 * random.normal(size=3000) for _ in range(20)]
    peaks = {find_season([one]) for one in moved}
    assert len(peaks) > 1 and all(find_season([one], (96, 672)) == 96 for one in moved)
    assert find_season([np.sin(2 * np.pi * np.arange(900) / 30)], (96, 24)) == 30


def test_only_the_most_frequent_categories_get_a_column():
    cells = [f"{i}th" for i in range(200)] + ["150th"]
    column = StaticColumn.learn("shop", cells)
    assert len(column.categories) == MOST_CATEGORIES and column.knows("150th")
    assert not column.knows("199th") and sum(column.encode("199th")) == 0


@pytest.mark.parametrize("season", [7, 24])
def test_the_season_is_the_lag_at_which_the_series_repeats(season):
    random = np.random.default_rng(0)
    steps = np.arange(40 * season)
    wave = np.sin(2 * np.pi * steps / season) + 0.3 * random.normal(size=len(steps))
    assert find_season([wave + 0.05 * steps]) == season  # around its trend
    assert find_season([random.normal(size=500)]) == 0


def test_the_autocorrelation_is_that_of_its_definition():
    random = np.random.default_rng(1)
    values = random.normal(size=60).cumsum()
    steps = np.arange(60)
    residual = values - np.polynomial.Polynomial.fit(steps, values, 1)(steps)
    expected = [(residual[k:] * residual[: 60 - k]).mean() for k in range(21)]
    assert autocorrelation(values) == pytest.approx(np.array(expected) / expected[0])


def test_it_is_saved_and_loaded_with_what_models_must_know(tmp_path):
    steps = encoder(np.random.default_rng(0).normal(size=(50, 2)), season=12)
    steps.save(tmp_path / steps.file)
    again = load(tmp_path / "tokenizer.json")
    assert again.equals(steps) and again.document() == steps.document()
    assert again.model_config == {"horizon": 2, "n_channels": 2, "n_known": 0, "season": 12}
    for item in steps.sample_items(2):
        assert again.round_trip(item) and again.record_round_trip(again.encode(item))


@pytest.mark.parametrize(
    "change", [{"deviation": [1.0, 0.0]}, {"mean": [1.0]}, {"horizon": 0}, {"n_known": 2}]
)
def test_a_damaged_file_is_one_line(tmp_path, change):
    steps = encoder(np.ones((5, 2)))
    path = tmp_path / steps.file
    path.write_text(json.dumps(steps.document() | change))
    with pytest.raises(UserError, match="is damaged"):
        load(tmp_path / "tokenizer.json")


def test_a_series_of_other_columns_is_refused():
    with pytest.raises(UserError, match=r"must have 2 columns \(a, b\), got 1"):
        encoder(np.ones((5, 2))).encode(series(np.ones((5, 1))))


def test_a_line_and_a_constant_have_no_season():
    """Rounding was taken for a pattern."""
    steps = np.arange(300.0)
    noise = np.random.default_rng(2).uniform(size=300)
    for column in (np.full(300, 5.0), 0.1 * steps + 3):
        assert find_season([column]) == 0 == find_season([column, noise])
