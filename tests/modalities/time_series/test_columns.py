"""Columns of tables of series: headers, times, ids, numbers, and the options that name them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from regard.data.formats import SkippedRecords
from regard.data.targets import Notation
from regard.errors import UsageError, UserError
from regard.modalities.time_series.columns import (
    ColumnRoles,
    detect_format,
    find_id,
    find_time,
    is_free_text,
    open_table,
    read_numbers,
)

PATH = Path("a.csv")
DAYS = [f"2020-01-0{i}" for i in range(1, 7)]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "line", "format"),
    [
        ("a.csv", "x", "csv"),
        ("a.parquet", "", "parquet"),
        ("a.npy", "", "npy"),
        ("a.txt", "1;2,5", "csv"),
        ("a.txt", "1\t2", "tsv"),
        ("a.txt", "words only", ""),
    ],
)
def test_the_format_is_detected_by_name_or_delimiter(tmp_path, name, line, format):
    assert detect_format(write(tmp_path / name, line, line, line)) == format


@pytest.mark.parametrize(
    ("lines", "names", "first"),
    [
        (["t,y", "2020-01-01,1", "2020-01-02,2"], ("t", "y"), "2020-01-01"),
        (["2020-01-01,1", "2020-01-02,2"], ("1", "2"), "2020-01-01"),
        ([" t ,", "2020-01-01,1", "2020-01-02,2"], ("t", "2"), "2020-01-01"),
        ([",0,1", "0,5,6", "1,7,8"], ("column 1", "0", "1"), "0"),
        (["t;y", "01.02.2020;1,5", "02.02.2020;2,5"], ("t", "y"), "01.02.2020"),
    ],
)
def test_a_header_names_the_columns_and_is_no_row(tmp_path, lines, names, first):
    table = open_table(write(tmp_path / "a.csv", *lines), "csv")
    assert table.names == names
    assert table.sample()[names[0]][0] == first
    ((cells, numbers),) = table.batches(names[::-1], SkippedRecords())
    assert cells[-1][0] == first and len(cells) == len(names)
    assert numbers == list(range(1 + table.header, len(lines) + 1))


def test_a_wanted_name_makes_a_header_of_texts(tmp_path):
    path = write(tmp_path / "a.csv", "a,b", "c,d")
    assert open_table(path, "csv").names == ("1", "2")
    assert open_table(path, "csv", wanted=["b"]).names == ("a", "b")


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(UserError, match="two columns are called 'y'"):
        open_table(write(tmp_path / "a.csv", "t,y, y", "2020-01-01,1,2", "2020-01-02,1,2"), "csv")


def test_times_are_dates_first_and_else_integers_that_count():
    numbers = ["3", "1", "4", "1", "5", "9"]
    counts = [str(i) for i in range(6)]
    assert find_time({"n": counts, "d": DAYS, "y": numbers}) == "d"
    assert find_time({"n": counts, "y": numbers}) == "n"
    assert find_time({"n": counts, "y": numbers}, strict=True) == ""
    assert find_time({"step": counts, "y": numbers}, strict=True) == "step"
    assert find_time({"y": numbers, "n": counts}) == ""
    assert find_time({"n": counts}) == ""  # nothing would be left to forecast
    assert find_time({"d": DAYS, "y": numbers}, taken=["d"]) == ""


def test_ids_are_short_texts_in_runs_or_where_times_repeat():
    runs = {"d": DAYS, "id": list("aaabbb")}
    assert find_id(runs, DAYS, ["d"], PATH) == "id"
    assert find_id({"d": DAYS, "id": list("ababab")}, DAYS, ["d"], PATH) == ""
    repeated = [day for day in DAYS[:3] for _ in range(2)]
    mixed = {"d": repeated, "id": list("ababab")}
    assert find_id(mixed, repeated, ["d"], PATH) == "id"
    with pytest.raises(UsageError, match="one of id, other"):
        find_id({**mixed, "other": list("xyxyxy")}, repeated, ["d"], PATH)


def test_free_text_is_mostly_distinct():
    assert is_free_text(["a good film", "a bad film", "so so"])
    assert not is_free_text(["sun", "rain", "sun", "rain"])
    assert not is_free_text(["north", "south", "west"], repeated=True)
    assert is_free_text(["it was a good film", "it was bad and long"], repeated=True)


@pytest.mark.parametrize(
    ("notation", "cells", "expected", "damaged"),
    [
        (Notation(), ["1.5", " 2 ", "", "NA"], [1.5, 2, math.nan, math.nan], []),
        (Notation(), ["1.5", "inf", "x"], [1.5, math.nan, math.nan], [1, 2]),
        (Notation(","), ["1,5", "2", ""], [1.5, 2, math.nan], []),
        (Notation(","), ["1,5", "2.5"], [1.5, math.nan], [1]),
        (Notation(",", "."), ["1.234,5", "NA"], [1234.5, math.nan], []),
    ],
)
def test_numbers_are_read_in_the_notation_of_their_column(notation, cells, expected, damaged):
    values, bad = read_numbers(cells, notation, {"": "nan", "NA": "nan"})
    assert values.tolist() == pytest.approx(expected, nan_ok=True) and bad == damaged


def test_roles_are_resolved_by_name_or_number_and_the_others_inferred():
    columns = {"d": DAYS, "k": list("123456"), "y": list("654321"), "word": list("xyxyxy")}
    roles = ColumnRoles(known=("2",)).resolve(list(columns), PATH).infer(columns, PATH)
    assert roles == ColumnRoles(time=("d",), targets=("y",), known=("k",))
    assert roles.all == ("d", "y", "k") and roles.numbers == ("y", "k")
    with pytest.raises(UsageError, match="names a column twice"):
        ColumnRoles(known=("2", "k")).resolve(list(columns), PATH)
    with pytest.raises(UserError, match="no column of numbers is left"):
        ColumnRoles(known=("k", "y")).infer(columns, PATH)


def test_a_name_of_times_may_contain_commas():
    roles = ColumnRoles(time=("day", "hour"))
    assert roles.resolve(["day,hour", "y"], PATH).time == ("day,hour",)
    assert roles.resolve(["day", "hour", "y"], PATH).time == ("day", "hour")
    assert roles.names() == ["day", "day,hour", "hour"]
