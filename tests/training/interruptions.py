"""Runs that are killed: how one waits for them, and what must be equal afterwards."""

import json
import os
import signal
import time
from pathlib import Path

VARYING = ("seconds", "read_per_second", "memory_bytes")


def finish(process) -> int:
    process.join(60)
    assert process.exitcode is not None, "training did not end within a minute"
    return process.exitcode


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
            found["state"] = {k: v for k, v in state.items() if k not in (*VARYING, "metrics")}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in x.items() if k not in VARYING} for x in lines]
    return found
