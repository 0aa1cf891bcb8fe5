"""Sequences in FASTA: a header line that begins with `>`, and the sequence on the lines below it.

Blanks within sequences, blank lines and lines that begin with `;` (comments of the first FASTA) are
dropped; letters keep their case. The first word of a header is the id; a `name=value` in it is a
field that can be read by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from regard.data import formats
from regard.data.formats import UTF8, SkippedRecords, decoded_lines, head, too_long
from regard.data.tables import BATCH, ROW, Batch, hint
from regard.errors import UsageError, UserError

FIELDS = ("header", "id")  # that every header has
NAMED_FIELD = re.compile(r"(?:^|\s)([^\s=]+)=(\S*)")


class Entry(NamedTuple):
    """A sequence, its header without the `>`, and the line of the header."""

    header: str
    text: str
    line: int

    @property
    def id(self) -> str:
        """The first word of the header."""
        return (self.header.split(maxsplit=1) or [""])[0]


@dataclass(frozen=True)
class Fasta:
    """The layout of FASTA files: the sequence and, after it, the fields `names` of its header."""

    has_columns: ClassVar[bool] = False

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        columns: list[list[str]] = [[] for _ in range(1 + len(self.names))]
        lines: list[int] = []
        size = 0
        for entry in entries(path, skipped, self.encoding):
            for column, cell in zip(columns, [entry.text, *self.cells(entry)], strict=True):
                column.append(cell)
            lines.append(entry.line)
            size += len(entry.text) + ROW
            if size > BATCH:
                yield columns, lines
                columns, lines, size = [[] for _ in columns], [], 0
        yield columns, lines

    def cells(self, entry: Entry) -> list[str]:
        """Return the fields of a header, "" for those it lacks."""
        if not self.names:
            return []
        fields: dict[str, str] = dict(NAMED_FIELD.findall(entry.header))
        fields |= {"header": entry.header, "id": entry.id}
        return [fields.get(name, "") for name in self.names]


def fasta(
    path: Path, names: Sequence[str], encoding: str = UTF8, flag: str = "data.target"
) -> Fasta:
    """Return the layout of FASTA like the file at `path`; an unknown field is an error."""
    top = head(path, encoding)[0]
    headers = re.findall(r"^>(.*)$", top, re.MULTILINE)
    if not headers and len(top) < formats.HEAD:
        raise UserError(
            f"{path}: is read as fasta, but no line begins with > (a header); sequences without "
            "headers, one a line, are --set data.format=lines"
        )
    named = dict.fromkeys(name for header in headers for name, _ in NAMED_FIELD.findall(header))
    fields = [*FIELDS, *named]
    for name in names:
        if name not in fields:
            raise UsageError(f"{path}: no header has {name}=… ({flag}); {hint(name, fields)}")
    more = f" and {', '.join(names)} of its header" if names else ""
    return Fasta(tuple(names), f"each sequence{more}", encoding)


def entries(
    path: Path, skipped: SkippedRecords, encoding: str = UTF8, *, longest: float | None = None
) -> Iterator[Entry]:
    """Yield every sequence in order; one longer than `longest`, or than a record may be, is an
    error.

    Headers without a sequence, sequences before the first header, and lines that are not UTF-8 or
    are headers after blanks damage the sequence they belong to. Repeated ids are counted.
    """
    line_of: dict[str, int] = {}  # by id
    repeated: set[str] = set()
    for header, line, parts, problem in _split(path, encoding, longest or formats.LINE_LIMIT):
        text = "".join(parts)
        entry = Entry(header or "", text, line)
        if problem:
            skipped.damaged(problem)
        elif header is None:
            if text:
                skipped.damaged(
                    f"{path}:{line}: a sequence before the first header (a line with >)"
                )
        elif not text:
            skipped.damaged(f"{path}:{line}: the header {header[:40]!r} has no sequence")
        else:
            first = line_of.setdefault(entry.id, line) if entry.id else line
            if first != line:
                problem = f"{path}:{line}: the id {entry.id[:40]!r} was on line {first:,} already"
                skipped.repeat(entry.id, problem, times=1 if entry.id in repeated else 2)
                repeated.add(entry.id)
            yield entry


def _split(
    path: Path, encoding: str, longest: float
) -> Iterator[tuple[str | None, int, list[str], str]]:
    """Yield (header, its line, the parts of its sequence, what is wrong); the first header may be
    missing.
    """
    header: str | None = None
    parts: list[str] = []
    start, problem, size = 1, "", 0
    for block in decoded_lines(path, encoding):
        for line, text in enumerate(block.texts, start=block.first):
            if text.startswith(">"):
                yield header, start, parts, problem
                header, start, parts, problem, size = text[1:].strip(), line, [], "", 0
            elif text and not text.startswith(";"):
                part = "".join(text.split())
                if part.startswith(">") and not problem:
                    problem = f"{path}:{line}: blanks before >; a header has none"
                if part and header is None and not parts:
                    start = line
                parts.append(part)
                size += len(part)
                if size > longest:
                    raise too_long(path, start)
            problem = problem or block.bad.get(line - block.first, "")
    yield header, start, parts, problem
