"""Sequence logos: a stack of letters per position, as tall as its information content.

Schneider & Stephens 1990 (Nucleic Acids Research 18:6097): a stack is log₂ A − entropy bits tall,
each letter its share of it, the most probable on top. The picture is one SVG of plain text elements
stretched to size: no fonts, scripts or files from elsewhere, and the letters can be read aloud.
"""

from __future__ import annotations

import math

import numpy as np

from regard.errors import UsageError
from regard.look.figures import colours
from regard.look.page.component import escape
from regard.look.page.symbols import Logo
from regard.models.motifs import DNA, RNA, Motif, MotifAlphabet

CAP = 0.72  # height of a capital letter over the font size, as in Arial, Helvetica and Liberation
UNIT = 100  # a letter is drawn this wide and tall, then scaled
FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 30, 26  # room around the stacks, pixels
THINNEST = 0.05  # pixels: a letter below is not drawn
# One of the house series by the letter: bases by the usual colours (A green, C blue, G yellow,
# T red), amino acids by kind (acidic, basic, polar, small or hydrophobic).
BASES = {"A": 2, "C": 0, "G": 4, "T": 1, "U": 1}
KINDS = {"DE": 1, "KRH": 0, "STNQYCG": 2, "AVLIPMFW": 6}


def logo(
    motif: Motif,
    title: str = "",
    *,
    column: float = 28,
    height: float = 140,
    against_background: bool = False,
) -> str:
    """The motif as an SVG document. `column` is a position's width in pixels, `height` that of the
    tallest possible stack; a stack is the relative entropy to the background where asked.
    """
    if column <= 0 or height <= 0:
        raise UsageError(f"column and height must be positive, got {column} and {height}")
    bits = heights(motif, against_background=against_background)  # (W, A)
    most = math.log2(motif.alphabet.size)
    if against_background:
        most = max(float(bits.sum(axis=1).max()), 1e-9)
    width, tall = LEFT + column * motif.width + RIGHT, TOP + height + BOTTOM
    total = bits.sum()
    name = title or f"motif {motif.consensus}"
    told = f"{motif.width} positions, {total:.1f} bits, most probable letters {motif.consensus}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title told" '
        f'viewBox="0 0 {width:g} {tall:g}" width="{width:g}" height="{tall:g}">',
        f'<title id="title">{safe(name)}</title><desc id="told">{safe(told)}</desc>',
        f'<rect width="{width:g}" height="{tall:g}" fill="{colours("paper")[0]}"/>',
        f'<text x="{LEFT}" y="18" font-family="{FONT}" font-size="13" font-weight="bold" '
        f'fill="{colours("ink")[0]}">{safe(name)}</text>',
        *axes(motif.width, column, height, most),
    ]
    for j, stack in enumerate(bits):
        base = TOP + height
        for i in np.argsort(stack, kind="stable"):
            size = float(stack[i]) * height / most
            if size > THINNEST:
                place = LEFT + (j + 0.04) * column, base, 0.92 * column / UNIT, size / UNIT
                parts.append(letter(motif.alphabet, int(i), *place))
                base -= size
    return "\n".join([*parts, "</svg>", ""])


def heights(motif: Motif, *, against_background: bool = False) -> np.ndarray:
    """(W, A) bits of each letter: its probability times its position's information."""
    information = motif.information(against_background=against_background)
    return np.asarray(motif.probabilities * np.maximum(information, 0.0)[:, None])


def letter(alphabet: MotifAlphabet, i: int, x: float, y: float, wide: float, tall: float) -> str:
    """One letter standing on (x, y), scaled from UNIT by UNIT."""
    return (
        f'<text transform="translate({x:.6g} {y:.6g}) scale({wide:.6g} {tall:.6g})" '
        f'textLength="{UNIT}" lengthAdjust="spacingAndGlyphs" font-family="{FONT}" '
        f'font-weight="bold" font-size="{UNIT / CAP:.6g}" fill="{colour(alphabet, i)}">'
        f"{safe(alphabet.letters[i])}</text>"
    )


def shade(alphabet: MotifAlphabet, i: int) -> int:
    """Which of the house series a letter has; alphabets other than bases and amino acids go round
    them.
    """
    count, given = len(colours("series")), alphabet.letters[i]
    if alphabet.letters in (DNA.letters, RNA.letters):
        return BASES[given]
    if alphabet.size == 20:
        return next((k for letters, k in KINDS.items() if given in letters), i % count)
    return i % count


def colour(alphabet: MotifAlphabet, i: int) -> str:
    """That of a letter."""
    return colours("series")[shade(alphabet, i)]


def panel(
    motif: Motif, title: str = "", *, first: int = 1, note: str = "", most: float | None = None
) -> Logo:
    """The motif as a component of a page; its positions are counted from `first`. The axis ends at
    `most` bits, by default those that a position can have.
    """
    letters = motif.alphabet.letters
    return Logo(
        letters,
        heights(motif),
        [shade(motif.alphabet, i) for i in range(len(letters))],
        most=math.log2(len(letters)) if most is None else most,
        first=first,
        title=title or f"motif {motif.consensus}",
        note=note,
    )


def axes(width: int, column: float, height: float, most: float) -> list[str]:
    """Bits on the left, positions below."""
    line, muted, base = colours("line")[0], colours("muted")[0], TOP + height
    style = f'font-family="{FONT}" font-size="10" fill="{muted}"'
    path = f"M{LEFT} {TOP} V{base:g} H{LEFT + column * width:g}"
    found = [f'<path d="{path}" fill="none" stroke="{line}"/>']
    for tick in range(math.floor(most) + 1):
        y = base - tick * height / most
        found.append(f'<text x="{LEFT - 6}" y="{y + 3:g}" text-anchor="end" {style}>{tick}</text>')
    middle = TOP + height / 2
    found.append(
        f'<text transform="translate(14 {middle:g}) rotate(-90)" text-anchor="middle" {style}>'
        "bits</text>"
    )
    for j in range(width):
        x = LEFT + (j + 0.5) * column
        found.append(
            f'<text x="{x:g}" y="{base + 15:g}" text-anchor="middle" {style}>{j + 1}</text>'
        )
    return found


def safe(text: str) -> str:
    """Text as text, without the code points XML does not have."""
    return "".join("\ufffd" if ord(c) & 0xFFFE == 0xFFFE else c for c in escape(text))
