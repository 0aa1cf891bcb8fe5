"""Motifs in the text formats of MEME, TRANSFAC and JASPAR, read and written.

MEME's minimal format has probabilities, the alphabet, the strands and the background:

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

TRANSFAC has counts, a line per position, and two letters before every line:

    AC name
    XX
    ID other-name
    XX
    PO A C G T
    01 18 2 0 0
    02 0 0 20 0
    XX
    //

JASPAR has counts, a line per letter; the letters and brackets may be missing (its raw format):

    >name other-name
    A [ 18 0 ]
    C [ 2 0 ]
    G [ 0 20 ]
    T [ 0 0 ]

What is not understood is an error that names the line, not something to skip. What MEME's format
may leave out: the alphabet is that of the background, DNA without one; the background is uniform,
the number of sites 20 and E 0. These defaults are those of its description at meme-suite.org.
TRANSFAC and JASPAR have no background, E-value or URL, and all columns are written with the number
of sites of the motif.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.data.formats import max_unpacked, read_unpacked
from regard.errors import UsageError, UserError
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
# The names of each format, and ours.
MEME_NAMES = {"alength": "letters", "w": "width", "nsites": "sites", "E": "e_value"}
TRANSFAC_NAMES = {"AC": "name", "ID": "alternate", "PO": "counts", "P0": "counts", "//": "end"}
TRANSFAC_NOTES = (  # lines of words, which are not kept
    *("XX", "VV", "DE", "NA", "TY", "OS", "OC", "CC", "BF", "BA", "BS", "BL", "DT", "CO", "DR"),
    *("RN", "RX", "RA", "RT", "RL", "HO", "HC", "SF", "SZ", "SQ", "FF", "IN", "MX", "SD"),
)
PAIR = re.compile(rf"({'|'.join(MEME_NAMES)})=\s*(\S+)\s*")
JASPAR_ROW = re.compile(r"([A-Za-z])\s*\[([^\[\]]*)\]$")


@dataclass(frozen=True, kw_only=True)
class NamedMotif:
    """A motif of a file with its names, its E-value and its URL."""

    motif: Motif
    name: str
    alternate: str = ""
    e_value: float = 0.0
    url: str = ""


def read_motifs(path: str | Path) -> list[NamedMotif]:
    """Return all motifs of a file, which may be compressed with gzip. The first line tells the
    format.
    """
    path = Path(path)
    data = read_bytes(path, MAX_BYTES)
    if data[:2] == b"\x1f\x8b":
        data = read_unpacked(path, max_unpacked(len(data)))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from None
    return parse_motifs(str(path), text)


def parse_motifs(name: str, text: str) -> list[NamedMotif]:
    """Return the motifs of the text of a file; errors give its `name`."""
    first = next((line for line in text.split("\n") if line.strip()), "").strip()
    for format in FORMATS.values():
        if re.match(format.start, first):
            return format.reader(name, text).motifs()
    raise UserError(
        f"{name}:1: no motif file begins with {first[:40]!r}; MEME's begin with `MEME version 4`, "
        "TRANSFAC's with two letters such as AC, JASPAR's with `>name`"
    )


def write_motifs(
    path: str | Path,
    motifs: Sequence[NamedMotif],
    *,
    format: str = "",
    both_strands: bool = True,
) -> None:
    """Write motifs into a file, in the `format` meme, transfac or jaspar, by default that of the
    file's ending. Of a Markov motif, they can hold only the frequency of each letter at each
    position.
    """
    path = Path(path)
    if not format:
        known = {ending: name for name, one in FORMATS.items() for ending in one.endings}
        if path.suffix.lower() not in known:
            raise UsageError(f"a motif file must end in {', '.join(known)}, got {path.name!r}")
        format = known[path.suffix.lower()]
    if format not in FORMATS:
        raise UsageError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if not motifs:
        raise UserError("no motifs to write")
    for one in motifs:
        check_names(one, spaces=format != "meme")
    write_text(path, "\n".join(FORMATS[format].write(motifs, both_strands)))


def check_names(one: NamedMotif, *, spaces: bool) -> None:
    """Refuse names that a file cannot hold; the other name may have `spaces` in some formats."""
    alternate = one.alternate.replace(" ", "") if spaces else one.alternate
    for word in (one.name, alternate, one.url):
        if word != "".join(word.split()) or not word.isprintable():
            raise UserError(f"{word!r}: names and addresses in a motif file have no spaces")
    if not one.name or not 0 <= one.e_value < math.inf:
        raise UserError(f"{one.name!r}: a motif needs a name, and an E-value of 0 or more")


def write_meme(motifs: Sequence[NamedMotif], both_strands: bool) -> list[str]:
    """Return the lines of a file of motifs that share alphabet and background."""
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
        lines += [f"MOTIF {one.name} {one.alternate}".rstrip(), ""]
        lines += [
            f"letter-probability matrix: alength= {len(letters)} w= {motif.width} "
            f"nsites= {motif.sites:.12g} E= {one.e_value:.6g}"
        ]
        lines += [" " + " ".join(decimals(row)) for row in motif.probabilities]
        lines += ["", *([f"URL {one.url}", ""] if one.url else [])]
    return lines


def write_transfac(motifs: Sequence[NamedMotif], both_strands: bool) -> list[str]:
    """Return the lines of a TRANSFAC file."""
    lines = []
    for one in motifs:
        lines += [f"AC {one.name}", "XX"]
        lines += [f"ID {one.alternate}", "XX"] if one.alternate else []
        lines += ["PO\t" + "\t".join(one.motif.alphabet.letters)]
        counts = one.motif.probabilities * one.motif.sites
        lines += [f"{j:02}\t" + "\t".join(map(count, row)) for j, row in enumerate(counts, 1)]
        lines += ["XX", "//"]
    return [*lines, ""]


def write_jaspar(motifs: Sequence[NamedMotif], both_strands: bool) -> list[str]:
    """Return the lines of a JASPAR file."""
    lines = []
    for one in motifs:
        lines += [f">{one.name}\t{one.alternate}".rstrip()]
        counts = (one.motif.probabilities * one.motif.sites).T
        for letter, row in zip(one.motif.alphabet.letters, counts, strict=True):
            lines += [f"{letter} [ {' '.join(map(count, row))} ]"]
    return [*lines, ""]


def count(value: float) -> str:
    """Write a count, which may be a fraction."""
    return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".")


def decimals(probabilities: Floats) -> list[str]:
    """Round probabilities such that they sum to 1: writing what was read changes nothing."""
    scaled = probabilities * 10**DIGITS
    units = np.floor(scaled).astype(np.int64)
    missing = 10**DIGITS - int(units.sum())
    units[np.argsort(units - scaled, kind="stable")[:missing]] += 1
    return [f"{n / 10**DIGITS:.{DIGITS}f}" for n in units]


class MotifReader(ABC):
    """Reads the lines of a file one after the other, without blank ones."""

    def __init__(self, name: str, text: str) -> None:
        numbered = enumerate(text.split("\n"), 1)
        self.lines = [(number, line.strip()) for number, line in numbered if line.strip()]
        self.name, self.at = name, 0

    @abstractmethod
    def motifs(self) -> list[NamedMotif]:
        """Return all motifs of the file."""

    def fail(self, problem: str) -> UserError:
        number = self.lines[self.at - 1][0] if self.at else 1
        return UserError(f"{self.name}:{number}: {problem}")

    def peek(self, *beginnings: str) -> bool:
        return self.at < len(self.lines) and self.lines[self.at][1].startswith(beginnings)

    def next(self, expected: str) -> str:
        if self.at == len(self.lines):
            raise self.fail(f"the file ends where {expected} should follow")
        self.at += 1
        return self.lines[self.at - 1][1]

    def number(self, word: str, what: str, most: float = math.inf) -> float:
        """Return a finite number from 0 to `most`."""
        try:
            value = float(word) if "_" not in word else math.nan
        except ValueError:
            value = math.nan
        if not (0 <= value <= most and math.isfinite(value)):
            limit = "" if most == math.inf else f" to {most:g}"
            raise self.fail(f"{what} must be a number of 0 or more{limit}, got {word[:40]!r}")
        return value

    def find_alphabet(self, letters: str) -> MotifAlphabet:
        """Return the alphabet that has these letters, in this order."""
        for alphabet in ALPHABETS:
            if letters == alphabet.letters:
                return alphabet
        allowed = ", ".join(alphabet.letters for alphabet in ALPHABETS)
        raise self.fail(f"the alphabet must be one of {allowed}, got {letters[:40]!r}")

    def matrix(self, counts: Sequence[Sequence[float]], alphabet: MotifAlphabet) -> Motif:
        """Return the motif of counts (W, A)."""
        for j, row in enumerate(counts, 1):
            if not 0 < sum(row) < math.inf:
                raise self.fail(f"the counts of position {j} must have a sum above 0")
        return PositionWeightMatrix.of_counts(counts, alphabet, pseudocount=0.0)


class TransfacReader(MotifReader):
    """Reads TRANSFAC's format, also as JASPAR exports it."""

    def motifs(self) -> list[NamedMotif]:
        motifs: list[NamedMotif] = []
        while self.at < len(self.lines):
            motif = self.record()
            motifs += [motif] if motif else []
        if not motifs:
            raise self.fail("the file holds no matrix (a line that begins with PO)")
        return motifs

    def record(self) -> NamedMotif | None:
        """Return the motif of the lines up to `//`; None of a preamble, which names nothing."""
        names: dict[str, str] = {}
        motif: Motif | None = None
        while True:
            tag, _, rest = self.next("//").replace("\t", " ").partition(" ")
            meaning = TRANSFAC_NAMES.get(tag, "")
            if meaning == "end":
                break
            if meaning == "counts" and motif is None:
                motif = self.counts(rest)
            elif meaning in ("name", "alternate") and meaning not in names:
                names[meaning] = rest.strip()
            elif tag not in TRANSFAC_NOTES:
                again = "a second line of " if meaning else "unknown line "
                raise self.fail(f"{again}{tag[:40]!r}; positions are numbered 01, 02, …, after PO")
        if motif is None:
            if names:
                raise self.fail("a record without a matrix (a line that begins with PO)")
            return None
        name = names.get("name") or names.pop("alternate", "")
        if not name or name != "".join(name.split()):
            raise self.fail(f"a record needs a name (AC or ID) without spaces, got {name[:40]!r}")
        return NamedMotif(motif=motif, name=name, alternate=names.get("alternate", ""))

    def counts(self, header: str) -> Motif:
        """Return the motif of the numbered lines below the letters of `header`."""
        alphabet = self.find_alphabet("".join(header.split()))
        rows: list[list[float]] = []
        while self.at < len(self.lines) and self.lines[self.at][1][0].isdigit():
            number, *cells = self.next("a row of counts").split()
            if not number.isdigit() or int(number) != len(rows) + 1:
                raise self.fail(f"position {len(rows) + 1} should follow, got {number[:40]!r}")
            if len(cells) == alphabet.size + 1 and cells[-1].isalpha():
                cells.pop()  # the consensus letter
            if len(cells) != alphabet.size:
                raise self.fail(f"a row has {alphabet.size} counts, got {len(cells)}")
            rows.append([self.number(cell, "a count") for cell in cells])
            if not 0 < sum(rows[-1]) < math.inf:
                raise self.fail(f"the counts of position {len(rows)} must have a sum above 0")
        if not rows:
            raise self.fail("the matrix has no rows, which begin with 01, 02, …")
        return self.matrix(rows, alphabet)


