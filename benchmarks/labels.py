"""Labels and values on public sets, by the published protocols: the recipe's Transformer and other
rows, by seeds or folds, with the published figure beside them.

A row is trained by `regard train`, the Transformer by `recipes/NAME.toml`, the others as they come
(`--model NAME`). Seeds are told as mean ± standard deviation and, together, as an ensemble whose
probabilities are averaged; folds are pooled: every record is tested once. Figures on the validation
side stand beside them, since they alone may choose a row or a setting.

    python benchmarks/labels.py trec splice esol [--data DIR] [--rows transformer,logistic]
        [--seeds 5] [--jobs 1] [--set train.steps=300] [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RECIPES = Path(__file__).parent.parent / "recipes"
REGARD = [sys.executable, "-m", "regard"]
Rows = Iterable[tuple[str, str]]  # text and label


@dataclass(frozen=True)
class Set:
    """A set of records: how it is prepared, split and judged."""

    prepare: Callable[[Path, Path], list[str]]  # data and folder, to what `regard train` is given
    metric: str
    published: str
    folds: int = 0
    seeds: int = 5
    bar: str = ""
    rows: Mapping[str, list[str]] = field(default_factory=dict)  # what rows are told, if anything


def table(path: Path, rows: Rows, names: tuple[str, str] = ("text", "label")) -> str:
    """A file of two columns; its name."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(names)
        writer.writerows(rows)
    return str(path)


COLUMNS = ["--input", "text", "--target", "label"]


def trec(data: Path, folder: Path) -> list[str]:
    """Six kinds of question."""

    def rows(part: str) -> Rows:
        for line in (data / f"textclass/trec/{part}.txt").read_text("latin-1").splitlines():
            label, text = line.split(" ", 1)
            yield text, label.split(":")[0]

    test = table(folder / "test.tsv", rows("test"))
    return [table(folder / "train.tsv", rows("train")), "--test", test, *COLUMNS]


def mr(data: Path, folder: Path) -> list[str]:
    """Sentences of reviews, for and against."""

    def rows() -> Rows:
        for label in ("pos", "neg"):
            path = data / f"textclass/mr/rt-polarity.{label}"
            for line in path.read_text("utf-8", errors="replace").splitlines():
                yield line, label

    return [table(folder / "all.tsv", rows()), *COLUMNS]


def sst2(data: Path, folder: Path) -> list[str]:
    """The same, newly judged; a split as given."""

    def rows(part: str) -> Rows:
        path = data / f"textclass/sst2/stsa.binary.{part}"
        for line in path.read_text("utf-8", errors="replace").splitlines():
            label, text = line.split(" ", 1)
            yield text, "for" if label == "1" else "against"

    words = [table(folder / "train.tsv", rows("train"))]
    for option, part in (("--valid", "dev"), ("--test", "test")):
        words += [option, table(folder / f"{part}.tsv", rows(part))]
    return [*words, *COLUMNS]


def uci(path: str) -> Callable[[Path, Path], list[str]]:
    """Lines of class, name, bases."""

    def prepare(data: Path, folder: Path) -> list[str]:
        rows = []
        for line in (data / path).read_text("utf-8").splitlines():
            if line.strip():
                label, _, bases = (cell.strip() for cell in line.split(","))
                rows.append((bases.upper(), label))
        return [table(folder / "all.tsv", rows), *COLUMNS]

    return prepare


def records(path: Path) -> Iterable[tuple[str, str]]:
    """Header and sequence of a FASTA file."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    yield from fasta(text.splitlines())


def fasta(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Headers and sequences."""
    header, parts = "", list[str]()
    for line in lines:
        if line.startswith(">"):
            if header:
                yield header, "".join(parts)
            header, parts = line[1:].strip(), []
        else:
            parts.append(line.strip())
    if header:
        yield header, "".join(parts)


def cnnprom(data: Path, folder: Path) -> list[str]:
    """Promoters of E. coli."""
    rows = [
        (bases.upper(), label)
        for label, name in (("promoter", "prom"), ("other", "non_prom"))
        for _, bases in records(data / f"dna/cnnprom/Ecoli_{name}.fa.gz")
    ]
    return [table(folder / "all.tsv", rows), *COLUMNS]


def amplify(data: Path, folder: Path) -> list[str]:
    """Antimicrobial peptides."""

    def rows(part: str) -> Rows:
        for label, name in (("AMP", f"AMP_{part}_common"), ("other", f"non_AMP_{part}_balanced")):
            for _, residues in records(data / f"protein/amplify/AMPlify_{name}.fa"):
                yield residues, label

    test = table(folder / "test.tsv", rows("test"))
    return [table(folder / "train.tsv", rows("train")), "--test", test, *COLUMNS]


