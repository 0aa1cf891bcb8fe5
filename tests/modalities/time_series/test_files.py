"""Files of time series: wide and long tables, arrays, and what is repaired on the way."""

from __future__ import annotations

import gzip
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from regard.data.labelled import ColumnSelection
from regard.errors import UsageError, UserError
from regard.modalities.time_series.files import SeriesFiles, fill_series, holds_series

NAN = float("nan")


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def read(*paths: Path, targets: tuple[str, ...] = (), **options):
    files = SeriesFiles(paths, ColumnSelection(targets=targets), **options)
    return files, [series for chunk in files.records() for series in chunk.texts]


def one(path: Path, **options):
    files, series = read(path, **options)
    assert len(series) == 1
    return files, series[0]


def remark(files: SeriesFiles, word: str) -> str:
    """Return the one remark with a word."""
    (line,) = [line for line in files.remarks if word in line]
    return line


def hours(count: int, start: str = "2020-01-01") -> list[str]:
    times = np.datetime64(start, "h") + np.arange(count, dtype="m8[h]")
    return [str(time).replace("T", " ") + ":00" for time in times]


def test_a_wide_table_is_one_series(tmp_path):
    path = write(
        tmp_path / "a.csv", "date,x,y", *(f"{t},{i},{10 - i}" for i, t in enumerate(hours(5)))
    )
    files, series = one(path)
    assert files.why == "csv, wide: time in 'date', step 1 hour, 2 targets"
    assert files.names == series.columns == ("x", "y") and files.remarks == []
    assert (series.name, series.shape, len(series)) == ("", (5, 2), 5)
    assert series.known.shape == (5, 0) and series.static == ()
    assert series.start == np.datetime64("2020-01-01")
    np.testing.assert_array_equal(series.values, [[i, 10 - i] for i in range(5)])
    assert files.columns == ("date", "x", "y") and not files.plannable
    (chunk,) = files.records()
    assert chunk.path == path and chunk.lines == [2] and chunk.place(0) == f"{path}:2"
    assert len(set(chunk.keys())) == 1
    assert list(files.hashes()[1].values()) == ["a.csv"]


def test_times_after_a_number_of_steps_are_texts(tmp_path):
    _, series = one(write(tmp_path / "a.csv", "t,y", *(f"{t},{i}" for i, t in enumerate(hours(4)))))
    assert series.times_after(3, 2) == ["2020-01-01 03:00", "2020-01-01 04:00"]
    assert series.times_after(24, 1) == ["2020-01-02"] and series.times_after(5, 0) == []
    ends = ["2020-11-30", "2020-12-31", "2021-01-31"]
    _, series = one(write(tmp_path / "b.csv", "t,y", *(f"{t},{i}" for i, t in enumerate(ends))))
    assert series.times_after(0, 1) == ends[:1]
    assert series.times_after(2, 3) == ["2021-01-31", "2021-02-28", "2021-03-31"]
    np.save(tmp_path / "c.npy", np.arange(5.0))
    assert one(tmp_path / "c.npy")[1].times_after(5, 2) == ["5", "6"]


def test_targets_known_and_static_columns_are_read_in_the_order_asked(tmp_path):
    rows = (f"{t},{i},{i * 2},{i * 3},north" for i, t in enumerate(hours(4)))
    path = write(tmp_path / "a.csv", "date,x,y,k,region", *rows)
    files, series = one(path, targets=("y", "x"), known=["k"], static=["region"])
    np.testing.assert_array_equal(series.values, [[i * 2, i] for i in range(4)])
    np.testing.assert_array_equal(series.known, [[i * 3] for i in range(4)])
    assert series.static == ("north",) and files.names == ("y", "x")
    assert "1 known in the future" in files.why


