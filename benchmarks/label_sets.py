"""Public sets of labelled records: how each is prepared, split and measured, and published results.

Used by labels.py.
"""

from __future__ import annotations

import csv
import gzip
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Rows = Iterable[tuple[str, str]]  # text and label


@dataclass(frozen=True)
class Set:
    """A set of records: how it is prepared, split and measured."""

    prepare: Callable[[Path, Path], list[str]]  # (data, folder) -> arguments of `regard train`
    metric: str
    published: str
    folds: int = 0
    seeds: int = 5
    bar: str = ""
    recipe: str = ""  # name of the recipe of the Transformer from scratch
    corpus: str = ""  # of pretraining: a key of CORPORA
    settings: tuple[str, ...] = ()  # of both Transformers, on top of their recipes
    split: str = ""  # data.split
    rows: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of rows by the same recipe


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
    """The same sentences with new labels; the published split."""

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
        visible = zip(letters, mask, strict=True)
        target = "".join(x if resolved == "1" else "?" for x, resolved in visible)
        split = "test" if "SET=test" in about else "train"
        split = "valid" if "VALIDATION=True" in about else split
        parts[split].append((residues, target))
    words = [table(folder / "train.tsv", parts["train"])]
    for split in ("valid", "test"):
        words += [f"--{split}", table(folder / f"{split}.tsv", parts[split])]
    return [*words, *COLUMNS, "--task", "position-label"]


def molecules(name: str, column: str, smiles: str = "smiles") -> Callable[[Path, Path], list[str]]:
    """A column of MoleculeNet and its SMILES."""

    def prepare(data: Path, folder: Path) -> list[str]:
        with open(data / f"moleculenet/{name}.csv", newline="", encoding="utf-8") as file:
            rows = [(row[smiles].strip(), row[column]) for row in csv.DictReader(file)]
        path = table(folder / "all.tsv", rows, ("smiles", "label"))
        return [path, "--input", "smiles", "--target", "label"]

    return prepare


def qm7(data: Path, folder: Path) -> list[str]:
    """Molecules and their energies: the first of two columns; the other is no input."""
    at = data / "pointcloud" / "qm7"
    return [str(at / "qm7.xyz.gz"), "--target", str(at / "hof_qm7.txt")]


def sentences(data: Path, path: Path) -> Path:
    """WikiText-2's training part as sentences in lower case, one a line."""
    text = gzip.decompress((data / "wikitext2/train.txt.gz").read_bytes()).decode()
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.strip().startswith("="):
            for sign in "-,.":
                line = line.replace(f" @{sign}@ ", sign)
            parts = (part.split() for part in line.lower().split(" . "))
            lines += [" ".join([*words, "."]) for words in parts if 4 <= len(words) <= 80]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def compounds(data: Path, path: Path) -> Path:
    """The molecules of HIV."""
    with gzip.open(data / "moleculenet/hiv.csv.gz", "rt", newline="", encoding="utf-8") as file:
        path.write_text("".join(row["smiles"].strip() + "\n" for row in csv.DictReader(file)))
    return path


def genome(data: Path, path: Path) -> Path:
    """Write sequences of 81 bases of E. coli's genome, both strands, without those that share 16
    bases with a record of cnnprom.
    """
    (chromosome,) = (bases for _, bases in records(next((data / "dna/ecoli_k12").glob("*.fna.gz"))))
    complement = str.maketrans("ACGT", "TGCA")
    known = set[str]()
    for name in ("prom", "non_prom"):
        for _, bases in records(data / f"dna/cnnprom/Ecoli_{name}.fa.gz"):
            for each in (bases.upper(), bases.upper().translate(complement)[::-1]):
                known.update(each[i : i + 16] for i in range(len(each) - 15))
    lines = []
    for strand in (chromosome, chromosome.translate(complement)[::-1]):
        for start in range(0, len(strand) - 80, 81):
            bases = strand[start : start + 81]
            if known.isdisjoint(bases[i : i + 16] for i in range(66)):
                lines.append(bases)
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


