"""How a column writes its numbers: decimal points or commas, separators of thousands, `<3.5`.

One notation is chosen for a whole column, from many of its cells, since `1,234` alone may be read
in two ways.

What is asked of labelled records: a label, several, a value, or a label at every position.

The task is guessed from the targets as they are written, and said with its reason, or it is given.
Then `Targets` knows the classes and turns written targets into numbers.

What looks wrong with the targets of labelled records, a line each: spellings of one class, too
many classes, texts among numbers, values far from all others.

Nothing is changed for it: a user should look, since no model will notice.

What is asked of the records of a shard, beside it: `STEM.targets.bin` and `STEM.targets.json`.

The numbers are those of `Targets.encode`, little-endian: a class for every record (`label`), a row
of n for every record (`labels`, `value`), or a class for every token of the shard, -1 at `<S>` and
`<E>` (`position-label`), so that the shard's own offsets cut them. The JSON file holds type, shape
and checksum, and is renamed into place last.
"""

from __future__ import annotations

import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

from regard.data.shards import Array, ArrayFile, Shard, damaged, map_file, verify_file
from regard.errors import UsageError, UserError, did_you_mean
from regard.schemas import Count
from regard.storage import read_json

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


GAP = "?"  # a position of which nothing is asked
FEW = 20  # whole numbers up to so many different ones are classes; more are values
MANY = 10_000  # different targets counted; beyond, they are many
LETTERS = 1000  # different letters of targets counted
POSITIONS = 20  # letters that a guessed label of positions has at most ...
LONG = 5  # ... which are at least so long on average

Cells = tuple[str, ...]
Scores = NDArray[np.float64]


@dataclass
class TargetColumn:
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


def survey(chunks: Iterable[Any], width: int) -> list[TargetColumn]:
    """One pass over labelled records, of so many targets each."""
    columns = [TargetColumn() for _ in range(width)]
    for chunk in chunks:
        for text, targets in zip(chunk.texts, chunk.targets, strict=True):
            for column, cell in zip(columns, targets, strict=True):
                column.add(text, cell)
    return columns


def guess(columns: Sequence[TargetColumn], names: Sequence[str]) -> tuple[str, str]:
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


def _guess_several(columns: Sequence[TargetColumn], names: Sequence[str]) -> tuple[str, str]:
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


