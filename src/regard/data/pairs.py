"""Pairs of records, a source and its target: two files read line by line, or two columns of tables.

Blank lines keep their places. A pair is left out whole: with both sides empty as blank, with one
side empty, or not UTF-8, as damaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.formats import UTF8, Tally, blocks, decoded_lines, detect, extension
from regard.data.readers import TABLES, Chunk, Files
from regard.data.tables import Batch
from regard.errors import UsageError, UserError

# Parts in which the names of files differ that are no two sides: parts of a whole.
NO_SIDES = {"train", "training", "valid", "validation", "val", "dev", "test", "eval", "all"}
LANGUAGE = re.compile(r"[a-z]{2}([_-]\w{2,4})?|src|tgt|source|target")  # certainly sides
NO_SIDES |= {"aa", "ab", "ac", "xaa", "xab", "xac"}  # as the command `split` names them


class Pairs(Files):
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
        tally = self._tally = Tally(self.strict)
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

    def _columns(self, tally: Tally) -> Iterator[tuple[Path, list[list[str]], list[int]]]:
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


def aligned(paths: Sequence[Path], tally: Tally, encoding: str = UTF8) -> Iterator[Batch]:
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
    """Why two files are the two sides of pairs, in words; None if nothing says so.

    They are if both are plain text with as many lines, two at least, and their names differ in one
    part alone, such as the language. Where that names two languages and the lines are not as many,
    it is an error: whoever has lost a line should not end up with another task.
    """
    if len(paths) != 2 or not all(path.is_file() and not extension(path) for path in paths):
        return None
    differ = _differing(*(str(path).removesuffix(".gz") for path in paths))
    if differ is None:
        return None
    counts = [_count_lines(path) for path in paths]
    if counts[0] != counts[1] and all(map(LANGUAGE.fullmatch, differ)):
        raise UserError(f"{unequal(paths, counts)}; what is no pairs trains with --task next")
    if counts[0] != counts[1] or counts[0] < 2:
        return None
    return f"two files of {counts[0]:,} lines, {differ[0]} and {differ[1]}, line by line"


def _differing(one: str, two: str) -> tuple[str, str] | None:
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


def _count_lines(path: Path) -> int:
    count, last = 0, b"\n"
    for block in blocks(path):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")