def test_european_dates_decimal_commas_and_semicolons(tmp_path):
    path = write(
        tmp_path / "a.csv",
        "Datum;Last;Temp",
        "30.01.2020;1.234,5;-1,5",
        "31.01.2020;2.000;NA",
        "01.02.2020;999,25;3",
    )
    files, series = one(path)
    np.testing.assert_array_equal(series.values, [[1234.5, -1.5], [2000, NAN], [999.25, 3]])
    assert series.start == np.datetime64("2020-01-30") and series.step.name == "1 day"
    assert remark(files, "missing") == f"missing cells: 'Temp' 1; first: {path}:3"
    assert remark(files, "column 'Last'").endswith("decimal commas and points between thousands")
    bare = write(tmp_path / "b.csv", "01.02.2020 00:00;1,5", "01.02.2020 01:00;2,5")
    np.testing.assert_array_equal(one(bare)[1].values, [[1.5], [2.5]])


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tsv", "a.jsonl", "a.txt"])
def test_other_formats_hold_the_same(tmp_path, name):
    mark = "\t" if name == "a.tsv" else ","
    text = "".join(mark.join(row) + "\n" for row in [("t", "y"), *((t, "7") for t in hours(3))])
    if name == "a.jsonl":
        text = "".join(f'{{"t": "{t}", "y": 7}}\n' for t in hours(3))
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    _, series = one(tmp_path / name)
    assert series.values.tolist() == [[7], [7], [7]] and series.step.name == "1 hour"
    assert holds_series([tmp_path / name])


def test_members_of_archives_and_files_of_folders_are_series_named_by_their_stems(tmp_path):
    folder = tmp_path / "all"
    folder.mkdir()
    for i, name in enumerate(("north", "south")):
        write(folder / f"{name}.csv", "t,y", *(f"{t},{i}" for t in hours(3)))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("north", "south"):
            archive.write(folder / f"{name}.csv", f"{name}.csv")
    for path in (folder, tmp_path / "all.zip"):
        files, series = read(path)
        assert [each.name for each in series] == ["north", "south"]
        assert [each.values[0, 0] for each in series] == [0, 1]
        assert len(list(files.records())) == 2  # a chunk for each file


def test_files_with_other_columns_are_refused(tmp_path):
    paths = [
        write(tmp_path / "a.csv", "t,y", *(f"{t},1" for t in hours(3))),
        write(tmp_path / "b.csv", "t,z", *(f"{t},1" for t in hours(3))),
    ]
    with pytest.raises(UserError, match=r"b\.csv: its columns differ .* has 'y'"):
        read(*paths)


def test_a_long_table_holds_its_series_in_the_order_of_their_appearance(tmp_path):
    rows = [("B", 0, 5), ("B", 1, 6), ("B", 2, 7), ("A", 1, 1), ("A", 2, 2), ("A", 3, 3)]
    times = hours(4)
    path = write(tmp_path / "a.csv", "name,t,y", *(f"{n},{times[i]},{y}" for n, i, y in rows))
    files, series = read(path)
    assert files.why == "csv, long: series in 'name', time in 't', step 1 hour, 1 target"
    assert [each.name for each in series] == ["B", "A"]
    assert [each.values.ravel().tolist() for each in series] == [[5, 6, 7], [1, 2, 3]]
    assert series[1].start == np.datetime64("2020-01-01T01")
    (chunk,) = files.records()
    assert chunk.lines == [2, 5]


def test_rows_of_series_may_be_mixed_and_their_ids_be_numbers_or_several_columns(tmp_path):
    rows = [f"{t},{s},{p},{10 * s + p}" for t in hours(3) for s in (1, 2) for p in (3, 4)]
    path = write(tmp_path / "a.csv", "t,store,product,sales", *rows)
    _, series = read(path, id="store,product", targets=("sales",))
    assert [each.name for each in series] == ["1/3", "1/4", "2/3", "2/4"]
    assert [each.values[0, 0] for each in series] == [13, 14, 23, 24]
    with pytest.raises(UsageError, match=r"a\.csv:5: 9 of 12 rows repeat a time.*input\.id"):
        read(path)


def test_rows_out_of_order_are_sorted_and_counted(tmp_path):
    times = hours(6)
    order = [0, 1, 4, 2, 3, 5]
    path = write(tmp_path / "a.csv", "t,y", *(f"{times[i]},{i}" for i in order))
    files, series = one(path)
    assert series.values.ravel().tolist() == [0, 1, 2, 3, 4, 5]
    line = remark(files, "out of order")
    assert line.startswith("2 rows") and line.endswith(f"{path}:5")
    newest_first = write(tmp_path / "b.csv", "t,y", *(f"{times[i]},{i}" for i in range(5, -1, -1)))
    files, series = one(newest_first)
    assert series.values.ravel().tolist() == [0, 1, 2, 3, 4, 5] and files.remarks == []


