"""Data in memory: frames, arrays, data sets and lists as columns, and as files of a run."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pytest
import torch

from regard.data.in_memory import (
    SOURCE,
    MemoryTable,
    input_columns,
    paths_of,
    read_table,
    splits_of,
    stored,
    to_cell,
    write_tables,
)
from regard.errors import UserError

TEXTS, KINDS = ["who ?", "where ?", "when ?"], ["person", "place", "time"]
COLUMNS = {"text": TEXTS, "kind": KINDS}


def pandas_frame():
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def polars_frame():
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def polars_lazy_frame():
    return pytest.importorskip("polars").LazyFrame(COLUMNS)


def arrow_table():
    return pytest.importorskip("pyarrow").table(COLUMNS)


def hugging_face():
    return pytest.importorskip("datasets").Dataset.from_dict(COLUMNS)


FRAMES = [pandas_frame, polars_frame, polars_lazy_frame, arrow_table, hugging_face, lambda: COLUMNS]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_frame_has_its_columns(frame):
    assert read_table(frame()).columns == COLUMNS


class MapStyle(torch.utils.data.Dataset):
    """A data set that is indexed, and that no `for` can walk to its end."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i % len(self.items)]


PAIRS = list(zip(TEXTS, KINDS, strict=True))


@pytest.mark.parametrize("source", [PAIRS, tuple(PAIRS), iter(PAIRS), MapStyle(PAIRS)])
def test_tuples_are_inputs_and_targets(source):
    table = read_table(source)
    assert table.columns == {"text": TEXTS, "target": KINDS}
    assert (table.input, table.target) == ("text", "target")


def test_dictionaries_may_lack_keys_and_three_texts_are_a_pair_with_a_target():
    table = read_table([{"a": "x", "b": 1}, {"a": "y"}])
    assert table.columns == {"a": ["x", "y"], "b": [1, None]}
    table = read_table([("a", "b", "same"), ("c", "d", "other")])
    assert table.input == "text,second" and table.target == "target"
    assert read_table([("a", "b"), ("c", "d")], ["same", "other"]).columns == table.columns


def test_targets_apart_are_columns_of_one_length():
    pandas = pytest.importorskip("pandas")
    y = pandas.Series(KINDS, name="kind")
    for source in (TEXTS, pandas.Series(TEXTS), np.array(TEXTS)):
        table = read_table(source, y)
        assert table.columns == {"text": TEXTS, "kind": KINDS} and table.input == "text"
    assert read_table(TEXTS, pandas.Series(KINDS)).target == "target"
    several = read_table(TEXTS, np.eye(3))
    assert several.target == "target1,target2,target3"
    with pytest.raises(ValueError, match=r"a target for each record, got 2 and 3"):
        read_table(TEXTS, KINDS[:2])


def test_arrays_hold_images_rows_of_series_or_one_series():
    images = np.zeros((5, 8, 8))
    assert read_table(images, range(5)).columns["items"] is images
    one = read_table(np.arange(10.0))
    assert list(one.columns) == ["step", "value"] and one.columns["step"] == list(range(10))
    assert list(read_table(np.zeros((10, 2))).columns) == ["step", "value1", "value2"]
    with pytest.raises(UserError, match=r"two axes or more, got the shape \(3,\)"):
        read_table(np.arange(3.0), KINDS)


def test_items_of_a_list_are_stacked_and_series_of_other_lengths_are_filled():
    items = [(torch.full((1, 4, 4), float(i)), i) for i in range(3)]
    table = read_table(items)
    assert table.columns["items"].shape == (3, 1, 4, 4) and table.columns["target"] == [0, 1, 2]
    series = read_table([np.ones(2), np.ones(4)], [0, 1]).columns["items"]
    np.testing.assert_array_equal(series, [[1, 1, math.nan, math.nan], [1, 1, 1, 1]])
    with pytest.raises(UserError, match=r"items must have one shape, got \(2, 2\), \(2, 3\)"):
        read_table([np.ones((2, 2)), np.ones((2, 3))], [0, 1])


def test_an_index_of_times_or_with_a_name_is_a_column():
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2024-01-01", periods=2, freq="D")
    table = read_table(pandas.DataFrame({"load": [1.0, 2.0]}, index=index))
    assert table.columns["time"] == ["2024-01-01 00:00:00", "2024-01-02 00:00:00"]
    named = pandas.DataFrame({"load": [1.0]}, index=pandas.Index(["a"], name="shop"))
    assert list(read_table(named).columns) == ["shop", "load"]
    assert list(read_table(named.reset_index(drop=True)).columns) == ["load"]


def test_classes_of_a_data_set_have_their_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"y": datasets.ClassLabel(names=["no", "yes"])})
    data = datasets.Dataset.from_dict({"y": [1, 0, -1]}, features=features)
    assert read_table(data).columns == {"y": ["yes", "no", None]}
    both = datasets.DatasetDict({"train": data, "validation": data, "extra": data})
    assert list(splits_of(both)) == ["train", "valid"]


