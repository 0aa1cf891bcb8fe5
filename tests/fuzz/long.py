"""Damaged files by the thousand: python tests/fuzz/long.py --cases 20000 --minutes 15

Prints what went wrong, the first of each kind with its traceback and the command that repeats it,
and a summary; exits 1 if anything did.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from cases import Outcome, attempt, seeded
from doors import DOORS, Door, Material, Options

Way = Door | Options


def main() -> int:
    """Run the cases; 1 where any of them went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--door", default="", help="this one alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of a door")
    parser.add_argument("--shown", type=int, default=1, help="tracebacks of each kind")
    given = parser.parse_args()
    os.environ["COLUMNS"] = "100"
    torch.set_num_threads(1)
    doors = [door for door in DOORS if given.door in ("", door.name)]
    kinds: Counter[tuple[str, str]] = Counter()
    made, slowest, largest, began = Counter[str](), 0.0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        material = Material(Path(folder) / "material")
        for door, number in scheduled(doors, given.cases, given.first):
            if time.monotonic() > began + 60 * given.minutes:
                break
            found = one_case(door, number, material)
            made[door.name] += 1
            slowest, largest = max(slowest, found.seconds), max(largest, found.grown)
            if found.problem:
                kinds[door.name, key_of(found)] += 1
                if kinds[door.name, key_of(found)] <= given.shown:
                    print(f"--- {door.name} {number}: {found.problem} ({found.seconds:.1f} s)")
                    shown = found.detail.encode("unicode_escape").decode()[-3000:]
                    print(shown.replace("\\n", "\n"), flush=True)
    for (door_name, key), count in kinds.most_common():
        print(f"{count:6} {door_name}: {key}")
    few = {door.name: made[door.name] for door in doors}
    print(", ".join(f"{name} {count}" for name, count in few.items()))
    print(
        f"{made.total():,} cases in {time.monotonic() - began:.0f} s: "
        f"{_total(kinds, 'traceback')} tracebacks, {_total(kinds, 'slow')} over 5 s, "
        f"{_total(kinds, 'long') + _total(kinds, 'message')} long messages, "
        f"{_total(kinds, 'control')} with control characters; slowest {slowest:.1f} s, "
        f"most memory {largest >> 20:,} MB"
    )
    return 1 if kinds else 0


def scheduled(doors: Sequence[Way], cases: int, first: int) -> list[tuple[Way, int]]:
    """Doors and numbers of so many cases, by the shares of the doors, mixed."""
    shares = sum(door.share for door in doors)
    counts = {door.name: -(-cases * door.share // shares) for door in doors}
    found = [(door, first + i) for door in doors for i in range(counts[door.name])]
    random.Random(0).shuffle(found)
    return found[:cases]


def one_case(door: Way, number: int, material: Material) -> Outcome:
    """The case of this number."""
    rng = seeded(door.name, number)
    with tempfile.TemporaryDirectory() as scratch:
        return attempt(door.case(material, Path(scratch), rng))


def key_of(found: Outcome) -> str:
    """Cases with the same key have the same cause, most likely."""
    places = [line.strip() for line in found.detail.splitlines() if "regard/" in line]
    return (
        f"{found.problem} {places[-1] if 'traceback' in found.problem and places else ''}".strip()
    )


def _total(kinds: Counter[tuple[str, str]], beginning: str) -> int:
    return sum(count for (_, key), count in kinds.items() if key.startswith(beginning))


if __name__ == "__main__":
    sys.exit(main())