class OutputKind(ABC):
    """What is predicted for a record: how targets are checked, learned, encoded and stored.

    One subclass for each kind, registered under the name of its task.
    """

    name: ClassVar[str]
    dtype: ClassVar[str]  # of stored targets
    categorical: ClassVar[bool] = True  # targets are classes
    aligned: ClassVar[bool] = False  # one target for each position of the input
    per_column: ClassVar[bool] = False  # one output for each column, instead of each class

    def check(self, text: str, cells: Cells, names: Sequence[str]) -> None:  # noqa: B027
        """Raise a ValueError where written targets are none of this kind; any are, by default."""

    @abstractmethod
    def learn(
        self, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
    ) -> Targets:
        """Return what training records have; `positive` is `data.positive`."""

    @abstractmethod
    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        """Return written targets as numbers."""

    def n_outputs(self, targets: Targets) -> int:
        """Return how many numbers a model predicts."""
        return len(targets.names if self.per_column else targets.classes[0])

    def shape(self, targets: Targets) -> tuple[int, ...]:
        """Return the shape of one target."""
        return (len(targets.names),) if self.per_column else ()

    def unlabelled(self, targets: Targets, records: int, tokens: int) -> NDArray[Any]:
        """Return the targets of records of which nothing is known."""
        if self.per_column:
            return np.full((records, len(targets.names)), np.nan, np.float32)
        return np.full(tokens if self.aligned else records, -1, np.dtype(self.dtype))

    def counts(self, cell: str) -> Mapping[str, int]:
        """Return how often each class occurs in a cell."""
        return {cell: 1}

    def values(self, cell: str) -> Sequence[float]:
        """Return the numbers of a cell, where targets are numbers."""
        return ()

    @property
    def by_record(self) -> bool:
        """Whether targets are classes of whole records."""
        return self.categorical and not self.aligned

    @property
    def single(self) -> bool:
        """Whether a record has one class."""
        return self.by_record and not self.per_column

    def refuse(self, names: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
        """Return why names and classes of a run folder do not fit together, or ""."""
        if len(classes) != (len(names) if self.categorical else 0):
            return f"{len(names)} names and classes of {len(classes)} do not fit task {self.name}"
        return "" if self.per_column else _refuse_single(self.name, names, classes)

    def renumber(
        self, own: Targets, classes: Sequence[Sequence[str]], scores: Scores, truths: Array
    ) -> tuple[Scores, Array]:
        """Return scores and truths of one fold by the classes of all folds; a class that its
        training part lacks is impossible.
        """
        places = np.array([classes[0].index(name) for name in own.classes[0]], np.int64)
        wide = np.full((len(scores), len(classes[0])), -np.inf)
        wide[:, places] = scores
        return wide, np.where(truths >= 0, places[np.maximum(truths, 0)], -1)


OUTPUT_KINDS: dict[str, OutputKind] = {}


def register_output_kind(kind: type[OutputKind]) -> type[OutputKind]:
    """Register a kind of output under its name."""
    OUTPUT_KINDS[kind.name] = kind()
    return kind


@register_output_kind
class Label(OutputKind):
    """One of several classes: (R,) int32, -1 for a class that training does not have."""

    name, dtype = "label", "<i4"

    def learn(
        self, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
    ) -> Targets:
        if len(names) > 1:
            raise UsageError(f"--task {self.name} has one target, got --target {','.join(names)}")
        return _learn_classes(self.name, names, columns, positive)

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        table = targets.class_ids()[0]
        return np.array([table.get(row[0], -1) for row in cells], np.int32)


@register_output_kind
class Labels(OutputKind):
    """Several labels, each there or not: (R, n) int8, 0 or 1, -1 for a gap."""

    name, dtype, per_column = "labels", "|i1", True

    def learn(
        self, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
    ) -> Targets:
        for name, column in zip(names, columns, strict=True):
            values = _ordered(column.different)
            if len(values) > 2:
                raise UsageError(
                    f"--task labels: each column has two values, {name!r} has {len(values):,}: "
                    f"{', '.join(values[:5])}"
                )
        return _learn_classes(self.name, names, columns, positive)

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        tables = targets.class_ids()
        rows = [[t.get(c, -1) for t, c in zip(tables, row, strict=True)] for row in cells]
        return np.array(rows, np.int8).reshape(len(cells), len(targets.names))

    def renumber(
        self, own: Targets, classes: Sequence[Sequence[str]], scores: Scores, truths: Array
    ) -> tuple[Scores, Array]:
        """A label that a training part has in one form only is missing there."""
        both = np.array([tuple(a) == tuple(b) for a, b in zip(own.classes, classes, strict=True)])
        return np.where(both, scores, 0.0), np.where(both, truths, -1)


@register_output_kind
class Value(OutputKind):
    """Numbers: (R, n) float32, NaN for a gap."""

    name, dtype, categorical, per_column = "value", "<f4", False, True

    def check(self, text: str, cells: Cells, names: Sequence[str]) -> None:
        for name, cell in zip(names, cells, strict=True):
            if cell and number(cell) is None:
                raise ValueError(
                    f"{cell[:40]!r} in column {name!r} is not a number; leave the cell empty if "
                    "the value is missing"
                )

    def learn(
        self, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
    ) -> Targets:
        if positive:
            raise UsageError(f"data.positive = {positive!r} names a class; values have none")
        deviations = tuple(column.deviation for column in columns)
        return Targets(self.name, tuple(names), deviations=deviations)

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        rows = [[float(cell) if cell else math.nan for cell in row] for row in cells]
        return np.array(rows, np.float32).reshape(len(cells), len(targets.names))

    def counts(self, cell: str) -> Mapping[str, int]:
        return {}

    def values(self, cell: str) -> Sequence[float]:
        return (float(cell),)

    def renumber(
        self, own: Targets, classes: Sequence[Sequence[str]], scores: Scores, truths: Array
    ) -> tuple[Scores, Array]:
        return scores, truths


@register_output_kind
class PositionLabel(OutputKind):
    """A class at each position: int16 of all positions end to end, -1 for a GAP and at markers."""

    name, dtype, aligned = "position-label", "<i2", True

    def check(self, text: str, cells: Cells, names: Sequence[str]) -> None:
        if len(cells[0]) != len(text):
            raise ValueError(
                f"{len(cells[0]):,} labels for {len(text):,} symbols; there must be one for each"
            )

    def learn(
        self, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
    ) -> Targets:
        if len(names) > 1:
            raise UsageError(f"--task {self.name} has one target, got --target {','.join(names)}")
        letters = columns[0].letters
        classes = tuple(sorted(set(letters) - {GAP}))
        return Targets(
            self.name, tuple(names), (classes,), _positive([classes], [letters], positive)
        )

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        table = targets.class_ids()[0]
        return np.array([table.get(c, -1) for row in cells for c in row[0]], np.int16)

    def counts(self, cell: str) -> Mapping[str, int]:
        return Counter(cell)


LABELLED = tuple(OUTPUT_KINDS)  # tasks that predict targets of records


@register_output_kind
class MaskedTokens(OutputKind):
    """Tokens of the input itself, hidden and to be filled in: nothing is written or learned."""

    name, dtype = "masked", "<i4"

    def learn(
        self, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
    ) -> Targets:
        return Targets(self.name, ())

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        return self.unlabelled(targets, len(cells), 0)

    def refuse(self, names: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
        return ""


UNDECIDED = MaskedTokens()  # the kind of targets that are read before their task is known


def kind_for(task: str) -> OutputKind:
    """Return the kind of output of a task; UNDECIDED, which accepts all, where it has none."""
    return OUTPUT_KINDS.get(task, UNDECIDED)


def _refuse_single(task: str, names: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
    if len(names) != 1:
        return f"{len(names)} names and classes of {len(classes)} do not fit task {task}"
    return "" if classes[0] else "there must be one class at least"


def _learn_classes(
    task: str, names: Sequence[str], columns: Sequence[TargetColumn], positive: str
) -> Targets:
    classes = tuple(_ordered(column.different) for column in columns)
    for name, values in zip(names, classes, strict=True):
        if len(values) > MANY:
            raise UsageError(f"--task label: {name!r} has more than {MANY:,} different targets")
    counts = [column.different for column in columns]
    return Targets(task, tuple(names), classes, _positive(classes, counts, positive))


@dataclass(frozen=True)
class Targets:
    """The columns that a model predicts, and the classes of each."""

    task: str
    names: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...] = ()
    # What metrics need of the training part: the class of each column that precision, recall and
    # their like are of ("" = none), and the standard deviations of values.
    positive: tuple[str, ...] = field(default=(), compare=False)
    deviations: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def learn(
        cls, task: str, names: Sequence[str], columns: Sequence[TargetColumn], positive: str = ""
    ) -> Targets:
        """Return the classes that training records have; targets not of the task are an error.

        `positive` is a class, data.positive; without it, it is the rarer one where there are two.
        """
        if task not in LABELLED:
            raise UsageError(f"unknown task {task!r}; {did_you_mean(task, list(LABELLED))}")
        return OUTPUT_KINDS[task].learn(names, columns, positive)

    @classmethod
    def stored(cls, document: Any) -> Targets:
        """Return what a file of a run folder says; ValueError where it makes no sense."""
        found = cls(
            str(document["task"]),
            tuple(document["names"]),
            tuple(map(tuple, document["classes"])),
            tuple(document.get("positive", ())),
            tuple(document.get("deviations", ())),
        )
        found.validate()
        return found

    def validate(self) -> None:
        """Raise a ValueError where names, classes and what metrics need do not fit together."""
        if self.task not in OUTPUT_KINDS:
            raise ValueError(f"task must be one of {', '.join(OUTPUT_KINDS)}, got {self.task!r}")
        if self.task in LABELLED and not self.names:
            raise ValueError("names must name one target at least")
        if problem := self.kind.refuse(self.names, self.classes):
            raise ValueError(problem)
        if any(len(set(each)) < len(each) for each in self.classes):
            raise ValueError("classes must differ")
        if len(self.positive) not in (0, len(self.classes)):
            raise ValueError(f"positive must name a class of each of {len(self.classes)} targets")
        if len(self.deviations) not in (0, len(self.names)):
            raise ValueError(f"deviations must have one number for each of {len(self.names)}")

    @property
    def kind(self) -> OutputKind:
        return OUTPUT_KINDS[self.task]

    @property
    def n_outputs(self) -> int:
        return self.kind.n_outputs(self)

    def class_ids(self) -> list[dict[str, int]]:
        """Return the number of each class, by column."""
        return [{name: i for i, name in enumerate(names)} for names in self.classes]

    def place_of_positive(self, column: int = 0) -> int | None:
        """Return the number of the class that precision and recall are of; None = of none."""
        name = self.positive[column] if self.positive else ""
        return self.classes[column].index(name) if name in self.classes[column] else None

    def encode(self, cells: Sequence[Cells]) -> NDArray[Any]:
        """Return written targets as numbers, as the kind stores them."""
        return self.kind.encode(self, cells)


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


Rows = list[tuple[str, str]]  # what it is about, and what to say

MANY_CLASSES = 50  # classes, more than which are too many if most have one record
FAR = 20  # interquartile ranges from the quartiles, beyond which a value is an outlier
FEW_RECORDS = 0.1  # share of records with texts up to which numbers are the rule
SHOWN = 3


def of_classes(
    name: str,
    counts: Mapping[str, int],
    places: Mapping[str, str],
    spaced: Mapping[str, tuple[int, str]],
) -> Rows:
    """What is odd about classes: how many records each has, where each first stands, and which
    targets were written with blanks around them, how often, and the first.
    """
    return [
        *_spellings(name, counts, places),
        *_trimmed(name, counts, spaced),
        *_too_many(name, counts, places),
        *_texts(name, counts, places),
    ]


def _at(label: str, places: Mapping[str, str]) -> str:
    return f"{label[:40]!r} ({places[label]})" if label in places else repr(label[:40])


def _spellings(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    """Classes that are the same but for case and blanks."""
    alike: dict[str, list[str]] = {}
    for label in counts:
        alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    found = [sorted(labels, key=lambda c: (-counts[c], c)) for labels in alike.values()]
    found = [labels for labels in found if len(labels) > 1]
    if not found:
        return []
    first, *others = found
    more = f", and {len(others):,} more such groups" if others else ""
    said = " and ".join(f"{_at(c, places)}" for c in first[:SHOWN])
    classes = sum(map(len, found))
    line = f"{classes:,} classes of {name!r} differ only by case or space: {said}{more}"
    return [("spelling", line)]


def _trimmed(name: str, counts: Mapping[str, int], spaced: Mapping[str, tuple[int, str]]) -> Rows:
    """Classes written both with and without blanks around them, which are read as one."""
    both = [label for label, (n, _) in spaced.items() if n < counts.get(label, 0)]
    if not both:
        return []
    line = (
        f"classes of {name!r} that differ only by spaces around them are read as one "
        f"({len(both):,}); first: {spaced[both[0]][1]}"
    )
    return [("spelling", line)]


def _too_many(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    if len(counts) <= MANY_CLASSES or float(np.median(list(counts.values()))) > 1:
        return []
    once = next(label for label, n in counts.items() if n == 1)
    line = (
        f"{name!r} has {len(counts):,} classes, and most have one record, such as "
        f"{_at(once, places)}: are they texts or numbers? --task target or --task value reads them"
    )
    return [("classes", line)]


def _texts(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    """A few texts where the other classes are numbers."""
    texts = [label for label in counts if number(label) is None]
    rows = sum(counts[label] for label in texts)
    if not texts or len(texts) == len(counts) or rows > FEW_RECORDS * sum(counts.values()):
        return []
    what = f"{rows:,} {'row has' if rows == 1 else 'rows have'} text"
    line = f"{what} where {name!r} has numbers elsewhere; first: {_at(texts[0], places)}"
    return [("classes", line)]


def limits(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float] | None:
    """Below and above which a value is an outlier; None where half of the values are the same."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FAR * (high - low)
    return (float(low - reach), float(high + reach)) if reach > 0 else None


def of_values(name: str, values: NDArray[np.float64]) -> str:
    """What is odd about values, without the place of the first; "" where nothing is."""
    bounds = limits(values)
    if bounds is None:
        return ""
    far = values[(values < bounds[0]) | (values > bounds[1])]
    if not len(far):
        return ""
    what = f"{len(far):,} {'value' if len(far) == 1 else 'values'} of {name!r}"
    verb = "lies" if len(far) == 1 else "lie"
    return (
        f"{what} {verb} more than {FAR} interquartile ranges from the others; first: {far[0]:.10g}"
    )


def tallied(found: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Records of each class over all sides."""
    return Counter({label: sum(sides.values()) for label, sides in found.items()})


FORMAT = 1


class TargetFile(TypedDict):
    """STEM.targets.json, beside a shard: the numbers that STEM.targets.bin holds."""

    task: str
    shape: Annotated[list[Count], Field(min_length=1, max_length=2)]
    blake2b: str


class TargetWriter:
    """Writes the targets of the shard with stem `path`, piece by piece; `close` gives them their
    names, `abort` leaves nothing.
    """

    def __init__(self, path: Path, targets: Targets) -> None:
        self.path, self.targets, self.count = Path(path), targets, 0
        self._columns: list[ArrayFile] = []
        try:
            self._columns = [ArrayFile(file) for file in _files(self.path)]
        except OSError as error:
            self.abort()
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error

    def add(
        self,
        cells: Sequence[tuple[str, ...]],
        lengths: Array,
        place: Callable[[int], str] | None,
        markers: int = 2,
    ) -> None:
        """Append the targets of records that have so many tokens each, markers not counted, of
        which there are two around each record, or `<S>` alone.
        """
        values = self.targets.encode(cells)
        if self.targets.kind.aligned:
            values = self._placed(cells, values, lengths, place, markers)
        self.write(values)

    def write(self, values: Array) -> None:
        """Append targets as they are stored: those of `Shard.targets`."""
        try:
            self._columns[0].write(values.astype(self.targets.kind.dtype))
        except OSError as error:
            self.abort()
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
        self.count += len(values)

    def _placed(
        self,
        cells: Sequence[tuple[str, ...]],
        values: Array,
        lengths: Array,
        place: Callable[[int], str] | None,
        markers: int,
    ) -> Array:
        """Classes of positions with -1 at the markers around every record."""
        wanted = np.array([len(row[0]) for row in cells])
        wrong = np.flatnonzero(wanted != lengths)
        if len(wrong):
            i = int(wrong[0])
            where = f"{place(i)}: " if place else ""
            raise UserError(
                f"{where}{wanted[i]:,} labels of positions, but {lengths[i]:,} tokens; choose "
                "tokens of one symbol each: characters, nucleotides, residues; of points, all "
                "(tokens.samples=0)"
            )
        return marked(values, wanted, markers)

    def close(self) -> None:
        """Finish the files and give them their names, the JSON file last."""
        numbers, facts = self._columns
        shape = [self.count, *self.targets.kind.shape(self.targets)]
        document = {
            "format": FORMAT,
            "task": self.targets.task,
            "shape": shape,
            "blake2b": numbers.digest.hexdigest(),
        }
        try:
            facts.write(np.frombuffer((json.dumps(document) + "\n").encode(), np.uint8))
            for column in self._columns:
                column.finish()
            facts.path.unlink(missing_ok=True)  # older targets stop being some before they change
            for column in self._columns:
                os.replace(column.temporary, column.path)
        except OSError as error:
            self.abort()
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._columns = []

    def abort(self) -> None:
        """Give up: remove everything written so far."""
        columns, self._columns = self._columns, []
        for column in columns:
            column.discard()


def marked(values: Array, lengths: Array, markers: int = 2) -> Array:
    """Classes of positions, of records that have so many each, with -1 at the markers around: two,
    or `<S>` alone.
    """
    found = np.full(len(values) + markers * len(lengths), -1, np.dtype("<i2"))
    inside = np.ones(len(found), bool)
    ends = np.cumsum(lengths + markers)
    inside[ends - lengths - markers] = False
    if markers == 2:
        inside[ends - 1] = False
    found[inside] = values
    return found


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".targets.bin"), path.with_name(path.name + ".targets.json")


def with_targets(shard: Shard, path: Path, *, verify: bool = False) -> Shard:
    """Return a shard with its targets, which lie beside it under the stem `path`."""
    numbers, facts_file = _files(path)
    facts = read_json(facts_file, TargetFile)
    task, shape, sum_ = facts["task"], facts["shape"], facts["blake2b"]
    if task not in LABELLED:
        raise damaged(facts_file, f"task must be one of {', '.join(LABELLED)}, got {task!r}")
    kind = OUTPUT_KINDS[task]
    dtype, expected = np.dtype(kind.dtype), shard.tokens if kind.aligned else shard.records
    width = shape[1:] or [1]
    if shape[:1] != [expected] or not 1 <= width[0] <= 100_000:
        raise damaged(facts_file, f"its shape must begin with {expected}, got {shape}")
    found = map_file(numbers, dtype, expected * width[0])
    if verify:
        verify_file(numbers, sum_)
    return replace(shard, targets=found.reshape(shape), aligned=kind.aligned)
