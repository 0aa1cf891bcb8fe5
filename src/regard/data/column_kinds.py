"""What cells are, by their content, as the modalities recognize it: SMILES, bases, dates, prose.

`recognize` chooses the tokenizer of texts and tells the columns of a table apart, for every command
alike. A name never decides; it may break a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.registry import MODALITIES

ROWS = 1000  # of the head of a file, whose cells are looked at
SEQUENCE, PROSE, SHORT_TEXT = 3, 2, 1  # ranks: of two columns, the input is that of the higher


@dataclass(frozen=True, kw_only=True)
class CellSample:
    """Cells or records that stand for all, without empty and missing ones."""

    cells: Sequence[str]
    column: str = ""  # its name, which may break a tie
    format: str = ""  # of the file: "smi" is a list of molecules


@dataclass(frozen=True, kw_only=True)
class ColumnKind:
    """What cells are. The highest `score` wins; `rank` compares columns as inputs of a model, and 0
    means that they are none.
    """

    name: str
    reason: str
    score: float = 0.0
    rank: int = 0
    modality: str = ""  # that reads the cells
    tokenizer: str = ""  # that encodes them, if they are texts
    is_target: bool = False
    is_class: bool = False  # the target is a class, not a number
    has_units: bool = False  # numbers that can be predicted without their units

    def decides(self, name: str | None) -> bool:
        """Return whether cells are sequences with a tokenizer of their own, which the modality of a
        name, if one is given, allows.
        """
        return self.rank == SEQUENCE and name in (None, self.modality)


def recognize(sample: CellSample) -> ColumnKind:
    """Return what the modalities recognize in cells; the highest score wins."""
    kinds: list[ColumnKind | None] = [cls.recognize_cells(sample) for cls in MODALITIES.values()]
    return max(filter(None, kinds), key=lambda kind: kind.score)


def text_sample(source: Any, column: str = "") -> CellSample:
    """Return the first records of a reader or, of running text, its first lines."""
    texts: list[str] = []
    if source.format == "text":
        lines = (line for piece in source.text() for line in piece[: 1 << 20].split("\n"))
        pieces = iter([[line.strip()] for line in lines])
    else:
        pieces = (chunk.texts for chunk in source.records())
    for piece in pieces:
        texts += filter(None, map(str.strip, piece))
        if len(texts) >= ROWS:
            break
    return CellSample(cells=texts[:ROWS], column=column, format=source.format)
