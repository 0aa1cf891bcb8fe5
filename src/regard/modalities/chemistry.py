"""Molecules, written as SMILES.

One molecule has many spellings: `[augment] name = "spellings"` shows a model several of them, and
predictions for all are averaged (Bjerrum 2017, arXiv:1703.07076).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data.column_kinds import SEQUENCE, CellSample, ColumnKind
from regard.modalities import Augmentation
from regard.modalities.text import Text, TextConfig
from regard.recipe import check_range

if TYPE_CHECKING:
    from regard.data.sources import Views
    from regard.evaluation.validity import Rule
    from regard.look.page.records import Picture
    from regard.tokenizers.tokenizer import Canonical

MIN_MOLECULES = 10  # records that there must be to recognize SMILES
PARSED = 200  # records that are parsed
MOST = 0.95  # share of the records that are SMILES; ...
HALF = 0.5  # ... if the column is called so, or the others are spelled as SMILES
BRANCHES = set("=#()[")  # some record has one of these, or the texts are chains of a few letters


@dataclass(frozen=True, kw_only=True)
class ChemistryConfig(TextConfig):
    """How SMILES become ids."""

    name: str = "chemistry"


class Chemistry(Text):
    """Molecules as SMILES."""

    name = "chemistry"
    words = ("molecule", "molecules")
    has_pictures = True
    default_tokenizer = "smiles"
    Config: ClassVar[type] = ChemistryConfig

    def picture(self, item: Any) -> Picture:
        from regard.look.molecules import draw_smiles

        return draw_smiles(item)

    def validity_rule(self, encoder: Any) -> Rule | None:
        """A SMILES is valid if RDKit can parse it; without RDKit nothing is said."""
        from regard.evaluation.validity import Rule
        from regard.tokenizers.smiles import has_rdkit, parse_smiles

        if not has_rdkit():
            return None
        return Rule("RDKit can parse them", parse_smiles)

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        cells = sample.cells[:: max(1, len(sample.cells) // PARSED)][:PARSED]
        if not cells:
            return None
        written, parsed = share_of_molecules(cells)
        named = sample.format == "smi" or "smiles" in sample.column.lower()
        branched = len(sample.cells) >= MIN_MOLECULES and any(BRANCHES & set(c) for c in cells)
        spelled = branched and (parsed > MOST or (written > MOST and parsed > HALF))
        if not spelled and not (named and (parsed > HALF or sample.format == "smi")):
            return None
        how = "are SMILES" + (f", {parsed:.0%} of them valid" if parsed < 1 else " of molecules")
        return ColumnKind(
            name="SMILES",
            reason=f"the texts {how}",
            score=5,
            rank=SEQUENCE,
            modality=cls.name,
            tokenizer="smiles",
        )


def share_of_molecules(texts: Sequence[str]) -> tuple[float, float]:
    """Return the shares of texts that are spelled as SMILES, and that RDKit can parse; without
    RDKit, both are the first.
    """
    from regard.tokenizers.smiles import is_molecule, written_as_smiles

    written = [written_as_smiles(text) for text in texts]
    parsed = [ok and is_molecule(text) for ok, text in zip(written, texts, strict=True)]
    return sum(written) / len(texts), sum(parsed) / len(texts)


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
