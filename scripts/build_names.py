"""Rebuild src/regard/bundled/names.txt from the PyPI package `names`, byte for byte.

Usage: python scripts/build_names.py [--out FILE] [--check]

The package (0.3.0) carries the US Census Bureau's name files of 1990, which are in the public
domain: first names of women and men, and last names by falling frequency. The list is all the first
names and the most frequent last names, lower case, each once, in alphabetical order, one a line.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

BUNDLED = Path(__file__).resolve().parent.parent / "src" / "regard" / "bundled" / "names.txt"
LAST_NAMES = 25_000  # as many as keep the file near a quarter of a megabyte


def read(path: Path) -> list[str]:
    """The names of a census file, most frequent first: NAME, share, running share, rank."""
    return [line.split()[0].lower() for line in path.read_text(encoding="ascii").splitlines()]


def names_text(folder: Path) -> str:
    """The whole list as text, from the folder that holds the census files."""
    first = read(folder / "dist.female.first") + read(folder / "dist.male.first")
    last = read(folder / "dist.all.last")[:LAST_NAMES]
    return "".join(f"{name}\n" for name in sorted({*first, *last}))


def package_folder() -> Path:
    """Where the package `names` is installed."""
    found = importlib.util.find_spec("names")
    if found is None or found.origin is None:
        sys.exit("error: the package `names` is missing; install it with: pip install names==0.3.0")
    return Path(found.origin).parent


def main() -> None:
    """Write the list, or with --check only compare it with what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=BUNDLED, help="file to write or to check")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if different")
    arguments = parser.parse_args()
    made = names_text(package_folder()).encode("ascii")
    if not arguments.check:
        arguments.out.write_bytes(made)
        lines = made.count(b"\n")
        print(f"{arguments.out}: {lines:,} names, {len(made):,} bytes")
    elif arguments.out.read_bytes() != made:
        sys.exit(f"error: {arguments.out} differs from what the package `names` gives")


if __name__ == "__main__":
    main()
