"""Lists of runs: what is found, what is said of each, and what may be removed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from regard.errors import UserError
from regard.run_folders import (
    check_removable,
    complete,
    describe,
    find,
    is_comparison,
    is_run,
    mark_latest,
    measurements,
    remove,
    row_run,
    winner,
)


def make_run(folder, model="cnn", value=0.9, when=1000.0, **metadata):
    """Write the files of a run that a list reads."""
    folder.mkdir(parents=True)
    train = 'train = ["/data/a.tsv", "/data/b.tsv", "/data/c.tsv"]'
    (folder / "recipe.toml").write_text(f'[task]\nname = "label"\n[data]\n{train}\n')
    (folder / "config.json").write_text(json.dumps({"task": "label", "family": model}))
    metrics = {"accuracy": {"value": value, "low": value - 0.1, "high": 1.0}}
    document = {"outcome": "done", "metrics": {"valid": {}, "test": metrics}, **metadata}
    (folder / "regard.json").write_text(json.dumps(document))
    os.utime(folder / "regard.json", (when, when))
    return folder


def make_comparison(folder, models=("svm", "cnn"), **more):
    """Write a comparison of runs, the first the best."""
    rows = [{"model": m, "metrics": {"accuracy": {"value": 0.5}}} for m in models]
    for model in models:
        make_run(folder / model, model)
    document = {"task": "label", "split": "test", "ranked_by": "accuracy", "verdict": "Use svm."}
    (folder / "compare.json").write_text(json.dumps(document | {"rows": rows} | more))
    return folder


def test_runs_are_found_newest_first_and_a_comparison_is_its_best_row(tmp_path):
    make_run(tmp_path / "old", when=1000.0)
    make_run(tmp_path / "deep" / "in" / "new", when=3000.0)
    make_run(tmp_path / "old" / "candidates" / "inner", when=9000.0)
    comparison = make_comparison(tmp_path / "compared")
    os.utime(comparison / "compare.json", (2000.0, 2000.0))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "compare.md").write_text("nothing")
    entries = find(tmp_path)
    assert [entry.path.name for entry in entries] == ["new", "compared", "old"]
    assert [entry.model for entry in entries] == ["cnn", "svm, best of 2", "cnn"]
    assert entries[0].data == "a.tsv, b.tsv + 1" and entries[0].task == "label"
    assert entries[0].result == "accuracy 0.9 [0.8, 1]"
    assert {entry.path.name for entry in find(comparison)} == {"svm", "cnn"}
    assert [entry.path for entry in find(tmp_path / "old")] == [tmp_path / "old"]


def test_the_document_of_a_run_has_no_infinity_and_its_bytes_count_once(tmp_path):
    infinite = {"nats_per_symbol": {"value": None, "infinite": True, "impossible": 3}}
    run = make_run(tmp_path / "run", metrics={"test": infinite})
    (run / "model.safetensors").write_bytes(b"x" * 1000)
    os.link(run / "model.safetensors", run / "again.safetensors")
    entry = describe(run)
    assert entry.result == "nats per symbol infinite"
    document = entry.to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["metric"] == {
        "name": "nats_per_symbol",
        "split": "test",
        **infinite["nats_per_symbol"],
    }
    files = {p.stat().st_ino: p.stat().st_size for p in run.iterdir()}
    assert document["bytes"] == sum(files.values()) and document["state"] == "done"


def test_what_is_not_finished_or_damaged_is_listed_as_such(tmp_path):
    run = make_run(tmp_path / "half")
    (run / "regard.json").unlink()
    make_run(tmp_path / "torn")
    (tmp_path / "torn" / "regard.json").write_text("{")
    by_name = {entry.path.name: entry for entry in find(tmp_path)}
    assert by_name["half"].state == "not finished" == by_name["half"].result
    assert "is damaged" in by_name["torn"].state


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        find(tmp_path / "nowhere")


@pytest.mark.parametrize("fold", ["", "fold-000"])
def test_the_winner_is_the_run_of_the_first_row(tmp_path, fold):
    comparison = make_comparison(tmp_path / "compared")
    if fold:
        shutil.move(comparison / "svm", tmp_path / "kept")
        shutil.move(tmp_path / "kept", comparison / "svm" / fold)
    assert winner(comparison) == comparison / "svm" / fold
    shutil.rmtree(comparison / "svm")
    assert winner(comparison) is None
    assert winner(tmp_path) is None and winner(comparison / "cnn") is None


@pytest.mark.parametrize("place", ["svm", "words/svm", "words/svm/fold-000"])
def test_the_run_of_a_row_is_found_in_a_folder_that_was_moved(tmp_path, place):
    run = make_run(tmp_path / "now" / place)
    row = {"model": "svm words", "metrics": {}, "runs": [f"/elsewhere/{place}"]}
    assert row_run(tmp_path / "now", row) == run
    assert row_run(tmp_path / "empty", row | {"runs": [str(run)]}) is None  # not in there


def test_a_folder_with_a_recipe_alone_is_no_run(tmp_path):
    (tmp_path / "recipe.toml").write_text("[data]\n")
    assert not is_run(tmp_path) and not is_comparison(tmp_path)
    (tmp_path / "data").mkdir()
    assert is_run(tmp_path)


def test_the_latest_run_is_a_link_that_is_replaced_and_goes_with_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark_latest(make_run(tmp_path / "elsewhere"))
    assert not Path("runs").exists()  # nothing is made for it
    first, second = (make_run(Path("runs") / name) for name in ("first", "second"))
    for run in (first, second):
        mark_latest(run)
        assert Path("runs/latest").resolve() == run.resolve()
    assert os.readlink("runs/latest") == "second"  # a folder that is moved keeps it
    mark_latest(Path("runs/missing"))
    assert Path("runs/latest").resolve() == second.resolve()
    assert [entry.path.name for entry in find(Path("runs"))] == ["first", "second"]
    remove(Path("runs/latest"))
    assert not second.exists() and not Path("runs/latest").is_symlink() and first.exists()


def test_a_file_called_latest_is_left_alone(tmp_path):
    (tmp_path / "latest").write_text("mine")
    mark_latest(make_run(tmp_path / "run"), tmp_path)
    assert (tmp_path / "latest").read_text() == "mine"


def test_only_runs_and_comparisons_are_removed(tmp_path, monkeypatch):
    run, comparison = make_run(tmp_path / "run"), make_comparison(tmp_path / "compared")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.toml").write_text("[data]\n")
    for folder, reason in (
        (tmp_path / "mine", "neither a run nor a comparison"),
        (tmp_path, "neither a run nor a comparison"),
        (tmp_path / "nowhere", "no such folder"),
    ):
        with pytest.raises(UserError, match=reason):
            remove(folder)
    monkeypatch.chdir(run)
    with pytest.raises(UserError, match="the current folder is in it"):
        check_removable(Path("."))
    monkeypatch.chdir(tmp_path)
    for folder in (run, comparison):
        remove(folder)
        assert not folder.exists()
    assert (tmp_path / "mine" / "recipe.toml").exists()


def test_paths_of_runs_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/names"))
    make_run(Path("runs/numbers"))
    make_comparison(Path("runs/compared"))
    assert complete("runs/n") == ["runs/names", "runs/numbers"]
    assert complete("runs/c") == ["runs/compared/"] and complete("ru") == ["runs/"]
    assert complete("runs/compared/s") == ["runs/compared/svm"] and complete("no/such") == []


def test_measurements_are_those_of_an_event_under_a_key(tmp_path):
    events = [
        {"event": "train", "step": 1, "seconds": 0.5, "metric": "rmse", "value": 2.0},
        {"event": "valid", "step": 1, "seconds": 0.5, "metric": "rmse", "value": None},
        {"event": "train", "step": 2, "seconds": 1.0, "learning_rate": 0.1},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    assert [(m.step, m.value, m.metric) for m in measurements(tmp_path, "train")] == [
        (1, 2.0, "rmse")
    ]
    assert not list(measurements(tmp_path, "valid"))
    (rate,) = measurements(tmp_path, "train", "learning_rate")
    assert (rate.step, rate.value, rate.metric) == (2, 0.1, "learning_rate")


def test_an_imported_model_is_not_called_unfinished(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"task": "next", "family": "transformer"}))
    (tmp_path / "regard.json").write_text(json.dumps({"imported_from": "GPT2LMHeadModel"}))
    assert describe(tmp_path).state == "imported"
