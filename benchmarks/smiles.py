"""A language model of molecules: HIV and Lipophilicity as SMILES, sampled and read by RDKit.

First every SMILES of HIV must come back from atom tokens, letter by letter. Then the recipe
`recipes/smiles.toml` is trained and 1,000 molecules are sampled at several temperatures, without
any filter: the shares that RDKit reads (valid), that differ as molecules (unique, of the valid),
and that training has not seen (novel, of the unique).

    python benchmarks/smiles.py [--data DIR] [--samples 1000] [--temperatures 1,0.9,0.8]
        [--minutes 0] [--json FILE]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rdkit import Chem, RDLogger

from regard.tokenizers.smiles import Smiles

RECIPE = Path(__file__).parent.parent / "recipes" / "smiles.toml"
REGARD = [sys.executable, "-m", "regard"]


def column(path: Path) -> list[str]:
    """The SMILES of a table."""
    opened = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [row["smiles"].strip() for row in csv.DictReader(opened.decode().splitlines())]


def round_trip(molecules: list[str]) -> int:
    """How many come back changed."""
    tokenizer = Smiles.train(molecules)
    return sum(tokenizer.decode(tokenizer.encode(text)) != text for text in molecules)


def canonical(text: str) -> str | None:
    """The one spelling that RDKit gives a molecule; None if it cannot read it."""
    molecule = Chem.MolFromSmiles(text) if text else None
    return None if molecule is None else str(Chem.MolToSmiles(molecule))


def sampled(run: Path, count: int, temperature: float) -> list[str]:
    """Return samples of a run."""
    words = ["generate", str(run), "--num", str(count), "--temperature", str(temperature)]
    done = subprocess.run([*REGARD, *words], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[:count]


def shares(samples: list[str], known: set[str | None]) -> dict[str, float]:
    """How many are molecules, how many of those differ, how many of these are not known."""
    valid = [spelled for text in samples if (spelled := canonical(text)) is not None]
    unique = set(valid)
    return {
        "samples": len(samples),
        "valid": len(valid) / len(samples),
        "unique": len(unique) / max(1, len(valid)),
        "novel": len(unique - known) / max(1, len(unique)),
    }


def main() -> None:
    """Check, train, sample, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument(
        "--temperatures",
        type=lambda text: [float(t) for t in text.split(",")],
        default=[1, 0.9, 0.8],
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="instead of the recipe's steps")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    RDLogger.DisableLog("rdApp.*")
    hiv = column(args.data / "moleculenet" / "hiv.csv.gz")
    changed = round_trip(hiv)
    print(f"round trip: {len(hiv) - changed:,} of {len(hiv):,} SMILES come back", flush=True)
    molecules = sorted({*hiv, *column(args.data / "moleculenet" / "lipo.csv")})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "all.smi").write_text("\n".join(molecules) + "\n")
        timed = ["--minutes", str(args.minutes)] if args.minutes else []
        began = time.perf_counter()
        run = [str(folder / "all.smi"), "--out", str(folder / "run"), "--quiet", *timed]
        subprocess.run([*REGARD, "train", str(RECIPE), *run], check=True)
        seconds = time.perf_counter() - began
        samples = {each: sampled(folder / "run", args.samples, each) for each in args.temperatures}
        facts = json.loads((folder / "run" / "regard.json").read_text())
    known = {canonical(text) for text in molecules}
    found: dict[str, Any] = {
        "test": facts["metrics"]["test"],
        "seconds": round(seconds, 1),
        "round_trip_changed": changed,
        "sampled": {str(each): shares(texts, known) for each, texts in samples.items()},
    }
    for each, row in found["sampled"].items():
        print(
            f"temperature {each}: {row['valid']:.1%} of {row['samples']:,} samples are molecules,"
            f" {row['unique']:.1%} of those different, {row['novel']:.1%} of these new"
        )
    print(f"trained in {seconds:.0f} s")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