def test_of_rows_that_repeat_a_time_the_last_is_kept(tmp_path):
    rows = [f"{t},{i}" for i, t in enumerate(hours(8))]
    path = write(tmp_path / "a.csv", "t,y", *rows, rows[3].replace(",3", ",33"))
    files, series = one(path)
    assert series.values.ravel().tolist() == [0, 1, 2, 33, 4, 5, 6, 7]
    assert remark(files, "repeats a time").endswith(f"{path}:10")


def test_gaps_become_missing_steps(tmp_path):
    rows = [f"{t},{i}" for i, t in enumerate(hours(20))]
    path = write(tmp_path / "a.csv", "t,y", *rows[:4], *rows[5:10], *rows[13:])
    files, series = one(path)
    expected = [NAN if i in (4, 10, 11, 12) else i for i in range(20)]
    np.testing.assert_array_equal(series.values.ravel(), expected)
    line = remark(files, "gaps")
    assert line.startswith("2 gaps of 4 missing steps") and "the longest of 3" in line
    assert f"after 2020-01-01 09:00 ({path}:10)" in line and line.endswith(f"{path}:5")


def test_a_time_far_away_is_refused_rather_than_filled_up(tmp_path):
    path = write(tmp_path / "a.csv", "t,y", *(f"{t},1" for t in hours(20)), "2120-01-01 00:00,1")
    with pytest.raises(UserError, match=r"a\.csv:22: 2120-01-01 comes .* steps of 1 hour"):
        read(path)


def test_damaged_cells_and_times_are_counted_with_their_lines(tmp_path):
    times = hours(6)
    lines = ["t,x,y", f"{times[0]},1,2", f"{times[1]},oops,2", "never,3,4", f"{times[3]},,<5"]
    path = write(tmp_path / "a.csv", *lines, *(f"{t},1,1" for t in times[4:]))
    files, series = one(path)
    assert files.skipped == 3
    assert files.problems == [
        f"{path}:3: 'oops' in column 'x' is no number",
        f"{path}:5: '<5' in column 'y' is no number",
        f"{path}:4: 'never' in column 't' is no time",
    ]
    np.testing.assert_array_equal(
        series.values[:5], [[1, 2], [NAN, 2], [NAN, NAN], [NAN, NAN], [1, 1]]
    )
    assert remark(files, "missing cells") == f"missing cells: 'x' 1; first: {path}:5"
    with pytest.raises(UserError, match=r"a\.csv:3: 'oops'"):
        read(path, strict=True)


def test_lines_of_other_widths_are_damage(tmp_path):
    path = write(tmp_path / "a.csv", "t,y", *(f"{t},1" for t in hours(4)), "2020-01-01 04:00,1,2")
    files, series = one(path)
    assert files.skipped == 1 and f"{path}:6" in files.problems[0] and len(series) == 4


@pytest.mark.parametrize("minutes", [60, 30])
def test_local_times_with_daylight_saving(tmp_path, minutes):
    start, zone = datetime(2020, 3, 1, tzinfo=UTC), ZoneInfo("Europe/Berlin")
    count = 250 * 24 * 60 // minutes
    moments = [start + timedelta(minutes=minutes * i) for i in range(count)]
    local = [moment.astimezone(zone).strftime("%Y-%m-%d %H:%M") for moment in moments]
    path = write(tmp_path / "a.csv", "t,y", *(f"{t},{i}" for i, t in enumerate(local)))
    files, series = one(path)
    per_hour = 60 // minutes
    missing = np.flatnonzero(np.isnan(series.values[:, 0]))
    assert series.times[missing].tolist() == [
        np.datetime64("2020-03-29T02:00", "ns").astype(int) + i * minutes * 60 * 10**9
        for i in range(per_hour)
    ]
    at = int(np.searchsorted(series.times, np.datetime64("2020-10-25T02:00")))
    first = local.index("2020-10-25 02:00")
    assert series.values[at, 0] == first + per_hour / 2  # the mean of both
    assert len(series) == count and len(files.remarks) == 2
    assert remark(files, "skipped").startswith(
        "1 hour is skipped, as when daylight saving begins, and"
    )
    assert remark(files, "twice").startswith("1 hour occurs twice, as when daylight saving ends;")


