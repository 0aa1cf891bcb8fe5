"""Several views of one record that mean the same: the two strands of DNA, spellings of a molecule.

Training shows a model one view of a record at a time, another in every pass; answers to all views
are averaged. Reverse complements: Shrikumar et al. 2017, doi:10.1101/103663; randomised SMILES:
Bjerrum 2017, arXiv:1703.07076. What is measured is the record: views are not counted as data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from regard.data.sources import SourceChunk
from regard.tokenizers.biology import other_strand
from regard.tokenizers.smiles import rdkit, silence

PART = 1 << 20  # letters of a text that are written at once
SPELLINGS = 8  # of a molecule, where their number is left open


@dataclass(frozen=True)
class Views:
    """So many views of each text; the first is the text itself."""

    count: int
    make: Callable[[str, int], list[str]]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """All views of all texts, those of one beside each other."""
        return [view for text in texts for view in self.make(text, self.count)]

    def of(self, piece: SourceChunk) -> SourceChunk:
        """A piece with all views of its records."""
        place, count = piece.place, self.count
        return replace(
            piece,
            texts=self.texts(piece.texts),
            targets=[row for row in piece.targets for _ in range(count)],
            keys=[key for key in piece.keys for _ in range(count)],
            place=None if place is None else lambda i: place(i // count),
        )


def views_of(augment: str, count: int = 0) -> Views | None:
    """The views that data.augment names: `strands` or `smiles`; none of an empty name."""
    if not augment:
        return None
    if augment == "strands":
        return Views(2, strands)
    rdkit()  # if it is missing, that is said before anything is read
    return Views(count or SPELLINGS, spellings)


def strands(text: str, count: int = 2) -> list[str]:
    """A sequence and its reverse complement; what is no base stays as it is."""
    return [text, other_strand(text)]


def both_strands(pieces: Iterable[SourceChunk]) -> Iterator[SourceChunk]:
    """Running text, and after each training document its other strand as one more; what is held out
    has one strand.
    """
    held: list[str] = []
    for piece in pieces:
        yield piece
        if piece.side:
            continue
        held += piece.texts
        if piece.ends:
            text, held = strands("".join(held))[1], []
            yield SourceChunk(0, (), begins=True)
            for at in range(0, len(text), PART):
                yield SourceChunk(0, [text[at : at + PART]])
            yield SourceChunk(0, (), ends=True)


def spellings(text: str, count: int) -> list[str]:
    """A molecule as it was written, and in other ways, the same every time; what RDKit cannot read
    is only repeated.
    """
    chem = rdkit()
    with silence():
        molecule = chem.MolFromSmiles(text)
        if molecule is None or count == 1:
            return [text] * count
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1
        return [text, *chem.MolToRandomSmilesVect(molecule, count - 1, seed)]
