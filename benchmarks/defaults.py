"""`regard train FILE` beside ten settings of networks, drawn at random before any run.

The settings of a set are drawn by a seed from RANGES and stored in OUT/SET/settings.json. Each is
trained for as many minutes as the default is; the best of them on validation stands beside the
default, both measured on the test part. The default should be within 3% of it. A run that is done
is not repeated: the same command goes on where it was stopped. Run it on an idle machine.

    python benchmarks/defaults.py --data DIR --out FOLDER [--sets trec,mr] [--settings 10]
        [--minutes 1] [--jobs 1] [--json FILE]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import label_sets
import numpy as np

BAR = 0.03  # relative difference of the metric
RANGES: dict[str, Sequence[Any]] = {
    "model.n_layers": (1, 2, 3, 4, 6),
    "model.d_model": (64, 96, 128, 192, 256),
    "model.dropout": (0.0, 0.1, 0.2, 0.3, 0.4),
    "train.lr": (0.005, 0.01, 0.02, 0.04),
    "train.adam_lr": (0.001, 0.002, 0.004, 0.008),
    "train.batch_tokens": (1024, 2048, 4096, 8192),
}


@dataclass(frozen=True)
class Case:
    """A data set: how its files are made, and the networks that are drawn."""

    prepare: Callable[[Path, Path], list[str]]  # (data, folder) -> arguments of `regard train`
    networks: Sequence[str] = ("transformer", "cnn", "lstm")


def label_set(name: str) -> Case:
    """Return a set of labels or values of label_sets.py."""
    prepare = label_sets.SETS[name].prepare
    return Case(lambda data, folder: prepare(data, folder))


def lines_of(*names: str, most: int = 0) -> Callable[[Path, Path], list[str]]:
    """Return how the first lines of text files are copied."""

    def prepare(data: Path, folder: Path) -> list[str]:
        files = []
        for name in names:
            raw = (data / name).read_bytes()
            text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
            target = folder / Path(name).name.removesuffix(".gz")
            target.write_text("".join(text.splitlines(keepends=True)[: most or None]))
            files.append(str(target))
        return files

    return prepare


def digits(data: Path, folder: Path) -> list[str]:
    """The first 10,000 images of MNIST."""
    arrays = []
    for name, offset in (("images-idx3", 16), ("labels-idx1", 8)):
        raw = gzip.decompress((data / f"images/mnist/train-{name}-ubyte.gz").read_bytes())
        arrays.append(np.frombuffer(raw, np.uint8, offset=offset))
    images, labels = arrays[0].reshape(-1, 28, 28)[:10_000], arrays[1][:10_000]
    np.savez(folder / "mnist.npz", images=images, digit=labels)
    return [str(folder / "mnist.npz")]


LANGUAGE = ("transformer", "lstm", "gru", "cnn")
CASES = {
    **{name: label_set(name) for name in ("trec", "mr", "splice", "cnnprom", "amplify")},
    **{name: label_set(name) for name in ("bbbp", "bace", "esol")},
    "names": Case(lines_of("names/names.txt"), LANGUAGE),
    "shakespeare": Case(lines_of("tinyshakespeare/input.txt"), LANGUAGE),
    "multi30k": Case(
        lines_of("multi30k/train.en.gz", "multi30k/train.de.gz", most=4000),
        ("transformer", "rnn-attention", "rnn"),
    ),
    "mnist": Case(digits, ("transformer", "cnn")),
}


def draw(case: Case, name: str, count: int) -> list[list[str]]:
    """Return the arguments of the settings of a set, the same whenever they are drawn."""
    chance, settings = random.Random(name), []
    for _ in range(count):
        words = ["--model", chance.choice(case.networks)]
        for key, values in RANGES.items():
            words += ["--set", f"{key}={chance.choice(values)}"]
        settings.append(words)
    return settings


def train(words: Sequence[str], out: Path, minutes: float) -> dict[str, Any]:
    """Train in a process of its own, unless that is done; return its result, empty on failure."""
    file = out.with_suffix(".json")
    if not file.exists():
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", "regard", "train", *words, "--out", str(out)]
        command += ["--minutes", str(minutes), "--json", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        result = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]}
        file.write_text(json.dumps(result))
        shutil.rmtree(out, ignore_errors=True)
    result = json.loads(file.read_text())
    return {} if "error" in result else result


def first_metric(result: dict[str, Any], split: str) -> tuple[str, float]:
    """Return the metric that ranks models and its value on a split; more is better."""
    name, metric = next(iter(result["metrics"][split].items()))
    higher = name.startswith(("accuracy", "auroc", "bleu"))
    return name, metric["value"] if higher else -metric["value"]


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the row of a set."""
    folder = Path(args.out) / name
    folder.mkdir(parents=True, exist_ok=True)
    case = CASES[name]
    words = case.prepare(Path(args.data), folder)
    settings = draw(case, name, args.settings)
    (folder / "settings.json").write_text(json.dumps(settings))
    jobs = [(words, folder / "default")]
    jobs += [([*words, *one], folder / f"setting-{i}") for i, one in enumerate(settings)]
    with ThreadPoolExecutor(args.jobs) as pool:
        default, *others = pool.map(lambda job: train(*job, args.minutes), jobs)
    trained = [(one, given) for one, given in zip(others, settings, strict=True) if one]
    best, chosen = max(trained, key=lambda pair: first_metric(pair[0], "valid")[1])
    metric, ours = first_metric(default, "test")
    theirs = first_metric(best, "test")[1]
    gap = (theirs - ours) / abs(theirs)
    return {
        "set": name,
        "metric": metric,
        "default": abs(ours),
        "kept": default.get("selection", {}).get("best", ""),
        "best_of_drawn": abs(theirs),
        "setting": " ".join(word for word in chosen if word != "--set"),
        "trained": len(trained),
        "gap": gap,
        "within": gap <= BAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", default="runs/defaults")
    parser.add_argument("--sets", default=",".join(CASES))
    parser.add_argument("--settings", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    rows = []
    for name in args.sets.split(","):
        row = compare(name, args)
        rows.append(row)
        print(
            f"{name:12} {row['metric']:16} default {row['default']:.4f} ({row['kept']}), best of "
            f"{row['trained']} drawn {row['best_of_drawn']:.4f} ({row['setting']}), gap "
            f"{row['gap']:+.1%}{'' if row['within'] else '  beyond 3%'}",
            flush=True,
        )
    print(f"within {BAR:.0%}: {sum(row['within'] for row in rows)} of {len(rows)}")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
