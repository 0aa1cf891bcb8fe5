"""Targets of labelled records: how they are written, checked, encoded and stored.

`Notation` is how a column writes its numbers (decimal points or commas, separators of thousands).
One notation is chosen for a column from many of its cells, because `1,234` alone is ambiguous.
`OutputKind` describes a kind of target: one class, several labels, values, or a class at each
position. `Targets` has the columns and classes of a data set and encodes written targets as
numbers. `of_classes` and `of_values` warn about targets that look wrong, such as two spellings of
one class.

`TargetWriter` stores encoded targets next to a shard as `STEM.targets.bin` (little-endian: a class
per record, a row of n per record, or a class per token with -1 at markers, so that the offsets of
the shard apply) and `STEM.targets.json` (type, shape and checksum), which is renamed last.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

from regard.data.shards import Array, ArrayWriter, Shard, State, damaged, map_file, verify_file
from regard.errors import UsageError, UserError
from regard.storage import Count, read_json

SPACES = "\u00a0\u202f\u2009"  # no-break, narrow and thin spaces, used between thousands
# A bound instead of a value, as in <3.5, >= 10, ≤2,5 or ~7.
CENSORED = re.compile(r"(?:<=?|>=?|[≤≥~≈])\s*[+-]?[\d.,' ]*\d[\d.,' ]*(?:[eE][+-]?\d+)?")
DIGITS = re.compile(r"[+-]?\d[\d.,' ]*(?:[eE][+-]?\d+)?")  # digits with separators between them


def number(cell: str) -> float | None:
    """Return the finite number that a cell has in Python notation, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def plain(cell: str) -> str:
    """Return a cell with ASCII minus signs and spaces."""
    if cell.isascii():
        return cell
    for space in SPACES:
        cell = cell.replace(space, " ")
    return cell.replace("\u2212", "-")


def numeric(cell: str) -> bool:
    """Whether a cell is a number in any notation, or a bound such as `<3.5`."""
    if number(cell) is not None:
        return True
    cell = plain(cell)
    return bool(DIGITS.fullmatch(cell) or CENSORED.fullmatch(cell))


def censored(cell: str) -> bool:
    """Whether a cell is a bound instead of a number, such as `<3.5`."""
    return CENSORED.fullmatch(plain(cell)) is not None


@dataclass(frozen=True)
class Notation:
    """The decimal mark and the separator of thousands ("" if there is none)."""

    decimal: str = "."
    group: str = ""

    @property
    def usual(self) -> bool:
        """Whether this is the notation of Python."""
        return self == Notation()

    @property
    def words(self) -> str:
        parts = ["decimal commas"] if self.decimal == "," else []
        named = {" ": "spaces", ",": "commas", ".": "points", "'": "apostrophes"}
        parts += [f"{named[self.group]} between thousands"] if self.group else []
        return " and ".join(parts) or "decimal points"

    def spell(self, cell: str) -> str | None:
        """Return the number of a cell in Python notation, or None."""
        cell = plain(cell)
        if self.group and self.group in cell:
            integer, mark, decimals = cell.partition(self.decimal)
            grouped = rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(self.group)}\d{{3}})+"
            if not re.fullmatch(grouped, integer):
                return None
            cell = integer.replace(self.group, "") + mark + decimals
        if self.decimal != ".":
            if "." in cell:
                return None
            cell = cell.replace(self.decimal, ".")
        return cell if number(cell) is not None else None


# The notations to try; among those that read the same number of cells, the first is chosen.
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
    """Return the notation that reads most cells, preferably that of Python.

    `commas` means that decimal commas are expected, as in files separated by semicolons.
    """
    filled = [cell for cell in cells if cell]
    if all(number(cell) is not None for cell in filled):
        return NOTATIONS[0]
    order = sorted(NOTATIONS, key=lambda n: commas and n.decimal != "," and not n.usual)
    counts = [sum(notation.spell(cell) is not None for cell in filled) for notation in order]
    return order[counts.index(max(counts))]