def ss3(data: Path, folder: Path) -> list[str]:
    """Secondary structure of proteins, a letter for every residue; unresolved ones are gaps."""
    with zipfile.ZipFile(data / "protein/flip_ss3/splits.zip") as archive:
        files = {
            Path(name).stem: dict(fasta(archive.read(name).decode().splitlines()))
            for name in archive.namelist()
            if name.endswith(".fasta")
        }
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    labels = {header.split()[0]: (header, letters) for header, letters in files["sampled"].items()}
    masks = {header.split()[0]: mask for header, mask in files["mask"].items()}
    for header, residues in files["sequences"].items():
        name = header.split()[0]
        about, letters = labels[name]
        mask = masks.get(name, "1" * len(letters))
        shown = "".join(x if seen == "1" else "?" for x, seen in zip(letters, mask, strict=True))
        side = "test" if "SET=test" in about else "train"
        side = "valid" if "VALIDATION=True" in about else side
        parts[side].append((residues, shown))
    words = [table(folder / "train.tsv", parts["train"])]
    for side in ("valid", "test"):
        words += [f"--{side}", table(folder / f"{side}.tsv", parts[side])]
    return [*words, *COLUMNS, "--task", "position-label"]


def molecules(name: str, column: str, smiles: str = "smiles") -> Callable[[Path, Path], list[str]]:
    """A column of MoleculeNet and its SMILES."""

    def prepare(data: Path, folder: Path) -> list[str]:
        with open(data / f"moleculenet/{name}.csv", newline="", encoding="utf-8") as file:
            rows = [(row[smiles].strip(), row[column]) for row in csv.DictReader(file)]
        path = table(folder / "all.tsv", rows, ("smiles", "label"))
        return [path, "--input", "smiles", "--target", "label"]

    return prepare


ESOL = "measured log solubility in mols per litre"
SETS = {
    "trec": Set(trec, "accuracy", "88.2 CNN, random vectors (Kim 2014)", bar="89.0"),
    "mr": Set(mr, "accuracy", "75.9 CNN, random vectors", folds=10, bar="78, Transformer 75.9"),
    "sst2": Set(sst2, "accuracy", "80–82 without phrases or vectors", bar="80"),
    "splice": Set(uci("dna/uci_splice/splice.data"), "accuracy", "95.4 KBANN", 10, 1, "96.0"),
    "promoters": Set(
        uci("dna/uci_promoters/promoters.data"), "accuracy", "4 errors KBANN", -1, 1, "6 errors"
    ),
    "cnnprom": Set(cnnprom, "mcc", "0.84 CNNProm", 5, 1, "0.84"),
    "amplify": Set(amplify, "accuracy", "93.71, AUROC 98.37", bar="93.7, AUROC 98.0"),
    "ss3": Set(ss3, "accuracy", "65–72 from scratch", seeds=1, bar="70"),
    "esol": Set(
        molecules("esol_delaney-processed", ESOL), "rmse", "0.58 MPNN, 0.97 GC", 0, 3, "0.75"
    ),
    "freesolv": Set(molecules("freesolv", "freesolv"), "rmse", "1.15 MPNN, 1.40 GC", 0, 3, "1.6"),
    "lipo": Set(molecules("lipo", "lipo"), "rmse", "0.655 GC, 0.876 RF", 0, 3, "0.75"),
    "bbbp": Set(molecules("bbbp", "p_np"), "auroc", "0.690 GC, 0.729 SVM", 0, 3),
    "bace": Set(molecules("bace", "Class", "mol"), "auroc", "0.783 GC, 0.867 RF", 0, 3),
}


@dataclass(frozen=True)
class Job:
    """One run: a row on one fold, or with one seed."""

    row: str
    number: int
    run: Path


def train(job: Job, name: str, one: Set, words: Sequence[str], sets: Sequence[str]) -> float:
    """Train it; the seconds that took."""
    recipe = RECIPES / f"{name}.toml"
    told = job.row == "transformer" or job.row in one.rows
    chosen = [str(recipe)] if told and recipe.exists() else []
    chosen += [] if chosen else ["--model", job.row]
    chosen += one.rows.get(job.row, [])
    split = f"data.fold={job.number}" if one.folds else f"train.seed={job.number}"
    folds = [f"data.folds={one.folds}"] if one.folds else []
    if not one.folds and "--test" not in words:  # other seeds, other sides
        folds = [f"data.split_seed={job.number}", "data.valid_fraction=0.1"]
        folds += ["data.test_fraction=0.1"]
    given = [word for each in (*folds, split, *sets) for word in ("--set", each)]
    command = [*REGARD, "train", *chosen, *words, "--out", str(job.run), "--quiet", *given]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


