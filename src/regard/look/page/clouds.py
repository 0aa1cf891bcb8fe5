"""A cloud of points in space, and over it what is at each of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .component import Component, choice, matrix, pack, pack_weights, same_length
from .pictures import SCALES, as_weights, check_rows


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