GAP = "?"  # a position without a target
MANY = 10_000  # at most this many different targets are counted
MAX_LETTERS = 1000  # at most this many different letters of targets are counted
PRESENT = 0.5  # the probability from which one of several labels is predicted
Cells = tuple[str, ...]
Outputs = Sequence[
    Any
]  # an array (C,) or (T, C) of probabilities or values of each record, or None
Scores = NDArray[np.float64]


@dataclass
class TargetColumn:
    """Statistics of one column of targets."""

    filled: int = 0
    numeric: int = 0  # in any notation, bounds such as <3.5 among them
    whole: int = 0  # integers
    as_long: int = 0  # cells as long as the text of the record
    length: int = 0
    numbers: int = 0  # in Python notation
    mean: float = 0.0  # of these numbers
    squares: float = 0.0  # sum of their squared distances from the mean (Welford 1962)
    letters: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, cell: str) -> None:
        """Count the target of one record; empty cells are ignored."""
        if not cell:
            return
        value = number(cell)
        self.filled += 1
        self.numeric += value is not None or numeric(cell)
        if value is not None:
            self.numbers += 1
            delta = value - self.mean
            self.mean += delta / self.numbers
            self.squares += delta * (value - self.mean)
        self.whole += value is not None and value == int(value)
        self.as_long += len(cell) == len(text)
        self.length += len(cell)
        if len(self.letters) <= MAX_LETTERS:
            self.letters.update(cell)
        if len(self.different) <= MANY or cell in self.different:
            self.different[cell] += 1

    @property
    def deviation(self) -> float:
        """The standard deviation of the numbers; 0 if it overflows."""
        variance = self.squares / max(1, self.numbers)
        return math.sqrt(variance) if math.isfinite(variance) else 0.0


Columns = Sequence[TargetColumn]


def survey(chunks: Iterable[Any], width: int) -> list[TargetColumn]:
    """Return the statistics of each of the `width` target columns of labelled records."""
    columns = [TargetColumn() for _ in range(width)]
    for chunk in chunks:
        for text, targets in zip(chunk.texts, chunk.targets, strict=True):
            for column, cell in zip(columns, targets, strict=True):
                column.add(text, cell)
    return columns


class Outcome(NamedTuple):
    """The prediction for one record beside its truth, both in words.

    `correct` is 1, 0 or the share of its targets that are right, NaN where nothing is known or
    nothing can be right; `loss` is NaN where nothing is known.
    """

    prediction: str
    truth: str
    confidence: float  # probability of the prediction; NaN of values
    correct: float
    loss: float