# Corpora of pretraining: how each is made, its recipe, and the recipe of fine-tuning. "own" is the
# set itself.
CORPORA: dict[str, tuple[Callable[[Path, Path], Path] | None, str, str]] = {
    "sentences.txt": (sentences, "pretrain_text", "finetune_text"),
    "compounds.smi": (compounds, "pretrain_molecules", "finetune_molecules"),
    "genome.txt": (genome, "pretrain_bases", "finetune_bases"),
    "own": (None, "pretrain_residues", "finetune_residues"),
}
WINDOWS = {"cnn": ["--model", "cnn", "--set", "model.preset=kim"]}  # by the Transformer's recipe
MOTIFS = {"cnn": ["--model", "cnn", "--set", "model.preset=motifs", "--set", "model.d_model=256"]}
ALIGNED = {  # six layers read all positions, and the first is classified
    "cnn": [*WINDOWS["cnn"], "--set", "model.n_layers=6", "--set", "model.pooling=first"]
}
ESOL = "measured log solubility in mols per litre"
MANY = ("train.steps=3000", "train.batch_tokens=8192", "model.dropout=0.2")  # molecules
TEXT, MOLECULES, GENOME = "sentences.txt", "compounds.smi", "genome.txt"
SETS = {
    "trec": Set(
        trec,
        "accuracy",
        "88.2 CNN, random vectors (Kim 2014)",
        bar="89.0",
        corpus=TEXT,
        rows=WINDOWS,
    ),
    "mr": Set(
        mr,
        "accuracy",
        "75.9 CNN, random vectors (Kim 2014)",
        folds=10,
        bar="78, Transformer 75.9",
        recipe="reviews",
        corpus=TEXT,
        rows=WINDOWS,
    ),
    "sst2": Set(
        sst2,
        "accuracy",
        "80–82 without phrases or vectors",
        bar="80",
        recipe="reviews",
        corpus=TEXT,
        rows=WINDOWS,
    ),
    "splice": Set(
        uci("dna/uci_splice/splice.data"), "accuracy", "95.4 KBANN", 10, 1, "96.0", rows=ALIGNED
    ),
    "promoters": Set(
        uci("dna/uci_promoters/promoters.data"),
        "accuracy",
        "4 errors of 106 KBANN",
        -1,
        1,
        "at most 6 errors",
        recipe="splice",
        settings=("model.n_layers=1", "model.d_model=64", "train.steps=150"),
        rows=MOTIFS,
    ),
    "cnnprom": Set(
        cnnprom,
        "mcc",
        "0.84 CNNProm",
        5,
        1,
        "0.84",
        recipe="ecoli_promoters",
        corpus=GENOME,
        rows=MOTIFS,
    ),
    "amplify": Set(
        amplify,
        "accuracy",
        "93.71, AUROC 98.37, an ensemble of five",
        bar="93.7, AUROC 98.0",
        recipe="peptides",
        corpus="own",
        rows=WINDOWS,
    ),
    "ss3": Set(
        ss3,
        "accuracy",
        "65–72 from scratch",
        bar="70",
        recipe="structure",
        corpus="own",
        rows=WINDOWS,
        settings=(
            "model.max_len=1024",
            "train.steps=2500",
            "train.batch_tokens=16384",
            "train.r_drop=0",
            "train.label_smoothing=0",
        ),
    ),
    "esol": Set(
        molecules("esol_delaney-processed", ESOL),
        "rmse",
        "0.58 MPNN, 0.97 GC",
        seeds=3,
        bar="0.75",
        recipe="molecules",
        corpus=MOLECULES,
        rows=WINDOWS,
    ),
    "freesolv": Set(
        molecules("freesolv", "freesolv"),
        "rmse",
        "1.15 MPNN, 1.40 GC",
        seeds=3,
        bar="1.6",
        recipe="molecules",
        corpus=MOLECULES,
        rows=WINDOWS,
    ),
    "lipo": Set(
        molecules("lipo", "lipo"),
        "rmse",
        "0.655 GC, 0.876 RF",
        seeds=3,
        bar="0.75",
        recipe="molecules",
        corpus=MOLECULES,
        rows=WINDOWS,
        settings=MANY,
    ),
    "bbbp": Set(
        molecules("bbbp", "p_np"),
        "auroc",
        "0.690 GC, 0.729 SVM",
        seeds=3,
        recipe="molecules",
        corpus=MOLECULES,
        rows=WINDOWS,
        split="scaffold",
        settings=("task.name=label",),
    ),
    "bace": Set(
        molecules("bace", "Class", "mol"),
        "auroc",
        "0.783 GC, 0.867 RF",
        seeds=3,
        recipe="molecules",
        corpus=MOLECULES,
        rows=WINDOWS,
        split="scaffold",
        settings=("task.name=label",),
    ),
}
