"""Views of a record that mean the same: the two strands of DNA, spellings of a molecule.

Training shows a model one view of a record at a time, another in every epoch; predictions for all
views are averaged. Reverse complements: Shrikumar et al. 2017, doi:10.1101/103663; randomized
SMILES: Bjerrum 2017, arXiv:1703.07076. Metrics are those of records: views do not count as data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from regard.data.sources import SourceChunk
from regard.tokenizers.biology import other_strand
from regard.tokenizers.smiles import rdkit, silence

PART = 1 << 20  # letters of a text that are yielded at once


@dataclass(frozen=True)
class Views:
    """Gives `count` views of each text; the first is the text itself."""

    count: int
    make: Callable[[str, int], list[str]]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return all views of all texts, text by text."""
        return [view for text in texts for view in self.make(text, self.count)]

    def of(self, chunk: SourceChunk) -> SourceChunk:
        """Return a chunk with all views of its records."""
        place, count = chunk.place, self.count
        return replace(
            chunk,
            texts=self.texts(chunk.texts),
            targets=[row for row in chunk.targets for _ in range(count)],
            keys=[key for key in chunk.keys for _ in range(count)],
            place=None if place is None else lambda i: place(i // count),
        )


def both_strands(chunks: Iterable[SourceChunk]) -> Iterator[SourceChunk]:
    """Yield running text and, after each training document, its other strand as a document."""
    parts: list[str] = []
    for chunk in chunks:
        yield chunk
        if chunk.split:
            continue
        parts += chunk.texts
        if chunk.ends:
            text, parts = other_strand("".join(parts)), []
            yield SourceChunk(0, (), begins=True)
            for start in range(0, len(text), PART):
                yield SourceChunk(0, [text[start : start + PART]])
            yield SourceChunk(0, (), ends=True)


def spellings(text: str, count: int) -> list[str]:
    """Return a molecule as it is written and in other ways, always the same; what RDKit cannot
    parse is repeated.
    """
    chem = rdkit()
    with silence():
        molecule = chem.MolFromSmiles(text)
        if molecule is None or count == 1:
            return [text] * count
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1
        return [text, *chem.MolToRandomSmilesVect(molecule, count - 1, seed)]
