"""The screen Train: orders become command lines, which do what they say."""

import dataclasses
import shlex
import time

import pytest

from regard.api import train_recipe
from regard.data.table_columns import columns_in
from regard.planning import plan_recipe


def test_an_order_is_the_command_that_a_user_would_type(studio):
    order = {"files": ["names.txt"], "model": "bigram", "minutes": 0.5, "task": "next"}
    found = studio.call("train", "command", order=order)
    assert found["command"] == (
        "regard train names.txt --task next --model bigram --minutes 0.5 --out runs/names-bigram"
    )
    assert found["run"] == "names-bigram"
    again = studio.call("train", "command", order={"files": ["names.txt"]})
    assert again["run"] == "names-2"  # runs/names is there
    given = {"files": ["names.txt"], "out": "a/b.c", "target": "-x y"}
    words = shlex.split(studio.call("train", "command", order=given)["command"])
    assert words[-3:] == ["--target=-x y", "--out", "runs/a/b.c"]
    given |= {"settings": ["train.lr=3e-4", "input.id=a b"]}
    words = shlex.split(studio.call("train", "command", order=given)["command"])
    assert words[-4:] == ["--set", "train.lr=3e-4", "--set", "input.id=a b"]


def test_held_out_files_and_settings_of_tasks_are_options(studio):
    """The options are those that `regard train` reads: its parser gives them back."""
    import typer

    from regard import cli

    order = {
        "files": ["names.txt"],
        "valid": ["names.txt"],
        "test": ["names.txt", "runs"],
        "pretrain": "runs/names",
        "strict": True,
        "film": True,
        "settings": ["tokenizer=bytes", "shared_vocab=false", "train.lr=3e-4"],
    }
    words = shlex.split(studio.call("train", "command", order=order)["command"])
    assert words[:2] == ["regard", "train"]
    if not cli.app.registered_commands:
        cli._fill()
    train = typer.main.get_command(cli.app).commands["train"]
    read = train.make_context("train", words[2:])
    values = {name: value for name, value in read.params.items() if value}
    assert [str(path) for path in values["files"]] == ["names.txt"]
    assert [str(path) for path in values["valid"]] == ["names.txt"]
    assert [str(path) for path in values["test"]] == ["names.txt", "runs"]
    assert str(values["pretrain"]) == "runs/names" and values["strict"] and values["film"]
    assert list(values["set_"]) == ["train.lr=3e-4"]
    assert read.args == ["--tokenizer", "bytes", "--shared-vocab", "false"]


def test_the_list_of_settings_is_that_of_the_classes(studio):
    """Every field of every class that a recipe can name is listed with its default."""
    from regard.recipe import DataRecipe, TrainRecipe, toml_value
    from regard.registry import AUGMENTATIONS, MODALITIES, MODELS, TASKS, resolve

    rows = {row["key"]: row for row in studio.call("train", "settings")["settings"]}
    classes = [("data", DataRecipe, ""), ("train", TrainRecipe, "")]
    classes += [("task", TASKS[name].Config, name) for name in TASKS]
    classes += [("input", MODALITIES[name].Config, name) for name in MODALITIES]
    classes += [("augment", AUGMENTATIONS[name].Config, name) for name in AUGMENTATIONS]
    keys = set()
    for table, cls, owner in classes:
        for one in dataclasses.fields(cls):
            if one.name == "name":
                continue
            row = rows[f"{table}.{one.name}"]
            keys.add(row["key"])
            value = list(one.default) if isinstance(one.default, tuple) else one.default
            assert row["default"] == toml_value(value) and row["what"] and row["values"]
            assert not owner or owner in row["of"]
    for entry in MODELS.entries:
        for one in dataclasses.fields(resolve(entry.target).Config):
            if one.name != "name":
                row = rows[f"model.{one.name}"]
                keys.add(row["key"])
                assert not row["of"] or entry.name in row["of"]
    assert rows.keys() - keys == {"model.name", "model.preset", "model.size", "model.choose"}
    assert rows["input.horizon"]["name"] == "horizon" and rows["train.lr"]["name"] == "train.lr"
    assert rows["train.schedule"]["choices"] == ["cosine", "linear", "inverse_sqrt"]
    assert rows["data.valid"]["field"] == "--valid" and not rows["train.lr"]["field"]
    for row in rows.values():  # what is offered is taken, and what is not is refused
        order = {"files": ["names.txt"], "settings": [f"{row['name']}=x"]}
        if row["field"] in (
            "",
            "--strict",
            "--input",
            "--target",
            "--model",
            "--minutes",
            "--film",
        ):
            assert shlex.split(studio.call("train", "command", order=order)["command"])
        else:
            assert "command line" in studio.refused("train", "command", order=order), row


