"""Tiny Shakespeare on a CPU: seconds from process start, and the validation figure it ends with.

The first 90% train, the last 10% validate; the figure is of the whole validation text in cold
windows of 64, as nanoGPT's CPU preset is measured (1.8857 nats after 2,000 steps).

    python benchmarks/shakespeare.py [--data DIR] [--runs 1] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = Path(__file__).parents[1] / "recipes" / "tinyshakespeare_cpu.toml"


def regard(*words: str) -> dict[str, object]:
    """What one command of regard prints as JSON."""
    command = [sys.executable, "-m", "regard", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    text = (args.data / "tinyshakespeare" / "input.txt").resolve()
    results = []
    for seed in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            run = f"{folder}/run"
            start = time.monotonic()
            chosen = ["--set", f"data.train={text}", "--set", f"train.seed={seed}"]
            trained = regard("train", str(RECIPE), *chosen, "--out", run)
            seconds = time.monotonic() - start
            figures = regard("evaluate", run, "--stride", "64")["metrics"]
        nats = figures["nats_per_symbol"]
        results.append(
            {
                "seed": seed,
                "wall_seconds": round(seconds, 1),
                "parameters": trained["parameters"],
                "steps": trained["steps"],
                "valid_nats_per_symbol": nats,
            }
        )
        print(
            f"seed {seed}: {nats['value']:.4f} [{nats['low']:.4f}, {nats['high']:.4f}] nats per "
            f"character in {seconds:.1f} s, {trained['parameters']:,} parameters"
        )
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
