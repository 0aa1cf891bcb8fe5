"""Is the forecast of a run right? Memory and time foretold beside those measured, over ten shapes.

    python benchmarks/forecast.py [--device cpu|cuda] [--steps 100] [--shapes 0,3,7] [--json FILE]

Each shape trains on made-up text in a process of its own. Memory on a CPU is the growth of the peak
of the resident set from just before the first step; on a GPU the peak of what torch's allocator
gave out. Time is that of all steps and validations; below 100 steps none is foretold. The bar:
within 20%.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR = 0.2
SHAPES: list[dict[str, Any]] = [
    {"model": {"n_layers": 4, "d_model": 256, "max_len": 256}},
    {"model": {"n_layers": 2, "d_model": 512, "max_len": 512}},
    {"model": {"n_layers": 8, "d_model": 128, "max_len": 128}},
    {"model": {"n_layers": 4, "d_model": 192, "max_len": 1024, "window": 128}},
    {"model": {"n_layers": 4, "d_model": 192, "max_len": 1024, "mixers": ["linear"]}},
    {"model": {"name": "hyena", "n_layers": 4, "d_model": 192, "max_len": 1024}},
    {"model": {"name": "hyena", "preset": "striped", "n_layers": 3, "d_model": 256}},
    {"model": {"name": "lstm", "n_layers": 2, "d_model": 384, "max_len": 256}},
    {"model": {"name": "cnn", "n_layers": 6, "d_model": 256, "max_len": 256}},
    {
        "model": {"preset": "gpt2", "n_layers": 3, "d_model": 384, "max_len": 256},
        "output": {"tokenizer": "bpe", "vocab_size": 8000},
    },
]
LARGER = {"n_layers": 2, "d_model": 3, "batch_tokens": 16}  # times, on a GPU


def text(path: Path, size: int = 1_000_000) -> None:
    """Words that a byte-pair encoding can learn from."""
    import numpy as np

    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(letters[random.integers(0, 12, n)]) for n in random.integers(2, 9, 20_000)]
    picked = random.zipf(1.3, size // 5) % len(words)
    path.write_text(" ".join(words[i] for i in picked)[:size])


def child(shape: dict[str, Any], device: str, steps: int, folder: Path) -> dict[str, float]:
    """Train one shape; what was foretold and what was measured."""
    import torch

    from regard.recipe import build
    from regard.training.progress import Reporter
    from regard.training.trainer import Session, Trainer

    text(folder / "text.txt")
    model, gpu = dict(shape["model"]), device == "cuda"
    if gpu:
        model |= {key: LARGER[key] * model[key] for key in ("n_layers", "d_model")}
    tokens = 4096 * (LARGER["batch_tokens"] if gpu else 1)
    recipe = build(
        {
            "data": {"train": str(folder / "text.txt"), "format": "text"},
            "output": shape.get("output", {"tokenizer": "characters"}),
            "model": model,
            "train": {
                "steps": steps,
                "batch_tokens": tokens,
                "micro_tokens": tokens,
                "device": device,
                "compile": "off",
            },
        }
    )
    found: dict[str, float] = {}
    begin = Trainer.run

    def run(trainer: Trainer) -> str:
        assert trainer.forecast is not None
        found["foretold_bytes"] = trainer.forecast.memory - trainer.forecast.base
        found["foretold_seconds"] = trainer.forecast.seconds or 0.0
        began = time.monotonic()
        outcome = begin(trainer)
        found["seconds"] = time.monotonic() - began
        return outcome

    Trainer.run = run  # type: ignore[method-assign]
    began = time.monotonic()
    fitted = Session(folder / "run", False, Reporter(quiet=True), began).fit(recipe)
    if gpu:
        found["bytes"] = float(torch.cuda.max_memory_allocated())
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found["bytes"] = float(peak - fitted.facts["forecast"]["base_bytes"])
    return found


def main() -> int:
    """All shapes, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--shapes", default="", help="which of the ten, as in 0,3,7")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=int, default=-1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child >= 0:
        with tempfile.TemporaryDirectory() as folder:
            found = child(SHAPES[args.child], args.device, args.steps, Path(folder))
        print(json.dumps(found))
        return 0
    rows = []
    print(f"{'shape':<62}{'MB':>8}{'foretold':>10}{'off':>7}{'s':>8}{'foretold':>10}{'off':>7}")
    for number in map(int, args.shapes.split(",")) if args.shapes else range(len(SHAPES)):
        command = [sys.executable, __file__, "--child", str(number), "--device", args.device]
        command += ["--steps", str(args.steps)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        row["memory_off"] = row["foretold_bytes"] / row["bytes"] - 1
        foretold = row["foretold_seconds"]  # 0 where a run is too short to be timed beforehand
        row["time_off"] = foretold / row["seconds"] - 1 if foretold else 0.0
        rows.append({"shape": SHAPES[number], **row})
        name = " ".join(f"{k}={v}" for k, v in SHAPES[number]["model"].items())
        print(
            f"{name:<62}{row['bytes'] / 2**20:>8.0f}{row['foretold_bytes'] / 2**20:>10.0f}"
            f"{row['memory_off']:>+7.0%}{row['seconds']:>8.1f}{row['foretold_seconds']:>10.1f}"
            f"{row['time_off']:>+7.0%}",
            flush=True,
        )
    worst = {key: max(abs(row[key]) for row in rows) for key in ("memory_off", "time_off")}
    passed = {key: value <= BAR for key, value in worst.items()}
    print(f"worst: memory {worst['memory_off']:.0%}, time {worst['time_off']:.0%}; bar {BAR:.0%}")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "worst": worst, "passed": passed}, indent=1))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