class OutputKind(ABC):
    """What is predicted for a record: how targets are checked, learned, encoded and stored.

    One subclass for each kind, registered under the name of its task.
    """

    name: ClassVar[str]
    dtype: ClassVar[str]  # of stored targets
    categorical: ClassVar[bool] = True  # targets are classes
    aligned: ClassVar[bool] = False  # one target for each position of the input
    per_column: ClassVar[bool] = False  # one output for each column, instead of each class
    written: ClassVar[bool] = True  # whether files contain targets

    def check(self, text: str, cells: Cells, names: Sequence[str]) -> None:  # noqa: B027
        """Raise a ValueError if the cells are not valid targets of this kind."""

    @abstractmethod
    def learn(self, names: Sequence[str], columns: Columns, positive: str) -> Targets:
        """Return the targets of training records; `positive` is `data.positive`."""

    @abstractmethod
    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        """Encode written targets as numbers."""

    def decode(self, targets: Targets, outputs: Outputs) -> Any:
        """Return what is predicted from the probabilities or values of each record, None where
        there are none.
        """
        raise NotImplementedError

    def probabilities(self, targets: Targets, outputs: Outputs) -> Any:
        """Return the probabilities of all records as one array, NaN where there are none."""
        missing = np.full(self.n_outputs(targets), math.nan)
        rows = [missing if row is None else row for row in outputs]
        return np.array(rows, np.float64).reshape(len(rows), len(missing))

    def outcome(self, targets: Targets, outputs: Scores, truths: Array) -> Outcome:
        """Return the prediction for one record, from its probabilities or values, and its truth."""
        classes, best, truth = targets.classes[0], int(outputs.argmax()), int(truths)
        if truth < 0:
            return Outcome(classes[best], "", float(outputs[best]), math.nan, math.nan)
        loss = negative_log(outputs[truth : truth + 1])
        return Outcome(
            classes[best], classes[truth], float(outputs[best]), float(best == truth), loss
        )

    def n_outputs(self, targets: Targets) -> int:
        """Return how many numbers a model predicts."""
        return len(targets.names if self.per_column else targets.classes[0])

    def shape(self, targets: Targets) -> tuple[int, ...]:
        """Return the shape of one target."""
        return (len(targets.names),) if self.per_column else ()

    def unlabelled(self, targets: Targets, records: int, tokens: int) -> NDArray[Any]:
        """Return the encoded targets of unlabelled records."""
        if self.per_column:
            return np.full((records, len(targets.names)), np.nan, np.float32)
        return np.full(tokens if self.aligned else records, -1, np.dtype(self.dtype))

    def counts(self, cell: str) -> Mapping[str, int]:
        """Return how often each class occurs in a cell."""
        return {cell: 1}

    def values(self, cell: str) -> Sequence[float]:
        """Return the numbers of a cell, if targets are numbers."""
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
        """Return why names and classes are inconsistent, or ""."""
        fits = len(classes) == (len(names) if self.categorical else 0)
        if not fits or not (self.per_column or len(names) == 1):
            return f"{len(names)} names and classes of {len(classes)} do not fit task {self.name}"
        return "" if self.per_column or classes[0] else "there must be one class at least"

    def renumber(
        self, own: Targets, classes: Sequence[Sequence[str]], scores: Scores, truths: Array
    ) -> tuple[Scores, Array]:
        """Map scores and true classes of one fold to the classes of all folds.

        Classes that are missing in the training part of the fold get a score of -inf.
        """
        columns = np.array([classes[0].index(name) for name in own.classes[0]], np.int64)
        padded = np.full((len(scores), len(classes[0])), -np.inf)
        padded[:, columns] = scores
        return padded, np.where(truths >= 0, columns[np.maximum(truths, 0)], -1)


def negative_log(probabilities: Scores) -> float:
    """Return the mean of -log p, ∞ where a p is 0, NaN of none."""
    if not len(probabilities):
        return math.nan
    with np.errstate(divide="ignore"):
        return float(-np.log(probabilities).mean())


WHOLE = re.compile(r"-?[1-9]\d{0,17}|0")  # as Python writes whole numbers


def as_labels(names: Sequence[str]) -> NDArray[Any]:
    """Return classes as an array: of numbers, if all are whole numbers as Python writes them."""
    if names and all(map(WHOLE.fullmatch, names)):
        return np.array(list(map(int, names)))
    return np.array(names, dtype=str)


OUTPUT_KINDS: dict[str, OutputKind] = {}


def register_output_kind(kind: type[OutputKind]) -> type[OutputKind]:
    """Register an output kind under its name."""
    OUTPUT_KINDS[kind.name] = kind()
    return kind


@register_output_kind
class Label(OutputKind):
    """One of several classes: (R,) int32, -1 for a class that is not in the training data."""

    name, dtype = "label", "<i4"

    def learn(self, names: Sequence[str], columns: Columns, positive: str) -> Targets:
        if len(names) > 1:
            raise UsageError(f"--task {self.name} has one target, got --target {','.join(names)}")
        return _learn_classes(self.name, names, columns, positive)

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        table = targets.class_ids()[0]
        return np.array([table.get(row[0], -1) for row in cells], np.int32)

    def decode(self, targets: Targets, outputs: Outputs) -> NDArray[Any]:
        labels = as_labels(targets.classes[0])
        if any(row is None for row in outputs):
            return np.array([None if x is None else labels[x.argmax()] for x in outputs], object)
        best: NDArray[Any] = labels[self.probabilities(targets, outputs).argmax(1)]
        return best


