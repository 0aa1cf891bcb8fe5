"""Pairs of a source and a target: two files read line by line, or two columns of tables.

Blank lines count as lines. A pair whose texts are both empty is blank; one with an empty text, or
with one that is not UTF-8, is damaged.
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

from regard.data.formats import UTF8, SkippedRecords, decoded_lines, detect, extension, read_blocks
from regard.data.tables import Batch
from regard.data.text_files import TABLES, Chunk, FileSet
from regard.errors import UsageError, UserError

# Words in file names that tell parts of one data set apart, not source and target.
PART_NAMES = {"train", "training", "valid", "validation", "val", "dev", "test", "eval", "all"}
PART_NAMES |= {"aa", "ab", "ac", "xaa", "xab", "xac"}  # as the command `split` names them
# Languages in file names: ISO 639-1, some codes of three letters, some names.
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
ROLES = frozenset({"src", "tgt", "trg", "source", "target", "ref"})
# The test whether lines of two files belong to each other.
MAX_LINES = 500
MIN_LINES = 20
N_FEATURES = 1 << 12  # buckets that trigrams of characters are hashed to
MAX_SHIFT = 16  # lines by which one file is shifted to see what chance gives
RELATED = 0.3, 6.0  # correlation of lengths and z of the vocabulary from which lines do belong
UNRELATED = 0.2, 4.0  # and below which they do not


class Pairs(FileSet):
    """Sources and their targets: two aligned files, or tables with a column for each.

    `columns` name those of the source and the target (or JSON keys), for tables only.
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
            format, why = "lines", "two files, line by line"
            if any(map(extension, self.files)):
                format, why = detect(self.files, self.encoding)
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
        """Yield every complete pair in order, a few megabytes at a time; the targets are the texts
        of a chunk. An error if there is none.
        """
        yield from self._new_pass(self._chunks)

    def _chunks(self, skipped: SkippedRecords) -> Iterator[Chunk]:
        for path, (sources, targets), lines in self._batches(skipped):
            complete = []
            for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
                has_source, has_target = bool(source.strip()), bool(target.strip())
                if has_source and has_target:
                    complete.append(i)
                elif has_source or has_target:
                    skipped.damaged(self._half_empty(path, lines[i], has_source))
                else:
                    skipped.blank += 1
            texts, numbers = [targets[i] for i in complete], [lines[i] for i in complete]
            yield Chunk(path, texts, numbers, [sources[i] for i in complete])

    def _batches(
        self, skipped: SkippedRecords
    ) -> Iterator[tuple[Path, list[list[str]], list[int]]]:
        if self._layout is None:
            batches = aligned(self.files, skipped, self.encoding)
            yield from ((self.files[1], *batch) for batch in batches)
            return
        for path in self.files:
            yield from ((path, *batch) for batch in self._layout.batches(path, skipped))

    def _half_empty(self, path: Path, line: int, has_source: bool) -> str:
        if self._layout is None:
            full, empty = self.files if has_source else self.files[::-1]
            return f"{empty}:{line}: is empty, but line {line:,} of {full} is not"
        present, missing = self._layout.names if has_source else self._layout.names[::-1]
        return f"{path}:{line}: {missing!r} is empty, but {present!r} is not"


def aligned(
    paths: Sequence[Path], skipped: SkippedRecords, encoding: str = UTF8
) -> Iterator[Batch]:
    """Yield the lines of two files in parallel; lines that are not UTF-8 go to `skipped`.

    Files of unequal length are an error at the end of the shorter.
    """
    streams = [decoded_lines(path, encoding) for path in paths]
    pending: list[list[str]] = [[], []]  # lines that were read but not yielded, by file
    bad: dict[int, str] = {}  # what is wrong, by line
    line = 1
    while True:
        for i, stream in enumerate(streams):
            if not pending[i] and (block := next(stream, None)):
                pending[i] = block.texts
                bad = {block.first + j: problem for j, problem in block.bad.items()} | bad
        count = min(map(len, pending))
        if not count:
            break
        lines = list(range(line, line + count))
        if bad:
            damaged = bad.keys() & set(lines)
            lines = [number for number in lines if number not in damaged]
            for number in sorted(damaged):
                skipped.damaged(bad.pop(number))
        yield [[texts[number - line] for number in lines] for texts in pending], lines
        pending = [texts[count:] for texts in pending]
        line += count
    if any(pending):
        counts = [
            line - 1 + len(texts) + sum(len(block.texts) for block in stream)
            for texts, stream in zip(pending, streams, strict=True)
        ]
        raise UserError(_unequal(paths, counts))


def _unequal(paths: Sequence[Path], counts: Sequence[int]) -> str:
    longer = paths[counts[0] < counts[1]]
    return (
        f"{paths[0]} has {counts[0]:,} lines, {paths[1]} {counts[1]:,}: "
        f"line {min(counts) + 1:,} of {longer} has no partner; "
        "line n of one file must belong to line n of the other"
    )


