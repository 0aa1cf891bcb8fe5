"""Between counting and attention: a window and convolutions, on the names of the lectures.

The split is the lectures' own: the lines of names.txt shuffled by `random.seed(42)`, the first 80%
to train on, a tenth for validation and a tenth for test. The bars are what the lectures reach on
the validation tenth with the same past in view: 2.105 nats per symbol for a network over the last
3 symbols, 1.993 for convolutions over the last 8 with at most 80,000 parameters.

Sizes, dropout and numbers of steps were chosen on a tenth of the training names, held out for that;
nothing was chosen by the validation or test names. Of the weights in a run, those that do best on
the validation tenth are kept, as in every run, so the test tenth stands beside it.

    python benchmarks/ladder.py [--data DIR] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARS = {"mlp": 2.105, "cnn": 1.993}
MOST = 80_000  # parameters of the convolutions
SETTINGS = {
    "mlp": {"model.window": 3, "model.dropout": 0, "train.steps": 3000},
    "cnn": {
        "model.n_layers": 3,
        "model.d_model": 64,
        "train.weight_decay": 0.3,
        "train.steps": 2000,
    },
}


def split(names: list[str], folder: Path) -> dict[str, Path]:
    """The lectures' three parts, as files."""
    names = list(names)
    random.seed(42)
    random.shuffle(names)
    first, second = int(0.8 * len(names)), int(0.9 * len(names))
    parts = {"train": names[:first], "valid": names[first:second], "test": names[second:]}
    for part, chosen in parts.items():
        (folder / f"{part}.txt").write_text("".join(f"{name}\n" for name in chosen))
    return {part: folder / f"{part}.txt" for part in parts}


def train(model: str, files: dict[str, Path], quick: bool) -> dict[str, object]:
    """Train through the command line; return metrics and costs."""
    settings = SETTINGS[model] | ({"train.steps": 20} if quick else {})
    command = [sys.executable, "-m", "regard", "train", str(files["train"]), "--model", model]
    command += ["--valid", str(files["valid"]), "--test", str(files["test"]), "--json"]
    command += ["--out", str(files["train"].parent / model)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    start = time.monotonic()
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    valid = found["metrics"]["valid"]["nats_per_symbol"]
    small = model != "cnn" or found["parameters"] <= MOST
    return {
        "model": model,
        "settings": settings,
        "valid_nats_per_symbol": valid,
        "test_nats_per_symbol": found["metrics"]["test"]["nats_per_symbol"],
        "bar": BARS[model],
        "holds": valid["value"] <= BARS[model] and small,
        "parameters": found["parameters"],
        "train_seconds": found["train_seconds"],
        "wall_seconds": round(time.monotonic() - start, 1),
    }


def format_metric(metric: dict[str, float]) -> str:
    """Return a metric with its interval."""
    return f"{metric['value']:.4f} [{metric['low']:.4f}, {metric['high']:.4f}]"


def main() -> None:
    """Train both and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it works")
    args = parser.parse_args()
    names = (args.data / "names" / "names.txt").read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        files = split(names, Path(folder))
        rows = [train(model, files, args.quick) for model in SETTINGS]
    print(
        f"{'model':6} {'valid nats per symbol':>26} {'bar':>6} {'test nats per symbol':>26} "
        f"{'parameters':>11} {'wall s':>7}"
    )
    for row in rows:
        valid, test = row["valid_nats_per_symbol"], row["test_nats_per_symbol"]
        print(
            f"{row['model']:6} {format_metric(valid):>26} {row['bar']:6} {format_metric(test):>26} "
            f"{row['parameters']:11,} {row['wall_seconds']:7}"
        )
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