@register_output_kind
class Labels(OutputKind):
    """Several binary labels: (R, n) int8, 0 or 1, -1 for a missing one."""

    name, dtype, per_column = "labels", "|i1", True

    def learn(self, names: Sequence[str], columns: Columns, positive: str) -> Targets:
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

    def decode(self, targets: Targets, outputs: Outputs) -> NDArray[Any]:
        return np.asarray(self.probabilities(targets, outputs) >= PRESENT, np.int64)

    def outcome(self, targets: Targets, outputs: Scores, truths: Array) -> Outcome:
        known = np.asarray(truths) >= 0
        present, true = outputs >= PRESENT, np.asarray(truths) > 0
        names = np.array(targets.names)
        right = float((present == true)[known].all()) if known.any() else math.nan
        return Outcome(
            ", ".join(names[present]) or "none",
            (", ".join(names[true]) or "none") if known.any() else "",
            float(np.maximum(outputs, 1 - outputs).min()),
            right,
            negative_log(np.where(true, outputs, 1 - outputs)[known]),
        )

    def renumber(
        self, own: Targets, classes: Sequence[Sequence[str]], scores: Scores, truths: Array
    ) -> tuple[Scores, Array]:
        """Ignore labels that have one value only in the training part of a fold."""
        both = np.array([tuple(a) == tuple(b) for a, b in zip(own.classes, classes, strict=True)])
        return np.where(both, scores, 0.0), np.where(both, truths, -1)


@register_output_kind
class Value(OutputKind):
    """Numbers: (R, n) float32, NaN for a missing one."""

    name, dtype, categorical, per_column = "value", "<f4", False, True

    def check(self, text: str, cells: Cells, names: Sequence[str]) -> None:
        for name, cell in zip(names, cells, strict=True):
            if cell and number(cell) is None:
                raise ValueError(
                    f"{cell[:40]!r} in column {name!r} is not a number; leave the cell empty if "
                    "the value is missing"
                )

    def learn(self, names: Sequence[str], columns: Columns, positive: str) -> Targets:
        if positive:
            raise UsageError(f"data.positive = {positive!r} names a class; values have none")
        deviations = tuple(column.deviation for column in columns)
        return Targets(self.name, tuple(names), deviations=deviations)

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        rows = [[float(cell) if cell else math.nan for cell in row] for row in cells]
        return np.array(rows, np.float32).reshape(len(cells), len(targets.names))

    def decode(self, targets: Targets, outputs: Outputs) -> NDArray[Any]:
        values: NDArray[Any] = self.probabilities(targets, outputs)
        return values[:, 0] if len(targets.names) == 1 else values

    def outcome(self, targets: Targets, outputs: Scores, truths: Array) -> Outcome:
        """Return the absolute error as loss: of several values, in units of their deviations."""
        errors = np.abs(np.asarray(truths, np.float64) - outputs)
        if len(errors) > 1 and targets.deviations:
            errors = errors / np.maximum(targets.deviations, 1e-300)
        known = np.isfinite(errors)
        loss = float(errors[known].mean()) if known.any() else math.nan
        words = [", ".join(f"{x:.4g}" for x in np.asarray(row)) for row in (outputs, truths)]
        return Outcome(words[0], words[1] * bool(known.any()), math.nan, math.nan, loss)

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
    """A class at each position: int16 of concatenated positions, -1 for a GAP and at markers."""

    name, dtype, aligned = "position-label", "<i2", True

    def check(self, text: str, cells: Cells, names: Sequence[str]) -> None:
        if len(cells[0]) != len(text):
            raise ValueError(
                f"{len(cells[0]):,} labels for {len(text):,} symbols; there must be one for each"
            )

    def learn(self, names: Sequence[str], columns: Columns, positive: str) -> Targets:
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

    def decode(self, targets: Targets, outputs: Outputs) -> list[NDArray[Any]]:
        labels = as_labels(targets.classes[0])
        return [labels[rows.argmax(1)] for rows in self.probabilities(targets, outputs)]

    def probabilities(self, targets: Targets, outputs: Outputs) -> list[NDArray[Any]]:
        nothing = np.zeros((0, self.n_outputs(targets)))
        return [nothing if rows is None else rows for rows in outputs]

    def outcome(self, targets: Targets, outputs: Scores, truths: Array) -> Outcome:
        known = np.asarray(truths) >= 0
        outputs, truths = outputs[known], np.asarray(truths)[known].astype(np.int64)
        best, count = outputs.argmax(1), len(truths)
        n_right = int((best == truths).sum())
        return Outcome(
            f"{count - n_right:,} of {count:,} positions wrong",
            "",
            float(outputs.max(1).mean()) if count else math.nan,
            n_right / count if count else math.nan,
            negative_log(outputs[np.arange(count), truths]),
        )

    def counts(self, cell: str) -> Mapping[str, int]:
        return Counter(cell)


