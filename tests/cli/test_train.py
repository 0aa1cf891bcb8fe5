"""regard train, as its three users run it."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
import tomllib

import pytest
import torch

from regard.storage import read_tensors
from regard.training import loop, throughput
from regard.training.trainer import Trainer

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=8", "--set=train.batch_tokens=64"]
VARYING = ("seconds", "read_per_second", "memory_bytes")


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in VARYING} for line in lines]


def test_without_a_recipe_two_lines_say_what_was_chosen_and_why(cli, words, tmp_path):
    found = cli("train", words, "--set=train.steps=2", *SMALL, "--out", "run")
    assert found.code == 0
    first, second, third = found.err.splitlines()[:3]
    assert first.startswith("data: lines (") and "characters (an alphabet of 5" in first
    assert second.startswith("model: transformer") and "2 steps, as asked" in second
    assert third.startswith("training ")
    assert "valid" in found.out and "→ run" in found.out
    assert "\x1b" not in found.out + found.err  # no colours where there is no terminal


def test_the_saved_recipe_shows_every_default_and_trains_the_same_model_again(cli, words, tmp_path):
    assert cli("train", words, "--set=train.steps=6", *SMALL, "--out", "first").code == 0
    recipe = tomllib.loads((tmp_path / "first" / "recipe.toml").read_text())
    assert set(recipe) == {"task", "data", "output", "model", "train"}
    assert recipe["train"]["steps"] == 6 and recipe["train"]["lr"] > 0
    assert recipe["data"]["format"] == "lines" and recipe["output"]["tokenizer"] == "characters"
    assert recipe["model"]["norm"] == "rms"
    assert cli("train", "first/recipe.toml", "--out", "second").code == 0
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("first", "second")]
    assert weights[0] == weights[1]
    assert metrics(tmp_path / "first") == metrics(tmp_path / "second")
    facts = [json.loads((tmp_path / n / "regard.json").read_text()) for n in ("first", "second")]
    assert facts[0]["metrics"] == facts[1]["metrics"]


def test_json_is_one_document_and_alone_on_stdout(cli, words):
    found = cli("train", words, "--model", "bigram", "--json", "--out", "run")
    document = found.document
    assert document["outcome"] == "done" and document["run"] == "run"
    assert set(document["metrics"]) == {"valid", "test"}
    assert "data: lines" in found.err


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("train.stepz=3", "did you mean 'steps'"),
        ("model.nlayers=3", "did you mean 'n_layers'"),
        ("trian.steps=3", "did you mean 'train'"),
        ("train.steps=many", "train.steps"),
        ("train.lr=-1", "lr must be positive"),
        ("steps", "table.key=value"),
        ("model.d_model=0", "positive whole number"),
    ],
)
def test_a_wrong_setting_is_named_with_a_hint_before_anything_is_written(
    cli, words, tmp_path, option, hint
):
    found = cli("train", words, "--set", option, "--out", "run")
    assert found.code == 2
    assert hint in found.err and len(found.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_minutes_become_steps_that_give_the_same_weights_when_given_directly(
    cli, words, tmp_path, monkeypatch
):
    """The calibration trains a few steps; nothing of them may be left in the run."""
    monkeypatch.setattr(throughput, "REPLANNED", ())
    found = cli(
        "train", words, "--minutes", "0.03", *SMALL, "--set=train.eval_every=1000", "--out", "timed"
    )
    assert found.code == 0
    steps = tomllib.loads((tmp_path / "timed" / "recipe.toml").read_text())["train"]["steps"]
    assert steps > 1
    direct = [f"--set=train.steps={steps}", "--set=train.eval_every=1000"]
    assert cli("train", words, *direct, *SMALL, "--out", "direct").code == 0
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("timed", "direct")]
    assert weights[0] == weights[1]
    assert metrics(tmp_path / "timed") == metrics(tmp_path / "direct")


def test_calibration_fits_steps_validations_and_the_last_measurement_into_the_time(
    words, tmp_path, monkeypatch
):
    """A clock that counts work instead of time shows what a run of so many steps would cost."""
    from regard.data.corpus import prepare
    from regard.planning import plan_recipe
    from regard.training.progress import Reporter
    from regard.training.trainer import Session

    recipe, _ = plan_recipe([words], assignments=[o.removeprefix("--set=") for o in SMALL])
    session = Session(tmp_path, False, Reporter(quiet=True), 0.0)
    trainer = session.trainer(recipe, prepare(recipe, tmp_path, print), None)
    work = {"clock": 0.0, "steps": 0, "tokens": 0}
    monkeypatch.setattr(loop.time, "monotonic", lambda: work["clock"])

    def step(number):
        work["clock"] += 2.0
        work["steps"] += 1
        return 1.0, 1

    def cost(shard):
        work["clock"] += 0.001 * shard.tokens

    monkeypatch.setattr(trainer, "take_step", step)
    monkeypatch.setattr(trainer, "cost", cost)
    clock = throughput.Clock(work["clock"], 10_000.0)
    pace = throughput.measure(trainer, 300.0)
    steps = pace.steps_within(clock)
    valid, test = trainer.corpus.valid.tokens, trainer.corpus.test.tokens
    evaluations = -(-steps // trainer.validations(steps)[0])
    whole = (
        2.0 * steps
        + 0.001 * (evaluations * valid + 2 * (valid + test))
        + evaluations * throughput.SAVING
    )
    assert 0.99 * clock.left < whole + pace.closing(10_000.0) <= clock.left


def test_resume_without_a_checkpoint_starts_over_and_says_so(cli, words):
    found = cli("train", words, "--resume", "--set=train.steps=2", *SMALL, "--out", "run")
    assert found.code == 0
    assert "no checkpoint in run: starting from the beginning" in found.err


def test_a_run_that_goes_on_keeps_its_recipe_and_says_so(cli, words, tmp_path):
    assert cli("train", words, "--set=train.steps=4", *SMALL, "--out", "run").code == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    found = cli("train", words, "--set=train.steps=9", "--out", "run", "--resume")
    assert found.code == 0
    assert "recipe.toml decides" in found.err and "from step 4" in found.err
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_folder_that_is_taken_is_not_overwritten(cli, words, bigram):
    found = cli("train", words, "--model", "bigram", "--out", bigram)
    assert found.code == 1
    assert "go on with it (--resume)" in found.err


def test_default_folders_are_numbered(cli, words, tmp_path):
    for _ in range(2):
        assert cli("train", words, "--model", "bigram").code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir() if not p.is_symlink()) == [
        "words-bigram",
        "words-bigram-2",
    ]


def test_patience_stops_a_run_and_the_best_model_is_kept(cli, words, tmp_path):
    options = [
        "--set=train.lr=2",
        "--set=train.adam_lr=1",
        "--set=train.eval_every=1",
        "--set=train.clip=0",
    ]
    found = cli(
        "train", words, "--set=train.steps=60", "--set=train.patience=3", *options, *SMALL,
        "--out", "run", "--json",
    )  # fmt: skip
    assert found.code == 0
    assert found.document["outcome"] == "early" and found.document["steps"] < 60
    values = [m for m in metrics(tmp_path / "run") if m["event"] == "valid"]
    best = min(values, key=lambda m: m["value"])
    assert values[-1]["step"] == best["step"] + 3
    last = read_tensors(
        tmp_path / "run" / "checkpoints" / f"step-{values[-1]['step']:06d}" / "model.safetensors"
    )
    kept = read_tensors(tmp_path / "run" / "model.safetensors")
    assert not all(torch.equal(kept[name], last[name]) for name in kept)
    again = cli(
        "train", words, "--out", "run", "--resume", "--json"
    )  # patience is still at its end
    assert again.document["steps"] == found.document["steps"]


def test_an_exploding_run_stops_before_the_update_naming_step_tensor_and_records(
    cli, words, tmp_path
):
    options = ["--set=train.lr=1e30", "--set=train.adam_lr=1e30", "--set=train.eval_every=50"]
    found = cli("train", words, "--set=train.steps=50", *options, *SMALL, "--out", "run")
    assert found.code == 1
    error = found.err.splitlines()[-1]
    assert error.startswith("error: step ") and "not finite" in error
    assert "the update was not made" in error and "Training records in this step:" in error


def test_strict_refuses_records_longer_than_the_context(cli, words):
    found = cli(
        "train", words, "--strict", "--set=model.max_len=4", "--set=train.steps=1", "--out", "r"
    )
    assert found.code == 1
    assert "longer than model.max_len = 4" in found.err


def check_saved(code, out, err, run, words, number):
    assert code == 128 + number
    assert out == ""
    *_, said, command = err.splitlines()
    assert said.startswith("stopped at step ") and "saved. Go on with:" in said
    assert command.strip() == f"regard train {words} --out {run.name} --resume"
    assert len(list((run / "checkpoints").glob("step-*"))) == 1


def test_a_ctrl_c_saves_and_prints_the_command_that_goes_on(cli, words, tmp_path, monkeypatch):
    report = Trainer.report

    def interrupted(trainer, *arguments):
        report(trainer, *arguments)
        if trainer.progress.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "report", interrupted)
    found = cli("train", words, "--set=train.steps=100", *SMALL, "--out", "run")
    check_saved(found.code, found.out, found.err, tmp_path / "run", words, signal.SIGINT)
    assert "stopped at step 3" in found.err
    as_json = cli("train", words, "--out", "run", "--resume", "--json")
    assert as_json.document["steps"] == 100  # it passes step 3 unharmed: that one is done


def test_sigterm_from_outside_saves_within_half_a_minute(words, tmp_path):
    command = [sys.executable, "-m", "regard", "train", str(words), "--out", "run", *SMALL]
    command += ["--set=train.steps=100000", "--set=train.checkpoint_every=100000"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 60
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    began = time.monotonic()
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    check_saved(process.returncode, out, err, tmp_path / "run", words, signal.SIGTERM)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_every_file_of_a_run_has_the_mode_that_the_umask_gives(cli, words, tmp_path, umask):
    """Weights were once readable by their owner alone, also on a disk that is shared."""
    before = os.umask(umask)
    try:
        assert cli("train", words, "--set=train.steps=2", *SMALL, "--out", "run").code == 0
    finally:
        os.umask(before)
    paths = list((tmp_path / "run").rglob("*"))
    assert {"model.safetensors", "metrics.jsonl", "checkpoint.json"} <= {p.name for p in paths}
    for path in paths:
        expected = (0o777 if path.is_dir() else 0o666) & ~umask
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