def test_offsets_of_two_time_zones_are_converted_to_utc(tmp_path):
    rows = ["2020-01-01T00:00+01:00,1", "2020-01-01T02:00+02:00,2", "2020-01-01T02:00+01:00,3"]
    files, series = one(write(tmp_path / "a.csv", "t,y", *rows))
    assert series.start == np.datetime64("2019-12-31T23:00")
    assert series.values.ravel().tolist() == [1, 2, 3]
    assert "converted to UTC" in remark(files, "+01:00 and +02:00")


def test_dates_that_may_be_read_two_ways_are_told(tmp_path):
    files, series = one(write(tmp_path / "a.csv", "t,y", "01/02/2020,1", "01/03/2020,2"))
    assert series.start == np.datetime64("2020-01-02")
    assert "month first" in remark(files, "column 't'")


def test_constant_columns_are_kept_and_empty_ones_refused(tmp_path):
    path = write(tmp_path / "a.csv", "t,x,y", *(f"{t},{i},3.5" for i, t in enumerate(hours(4))))
    files, series = one(path)
    assert series.shape == (4, 2)
    assert remark(files, "constant") == "column 'y' is constant (3.5) and kept"
    path = write(tmp_path / "b.csv", "t,x,y", *(f"{t},{i},NA" for i, t in enumerate(hours(4))))
    with pytest.raises(UserError, match=r"b\.csv: column 'y' has no number in any row"):
        read(path)


def test_a_table_without_times_counts_its_rows(tmp_path):
    path = write(tmp_path / "a.csv", "x,y", "3,1.5", "1,2.5", "2,9")
    files, series = one(path)
    assert series.start == 0 and series.step.name == "1 step" and series.shape == (3, 2)
    assert "steps 0, 1, 2" in remark(files, "no column of times")
    assert files.why == "csv, wide: no times, 2 targets"


def test_years_and_data_frames_with_an_unnamed_index(tmp_path):
    _, series = one(write(tmp_path / "a.csv", "year,y", "2001,5", "2002,6", "2003,4"))
    assert series.start == 2001 and series.step.name == "1 year"
    _, series = one(write(tmp_path / "b.csv", ",0,1", "0,5,6", "1,7,8", "2,7,9"))
    assert series.columns == ("0", "1") and series.values.tolist() == [[5, 6], [7, 8], [7, 9]]


def test_date_and_time_of_day_may_stand_in_two_columns(tmp_path):
    rows = ["16/12/2006;17:24:00;4.2", "16/12/2006;17:25:00;?", "16/12/2006;17:26:00;5.3"]
    files, series = one(write(tmp_path / "a.txt", "Date;Time;Power", *rows), time="Date,Time")
    assert series.start == np.datetime64("2006-12-16T17:24") and series.step.name == "1 minute"
    np.testing.assert_array_equal(series.values.ravel(), [4.2, NAN, 5.3])
    assert "time in 'Date' and 'Time'" in files.why


def test_irregular_times_are_refused_with_their_line(tmp_path):
    times = ["00:00", "01:00", "02:00", "02:50", "04:10"]
    rows = [f"2020-01-01 {t},{i}" for i, t in enumerate(times)]
    path = write(tmp_path / "a.csv", "t,y", *rows)
    with pytest.raises(UserError, match=r"a\.csv:5: the times are not at equal steps.*input\.step"):
        read(path)
    files, series = one(path, step="1h")
    np.testing.assert_array_equal(series.values.ravel(), [0, 1, 2.5, NAN, 4])
    assert remark(files, "averaged") == "5 rows were averaged into 4 steps of 1 hour"
    assert "step 1 hour" in files.why


def test_series_at_other_steps_than_the_longest_are_refused(tmp_path):
    rows = [f"A,{t},1" for t in hours(5)]
    rows += ["B,2020-01-01 00:10,1", "B,2020-01-01 01:10,1", "B,2020-01-01 01:17,1"]
    path = write(tmp_path / "a.csv", "id,t,y", *rows)
    with pytest.raises(UserError, match=r"a\.csv:7: the times of series 'B'"):
        read(path)


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        ("mask", [NAN, 1, NAN, NAN, 4, NAN]),
        ("forward", [NAN, 1, 1, 1, 4, 4]),
        ("linear", [NAN, 1, 2, 3, 4, 4]),
        ("zero", [0, 1, 0, 0, 4, 0]),
    ],
)
def test_missing_values_are_filled_as_asked(tmp_path, fill, expected):
    x, times = ["", "1", "", "", "4", ""], hours(8)
    rows = [f"{t},{a},{i},{i}" for i, (t, a) in enumerate(zip(times, x, strict=False))]
    rows += [f"{t},,,{i}" for i, t in enumerate(times[6:])]  # the future: only k is known
    path = write(tmp_path / "a.csv", "t,x,y,k", *rows)
    files, series = one(path, known=["k"], fill=fill)
    np.testing.assert_array_equal(series.values[:6, 0], expected)
    assert np.isnan(series.values[6:]).all() and not np.isnan(series.known).any()
    filled = sum(a != a for a in [NAN, 1, NAN, NAN, 4, NAN]) - sum(a != a for a in expected)
    assert sum("filled with" in line for line in files.remarks) == bool(filled)
    if filled:
        assert remark(files, "filled with").startswith(f"{filled} missing values were filled")
    assert fill_series(series, "zero")[1] == sum(a != a for a in expected)