def test_masked_models_are_offered_as_starts(studio):
    names = studio.opened.data_folder / "names.txt"
    keys = ["train.steps=2", "model.n_layers=1", "model.d_model=32", "train.batch_tokens=200"]
    recipe, _ = plan_recipe([names], task={"name": "masked"}, assignments=keys)
    train_recipe(recipe, studio.opened.root / "masked")
    assert studio.call("train", "choices")["runs"] == ["runs/masked"]
    table = next(path.name for path in studio.opened.data_folder.glob("*.csv"))
    order = {"files": [table], "target": "label", "pretrain": "runs/masked", "minutes": 0.1}
    plan = studio.wait_for(studio.call("train", "plan", order=order)["number"])
    assert plan["state"] == "done", plan["lines"]
    assert "--pretrain runs/masked" in plan["command"]


def test_columns_that_are_files_are_confined(studio):
    (studio.opened.data_folder / "labels.npy").symlink_to("/etc/hostname")
    for target in ("/etc/hostname", "labels.npy", "a,labels.npy"):
        for screen, action, more in (
            ("train", "command", {"order": {"files": ["names.txt"], "target": target}}),
            ("train", "look", {"files": ["names.txt"], "target": target}),
            ("data", "report", {"files": ["names.txt"], "target": target}),
        ):
            assert "is neither in" in studio.refused(screen, action, **more)
    order = {"files": ["names.txt"], "settings": ["data.target=labels.npy"]}
    assert "is neither in" in studio.refused("train", "command", order=order)


def test_what_files_hold_narrows_the_settings(studio):
    assert "text" in studio.call("train", "look", files=["names.txt"])["modalities"]
    rows = "".join(f"2024-01-{d:02d}\t{d % 7}\n" for d in range(1, 29))
    (studio.opened.data_folder / "series.tsv").write_text(f"time\tvalue\n{rows}")
    assert studio.call("train", "look", files=["series.tsv"])["modalities"] == ["time-series"]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"files": []}, "name a file"),
        ({"files": ["no.txt"]}, "no such file"),
        ({"files": ["../names.txt"]}, "neither in"),
        ({"files": ["/etc/passwd"]}, "neither in"),
        ({"files": "names.txt"}, "argument files"),
        ({"files": ["names.txt"], "minutes": -1.0}, "positive"),
        ({"files": ["names.txt"], "minutes": "1"}, "argument minutes"),
        ({"files": ["names.txt"], "out": "../x"}, "leads out|no name|name of a run"),
        ({"files": ["names.txt"], "out": "--help"}, "name of a run"),
        ({"files": ["names.txt"], "set": "x"}, "unknown argument set"),
        ({"files": ["names.txt"], "settings": ["--out=x"]}, "KEY=VALUE"),
        ({"files": ["names.txt"], "valid": ["/etc/passwd"]}, "neither in"),
        ({"files": ["names.txt"], "test": ["../names.txt"]}, "neither in"),
        ({"files": ["names.txt"], "pretrain": "/etc"}, "neither in"),
        ({"files": ["names.txt"], "pretrain": "no.txt"}, "no such file"),
        ({"files": ["names.txt"], "settings": ["forbid=names.txt"]}, "command line"),
        ({"files": ["names.txt"], "settings": ["task.forbid=names.txt"]}, "command line"),
        ({"files": ["names.txt"], "settings": ["tokeniser=bytes"]}, "tokenizer"),
        ({"files": ["names.txt"], "settings": ["out=x"]}, "no setting"),
        ({"files": ["names.txt"], "settings": ["data.valid=[]"]}, "command line"),
        ({"files": ["names.txt"], "settings": ["train.log=['wandb']"]}, "command line"),
        ({"files": ["names.txt"], "settings": ["output.forbid=/etc/passwd"]}, "command line"),
        ({}, "argument files is missing"),
    ],
)
def test_other_orders_are_refused(studio, order, message):
    import re

    found = studio.refused("train", "command", order=order)
    assert re.search(message, found), found


