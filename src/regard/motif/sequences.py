"""The sequences of a file as digits, those without a motif, and the part that is held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from regard.data.inputs import InputReader
from regard.data.kmer_shuffle import shuffle_kmers
from regard.errors import UserError
from regard.modalities.biology import (
    Biology,
    BiologyConfig,
    recognize_bases,
    recognize_residues,
)
from regard.models.motifs import DNA, PROTEIN, RNA, Ids, MotifAlphabet
from regard.tokenizers.biology import Nucleotides, either_strand

Log = Callable[[str], None]

LOOKED_AT = 1000  # sequences that decide which alphabet a file has
HELD_OUT = 1 / 3  # of the sequences


@dataclass(frozen=True, eq=False)
class MotifSequences:
    """Sequences of one alphabet, with their names."""

    file: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    alphabet: MotifAlphabet

    @cached_property
    def digits(self) -> list[Ids]:
        """The digits of each sequence; an unknown letter is an error that names its record."""
        digits = []
        for name, text in zip(self.names, self.texts, strict=True):
            try:
                digits.append(self.alphabet.encode(text))
            except UserError as error:
                raise UserError(f"{self.file}: record {name}: {error}") from None
        return digits

    @property
    def letters(self) -> int:
        return sum(map(len, self.texts))

    @property
    def has_strands(self) -> bool:
        return bool(self.alphabet.complement)

    @property
    def shuffled_k(self) -> int:
        """The k of the k-mers that a shuffle keeps: one more letter than the background's context,
        which is 2, or 0 where contexts of many letters are too rare.
        """
        return 3 if self.alphabet.size <= 8 else 1

    def subset(self, indices: Sequence[int]) -> MotifSequences:
        part = replace(
            self,
            names=tuple(self.names[i] for i in indices),
            texts=tuple(self.texts[i] for i in indices),
        )
        part.__dict__["digits"] = [self.digits[i] for i in indices]
        return part

    def shuffled(self, random: np.random.Generator) -> MotifSequences:
        """Return the sequences with their letters shuffled, all counts of k-mers kept."""
        size, letters = self.alphabet.size, np.array([*self.alphabet.letters, "X"])
        wild = self.alphabet.wild[:1]
        letters[size] = wild or letters[0]
        texts = [
            "".join(letters[shuffle_kmers(digits, self.shuffled_k, size + 1, random)])
            for digits in self.digits
        ]
        return replace(self, texts=tuple(texts))

    def hold_out(self, random: np.random.Generator) -> tuple[list[int], list[int]]:
        """Return the indices of a training and a held-out part. Equal sequences, on either strand,
        are in one part.
        """
        groups: dict[str, list[int]] = {}
        for i, text in enumerate(self.texts):
            key = text.upper()
            groups.setdefault(either_strand(key) if self.has_strands else key, []).append(i)
        keys, test = list(groups), list[int]()
        for number in random.permutation(len(keys)):
            if len(test) >= HELD_OUT * len(self.texts):
                break
            test += groups[keys[number]]
        inside = set(test)
        return [i for i in range(len(self.texts)) if i not in inside], sorted(test)


def read_sequences(
    path: Path, log: Log, alphabet: MotifAlphabet | None = None, format: str = "auto"
) -> MotifSequences:
    """Read the sequences of a FASTA file, a file of lines or a table; empty and damaged records are
    left out and counted in the log. Without an `alphabet`, the letters decide.
    """
    reader = InputReader().asked(format=format)
    modality = Biology(BiologyConfig(tokenizer="nucleotides"))
    pipe = str(path) == "-"
    batches = reader.records(None if pipe else path, modality, Nucleotides, log)
    items = [item for batch in batches for item in batch]
    records = [item for item in items if not item.note and item.text.strip()]
    if len(records) < len(items):
        log(f"{path}: {len(items) - len(records):,} empty or damaged records left out")
    if not records:
        raise UserError(f"{path} has no sequences")
    texts = tuple(item.text.strip() for item in records)
    names = tuple(item.id for item in records)
    return MotifSequences(str(path), names, texts, alphabet or find_alphabet(path, texts))


def find_alphabet(path: Path, texts: Sequence[str]) -> MotifAlphabet:
    """Return the alphabet of sequences: DNA, RNA or protein; anything else is an error."""
    cells = [text[:LOOKED_AT] for text in texts[:LOOKED_AT]]
    if recognize_bases(cells):
        joined = "".join(cells).upper()
        return RNA if "U" in joined and "T" not in joined else DNA
    if recognize_residues(cells):
        return PROTEIN
    shown = "".join(sorted(set("".join(cells[:20]))))[:30]
    raise UserError(
        f"{path}: motifs are searched in DNA, RNA and proteins, and these letters are of none of "
        f"them: {shown!r}; texts and other symbols: regard train, regard look"
    )
