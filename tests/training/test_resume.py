"""kill -9 at random moments, also inside a save: the resumed run ends like an undisturbed one."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

import regard.cli

TIMINGS = ("seconds", "symbols_per_second")
NEURAL = [
    "train.steps=40",
    "train.batch_tokens=96",
    "train.checkpoint_every=3",
    "train.eval_every=5",
]
NEURAL += ["model.n_layers=1", "model.d_model=8", "model.max_len=12", "model.dropout=0.2"]


@pytest.fixture(scope="module")
def processes():
    """Processes of their own to kill, forked from a server that has imported torch once."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.api", "regard.cli", "torch._dynamo"])
    yield context
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    source = random.Random(7)
    lines = ["".join(source.choices("abcde", k=source.randint(1, 9))) for _ in range(400)]
    path = tmp_path_factory.mktemp("data") / "words.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def start(processes, words, run, model, *more):
    options = [f"--set={key}" for key in NEURAL] if model != "bigram" else []
    arguments = ["train", str(words), "--out", str(run), "--model", model, "--quiet", *options]
    process = processes.Process(target=regard.cli.main, args=([*arguments, *more],))
    process.start()
    return process


def finish(process) -> int:
    process.join(60)
    assert process.exitcode is not None, "training did not end within a minute"
    return process.exitcode


def seconds_of(process, run: Path) -> float:
    """How long a run takes from the moment its folder appears."""
    wait_for(process, run)
    began = time.monotonic()
    assert finish(process) == 0
    return time.monotonic() - began


def wait_for(process, folder: Path, ending: str = "") -> None:
    """Until the folder exists, and something in it that ends so; or the process is over."""
    deadline = time.monotonic() + 30
    while process.exitcode is None and time.monotonic() < deadline:
        if folder.exists() and (not ending or any(n.endswith(ending) for n in os.listdir(folder))):
            return


def kill(process) -> bool:
    """kill -9; False if it had ended before."""
    process.kill()
    return finish(process) == -signal.SIGKILL


def outcome(run: Path) -> dict[str, object]:
    """All that must be equal: weights, the last checkpoint's tensors and state, every metric."""
    found: dict[str, object] = {"best": (run / "model.safetensors").read_bytes()}
    last = sorted((run / "checkpoints").glob("step-*"))[-1:]
    for path in [file for folder in last for file in sorted(folder.iterdir())]:
        if path.suffix == ".safetensors":
            found[path.name] = path.read_bytes()
        else:
            state = json.loads(path.read_text())["state"]
            found["state"] = {k: v for k, v in state.items() if k not in (*TIMINGS, "metrics")}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in x.items() if k not in TIMINGS} for x in lines]
    return found


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