def looks_paired(paths: Sequence[Path]) -> str | None:
    """Return why two files are sources and targets, in words; None if their names do not say so.

    They are if both are plain text with as many lines, two at least, and their names differ only in
    the language. Unequal numbers of lines are an error: a user who has lost a line should not end
    up with another task.
    """
    if len(paths) != 2 or not all(path.is_file() and not extension(path) for path in paths):
        return None
    words = _differing_words(*(str(path).removesuffix(".gz") for path in paths))
    if words is None or not all(map(_is_language_or_role, words)):
        return None
    counts = [count_lines(path) for path in paths]
    if counts[0] != counts[1]:
        raise UserError(f"{_unequal(paths, counts)}; otherwise: --task label, --task next")
    if counts[0] < 2:
        return None
    return f"two files of {counts[0]:,} lines, {words[0]} and {words[1]}, line by line"


def _is_language_or_role(word: str) -> bool:
    code = re.split(r"[_-]", word.lower())
    named = code[0] in LANGUAGES and all(2 <= len(part) <= 4 for part in code[1:])
    return named or word.lower() in ROLES


def _differing_words(one: str, two: str) -> tuple[str, str] | None:
    """Return the one part in which two names differ, if it can name a language or role."""
    parts = [re.split(r"([/._-])", name) for name in (one, two)]
    while all(parts) and parts[0][0] == parts[1][0]:
        parts = [part[1:] for part in parts]
    while all(parts) and parts[0][-1] == parts[1][-1]:
        parts = [part[:-1] for part in parts]
    words = "".join(parts[0]), "".join(parts[1])
    for word in words:
        letters = re.fullmatch(r"[^\W\d_]{2,}([_-][^\W\d_]{2,})?", word)  # en, source, pt-BR
        if not letters or word.lower() in PART_NAMES:
            return None
    return words


def count_lines(path: Path) -> int:
    """Count the lines of a file, the last one even without a line break."""
    count, last = 0, b"\n"
    for block in read_blocks(path):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")


@dataclass(frozen=True)
class Correlation:
    """How the first lines of two files are related, beyond what their order alone gives.

    `lengths` is the correlation of the logarithms of their lengths; `vocabulary` is by how many
    standard deviations lines that share trigrams in one file do so in the other.
    """

    lines: int
    lengths: float
    vocabulary: float

    @property
    def related(self) -> bool | None:
        """Whether line n of one file belongs to line n of the other; None if that is unclear."""
        if self.lines < MIN_LINES:
            return None
        if self.lengths >= RELATED[0] and self.vocabulary >= RELATED[1]:
            return True
        chance = max(UNRELATED[0], 3 * self.lines**-0.5)
        return False if self.lengths < chance and self.vocabulary < UNRELATED[1] else None

    @property
    def words(self) -> str:
        """The two numbers, for a message."""
        if self.lines < MIN_LINES:
            return f"{self.lines} lines are too few to tell"
        return (
            f"line lengths correlate with r = {self.lengths:.2f}, vocabulary with z = "
            f"{self.vocabulary:.1f}, over {self.lines} lines"
        )


def correlation(paths: Sequence[Path], encoding: str = UTF8) -> Correlation:
    """Test whether line n of one file belongs to line n of the other.

    The baseline is what lines give that are shifted against each other by a few: two sorted lists
    are similar without belonging to each other. Vocabulary is compared with the Hilbert-Schmidt
    independence criterion (Gretton et al. 2005), which needs no shared alphabet.
    """
    pairs = (
        pair
        for columns, _ in aligned(paths, SkippedRecords(), encoding)
        for pair in zip(*columns, strict=True)
        if all(map(str.strip, pair))
    )
    sample = list(islice(pairs, MAX_LINES))
    if len(sample) < MIN_LINES:
        return Correlation(len(sample), 0.0, 0.0)
    one, two = zip(*sample, strict=True)
    shifts = [0] + [shift for k in range(1, MAX_SHIFT + 1) for shift in (k, -k)]
    sizes = [np.log1p([len(text) for text in texts]) for texts in (one, two)]
    lengths = 0.0
    if min(float(np.ptp(size)) for size in sizes) > 0:
        by_shift = [np.corrcoef(sizes[0], np.roll(sizes[1], shift))[0, 1] for shift in shifts]
        lengths = float(by_shift[0] - max(0.0, np.mean(by_shift[1:])))
    a, b = _trigram_similarity(one), _trigram_similarity(two)
    products = [float((a * np.roll(b, (shift, shift), (0, 1))).sum()) for shift in shifts]
    deviation = float(np.std(products[1:]))
    vocabulary = (products[0] - float(np.mean(products[1:]))) / deviation if deviation else 0.0
    return Correlation(len(sample), lengths, vocabulary)


def _trigram_similarity(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the centered cosine similarities (N, N) of the trigrams of lines, diagonal 0."""
    x = np.zeros((len(texts), N_FEATURES), np.float32)
    for i, text in enumerate(texts):
        padded = f" {text.lower()[:2000]} ".encode("utf-16-le", "replace")
        for j in range(0, max(2, len(padded) - 4), 2):
            x[i, zlib.crc32(padded[j : j + 6]) % N_FEATURES] = 1
    x -= x.mean(0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    similarity: NDArray[np.float32] = x @ x.T
    np.fill_diagonal(similarity, 0)
    return similarity
