"""One token per amino acid: twenty, the rarer and ambiguous ones, the stop, gaps.

One-letter codes are those of IUPAC-IUB (1984, European Journal of Biochemistry 138, 9) with U
(selenocysteine), O (pyrrolysine) and J (leucine or isoleucine).
"""

from __future__ import annotations

from typing import ClassVar

from regard.tokens.alphabet import Alphabet, folded, kept
from regard.tokens.letters import Letters

STANDARD = "ACDEFGHIKLMNPQRSTVWY"
AMINO_ACIDS = STANDARD + "XBZJUO" + "*" + "-."  # X is any; * ends a chain; two signs for a gap


class Residues(Letters):
    """Amino acids."""

    kind: ClassVar[str] = "residues"
    alphabets: ClassVar[tuple[Alphabet, ...]] = (folded(AMINO_ACIDS), kept(AMINO_ACIDS))
