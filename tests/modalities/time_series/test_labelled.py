"""Series with labels: long and wide tables, folders, arrays, and labels in a file."""

import numpy as np
import pytest

from regard.data import Roles
from regard.data.sources import DataSource, recognize_modality
from regard.data.targets import OUTPUT_KINDS
from regard.data.task_inference import infer_task
from regard.errors import UsageError
from regard.modalities.time_series import TimeSeries, TimeSeriesConfig
from regard.modalities.time_series.labelled import StepLabels, unlabelled_series
from regard.recipe import DataRecipe

LABELS = Roles(input=True, labels=True)


def opened(path, target="", kind="label", **config):
    data = DataRecipe(train=(str(path),), target=target)
    modality = TimeSeries(TimeSeriesConfig(**config))
    return DataSource(data, LABELS, modality, kind=OUTPUT_KINDS[kind]).train


def records(source):
    return [
        (item, cells)
        for chunk in source.records()
        for item, cells in zip(chunk.texts, chunk.targets, strict=True)
    ]


def long_table(path, *, changing=False, separator=",", comma=False):
    lines = [separator.join(("run", "t", "x", "y", "kind"))]
    for number in range(6):
        for step in range(5 + number):
            kind = "ab"[(step > 2) if changing else number % 2]
            cells = [f"r{number}", step, f"{step / 2 + number}", f"{-step - 0.5}", kind]
            if number == 1 and step == 3:
                cells[2] = ""
            cells = [str(cell).replace(".", "," if comma else ".") for cell in cells]
            lines.append(separator.join(cells))
    path.write_text("\n".join(lines))
    return path


def test_rows_of_a_long_table_become_series_with_one_label_each(tmp_path):
    source = opened(long_table(tmp_path / "a.csv"), "kind")
    items = records(source)
    assert [len(item) for item, _ in items] == [5, 6, 7, 8, 9, 10]
    assert [cells for _, cells in items] == [("a",), ("b",)] * 3
    np.testing.assert_allclose(items[0][0], np.stack([np.arange(5) / 2, -np.arange(5) - 0.5], 1))
    assert np.isnan(items[1][0][3, 0]) and source.value_names() == ("x", "y")


def test_decimal_commas_and_rows_in_any_order_are_read(tmp_path):
    path = long_table(tmp_path / "a.csv", separator=";", comma=True)
    header, *rows = path.read_text().splitlines()
    shuffled = np.random.default_rng(0).permutation(rows)
    path.write_text("\n".join([header, *shuffled]))
    items = {item.shape[0]: item for item, _ in records(opened(path, "kind"))}
    np.testing.assert_allclose(items[5][:, 0], np.arange(5) / 2)


def test_labels_of_steps_are_told_from_those_of_series(tmp_path):
    path = long_table(tmp_path / "a.csv", changing=True)
    data = DataRecipe(train=(str(path),), target="kind")
    assert infer_task(data).task == "position-label"
    items = records(opened(path, "kind", "position-label"))
    assert list(items[0][1][0]) == ["a", "a", "a", "b", "b"] and len(items[0][1][0]) == 5
    with pytest.raises(UsageError, match=r"changes within series 'r0' .* from 'a' to 'b'"):
        records(opened(path, "kind"))


def test_numbers_that_are_the_same_in_a_series_are_values_and_others_are_forecast(tmp_path):
    lines = ["run,t,x,rate"]
    lines += [f"r{n},{t},{t % 3},{n / 7:.3f}" for n in range(40) for t in range(9)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    assert infer_task(DataRecipe(train=(str(path),), target="rate")).task == "value"
    assert infer_task(DataRecipe(train=(str(path),), target="x")).task == "forecast"
    assert infer_task(DataRecipe(train=(str(path),))).task == "forecast"


@pytest.mark.parametrize("header", [True, False])
def test_a_row_may_be_a_series(tmp_path, header):
    values = np.random.default_rng(1).normal(size=(12, 9)).round(3)
    lines = [",".join(["kind", *(f"t{i}" for i in range(9))])] if header else []
    lines += [",".join([str(n % 2), *map(str, row)]) for n, row in enumerate(values)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    target = "kind" if header else "1"
    data = DataRecipe(train=(str(path),), target=target)
    assert recognize_modality(data, LABELS) == "time-series" and infer_task(data).task == "label"
    items = records(opened(path, target))
    np.testing.assert_allclose(np.stack([item[:, 0] for item, _ in items]), values)
    assert [cells for _, cells in items[:2]] == [("0",), ("1",)]
    options = {"exclude": (target,), "longest": 9}
    again = list(unlabelled_series([path], (), strict=True, **options))
    np.testing.assert_allclose(again[4][1][:, 0], values[4])


def test_a_folder_of_series_is_a_class(tmp_path):
    for name, scale in (("slow", 1), ("fast", 2)):
        (tmp_path / name).mkdir()
        values = scale * np.arange(6.0)
        np.save(tmp_path / name / "a.npy", values)
        (tmp_path / name / "b.csv").write_text("x\n" + "\n".join(map(str, values[:4])))
    data = DataRecipe(train=(str(tmp_path),))
    assert recognize_modality(data, LABELS) == "time-series" and infer_task(data).task == "label"
    items = records(opened(tmp_path))
    assert [(len(item), *cells) for item, cells in items] == [
        (6, "fast"),
        (4, "fast"),
        (6, "slow"),
        (4, "slow"),
    ]


def test_arrays_have_their_time_on_the_longer_axis_and_end_where_all_is_missing(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 3, 11))
    values[2, :, 8:] = np.nan
    np.savez(tmp_path / "a.npz", X=values, y=np.array(list("ababa")))
    assert recognize_modality(DataRecipe(train=(str(tmp_path / "a.npz"),)), LABELS) == "time-series"
    items = records(opened(tmp_path / "a.npz"))
    assert items[2][0].shape == (8, 3) and items[1][1] == ("b",)
    np.testing.assert_allclose(items[0][0], values[0].T)


def test_labels_may_stand_in_a_file_by_the_ids_of_series(tmp_path):
    path = long_table(tmp_path / "a.csv")
    labels = tmp_path / "labels.csv"
    labels.write_text("id,kind\n" + "\n".join(f"r{n},c{n % 3}" for n in reversed(range(6))))
    source = opened(path, str(labels), exclude="kind")
    assert [cells for _, cells in records(source)] == [(f"c{n % 3}",) for n in range(6)]


def test_labels_of_steps_are_one_cell_with_as_many_elements_as_steps():
    cell = StepLabels(["on", "off", "on"])
    assert len(cell) == 3 and list(cell.strip()) == ["on", "off", "on"]
    assert list(cell.first(2)) == ["on", "off"] and cell == StepLabels(["on", "off", "on"])
