"""Components that are words and tables; these read the same with scripts turned off."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from regard.look.page.component import Component, cell, choice, escape, same_length


@dataclass(frozen=True, eq=False)
class Text(Component):
    """Paragraphs of plain text; a blank line starts a new one."""

    kind: ClassVar[str] = "text"
    text: str

    def paragraphs(self) -> list[str]:
        """The text, split at blank lines."""
        return [p.strip() for p in self.text.split("\n\n") if p.strip()]

    def data(self) -> dict[str, Any]:
        """The paragraphs."""
        return {"paragraphs": self.paragraphs()}

    def fallback(self) -> str:
        """The same paragraphs as HTML."""
        return "".join(f"<p>{escape(p)}</p>" for p in self.paragraphs())


@dataclass(frozen=True, eq=False)
class Links(Component):
    """Pages in the same folder, as (label, file name) pairs."""

    kind: ClassVar[str] = "links"
    links: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        for _, name in self.links:
            if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
                raise ValueError(f"links must be plain file names, got {name!r}")

    def data(self) -> dict[str, Any]:
        """The pairs."""
        return {"links": [list(link) for link in self.links]}

    def fallback(self) -> str:
        """The same links as HTML."""
        items = (f'<a href="{escape(name)}">{escape(label)}</a>' for label, name in self.links)
        return f"<p>{' · '.join(items)}</p>"


@dataclass(frozen=True, eq=False)
class Facts(Component):
    """A list of (label, value) pairs, such as what a run is and what it cost."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[str, object]]
    title: str = ""

    def data(self) -> dict[str, Any]:
        """The pairs, values as text."""
        return {"title": self.title, "facts": [[label, cell(v)] for label, v in self.facts]}

    def fallback(self) -> str:
        """A definition list."""
        pairs = "".join(
            f"<div><dt>{escape(label)}</dt><dd>{escape(cell(value))}</dd></div>"
            for label, value in self.facts
        )
        return f'{_caption(self.title)}<dl class="pairs">{pairs}</dl>'


@dataclass(frozen=True, eq=False)
class Table(Component):
    """Rows of text and numbers.

    `align` holds "left" or "right" per column; when empty, columns of numbers go right. `highlight`
    holds the indices of rows to set apart, such as the winners of a comparison.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    align: Sequence[str] = ()
    highlight: Collection[int] = ()
    title: str = ""

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            same_length(f"row {i}", len(row), "column", len(self.columns))
        if self.align:
            same_length("align", len(self.align), "column", len(self.columns))
        for side in self.align:
            choice("align", side, ("left", "right"))
        for i in self.highlight:
            if not 0 <= i < len(self.rows):
                raise ValueError(f"highlight must name rows 0 to {len(self.rows) - 1}, got {i}")

    def sides(self) -> list[str]:
        """How each column is aligned."""
        if self.align:
            return list(self.align)
        numeric = (int, float, np.number, type(None))
        return [
            "right"
            if self.rows and all(isinstance(row[j], numeric) for row in self.rows)
            else "left"
            for j in range(len(self.columns))
        ]

    def data(self) -> dict[str, Any]:
        """Every cell as text, with sides and highlighted rows."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[cell(value) for value in row] for row in self.rows],
            "align": self.sides(),
            "highlight": sorted(self.highlight),
        }

    def fallback(self) -> str:
        """The same table as HTML."""
        sides = self.sides()
        head = "".join(
            f'<th scope="col" class="{side}">{escape(name)}</th>'
            for name, side in zip(self.columns, sides, strict=True)
        )
        body = ""
        for i, row in enumerate(self.rows):
            cells = "".join(
                f'<td class="{side}">{escape(cell(value))}</td>'
                for value, side in zip(row, sides, strict=True)
            )
            mark = ' class="highlight"' if i in self.highlight else ""
            body += f"<tr{mark}>{cells}</tr>"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'{_caption(self.title)}<div class="scroll">{table}</div>'


@dataclass(frozen=True, eq=False)
class Sequences(Component):
    """Samples in a monospaced list, each a (text, score) pair; a score may be None."""

    kind: ClassVar[str] = "sequences"
    samples: Sequence[tuple[str, float | None]]
    title: str = ""
    score_name: str = "log-probability"

    def data(self) -> dict[str, Any]:
        """The samples, scores as text."""
        rows = [[text, None if score is None else cell(score)] for text, score in self.samples]
        return {"title": self.title, "score_name": self.score_name, "samples": rows}

    def fallback(self) -> str:
        """The same list as HTML."""
        items = ""
        for text, score in self.samples:
            side = "" if score is None else f'<span class="score">{escape(cell(score))}</span>'
            items += f"<li><bdi>{escape(text)}</bdi>{side}</li>"
        return f'{_caption(self.title)}<ol class="samples">{items}</ol>'


def _caption(title: str) -> str:
    return f"<h3>{escape(title)}</h3>" if title else ""
