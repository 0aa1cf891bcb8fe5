"""Biological sequences: DNA, RNA and proteins, written in letters.

The two strands of DNA mean the same: `[augment] name = "strands"` shows a model either of them, and
predictions for both are averaged (Shrikumar et al. 2017, doi:10.1101/103663).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.data.column_kinds import SEQUENCE, CellSample, ColumnKind
from regard.modalities import Augmentation
from regard.modalities.text import Text, TextConfig

if TYPE_CHECKING:
    from regard.data.sources import SourceChunk, Views
    from regard.evaluation.validity import Rule
    from regard.tokenizers.tokenizer import Canonical

BASES = "ACGTU"
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
OTHER_RESIDUES = "XBZUOJ*.-"  # ambiguous and rare ones, stops and gaps
RARE = 0.05  # share of other letters and other cells that there may be
MIN_BASES = 8  # letters of a sequence of bases, ...
LONG_WORD = 20  # ... and of residues, that make it no word; ...
SHORTEST = 3  # ... a list of so many different ones may have shorter ones
MANY = 20
# Secondary structure as DSSP writes it (Kabsch & Sander 1983, doi:10.1002/bip.360221211); of three
# states, H, E and C.
STRUCTURE = {
    "H": "α-helix",
    "E": "β-strand",
    "C": "coil",
    "B": "β-bridge",
    "G": "3₁₀-helix",
    "I": "π-helix",
    "P": "κ-helix",
    "T": "turn",
    "S": "bend",
    "L": "loop",
    "-": "coil",
}
# Settings that only some tokenizers have.
OPTIONS = {"k": ("kmers",), "stride": ("kmers",), "case": ("nucleotides", "residues")}


@dataclass(frozen=True, kw_only=True)
class BiologyConfig(TextConfig):
    """How sequences become ids."""

    name: str = "biology"
    k: int = 0  # of kmers: bases of a word; 0 = six
    stride: int = 0  # of kmers: 1 = overlapping; 0 = k, side by side
    case: Literal["fold", "keep"] = "fold"  # lower-case letters are read as upper-case ones

    def __post_init__(self) -> None:
        super().__post_init__()
        for setting in fields(self):
            kinds = OPTIONS.get(setting.name, (self.tokenizer,))
            given = getattr(self, setting.name) != setting.default
            if given and self.tokenizer not in kinds:
                names = " and ".join(kinds)
                raise ValueError(f"{setting.name} is for {names}, not for {self.tokenizer}")


class Biology(Text):
    """Sequences of bases or amino acids."""

    name = "biology"
    words = ("sequence", "sequences")
    default_tokenizer = "nucleotides"
    Config: ClassVar[type] = BiologyConfig

    def validity_rule(self, encoder: Any) -> Rule | None:
        """A sequence is valid if it has no other letters than bases or amino acids."""
        from regard.evaluation.validity import Rule

        letters = set(encoder.standard_symbols)
        if not letters:
            return None

        def normal_form(text: str) -> str | None:
            folded = text.strip().upper()
            return folded if folded and set(folded) <= letters else None

        return Rule(f"they have no letters but {''.join(sorted(letters))}", normal_form)

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        return recognize_bases(sample.cells) or recognize_residues(sample.cells)

    def describe_labels(self, labels: Sequence[str]) -> dict[str, str]:
        proteins = self.config.tokenizer in ("residues", "protein-bpe")
        if not proteins or "H" not in labels or not set(labels) <= STRUCTURE.keys():
            return {}
        return {label: STRUCTURE[label] for label in labels}


def _kind(name: str, score: float, reason: str) -> ColumnKind:
    return ColumnKind(
        name=name,
        reason=reason,
        score=score,
        rank=SEQUENCE,
        modality=Biology.name,
        tokenizer=name,
    )


def recognize_bases(cells: Sequence[str]) -> ColumnKind | None:
    """Return the kind of cells that are nearly all DNA or RNA; else None.

    Words of the letters of bases exist, such as CAT and tag, so cells must be long, or many.
    """
    from regard.tokenizers.biology import AMBIGUOUS, GAP

    fitting = [cell for cell in cells if set(cell.upper()) <= {*BASES, *AMBIGUOUS, *GAP}]
    if not fitting or len(fitting) < (1 - RARE) * len(cells):
        return None
    letters = Counter("".join(fitting).upper())
    known = letters.total() - letters["N"] - sum(letters[gap] for gap in GAP)
    bases = sum(letters[base] for base in BASES)
    if not bases or bases <= (1 - RARE) * known or not _are_sequences(fitting, MIN_BASES):
        return None
    return _kind("nucleotides", 2, "all letters are of DNA or RNA")


def recognize_residues(cells: Sequence[str]) -> ColumnKind | None:
    """Return the kind of cells that are nearly all proteins or peptides; else None.

    Half of all English words have no letter but those of residues, so that nearly all of many must;
    lower-case ones must be longer than words.
    """
    fitting = [
        cell
        for cell in cells
        if set(cell.upper()) <= {*RESIDUES, *OTHER_RESIDUES}
        and (len(cell) >= LONG_WORD or (cell.isupper() and set(cell) <= {*RESIDUES, "X", "*"}))
    ]
    if not fitting or len(fitting) < (1 - RARE) * len(cells):
        return None
    letters = Counter("".join(fitting).upper())
    usual = sum(letters[residue] for residue in RESIDUES)
    if usual <= (1 - RARE) * letters.total() or len(letters) <= len(BASES):
        return None
    if not _are_sequences(fitting, LONG_WORD):
        return None
    return _kind("residues", 1, "nearly all letters are amino acids")


def _are_sequences(cells: Sequence[str], length: int) -> bool:
    """Return whether half of the cells have this length or, of many different ones, a few letters:
    short ones may be codes of classes, or words.
    """
    median = sorted(map(len, cells))[len(cells) // 2]
    return median >= length or (median >= SHORTEST and len(set(cells)) >= MANY)


@dataclass(frozen=True, kw_only=True)
class StrandsConfig:
    """Both strands of DNA."""

    name: str = "strands"


class Strands(Augmentation):
    """Show each sequence as it is and as its reverse complement (Shrikumar et al. 2017,
    doi:10.1101/103663).
    """

    Config: ClassVar[type] = StrandsConfig

    def views(self) -> Views:
        from regard.data.sources import Views
        from regard.tokenizers.biology import other_strand

        return Views(2, lambda text, count: [text, other_strand(text)])

    def running_text(self, chunks: Iterator[SourceChunk]) -> Iterator[SourceChunk]:
        return both_strands(chunks)

    def canonical(self, form: Canonical) -> Canonical:
        from regard.tokenizers.biology import either_strand

        return form.then(either_strand, "strand")


PART = 1 << 20  # letters of a text that are yielded at once


def both_strands(chunks: Iterable[SourceChunk]) -> Iterator[SourceChunk]:
    """Yield running text and, after each training document, its other strand as a document."""
    from regard.data.sources import SourceChunk
    from regard.tokenizers.biology import other_strand

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
