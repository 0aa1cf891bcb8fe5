"""Under torchrun: a process that is killed ends the job, a signal saves, and both go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.data.corpus import reopen
from regard.recipe import build, read
from regard.training import checkpoint
from regard.training.progress import Reporter
from regard.training.session import Session

OPTIONS = ["model.n_layers=1", "model.d_model=8", "model.max_len=12", "train.steps=1000000"]
OPTIONS += ["train.batch_tokens=64", "train.checkpoint_every=5", "train.eval_every=500000"]
OPTIONS += ["train.device=cpu"]


def start(words: Path, run: Path) -> subprocess.Popen:
    """The command of the manual, with two processes on this machine."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "regard", "train", str(words)]
    command += ["--out", str(run), "--resume", *(f"--set={option}" for option in OPTIONS)]
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**clean, "OMP_NUM_THREADS": "1"}
    )


def workers(job: subprocess.Popen) -> dict[int, int]:
    """The process id of every rank."""
    found = {}
    for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        ranks = [int(v[5:]) for v in variables if v.startswith(b"RANK=")]
        found |= {rank: int(pid) for rank in ranks}
    return found


def until_a_new_checkpoint(job: subprocess.Popen, run: Path) -> None:
    before, deadline = set(checkpoint.steps(run)), time.monotonic() + 60
    while not set(checkpoint.steps(run)) - before:
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < deadline, "no checkpoint within a minute"
        time.sleep(0.05)


def end(job: subprocess.Popen, pids: list[int]) -> str:
    """What the job said; it must end with an error within 40 seconds and leave nobody behind."""
    try:
        _, said = job.communicate(timeout=40)
    finally:
        job.kill()
    assert job.returncode != 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert "src/regard" not in said, "a traceback from our code"
    return said


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_a_killed_process_ends_the_job_and_a_signal_saves_it(words, tmp_path):
    run = tmp_path / "run"
    job = start(words, run)
    until_a_new_checkpoint(job, run)
    pids = workers(job)
    os.kill(pids[1], signal.SIGKILL)
    said = end(job, list(pids.values()))
    # once, unless torchrun was quicker to end it than it to notice
    assert said.count("error: process 0 of 2 has lost another, and stops") <= 1
    assert "SIGKILL" in said  # torchrun's report names it
    _, state = checkpoint.newest(run, pytest.fail)
    assert state["step"] % 5 == 0 and state["step"] > 0

    job = start(words, run)
    until_a_new_checkpoint(job, run)
    pids = workers(job)
    job.send_signal(signal.SIGTERM)
    said = end(job, list(pids.values()))
    _, saved = checkpoint.newest(run, pytest.fail)
    assert saved["step"] > state["step"]
    assert said.count(f"stopped at step {saved['step']:,}, saved. Go on with the same command") == 1
    assert not list(run.glob("checkpoints/.*"))

    session = Session(run, True, Reporter(quiet=True), 0.0)
    alone = session.trainer(build(read(run / "recipe.toml")), reopen(run), None)
    assert alone.resume() and alone.progress.step == saved["step"]
    assert alone.take_step(saved["step"])[1] > 0
