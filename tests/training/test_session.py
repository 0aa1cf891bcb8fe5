"""kill -9 at random moments, also inside a save: the resumed run ends like an undisturbed one."""

import random
import shutil
import time
from pathlib import Path

import pytest
from interruptions import finish, kill, outcome, wait_for

import regard.cli

NEURAL = [
    "train.steps=40",
    "train.batch_tokens=96",
    "train.checkpoint_every=3",
    "train.eval_every=5",
]
NEURAL += ["model.n_layers=1", "model.d_model=8", "model.max_len=12", "model.dropout=0.2"]


def start(processes, words, run, model, *more):
    options = [f"--set={key}" for key in NEURAL] if model != "bigram" else []
    arguments = ["train", str(words), "--out", str(run), "--model", model, "--quiet", *options]
    process = processes.Process(target=regard.cli.main, args=([*arguments, *more],))
    process.start()
    return process


def seconds_of(process, run: Path) -> float:
    """How long a run takes from the moment its folder appears."""
    wait_for(process, run)
    began = time.monotonic()
    assert finish(process) == 0
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("model", "inside_a_save"),
    [
        ("transformer", True),
        *(
            pytest.param(m, inside, marks=pytest.mark.slow)
            for m in ("bigram", "lstm", "transformer")
            for inside in (False, True)
            if (m, inside) not in (("bigram", True), ("transformer", True))
        ),
    ],
)
def test_a_run_killed_and_resumed_ends_like_one_never_killed(
    processes, words, tmp_path, model, inside_a_save
):
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    whole = seconds_of(start(processes, words, calm, model), calm)
    moments = random.Random(model)

    def attempt() -> bool:
        process = start(processes, words, killed, model, "--resume")
        if inside_a_save:
            wait_for(process, killed / "checkpoints", ".tmp")
        else:
            wait_for(process, killed)
            process.join(moments.uniform(0, 0.6) * whole)
        return kill(process)

    while not attempt():  # it had ended before: every one of the five is killed
        shutil.rmtree(killed)
    assert finish(start(processes, words, killed, model, "--resume")) == 0
    assert outcome(killed) == outcome(calm)
    assert not [p for p in killed.rglob(".*") if p.suffix in (".tmp", ".part")]
