"""Pairs of records, a source and its target: two files read line by line, or two columns of tables.

Blank lines keep their places. A pair is left out whole: with both sides empty as blank, with one
side empty, or not UTF-8, as damaged.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.formats import UTF8, SkippedRecords, blocks, decoded_lines, detect, extension
from regard.data.readers import TABLES, Chunk, FileSet
from regard.data.tables import Batch
from regard.errors import UsageError, UserError

# Parts in which the names of files differ that are no two sides: parts of a whole.
NO_SIDES = {"train", "training", "valid", "validation", "val", "dev", "test", "eval", "all"}
NO_SIDES |= {"aa", "ab", "ac", "xaa", "xab", "xac"}  # as the command `split` names them
# Languages as files are named by them: ISO 639-1, some codes of three letters, some names.
CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia
id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo
lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl
ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk
tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
ara ben bul cat ces cze dan deu ger ell gre eng est eus fas per fin fra fre gle heb hin hrv hun
ind isl ita jpn kor lat lav lit mkd nld dut nor pol por ron rum rus slk slo slv spa sqi srp swa
swe tam tel tha tur ukr urd vie zho chi
english german deutsch french francais spanish espanol italian italiano portuguese dutch
russian chinese japanese korean arabic polish czech turkish swedish danish finnish greek latin
"""
LANGUAGES = frozenset(CODES.split())
SIDED = frozenset({"src", "tgt", "trg", "source", "target", "ref"})
# The test whether lines of two files belong together.
LINES = 500  # looked at
FEWEST = 20  # below which it says nothing
FEATURES = 1 << 12  # that groups of three characters are hashed to
SHIFTS = 16  # by which lines are moved, up and down, to see what chance gives
ALIKE = 0.3, 6.0  # correlation of lengths, and deviations of vocabulary, from which they do belong
APART = 0.2, 4.0  # and below which they do not


