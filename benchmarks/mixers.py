"""Attention, Hyena and a hybrid of both at equal parameters and tokens: bits on two texts.

    python benchmarks/mixers.py --data DIR [--parameters 6000000] [--steps 1500] [--seeds 1]
        [--texts bible,shakespeare] [--context 1024] [--device cuda] [--json FILE]

The King James Bible of the Canterbury corpus by bytes, and tiny Shakespeare by characters; the last
tenth is held out, half of it validates. Every row has the same number of parameters to a tenth, the
same depth, context, steps and settings. Bits per symbol of the whole test part with 95% intervals,
and the paired difference to attention. The bar: Hyena within 3% of attention, the hybrid no worse.
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
from pathlib import Path
from typing import Any

from regard.models.sizing import sized

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
    config = dataclasses.asdict(sized(family, args.parameters, size + 2, **options))
    keys = {
        "data.format": "text",
        "tokens.kind": kind,
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
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", type=float, default=1.0, help="share of each text, to try it")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found, passed = [], True
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        for name in args.texts.split(","):
            file, kind, size = TEXTS[name]
            data = (args.data / file).read_bytes()
            data = gzip.decompress(data) if file.endswith(".gz") else data
            text = here / f"{name}.txt"
            text.write_bytes(data[: round(args.keep * len(data))])
            means: dict[str, float] = {}
            for row in ROWS:
                values = []
                for seed in range(args.seeds):
                    out = here / f"{name}-{row}-{seed}"
                    minutes = train(row, text, kind, size, seed, args, out)
                    told = regard("evaluate", str(out))["metrics"]["bits_per_symbol"]
                    values.append(told["value"])
                    found.append(
                        {"text": name, "row": row, "seed": seed, "minutes": minutes, **told}
                    )
                    interval = f"[{told['low']:.4f}, {told['high']:.4f}]"
                    print(
                        f"{name:12}{row:10}seed {seed}  {told['value']:.4f} {interval} bits, "
                        f"{minutes:.1f} minutes",
                        flush=True,
                    )
                means[row] = statistics.fmean(values)
            ratio = {row: means[row] / means["attention"] for row in ROWS}
            print(
                f"{name}: over attention, hyena {ratio['hyena']:.4f}, hybrid {ratio['hybrid']:.4f}"
            )
            passed &= ratio["hyena"] <= BAR and ratio["hybrid"] <= 1
            if args.seeds == 1:
                first = here / f"{name}-attention-0"
                for row in ("hyena", "hybrid"):
                    paired = regard(
                        "evaluate", str(here / f"{name}-{row}-0"), "--against", str(first)
                    )
                    found.append({"text": name, "row": row, "paired": paired["against"]})
                    print(f"{name}: {row} less attention {json.dumps(paired['against'])}")
    if args.json:
        args.json.write_text(json.dumps({"rows": found, "passed": passed}, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
