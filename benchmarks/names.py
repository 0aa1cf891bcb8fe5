"""Names, no recipe, five minutes on a CPU: makemore's split, and beside it one without duplicates.

makemore's split is a permutation of the names by torch's generator at seed 3407 whose last 1,000
are the test; 153 of those also occur in training. The other split goes by the hash of the name,
so that copies stay on one side. Size and regularisation were chosen on held-out training names.

    python benchmarks/names.py [--data DIR] [--minutes 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch


def train(files: list[str], out: Path) -> dict[str, object]:
    """One run through the command line: its figures and its wall time."""
    start = time.monotonic()
    command = [sys.executable, "-m", "regard", "train", *files, "--out", str(out), "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {
        "test_nats_per_symbol": found["metrics"]["test"]["nats_per_symbol"],
        "valid_nats_per_symbol": found["metrics"]["valid"]["nats_per_symbol"],
        "parameters": found["parameters"],
        "steps": found["steps"],
        "wall_seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    """Train on both splits and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path = args.data / "names" / "names.txt"
    names = path.read_text().split()
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(3407)).tolist()
    minutes = ["--minutes", str(args.minutes)]
    with tempfile.TemporaryDirectory() as folder:
        parts = {"train": order[:-1000], "test": order[-1000:]}
        for part, chosen in parts.items():
            (Path(folder) / f"{part}.txt").write_text("".join(f"{names[i]}\n" for i in chosen))
        held = ["--test", f"{folder}/test.txt"]
        results = {
            "makemore": train([f"{folder}/train.txt", *held, *minutes], Path(folder) / "makemore"),
            "by hash": train([str(path), *minutes], Path(folder) / "hash"),
        }
    print(
        f"{'split':10} {'test nats per symbol':>32} {'valid':>8} {'parameters':>11} {'wall s':>8}"
    )
    for split, found in results.items():
        test, valid = found["test_nats_per_symbol"], found["valid_nats_per_symbol"]
        figure = f"{test['value']:.4f} [{test['low']:.4f}, {test['high']:.4f}]"
        print(
            f"{split:10} {figure:>32} {valid['value']:8.4f} {found['parameters']:11,} "
            f"{found['wall_seconds']:8}"
        )
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
