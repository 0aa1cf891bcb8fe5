"""Biological sequences: DNA, RNA and proteins, written in letters.

The two strands of DNA mean the same: `[augment] name = "strands"` shows a model either of them, and
predictions for both are averaged (Shrikumar et al. 2017, doi:10.1101/103663).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal

from regard.modalities import Augmentation
from regard.modalities.text import Suggestion, Text, TextConfig, TextFacts

if TYPE_CHECKING:
    from regard.data.sources import SourceChunk, Views
    from regard.tokenizers.tokenizer import Canonical

BASES = "ACGTU"
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
RARE = 0.05  # share of other letters that there may be
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
    Config: ClassVar[type] = BiologyConfig

    @classmethod
    def suggest(cls, facts: TextFacts) -> Suggestion:
        from regard.tokenizers.biology import AMBIGUOUS, GAP

        if facts.share(BASES) > 1 - RARE and facts.share(BASES + AMBIGUOUS + GAP) == 1:
            return Suggestion(2, "nucleotides", "all letters are of DNA or RNA")
        if facts.share(RESIDUES) > 1 - RARE and len(facts.characters) > len(BASES):
            return Suggestion(1, "residues", "nearly all letters are amino acids")
        return Suggestion(-1, "nucleotides", "as asked")


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