def measure(run: Path, side: str) -> Any:
    """The answers of a run on a held-out side."""
    from regard.api import load_examiner
    from regard.data.corpus import reopen

    shard = reopen(run).side(side)
    return None if shard is None else load_examiner(run, device="auto").measure(shard)


def pooled(parts: Sequence[Any]) -> Any:
    """The answers of all folds as one."""
    from regard.evaluate.answers import Answered

    joined = [np.concatenate([getattr(p, k) for p in parts]) for k in ("scores", "truths")]
    return Answered(parts[0].task, *joined, np.concatenate([p.lengths for p in parts]))


def ensemble(parts: Sequence[Any]) -> Any:
    """What all seeds say of the same records, on average."""
    from regard.evaluate.answers import Answered, averaged

    first = parts[0]
    stacked = np.stack([p.scores for p in parts], 1).reshape(-1, first.scores.shape[1])
    scores = averaged(first.task, stacked, len(parts))
    return Answered(first.task, scores, first.truths, first.lengths)


def summary(name: str, one: Set, row: str, runs: Sequence[Path], seconds: float) -> dict[str, Any]:
    """The figures of a row."""
    found: dict[str, Any] = {"set": name, "row": row, "seconds": round(seconds, 1)}
    for side in ("valid", "test"):
        parts = [part for run in runs if (part := measure(run, side)) is not None]
        if not parts:
            continue
        if one.folds:
            figures = pooled(parts).figures()
            found[side] = {key: figure.to_json() for key, figure in figures.items()}
            continue
        each = [part.figures() for part in parts]
        found[side] = {
            key: {
                "mean": statistics.fmean(f[key].value for f in each),
                "sd": statistics.stdev(f[key].value for f in each) if len(each) > 1 else 0.0,
                "values": [f[key].value for f in each],
            }
            for key in each[0]
        }
        same = all(np.array_equal(p.truths, parts[0].truths, equal_nan=True) for p in parts)
        if same and len(parts) > 1:
            together = ensemble(parts).figures()
            found[side]["ensemble"] = {key: f.to_json() for key, f in together.items()}
    return found


def line(found: dict[str, Any], metric: str) -> str:
    """A row of the table as text."""
    cells = []
    for side in ("valid", "test"):
        told = found.get(side, {})
        if metric in told:
            one = told[metric]
            if "mean" in one:
                cells.append(f"{side} {one['mean']:.4f} ± {one['sd']:.4f}")
            else:
                cells.append(f"{side} {one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}]")
        if "ensemble" in told:
            cells.append(f"together {told['ensemble'][metric]['value']:.4f}")
    return f"  {found['row']:<14} {metric} {', '.join(cells)}; {found['seconds']:.0f} s a run"


def main(sets: Mapping[str, Set] = SETS, about: str | None = __doc__) -> None:
    """Train, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=[*sets, "all"], metavar="SET")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", default="transformer")
    parser.add_argument("--seeds", type=int, default=0, help="0: as the protocol has it")
    parser.add_argument("--jobs", type=int, default=1, help="trained side by side")
    parser.add_argument("--set", action="append", default=[], help="for all runs")
    parser.add_argument("--keep", type=Path, help="where the runs are to stay")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    everything = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in sets if "all" in args.names else args.names:
            one, folder = sets[name], (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            words = one.prepare(args.data, folder)
            count = one.folds if one.folds > 0 else args.seeds or one.seeds
            if one.folds < 0:
                count = len(set((folder / "all.tsv").read_text().splitlines()[1:]))
            print(f"{name}: published {one.published}; wanted {one.bar or 'beside it'}", flush=True)
            for row in args.rows.split(","):
                jobs = [Job(row, n, folder / f"{row}-{n}") for n in range(count)]
                with ThreadPoolExecutor(args.jobs) as pool:
                    took = list(pool.map(lambda j: train(j, name, one, words, args.set), jobs))  # noqa: B023
                runs = [job.run for job in jobs]
                everything.append(summary(name, one, row, runs, statistics.fmean(took)))
                print(line(everything[-1], one.metric), flush=True)
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
