"""Training by passes: it ends when it should, and however it was stopped, in the same bits."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from interruptions import finish, kill, outcome, wait_for

import regard.cli
from regard.api import load, train_recipe
from regard.decoding import Beam, Greedy, Sample
from regard.look.language_page import language_page
from regard.planning import plan_recipe
from regard.run import weights
from regard.training import loop
from regard.training.progress import Reporter
from regard.verify import verify

OPTIONS = ["model.n_states=5", "train.checkpoint_every=2"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recipe(file, *more):
    return plan_recipe([file], assignments=[*OPTIONS, *more], model={"name": "hmm"})[0]


def lines(run: Path, event: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["event"] == event]


def test_every_pass_is_logged_and_validated_and_the_best_is_kept(words, tmp_path):
    result = train_recipe(recipe(words, "train.steps=6"), tmp_path / "run")
    trained, valid = (lines(tmp_path / "run", event) for event in ("train", "valid"))
    assert (result.outcome, result.steps) == ("done", 6)
    assert [line["step"] for line in trained] == [line["step"] for line in valid] == [*range(1, 7)]
    losses = [line["value"] for line in trained]
    assert losses[-1] < losses[0]
    best = min(valid, key=lambda line: line["value"])
    facts = json.loads((tmp_path / "run" / "regard.json").read_text())
    assert facts["best_step"] == best["step"] and facts["epochs"] == 6
    assert facts["metrics"]["valid"]["bits_per_symbol"]["value"] == pytest.approx(
        best["value"], abs=1e-6
    )


def test_the_seed_decides_the_result(words, tmp_path):
    found = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_recipe(recipe(words, "train.steps=2", f"train.seed={seed}"), tmp_path / name)
        found.append((tmp_path / name / "model.safetensors").read_bytes())
    assert found[0] == found[1] != found[2]


def test_a_run_that_has_converged_ends_and_stays_ended(words, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CONVERGED", 1e-3)
    run, asked = tmp_path / "run", recipe(words, "train.steps=500")
    result = train_recipe(asked, run)
    assert result.outcome == "done" and 2 < result.steps < 500
    assert json.loads((run / "regard.json").read_text())["converged"] is True
    before = outcome(run)
    again = train_recipe(asked, run, resume=True)
    assert again.steps == result.steps and outcome(run) == before


def test_minutes_are_counted_in_passes_and_trying_one_changes_nothing(
    words,
    tmp_path,
    monkeypatch,
):
    asked = recipe(words, "train.minutes=10")
    monkeypatch.setattr(loop, "PASSES", 3)
    assert train_recipe(asked, tmp_path / "run").steps == 3
    assert "steps = 3" in (tmp_path / "run" / "recipe.toml").read_text()
    train_recipe(recipe(words, "train.steps=3"), tmp_path / "same")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "same")
    corpus = regard.data.corpus.reopen(tmp_path / "run")
    worker = loop.EMLoop(asked, corpus, tmp_path / "run", Reporter(quiet=True))
    before = {name: value.clone() for name, value in weights(worker.model).items()}
    assert worker.within(1e9) == 3
    assert worker.within(-1.0) == 1
    assert all(torch.equal(value, before[name]) for name, value in weights(worker.model).items())


class Interrupter(Reporter):
    """Presses Ctrl-C in the third pass."""

    def show(self, status):
        if status.done == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)


def test_ctrl_c_saves_and_the_resumed_run_ends_like_one_left_alone(words, tmp_path):
    asked = recipe(words, "train.steps=6")
    train_recipe(asked, tmp_path / "calm")
    stopped = train_recipe(asked, tmp_path / "run", reporter=Interrupter(quiet=True))
    assert (stopped.outcome, stopped.signal, stopped.steps) == ("interrupted", signal.SIGINT, 3)
    assert train_recipe(asked, tmp_path / "run", resume=True).outcome == "done"
    assert outcome(tmp_path / "run") == outcome(tmp_path / "calm")


@pytest.mark.slow
def test_a_killed_run_ends_like_one_left_alone(processes, words, tmp_path):
    options = [f"--set={key}" for key in (*OPTIONS, "train.steps=30")]

    def start(run):
        arguments = ["train", str(words), "--out", str(run), "--model", "hmm", "--quiet", *options]
        process = processes.Process(target=regard.cli.main, args=([*arguments, "--resume"],))
        process.start()
        return process

    assert finish(start(tmp_path / "calm")) == 0
    process = start(tmp_path / "killed")
    wait_for(process, tmp_path / "killed" / "checkpoints", ".tmp")
    assert kill(process)
    assert finish(start(tmp_path / "killed")) == 0
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "calm")


def test_a_run_is_verified_and_generates_by_every_strategy(words, tmp_path):
    options = ("train.steps=4", "model.preset=left-right", "task.forbid=unseen")
    train_recipe(recipe(words, *options), tmp_path / "run")
    report = verify(tmp_path / "run")
    assert report.ok, [check for check in report.checks if not check.ok]
    assert "resume bit-equality" in [check.name for check in report.checks]
    generator = load(tmp_path / "run")
    for strategy in (Greedy(), Sample(seed=1), Sample(top_k=2, seed=1), Beam(width=3, n_best=2)):
        for found in generator.generate(["", "ab"], strategy, max_new=8):
            assert found and all(
                set(generator.tokenizer.decode(x.ids)) <= set("abcde") for x in found
            )
    ((tokens, logs),) = generator.score(["abc"])
    assert len(tokens) == len(logs) == 4 and max(logs) < 0
    ids = generator.prompt_ids("ab")
    page = language_page(generator.model, generator.tokenizer, ids, title="ab", continues=False)
    assert "Hidden states" in page.render()