def test_the_columns_of_a_table_are_offered(studio):
    name = next(path.name for path in studio.opened.data_folder.glob("*.csv"))
    found = studio.call("train", "look", files=[name])
    columns = columns_in(studio.opened.data_folder / name, "csv")
    assert [one["words"] for one in found["columns"]] == [one.words for one in columns]
    assert found["question"] is None
    assert "target 'label'" in found["lines"][0]
    assert studio.call("train", "look", files=["names.txt"])["columns"] == []
    assert studio.call("train", "look", files=[])["columns"] == []


def test_an_open_question_comes_with_its_candidates(studio):
    rows = "".join(f"text {i} of it,{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(60))
    (studio.opened.data_folder / "two.csv").write_text(f"text,one,two\n{rows}")
    found = studio.call("train", "look", files=["two.csv"])
    assert "which column is predicted from 'text'?" in found["question"]["text"]
    assert [one["name"] for one in found["columns"] if one["is_target"]] == ["one", "two"]
    assert any("--target one" in line for line in found["question"]["details"])
    assert studio.call("train", "look", files=["two.csv"], target="one")["question"] is None


def test_the_files_that_lie_about_are_listed(studio):
    (studio.opened.data_folder / ".hidden").write_text("")
    (studio.opened.data_folder / "out.txt").symlink_to("/etc/hostname")
    files = studio.call("train", "choices")["files"]
    assert "names.txt" in files
    assert not {".hidden", "out.txt", "runs"} & set(files)


def test_only_an_unfinished_run_goes_on(studio):
    assert "finished" in studio.refused("train", "resume", run="names")
    assert "no such run" in studio.refused("train", "resume", run="nothing")
    assert "no job 99" in studio.refused("train", "stop", number=99)


@pytest.mark.slow
def test_training_is_planned_started_stopped_and_resumed(studio):
    order = {"files": ["names.txt"], "model": "lstm", "minutes": 0.4, "out": "lstm"}
    plan = studio.wait_for(studio.call("train", "plan", order=order)["number"])
    assert plan["state"] == "done" and "parameters" in " ".join(plan["lines"])
    assert not (studio.opened.root / "lstm").exists()
    job = studio.call("train", "start", order=order)
    assert "is being trained" in studio.refused("train", "start", order=order)
    metrics = studio.opened.root / "lstm" / "metrics.jsonl"
    end = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < end:
        time.sleep(0.1)
    assert studio.call("runs", "table")["live"]
    assert "being trained" in studio.refused("runs", "remove", run="lstm")
    studio.call("train", "stop", number=job["number"])
    stopped = studio.wait_for(job["number"])
    assert stopped["state"] == "stopped", stopped
    assert any("Go on with" in line for line in stopped["lines"])
    resumed = studio.wait_for(studio.call("train", "resume", run="lstm")["number"], 240)
    assert resumed["state"] == "done", resumed
    assert studio.call("runs", "card", run="lstm")["state"] == ""
