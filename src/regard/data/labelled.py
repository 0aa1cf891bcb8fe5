"""Labelled records: texts and their targets, as written in files.

A target is a cell of a table, a key of a FASTA header, the first word of a line, an entry of a
separate file of labels by FASTA id, or the name of a file or folder that contains one class. An
empty cell, or one listed in data.missing (`NA`), is a missing target. Spaces around cells are
removed. Targets stay texts here, except that numbers are converted to Python notation; `targets`
interprets them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.formats import (
    PLAIN_SUFFIXES,
    UTF8,
    SkippedRecords,
    detect,
    expand,
    extension,
    known_suffixes,
)
from regard.data.tables import (
    BATCH,
    ROW,
    Batch,
    BlankSeparated,
    Fasta,
    entries,
    fasta,
)
from regard.data.targets import (
    UNDECIDED,
    Cells,
    Notation,
    OutputKind,
    censored,
    notation_of,
    number,
)
from regard.data.text_files import Chunk, FileSet, WholeFiles, class_folders, lines_of, one_of
from regard.errors import UsageError, UserError
from regard.recipe import MISSING
from regard.registry import TABLES
from regard.tokenizers.tokenizer import PLAIN as AS_WRITTEN
from regard.tokenizers.tokenizer import Canonical

LABEL = "label"  # the default name of a target
SHOWN = 5  # classes listed
SAMPLE = 100_000  # rows that determine the notation of numbers
PLUS, MINUS = "+", "-"  # in a column with "+", "-" is not a missing value


@dataclass(frozen=True, slots=True)
class LabelledChunk(Chunk):
    """Consecutive labelled records; `sources` are the second texts of pairs."""

    names: Sequence[str] = ()  # location of each record, if not a line of the path

    def place(self, i: int) -> str:
        return self.names[i] if self.names else f"{self.path}:{self.lines[i]}"

    def keys(self, form: Canonical = AS_WRITTEN) -> Sequence[str]:
        """Return what identifies the records for duplicates, splits and leaks: their texts."""
        if not self.sources:
            return form.all(self.texts)
        both = zip(form.all(self.texts), form.all(self.sources), strict=True)
        return [f"{one}\t{two}" for one, two in both]


@dataclass(frozen=True, kw_only=True)
class ColumnSelection:
    """The columns to read as inputs, targets and additional information."""

    inputs: tuple[str, ...] = ("",)
    targets: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()  # such as the column of the split
    pattern: str = ""  # its first group is the label within the target cell
    labels: Path | None = None  # a file of targets by id
    classes: tuple[str, ...] = ()  # of the files, if each contains one class; () = their names
    missing: tuple[str, ...] = MISSING  # cells that mean a missing target
    per_line: bool = False  # whether each line of plain text is a record

    def __post_init__(self) -> None:
        if len(self.inputs) > 2:
            raise UsageError(f"data.input names one column or two, got {len(self.inputs)}")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageError(
                f"data.pattern = {self.pattern!r} is no regular expression: {error}"
            ) from None

    @property
    def columns(self) -> list[str]:
        return [*self.inputs, *self.targets, *self.asides]

    @property
    def flags(self) -> list[str]:
        """The options that select the columns."""
        flags = ["--input"] * len(self.inputs) + ["--target"] * len(self.targets)
        return flags + ["data.split or data.group"] * len(self.asides)


class LabelledFiles(FileSet):
    """Files as records with targets; `names` are those of the targets, in order.

    Records whose targets are not of the required kind count as damaged.
    """

    plannable = True

    def __init__(
        self,
        paths: Sequence[Path],
        asked: ColumnSelection,
        *,
        format: str = "auto",
        strict: bool = False,
        encoding: str = UTF8,
    ) -> None:
        plain = not (asked.targets or asked.labels or format == "labelled")
        self._folders = dict(class_folders([Path(path) for path in paths]) if plain else ())
        super().__init__(paths, format, strict, encoding)
        self.asked = asked
        self.format, self.why = (format, "as asked") if format != "auto" else self._detect_format()
        self.kind: OutputKind = UNDECIDED
        self.names = asked.targets or (LABEL,)
        self._labels_by_id: dict[str, tuple[str, ...]] = {}  # targets and asides
        self.classes: tuple[str, ...] = ()  # of the files, if each contains one class
        self.by_name = False  # whether targets are names of files or folders
        self.written_as: LabelledFiles = self  # files that determine notations and signs
        self._notations: list[Notation] | None = None
        self._signs: set[int] | None = None
        self._choose_layout()

    def _expanded(self) -> list[Path]:
        return list(self._folders) or super()._expanded()

    def _name(self, path: Path) -> str:
        if not self._folders:
            return super()._name(path)
        return f"{self._folders.get(path, '')}/{path.name}"

    def _detect_format(self) -> tuple[str, str]:
        """Return the format of the files and the reason.

        A file of plain text in a class folder is one record, unless data.per_line is set.
        """
        if not self._folders:
            format, why = detect(self.files, self.encoding)
        elif any(map(extension, self.files)):
            return detect(self.files, self.encoding)
        else:
            format, why = detect(self.files[:1], self.encoding)
            format = format if format == "fasta" else "files"
        if self.asked.per_line and format in ("text", "files"):
            return "lines", "a line is a record, as data.per_line says"
        return format, f"{len(self.files):,} files" if format == "files" else why

    @property
    def two_texts(self) -> bool:
        return len(self.asked.inputs) == 2

    def require(self, kind: OutputKind, train: FileSet) -> None:
        self.kind = kind
        self.written_as = train  # type: ignore[assignment]  # also a LabelledFiles

    @property
    def tells(self) -> bool:
        return self.format in TABLES

    @property
    def all_files(self) -> list[Path]:
        return self.files + ([self.asked.labels] if self.asked.labels else [])

    def _choose_layout(self) -> None:
        """Choose the layout: how texts, targets and asides are read."""
        selection, first = self.asked, self.files[0]
        if self.format == "text":
            raise UsageError(
                f"{first}: running text ({self.why}) has no records to label; "
                "if each line is one: --set data.format=lines"
            )
        if selection.labels is not None:
            self._load_labels(selection.labels)
        elif self.format == "labelled":
            self._layout = self._label_and_text(("2", "1"))
        elif not selection.targets:
            self._use_file_names()
        elif self.format in TABLES:
            self._layout = self._table(first, selection.columns, selection.flags)
        elif self.format == "fasta":
            self._refuse_input()
            names = (*selection.targets, *selection.asides)
            self._layout = fasta(first, names, self.encoding, "--target, data.split or data.group")
        elif self.format == "smi" and selection.targets == ("2",):
            self._layout = self._label_and_text(("1", "2"))
        else:
            raise UsageError(
                f"--target {selection.targets[0]} names a column, but {first} is read as "
                f"{self.format} ({self.why}); --set data.format={one_of([*TABLES, 'fasta'])} has "
                "them, data.format=labelled is a label and a text a line"
            )
        if self._layout:
            self.why = f"{self.why}, {self._layout.why}"

    def _table(self, path: Path, columns: Sequence[str], flags: Sequence[str]) -> Any:
        format = self.format if path == self.files[0] else detect([path], self.encoding)[0]
        texts = len(self.asked.inputs)
        return TABLES[format].layout(
            path, columns, flags=flags, texts=texts, encoding=self.encoding
        )

    def _label_and_text(self, names: tuple[str, str]) -> BlankSeparated:
        if self.asked.asides:
            raise UsageError(
                f"{self.files[0]}: {self.format} has no column {self.asked.asides[0]!r} "
                "(data.split or data.group)"
            )
        self._refuse_input()
        return BlankSeparated(names, self.encoding)

    def _refuse_input(self) -> None:
        if any(self.asked.inputs):
            raise UsageError(
                f"--input {self.asked.inputs[0]} names a column, but {self.files[0]} is read as "
                f"{self.format} ({self.why}), which has one text alone"
            )

    def _use_file_names(self) -> None:
        """Read a file or folder for every class."""
        if len(self.files) < 2 and not self.asked.classes:
            raise UsageError(
                f"{self.files[0]}: where are the labels? say --target COLUMN (data.target), or "
                "give a file for every class, or data.labels, or data.format=labelled"
            )
        self.by_name = True
        self.classes = self.asked.classes or tuple(map(class_of, self.files))
        if self._folders:
            self.classes = tuple(self._folders.values())
        if self.format in TABLES:
            self._layout = self._table(self.files[0], self.asked.columns, self.asked.flags)
        elif self.format == "fasta":
            self._refuse_input()
            self._layout = fasta(self.files[0], self.asked.asides, self.encoding, "data.split")
        elif self.format == "smi":
            self._layout = BlankSeparated(("1",), self.encoding)
        elif self.format == "files":
            self._refuse_input()
            self._layout = WholeFiles(self.encoding)
        elif any((*self.asked.inputs, *self.asked.asides)):
            self._refuse_input()
            raise UsageError(f"{self.files[0]}: lines have no column {self.asked.asides[0]!r}")
        if self._folders:
            counts = sorted(Counter(self.classes).items())
            shown = ", ".join(f"{name} ({n:,} files)" for name, n in counts[:SHOWN])
            self.why += f", a folder for every class: {shown}" + ", …" * (len(counts) > SHOWN)
        else:
            pairs = zip(self.files, self.classes, strict=True)
            shown = ", ".join(f"{path.name} = {name}" for path, name in pairs)
            self.why += f", a file for every class: {shown}"

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        """Return the classes of other files, by name or by order."""
        return classes_like(files, self.class_files)[0] if self.class_files else ()

    @property
    def class_files(self) -> tuple[str, ...]:
        """The class of each file if each contains one; empty for class folders."""
        return () if self._folders else self.classes

    def _load_labels(self, path: Path) -> None:
        """Load a file of targets by id into memory."""
        if self.format != "fasta":
            raise UsageError(f"data.labels goes by the ids of FASTA; the data is {self.format}")
        self._refuse_input()
        selection, skipped = self.asked, SkippedRecords(self.strict)
        expand([path])  # raises an error if it cannot be read
        format = detect([path], self.encoding)[0]
        if format == "fasta":
            batches = _by_id(fasta(path, selection.asides, self.encoding), path, skipped)
        elif format in TABLES:
            columns = ["1", *(selection.targets or ("2",)), *selection.asides]
            flags = ["the id", *["--target"] * len(selection.targets or ("2",)), "data.split"]
            layout: Any = self._table(path, columns, [*flags, *["data.group"] * len(columns)])
            batches = layout.batches(path, skipped)
        else:
            raise UsageError(
                f"{path}: data.labels is a table of ids and targets ({one_of(TABLES)}) or FASTA of "
                f"targets, got {format}"
            )
        for columns_read, lines in batches:
            for row, line in zip(zip(*columns_read, strict=True), lines, strict=True):
                id, cells = row[0].strip(), tuple(cell.strip() for cell in row[1:])
                if self._labels_by_id.setdefault(id, cells) != cells:
                    raise UserError(f"{path}:{line}: the id {id!r} has two targets in this file")
        if skipped.problems:
            raise UserError(
                f"{skipped.skipped:,} records are damaged; first: {skipped.problems[0]}"
            )
        self._layout = Fasta(("id",), f"each sequence, its target by id from {path}", self.encoding)

    def records(self) -> Iterator[Chunk]:
        yield from self.examples()

    def examples(self) -> Iterator[LabelledChunk]:
        """Yield the valid records in order, in chunks of a few megabytes."""
        read = self._batch_files if self.format == "files" else self._read_files
        yield from self._new_pass(read)

    def _read_files(self, skipped: SkippedRecords) -> Iterator[LabelledChunk]:
        for i, path in enumerate(self.files):
            for columns, lines in self._batches(i, path, skipped):
                yield self._chunk(path, columns, lines, skipped)

    def _batch_files(self, skipped: SkippedRecords) -> Iterator[LabelledChunk]:
        """Yield chunks of files that are one record each."""
        rows: list[Sequence[str]] = []
        names: list[str] = []
        size = 0
        for i, path in enumerate(self.files):
            for columns, _ in self._batches(i, path, skipped):
                rows += zip(*columns, strict=True)
                names.append(str(path))
                size += len(columns[0][0]) + ROW
            if rows and (size > BATCH or i == len(self.files) - 1):
                columns = [list(column) for column in zip(*rows, strict=True)]
                yield self._chunk(path, columns, range(len(rows)), skipped, names)
                rows, names, size = [], [], 0

    def _batches(self, file: int, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        """Yield columns of texts, then targets, then asides."""
        n_texts = len(self.asked.inputs)
        batches: Iterator[Any] = (
            self._layout.batches(path, skipped)
            if self._layout
            else (([t], n) for t, n in lines_of(path, skipped, self.encoding))
        )
        for columns, lines in batches:
            if self.classes:
                target = [self.classes[file]] * len(lines)
                yield [*columns[:n_texts], target, *columns[n_texts:]], lines
            elif self.asked.labels is not None:
                yield self._look_up(path, columns, lines, skipped)
            else:
                yield columns, lines

    def _look_up(
        self, path: Path, columns: list[list[str]], lines: Sequence[int], skipped: SkippedRecords
    ) -> Batch:
        rows, matched_lines = [], []
        for text, id, line in zip(*columns, lines, strict=True):
            if id in self._labels_by_id:
                rows.append((text, *self._labels_by_id[id]))
                matched_lines.append(line)
            else:
                skipped.damaged(f"{path}:{line}: the id {id!r} is not in {self.asked.labels}")
        width = 1 + len(next(iter(self._labels_by_id.values()), ()))
        return [list(column) for column in zip(*rows, strict=True)] or [[]] * width, matched_lines

    def _chunk(
        self,
        path: Path,
        columns: list[list[str]],
        lines: Sequence[int],
        skipped: SkippedRecords,
        names: Sequence[str] = (),
    ) -> LabelledChunk:
        """Return the valid records of a batch; `names` are their locations, if these are not lines
        of the path.
        """
        inputs, last = len(self.asked.inputs), len(self.asked.inputs) + len(self.names)
        valid: list[tuple[tuple[str, ...], int]] = []
        locations: list[str] = []
        for i, (row, line) in enumerate(zip(zip(*columns, strict=True), lines, strict=True)):
            location = names[i] if names else f"{path}:{line}"
            cells = tuple(cell.strip() for cell in row)
            texts, written = cells[:inputs], cells[inputs:last]
            if not any((*texts, *written)) or (self.classes and not any(texts)):
                skipped.blank += 1
                continue
            try:
                if not all(texts):
                    column = self.asked.inputs[texts.index("")]
                    raise ValueError(f"{repr(column) if column else 'the text'} is empty")
                targets = self.targets_of(written, location, skipped)
                if targets is None:
                    continue
                self.kind.check(texts[0], targets, self.names)
            except ValueError as error:
                skipped.damaged(f"{location}: {error}")
                continue
            if written != row[inputs:last]:
                skipped.trimmed(written[0], f"{row[inputs][:40]!r} at {location}")
            valid.append(((*texts, *targets, *cells[last:]), line))
            locations += names[i : i + 1]
        rows = [row for row, _ in valid]
        return LabelledChunk(
            path,
            [row[0] for row in rows],
            [line for _, line in valid],
            [row[1] for row in rows] if inputs == 2 else (),
            targets=[row[inputs:last] for row in rows],
            asides=[row[last:] for row in rows] if self.asked.asides else (),
            names=locations,
        )

    def targets_of(self, cells: Cells, location: str, skipped: SkippedRecords) -> Cells | None:
        """Return the targets of a row, or None if it has none; then the row is skipped.

        Raises a ValueError if a cell does not match data.pattern.
        """
        targets = tuple(
            self._drop_missing(i, self._label(self._drop_missing(i, cell)))
            for i, cell in enumerate(cells)
        )
        if not any(targets):
            names = " or ".join(map(repr, self.names[:3])) + " …" * (len(self.names) > 3)
            missing = next((cell for cell in cells if cell), "")
            why = f" has {missing[:40]!r}, which data.missing lists" if missing else ""
            skipped.leave(f"no {names} value", location + why)
            return None
        return (
            self._normalize_numbers(targets, location, skipped)
            if not self.kind.categorical
            else targets
        )

    def _drop_missing(self, i: int, cell: str) -> str:
        """Return a cell, or "" if it means that target i is missing."""
        if cell not in self.asked.missing or self.by_name:
            return cell
        return cell if cell == MINUS and i in self.written_as.signs else ""

    def _normalize_numbers(
        self, cells: Cells, location: str, skipped: SkippedRecords
    ) -> Cells | None:
        """Return numbers in Python notation; None if one is a text or a bound."""
        numbers = []
        for name, cell, notation in zip(self.names, cells, self.written_as.notations, strict=True):
            normalized = notation.spell(cell) if cell else ""
            if normalized is None:
                if skipped.strict:
                    self.kind.check("", (cell,), (name,))
                bound = f"a censored {name!r} value (a bound, not a number)"
                text = f"text instead of a number in column {name!r}"
                example = f"{location} has {cell[:40]!r}"
                skipped.leave(bound if censored(cell) else text, example)
                return None
            if normalized != cell and name not in skipped.notes:
                skipped.notes[name] = (
                    f"column {name!r} is written with {notation.words}: {cell[:40]!r} "
                    f"({location}) was read as {number(normalized):.10g}"
                )
            numbers.append(normalized)
        return tuple(numbers)

    def _written(self) -> Iterator[Cells]:
        """Yield the targets of every row as they are written."""
        inputs, last = len(self.asked.inputs), len(self.asked.inputs) + len(self.names)
        for i, path in enumerate(self.files):
            for columns, _ in self._batches(i, path, SkippedRecords()):
                for row in zip(*columns[inputs:last], strict=True):
                    yield tuple(cell.strip() for cell in row)

    @property
    def signs(self) -> set[int]:
        """The indices of targets that are signs: a column with "+" may also have "-"."""
        if self._signs is None:
            rows = self._written()
            self._signs, width = set(), len(self.names)
            while len(self._signs) < width and (row := next(rows, None)) is not None:
                self._signs.update(i for i, cell in enumerate(row) if cell == PLUS)
        return self._signs

    @property
    def notations(self) -> list[Notation]:
        """The notation of the numbers of each target."""
        if self._notations is None:
            rows = list(islice(self._written(), SAMPLE))
            commas = getattr(self._layout, "delimiter", "") == ";"
            columns = zip(*rows, strict=True) if rows else [[] for _ in self.names]
            self._notations = [notation_of(column, commas=commas) for column in columns]
        return self._notations

    def _label(self, cell: str) -> str:
        """Return the part of a target cell that is the label."""
        if not cell or not self.asked.pattern:
            return cell
        match = re.search(self.asked.pattern, cell)
        if match is None:
            raise ValueError(f"{cell[:40]!r} does not match data.pattern {self.asked.pattern!r}")
        return (match.group(1) or "") if match.re.groups else match.group()


def _by_id(layout: Fasta, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
    """Yield ids, the targets in the place of sequences, and asides of a FASTA file."""
    for entry in entries(path, skipped, layout.encoding):
        yield [[cell] for cell in (entry.id, entry.text, *layout.cells(entry))], [entry.line]


def class_of(path: Path) -> str:
    """Return the class of a file: its name without known extensions."""
    name = path.name.rpartition("/")[2].removesuffix(".gz")
    stem, dot, ending = name.rpartition(".")
    return stem if dot and f".{ending.lower()}" in (*known_suffixes(), *PLAIN_SUFFIXES) else name


def classes_like(files: Sequence[Path], classes: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the classes of files that contain one class each, and how they were determined.

    They are the names of the files or, if those are no known classes, `classes` in this order.
    """
    expanded = expand(files)
    names = tuple(map(class_of, expanded))
    if set(names) <= set(classes):
        return names, "by the names of the files"
    if expanded == list(files) and len(expanded) == len(classes):
        pairs = zip(expanded, classes, strict=True)
        shown = ", ".join(f"{path.name} = {name}" for path, name in pairs)
        return tuple(classes), f"by the order of the files: {shown}"
    raise UsageError(
        f"which classes do {', '.join(path.name for path in expanded[:3])} hold? give one file "
        f"for each of {', '.join(classes)}, named so or in this order; a table needs --target"
    )


def columns_of(names: str) -> tuple[str, ...]:
    """Return the columns in a comma-separated list."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
