"""`regard train FILE` without a model, beside what could have been done in the same minutes.

`--against compare`: the best row of `regard compare` on the test part; the default should not be
below the interval of that row. `--against drawn`: ten settings of networks, drawn by a seed from
RANGES before any run and stored in OUT/SET/settings.json; the best of them on validation stands
beside the default, both measured on the test part, and the default should be within 3% of it.
`--against sklearn`: linear models and trees on tf-idf or one-hot features, the best on validation,
on the same split (sklearn_peer.py). A run that is done is not repeated: the same command goes on
where it was stopped. Run it on an idle machine.

    python benchmarks/defaults.py --against compare --data DIR --out FOLDER [--sets trec,mr]
        [--minutes 1] [--jobs 1] [--settings 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import label_sets
import messy
import numpy as np
import sklearn_peer

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


def bacillus(data: Path, folder: Path) -> list[str]:
    """Promoters of Bacillus and other sequences, a file of each."""
    files = []
    for name in ("prom", "non_prom"):
        raw = (data / f"dna/cnnprom/Bacillus_{name}.fa.gz").read_bytes()
        files.append(folder / f"{name}.fa")
        files[-1].write_bytes(gzip.decompress(raw))
    return list(map(str, files))


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
    "bacillus": Case(bacillus),
    "ss3": label_set("ss3"),
    "qm7": Case(label_sets.qm7, ("transformer",)),
    "messy-reviews": Case(messy.reviews),
    "messy-molecules": Case(messy.molecules),
    "messy-promoters": Case(messy.promoters),
}
DRAWN = tuple(CASES)[:12]
AGAINST_SKLEARN = ("trec", "mr", "splice", "cnnprom", "amplify")


def draw(case: Case, name: str, count: int) -> list[list[str]]:
    """Return the arguments of the settings of a set, the same whenever they are drawn."""
    chance, settings = random.Random(name), []
    for _ in range(count):
        words = ["--model", chance.choice(case.networks)]
        for key, values in RANGES.items():
            words += ["--set", f"{key}={chance.choice(values)}"]
        settings.append(words)
    return settings


def run(verb: str, words: Sequence[str], out: Path, minutes: float) -> dict[str, Any]:
    """Run a verb of regard in a process of its own, unless that is done; return its document, empty
    on failure.
    """
    file = out.with_suffix(".json")
    if not file.exists():
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", "regard", verb, *words, "--out", str(out)]
        command += ["--minutes", str(minutes), "--json", "--quiet"]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        result = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]}
        result["wall"] = round(time.monotonic() - began, 1)
        for row in result.get("rows", ()):  # a comparison may have measured a part of the test only
            row["metrics"] = evaluate(out / row["model"])
        file.write_text(json.dumps(result))
        shutil.rmtree(out, ignore_errors=True)
    result = json.loads(file.read_text())
    return {} if "error" in result else result


def evaluate(folder: Path) -> dict[str, Any]:
    """Return the metrics of a run on its whole test part."""
    command = [sys.executable, "-m", "regard", "evaluate", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout)["metrics"] if done.returncode == 0 else {}


def first_metric(result: dict[str, Any], split: str) -> tuple[str, float]:
    """Return the metric that ranks models and its value on a split; more is better."""
    name, metric = next(iter(result["metrics"][split].items()))
    return name, signed(name, metric["value"])


def signed(name: str, value: float) -> float:
    """Return the value of a metric so that more is better."""
    return value if name.startswith(("accuracy", "auroc", "bleu")) else -value


def against_drawn(name: str, words: list[str], folder: Path, args: Any) -> dict[str, Any]:
    """Return the default beside the best of the drawn settings."""
    settings = draw(CASES[name], name, args.settings)
    (folder / "settings.json").write_text(json.dumps(settings))
    jobs = [(words, folder / "default")]
    jobs += [([*words, *one], folder / f"setting-{i}") for i, one in enumerate(settings)]
    with ThreadPoolExecutor(args.jobs) as pool:
        default, *others = pool.map(lambda job: run("train", *job, args.minutes), jobs)
    trained = [(one, given) for one, given in zip(others, settings, strict=True) if one]
    best, chosen = max(trained, key=lambda pair: first_metric(pair[0], "valid")[1])
    metric, ours = first_metric(default, "test")
    theirs = first_metric(best, "test")[1]
    gap = (theirs - ours) / abs(theirs)
    setting = " ".join(word for word in chosen if word not in ("--set", "--model"))
    kept = default["selection"]["best"]
    row = {"metric": metric, "default": abs(ours), "kept": kept, "peer": abs(theirs)}
    return row | {"by": setting, "trained": len(trained), "gap": gap, "holds": gap <= BAR}


def against_compare(name: str, words: list[str], folder: Path, args: Any) -> dict[str, Any]:
    """Return the default beside the best row of a comparison."""
    default = run("train", words, folder / "default", args.minutes)
    rows = run("compare", words, folder / "compare", args.minutes)["rows"]
    metric, ours = first_metric(default, "test")
    known = [row for row in rows if row["metrics"].get(metric, {}).get("value") is not None]
    best = max(known, key=lambda row: signed(metric, row["metrics"][metric]["value"]))
    theirs = best["metrics"][metric]
    worst_end = min(signed(metric, theirs[end]) for end in ("low", "high"))
    row = {"metric": metric, "default": abs(ours), "kept": default["selection"]["best"]}
    row |= {"peer": theirs["value"], "by": best["model"], "rows": len(rows)}
    row |= {"low": theirs["low"], "high": theirs["high"], "wall": default["wall"]}
    gap = (signed(metric, theirs["value"]) - ours) / abs(theirs["value"])
    return row | {"gap": gap, "holds": ours >= worst_end}


def against_sklearn(name: str, words: list[str], folder: Path, args: Any) -> dict[str, Any]:
    """Return the default beside scikit-learn, on a split written to files."""
    paths = sklearn_peer.split(words, folder)
    both = [str(paths["train"]), "--valid", str(paths["valid"]), "--test", str(paths["test"])]
    default = run("train", [*both, *label_sets.COLUMNS], folder / "default-split", args.minutes)
    metric, ours = first_metric(default, "test")
    peer = sklearn_peer.fit(paths, args.minutes * 60)
    row = {"metric": metric, "default": ours, "kept": default["selection"]["best"]}
    low, high = peer["interval"]
    row |= {"peer": peer["accuracy"], "by": peer["model"], "low": low, "high": high}
    return row | {"gap": (peer["accuracy"] - ours) / peer["accuracy"], "holds": ours >= low}


AGAINST = {
    "compare": (against_compare, tuple(CASES)),
    "drawn": (against_drawn, DRAWN),
    "sklearn": (against_sklearn, AGAINST_SKLEARN),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default="drawn", choices=list(AGAINST))
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", default="runs/defaults")
    parser.add_argument("--sets")
    parser.add_argument("--settings", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    against, names = AGAINST[args.against]
    rows = []
    for name in args.sets.split(",") if args.sets else names:
        folder = Path(args.out) / name
        folder.mkdir(parents=True, exist_ok=True)
        words = CASES[name].prepare(Path(args.data), folder)
        row = {"set": name} | against(name, words, folder, args)
        rows.append(row)
        print(
            f"{name:15} {row['metric']:16} default {row['default']:.4f} ({row['kept']}), best of "
            f"{args.against} {row['peer']:.4f} ({row['by']}), gap {row['gap']:+.1%}"
            f"{'' if row['holds'] else '  FELL SHORT'}",
            flush=True,
        )
    print(f"holds: {sum(row['holds'] for row in rows)} of {len(rows)}")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