@register_output_kind
class MaskedTokens(OutputKind):
    """Tokens of the input that are masked; files contain no targets."""

    name, dtype = "masked", "<i4"
    written = False

    def learn(self, names: Sequence[str], columns: Columns, positive: str) -> Targets:
        return Targets(self.name, ())

    def encode(self, targets: Targets, cells: Sequence[Cells]) -> NDArray[Any]:
        return self.unlabelled(targets, len(cells), 0)

    def refuse(self, names: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
        return ""


UNDECIDED = MaskedTokens()  # reads targets before their task is known


def _learn_classes(task: str, names: Sequence[str], columns: Columns, positive: str) -> Targets:
    classes = tuple(_ordered(column.different) for column in columns)
    for name, values in zip(names, classes, strict=True):
        if len(values) > MANY:
            raise UsageError(f"--task label: {name!r} has more than {MANY:,} different targets")
    counts = [column.different for column in columns]
    return Targets(task, tuple(names), classes, _positive(classes, counts, positive))


@dataclass(frozen=True)
class Targets:
    """The target columns and the classes of each."""

    task: str
    names: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...] = ()
    # From the training data, for metrics: the positive class of each column ("" = none) and the
    # standard deviations of values.
    positive: tuple[str, ...] = field(default=(), compare=False)
    deviations: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def learn(
        cls, task: str, names: Sequence[str], columns: Columns, positive: str = ""
    ) -> Targets:
        """Return the targets of training records; raise a UsageError if they do not fit the task.

        `positive` is data.positive; by default, it is the rarer of two classes.
        """
        return OUTPUT_KINDS[task].learn(names, columns, positive)

    @classmethod
    def stored(cls, document: Any) -> Targets:
        """Return targets from the metadata of a run; raise a ValueError if they are invalid."""
        targets = cls(
            str(document["task"]),
            tuple(document["names"]),
            tuple(map(tuple, document["classes"])),
            tuple(document.get("positive", ())),
            tuple(document.get("deviations", ())),
        )
        targets.validate()
        return targets

    def validate(self) -> None:
        """Raise a ValueError if names, classes and statistics are inconsistent."""
        if self.task not in OUTPUT_KINDS:
            raise ValueError(f"task must be one of {', '.join(OUTPUT_KINDS)}, got {self.task!r}")
        if self.kind.written and not self.names:
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
        """Return the id of each class, for each column."""
        return [{name: i for i, name in enumerate(names)} for names in self.classes]

    def place_of_positive(self, column: int = 0) -> int | None:
        """Return the id of the positive class of a column, or None."""
        name = self.positive[column] if self.positive else ""
        return self.classes[column].index(name) if name in self.classes[column] else None

    def encode(self, cells: Sequence[Cells]) -> NDArray[Any]:
        """Encode written targets as numbers."""
        return self.kind.encode(self, cells)