class JasparReader(MotifReader):
    """Reads JASPAR's format, and its raw one without letters and brackets."""

    def motifs(self) -> list[NamedMotif]:
        motifs = [self.motif()]
        while self.at < len(self.lines):
            motifs.append(self.motif())
        return motifs

    def motif(self) -> NamedMotif:
        line = self.next("`>name`")
        words = line.removeprefix(">").split(maxsplit=1)
        if not line.startswith(">") or not words:
            raise self.fail(f"expected `>name other-name`, got {line[:60]!r}")
        letters, rows = "", list[list[float]]()
        while self.at < len(self.lines) and not self.peek(">"):
            line = self.next("a row of counts")
            row = JASPAR_ROW.match(line)
            letters += row[1].upper() if row else ""
            cells = (row[2] if row else line).split()
            rows.append([self.number(cell, "a count") for cell in cells])
            if not cells or len(cells) != len(rows[0]):
                raise self.fail(f"a row has {len(rows[0])} counts, got {len(cells)}")
        if not letters and len(rows) != DNA.size:
            raise self.fail(f"a matrix has a row for each of A, C, G, T, got {len(rows)} rows")
        alphabet = self.find_alphabet(letters) if letters else DNA
        if len(rows) != alphabet.size:
            raise self.fail("every row of a matrix, or none, begins with its letter")
        motif = self.matrix(list(zip(*rows, strict=True)), alphabet)
        return NamedMotif(motif=motif, name=words[0], alternate=" ".join(words[1:]))


