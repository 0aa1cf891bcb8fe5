"""Components about single records: what a model predicts for one, the records that it gets wrong,
a value within the range of training, and the structure of a molecule.

A `picture` is how an item is drawn: {"text": …, "mono": …}, {"pixels": …, "size": …} of an image,
{"points": …} of a point cloud, {"curves": …} of a series, {"paths": …, "size": …} of a molecule, or
{"track": [(token, truth, prediction), …]} of labelled positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.look.page.charts import Heatmap, TokenMaps
from regard.look.page.document import (
    Component,
    Facts,
    as_array,
    check_choice,
    check_indices,
    check_length,
    escape,
    number,
    numbers,
)

Picture = Mapping[str, Any]
VERDICTS = ("", "right", "wrong")


def percent(probability: float) -> str:
    """Return a probability in per cent: 92.3%, 0.03%, <0.01%, >99.9%."""
    if probability >= 0.9995:
        return ">99.9%"
    if 0 < probability < 1e-4:
        return "<0.01%"
    return f"{100 * probability:.{2 if probability < 0.001 else 1}f}%"


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer(Component):
    """The prediction for one item: `headline` says it, `verdict` whether it is right.

    `options` are (name, probability) pairs, the most probable first; `predicted` and `truth` are
    indices of options. `notes` are sentences below.
    """

    kind: ClassVar[str] = "answer"
    headline: str
    label: str = "prediction"
    detail: str = ""  # beside the headline, such as its probability
    verdict: str = ""
    notes: Sequence[str] = ()
    options: Sequence[tuple[str, float]] = ()
    predicted: Sequence[int] = ()
    truth: Sequence[int] = ()
    picture: Picture = field(default_factory=dict)
    title: str = ""

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, VERDICTS)
        check_indices("predicted", "options", self.predicted, len(self.options))
        check_indices("truth", "options", self.truth, len(self.options))

    def data(self) -> dict[str, Any]:
        options = [[name, number(p), percent(p)] for name, p in self.options]
        return self.fields("options", "picture") | {
            "options": options,
            "picture": dict(self.picture),
        }

    def fallback(self) -> str:
        rows = [(name, percent(p)) for name, p in self.options]
        first = " ".join([self.headline, self.detail, self.verdict]).strip()
        return Facts([(self.label, first), *rows], title=self.title).fallback()


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownRecord:
    """A record with its prediction and true target in words.

    `cells` are the (truth, prediction) cells of a confusion matrix in which it is counted;
    `is_error` is False for a record that only illustrates a cell.
    """

    picture: Picture
    prediction: str
    truth: str
    cells: Sequence[tuple[int, int]] = ()
    is_error: bool = True

    def data(self) -> dict[str, Any]:
        """Return the example as JSON-able values."""
        return {
            "picture": dict(self.picture),
            "prediction": self.prediction,
            "truth": self.truth,
            "cells": [list(cell) for cell in self.cells],
            "wrong": self.is_error,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordList(Component):
    """A list of records; `note` says how many there are and in which order."""

    kind: ClassVar[str] = "record-list"
    records: Sequence[ShownRecord]
    note: str = ""
    title: str = ""

    def data(self) -> dict[str, Any]:
        return self.fields("records") | {"records": [one.data() for one in self.records]}

    def fallback(self) -> str:
        rows = "".join(
            f"<li>{escape(str(one.picture.get('text', '')))} {escape(one.prediction)}; "
            f"{escape(one.truth)}</li>"
            for one in self.records
        )
        return f"<p>{escape(self.note)}</p><ol>{rows}</ol>"


@dataclass(frozen=True, eq=False, kw_only=True)
class Confusion(RecordList):
    """A confusion matrix: `counts` (C, C), truths down and predictions across, and the records in
    its cells. A cell that is chosen lists its records. Colours are shares of a row.
    """

    kind: ClassVar[str] = "confusion"
    counts: ArrayLike
    classes: Sequence[str]
    unit: str = "records"
    records: Sequence[ShownRecord] = ()

    def __post_init__(self) -> None:
        array = as_array("counts", self.counts, 2)
        check_length("classes", len(self.classes), "row of counts", array.shape[0])
        check_length("classes", len(self.classes), "column of counts", array.shape[1])

    def array(self) -> NDArray[np.float64]:
        """Return the counts, (C, C)."""
        return np.asarray(self.counts, dtype=np.float64)

    def heatmap(self) -> Heatmap:
        """Return the shares of each row as a heat map."""
        counts, names = self.array(), list(self.classes)
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        diagonal = [(i, i) for i in range(len(names))]
        return Heatmap(shares, names, names, self.title, "weights", "share of a row", diagonal)

    def data(self) -> dict[str, Any]:
        return RecordList.data(self) | {"counts": self.array().astype(int).tolist()}

    def fallback(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.classes)
        body = "".join(
            f'<tr><th scope="row">{escape(name)}</th>'
            + "".join(f"<td>{int(count):,}</td>" for count in row)
            + "</tr>"
            for name, row in zip(self.classes, self.array(), strict=True)
        )
        return f"<table><tr><th></th>{head}</tr>{body}</table>{RecordList.fallback(self)}"


@dataclass(frozen=True, eq=False)
class ItemPicture(Component):
    """One item, drawn small."""

    kind: ClassVar[str] = "item-picture"
    picture: Picture

    def data(self) -> dict[str, Any]:
        return {"picture": dict(self.picture)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueRange(Component):
    """A predicted `value` within the values of training, as a histogram of `counts` between
    `edges`; `low` and `high` are an interval around it, `truth` is the true value, if known.
    """

    kind: ClassVar[str] = "value-range"
    edges: Sequence[float]
    counts: Sequence[float]
    value: float
    low: float = math.nan
    high: float = math.nan
    truth: float = math.nan
    x_label: str = ""
    y_label: str = "training records"
    title: str = ""

    def __post_init__(self) -> None:
        check_length("edges", len(self.edges), "count, and one more", len(self.counts) + 1)

    def data(self) -> dict[str, Any]:
        lists = {"edges": numbers(self.edges), "counts": numbers(self.counts)}
        return self.fields("edges", "counts") | lists


@dataclass(frozen=True, eq=False, kw_only=True)
class MoleculeMaps(TokenMaps):
    """Maps over the atoms of a molecule: `paths` are those of its drawing of `size` (width,
    height), `atoms` (symbol, x, y) of each atom.
    """

    kind: ClassVar[str] = "molecule-maps"
    paths: Sequence[tuple[str, bool, float]]  # the path, whether it is filled, and its width
    size: tuple[float, float]
    atoms: Sequence[tuple[str, float, float]]

    def __post_init__(self) -> None:
        TokenMaps.__post_init__(self)
        check_length("maps", self.array().shape[2], "atom", len(self.atoms))
