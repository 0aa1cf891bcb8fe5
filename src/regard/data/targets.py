"""What is asked of labelled records: a label, several, a value, or a label at every position.

The task is guessed from the targets as they are written, and said with its reason, or it is given.
Then `Targets` knows the classes and turns written targets into numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.numbers import number as number
from regard.data.numbers import numeric
from regard.errors import UsageError, did_you_mean

GAP = "?"  # a position of which nothing is asked
LABELLED = ("label", "labels", "value", "position-label")
FEW = 20  # whole numbers up to so many different ones are classes; more are values
MANY = 10_000  # different targets counted; beyond, they are many
LETTERS = 1000  # different letters of targets counted
POSITIONS = 20  # letters that a guessed label of positions has at most ...
LONG = 5  # ... which are at least so long on average

Cells = tuple[str, ...]
Check = Callable[[str, Cells, Sequence[str]], None]


def unchecked(text: str, targets: Cells, names: Sequence[str]) -> None:
    """Nothing is asked of targets whose task is not yet known."""


def numbers(text: str, targets: Cells, names: Sequence[str]) -> None:
    """Targets of the task `value` are finite numbers, or gaps."""
    for name, cell in zip(names, targets, strict=True):
        if cell and number(cell) is None:
            raise ValueError(
                f"{cell[:40]!r} in column {name!r} is not a number; leave the cell empty if the "
                "value is missing"
            )


def as_long(text: str, targets: Cells, names: Sequence[str]) -> None:
    """A target of the task `position-label` has a letter for every one of the text."""
    if len(targets[0]) != len(text):
        raise ValueError(
            f"{len(targets[0]):,} labels for {len(text):,} symbols; there must be one for each"
        )


CHECKS: dict[str, Check] = {"value": numbers, "position-label": as_long}


@dataclass
class Column:
    """What a pass over one column of targets counted."""

    filled: int = 0
    numeric: int = 0  # in any notation, bounds such as <3.5 among them
    whole: int = 0
    as_long: int = 0  # as the text beside it
    length: int = 0
    numbers: int = 0  # cells that are read as one
    mean: float = 0.0  # of those, and ...
    squares: float = 0.0  # ... the sum of their squared distances from it (Welford 1962)
    letters: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, cell: str) -> None:
        """Count one record; a gap counts nothing."""
        if not cell:
            return
        value = number(cell)
        self.filled += 1
        self.numeric += value is not None or numeric(cell)
        if value is not None:
            self.numbers += 1
            gap = value - self.mean
            self.mean += gap / self.numbers
            self.squares += gap * (value - self.mean)
        self.whole += value is not None and value == int(value)
        self.as_long += len(cell) == len(text)
        self.length += len(cell)
        if len(self.letters) <= LETTERS:
            self.letters.update(cell)
        if len(self.different) <= MANY or cell in self.different:
            self.different[cell] += 1

    @property
    def deviation(self) -> float:
        """The standard deviation of the numbers; 0 where it is too large to be one."""
        return (
            math.sqrt(self.squares / max(1, self.numbers)) if math.isfinite(self.squares) else 0.0
        )


def survey(chunks: Iterable[Any], width: int) -> list[Column]:
    """One pass over labelled records, of so many targets each."""
    columns = [Column() for _ in range(width)]
    for chunk in chunks:
        for text, targets in zip(chunk.texts, chunk.targets, strict=True):
            for column, cell in zip(columns, targets, strict=True):
                column.add(text, cell)
    return columns


def guess(columns: Sequence[Column], names: Sequence[str]) -> tuple[str, str]:
    """The task that targets suggest, and why; `target` where they are texts of their own."""
    if len(columns) > 1:
        return _guess_several(columns, names)
    found = columns[0]
    kinds, each = len(found.different), f"under {names[0]!r}"
    if (
        found.as_long == found.filled
        and len(found.letters) <= POSITIONS
        and " " not in found.letters
        and found.length >= LONG * found.filled
    ):
        return "position-label", f"targets {each} are as long as their texts, of few letters"
    if found.numeric > 0.9 * found.filled:
        # A few texts among classes that are numbers do not make these values.
        if found.whole == found.numeric and kinds <= FEW and 2 * kinds <= found.filled:
            texts = found.filled - found.numeric
            what = f"targets, whole numbers but for {texts:,}," if texts else "whole numbers"
            return "label", f"{kinds} different {what} {each}"
        return "value", f"{found.numeric:,} of {found.filled:,} targets {each} are numbers"
    if 2 * kinds <= found.filled or (kinds <= 2 < found.filled):
        return "label", f"{kinds:,} different targets {each}"
    if 2 * found.numeric >= found.filled > 0:
        return "value", f"{found.numeric:,} of {found.filled:,} targets {each} are numbers"
    return "target", f"texts {each}, {kinds:,} different ones of {found.filled:,}"


def _guess_several(columns: Sequence[Column], names: Sequence[str]) -> tuple[str, str]:
    if all(len(column.different) <= 2 for column in columns):
        return "labels", f"{len(columns)} columns of two values each"
    if all(column.numeric > 0.9 * column.filled for column in columns):
        return "value", f"{len(columns)} columns of numbers"
    odd = next(i for i, column in enumerate(columns) if len(column.different) > 2)
    example = next(cell for cell in columns[odd].different)
    raise UsageError(
        f"--target {','.join(names)}: several targets are all numbers, or all of two values; "
        f"{names[odd]!r} has {len(columns[odd].different):,}, such as {example[:40]!r}"
    )


@dataclass(frozen=True)
class Targets:
    """What is asked, and the classes of each column of labels or of the positions, if any."""

    task: str
    names: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...] = ()
    # What metrics need of the training part: the class of each column that precision, recall and
    # their like are of ("" = none), and the standard deviations of values.
    positive: tuple[str, ...] = field(default=(), compare=False)
    deviations: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def learn(
        cls, task: str, names: Sequence[str], columns: Sequence[Column], positive: str = ""
    ) -> Targets:
        """The classes that training records have; targets not of the task are an error.

        `positive` is a class, data.positive; without it, it is the rarer one where there are two.
        """
        if task not in LABELLED:
            raise UsageError(f"unknown task {task!r}; {did_you_mean(task, list(LABELLED))}")
        if len(names) > 1 and task in ("label", "position-label"):
            raise UsageError(f"--task {task} has one target, got --target {','.join(names)}")
        if task == "value":
            if positive:
                raise UsageError(f"data.positive = {positive!r} names a class; values have none")
            deviations = tuple(column.deviation for column in columns)
            return cls(task, tuple(names), deviations=deviations)
        if task == "position-label":
            letters = columns[0].letters
            found = tuple(sorted(set(letters) - {GAP}))
            return cls(task, tuple(names), (found,), _positive([found], [letters], positive))
        classes = tuple(_ordered(column.different) for column in columns)
        for name, found in zip(names, classes, strict=True):
            if len(found) > MANY:
                raise UsageError(f"--task label: {name!r} has more than {MANY:,} different targets")
            if task == "labels" and len(found) > 2:
                raise UsageError(
                    f"--task labels: each column has two values, {name!r} has {len(found):,}: "
                    f"{', '.join(found[:5])}"
                )
        counts = [column.different for column in columns]
        return cls(task, tuple(names), classes, _positive(classes, counts, positive))

    @classmethod
    def stored(cls, told: Any) -> Targets:
        """What a file of a run says is asked; KeyError or TypeError where it does not."""
        return cls(
            str(told["task"]),
            tuple(told["names"]),
            tuple(map(tuple, told["classes"])),
            tuple(told.get("positive", ())),
            tuple(told.get("deviations", ())),
        )

    def place_of_positive(self, column: int = 0) -> int | None:
        """The number of the class that precision, recall and their like are of; None = of none."""
        name = self.positive[column] if self.positive else ""
        return self.classes[column].index(name) if name in self.classes[column] else None

    def encode(self, cells: Sequence[Cells]) -> NDArray[Any]:
        """Written targets as numbers.

        label: (R,) int32 classes, -1 for one that training does not have; labels: (R, n) int8, 0 or
        1, -1 for a gap or such a one; value: (R, n) float32, NaN for a gap; position-label: int16
        classes of all positions end to end, -1 for such a one and for a GAP.
        """
        if self.task == "value":
            rows = [[float(cell) if cell else math.nan for cell in row] for row in cells]
            return np.array(rows, np.float32).reshape(len(cells), len(self.names))
        tables = [{name: i for i, name in enumerate(found)} for found in self.classes]
        if self.task == "label":
            return np.array([tables[0].get(row[0], -1) for row in cells], np.int32)
        if self.task == "labels":
            found = [[t.get(c, -1) for t, c in zip(tables, row, strict=True)] for row in cells]
            return np.array(found, np.int8).reshape(len(cells), len(self.names))
        return np.array([tables[0].get(c, -1) for row in cells for c in row[0]], np.int16)


def _positive(
    classes: Sequence[Sequence[str]], counts: Sequence[Mapping[str, int]], wanted: str
) -> tuple[str, ...]:
    """Of each column the class that is `wanted` or, of two, the rarer one (of equals, the last)."""
    if wanted and not any(wanted in found for found in classes):
        known = list(dict.fromkeys(name for found in classes for name in found))
        shown = ", ".join(known[:FEW]) + (", …" if len(known) > FEW else "")
        raise UsageError(f"data.positive = {wanted[:80]!r} is no class; the classes are {shown}")
    found = []
    for names, count in zip(classes, counts, strict=True):
        rarer = min(reversed(names), key=lambda name: count[name]) if len(names) == 2 else ""
        found.append(wanted if wanted in names else rarer)
    return tuple(found)


def _ordered(found: Iterable[str]) -> tuple[str, ...]:
    """Classes in order: by value where all are numbers, else by the alphabet."""
    values = {cell: number(cell) for cell in found}
    if all(value is not None for value in values.values()):
        return tuple(sorted(values, key=lambda cell: (values[cell], cell)))
    return tuple(sorted(values))
