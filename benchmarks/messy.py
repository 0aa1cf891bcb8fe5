"""Files as people have them, made from public sets: sorted by label, with missing, repeated and
misspelt cells, numbers with decimal commas, sequences in both cases. Used by defaults.py.
"""

from __future__ import annotations

import csv
import gzip
import random
from pathlib import Path

ESOL = "measured log solubility in mols per litre"


def reviews(data: Path, folder: Path) -> list[str]:
    """1,600 sentences, sorted by label, with semicolons, a byte-order mark, two spellings of each
    label, cells without one, and rows that repeat.
    """
    chance, path, rows = random.Random(1), folder / "reviews.csv", []
    for label, name in (("negative", "neg"), ("positive", "pos")):
        text = (data / f"textclass/mr/rt-polarity.{name}").read_text("utf-8", errors="replace")
        for line in chance.sample(text.splitlines(), 800):
            cell = chance.choices((label, f"{label} ", "NA"), (80, 15, 5))[0]
            rows += [(line, cell)] * chance.choices((1, 2), (95, 5))[0]
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(("no", "comment", "opinion"))
        writer.writerows((i, *row) for i, row in enumerate(rows))
    return [str(path)]


def molecules(data: Path, folder: Path) -> list[str]:
    """ESOL with decimal commas, rows in the order of their values, cells that are no molecules and
    no numbers, and a column of comments.
    """
    chance, path = random.Random(2), folder / "solubility.csv"
    with open(data / "moleculenet/esol_delaney-processed.csv", newline="") as file:
        table = sorted(csv.DictReader(file), key=lambda row: float(row[ESOL]))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("Sample", "Structure", "Solubility", "Remark"))
        for i, row in enumerate(table):
            value = row[ESOL].replace(".", ",")
            value = chance.choices((value, "", "<-8"), (96, 3, 1))[0]
            structure = chance.choices((row["smiles"], "n/a", "C1CC("), (98, 1, 1))[0]
            writer.writerow((f"S-{i:04}", structure, value, chance.choice(("", "", "repeat"))))
    return [str(path)]


def promoters(data: Path, folder: Path) -> list[str]:
    """Promoters of Bacillus, one class after the other, in both cases and some with N, in a table
    with tabs and lines of comments.
    """
    chance, path, rows = random.Random(3), folder / "promoters.tsv", ["sequence\ttype\tstrand"]
    for label, name in (("promoter", "prom"), ("background", "non_prom")):
        raw = gzip.decompress((data / f"dna/cnnprom/Bacillus_{name}.fa.gz").read_bytes()).decode()
        for record in raw.split(">")[1:]:
            bases = "".join(record.split("\n")[1:]).strip()
            if chance.random() < 0.1:
                i = chance.randrange(len(bases) - 3)
                bases = bases[:i] + "NNN" + bases[i + 3 :]
            bases = chance.choice((str.upper, str.lower))(bases)
            rows.append(f"{bases}\t{label}\t{chance.choice('+-')}")
    path.write_text("\n".join(rows) + "\n")
    return [str(path), "--target", "type"]
