"""Points in the plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .component import Component, matrix, numbers, same_length


@dataclass(frozen=True, eq=False)
class Scatter(Component):
    """Points (N, 2), coloured by the group or by the value that each has, if they have either.

    `texts` say what each point is. `marks` name points that stand out, by their number. With
    `diagonal`, where both coordinates are equal is drawn as a line.
    """

    kind: ClassVar[str] = "scatter"
    points: ArrayLike
    texts: Sequence[str] = ()
    groups: Sequence[str] = ()
    values: Sequence[float] = ()
    marks: Mapping[int, str] = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    unit: str = ""
    diagonal: bool = False

    def __post_init__(self) -> None:
        array = matrix("points", self.points, 2)
        if array.shape[1] != 2 or not np.isfinite(array).all():
            raise ValueError(f"points must be finite and (N, 2), got shape {array.shape}")
        object.__setattr__(self, "points", array)
        if self.groups and len(self.values):
            raise ValueError("give either groups or values, got both")
        for name in ("texts", "groups", "values"):
            if len(getattr(self, name)):
                same_length(name, len(getattr(self, name)), "point", len(array))
        for i in self.marks:
            if not 0 <= i < len(array):
                raise ValueError(f"marks must name points 0 to {len(array) - 1}, got {i}")

    def array(self) -> NDArray[np.float64]:
        """The points, (N, 2)."""
        return np.asarray(self.points, dtype=np.float64)

    def names(self) -> list[str]:
        """The different groups, the most frequent first."""
        return [name for name, _ in Counter(self.groups).most_common()]

    def data(self) -> dict[str, Any]:
        """Coordinates, the number of each point's group or its value, and what they are."""
        places = {name: i for i, name in enumerate(self.names())}
        return {
            "title": self.title,
            "x": numbers(self.array()[:, 0]),
            "y": numbers(self.array()[:, 1]),
            "texts": list(self.texts),
            "groups": [places[name] for name in self.groups],
            "names": list(places),
            "values": numbers(self.values),
            "marks": [[i, name] for i, name in self.marks.items()],
            "x_label": self.x_label,
            "y_label": self.y_label,
            "unit": self.unit,
            "diagonal": self.diagonal,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Projector(Component):
    """Words as points that can be searched and chosen; a chosen one shows its neighbours.

    `planes` are ways to lay the same first N of the `words` out, (N, 2) each, with labels of their
    `axes` where these mean something; `groups` colour them. Of the first L words `near` has the
    numbers of the nearest ones, nearest first, and `similarities` how near they are. `chosen` is
    the one that is shown at first.
    """

    kind: ClassVar[str] = "projector"
    words: Sequence[str]
    planes: Mapping[str, ArrayLike]
    groups: Sequence[str]
    near: Sequence[Sequence[int]]
    similarities: Sequence[Sequence[float]]
    axes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    chosen: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        same_length("similarities", len(self.similarities), "row of near", len(self.near))
        for row, others in enumerate(self.near):
            same_length("similarities", len(self.similarities[row]), "neighbour", len(others))
            if any(not 0 <= i < len(self.words) for i in others):
                raise ValueError(f"near must name words 0 to {len(self.words) - 1}, got {others}")
        if not 0 <= self.chosen < len(self.near):
            raise ValueError(f"chosen must be a word of near, 0 to {len(self.near) - 1}")
        if not self.planes:
            raise ValueError("planes must hold one at least")

    def scatters(self) -> dict[str, Scatter]:
        """Each plane as points, the chosen word and its neighbours marked."""
        marks = [i for i in self.near[self.chosen] if i < len(self.groups)]
        own = [self.chosen] if self.chosen < len(self.groups) else []
        found = {}
        for name, points in self.planes.items():
            x_label, y_label = self.axes.get(name, ("", ""))
            found[name] = Scatter(
                points,
                texts=list(self.words[: len(self.groups)]),
                groups=self.groups,
                marks={i: self.words[i] for i in [*marks[::-1], *own]},
                x_label=x_label,
                y_label=y_label,
                title=name,
            )
        return found

    def data(self) -> dict[str, Any]:
        """The words, what is near which, and each plane as points."""
        return {
            "title": self.title,
            "words": list(self.words),
            "near": [list(map(int, others)) for others in self.near],
            "similarities": [numbers(row) for row in self.similarities],
            "planes": [one.data() for one in self.scatters().values()],
            "chosen": self.chosen,
        }
