"""Prediction: which targets are for which task, what is chosen, and how classes are weighted."""

import numpy as np
import pytest
import torch

from regard.data.targets import TargetColumn
from regard.planning import plan_recipe
from regard.registry import TASKS
from regard.tasks.prediction import class_weights
from regard.training.defaults import fill_defaults


def column(cells, text="some text"):
    found = TargetColumn()
    for cell in cells:
        found.add(text, cell)
    return found


def suggestions(*columns, texts=False):
    """Return what each task says of the columns, where it says something."""
    names = [f"y{i}" for i in range(len(columns))]
    found = {name: TASKS[name].suggest(columns, names, texts=texts) for name in TASKS}
    return {name: reason for name, reason in found.items() if reason}


@pytest.mark.parametrize(
    ("cells", "task", "reason"),
    [
        (["yes", "no"] * 5, "label", "2 different targets under 'y0'"),
        (["1", "2", "3"] * 5, "label", "3 different whole numbers under 'y0'"),
        (["1", "2"] * 20 + ["no"], "label", "whole numbers but for 1, under 'y0'"),
        (["1.5", "2", "3", "7"], "value", "4 of 4 targets under 'y0' are numbers"),
        ([str(i) for i in range(50)], "value", "50 of 50 targets under 'y0' are numbers"),
        (["a", "b", "c"], "label", "texts under 'y0', 3 different ones of 3"),
    ],
)
def test_one_column_is_a_label_or_a_value(cells, task, reason):
    first, said = next(iter(suggestions(column(cells)).items()))
    assert first == task and reason in said


def test_targets_as_long_as_their_texts_are_labels_of_positions():
    cells = ["HHHCC", "CCCHH", "HCHCH"]
    found = suggestions(column(cells, text="ABCDE"))
    assert next(iter(found)) == "position-label"
    assert (
        found["position-label"] == "targets under 'y0' are as long as their texts, of few letters"
    )
    assert "position-label" not in suggestions(column(cells, text="ABCDEF"))


def test_several_columns_are_labels_or_values():
    binary, numbers = column(["0", "1"] * 4), column(["0.5", "1", "7"])
    assert suggestions(binary, binary) == {
        "labels": "2 columns of two values each",
        "value": "2 columns of numbers",
    }
    assert next(iter(suggestions(binary, binary))) == "labels"
    assert suggestions(binary, numbers) == {"value": "2 columns of numbers"}
    assert suggestions(numbers, column(["a", "b", "c"])) == {}


def test_texts_may_be_targets_instead_of_labels():
    assert list(suggestions(column(["a", "b", "c"]), texts=True)) == ["target"]


def test_classes_are_smoothed_and_values_are_not(tmp_path):
    rows = [f"{'ab'[i % 2] * 4}\t{'xy'[i % 2]}\t{i / 7:.3f}" for i in range(60)]
    (tmp_path / "t.tsv").write_text("\n".join(["text\tkind\tsize", *rows]) + "\n")
    label, lines = plan_recipe([tmp_path / "t.tsv"], data={"input": "text", "target": "kind"})
    assert label.task.name == "label" and label.train.label_smoothing == 0.1
    assert "task label, characters" in lines[0] and "for 60 records" in lines[1]
    value, _ = plan_recipe([tmp_path / "t.tsv"], data={"input": "text", "target": "size"})
    assert value.task.name == "value" and value.train.label_smoothing == 0
    assert value.output is None and value.input.name == "text"


def test_molecules_are_recognised_whatever_their_column_is_called(tmp_path):
    """Only a column named smiles was; copies of a molecule in another were not found."""
    chains = [f"{'C' * n}(=O){tail}" for n in range(1, 6) for tail in ("O", "N", "OC")]
    path = tmp_path / "m.csv"
    path.write_text("mol,y\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(chains)))
    data = {"train": [str(path)], "input": "mol", "target": "y"}
    tables = {"task": {"name": "label"}, "data": data}
    chosen, lines = fill_defaults(tables)
    assert (chosen["input"]["name"], chosen["input"]["tokenizer"]) == ("chemistry", "smiles")
    assert "smiles (the texts are SMILES of molecules)" in lines[0]
    asked = fill_defaults({**tables, "input": {"tokenizer": "characters"}})[0]
    assert asked["input"]["tokenizer"] == "characters"
    path.write_text("mol,y\n" + "".join(f"{'CN' * n},{n % 2}\n" for n in range(1, 20)))
    assert fill_defaults(tables)[0]["input"]["tokenizer"] != "smiles"


def test_weighted_classes_count_the_same():
    class Targets:
        task, classes = "label", (("a", "b", "c"),)

    class Train:
        targets = np.array([0, 0, 0, 1, -1, 2, 2], np.int32)

    class Corpus:
        targets, train = Targets, Train

    weights = class_weights(Corpus)
    counts = torch.tensor([3.0, 1.0, 2.0])
    torch.testing.assert_close(weights * counts, torch.full((3,), 2.0))


def test_labels_may_start_from_any_task_with_a_head_and_make_a_new_one():
    task = TASKS["label"]
    assert {"masked", "value"} <= set(task.starts_from) and not task.keeps_head
