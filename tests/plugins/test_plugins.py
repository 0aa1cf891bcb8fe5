"""A package outside of regard adds a model, a tokenizer, a task, a modality, a metric, a format of
tables and a logger through entry points, and all of them work from the command line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import pytest

import regard.cli

PACKAGE = Path(__file__).parent / "package"
SOURCE = Path(regard.__file__).parents[1]
SIZES = ["--set=model.n_layers=1", "--set=model.d_model=16", "--set=train.steps=4"]
FORKS = multiprocessing.get_context("forkserver")  # each process afresh, but torch imported once
FORKS.set_forkserver_preload(["regard.api", "regard.cli"])


def as_command(folder, package, printed, arguments):
    """Run the command line in this process, which has found no plugins yet."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(printed / name, os.O_WRONLY | os.O_CREAT), number)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(folder)
    sys.path.insert(0, str(package))
    regard.cli.main(arguments)


def run_regard(folder, *arguments, package=PACKAGE):
    """Run the command line in a folder, with the package installed; return the process."""
    with TemporaryDirectory() as temporary:
        printed = Path(temporary)
        process = FORKS.Process(target=as_command, args=(folder, package, printed, arguments))
        process.start()
        process.join(120)
        if process.exitcode is None:
            process.kill()
        out, err = ((printed / name).read_text() for name in ("out", "err"))
    return CompletedProcess(arguments, process.exitcode, out, err)


def succeed(folder, *arguments):
    """Run the command line; return its JSON document."""
    process = run_regard(folder, *arguments, "--json")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture
def names(tmp_path):
    syllables = ["an", "be", "ci", "do", "ulla", "eri"]
    lines = [a + b for a in syllables for b in syllables] * 2
    (tmp_path / "names.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_model_and_a_tokenizer_train_and_are_loaded_again(names):
    train = ["train", "names.txt", "--model", "add-one", "--tokenizer", "vowels", "--out", "run"]
    trained = succeed(names, *train)
    assert trained["outcome"] == "done"
    tokenizer = json.loads((names / "run" / "tokenizer.json").read_text())
    assert set(tokenizer["model"]["vocab"]) - set("aeiou") == {"<pad>", "<S>", "<E>", "<unk>"}
    config = json.loads((names / "run" / "config.json").read_text())
    assert (config["family"], config["task"]) == ("add-one", "next")
    measured = succeed(names, "evaluate", "run")
    assert measured["metrics"]["nats_per_symbol"] == pytest.approx(
        trained["metrics"]["test"]["nats_per_symbol"]
    )
    generated = run_regard(names, "generate", "run", "--seed", "1")
    assert generated.returncode == 0 and set(generated.stdout) <= set("aeiou\n")


def test_a_run_says_which_package_it_needs_where_that_is_missing(names, tmp_path):
    """The message was: config.json is damaged, did you mean 'gru'?"""
    train = ["train", "names.txt", "--model", "add-one", "--out", "run"]
    assert succeed(names, *train)["outcome"] == "done"
    empty = tmp_path / "no-packages"
    empty.mkdir()
    for verb in (["generate", "run"], ["evaluate", "run"], ["show", "run"]):
        process = run_regard(names, *verb, package=empty)
        if verb[0] != "show":  # it needs no model
            assert process.returncode == 1 and process.stderr.count("\n") == 1
            assert "its model 'add-one' is defined in 'regard_example.models'" in process.stderr
            assert "the group 'regard.models'" in process.stderr
        assert "damaged" not in process.stderr


def test_a_task_uses_the_models_of_its_base_and_a_metric_joins_its_report(tmp_path):
    rows = [f"{'abc'[i % 3] * (2 + i % 4)}{i}\t{('low', 'mid', 'top')[i % 3]}" for i in range(90)]
    (tmp_path / "t.tsv").write_text("\n".join(["text\tsize", *rows]) + "\n")
    train = ["train", "t.tsv", "--task", "ordinal", "--descending", "true", "--target", "size"]
    trained = succeed(tmp_path, *train, "--input", "text", "--out", "run", *SIZES)
    assert "top2" in trained["metrics"]["test"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"] == "ordinal"
    recipe = (tmp_path / "run" / "recipe.toml").read_text()
    assert 'name = "ordinal"\ndescending = true' in recipe
    metrics = succeed(tmp_path, "evaluate", "run")["metrics"]
    assert 1 >= metrics["top2"]["value"] >= metrics["accuracy"]["value"]
    predictions = succeed(tmp_path, "predict", "run", "t.tsv")["predictions"]
    assert all(one["prediction"] in ("low", "mid", "top") for one in predictions)
    fitted = succeed(tmp_path, *train, "--input", "text", "--model", "svm", "--out", "fitted")
    assert fitted["outcome"] == "done"


def test_files_of_a_modality_are_recognized_and_read(tmp_path):
    walk = "left\nright\nup\n\n"
    (tmp_path / "walks.steps").write_text(walk * 20 + "down\nup\n\n" * 20)
    process = run_regard(tmp_path, "train", "walks.steps", "--model", "bigram", "--out", "run")
    assert process.returncode == 0, process.stderr
    assert "steps (by the names of the files)" in process.stderr
    assert 'name = "steps"' in (tmp_path / "run" / "recipe.toml").read_text()
    data = json.loads((tmp_path / "run" / "regard.json").read_text())["data"]
    assert data["input"]["name"] == "steps"
    generated = run_regard(tmp_path, "generate", "run", "--seed", "3", "--num", "40")
    assert generated.returncode == 0, generated.stderr
    assert set(generated.stdout.split()) == {"lru", "du"}
    measured = succeed(tmp_path, "evaluate", "run", "walks.steps")
    assert (measured["records"], measured["symbols"]) == (40, 40 * 3.5)  # with their ends
    scored = succeed(tmp_path, "score", "run", "walks.steps")["records"]
    assert [one["tokens"][:-1] for one in scored] == [[*"lru"]] * 20 + [[*"du"]] * 20


def test_a_format_of_tables_is_read_wherever_tables_are(tmp_path):
    rows = [f"{'ab'[i % 2] * (2 + i % 4)}{i}|{('low', 'top')[i % 2]}" for i in range(60)]
    (tmp_path / "t.psv").write_text("\n".join(["word|size", *rows]) + "\n")
    report = succeed(tmp_path, "data", "t.psv", "--input", "word", "--target", "size")
    assert report["records"] == 60
    train = ["train", "t.psv", "--input", "word", "--target", "size", "--model", "naive-bayes"]
    assert succeed(tmp_path, *train, "--out", "run")["outcome"] == "done"
    (tmp_path / "new.psv").write_text("id|word\nx1|aaa\nx2|bbb\n")
    predictions = succeed(tmp_path, "predict", "run", "new.psv")["predictions"]
    assert [(one["id"], one["prediction"]) for one in predictions] == [("x1", "low"), ("x2", "top")]


def test_a_logger_gets_the_metrics_of_training(names):
    train = ["train", "names.txt", "--model", "cnn", "--log", "lines", "--out", "run"]
    trained = succeed(names, *train, *SIZES)
    lines = [line.split() for line in (names / "run" / "lines.txt").read_text().splitlines()]
    logged = {(int(step), name): float(value) for step, name, value in lines}
    assert {step for step, name in logged if name == "train/bits_per_symbol"} == {1, 2, 3, 4}
    final = trained["metrics"]["test"]["nats_per_symbol"]["value"]
    assert logged[4, "final/test_nats_per_symbol"] == pytest.approx(final)


def test_help_lists_the_settings_of_plugins(tmp_path):
    """In a process as a shell starts it."""
    path = os.pathsep.join(map(str, (PACKAGE, SOURCE)))
    command = [sys.executable, "-m", "regard", "train", "--help"]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    assert "--descending" in process.stdout


def test_without_the_package_its_names_are_unknown(names):
    process = run_regard(names, "train", "names.txt", "--model", "add-one", package=names)
    assert process.returncode == 2
    assert "unknown model 'add-one'" in process.stderr


def test_a_broken_plugin_is_named(names):
    folder = names / "broken-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (folder / "entry_points.txt").write_text("[regard.models]\nsome = broken_package\n")
    process = run_regard(names, "train", "names.txt", package=names)
    assert process.returncode == 1 and "Traceback" not in process.stderr
    assert "plugin 'some' of regard.models (broken_package) cannot be loaded" in process.stderr
