"""The screen Train: orders become command lines, which do what they say."""

import shlex
import time

import pytest

from regard.data.table_columns import columns_in


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
