"""How a column writes its numbers: decimal points or commas, separators of thousands, `<3.5`.

One notation is chosen for a whole column, from many of its cells, since `1,234` alone may be read
in two ways.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

SPACES = "\u00a0\u202f\u2009"  # no-break, narrow and thin: between thousands, as a space is
# A bound instead of a value, as in <3.5, >= 10, ≤2,5 or ~7.
CENSORED = re.compile(r"(?:<=?|>=?|[≤≥~≈])\s*[+-]?[\d.,' ]*\d[\d.,' ]*(?:[eE][+-]?\d+)?")
LIKE = re.compile(r"[+-]?\d[\d.,' ]*(?:[eE][+-]?\d+)?")  # digits with separators between them


def number(cell: str) -> float | None:
    """The finite number that a cell spells, if it does, as Python writes numbers."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def plain(cell: str) -> str:
    """A cell with one sign for minus and one kind of space."""
    if cell.isascii():
        return cell
    for space in SPACES:
        cell = cell.replace(space, " ")
    return cell.replace("\u2212", "-")


def numeric(cell: str) -> bool:
    """Does a cell spell a number in any notation, or a bound of one?"""
    if number(cell) is not None:
        return True
    cell = plain(cell)
    return bool(LIKE.fullmatch(cell) or CENSORED.fullmatch(cell))


def censored(cell: str) -> bool:
    """Is it a bound of a number, as `<3.5`?"""
    return CENSORED.fullmatch(plain(cell)) is not None


@dataclass(frozen=True)
class Notation:
    """The mark before decimals, and the one between thousands ("" where there is none)."""

    decimal: str = "."
    group: str = ""

    @property
    def usual(self) -> bool:
        """Is it the one of Python, of which nothing needs to be said?"""
        return self == Notation()

    @property
    def words(self) -> str:
        """What it is, in words."""
        parts = ["decimal commas"] if self.decimal == "," else []
        named = {" ": "spaces", ",": "commas", ".": "points", "'": "apostrophes"}
        parts += [f"{named[self.group]} between thousands"] if self.group else []
        return " and ".join(parts) or "decimal points"

    def spell(self, cell: str) -> str | None:
        """The number of a cell as Python writes it; None where the cell is no such number."""
        cell = plain(cell)
        if self.group and self.group in cell:
            whole, mark, rest = cell.partition(self.decimal)
            if not re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(self.group)}\d{{3}})+", whole):
                return None
            cell = whole.replace(self.group, "") + mark + rest
        if self.decimal != ".":
            if "." in cell:
                return None
            cell = cell.replace(self.decimal, ".")
        return cell if number(cell) is not None else None


# Those that a column may have; of several that read as many cells, the first is taken.
NOTATIONS = (
    Notation(),
    Notation(group=","),
    Notation(","),
    Notation(",", "."),
    Notation(group=" "),
    Notation(",", " "),
    Notation(group="'"),
)


def notation_of(cells: Iterable[str], *, commas: bool = False) -> Notation:
    """The notation that reads most of some cells; the usual one unless another reads more.

    Cells of no number in any notation count for none. `commas` says that a decimal comma is likely,
    as it is where columns stand between semicolons.
    """
    odd = [cell for cell in cells if cell]
    if all(number(cell) is not None for cell in odd):
        return NOTATIONS[0]
    order = sorted(NOTATIONS, key=lambda n: commas and n.decimal != "," and not n.usual)
    read = [sum(one.spell(cell) is not None for cell in odd) for one in order]
    return order[read.index(max(read))]
