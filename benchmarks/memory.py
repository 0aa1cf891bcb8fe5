"""How much memory training takes: a small text, and a file larger than any model of it.

    python benchmarks/memory.py [--text FILE] [--gigabytes 2] [--steps 5]

Anonymous memory (RssAnon) and the whole resident set are sampled from /proc every 0.2 s; mapped
files count in the second only, since the system takes them back when it needs room. The bars: 1 GB
resident for the small text, 2 GB anonymous for the large file. Prints a table and a line of JSON.
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

GB = 1 << 30
BARS = {"small": ("rss", 1.0), "large": ("anonymous", 2.0)}
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def sample(pid: int) -> dict[str, int]:
    """Bytes that a process holds now: resident, and of that anonymous."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    names = {"rss": "VmRSS", "anonymous": "RssAnon"}
    return {k: int(fields[v].split()[0]) * 1024 for k, v in names.items() if v in fields}


def peak(text: Path, run: Path, *options: str) -> dict[str, float]:
    """Train in a process of its own; its peaks and how long it took."""
    command = [sys.executable, "-m", "regard", "train", str(text), "--out", str(run), "--quiet"]
    began = time.monotonic()
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    peaks: dict[str, float] = {"rss": 0, "anonymous": 0}
    while process.poll() is None:
        for name, value in sample(process.pid).items():
            peaks[name] = max(peaks[name], value)
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"training failed with {process.returncode}")
    return peaks | {"seconds": round(time.monotonic() - began, 1)}


def paragraphs(size: int, seed: int = 0) -> str:
    """Made-up prose of about so many characters, letters as frequent as in English."""
    source = random.Random(seed)
    weights = [1 / (i + 2) for i in range(len(LETTERS))]
    words = ["".join(source.choices(LETTERS, weights, k=source.randint(1, 9))) for _ in range(5000)]
    parts, length = [], 0
    while length < size:
        parts.append(" ".join(source.choices(words, k=80)) + ".\n\n")
        length += len(parts[-1])
    return "".join(parts)


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="the small text; default made up, 1.1 MB")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        small = arguments.text or here / "small.txt"
        if arguments.text is None:
            small.write_text(paragraphs(1_100_000))
        options = f"--set=train.steps={arguments.steps}"
        found["small"] = peak(small, here / "small-run", options)
        if arguments.gigabytes:
            block = paragraphs(16 << 20).encode()
            with open(here / "large.txt", "wb") as file:
                while file.tell() < arguments.gigabytes * GB:
                    file.write(block)
            found["large"] = peak(here / "large.txt", here / "large-run", options)
    print(f"{'':<8}{'resident':>10}{'anonymous':>11}{'seconds':>9}  bar")
    passed = True
    for name, row in found.items():
        kind, bar = BARS[name]
        kept = row[kind] < bar * GB
        passed &= kept
        sizes = f"{row['rss'] / GB:>7.2f} GB{row['anonymous'] / GB:>8.2f} GB"
        print(
            f"{name:<8}{sizes}{row['seconds']:>9}"
            f"  {kind} < {bar:g} GB: {'kept' if kept else 'BROKEN'}"
        )
    print(json.dumps({"peaks": found, "passed": passed}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
