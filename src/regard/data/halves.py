"""Lines cut at their first blank: SMILES and a name, or a label and a text.

Column 1 is what stands before the blank, column 2 the rest of the line. Files of molecules (`.smi`)
are written so, and many classic sets of labelled sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.formats import UTF8, Tally, decoded_lines
from regard.data.tables import Batch


@dataclass(frozen=True)
class Halves:
    """How to read such lines: which columns, in which order."""

    names: tuple[str, ...]  # "1" and "2"
    encoding: str = UTF8

    @property
    def why(self) -> str:
        """What is read, in words."""
        kinds = {"1": "up to the first blank", "2": "after the first blank"}
        return f"text {kinds[self.names[0]]} of a line"

    def batches(self, path: Path, tally: Tally) -> Iterator[Batch]:
        """The columns' texts, in order, empty ones too; lines not UTF-8 go to `tally`."""
        places = [int(name) - 1 for name in self.names]
        for block in decoded_lines(path, self.encoding):
            columns: list[list[str]] = [[] for _ in places]
            lines = []
            for i, line in enumerate(block.texts):
                if i in block.bad:
                    tally.damaged(block.bad[i])
                elif not line.strip():
                    tally.blank += 1
                else:
                    halves = [*line.split(maxsplit=1), ""]
                    for column, place in zip(columns, places, strict=True):
                        column.append(halves[place].rstrip())
                    lines.append(block.first + i)
            yield columns, lines
