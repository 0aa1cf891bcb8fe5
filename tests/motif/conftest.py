"""Sequences with a planted motif, and one search in them that several tests look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from regard.models.motifs import DNA, PositionWeightMatrix
from regard.motif import MotifResult, SearchOptions, search

TRUTH = "TTGCAGGACA"


@dataclass(frozen=True)
class Planted:
    """A FASTA file of sequences with a motif, one without, and where the motif begins."""

    file: Path
    background: Path
    starts: dict[int, tuple[int, int]]  # by sequence: position and strand


def write_fasta(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f">s{i} of a test\n{text}\n" for i, text in enumerate(texts)))
    return path


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("planted"), np.random.default_rng(0)
    digits, starts = random.integers(0, 4, (90, 60)), {}
    for i, site in enumerate(PositionWeightMatrix.fit([TRUTH], pseudocount=0.1).sample(75, random)):
        at, strand = int(random.integers(0, 51)), int(random.choice([1, -1]))
        digits[i, at : at + 10] = site if strand > 0 else DNA.reverse_complement(site)
        starts[i] = at, strand
    texts = ["".join(DNA.letters[i] for i in row) for row in digits]
    others = ["".join(random.choice(list("ACGT"), 60)) for _ in range(60)]
    file = write_fasta(folder / "sites.fa", texts)
    return Planted(file, write_fasta(folder / "others.fa", others), starts)


@pytest.fixture(scope="session")
def result(planted) -> MotifResult:
    """A search at orders 0 and 1 against the other file, without networks."""
    options = SearchOptions(orders=(1,), background=planted.background, minutes=0)
    return search(planted.file, options, lambda line: None)
