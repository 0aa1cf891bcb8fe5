"""One token per base: A, C, G, T or U, the ambiguity codes, the gap.

Codes and their complements are those of IUPAC (Cornish-Bowden 1985, Nucleic Acids Research 13,
3021). Text with U and without T is RNA: U is kept, and a later T read as U. Any other is DNA: U is
read as T.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from regard.errors import UserError
from regard.tokens.alphabet import Alphabet, folded, kept
from regard.tokens.canonical import Canonical
from regard.tokens.letters import Case, Letters
from regard.tokens.tokenizer import SPECIALS, Ids, Tokenizer

BASES = 4  # that are certain; they come first
AMBIGUOUS = "RYSWKMBDHVN"  # two, three or all four of the bases
GAP = "-"
DNA, RNA = "ACGT" + AMBIGUOUS + GAP, "ACGU" + AMBIGUOUS + GAP
OTHER_STRAND = "TGCA" + "YRSWMKVHDBN" + GAP  # what pairs with the letters of DNA, in their order
PAIRS = str.maketrans(f"{DNA}U{DNA.lower()}u", f"{OTHER_STRAND}A{OTHER_STRAND.lower()}a")


class Nucleotides(Letters):
    """Bases of one strand, and the way to the other."""

    kind: ClassVar[str] = "nucleotides"
    alphabets: ClassVar[tuple[Alphabet, ...]] = (
        folded(DNA, {"U": "T"}),
        kept(DNA, {"U": "T"}),
        folded(RNA, {"T": "U"}),
        kept(RNA, {"T": "U"}),
    )

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet)
        partners = alphabet.normal(alphabet.letters.translate(PAIRS))
        self.complement: Ids = np.arange(self.vocab_size, dtype=self.dtype)  # (V,)
        self.complement[len(SPECIALS) :] = self._table[[ord(c) for c in partners]]

    @classmethod
    def choose(cls, texts: Iterable[str], case: Case) -> Alphabet:
        """RNA if there is a U and no T; reading stops at the first T."""
        uracil = False
        for text in texts:
            if "T" in text or "t" in text:
                uracil = False
                break
            uracil = uracil or "U" in text or "u" in text
        return cls.alphabets[2 * uracil + (case == "keep")]

    @classmethod
    def canonical(cls, *, case: Case = "fold", **options: Any) -> Canonical:
        """See Tokenizer; both of the alphabets read U and T as one letter."""
        found = super().canonical(case=case)
        return replace(found, ignores=(*found.ignores, "U or T"))

    def reverse_complement(self, ids: Sequence[int] | Ids) -> Ids:
        """(T,) ids of the other strand, read in its own direction; `<unk>` stays what it is.

        `ids` are as `encode` gives them, without markers.
        """
        letters: Ids = self.complement[unmarked(self, ids)][::-1]
        return letters


def other_strand(text: str) -> str:
    """The reverse complement of a sequence; what is no base stays as it is."""
    return text.translate(PAIRS)[::-1]


def either_strand(text: str) -> str:
    """The strand of a sequence and its reverse complement that comes first by the alphabet."""
    return min(text, other_strand(text))


def unmarked(tokenizer: Tokenizer, ids: Sequence[int] | Ids) -> list[int]:
    """The ids, once it is certain that no marker is among them: it would change ends."""
    found = tokenizer.checked(ids)
    if found and min(found) < tokenizer.unk:
        raise UserError(f"{SPECIALS[min(found)]} is on no strand: give the ids between the markers")
    return found
