"""Molecules, written as SMILES.

One molecule has many spellings: `[augment] name = "spellings"` shows a model several of them, and
predictions for all are averaged (Bjerrum 2017, arXiv:1703.07076).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from regard.modalities import Augmentation
from regard.modalities.text import Suggestion, Text, TextConfig, TextFacts
from regard.recipe import check_range

if TYPE_CHECKING:
    from regard.data.sources import Views
    from regard.tokenizers.tokenizer import Canonical

MIN_MOLECULES = 10  # records that there must be to recognize SMILES
RARE = 0.05  # share of records that may be no SMILES
BRANCHES = set("=#()[")  # some record has one of these, or the texts are chains of a few letters


@dataclass(frozen=True, kw_only=True)
class ChemistryConfig(TextConfig):
    """How SMILES become ids."""

    name: str = "chemistry"


class Chemistry(Text):
    """Molecules as SMILES."""

    name = "chemistry"
    words = ("molecule", "molecules")
    Config: ClassVar[type] = ChemistryConfig

    @classmethod
    def suggest(cls, facts: TextFacts) -> Suggestion:
        from regard.tokenizers.smiles import written_as_smiles

        if facts.format == "smi" or "smiles" in facts.column.lower():
            return Suggestion(5, "smiles", "the column says so")
        records = facts.first
        branched = len(records) >= MIN_MOLECULES and any(BRANCHES & set(text) for text in records)
        if branched and sum(map(written_as_smiles, records)) >= (1 - RARE) * len(records):
            return Suggestion(4, "smiles", "the texts are SMILES of molecules")
        return Suggestion(-1, "smiles", "as asked")


@dataclass(frozen=True, kw_only=True)
class SpellingsConfig:
    """Several SMILES of each molecule."""

    name: str = "spellings"
    views: int = 8

    def __post_init__(self) -> None:
        check_range("views", self.views, 1000)


class Spellings(Augmentation):
    """Show each molecule in several spellings (Bjerrum 2017, arXiv:1703.07076)."""

    Config: ClassVar[type] = SpellingsConfig

    def views(self) -> Views:
        from regard.data.sources import Views
        from regard.tokenizers.smiles import rdkit

        rdkit()  # if it is missing, that is said before anything is read
        return Views(self.config.views, spellings)

    def canonical(self, form: Canonical) -> Canonical:
        from regard.tokenizers.smiles import canonical_smiles

        return canonical_smiles()


def spellings(text: str, count: int) -> list[str]:
    """Return a molecule as it is written and in other ways, always the same; what RDKit cannot
    parse is repeated.
    """
    from regard.tokenizers.smiles import rdkit, silence

    chem = rdkit()
    with silence():
        molecule = chem.MolFromSmiles(text)
        if molecule is None or count == 1:
            return [text] * count
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1
        return [text, *chem.MolToRandomSmilesVect(molecule, count - 1, seed)]
