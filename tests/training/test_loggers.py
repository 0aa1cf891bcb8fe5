"""Loggers get what metrics.jsonl gets, go on where a run is resumed, and never end a training."""

import csv
import json
import os
import signal
import sys
import types

import pytest
import torch

from regard.api import plan, train_recipe
from regard.errors import UserError
from regard.registry import LOGGERS
from regard.training import loggers
from regard.training.loggers import CsvLogger, Logger, numbers_of
from regard.training.progress import Reporter

MODEL = {"name": "transformer", "n_layers": 1, "d_model": 8}
TRAIN = {"batch_tokens": 64, "steps": 8}
VARYING = ("_per_second", "/seconds", "/memory_bytes")  # what differs between equal runs


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recipe_for(words, *names):
    return plan([words], model=MODEL, train={**TRAIN, "log": list(names)})[0]


def rows_of(run):
    """The rows of metrics.csv without what differs between equal runs."""
    with open(run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.endswith(VARYING)} for row in rows]


class Interrupter(Reporter):
    """Presses Ctrl-C in the third step."""

    def show(self, status):
        if status.done == 3:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_table_has_a_row_for_each_step_and_goes_on_with_the_run(words, tmp_path):
    recipe, calm, run = recipe_for(words, "csv"), tmp_path / "calm", tmp_path / "run"
    result = train_recipe(recipe, calm)
    events = [json.loads(line) for line in (calm / "metrics.jsonl").read_text().splitlines()]
    rows = rows_of(calm)
    assert [int(row["step"]) for row in rows] == list(range(1, 9))
    trained = {e["step"]: e for e in events if e["event"] == "train"}
    for row in rows:
        event = trained[int(row["step"])]
        for name, key in (("bits_per_symbol", "value"), ("learning_rate", "learning_rate")):
            assert float(row[f"train/{name}"]) == pytest.approx(event[key], rel=1e-9)
    last = rows[-1]
    final = result.splits["test"]["bits_per_symbol"].value
    assert float(last["final/test_bits_per_symbol"]) == pytest.approx(final, rel=1e-9)
    train_recipe(recipe, run, reporter=Interrupter(quiet=True))
    assert [int(row["step"]) for row in rows_of(run)] == [1, 2, 3]
    with open(run / "metrics.csv", "a") as file:
        file.write("4,7,7\n")  # a step after the checkpoint, logged before a kill
    train_recipe(recipe, run, resume=True)
    assert rows_of(run) == rows


def test_a_half_written_table_is_read_up_to_where_it_is_whole(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,a\n1,2\n2,3\n3,")
    logger = CsvLogger(tmp_path, None, 2)
    logger.log(3, {"b": 0.5})
    assert rows_of(tmp_path) == [
        {"step": "1", "a": "2", "b": ""},
        {"step": "2", "a": "3", "b": ""},
        {"step": "3", "a": "", "b": "0.5"},
    ]


class Broken(Logger):
    """Fails in the second step."""

    def log(self, step, values):
        if step == 2:
            raise OSError("the line is down\nbecause of this and that")


def test_a_logger_that_fails_is_left_out_with_a_warning(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(LOGGERS._targets, "broken", Broken)
    result = train_recipe(recipe_for(words, "broken", "csv"), tmp_path / "run", reporter=Reporter())
    assert result.outcome == "done" and len(rows_of(tmp_path / "run")) == 8
    warnings = [x for x in capsys.readouterr().err.splitlines() if "broken" in x]
    assert warnings == ["warning: --log broken stopped: the line is down"]


def test_a_missing_package_is_one_line_before_anything_is_made(words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--log needs wandb.*pip install wandb$"):
        train_recipe(recipe_for(words, "wandb"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_logger_is_named_with_the_one_that_was_meant(words):
    with pytest.raises(UserError, match="unknown logger 'wandbb'; did you mean 'wandb'"):
        recipe_for(words, "wandbb")


def test_numbers_have_their_true_names_and_are_finite():
    event = {"step": 3, "metric": "rmse", "unit": "that of the values", "value": 1.5}
    more = {"learning_rate": 0.1, "items": "masked tokens", "read_per_second": 60.0, "best": True}
    assert numbers_of("train", event | more) == {
        "train/learning_rate": 0.1,
        "train/rmse": 1.5,
        "train/masked_tokens_per_second": 60.0,
    }
    assert numbers_of("valid", event | {"value": float("inf")}) == {}


class Recorder:
    """Stands for a package of another program, and records the calls of its functions."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            return self

        return call

    def of(self, name):
        return [(arguments, options) for called, arguments, options in self.calls if called == name]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_run_that_is_resumed_has_the_same_name_elsewhere(name, words, tmp_path, monkeypatch):
    module = Recorder()
    module.id, module.info = "run-7", types.SimpleNamespace(run_id="run-7")
    monkeypatch.setitem(sys.modules, name, module)
    recipe, run = recipe_for(words, name), tmp_path / "run"
    train_recipe(recipe, run, reporter=Interrupter(quiet=True))
    assert json.loads((run / loggers.IDS).read_text()) == {name: "run-7"}
    starts = "init" if name == "wandb" else "start_run"
    first = module.of(starts)[0][1]
    assert first.get("id") is None and first.get("run_id") is None
    assert first.get("name", first.get("run_name")) == str(run)
    module.calls.clear()
    train_recipe(recipe, run, resume=True)
    again = module.of(starts)
    assert all(options.get("id", options.get("run_id")) == "run-7" for _, options in again)
    logged = module.of("log" if name == "wandb" else "log_metrics")
    rows = [values | options for (values,), options in logged]
    trained = [row["step"] for row in rows if "train/bits_per_symbol" in row]
    assert trained == [4, 5, 6, 7, 8]  # the first three were logged before
    assert rows[-1]["step"] == 8 and "final/test_nats_per_symbol" in rows[-1]


def test_tensorboard_hides_the_steps_that_are_logged_again(words, tmp_path, monkeypatch):
    made = []

    class SummaryWriter(Recorder):
        def __init__(self, folder, purge_step):
            super().__init__()
            made.append((folder, purge_step, self))

    module = types.ModuleType("torch.utils.tensorboard.writer")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", module)
    recipe, run = recipe_for(words, "tensorboard"), tmp_path / "run"
    train_recipe(recipe, run, reporter=Interrupter(quiet=True))
    train_recipe(recipe, run, resume=True)
    folders, purged, writers = zip(*made, strict=True)
    assert set(folders) == {str(run / "tensorboard")} and purged == (None, 4, 9)
    scalars = [(a[0], a[2]) for writer in writers for a, _ in writer.of("add_scalar")]
    for name in ("train/gradient_norm", "train/bits_per_symbol"):
        assert [step for one, step in scalars if one == name] == list(range(1, 9))
