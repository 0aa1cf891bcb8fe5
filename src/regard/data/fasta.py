"""Sequences in FASTA: a header line that begins with `>`, and the sequence on the lines below it.

Sequences may span lines; blanks in them, blank lines and lines that begin with `;` (comments of the
first FASTA) are left out, and letters keep their case. A header is an id, its first word, and
whatever follows; `name=value` in it can be asked for by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.data import formats
from regard.data.formats import UTF8, Tally, decoded_lines, head, too_long
from regard.data.tables import BATCH, ROW, Batch, hint
from regard.errors import UsageError, UserError

WHOLE = ("header", "id")  # what can be asked of any header
FIELD = re.compile(r"(?:^|\s)([^\s=]+)=(\S*)")


class Entry(NamedTuple):
    """One sequence: its header without the `>`, and the line that stands on."""

    header: str
    text: str
    line: int

    @property
    def id(self) -> str:
        """The first word of the header."""
        return (self.header.split(maxsplit=1) or [""])[0]


@dataclass(frozen=True)
class Fasta:
    """How to read FASTA files: the sequence and, after it, what the `names` ask of the header."""

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8

    def batches(self, path: Path, tally: Tally) -> Iterator[Batch]:
        """The sequences and what was asked of their headers, and the headers' lines."""
        columns: list[list[str]] = [[] for _ in range(1 + len(self.names))]
        lines: list[int] = []
        size = 0
        for entry in entries(path, tally, self.encoding):
            for column, cell in zip(columns, [entry.text, *self.cells(entry)], strict=True):
                column.append(cell)
            lines.append(entry.line)
            size += len(entry.text) + ROW
            if size > BATCH:
                yield columns, lines
                columns, lines, size = [[] for _ in columns], [], 0
        yield columns, lines

    def cells(self, entry: Entry) -> list[str]:
        """What the names ask of a header; "" where it does not say."""
        if not self.names:
            return []
        fields: dict[str, str] = dict(FIELD.findall(entry.header))
        fields |= {"header": entry.header, "id": entry.id}
        return [fields.get(name, "") for name in self.names]


def fasta(
    path: Path, names: Sequence[str], encoding: str = UTF8, flag: str = "data.target"
) -> Fasta:
    """Decide how FASTA like the file at `path` is read; names that no header has are an error."""
    top = head(path, encoding)[0]
    headers = re.findall(r"^>(.*)$", top, re.MULTILINE)
    if not headers and len(top) < formats.HEAD:
        raise UserError(
            f"{path}: is read as fasta, but no line begins with > (a header); sequences without "
            "headers, one a line, are --set data.format=lines"
        )
    fields = list(dict.fromkeys(key for header in headers for key, _ in FIELD.findall(header)))
    for name in names:
        if name not in (*WHOLE, *fields):
            raise UsageError(
                f"{path}: no header has {name}=… ({flag}); {hint(name, [*WHOLE, *fields])}"
            )
    asked = f" and {', '.join(names)} of its header" if names else ""
    return Fasta(tuple(names), f"each sequence{asked}", encoding)


def entries(
    path: Path, tally: Tally, encoding: str = UTF8, *, longest: float | None = None
) -> Iterator[Entry]:
    """Every sequence in order; one of more symbols than `longest`, or than a record may have, is an
    error.

    To `tally` go headers without a sequence, sequences before the first header, and lines that are
    not UTF-8 or are headers after blanks, which damage the sequence they stand in; ids that come
    again are noted.
    """
    met: dict[str, int] = {}  # id to its line
    doubled: set[str] = set()  # ids of more than one
    for header, line, parts, problem in _stretches(path, encoding, longest or formats.LINE_LIMIT):
        text = "".join(parts)
        entry = Entry(header or "", text, line)
        if problem:
            tally.damaged(problem)
        elif header is None:
            if text:
                tally.damaged(f"{path}:{line}: a sequence before the first header (a line with >)")
        elif not text:
            tally.damaged(f"{path}:{line}: the header {header[:40]!r} has no sequence")
        else:
            first = met.setdefault(entry.id, line) if entry.id else line
            if first != line:
                problem = f"{path}:{line}: the id {entry.id[:40]!r} was on line {first:,} already"
                tally.again(entry.id, problem, times=1 if entry.id in doubled else 2)
                doubled.add(entry.id)
            yield entry


def _stretches(
    path: Path, encoding: str, longest: float
) -> Iterator[tuple[str | None, int, list[str], str]]:
    """(header, its line, the parts of its sequence, what is wrong), headers or not, in order."""
    header: str | None = None
    parts: list[str] = []
    start, problem, size = 1, "", 0
    for block in decoded_lines(path, encoding):
        for i, text in enumerate(block.texts):
            if text.startswith(">"):
                yield header, start, parts, problem
                header, start, parts, problem = text[1:].strip(), block.first + i, [], ""
                size = 0
            elif text and not text.startswith(";"):
                part = "".join(text.split())
                if part.startswith(">") and not problem:
                    problem = f"{path}:{block.first + i}: blanks before >; a header has none"
                if part and header is None and not parts:
                    start = block.first + i
                parts.append(part)
                size += len(part)
                if size > longest:
                    raise too_long(path, start)
            problem = problem or block.bad.get(i, "")
    yield header, start, parts, problem
