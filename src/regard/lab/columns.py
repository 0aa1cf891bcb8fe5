"""Two columns of the user's table: points (x, y), or keys and values.

The columns of those names where the header has both, else the first two.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.formats import Tally, head
from regard.data.tables import table
from regard.errors import UserError


def two_columns(path: Path, names: tuple[str, str]) -> tuple[list[str], list[str], list[int]]:
    """Both columns as text, and the line of each row; UserError names what cannot be read."""
    if not path.is_file():
        raise UserError(f"no file at {path}")
    kind = "tsv" if path.suffix.lower() == ".tsv" else "csv"
    top = head(path)[0].partition("\n")[0]
    delimiter = "\t" if kind == "tsv" else ";" if ";" in top and "," not in top else ","
    fields = [field.strip(' "\r') for field in top.split(delimiter)]
    if len(fields) < 2:
        raise UserError(f"{path}:1: one column, two are needed ({names[0]} and {names[1]})")
    known = {field.lower(): field for field in fields}
    wanted = [known.get(name, "") for name in names]
    if not all(wanted):
        wanted = ["1", "2"]
    layout, tally = table(path, kind, wanted), Tally()
    first: list[str] = []
    second: list[str] = []
    lines: list[int] = []
    for texts, at in layout.batches(path, tally):
        first, second, lines = [*first, *texts[0]], [*second, *texts[1]], [*lines, *at]
    if tally.problems:
        raise UserError(tally.problems[0])
    return first, second, lines


def points_of(path: Path, least: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x and y (N,) in the order of x; UserError unless there are `least` points, all numbers."""
    texts = two_columns(path, ("x", "y"))
    made = np.array(
        [[_number(path, line, cell) for cell in (x, y)] for x, y, line in zip(*texts, strict=True)]
    ).reshape(-1, 2)
    if len(made) < least:
        raise UserError(f"{path}: {len(made)} points, at least {least} are needed")
    if made[:, 0].min() == made[:, 0].max():
        raise UserError(f"{path}: every x is {made[0, 0]:g}; there is nothing to interpolate")
    made = made[np.argsort(made[:, 0], kind="stable")]
    return made[:, 0], made[:, 1]


def _number(path: Path, line: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}:{line}: x and y must be numbers, got {cell[:40]!r}")
    return value
