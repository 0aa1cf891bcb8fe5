"""The columns of a table that are read: found by their content where no option names them.

Numbers, classes, ids and splits are told apart here; the modalities recognize their own items. A
table with one input and one target needs no options. Where more readings are possible, the error
lists the columns with their kinds, and the options that choose.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.data.column_kinds import (
    PROSE,
    ROWS,
    SEQUENCE,
    SHORT_TEXT,
    CellSample,
    ColumnKind,
    recognize,
    text_sample,
)
from regard.data.formats import detect_table, extension
from regard.data.labelled import PLUS, columns_of
from regard.data.splits import columns_read
from regard.data.tables import USUAL, listed
from regard.data.targets import number, numeric
from regard.data.text_files import FileSet
from regard.errors import UsageError
from regard.recipe import MISSING, DataRecipe
from regard.registry import MODALITIES, TABLES, TASKS

MOST = 0.95  # share of the cells that must be of a kind
NUMBERS = 0.9  # share of numbers in a column of numbers
MAX_LETTERS = 20  # of labels of positions
MAX_CLASSES = 20  # whole numbers of up to so many different values are classes
FEW = 50  # different values that are classes, however long the texts
LONG_CLASS = 40  # characters of a class, on average, beyond which texts are prose
ID_NAMES = ("", "id", "index", "idx", "no", "nr", "num", "number", "row", "unnamed: 0")
SPLIT_VALUES = {"train", "training", "valid", "validation", "val", "dev", "test", "unused"}
UNIT = re.compile(
    r"[<>~≤≥]?=?\s*[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?\s*(?:[^\W\d_]|[%°])[\w%°/^·-]{0,9}"
)
UNIT_NAME = re.compile(r"^[\W\d_]*(?:[eE][+-]?\d+)?[\W_]*")  # what stands before it
UNIT_COLUMN = re.compile(r"(?:^|[\W_])units?$", re.IGNORECASE)  # its cells are units
MAX_UNITS = 5
EXAMPLES = 3
SHOWN = 12  # columns listed
WIDTH = 24  # characters of an example


POSITION_LABELS = ColumnKind(
    name="a label for each position", reason="as long as the texts, of few letters", is_target=True
)
NUMBERS_KIND = ColumnKind(name="numbers", reason="nearly all are numbers", is_target=True)


def kind_of(cells: Iterable[str], column: str = "") -> ColumnKind:
    """Return what the cells of a column of a table are."""
    stripped = [cell.strip() for cell in cells]
    missing = {"", *MISSING} - ({"-"} if PLUS in stripped else set())
    filled = [cell for cell in stripped if cell not in missing]
    counts = Counter(filled)
    if not filled:
        return ColumnKind(name="empty", reason="no cell has a value")
    if len(counts) == 1 and len(stripped) > 1:
        return ColumnKind(name="constant", reason=f"all are {filled[0][:WIDTH]!r}")
    if sum(map(numeric, filled)) >= NUMBERS * len(filled):
        return _numbers(recognize_date(filled, column), filled, counts, column)
    return (
        _split(counts)
        or _amounts(filled)
        or _texts(recognize(CellSample(cells=filled, column=column)), filled, counts, column)
    )


def recognize_date(filled: Sequence[str], column: str) -> ColumnKind | None:
    """Return the kind of numbers that are dates to a modality, such as 20240131; else None."""
    kind = recognize(CellSample(cells=filled, column=column))
    return kind if not kind.rank and not kind.modality else None


def _numbers(
    date: ColumnKind | None, filled: Sequence[str], counts: Counter[str], column: str
) -> ColumnKind:
    if date is not None:
        return date
    values = [value for cell in filled if (value := number(cell)) is not None]
    integers = len(values) == len(filled) and all(value == int(value) for value in values)
    distinct = len(counts) == len(filled) > 2
    rising = distinct and all(one < two for one, two in pairwise(values))
    if integers and distinct and (rising or column.strip().lower() in ID_NAMES):
        return ColumnKind(name="id", reason="whole numbers, all different")
    if integers and len(counts) <= MAX_CLASSES and 2 * len(counts) <= len(filled):
        return ColumnKind(
            name=f"{len(counts)} classes", reason="few whole numbers", is_target=True, is_class=True
        )
    return NUMBERS_KIND


def _split(counts: Counter[str]) -> ColumnKind | None:
    if {value.lower() for value in counts} <= SPLIT_VALUES:
        return ColumnKind(name="split", reason="names the parts of a split")
    return None


def _amounts(filled: Sequence[str]) -> ColumnKind | None:
    """Return the kind of numbers with units, such as 12 nM: as classes they would be too many."""
    with_unit = [cell for cell in filled if not numeric(cell) and UNIT.fullmatch(cell)]
    share = sum(map(numeric, filled)) + len(with_unit)
    units = Counter(UNIT_NAME.sub("", cell) for cell in with_unit)
    spread = len(set(filled)) > MAX_CLASSES or 2 * len(set(filled)) > len(filled)
    if share < NUMBERS * len(filled) or len(units) > MAX_UNITS or not spread:
        return None
    words = unit_words(units, len(filled) - len(with_unit))
    return ColumnKind(name=words, reason="digits, then a unit", has_units=True)


def unit_words(units: Mapping[str, int], plain: int = 0) -> str:
    """Return in words which units numbers have and, of several, in how many rows, and what to do
    about it; `plain` numbers have none.
    """
    if len(units) == 1 and not plain:
        return f"numbers with the unit {min(units)}, to be removed first"
    return (
        f"numbers in different units: {_counts(units, plain)}; convert them to one, and remove it"
    )


def _counts(units: Mapping[str, int], plain: int = 0) -> str:
    counts = [f"{unit} ({n:,} rows)" for unit, n in units.items()]
    return ", ".join([*counts, *([f"none ({plain:,} rows)"] if plain else [])])


def _texts(
    kind: ColumnKind, filled: Sequence[str], counts: Counter[str], column: str
) -> ColumnKind:
    """Return whether texts are classes, ids, or what the modalities recognize."""
    if not kind.rank:
        return kind
    average = sum(map(len, counts)) / len(counts)
    repeats = 2 * len(counts) <= len(filled)
    if repeats and (len(counts) <= (MAX_CLASSES if kind.rank == SEQUENCE else FEW)):
        return _classes(counts)
    if kind.rank not in (PROSE, SHORT_TEXT):
        return kind
    if repeats and average <= LONG_CLASS:
        return _classes(counts)
    coded = sum(any(map(str.isdigit, cell)) and " " not in cell for cell in filled)
    named = bool(column) and column.strip().lower() in ID_NAMES and kind.rank == SHORT_TEXT
    if len(counts) >= MOST * len(filled) > 2 and (coded >= NUMBERS * len(filled) or named):
        return ColumnKind(name="id", reason="short codes, all different")
    return kind


def _classes(counts: Counter[str]) -> ColumnKind:
    return ColumnKind(
        name=f"{len(counts):,} classes", reason="values repeat", is_target=True, is_class=True
    )


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table, what its cells are, and some of them."""

    name: str
    kind: ColumnKind
    examples: tuple[str, ...]
    lengths: tuple[int, ...] = ()  # of the cells
    letters: int = 0  # different ones
    common: Mapping[str, int] = field(default_factory=dict)  # the most frequent cells

    @property
    def words(self) -> str:
        """The name, the kind and some examples."""
        shown = (cell[:WIDTH] + "…" * (len(cell) > WIDTH) for cell in self.examples)
        return f"{self.name} ({self.kind.name}: {', '.join(shown)})"

    @property
    def named(self) -> str:
        """The name and the kind."""
        return f"{self.name!r} ({self.kind.name})"

    def labels_positions_of(self, other: Column) -> bool:
        """Return whether each cell has a letter, of a few, for each position of the other's."""
        pairs = [(a, b) for a, b in zip(self.lengths, other.lengths, strict=True) if a or b]
        same = sum(a == b for a, b in pairs)
        return (
            1 < self.letters <= min(MAX_LETTERS, other.letters)
            and same >= MOST * len(pairs) > 0
            and len(set(self.lengths)) > 2
        )


