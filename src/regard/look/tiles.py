"""Large maps in tiles: a pyramid of levels, each half as fine as the one below it.

A cell of level k stands for 2^k × 2^k weights, by their greatest and by their mean: of a map of
2,000 × 2,000 weights a reader sees no peak lost at any zoom, and no more than a few tiles travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

TILE = 64  # rows and columns of a tile

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Pyramid:
    """The greatest and the mean weight of each cell, for all levels from the finest on."""

    greatest: tuple[Floats, ...]
    mean: tuple[Floats, ...]

    @classmethod
    def of(cls, weights: NDArray[np.floating]) -> Self:
        """Build all levels of a map (T, S), up to one that fits in a tile."""
        greatest = sums = np.ascontiguousarray(weights, np.float32)
        counts = np.ones_like(sums)
        peaks, means = [greatest], [sums]
        while max(greatest.shape) > TILE:
            greatest = _halve(greatest).max((1, 3))
            sums, counts = _halve(sums).sum((1, 3)), _halve(counts).sum((1, 3))
            peaks.append(greatest)
            means.append(sums / counts)
        return cls(tuple(peaks), tuple(means))

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.greatest[0].shape
        return rows, columns

    @property
    def levels(self) -> int:
        return len(self.greatest)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (*self.greatest, *self.mean[1:]))

    def tile(self, level: int, row: int, column: int) -> tuple[Floats, Floats]:
        """Return the greatest and the mean weights of one tile, smaller at the borders."""
        if not 0 <= level < self.levels:
            raise ValueError(f"level must be from 0 to {self.levels - 1}, got {level}")
        rows, columns = self.greatest[level].shape
        if not (0 <= row * TILE < rows and 0 <= column * TILE < columns):
            raise ValueError(f"level {level} has no tile at row {row}, column {column}")
        part = slice(row * TILE, (row + 1) * TILE), slice(column * TILE, (column + 1) * TILE)
        return self.greatest[level][part], self.mean[level][part]


def _halve(values: Floats) -> Floats:
    """Return (T/2, 2, S/2, 2), padded with zeros."""
    rows, columns = values.shape
    even = np.pad(values, ((0, rows % 2), (0, columns % 2)))
    return even.reshape(-(-rows // 2), 2, -(-columns // 2), 2)
