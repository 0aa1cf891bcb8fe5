"""`kill -9` at random moments, also inside saves; resume; compare with an undisturbed run.

    python benchmarks/kill.py --kills 20

Each trial trains a small model in a process of its own, kills it once or more, resumes it to the
end, and passes if weights, optimizer and metrics (timings aside) equal those of a run that nobody
killed. Prints a table and, last, one line of JSON; exits 1 unless every trial passes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TIMINGS = ("seconds", "symbols_per_second")
SETTINGS = ["train.steps=60", "train.batch_tokens=128", "train.checkpoint_every=2"]
SETTINGS += ["model.n_layers=2", "model.d_model=16", "model.max_len=12", "model.dropout=0.2"]
SETTINGS += ["train.eval_every=7"]
MODELS = ("transformer", "lstm", "bigram")


def start(words: Path, run: Path, model: str) -> subprocess.Popen[bytes]:
    """Train, or go on."""
    settings = [f"--set={key}" for key in SETTINGS] if model != "bigram" else []
    command = [sys.executable, "-m", "regard", "train", str(words), "--out", str(run), "--quiet"]
    return subprocess.Popen(
        [*command, "--model", model, "--resume", *settings],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def until(process: subprocess.Popen[bytes], folder: Path, ending: str = "") -> None:
    """Wait for the folder, and for something in it that ends so, or for the process to be over."""
    while process.poll() is None:
        if folder.exists() and (not ending or any(n.endswith(ending) for n in os.listdir(folder))):
            return


def kill(process: subprocess.Popen[bytes]) -> bool:
    """kill -9; False if the process had ended before."""
    process.kill()
    return process.wait() == -signal.SIGKILL


def outcome(run: Path) -> dict[str, object]:
    """All that must be equal."""
    found: dict[str, object] = {"best": (run / "model.safetensors").read_bytes()}
    for folder in sorted((run / "checkpoints").glob("step-*"))[-1:]:
        for file in folder.glob("*.safetensors"):
            found[file.name] = file.read_bytes()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in x.items() if k not in TIMINGS} for x in lines]
    return found


def trial(words: Path, run: Path, model: str, inside: bool, delay: float) -> dict[str, object]:
    """Kill until it hits (inside a save: until half a checkpoint is left), then let it end."""
    attempts, killed, half = 0, False, False
    while attempts < 30 and not (killed and (half or not inside)):
        attempts += 1
        process = start(words, run, model)
        if inside:
            until(process, run / "checkpoints", ".tmp")
        else:
            until(process, run)
            time.sleep(delay)
        killed = kill(process)
        half = any((run / "checkpoints").glob(".*.tmp"))
        if not killed:  # it was too quick: begin again, and kill earlier
            subprocess.run(["rm", "-rf", str(run)], check=True)
            delay /= 2
    ended = start(words, run, model).wait()
    return {"killed": killed, "half_written": half, "attempts": attempts, "ended": ended}


def main() -> int:
    """Run the trials."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        words = here / "words.txt"
        lines = ("".join(moments.choices("abcdefg", k=moments.randint(1, 9))) for _ in range(600))
        words.write_text("\n".join(lines) + "\n")
        calm, seconds = {}, {}
        for model in MODELS:
            process = start(words, here / model, model)
            until(process, here / model)
            began = time.monotonic()
            assert process.wait() == 0
            seconds[model], calm[model] = time.monotonic() - began, outcome(here / model)
        print(f"{'trial':>5}  {'model':<12}{'moment':<24}{'equal':<6}")
        for number in range(arguments.kills):
            model = MODELS[number % len(MODELS)]
            inside = model != "bigram" and number % 2 == 1
            delay = moments.uniform(0, 0.9) * seconds[model]
            run = here / f"killed-{number}"
            row = trial(words, run, model, inside, delay)
            equal = row["ended"] == 0 and row["killed"] and outcome(run) == calm[model]
            moment = "inside a save" if row["half_written"] else f"after {delay:.2f} s"
            print(
                f"{number + 1:>5}  {model:<12}{moment:<24}{'yes' if equal else 'NO':<6}", flush=True
            )
            rows.append({"model": model, "moment": moment, "equal": bool(equal), **row})
    passed = sum(row["equal"] for row in rows)
    print(f"{passed}/{len(rows)} bit-identical")
    print(json.dumps({"passed": passed, "kills": len(rows), "trials": rows}))
    return 0 if passed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