def _positive(
    classes: Sequence[Sequence[str]], counts: Sequence[Mapping[str, int]], wanted: str
) -> tuple[str, ...]:
    """Return the positive class of each column: `wanted`, or the rarer of two (last on a tie)."""
    if wanted and not any(wanted in names for names in classes):
        known = list(dict.fromkeys(name for names in classes for name in names))
        shown = ", ".join(known[:CLASSES_SHOWN]) + (", …" if len(known) > CLASSES_SHOWN else "")
        raise UsageError(f"data.positive = {wanted[:80]!r} is no class; the classes are {shown}")
    positives = []
    for names, count in zip(classes, counts, strict=True):
        rarer = min(reversed(names), key=lambda name: count[name]) if len(names) == 2 else ""
        positives.append(wanted if wanted in names else rarer)
    return tuple(positives)


def _ordered(cells: Iterable[str]) -> tuple[str, ...]:
    """Return the classes sorted by value if all are numbers, else alphabetically."""
    values = {cell: number(cell) for cell in cells}
    if all(value is not None for value in values.values()):
        return tuple(sorted(values, key=lambda cell: (values[cell], cell)))
    return tuple(sorted(values))


Rows = list[tuple[str, str]]  # topic and message of each warning

MANY_CLASSES = 50  # warn about more classes if most have one record
FAR = 20  # values this many interquartile ranges from the quartiles are outliers
FEW_RECORDS = 0.1  # warn about texts among numbers if at most this share of records has texts
SHOWN = 3  # spellings listed
CLASSES_SHOWN = 20


def of_classes(
    name: str,
    counts: Mapping[str, int],
    places: Mapping[str, str],
    spaced: Mapping[str, tuple[int, str]],
) -> Rows:
    """Return warnings about classes.

    `counts` are the records of each class, `places` the location of the first, and `spaced` how
    often a class was written with surrounding spaces, and an example.
    """
    return [
        *_spellings(name, counts, places),
        *_spaces(name, counts, spaced),
        *_too_many(name, counts, places),
        *_texts_among_numbers(name, counts, places),
    ]


def _located(label: str, places: Mapping[str, str]) -> str:
    return f"{label[:40]!r} ({places[label]})" if label in places else repr(label[:40])


def _spellings(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    spellings: dict[str, list[str]] = {}
    for label in counts:
        composed = unicodedata.normalize(
            "NFC", " ".join(label.split())
        )  # ö is one character or two
        spellings.setdefault(composed.casefold(), []).append(label)
    groups = [
        sorted(labels, key=lambda c: (-counts[c], c))
        for labels in spellings.values()
        if len(labels) > 1
    ]
    if not groups:
        return []
    first, *others = groups
    more = f", and {len(others):,} more such groups" if others else ""
    shown = " and ".join(_located(c, places) for c in first[:SHOWN])
    classes = sum(map(len, groups))
    line = (
        f"{classes:,} classes of {name!r} differ only by case, space or Unicode form: {shown}{more}"
    )
    return [("spelling", line)]


def _spaces(name: str, counts: Mapping[str, int], spaced: Mapping[str, tuple[int, str]]) -> Rows:
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
        f"{_located(once, places)}: are they texts or numbers? --task target or --task value "
        "reads them"
    )
    return [("classes", line)]