class MemeReader(MotifReader):
    """Reads MEME's minimal format."""

    def motifs(self) -> list[NamedMotif]:
        if not re.match(r"MEME version [45](\.|\s|$)", self.next("`MEME version 4`")):
            raise self.fail("a MEME motif file begins with `MEME version 4` (or 5)")
        alphabet, background = self.header()
        motifs: list[NamedMotif] = []
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
                alphabet = self.find_alphabet(
                    line.removeprefix("ALPHABET").removeprefix("=").strip()
                )
            elif key == "strands":
                if line.removeprefix("strands:").split() not in (["+"], ["+", "-"]):
                    raise self.fail("strands must be `+` or `+ -`")
            else:
                background = self.background(alphabet)
                alphabet = background.alphabet
        alphabet = alphabet or DNA
        return alphabet, background or Background.uniform(alphabet)

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

    def motif(self, alphabet: MotifAlphabet, background: Background) -> NamedMotif:
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
        return NamedMotif(motif=matrix, name=words[1], alternate=other, e_value=e_value, url=url)

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
            if pair is None or MEME_NAMES[pair[1]] in values:
                raise self.fail(
                    f"expected alength=, w=, nsites= or E=, each once, got {line[:60]!r}"
                )
            values[MEME_NAMES[pair[1]]] = self.number(pair[2], pair[1])
            line = line[pair.end() :]
        if values.get("letters", alphabet.size) != alphabet.size:
            raise self.fail(f"alength must be {alphabet.size}, got {values['letters']:g}")
        width = values.get("width", 0.0)
        if width != int(width) or ("width" in values and width < 1):
            raise self.fail(f"w must be a whole number of 1 or more, got {width:g}")
        return int(width), values.get("sites", SITES), values.get("e_value", 0.0)

    def check_sum(self, values: Sequence[float]) -> None:
        """Refuse probabilities that do not sum to 1, but for rounding."""
        if abs(sum(values) - 1) > ROUNDING:
            raise self.fail(f"probabilities must sum to 1, got {sum(values):g}")


class MotifFormat(NamedTuple):
    """How the first line of a file begins, the endings of its name, and how it is read and
    written.
    """

    start: str
    endings: tuple[str, ...]
    reader: type[MotifReader]
    write: Callable[[Sequence[NamedMotif], bool], list[str]]


FORMATS = {
    "meme": MotifFormat("MEME", (".meme", ".txt"), MemeReader, write_meme),
    "transfac": MotifFormat(
        r"[A-Z][A-Z0]\s|[A-Z][A-Z0]$", (".transfac", ".tf", ".dat"), TransfacReader, write_transfac
    ),
    "jaspar": MotifFormat(">", (".jaspar", ".pfm"), JasparReader, write_jaspar),
}
