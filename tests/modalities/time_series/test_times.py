"""Times of series: parsing against datetimes written by hand or by Python, steps, clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from regard.errors import UsageError, UserError
from regard.modalities.time_series.times import (
    Step,
    find_daylight_saving,
    find_step,
    format_time,
    parse_step,
    parse_times,
)

HOUR, DAY = 3600 * 10**9, 86400 * 10**9
ONE_DAY = np.timedelta64(1, "D")


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, "M8[ns]")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2020-03-04", "2020-03-05 06:07"], ["2020-03-04", "2020-03-05T06:07"]),
        (["2020-03-04T05:06:07.25", "2020-03-04T05"], ["2020-03-04T05:06:07.25", "2020-03-04T05"]),
        (["2020-03-04T05:06:07Z"], ["2020-03-04T05:06:07"]),
        (["2020/3/4 5:06", "2020/12/31"], ["2020-03-04T05:06", "2020-12-31"]),
        (["2020-03", "2020-04"], ["2020-03", "2020-04"]),
        (["2020-Q1", "2020-Q4"], ["2020-01", "2020-10"]),
        (["Q2 2020"], ["2020-04"]),
        (["31.12.2019 23:30", "1.1.2020 00:00"], ["2019-12-31T23:30", "2020-01-01"]),
        (["03.04.2020", "04.05.2020"], ["2020-04-03", "2020-05-04"]),
        (["31.12.2019 24:00"], ["2020-01-01"]),
        (["13/01/68", "14/01/69"], ["2068-01-13", "1969-01-14"]),
        (["1/13/2020 12:00 AM", "1/13/2020 12:30 PM"], ["2020-01-13", "2020-01-13T12:30"]),
        (
            ["1 Jan 2020", "Feb 2020", "3 March 2020 04:05"],
            ["2020-01", "2020-02", "2020-03-03T04:05"],
        ),
        (["Jan 31, 2020", "February 1, 2020"], ["2020-01-31", "2020-02-01"]),
        (["Mon, 6 Jan 2020 07:00"], ["2020-01-06T07"]),
        (["1577836800", "1577836860"], ["2020-01-01", "2020-01-01T00:01"]),
        (["1577836800250"], ["2020-01-01T00:00:00.250"]),
        (["20191231", "20200101"], ["2019-12-31", "2020-01-01"]),
        (["201912", "202001"], ["2019-12", "2020-01"]),
    ],
)
def test_a_notation_is_read(cells, expected):
    times = parse_times(cells)
    assert not len(times.bad)
    np.testing.assert_array_equal(times.values, dates(*expected))


def test_years_and_numbers_of_steps_stay_integers():
    years, steps = parse_times(["1999", "2001"]), parse_times(["0", "1", "-2", "3.0"])
    assert years.notation == "years" and years.values.tolist() == [1999, 2001]
    assert steps.notation == "integers" and steps.values.tolist() == [0, 1, -2, 3]
    assert years.values.dtype == steps.values.dtype == np.int64


def test_cells_that_are_no_times_are_named_by_index():
    times = parse_times(["2020-01-01", "2020-02-30", "soon", "", " 2020-01-02 ", "today"])
    assert times.bad.tolist() == [1, 2, 3, 5]
    np.testing.assert_array_equal(times.values[[0, 4]], dates("2020-01-01", "2020-01-02"))
    assert parse_times(["one", "two"]).notation == ""
    assert len(parse_times([]).values) == 0


def test_numbers_with_points_are_no_dates():
    for cells in (["1.1850", "1.1903"], ["1850.1", "1850.12"], ["0.5", "0.25"]):
        assert parse_times(cells).notation == ""


def test_one_number_beyond_12_decides_the_order_of_the_whole_column():
    day_first = parse_times(["01/02/2020", "02/02/2020", "13/02/2020"])
    np.testing.assert_array_equal(day_first.values, dates("2020-02-01", "2020-02-02", "2020-02-13"))
    month_first = parse_times(["01/02/2020", "02/02/2020", "02/13/2020"])
    np.testing.assert_array_equal(
        month_first.values, dates("2020-01-02", "2020-02-02", "2020-02-13")
    )
    assert not day_first.remarks and not month_first.remarks


def test_without_a_number_beyond_12_the_regular_order_is_taken():
    months = [f"01/{1 + m % 12:02}/{2019 + m // 12}" for m in range(24)]  # months, day first
    times = parse_times(months)
    expected = np.arange("2019-01", "2021-01", dtype="M8[M]").astype("M8[ns]")
    np.testing.assert_array_equal(times.values, expected)
    swapped = [f"{1 + m % 12:02}/01/{2019 + m // 12}" for m in range(24)]
    np.testing.assert_array_equal(parse_times(swapped).values, expected)


def test_an_order_that_cannot_be_told_is_month_first_and_said():
    times = parse_times(["01/02/2020", "02/03/2020"])
    np.testing.assert_array_equal(times.values, dates("2020-01-02", "2020-02-03"))
    assert "month first" in times.remarks[0]


def test_offsets_are_converted_to_utc_as_python_does():
    zone = ZoneInfo("Europe/Berlin")
    moments = [datetime(2020, 10, 24, tzinfo=UTC) + timedelta(hours=i) for i in range(48)]
    times = parse_times([moment.astimezone(zone).isoformat() for moment in moments])
    expected = dates(*(moment.strftime("%Y-%m-%dT%H:%M") for moment in moments))
    np.testing.assert_array_equal(times.values, expected)
    assert "offset +01:00 and +02:00 (daylight saving" in times.remarks[0]
    assert "converted to UTC" in times.remarks[0]
    assert find_step(times.values).name == "1 hour"


def test_days_at_local_midnight_stay_days_across_daylight_saving():
    zone = ZoneInfo("Europe/Berlin")
    days = [datetime(2020, 3, 27, tzinfo=zone) + timedelta(days=i) for i in range(5)]
    times = parse_times([day.isoformat() for day in days])
    assert find_step(times.values).name == "1 day"
    assert "local" in times.remarks[0]


def test_a_million_cells_take_seconds():
    moments = np.datetime64("2000-01-01T00:00", "ns") + np.arange(100_000) * np.timedelta64(1, "m")
    cells = [text.replace("T", " ") for text in moments.astype("M8[s]").astype(str).tolist()]
    before = datetime.now(UTC)
    times = parse_times(cells)
    assert (datetime.now(UTC) - before).total_seconds() < 2  # a tenth; usually 0.1
    np.testing.assert_array_equal(times.values, moments)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (np.arange("2020-01-01", "2020-01-03", np.timedelta64(15, "m"), "M8[m]"), "15 minutes"),
        (np.arange("2020-01-01", "2020-01-03", dtype="M8[h]"), "1 hour"),
        (np.arange("2020-01-01", "2020-02-01", dtype="M8[D]"), "1 day"),
        (np.arange("2020-01-01", "2020-06-01", 7 * ONE_DAY, "M8[D]"), "1 week"),
        (np.arange("2020-01", "2022-01", dtype="M8[M]"), "1 month"),
        (np.arange("2020-02", "2022-02", dtype="M8[M]").astype("M8[D]") - ONE_DAY, "1 month"),
        (np.arange("2020-01", "2022-01", dtype="M8[M]").astype("M8[D]") + 14 * ONE_DAY, "1 month"),
        (np.arange("2020-01", "2022-01", np.timedelta64(3, "M"), "M8[M]"), "1 quarter"),
        (np.arange("2000", "2022", dtype="M8[Y]"), "1 year"),
        (np.busday_offset(np.datetime64("2020-01-01"), np.arange(30)), "1 business day"),
        (np.array(["2020-01-31", "2020-02-28", "2020-03-31", "2020-04-30"], "M8[D]"), "1 month"),
    ],
)
def test_the_step_is_found_its_grid_has_no_gaps_and_times_are_given_back(values, name):
    values = values.astype("M8[ns]")
    step = find_step(values)
    assert step.name == name
    assert step.index(values).tolist() == list(range(len(values)))
    assert step.fits(values)
    assert parse_step(step.name).name == name
    if name != "1 month" or len(values) > 4:  # the last weekday of February is not its last day
        np.testing.assert_array_equal(step.times(values[0], len(values)), values)
        np.testing.assert_array_equal(step.times(values[0], 2, skip=5), values[5:7])


def test_gaps_are_whole_multiples_of_the_step():
    days = np.busday_offset(np.datetime64("2020-01-01"), [0, 1, 2, 3, 4, 7, 8, 9, 10])
    assert find_step(days.astype("M8[ns]")).index(days.astype("M8[ns]")).tolist()[5] == 7
    hours = np.array([0, 1, 2, 3, 7, 8, 9]) * np.timedelta64(1, "h") + np.datetime64("2020", "ns")
    assert find_step(hours).index(hours).tolist() == [0, 1, 2, 3, 7, 8, 9]
    assert find_step(np.array([5, 10, 15, 25, 30])).name == "5 steps"
    assert find_step(np.array([1999, 2000, 2001]), unit="year").name == "1 year"


def test_irregular_times_are_refused_with_their_place_and_the_usual_differences():
    values = dates("2020-01-01T00", "2020-01-01T01", "2020-01-01T02", "2020-01-01T02:37")
    with pytest.raises(UserError) as error:
        find_step(values, locate=lambda i: f"data.csv:{i + 2}")
    message = str(error.value)
    assert message.startswith("data.csv:5: ") and "2020-01-01 02:37" in message
    assert "1 hour (67%)" in message and "37 minutes" in message and "input.step=1h" in message
    assert "\n" not in message and len(message) < 400


def test_one_time_has_no_step():
    with pytest.raises(UserError, match="two at least"):
        find_step(dates("2020-01-01"))


def test_the_last_day_of_a_month_is_followed_by_the_last_of_the_next():
    ends = dates("2019-11-30", "2019-12-31", "2020-01-31")
    step = find_step(ends)
    expected = dates("2020-01-31", "2020-02-29", "2020-03-31", "2020-04-30")
    np.testing.assert_array_equal(step.times(ends[-1], 4), expected)
    thirtieth = find_step(dates("2019-12-30", "2020-01-30", "2020-02-29", "2020-03-30"))
    np.testing.assert_array_equal(
        thirtieth.times(np.datetime64("2020-02-29"), 2), dates("2020-02-29", "2020-03-30")
    )


@pytest.mark.parametrize(
    ("text", "name", "periods"),
    [
        ("15min", "15 minutes", (96, 672)),
        ("1h", "1 hour", (24, 168)),
        ("1d", "1 day", (7, 365)),
        ("1w", "1 week", (52,)),
        ("1mo", "1 month", (12,)),
        ("1q", "1 quarter", (4,)),
        ("1y", "1 year", ()),
        ("1bd", "1 business day", (5,)),
        ("30s", "30 seconds", (2, 120, 2880)),
        ("2 hours", "2 hours", (12, 84)),
        ("D", "1 day", (7, 365)),
        ("10", "10 steps", ()),
    ],
)
def test_steps_are_parsed_and_have_seasons(text, name, periods):
    step = parse_step(text)
    assert step.name == name and step.periods == periods


@pytest.mark.parametrize("text", ["1m", "", "fortnight", "-1h", "0h", "1.5h"])
def test_an_unknown_step_is_a_usage_error(text):
    with pytest.raises(UsageError, match=r"input\.step"):
        parse_step(text)


def test_times_are_floored_to_the_beginning_of_their_step():
    value = dates("2020-05-20T13:47:11")  # a Wednesday
    expected = {
        "1h": "2020-05-20T13",
        "15min": "2020-05-20T13:45",
        "1d": "2020-05-20",
        "1w": "2020-05-18",
        "1mo": "2020-05-01",
        "1q": "2020-04-01",
        "1y": "2020-01-01",
    }
    for text, start in expected.items():
        np.testing.assert_array_equal(parse_step(text).floor(value), dates(start))


@pytest.mark.parametrize("minutes", [60, 15])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Sydney"])
def test_daylight_saving_is_recognised_in_local_times(zone, minutes):
    start = datetime(2020, 1, 1, tzinfo=UTC)
    count = 2 * 366 * 24 * 60 // minutes
    local = [
        (start + timedelta(minutes=minutes * i)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        for i in range(count)
    ]
    values, counts = np.unique(np.array(local, "M8[ns]"), return_counts=True)
    saving = find_daylight_saving(values, counts, Step(minutes * 60 * 10**9))
    assert len(saving.skipped) == 2  # one in each year
    assert len(saving.repeated) == 2 * 60 // minutes
    assert (counts[saving.repeated] == 2).all()


def test_other_gaps_and_repeats_are_no_daylight_saving():
    values = np.datetime64("2020-03-04", "ns") + np.arange(100) * np.timedelta64(1, "h")
    counts = np.ones(99, np.int64)
    counts[5] = 2
    for times, step in ((np.delete(values, 30), HOUR), (values[:99], DAY)):
        saving = find_daylight_saving(times, counts, Step(step))
        assert not len(saving.skipped) and not len(saving.repeated)
    counts = (values == np.datetime64("2020-03-08T04:00")) + 1  # a row was copied, on a Sunday
    assert not len(find_daylight_saving(values, counts, Step(HOUR)).repeated)


def test_times_are_shown_without_needless_zeros():
    assert format_time(np.datetime64("2020-01-02T00:00", "ns")) == "2020-01-02"
    assert format_time(np.datetime64("2020-01-02T03:00", "ns")) == "2020-01-02 03:00"
    assert format_time(np.datetime64("2020-01-02T03:04:05", "ns")) == "2020-01-02 03:04:05"
    assert format_time(7) == "7"