class Pairs(FileSet):
    """Sources and their targets: two aligned files, or tables with a column for each.

    `columns` are those of the source and of the target (or JSON keys), for tables only.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        format: str = "auto",
        columns: tuple[str, str] = ("", ""),
        strict: bool = False,
        encoding: str = UTF8,
    ) -> None:
        super().__init__(paths, format, strict, encoding)
        why = "as asked"
        if format == "auto":
            named = any(map(extension, self.files))
            two = ("lines", "two files, line by line")
            format, why = detect(self.files, self.encoding) if named else two
        if format not in ("lines", *TABLES):
            raise UsageError(
                f"data.format = {format!r} has no pairs; choose one of csv, jsonl, lines, tsv"
            )
        if format == "lines" and len(self.files) != 2:
            raise UsageError(
                "pairs need two files, the sources and the targets line by line, or a table with "
                f"--input and --target; got {len(self.files)}, the first {self.files[0]}"
            )
        self._read_as(format, why, columns)

    def records(self) -> Iterator[Chunk]:
        """Every whole pair in order, a few megabytes at a time; an error if there is none.

        The targets are the chunk's texts.
        """
        tally = self._tally = SkippedRecords(self.strict)
        empty = True
        for path, (sources, targets), lines in self._columns(tally):
            keep = []
            for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
                one, two = bool(source.strip()), bool(target.strip())
                if one and two:
                    keep.append(i)
                elif one or two:
                    tally.damaged(self._half(path, lines[i], one))
                else:
                    tally.blank += 1
            if keep:
                empty = False
                yield Chunk(
                    path,
                    [targets[i] for i in keep],
                    [lines[i] for i in keep],
                    [sources[i] for i in keep],
                )
        if empty:
            raise self._nothing(tally)

    def _columns(self, tally: SkippedRecords) -> Iterator[tuple[Path, list[list[str]], list[int]]]:
        if self._layout is None:
            batches = aligned(self.files, tally, self.encoding)
            yield from ((self.files[1], *batch) for batch in batches)
            return
        for path in self.files:
            yield from ((path, *batch) for batch in self._layout.batches(path, tally))

    def _half(self, path: Path, line: int, has_source: bool) -> str:
        """What is wrong with a pair of which one side is empty."""
        if self._layout is None:
            full, empty = self.files if has_source else self.files[::-1]
            return f"{empty}:{line}: is empty, but line {line:,} of {full} is not"
        there, missing = self._layout.names if has_source else self._layout.names[::-1]
        return f"{path}:{line}: {missing!r} is empty, but {there!r} is not"


def aligned(paths: Sequence[Path], tally: SkippedRecords, encoding: str = UTF8) -> Iterator[Batch]:
    """The lines of two files side by side; those not UTF-8 on one side go to `tally`.

    Files of unequal length are an error at the end of the shorter.
    """
    streams = [decoded_lines(path, encoding) for path in paths]
    held: list[list[str]] = [[], []]  # read, but not yet handed on
    bad: dict[int, str] = {}  # line to what is wrong with it
    line = 1
    while True:
        for side, stream in enumerate(streams):
            if not held[side] and (block := next(stream, None)):
                held[side] = block.texts
                bad = {block.first + i: problem for i, problem in block.bad.items()} | bad
        count = min(map(len, held))
        if not count:
            break
        lines = list(range(line, line + count))
        if bad:
            wrong = bad.keys() & set(lines)
            lines = [number for number in lines if number not in wrong]
            for number in sorted(wrong):
                tally.damaged(bad.pop(number))
        yield [[texts[number - line] for number in lines] for texts in held], lines
        held = [texts[count:] for texts in held]
        line += count
    if any(held):
        sizes = [
            line - 1 + len(h) + sum(len(b.texts) for b in s)
            for h, s in zip(held, streams, strict=True)
        ]
        raise UserError(unequal(paths, sizes))


def unequal(paths: Sequence[Path], counts: Sequence[int]) -> str:
    """What is wrong with two files of so many lines each."""
    longer = paths[counts[0] < counts[1]]
    return (
        f"{paths[0]} has {counts[0]:,} lines, {paths[1]} {counts[1]:,}: "
        f"line {min(counts) + 1:,} of {longer} has no partner; "
        "line n of one file must belong to line n of the other"
    )


def looks_paired(paths: Sequence[Path]) -> str | None:
    """Why two files are the two sides of pairs, in words; None if their names do not say so.

    They do if both are plain text with as many lines, two at least, and their names differ in the
    language alone. Where the lines are not as many, it is an error: whoever has lost a line should
    not end up with another task.
    """
    if len(paths) != 2 or not all(path.is_file() and not extension(path) for path in paths):
        return None
    differ = differing(*(str(path).removesuffix(".gz") for path in paths))
    if differ is None or not all(map(names_side, differ)):
        return None
    counts = [count_lines(path) for path in paths]
    if counts[0] != counts[1]:
        raise UserError(f"{unequal(paths, counts)}; otherwise: --task label, --task next")
    if counts[0] < 2:
        return None
    return f"two files of {counts[0]:,} lines, {differ[0]} and {differ[1]}, line by line"


def names_side(word: str) -> bool:
    """Does a part of a name say a language, with its region or script if need be, or a side?"""
    code = re.split(r"[_-]", word.lower())
    named = code[0] in LANGUAGES and all(2 <= len(part) <= 4 for part in code[1:])
    return named or word.lower() in SIDED


def differing(one: str, two: str) -> tuple[str, str] | None:
    """The part in which two names differ, of each, if it is one and can name a side."""
    parts = [re.split(r"([/._-])", name) for name in (one, two)]
    while all(parts) and parts[0][0] == parts[1][0]:
        parts = [part[1:] for part in parts]
    while all(parts) and parts[0][-1] == parts[1][-1]:
        parts = [part[:-1] for part in parts]
    found = "".join(parts[0]), "".join(parts[1])
    for name in found:
        letters = re.fullmatch(r"[^\W\d_]{2,}([_-][^\W\d_]{2,})?", name)  # en, source, pt-BR
        if not letters or name.lower() in NO_SIDES:
            return None
    return found


def count_lines(path: Path) -> int:
    """The lines of a file, one that no line break ends too."""
    count, last = 0, b"\n"
    for block in blocks(path):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")


@dataclass(frozen=True)
class Correlation:
    """How the first lines of two files go together, beyond what their order alone gives.

    `lengths` is the correlation of the logarithms of their lengths; `vocabulary` by how many
    standard deviations lines that share groups of characters in one file do so in the other.
    """

    lines: int
    lengths: float
    vocabulary: float

    @property
    def alike(self) -> bool | None:
        """Does line n of one belong to line n of the other? None where it cannot be told."""
        if self.lines < FEWEST:
            return None
        if self.lengths >= ALIKE[0] and self.vocabulary >= ALIKE[1]:
            return True
        chance = max(APART[0], 3 * self.lines**-0.5)
        return False if self.lengths < chance and self.vocabulary < APART[1] else None

    @property
    def words(self) -> str:
        """The two figures, in words."""
        if self.lines < FEWEST:
            return f"{self.lines} lines are too few to tell"
        return (
            f"line lengths correlate with r = {self.lengths:.2f}, vocabulary with z = "
            f"{self.vocabulary:.1f}, over {self.lines} lines"
        )


def correlation(paths: Sequence[Path], encoding: str = UTF8) -> Correlation:
    """Test whether line n of one file belongs to line n of the other.

    As what chance gives counts what lines give that are moved against each other by a few: two
    sorted lists are alike without belonging together. What their words are is measured by the
    Hilbert-Schmidt independence criterion (Gretton et al. 2005), which needs no shared alphabet.
    """
    pairs = (
        pair
        for columns, _ in aligned(paths, SkippedRecords(), encoding)
        for pair in zip(*columns, strict=True)
        if all(map(str.strip, pair))
    )
    sample = list(islice(pairs, LINES))
    if len(sample) < FEWEST:
        return Correlation(len(sample), 0.0, 0.0)
    one, two = zip(*sample, strict=True)
    moves = [move for k in range(1, SHIFTS + 1) for move in (k, -k)]
    sizes = [np.log1p([len(text) for text in texts]) for texts in (one, two)]
    if min(float(np.ptp(size)) for size in sizes) == 0:
        lengths = 0.0
    else:
        by_move = [np.corrcoef(sizes[0], np.roll(sizes[1], move))[0, 1] for move in (0, *moves)]
        lengths = float(by_move[0] - max(0.0, np.mean(by_move[1:])))
    shared = [_shared(texts) for texts in (one, two)]
    found = [float((shared[0] * np.roll(shared[1], (m, m), (0, 1))).sum()) for m in (0, *moves)]
    spread = float(np.std(found[1:]))
    vocabulary = (found[0] - float(np.mean(found[1:]))) / spread if spread else 0.0
    return Correlation(len(sample), lengths, vocabulary)


def _shared(texts: Sequence[str]) -> NDArray[np.float32]:
    """(N, N) how much of their groups of three characters lines share, beyond the usual."""
    x = np.zeros((len(texts), FEATURES), np.float32)
    for i, text in enumerate(texts):
        padded = f" {text.lower()[:2000]} ".encode("utf-16-le", "replace")
        for j in range(0, max(2, len(padded) - 4), 2):
            x[i, zlib.crc32(padded[j : j + 6]) % FEATURES] = 1
    x -= x.mean(0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    found: NDArray[np.float32] = x @ x.T
    np.fill_diagonal(found, 0)
    return found