def test_static_cells_that_change_are_told(tmp_path):
    rows = [f"{t},1,{'a' if i < 3 else 'b'}" for i, t in enumerate(hours(5))]
    path = write(tmp_path / "a.csv", "t,y,kind", *rows)
    files, series = one(path, static=["kind"])
    assert series.static == ("a",) and remark(files, "changes").endswith(f"{path}:5")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["a", "b", "a"], "static column 'kind' has 2 categories"),
        (["1", "2.5", ""], "static column 'kind' is read as numbers"),
        (["1", "2,5", "3"], "static column 'kind' has 3 categories: '2,5' is no number"),
        (["a", "a", "a"], "static column 'kind' is the same in all series ('a') and tells nothing"),
    ],
)
def test_it_is_said_how_static_columns_are_read(tmp_path, cells, words):
    rows = [f"{t};{i};{i % 2};{cell}" for i, cell in enumerate(cells) for t in hours(4)]
    path = write(tmp_path / "a.csv", "t;shop;y;kind", *rows)
    files, _ = read(path, id="shop", static=["kind"], targets=("y",))
    assert remark(files, "static") == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "dat"}, "has no column 'dat' (input.time); did you mean 'date'"),
        ({"targets": ("z",)}, "has no column 'z' (--target); it has date, y, word"),
        ({"targets": ("word",)}, "column 'word' holds texts ('a')"),
        ({"known": ["y"], "targets": ("y",)}, "column 'y' is named for two purposes"),
        ({"fill": "forwards"}, "did you mean 'forward'"),
        ({"step": "1m"}, "input.step = '1m'"),
        ({"step": "10"}, "but the times are dates"),
        ({"format": "cvs"}, "did you mean 'csv'"),
        ({"format": "fasta"}, "holds no time series"),
    ],
)
def test_wrong_options_are_usage_errors(tmp_path, options, message):
    path = write(
        tmp_path / "a.csv",
        "date,y,word",
        *(f"{t},1,{w}" for t, w in zip(hours(3), "aba", strict=True)),
    )
    with pytest.raises(UsageError) as error:
        read(path, **options)
    assert message in str(error.value)


def test_texts_beside_numbers_are_not_read_and_this_is_told(tmp_path):
    rows = (
        f"{t},1,{w}"
        for t, w in zip(hours(6), ["sun", "rain", "sun", "fog", "sun", "rain"], strict=True)
    )
    files, series = one(write(tmp_path / "a.csv", "t,y,weather", *rows))
    assert series.columns == ("y",) and "'weather' is text and is not read" in remark(files, "text")


def test_all_times_damaged_is_an_error(tmp_path):
    path = write(tmp_path / "a.csv", "t,y", "soon,1", "later,2")
    with pytest.raises(UserError, match=r"a\.csv:2: 'soon' in column 't' is no known time"):
        read(path, time="t")


@pytest.mark.parametrize("shape", [(7,), (7, 2), (3, 7, 2)])
def test_arrays_are_series_without_times(tmp_path, shape):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", data=array)
    for name in ("a.npy", "a.npz"):
        files, series = read(tmp_path / name)
        expected = array.reshape(
            -1, 7, shape[2] if len(shape) == 3 else shape[1] if len(shape) == 2 else 1
        )
        assert [each.name for each in series] == (["0", "1", "2"] if len(shape) == 3 else [""])
        np.testing.assert_array_equal([each.values for each in series], expected)
        assert all(each.step.name == "1 step" and each.start == 0 for each in series)
        assert any("steps 0, 1, 2" in line for line in files.remarks)
        assert holds_series([tmp_path / name]) == ""


