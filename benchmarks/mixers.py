"""Attention, Hyena and a hybrid of both at equal parameters and tokens: bits on two texts.

    python benchmarks/mixers.py --data DIR [--parameters 6000000] [--steps 1500] [--seeds 1]
        [--jobs 1] [--texts bible,shakespeare] [--context 1024] [--device cuda] [--json FILE]

The King James Bible of the Canterbury corpus by bytes, and tiny Shakespeare by characters; the last
tenth is held out, half of it validates. Every row has the same number of parameters to a tenth, the
same depth, context, steps and settings. Bits per symbol of the whole test part with 95% intervals,
and the difference to attention seed by seed. The bar: Hyena within 3% of attention, the hybrid no
worse.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from regard.models import find_config

BAR = 1.03
TEXTS = {
    "bible": ("compression_corpus/bible.txt.gz", "bytes", 256),
    "shakespeare": ("tinyshakespeare/input.txt", "characters", 65),
}
ROWS = {
    "attention": ("transformer", ""),
    "hyena": ("hyena", "hyena"),
    "hybrid": ("hyena", "striped"),
}
DROPOUT = {"bible": 0.1, "shakespeare": 0.3}


def regard(*words: str) -> dict[str, Any]:
    """What one command of regard prints as JSON."""
    command = [sys.executable, "-m", "regard", *words, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def train(row: str, text: Path, kind: str, size: int, seed: int, args: Any, out: Path) -> float:
    """One run; its minutes."""
    family, preset = ROWS[row]
    options = {"n_layers": args.layers, "max_len": args.context, "preset": preset}
    config = dataclasses.asdict(find_config(family, args.parameters, size + 2, **options))
    keys = {
        "data.format": "text",
        "output.tokenizer": kind,
        "model.name": family,
        "train.steps": args.steps,
        "train.batch_tokens": args.tokens,
        "train.device": args.device,
        "train.seed": seed,
        "train.compile": "off",
        "model.dropout": DROPOUT[text.stem],
    }
    keys |= {f"model.{key}": config[key] for key in ("n_layers", "d_model", "d_ff", "max_len")}
    if preset:
        keys["model.preset"] = preset
    words = [f"--set={key}={value}" for key, value in keys.items()]
    began = time.monotonic()
    regard("train", str(text), *words, "--out", str(out))
    return (time.monotonic() - began) / 60


def main() -> int:
    """All rows on all texts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--parameters", type=int, default=6_000_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=32_768, help="of a step")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="trained side by side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", type=float, default=1.0, help="share of each text, to try it")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found, passed = [], True
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.jobs) as pool:
        here, names = Path(temporary), args.texts.split(",")
        for name in names:
            data = (args.data / TEXTS[name][0]).read_bytes()
            data = gzip.decompress(data) if TEXTS[name][0].endswith(".gz") else data
            (here / f"{name}.txt").write_bytes(data[: round(args.keep * len(data))])
        wanted = [(t, row, seed) for t in names for row in ROWS for seed in range(args.seeds)]
        runs = {one: pool.submit(measured, *one, args, here) for one in wanted}
        for name in names:
            passed &= report(
                name, {one[1:]: runs[one].result() for one in wanted if one[0] == name}
            )
            found += [runs[one].result() for one in wanted if one[0] == name]
    if args.json:
        args.json.write_text(json.dumps({"rows": found, "passed": passed}, indent=1))
    return 0 if passed else 1


def measured(name: str, row: str, seed: int, args: Any, here: Path) -> dict[str, Any]:
    """One run, and its bits on the test part."""
    _, kind, size = TEXTS[name]
    out = here / f"{name}-{row}-{seed}"
    minutes = train(row, here / f"{name}.txt", kind, size, seed, args, out)
    metrics = json.loads((out / "regard.json").read_text())["metrics"]
    bits = regard("evaluate", str(out))["metrics"]["bits_per_symbol"]
    valid = metrics["valid"]["bits_per_symbol"]["value"]
    interval = f"[{bits['low']:.4f}, {bits['high']:.4f}]"
    print(
        f"{name:12}{row:10}seed {seed}  {bits['value']:.4f} {interval} bits, validation "
        f"{valid:.4f}, {minutes:.1f} minutes",
        flush=True,
    )
    return {"text": name, "row": row, "seed": seed, "minutes": minutes, "valid": valid, **bits}


def report(name: str, runs: dict[tuple[str, int], dict[str, Any]]) -> bool:
    """Print each row against attention, seed by seed; return whether the bar holds."""
    seeds = sorted({seed for _, seed in runs})
    means = {row: statistics.fmean(runs[row, seed]["value"] for seed in seeds) for row in ROWS}
    for row in ROWS:
        values = [runs[row, seed]["value"] for seed in seeds]
        gaps = [runs[row, s]["value"] - runs["attention", s]["value"] for s in seeds]
        spread = f" ± {statistics.stdev(values):.4f}" if len(seeds) > 1 else ""
        print(
            f"{name}: {row} {means[row]:.4f}{spread} bits, {means[row] / means['attention']:.4f} "
            f"of attention's; less attention by seed: {', '.join(f'{gap:+.4f}' for gap in gaps)}"
        )
    return means["hyena"] <= BAR * means["attention"] and means["hybrid"] <= means["attention"]


if __name__ == "__main__":
    sys.exit(main())