def columns_in(path: Path, format: str, encoding: str = "utf-8") -> list[Column]:
    """Return the columns of a table and their kinds, by the first rows."""
    sample: dict[str, list[str]] = TABLES[format].sample(path, encoding, rows=ROWS)
    return [_column(name, cells) for name, cells in sample.items()]


def _column(name: str, cells: Sequence[str]) -> Column:
    different = Counter(cell.strip() for cell in cells if cell.strip())
    return Column(
        name=name,
        kind=kind_of(cells, name),
        examples=tuple(different)[:EXAMPLES],
        lengths=tuple(len(cell.strip()) for cell in cells),
        letters=len(set("".join(different))),
        common=dict(different.most_common(MAX_UNITS)),
    )


def complete_data(data: DataRecipe, task: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the settings of [data] that the files decide, and lines that say so: the parts of a
    folder that is laid out in a known way, the columns that patterns stand for, and the input and
    the target of a table. `task` is "" if it is to be inferred.
    """
    settings, lines = _parts(data)
    if settings:
        return settings, lines
    paths = [Path(path) for path in data.train]
    format = table_format(data, paths)
    if not format:
        return {}, []
    target = expand_patterns(data.target, paths[0], format, data.encoding)
    settings = {} if target == data.target else {"target": target}
    lines = [f"--target {data.target} stands for {target}"] if settings else []
    if data.labels or any(cls.recognize(paths) for cls in MODALITIES.values()):
        return settings, lines
    columns = columns_in(paths[0], format, data.encoding)
    lines += unit_remarks(paths[0], columns, columns_of(target), task)
    if data.input:
        return settings, lines
    remark = TABLES[format].remark(paths[0], data.encoding)
    if (reading := _choose(data, target, task, columns, remark)) is None:
        return settings, lines
    settings["input"] = reading.input.name
    if reading.target is not None:
        settings["target"] = reading.target.name
        lines.append(f"{paths[0].name} → {reading.words}")
    return settings, lines


def unit_remarks(
    path: Path, columns: Sequence[Column], targets: Sequence[str], task: str
) -> list[str]:
    """Return a line for each column that names different units of numbers; a target that holds
    numbers with units is a UsageError, unless a task is given.
    """
    amounts = [one for one in columns if one.name in targets and one.kind.has_units]
    if amounts and not task:
        raise UsageError(
            f"{path}: column {amounts[0].name!r} holds {amounts[0].kind.name}; --task target "
            "predicts the cells as texts"
        )
    return [
        f"column {column.name!r} names different units: {_counts(column.common)}; if they are "
        "those of a target, convert it to one unit first"
        for column in columns
        if UNIT_COLUMN.search(column.name) and column.kind.is_class and len(column.common) > 1
    ]


def _parts(data: DataRecipe) -> tuple[dict[str, Any], list[str]]:
    """Return the parts of the one folder of a recipe, if a modality knows its layout."""
    folder = Path(data.train[0])
    if len(data.train) > 1 or not folder.is_dir() or data.format != "auto":
        return {}, []
    given = {"valid": data.valid, "test": data.test}
    for cls in MODALITIES.values():
        if parts := cls.parts(folder):
            files = {
                split: [str(path) for path in paths]
                for split, paths in parts.items()
                if not given.get(split)
            }
            words = ", ".join(f"{split} {_names(parts[split])}" for split in files)
            return files, [f"reading {folder.name}: {words}"]
    return {}, []


def _names(paths: Sequence[Path]) -> str:
    return " ".join(path.name for path in paths[:EXAMPLES]) + " …" * (len(paths) > EXAMPLES)


def table_format(data: DataRecipe, paths: Sequence[Path]) -> str:
    """Return the format of the files if they are tables, else ""."""
    if data.format != "auto":
        return data.format if data.format in TABLES else ""
    if any(path.is_dir() for path in paths):
        return ""
    return detect_table(paths, data.encoding)


def expand_patterns(target: str, path: Path, format: str, encoding: str = "utf-8") -> str:
    """Return a list of columns with its patterns (NR-*, y?, [ab]1) replaced by the matches."""
    wanted = columns_of(target)
    if not any(set(name) & set("*?[") for name in wanted):
        return target
    names = list(TABLES[format].sample(path, encoding, rows=1))
    expanded: dict[str, None] = {}
    for name in wanted:
        matches = [name] if name in names else [one for one in names if fnmatchcase(one, name)]
        if not matches:
            raise UsageError(
                f"{path}: no column matches {name!r} (--target); it has {listed(names)}"
            )
        expanded |= dict.fromkeys(matches)
    return ",".join(expanded)


@dataclass(frozen=True, kw_only=True)
class TableReading:
    """The columns of a table that are read, and those that are not."""

    input: Column
    target: Column | None = None
    others: Sequence[Column] = ()

    @property
    def words(self) -> str:
        """What is read, and how to read something else."""
        target = f", target {self.target.named}" if self.target else ""
        shown = ", ".join(column.named for column in self.others[:SHOWN])
        others = f"; others: {shown}" if shown else ""
        others += " …" * (len(self.others) > SHOWN)
        hint = "; --input and --target choose, --task next reads the input alone"
        return f"input {self.input.named}{target}{others}{hint}"


def _choose(
    data: DataRecipe, target: str, task: str, columns: Sequence[Column], remark: str = ""
) -> TableReading | None:
    """Return how a table is read where one reading is sensible, and None where nothing is open; an
    error lists the columns where more readings are possible, or gives the remark on the table where
    no column can be read.
    """
    taken = {*columns_of(target), *columns_read(data)}
    free = [column for column in columns if column.name not in taken]
    inputs = input_candidates(free)
    if len(columns) < 2 or (task and TASKS[task].roles.paired and not target):
        return None
    if target or (task and not TASKS[task].roles.labels):
        usual = [column for column in inputs if column.name.strip().lower() in USUAL]
        inputs = usual if len(inputs) > 1 and len(usual) == 1 else inputs
        return TableReading(input=inputs[0]) if len(inputs) == 1 else None
    targets = [column for column in free if column.kind.is_target]
    inputs, targets = _aligned(inputs, free) or (inputs, targets)
    if task:
        categorical = TASKS[task]().kind.categorical
        fitting = [one for one in targets if one.kind.is_class == categorical]
        targets = fitting or targets
    if len(inputs) == 1 and len(targets) == 1:
        others = [column for column in free if column not in (inputs[0], targets[0])]
        return TableReading(input=inputs[0], target=targets[0], others=others)
    if remark and not inputs:
        raise UsageError(f"{data.train[0]}: {remark}")
    amounts = any(column.kind.has_units for column in free)
    if len(inputs) == 1 and not targets and not task and not amounts:
        return TableReading(input=inputs[0])
    raise _ambiguous(Path(data.train[0]), inputs, targets, free)


def _aligned(
    inputs: Sequence[Column], columns: Sequence[Column]
) -> tuple[list[Column], list[Column]] | None:
    """Return an input and the column that has a label for each of its positions, if they are the
    only two of which this holds.
    """
    pairs = [
        (one, other)
        for one in inputs
        for other in columns
        if other is not one and other.labels_positions_of(one)
    ]
    if len(pairs) != 1:
        return None
    one, other = pairs[0]
    return [one], [replace(other, kind=POSITION_LABELS)]


def input_candidates(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that models may read: sequences before prose before short texts."""
    highest = max((column.kind.rank for column in columns), default=0)
    return [column for column in columns if highest and column.kind.rank == highest]


def column_like(data: DataRecipe, source: FileSet) -> str:
    """Return the column of a table whose cells are what the records of `source` are; of several,
    the one with the name that `source` reads. "" for files that are no tables.
    """
    paths = [Path(path) for path in data.train]
    format = table_format(data, paths)
    if not format:
        return ""
    columns, names = columns_in(paths[0], format, data.encoding), source.columns[:1]
    wanted = recognize(text_sample(source, names[0] if names else "")).tokenizer
    same = [column.name for column in columns if column.kind.tokenizer == wanted]
    named = [name for name in same or [one.name for one in columns] if name in names]
    if len(same) != 1 and not named:
        which = f"columns {listed(same)} hold" if same else "no column holds"
        raise UsageError(
            f"{paths[0]}: {which} texts like those of the training file ({wanted}); keep one "
            f"column of them; it has {listed([one.name for one in columns])}"
        )
    return (named or same)[0]


def _ambiguous(
    path: Path, inputs: Sequence[Column], targets: Sequence[Column], columns: Sequence[Column]
) -> UsageError:
    """Return the error that lists the candidates and the options that choose among them."""
    others = [column for column in columns if column not in (*inputs, *targets)]
    rows = (("input", inputs), ("target", targets), ("other", others))
    lines = [
        f"  {name}: {column.words}"
        for name, group in rows
        for column in (group[:SHOWN] if name != "other" else group[:EXAMPLES])
    ]
    more = sum(
        max(0, len(group) - (SHOWN if name != "other" else EXAMPLES)) for name, group in rows
    )
    lines += [f"  and {more} more columns"] if more else []
    examples = [_options(one, two) for one in inputs[:2] for two in targets[:1]]
    if len(inputs) == 2 and not targets:
        examples = [_options(*inputs), _options(*inputs[::-1])]
    if inputs and _are_alike(targets):
        examples.append(_several(inputs[0], targets))
    if inputs:
        examples.append(f"--task next --input {shlex.quote(inputs[0].name)}")
    if examples and not extension(path):  # the content says that it is a table
        examples.append("--set data.format=lines, which reads whole lines")
    which = "columns are read and predicted"
    if len(inputs) == 1:
        which = f"column is predicted from {inputs[0].name!r}" if targets else "column is predicted"
    return UsageError(
        f"{path}: which {which}? choose with --input and --target",
        details=[*lines, *([f"say {examples[0]}", *(f" or {one}" for one in examples[1:])])]
        if examples
        else lines,
    )


def _are_alike(targets: Sequence[Column]) -> bool:
    """Return whether targets can be predicted at once: all numbers, or all of two classes."""
    kinds = {column.kind.name for column in targets}
    return len(targets) > 1 and (kinds == {"2 classes"} or kinds == {NUMBERS_KIND.name})


def _several(input: Column, targets: Sequence[Column]) -> str:
    """Return the options that predict several targets at once."""
    names = [column.name for column in targets]
    for first in dict.fromkeys("".join(re.findall(r"^[^\W_]+[\W_]", name)) for name in names):
        if first and sum(name.startswith(first) for name in names) > 1:
            return f"--input {shlex.quote(input.name)} --target '{first}*'"
    return f"--input {shlex.quote(input.name)} --target {shlex.quote(','.join(names[:2]))}"


def _options(input: Column, target: Column) -> str:
    return f"--input {shlex.quote(input.name)} --target {shlex.quote(target.name)}"