@pytest.mark.parametrize(
    "source, error, message",
    [
        ([], UserError, "there are no records"),
        (3, TypeError, "data must be a path, a frame, an array, a data set, or a list"),
        ([("a", "b"), ("c",)], TypeError, r"record 1 must be a tuple of 2"),
        ([("a", "b", "c", "d")], TypeError, r"a record is \(input, target\)"),
        ({"a": [1], "b": [1, 2]}, ValueError, "columns must have one length"),
    ],
)
def test_what_is_no_data_is_refused(source, error, message):
    with pytest.raises(error, match=message):
        read_table(source)


def test_paths_are_told_from_texts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    assert paths_of("anything") and paths_of(path) == paths_of([str(path)]) == [path]
    assert paths_of([str(path), "missing"]) is not None  # the first exists: reading names the other
    assert paths_of(["a text", "another"]) is None and paths_of([]) is None
    assert paths_of(["x" * 5000]) is None and paths_of(["\0"]) is None


@pytest.mark.parametrize(
    "value, cell",
    [
        (None, None),
        (math.nan, None),
        (np.float32("nan"), None),
        (True, 1),
        (np.bool_(False), 0),
        (3.0, 3),
        (np.int8(3), 3),
        (torch.tensor(2.5), 2.5),
        (0.1, 0.1),
        (math.inf, "inf"),
        ("NA", "NA"),
        (datetime.date(2024, 5, 3), "2024-05-03"),
    ],
)
def test_a_cell_is_a_text_a_number_or_missing(value, cell):
    assert to_cell(value, "x", 0) == cell and type(to_cell(value, "x", 0)) is type(cell)


def test_a_cell_of_another_type_is_named():
    with pytest.raises(TypeError, match=r"column 'x', row 7: .* got set \{1\}"):
        to_cell({1}, "x", 7)
    pandas = pytest.importorskip("pandas")
    assert to_cell(pandas.NA, "x", 0) is None and to_cell(pandas.NaT, "x", 0) is None


def test_rows_are_written_as_json_lines(tmp_path):
    texts = ["two\nlines", 'quo"ted', "ünï\u2028code"]
    written = write_tables(
        {"train": MemoryTable(columns={"t": texts, "n": [1, 2.5, None]})}, tmp_path
    )
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"t": text, "n": n} for text, n in zip(texts, [1, 2.5, None], strict=True)
    ]
    assert written.paths == [tmp_path / "train.jsonl"] and not written.modality


def test_items_are_written_as_arrays_with_their_targets(tmp_path):
    images = np.random.default_rng(0).random((4, 6, 6))
    table = read_table(images, [[1.0, 2.0], [3.0, None], [0.5, 1.0], [1.0, 1.0]])
    written = write_tables({"train": table, "test": table}, tmp_path)
    assert (written.input, written.target, written.modality) == ("items", "target", "images")
    assert written.settings["test"] == [str(tmp_path / "test.npz")]
    with np.load(tmp_path / "train.npz") as arrays:
        np.testing.assert_array_equal(arrays["items"], images)
        assert arrays["target"].shape == (4, 2) and np.isnan(arrays["target"][1, 1])
    with pytest.raises(UserError, match="an array of 5 axes holds no items that are known"):
        write_tables({"train": read_table(np.zeros((2, 2, 2, 2, 2)), [0, 1])}, tmp_path)


def test_images_of_pillow_are_written_as_png(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    table = read_table([(pillow.fromarray(pixels), "a"), (pillow.fromarray(pixels + 1), "b")])
    write_tables({"train": table}, tmp_path)
    row = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[1])
    assert row == {"items": "train/000001.png", "target": "b"}
    np.testing.assert_array_equal(np.asarray(pillow.open(tmp_path / row["items"])), pixels + 1)


def test_stored_data_is_removed_after_an_error_and_must_be_the_same_to_resume(tmp_path):
    table, run = read_table(PAIRS), tmp_path / "runs" / "one"
    with pytest.raises(RuntimeError), stored({"train": table}, run):
        raise RuntimeError
    assert not (tmp_path / "runs").exists()
    with stored({"train": table}, run) as first:
        assert first.paths == [run / SOURCE / "train.jsonl"] and first.paths[0].exists()
    with stored({"train": table}, run, resume=True) as again:
        assert again == first
    with (
        pytest.raises(UserError, match=r"the data differ from those that .*one was trained on"),
        stored({"train": read_table(PAIRS[1:])}, run, resume=True),
    ):
        pass
    assert first.paths[0].exists()


def test_the_columns_that_a_model_reads_are_taken_from_a_frame():
    frame = pandas_frame()
    assert input_columns(frame, ("kind",)) == [KINDS]
    assert input_columns(frame, ("text", "kind")) == [TEXTS, KINDS]
    assert input_columns(frame["text"], ("kind",)) == [TEXTS]  # a series is the column itself
    assert input_columns(frame[["text"]], ("kind",)) == [TEXTS]
    assert input_columns(TEXTS, ()) == [TEXTS]
    with pytest.raises(UserError, match=r"reads column 'question'; there are text, kind"):
        input_columns(frame, ("question",))