def test_columns_of_arrays_are_named_by_numbers(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, 2, 3], [4, np.inf, np.nan], [7, 8, 9]]))
    files, series = one(tmp_path / "a.npy", targets=("3", "2"), known=["1"])
    np.testing.assert_array_equal(series.values, [[3, 2], [NAN, NAN], [9, 8]])
    assert series.known.ravel().tolist() == [1, 4, 7] and files.names == ("3", "2")
    assert files.skipped == 1 and "[0, 1, 1]: is infinite" in files.problems[0]
    with pytest.raises(UsageError, match="is an array"):
        read(tmp_path / "a.npy", time="t")
    np.savez(tmp_path / "b.npz", x=np.zeros(3), y=np.zeros(3))
    with pytest.raises(UserError, match="must hold one array"):
        read(tmp_path / "b.npz")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        read(tmp_path / "a.parquet")


def test_parquet_is_read_as_other_tables_are(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    times = np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(1, "h")
    table = arrow.table({"t": times, "y": [1.5, None, 3, 4], "nested": [[1]] * 4})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    assert holds_series([tmp_path / "a.parquet"])
    files, series = one(tmp_path / "a.parquet")
    np.testing.assert_array_equal(series.values.ravel(), [1.5, NAN, 3, 4])
    assert files.why == "parquet, wide: time in 't', step 1 hour, 1 target"


def test_tables_of_series_are_recognised_by_their_times_and_numbers(tmp_path):
    wide = write(tmp_path / "a.csv", "date,x,y", *(f"{t},1,2" for t in hours(5)))
    assert holds_series([wide]) == "times in 'date' and 2 columns of numbers"
    panel = [f"{t},store {i},{i}" for t in hours(3) for i in range(100)]
    assert holds_series([write(tmp_path / "b.csv", "date,store,sales", *panel)])
    assert holds_series([write(tmp_path / "c.csv", "year,gdp", "2001,5", "2002,6", "2003,7")])


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("names.txt", ["anna", "bob", "clara"]),
        ("a.csv", ["text,label", "good film,1", "bad film,0", "so so,1"]),
        ("a.csv", ["date,review", *(f"2020-01-0{i},film {i} was good" for i in range(1, 6))]),
        (
            "a.csv",
            ["date,stars,review", *(f"2020-01-0{i},3,film {i} was good" for i in range(1, 6))],
        ),
        ("a.csv", ["id,text,label", *(f"{i},text {i} here,{i % 2}" for i in range(6))]),
        ("a.csv", ["id,width,height,kind", *(f"{i},{i % 3},{i % 2},iris" for i in range(9))]),
        ("a.csv", ["smiles,value", "CCO,1.5", "CCC,2.5", "CCN,0.5"]),
        ("a.csv", ["born,weight", "2001-05-01,5", "1999-01-01,6", "2020-01-01,7", "1980-01-01,7"]),
        ("a.fasta", [">a", "ACGT", ">b", "ACCT"]),
        ("empty.csv", [""]),
    ],
)
def test_other_files_are_not_taken_for_series(tmp_path, name, lines):
    assert holds_series([write(tmp_path / name, *lines)]) == ""


def test_arrays_of_images_and_points_and_missing_files_are_not_taken_for_series(tmp_path):
    np.savez(tmp_path / "images.npz", x=np.zeros((5, 8, 8), np.uint8), y=np.zeros(5, np.int64))
    np.savez(tmp_path / "points.npz", points=np.zeros((5, 30, 3)), labels=np.zeros(5, np.int64))
    for name in ("images.npz", "points.npz", "nothing.csv"):
        assert holds_series([tmp_path / name]) == ""


def test_numbered_rows_of_labels_and_days_are_no_series(tmp_path):
    path, words = tmp_path / "survey.csv", ("late", "torn, but fast", "fine", "fits well")
    rows = [
        f'{i};{1 + i % 28:02}.03.2024;"{words[i % 4]}";{"good" if i % 3 else "bad"}'
        for i in range(90)
    ]
    path.write_text("\n".join(["no;day;remark;mark", *rows]) + "\n")
    assert holds_series([path]) == ""
    path.write_text(
        "\n".join(["no;day;remark;mark;price", *(f"{row};{i % 7}.5" for i, row in enumerate(rows))])
    )
    assert holds_series([path])
