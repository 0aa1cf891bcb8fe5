"""Keywords of `train`, `plan` and `compare`: what they accept, and where their data goes."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path

import pytest

from regard.api import compare, plan, train
from regard.errors import UsageError, UserError
from regard.keywords import DataInput, Keywords, check_settings, recipe_tables
from regard.registry import MODALITIES, TASKS
from regard.run import SOURCE

OPEN = {"data": {}, "train": {}, "augment": {}}


def tables(target="", input="", task="", model=""):
    return recipe_tables(target, input, task, model, **OPEN)


def test_the_typed_keywords_are_those_of_train_and_every_setting():
    own = set(inspect.signature(train).parameters) - {"source", "out", "task", "settings"}
    settings = {
        field.name: field.type
        for registry in (TASKS, MODALITIES)
        for cls in registry.values()
        if cls.__module__.startswith("regard.")  # others come from packages
        for field in dataclasses.fields(cls.Config)
        if field.name != "name"
    }
    assert set(Keywords.__annotations__) == own | set(settings)
    types = typing.get_type_hints(Keywords)
    for name, annotation in settings.items():
        allowed = {"str": (str, Path), "int": (int,), "float": (float,), "bool": (bool,)}
        if annotation in allowed:  # the others are literals
            assert set(typing.get_args(types[name]) or (types[name],)) & set(allowed[annotation])


def test_plan_and_compare_take_keywords_of_train():
    known = set(inspect.signature(train).parameters)
    for function, more in (
        (plan, set()),
        (compare, {"models", "tokenizers", "seeds", "folds", "scaling"}),
    ):
        assert set(inspect.signature(function).parameters) <= known | more


@pytest.mark.parametrize(
    "keyword, hint",
    [
        ("taget", "did you mean 'target'"),
        ("horizn", "did you mean 'horizon'"),
        ("lr", r"write train=\{'lr': …\}"),
        ("learning_rate", r"write train=\{'lr': …\}"),
        ("epochs", r"write train=\{'steps': …\}"),
        ("folds", r"write data=\{'folds': …\}"),
        ("qqq", r"help\(regard.train\) lists them"),
    ],
)
def test_a_wrong_keyword_is_refused_with_a_hint(keyword, hint):
    with pytest.raises(TypeError, match=f"unknown keyword '{keyword}'; {hint}"):
        check_settings({keyword: 1})


def test_lists_of_columns_are_joined_and_names_make_tables():
    assert check_settings({"known": ["a", "b"], "horizon": 3}) == {"known": "a,b", "horizon": 3}
    assert check_settings({"forbid": Path("a.txt")}) == {"forbid": "a.txt"}
    made = tables(target=["y1", "y2"], task="labels", model={"n_layers": 2})
    assert made["data"] == {"input": None, "target": "y1,y2"}
    assert made["task"] == {"name": "labels"} and made["model"] == {"n_layers": 2}
    assert tables()["model"] == {"name": None}


def test_paths_stay_where_they_are(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    with DataInput(str(path), valid=path).files(None, False, tables()) as files:
        assert files.paths == [path] and files.folder is None
        assert files.tables["data"]["valid"] == [str(path)]
    for wrong, message in (
        (DataInput(path, y=[1]), "of a file, target= names a column"),
        (DataInput(path, test=["a text"]), "test must be a path, as the training data are"),
        (DataInput(["a text"], valid=path), "valid must be data in memory"),
    ):
        with pytest.raises(UsageError, match=message), wrong.files(tmp_path / "x", False, tables()):
            pass


def test_data_in_memory_goes_to_the_folder_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [("a", "x"), ("b", "y")]
    with DataInput(pairs, test=pairs[:1]).files(None, False, tables()) as files:
        assert files.folder == Path("runs/data")
        assert files.paths == [Path("runs/data") / SOURCE / "train.jsonl"]
        data = files.tables["data"]
        assert data["target"] == "target" and data["test"] == [
            str(tmp_path / "runs" / "data" / SOURCE / "test.jsonl")
        ]
    rows = [{"t": "a", "kind": "x"}, {"t": "b", "kind": "y"}]
    with DataInput(rows).files("here", False, tables(target="kind")) as files:
        assert files.folder == Path("here") and files.tables["data"]["target"] == "kind"
    assert DataInput(rows).name(tables(target="kind,other")) == "kind"
    (tmp_path / "here" / "config.json").write_text("{}")
    with (
        pytest.raises(UserError, match=r"here exists and is not empty"),
        DataInput(rows).files("here", False, tables(target="kind")),
    ):
        pass
