"""Motifs in the MEME suite's minimal text format, read and written.

A file is a version line, then optionally the alphabet, the strands and the background, then motifs:

    MEME version 4
    ALPHABET= ACGT
    strands: + -
    Background letter frequencies
    A 0.25 C 0.25 G 0.25 T 0.25
    MOTIF name other-name
    letter-probability matrix: alength= 4 w= 2 nsites= 20 E= 0
     0.9 0.1 0 0
     0 0 1 0
    URL http://example.org

What is not understood is an error that names the line, not something to skip. Left out, the
alphabet is that of the background, DNA without one; the background is uniform, the number of sites
20 and E 0. The format's defaults are those of its description at meme-suite.org.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import UserError
from regard.models.motifs import (
    DNA,
    PROTEIN,
    RNA,
    Background,
    Floats,
    Motif,
    MotifAlphabet,
    PositionWeightMatrix,
)
from regard.storage import read_bytes, write_text

ALPHABETS = (DNA, RNA, PROTEIN)
DIGITS = 6  # decimals of a probability
ROUNDING = 0.02  # how far a row's sum may be from 1: files with two decimals exist
SITES = 20.0  # if a file does not give their number
MAX_BYTES = 256 << 20  # of a file
PAIR = re.compile(r"(alength|w|nsites|E)=\s*(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class MemeMotif:
    """A motif of a file with its names, its E-value and its URL."""

    motif: Motif
    name: str
    alternate: str = ""
    e_value: float = 0.0
    url: str = ""


def read_meme(path: str | Path) -> list[MemeMotif]:
    """Return all motifs of a file, each with the file's background and its number of sites."""
    try:
        text = read_bytes(Path(path), MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from None
    return MemeReader(str(path), text).motifs()


def write_meme(path: str | Path, motifs: Sequence[MemeMotif], *, both_strands: bool = True) -> None:
    """Write motifs that share alphabet and background into one file. Of a Markov motif, the format
    can hold only the frequency of each letter at each position.
    """
    if not motifs:
        raise UserError("no motifs to write")
    first = motifs[0].motif
    letters, frequencies = first.alphabet.letters, first.background.frequencies
    if letters not in [alphabet.letters for alphabet in ALPHABETS]:
        raise UserError(f"the MEME suite knows DNA, RNA and protein, not the alphabet {letters!r}")
    lines = ["MEME version 4", "", f"ALPHABET= {letters}", ""]
    if first.alphabet.complement:
        lines += [f"strands: +{' -' * both_strands}", ""]
    pairs = zip(letters, decimals(frequencies), strict=True)
    lines += ["Background letter frequencies"]
    lines += [" ".join(f"{letter} {p}" for letter, p in pairs), ""]
    for one in motifs:
        motif = one.motif
        same = motif.alphabet.letters == letters
        if not same or not np.allclose(motif.background.frequencies, frequencies, atol=1e-6):
            raise UserError(f"{one.name}: motifs of one file share alphabet and background")
        for word in (one.name, one.alternate, one.url):
            if word != "".join(word.split()) or not word.isprintable():
                raise UserError(f"{word!r}: names and addresses in a MEME file have no spaces")
        if not one.name or not 0 <= one.e_value < math.inf:
            raise UserError(f"{one.name!r}: a motif needs a name, and an E-value of 0 or more")
        lines += [f"MOTIF {one.name} {one.alternate}".rstrip(), ""]
        lines += [
            f"letter-probability matrix: alength= {len(letters)} w= {motif.width} "
            f"nsites= {motif.sites:.12g} E= {one.e_value:.6g}"
        ]
        lines += [" " + " ".join(decimals(row)) for row in motif.probabilities]
        lines += ["", *([f"URL {one.url}", ""] if one.url else [])]
    write_text(Path(path), "\n".join(lines))


def decimals(probabilities: Floats) -> list[str]:
    """Round probabilities such that they sum to 1: writing what was read changes nothing."""
    scaled = probabilities * 10**DIGITS
    units = np.floor(scaled).astype(np.int64)
    missing = 10**DIGITS - int(units.sum())
    units[np.argsort(units - scaled, kind="stable")[:missing]] += 1
    return [f"{n / 10**DIGITS:.{DIGITS}f}" for n in units]


class MemeReader:
    """Reads the lines of a file one after the other, without blank ones."""

    def __init__(self, name: str, text: str) -> None:
        numbered = enumerate(text.split("\n"), 1)
        self.lines = [(number, line.strip()) for number, line in numbered if line.strip()]
        self.name, self.at = name, 0

    def fail(self, problem: str) -> UserError:
        number = self.lines[self.at - 1][0] if self.at else 1
        return UserError(f"{self.name}, line {number}: {problem}")

    def peek(self, *beginnings: str) -> bool:
        return self.at < len(self.lines) and self.lines[self.at][1].startswith(beginnings)

    def next(self, expected: str) -> str:
        if self.at == len(self.lines):
            raise self.fail(f"the file ends where {expected} should follow")
        self.at += 1
        return self.lines[self.at - 1][1]

    def motifs(self) -> list[MemeMotif]:
        if not re.match(r"MEME version [45](\.|\s|$)", self.next("`MEME version 4`")):
            raise self.fail("a MEME motif file begins with `MEME version 4` (or 5)")
        alphabet, background = self.header()
        motifs: list[MemeMotif] = []
        while self.at < len(self.lines):
            motifs.append(self.motif(alphabet, background))
        if not motifs:
            raise self.fail("the file holds no MOTIF")
        return motifs

    def header(self) -> tuple[MotifAlphabet, Background]:
        """Return alphabet and background; the strands are only checked."""
        alphabet: MotifAlphabet | None = None
        background: Background | None = None
        keys: set[str] = set()
        while self.peek("ALPHABET", "strands:", "Background letter frequencies"):
            line = self.next("the header")
            key = re.split("[=: ]", line)[0]
            if key in keys:
                raise self.fail(f"a second {key!r} line")
            keys.add(key)
            if key == "ALPHABET":
                alphabet = self.alphabet(line)
            elif key == "strands":
                if line.removeprefix("strands:").split() not in (["+"], ["+", "-"]):
                    raise self.fail("strands must be `+` or `+ -`")
            else:
                background = self.background(alphabet)
                alphabet = background.alphabet
        alphabet = alphabet or DNA
        return alphabet, background or Background.uniform(alphabet)

    def alphabet(self, line: str) -> MotifAlphabet:
        """Return the alphabet of a line `ALPHABET= letters`: one that the MEME suite has."""
        letters = line.removeprefix("ALPHABET").removeprefix("=").strip()
        for alphabet in ALPHABETS:
            if letters == alphabet.letters:
                return alphabet
        allowed = ", ".join(alphabet.letters for alphabet in ALPHABETS)
        raise self.fail(f"the alphabet must be one of {allowed}, got {letters[:40]!r}")

    def background(self, alphabet: MotifAlphabet | None) -> Background:
        """Return the background: letters and their frequencies, on one line or several."""
        letters, values = "", []
        while self.at < len(self.lines) and not self.peek("MOTIF", "ALPHABET", "strands:"):
            words = self.next("letter frequencies").split()
            if len(words) % 2:
                raise self.fail("letter frequencies are pairs of a letter and a number")
            letters += "".join(words[::2])
            values += [self.number(word, "a frequency", 1.0) for word in words[1::2]]
        for known in [alphabet] if alphabet else ALPHABETS:
            if letters == known.letters and len(values) == known.size:
                self.check_sum(values)
                return Background.of(values, known)
        wanted = alphabet.letters if alphabet else "an alphabet"
        raise self.fail(
            f"frequencies must be of the letters of {wanted}, in order: {letters[:40]!r}"
        )

    def motif(self, alphabet: MotifAlphabet, background: Background) -> MemeMotif:
        words = self.next("a MOTIF").split()
        if words[0] != "MOTIF" or not 2 <= len(words) <= 3:
            raise self.fail(f"expected `MOTIF name [other-name]`, got {' '.join(words)[:60]!r}")
        line = self.next("a letter-probability matrix")
        start = "letter-probability matrix:"
        if not line.startswith(start):
            raise self.fail(f"expected `{start}`, got {line[:60]!r}")
        width, sites, e_value = self.matrix_header(line.removeprefix(start).strip(), alphabet)
        rows = []
        while not self.peek("MOTIF", "URL") and self.at < len(self.lines):
            cells = self.next("a row of probabilities").split()
            if len(cells) != alphabet.size:
                raise self.fail(f"a row has {alphabet.size} probabilities, got {len(cells)}")
            rows.append([self.number(cell, "a probability", 1.0) for cell in cells])
            self.check_sum(rows[-1])
        if not rows or (width and len(rows) != width):
            raise self.fail(f"the matrix of {words[1]} has {len(rows)} rows, w= {width or 'none'}")
        matrix = PositionWeightMatrix.of_counts(
            rows, alphabet, pseudocount=0.0, background=background
        )
        matrix.sites = sites
        url = self.url() if self.peek("URL") else ""
        other = words[2] if len(words) > 2 else ""
        return MemeMotif(motif=matrix, name=words[1], alternate=other, e_value=e_value, url=url)

    def url(self) -> str:
        words = self.next("a URL").split()
        if words[0] != "URL" or len(words) != 2:
            raise self.fail("expected `URL address`")
        return words[1]

    def matrix_header(self, line: str, alphabet: MotifAlphabet) -> tuple[int, float, float]:
        """Return w (0 if left out), nsites and E of `alength= 4 w= 8 nsites= 20 E= 0`."""
        values: dict[str, float] = {}
        while line:
            pair = PAIR.match(line)
            if pair is None or pair[1] in values:
                raise self.fail(
                    f"expected alength=, w=, nsites= or E=, each once, got {line[:60]!r}"
                )
            values[pair[1]] = self.number(pair[2], pair[1], math.inf)
            line = line[pair.end() :]
        if values.get("alength", alphabet.size) != alphabet.size:
            raise self.fail(f"alength must be {alphabet.size}, got {values['alength']:g}")
        width = values.get("w", 0.0)
        if width != int(width) or ("w" in values and width < 1):
            raise self.fail(f"w must be a whole number of 1 or more, got {width:g}")
        return int(width), values.get("nsites", SITES), values.get("E", 0.0)

    def number(self, word: str, what: str, most: float) -> float:
        """Return a finite number from 0 to `most`."""
        try:
            value = float(word) if "_" not in word else math.nan
        except ValueError:
            value = math.nan
        if not (0 <= value <= most and math.isfinite(value)):
            limit = "" if most == math.inf else f" to {most:g}"
            raise self.fail(f"{what} must be a number of 0 or more{limit}, got {word[:40]!r}")
        return value

    def check_sum(self, values: Sequence[float]) -> None:
        """Refuse probabilities that do not sum to 1, but for rounding."""
        if abs(sum(values) - 1) > ROUNDING:
            raise self.fail(f"probabilities must sum to 1, got {sum(values):g}")
