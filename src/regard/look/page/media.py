"""A picture, and over it what is at each of its patches.

A cloud of points in space, and over it what is at each of its tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.look.page.component import Component, choice, matrix, pack, pack_weights, same_length

SCALES = ("weights", "diverging")


@dataclass(frozen=True, eq=False)
class Picture(Component):
    """Pixels (height, width, C) of bytes, and over them M maps of its rows × columns patches.

    `maps` (M, Q, rows · columns): each has one value for a patch (Q = 1) or, for every patch that
    can be chosen, one for each other. Where there is one row more than patches, the first is that
    of `<S>`; `aside` (M, Q), if given, is what goes to `<S>`. `names` are those of the maps, which
    stand in rows of `across`, below the names of their `columns`, if these have any. Weights are
    from 0 to 1.
    """

    kind: ClassVar[str] = "picture"
    pixels: ArrayLike
    grid: tuple[int, int]
    maps: ArrayLike
    names: Sequence[str]
    title: str = ""
    unit: str = "weight"
    scale: str = "weights"
    across: int = 0
    aside: ArrayLike | None = None
    verb: str = "looks at"  # what a chosen patch does to those of its map
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        choice("scale", self.scale, SCALES)
        image = np.asarray(self.pixels)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
            raise ValueError(f"pixels must be bytes of 1 or 3 channels, got {image.shape}")
        array = matrix("maps", self.maps, 3)
        count = self.grid[0] * self.grid[1]
        same_length("maps", array.shape[2], "patch", count)
        same_length("names", len(self.names), "map", array.shape[0])
        check_rows(array, count, self.aside)
        if self.scale == "weights":
            object.__setattr__(self, "maps", as_weights(array))
        if self.columns:
            same_length("columns", len(self.columns), "map across", self.across or len(self.names))

    def array(self) -> NDArray[np.float64]:
        """The maps, (M, Q, rows · columns)."""
        return np.asarray(self.maps, dtype=np.float64)

    def image(self) -> NDArray[np.uint8]:
        """The pixels, (height, width, C)."""
        return np.ascontiguousarray(self.pixels, dtype=np.uint8)

    def data(self) -> dict[str, Any]:
        """The pixels and the maps, packed."""
        image = self.image()
        told = None if self.aside is None else pack(np.asarray(self.aside, np.float64))
        return {
            "title": self.title,
            "pixels": base64.b64encode(image.tobytes()).decode("ascii"),
            "size": list(image.shape),
            "grid": list(self.grid),
            "maps": (pack_weights if self.scale == "weights" else pack)(self.array()),
            "names": list(self.names),
            "unit": self.unit,
            "scale": self.scale,
            "across": self.across or len(self.names),
            "aside": told,
            "verb": self.verb,
            "columns": list(self.columns),
        }


def check_rows(maps: NDArray[Any], count: int, aside: ArrayLike | None) -> None:
    """Raise unless maps (M, Q, N) have a row for all, for each token, or for `<S>` too."""
    if maps.shape[1] not in (1, count, count + 1):
        raise ValueError(f"maps must have 1, {count} or {count + 1} rows, got {maps.shape[1]}")
    if aside is not None and np.shape(aside) != maps.shape[:2]:
        raise ValueError(f"aside must be {maps.shape[:2]}, got {np.shape(aside)}")


def as_weights(maps: NDArray[Any]) -> NDArray[Any]:
    """Maps from 0 to 1, which they are but for rounding."""
    if not (maps.min() >= -1e-6 and maps.max() <= 1 + 1e-3):
        raise ValueError(f"weights must lie in [0, 1], got {maps.min()} to {maps.max()}")
    found: NDArray[Any] = np.clip(maps, 0.0, 1.0)
    return found


@dataclass(frozen=True, eq=False)
class Space(Component):
    """Points (P, 3), each of one of N tokens (`owners`, from 0), and M maps of the tokens.

    `maps` (M, Q, N): each has one value for a token (Q = 1) or, for every token that can be chosen,
    one for each other. Where there is one row more than tokens, the first is that of `<S>`; `aside`
    (M, Q), if given, is what goes to `<S>`. `names` are those of the maps, which stand in rows of
    `across`; `kinds`, if given, says what each point is. Weights are from 0 to 1.
    """

    kind: ClassVar[str] = "space"
    points: ArrayLike
    owners: Sequence[int]
    maps: ArrayLike
    names: Sequence[str]
    title: str = ""
    unit: str = "weight"
    scale: str = "weights"
    across: int = 0
    aside: ArrayLike | None = None
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        choice("scale", self.scale, SCALES)
        points, array = matrix("points", self.points, 2), matrix("maps", self.maps, 3)
        if points.shape[1] != 3:
            raise ValueError(f"points must be (P, 3), got {points.shape}")
        same_length("owners", len(self.owners), "point", len(points))
        same_length("names", len(self.names), "map", array.shape[0])
        if self.kinds:
            same_length("kinds", len(self.kinds), "point", len(points))
        if min(self.owners) < 0 or max(self.owners) >= array.shape[2]:
            raise ValueError(f"owners must be from 0 to {array.shape[2] - 1}")
        check_rows(array, array.shape[2], self.aside)
        if self.scale == "weights":
            object.__setattr__(self, "maps", as_weights(array))

    def array(self) -> NDArray[np.float64]:
        """The maps, (M, Q, N)."""
        return np.asarray(self.maps, dtype=np.float64)

    def data(self) -> dict[str, Any]:
        """The points and the maps, packed."""
        told = None if self.aside is None else pack(np.asarray(self.aside, np.float64))
        return {
            "title": self.title,
            "points": pack(np.asarray(self.points, np.float64)),
            "owners": [int(i) for i in self.owners],
            "kinds": list(self.kinds),
            "maps": (pack_weights if self.scale == "weights" else pack)(self.array()),
            "names": list(self.names),
            "unit": self.unit,
            "scale": self.scale,
            "across": self.across or len(self.names),
            "aside": told,
        }