def _texts_among_numbers(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    texts = [label for label in counts if number(label) is None]
    rows = sum(counts[label] for label in texts)
    if not texts or len(texts) == len(counts) or rows > FEW_RECORDS * sum(counts.values()):
        return []
    what = f"{rows:,} {'row has' if rows == 1 else 'rows have'} text"
    line = f"{what} where {name!r} has numbers elsewhere; first: {_located(texts[0], places)}"
    return [("classes", line)]


def limits(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the bounds beyond which values are outliers; None if the quartiles are equal."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FAR * (high - low)
    return (float(low - reach), float(high + reach)) if reach > 0 else None


def of_values(name: str, values: NDArray[np.float64]) -> str:
    """Return a warning about outliers, or ""."""
    bounds = limits(values)
    if bounds is None:
        return ""
    beyond = values[(values < bounds[0]) | (values > bounds[1])]
    if not len(beyond):
        return ""
    outliers = f"{len(beyond):,} {'value' if len(beyond) == 1 else 'values'} of {name!r}"
    verb = "lies" if len(beyond) == 1 else "lie"
    return (
        f"{outliers} {verb} more than {FAR} interquartile ranges from the others; "
        f"first: {beyond[0]:.10g}"
    )


FORMAT = 1  # version of the files


class TargetFile(TypedDict):
    """STEM.targets.json, the description of STEM.targets.bin."""

    task: str
    shape: Annotated[list[Count], Field(min_length=1, max_length=2)]
    blake2b: str


class TargetWriter(ArrayWriter):
    """Write the targets of the shard with stem `path`."""

    def __init__(self, path: Path, targets: Targets, state: State | None = None) -> None:
        super().__init__(path, _files(Path(path)), state)
        self.targets, self.count = targets, int(state["count"]) if state else 0

    def state(self) -> dict[str, Any]:
        return super().state() | {"count": self.count}

    def add(
        self,
        cells: Sequence[tuple[str, ...]],
        lengths: Array,
        place: Callable[[int], str] | None,
        markers: int = 2,
    ) -> None:
        """Append the targets of records with the given numbers of tokens, without markers.

        `markers` is 2 for `<S>` and `<E>` around each record, 1 for `<S>` only.
        """
        values = self.targets.encode(cells)
        if self.targets.kind.aligned:
            values = self._insert_markers(cells, values, lengths, place, markers)
        self.write(values)

    def write(self, values: Array) -> None:
        """Append encoded targets."""
        self._write(0, values.astype(self.targets.kind.dtype))
        self.count += len(values)

    def _insert_markers(
        self,
        cells: Sequence[tuple[str, ...]],
        values: Array,
        lengths: Array,
        place: Callable[[int], str] | None,
        markers: int,
    ) -> Array:
        """Insert -1 at the markers around every record, after checking the lengths."""
        n_labels = np.array([len(row[0]) for row in cells])
        different = np.flatnonzero(n_labels != lengths)
        if len(different):
            i = int(different[0])
            where = f"{place(i)}: " if place else ""
            raise UserError(
                f"{where}{n_labels[i]:,} labels of positions, but {lengths[i]:,} tokens; choose "
                "tokens of one symbol each: characters, nucleotides, residues; of points, all "
                "(input.n_groups=0)"
            )
        return marked(values, n_labels, markers)

    def close(self) -> None:
        summary = {
            "format": FORMAT,
            "task": self.targets.task,
            "shape": [self.count, *self.targets.kind.shape(self.targets)],
            "blake2b": self._columns[0].digest.hexdigest(),
        }
        self._publish(json.dumps(summary) + "\n")


def marked(values: Array, lengths: Array, markers: int = 2) -> Array:
    """Insert -1 for the markers around records of the given lengths: two each, or `<S>` only."""
    with_markers = np.full(len(values) + markers * len(lengths), -1, np.dtype("<i2"))
    inside = np.ones(len(with_markers), bool)
    ends = np.cumsum(lengths + markers)
    inside[ends - lengths - markers] = False
    if markers == 2:
        inside[ends - 1] = False
    with_markers[inside] = values
    return with_markers


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".targets.bin"), path.with_name(path.name + ".targets.json")


def with_targets(shard: Shard, path: Path, *, verify: bool = False) -> Shard:
    """Return a shard with the targets stored under the stem `path`."""
    numbers, summary_file = _files(path)
    summary = read_json(summary_file, TargetFile)
    task, shape, checksum = summary["task"], summary["shape"], summary["blake2b"]
    kind = OUTPUT_KINDS.get(task)
    if kind is None or not kind.written:
        raise damaged(summary_file, f"unknown kind of targets {task!r}")
    dtype, expected = np.dtype(kind.dtype), shard.tokens if kind.aligned else shard.records
    width = shape[1:] or [1]
    if shape[:1] != [expected] or not 1 <= width[0] <= 100_000:
        raise damaged(summary_file, f"its shape must begin with {expected}, got {shape}")
    encoded = map_file(numbers, dtype, expected * width[0])
    if verify:
        verify_file(numbers, checksum)
    return replace(shard, targets=encoded.reshape(shape), aligned=kind.aligned)
