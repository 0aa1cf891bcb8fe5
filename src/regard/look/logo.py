"""Sequence logos: a stack of letters per position, as tall as its information content.

Schneider & Stephens 1990 (Nucleic Acids Research 18:6097): a stack is log₂ A − entropy bits tall,
each letter its share of it, the most probable on top.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from regard.look.figures import colours
from regard.look.page import Logo
from regard.models.motifs import DNA, RNA, Motif, MotifAlphabet

# Indices of the series colours: bases in the usual colours (A green, C blue, G yellow, T red),
# amino acids by kind (acidic, basic, polar, small or hydrophobic).
BASES = {"A": 2, "C": 0, "G": 4, "T": 1, "U": 1}
AMINO_ACIDS = {"DE": 1, "KRH": 0, "STNQYCG": 2, "AVLIPMFW": 6}


def motif_logo(
    motif: Motif,
    title: str = "",
    *,
    first: int = 1,
    note: str = "",
    most: float | None = None,
    against_background: bool = False,
) -> Logo:
    """Return the motif as a component of a page or figure, with positions counted from `first`.

    The axis ends at `most` bits, by default the information that a position can have. With
    `against_background`, a stack is the relative entropy to the background.
    """
    alphabet, bits = motif.alphabet, letter_bits(motif, against_background=against_background)
    if most is None:
        tallest = max(float(bits.sum(axis=1).max()), 1e-9)
        most = tallest if against_background else math.log2(alphabet.size)
    return Logo(
        alphabet.letters,
        bits,
        [_colour_index(alphabet, i) for i in range(alphabet.size)],
        most=most,
        first=first,
        title=title or f"motif {motif.consensus}",
        note=note,
    )


def letter_bits(motif: Motif, *, against_background: bool = False) -> NDArray[np.float64]:
    """Return (W, A): the probability of each letter times the information of its position."""
    information = motif.information(against_background=against_background)
    return np.asarray(motif.probabilities * np.maximum(information, 0.0)[:, None])


def _colour_index(alphabet: MotifAlphabet, i: int) -> int:
    """Return the index of a letter's series colour; letters of other alphabets take turns."""
    count, letter = len(colours("series")), alphabet.letters[i]
    if alphabet.letters in (DNA.letters, RNA.letters):
        return BASES[letter]
    if alphabet.size == 20:
        return next((k for letters, k in AMINO_ACIDS.items() if letter in letters), i % count)
    return i % count
