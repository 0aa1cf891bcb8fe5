"""Labelled records: texts and what is asked of each, as the files spell it.

A target is a cell of a table, a key of a FASTA header, the first word of a line, an entry of a file
of labels beside FASTA, or the name of the file where there is a file for every class. Several
columns are several targets, and an empty cell among them is a gap, as is one that says so (`NA`).
Blanks around cells are dropped. What the targets mean is for `targets` to say; here they stay
texts, but that numbers are spelled as Python does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.class_folders import WholeFiles, class_folders
from regard.data.formats import (
    EXTENSIONS,
    PLAIN_SUFFIXES,
    UTF8,
    SkippedRecords,
    detect,
    expand,
    extension,
)
from regard.data.readers import TABLES, Chunk, Fasta, FileSet, entries, fasta, lines_of, objects
from regard.data.tables import BATCH, ROW, Batch, BlankSeparated, TableReader, table
from regard.data.targets import (
    UNDECIDED,
    Cells,
    Notation,
    OutputKind,
    censored,
    notation_of,
    number,
)
from regard.errors import UsageError, UserError
from regard.recipe import MISSING
from regard.tokenizers.tokenizer import PLAIN as AS_WRITTEN
from regard.tokenizers.tokenizer import Canonical

LABEL = "label"  # the name of a target that no column names
SHOWN = 5  # classes named
SAMPLE = 100_000  # rows looked at to tell how numbers are written
PLUS, MINUS = "+", "-"  # where a column has the one, the other is no missing value


@dataclass(frozen=True, slots=True)
class LabelledChunk(Chunk):
    """Some consecutive records and, of each, the targets ("" is a gap) and what else was read.

    `sources` are the second texts, where records are pairs of them.
    """

    targets: Sequence[tuple[str, ...]] = ()
    asides: Sequence[tuple[str, ...]] = ()
    names: Sequence[str] = ()  # where each stands, if not on a line of the path

    def place(self, i: int) -> str:
        """Where record i stands."""
        return self.names[i] if self.names else f"{self.path}:{self.lines[i]}"

    def keys(self, form: Canonical = AS_WRITTEN) -> Sequence[str]:
        """What copies, splits and leaks go by: the texts, both of them where there are two."""
        if not self.sources:
            return form.all(self.texts)
        both = zip(form.all(self.texts), form.all(self.sources), strict=True)
        return [f"{one}\t{two}" for one, two in both]


@dataclass(frozen=True, kw_only=True)
class ColumnSelection:
    """What to read: the columns of the text or two texts, of the targets, and of what else."""

    inputs: tuple[str, ...] = ("",)
    targets: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()  # such as the column that says the side
    pattern: str = ""  # its first group is the label in what the target's column holds
    labels: Path | None = None  # a file of targets by id
    classes: tuple[str, ...] = ()  # of the files, where each holds a class; () = their names
    missing: tuple[str, ...] = MISSING  # cells that say that there is no target
    per_line: bool = False  # of plain texts: is each line a record, whatever they look like?

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
        """All of them."""
        return [*self.inputs, *self.targets, *self.asides]

    @property
    def flags(self) -> list[str]:
        """The options that ask for them."""
        flags = ["--input"] * len(self.inputs) + ["--target"] * len(self.targets)
        return flags + ["data.split or data.group"] * len(self.asides)


class LabelledFiles(FileSet):
    """Files as records with targets; `names` are those of the targets, in order.

    `check` says what is wrong with a record's targets; such records are damaged.
    """

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
        self.format, self.why = (format, "as asked") if format != "auto" else self._detected()
        self.kind: OutputKind = UNDECIDED  # targets that are no such ones are damage
        self.names = asked.targets or (LABEL,)
        self._beside: dict[str, tuple[str, ...]] = {}  # targets and asides by id
        self.classes: tuple[str, ...] = ()  # of the files, where each holds one
        self.by_name = False  # are targets the names of files or folders?
        self.written_as: LabelledFiles = self  # whose targets are written as these are
        self._notations: list[Notation] | None = None  # of the numbers of each target
        self._signs: set[int] | None = None  # targets that are plus or minus
        self._settle()

    def _expanded(self) -> list[Path]:
        """See Files: those of folders of classes, where there are such."""
        return list(self._folders) or super()._expanded()

    def _name(self, path: Path) -> str:
        """See Files."""
        return (
            f"{self._folders.get(path, '')}/{path.name}" if self._folders else super()._name(path)
        )

    def _detected(self) -> tuple[str, str]:
        """The format of the files, and why; in folders of classes, a file of plain text is one
        record unless each line is to be one.
        """
        if not self._folders:
            found, why = detect(self.files, self.encoding)
        elif any(map(extension, self.files)):
            return detect(self.files, self.encoding)
        else:
            found, why = detect(self.files[:1], self.encoding)
            found = "files" if found in ("lines", "text") else found
        if self.asked.per_line and found in ("text", "files"):
            return "lines", "a line is a record, as data.per_line says"
        return found, f"{len(self.files):,} files" if found == "files" else why

    @property
    def two_texts(self) -> bool:
        """Are records pairs of texts?"""
        return len(self.asked.inputs) == 2

    @property
    def tells(self) -> bool:
        """May targets be texts of their own?"""
        return self.format in TABLES

    @property
    def all_files(self) -> list[Path]:
        """The files of the records, and that of their targets."""
        return self.files + ([self.asked.labels] if self.asked.labels else [])

    def _settle(self) -> None:
        """Choose the layout: where text, targets and asides stand."""
        asked, first = self.asked, self.files[0]
        if self.format == "text":
            raise UsageError(
                f"{first}: running text ({self.why}) has no records to label; "
                "if each line is one: --set data.format=lines"
            )
        if asked.labels is not None:
            self._read_labels(asked.labels)
        elif self.format == "labelled":
            self._layout = self._halves(("2", "1"))
        elif not asked.targets:
            self._read_classes()
        elif self.format in TABLES:
            self._layout = self._table(first, asked.columns, asked.flags)
        elif self.format == "fasta":
            self._refuse_input()
            names = (*asked.targets, *asked.asides)
            self._layout = fasta(first, names, self.encoding, "--target, data.split or data.group")
        elif self.format == "smi" and asked.targets == ("2",):
            self._layout = self._halves(("1", "2"))
        else:
            raise UsageError(
                f"--target {asked.targets[0]} names a column, but {first} is read as {self.format} "
                f"({self.why}); --set data.format=csv, tsv, jsonl or fasta has them, "
                "data.format=labelled is a label and a text a line"
            )
        if self._layout:
            self.why = f"{self.why}, {self._layout.why}"

    def _table(self, path: Path, columns: Sequence[str], flags: Sequence[str]) -> Any:
        format = extension(path) if path != self.files[0] else self.format
        if format == "jsonl":
            texts = len(self.asked.inputs)
            return objects(path, columns, texts=texts, encoding=self.encoding)
        return table(path, format, columns, flags=flags, encoding=self.encoding)

    def _halves(self, names: tuple[str, str]) -> BlankSeparated:
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

    def _read_classes(self) -> None:
        """A file for every class."""
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
            columns = [*self.asked.inputs, *self.asked.asides]
            flags = ["--input", "--input"][: len(self.asked.inputs)]
            flags += ["data.split or data.group"] * len(self.asked.asides)
            self._layout = self._table(self.files[0], columns, flags)
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
            return
        shown = ", ".join(f"{name} = {c}" for name, c in self._files_by_class())
        self.why += f", a file for every class: {shown}"

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        """The classes of other files, each of which holds one: by name, or else in this order."""
        return classes_like(files, self.class_files)[0] if self.class_files else ()

    @property
    def class_files(self) -> tuple[str, ...]:
        """The classes of the files, in their order, where each holds one; names of folders are
        classes wherever they are.
        """
        return () if self._folders else self.classes

    def _files_by_class(self) -> list[tuple[str, str]]:
        return [(path.name, c) for path, c in zip(self.files, self.classes, strict=True)]

    def _read_labels(self, path: Path) -> None:
        """A file of targets by id, held in memory."""
        if self.format != "fasta":
            raise UsageError(f"data.labels goes by the ids of FASTA; the data is {self.format}")
        self._refuse_input()
        asked, tally = self.asked, SkippedRecords(self.strict)
        expand([path])  # says what is wrong with it
        kind = extension(path) or detect([path], self.encoding)[0]
        if kind == "fasta":
            batches = _by_id(fasta(path, asked.asides, self.encoding), path, tally)
        elif kind in TABLES:
            columns = ["1", *(asked.targets or ("2",)), *asked.asides]
            flags = ["the id", *["--target"] * len(asked.targets or ("2",)), "data.split"]
            layout: Any = self._table(path, columns, [*flags, *["data.group"] * len(columns)])
            batches = layout.batches(path, tally)
        else:
            raise UsageError(
                f"{path}: data.labels is a table of ids and targets (csv, tsv, jsonl) or FASTA of "
                f"targets, got {kind}"
            )
        for columns_read, lines in batches:
            for row, line in zip(zip(*columns_read, strict=True), lines, strict=True):
                id, cells = row[0].strip(), tuple(cell.strip() for cell in row[1:])
                if self._beside.setdefault(id, cells) != cells:
                    raise UserError(f"{path}:{line}: the id {id!r} has two targets in this file")
        if tally.problems:
            raise UserError(f"{tally.skipped:,} records are damaged; first: {tally.problems[0]}")
        self._layout = Fasta(("id",), f"each sequence, its target by id from {path}", self.encoding)

    def records(self) -> Iterator[Chunk]:
        """Every whole record in order, a few megabytes at a time; an error if there is none."""
        yield from self.examples()

    def examples(self) -> Iterator[LabelledChunk]:
        """The same, as what they are."""
        tally = self._tally = SkippedRecords(self.strict)
        empty = True
        for chunk in self._together(tally) if self.format == "files" else self._each(tally):
            if chunk.texts:
                empty = False
                yield chunk
        if empty:
            raise self._nothing(tally)

    def _each(self, tally: SkippedRecords) -> Iterator[LabelledChunk]:
        """The records of every file."""
        for i, path in enumerate(self.files):
            for columns, lines in self._batches(i, path, tally):
                yield self._chunk(path, columns, lines, tally)

    def _together(self, tally: SkippedRecords) -> Iterator[LabelledChunk]:
        """The records of files that are one each, many at a time."""
        rows: list[Sequence[str]] = []
        names: list[str] = []
        size = 0
        for i, path in enumerate(self.files):
            for columns, _ in self._batches(i, path, tally):
                rows += zip(*columns, strict=True)
                names.append(str(path))
                size += len(columns[0][0]) + ROW
            if rows and (size > BATCH or i == len(self.files) - 1):
                columns = [list(column) for column in zip(*rows, strict=True)]
                yield self._chunk(path, columns, range(len(rows)), tally, names)
                rows, names, size = [], [], 0

    def _batches(self, file: int, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
        """Columns of texts, then targets, then asides."""
        texts = len(self.asked.inputs)
        stream: Iterator[Any] = (
            self._layout.batches(path, tally)
            if self._layout
            else (([t], n) for t, n in lines_of(path, tally, self.encoding))
        )
        for columns, lines in stream:
            if self.classes:
                target = [self.classes[file]] * len(lines)
                yield [*columns[:texts], target, *columns[texts:]], lines
            elif self.asked.labels is not None:
                yield self._looked_up(path, columns, lines, tally)
            else:
                yield columns, lines

    def _looked_up(
        self, path: Path, columns: list[list[str]], lines: Sequence[int], tally: SkippedRecords
    ) -> Batch:
        rows, kept = [], []
        for text, id, line in zip(*columns, lines, strict=True):
            if id in self._beside:
                rows.append((text, *self._beside[id]))
                kept.append(line)
            else:
                tally.damaged(f"{path}:{line}: the id {id!r} is not in {self.asked.labels}")
        width = 1 + len(next(iter(self._beside.values()), ()))
        return [list(column) for column in zip(*rows, strict=True)] or [[]] * width, kept

    def _chunk(
        self,
        path: Path,
        columns: list[list[str]],
        lines: Sequence[int],
        tally: SkippedRecords,
        names: Sequence[str] = (),
    ) -> LabelledChunk:
        """The records of a batch that are whole; the others go to `tally`. `names` say where each
        stands, if that is no line of the path.
        """
        inputs, last = len(self.asked.inputs), len(self.asked.inputs) + len(self.names)
        kept: list[tuple[tuple[str, ...], int]] = []
        found: list[str] = []
        for i, (row, line) in enumerate(zip(zip(*columns, strict=True), lines, strict=True)):
            place = names[i] if names else f"{path}:{line}"
            cells = tuple(cell.strip() for cell in row)
            texts, written = cells[:inputs], cells[inputs:last]
            if not any((*texts, *written)) or (self.classes and not any(texts)):
                tally.blank += 1
                continue
            try:
                if not all(texts):
                    raise ValueError(f"{self._input(texts.index(''))} is empty")
                targets = self.targets_of(written, place, tally)
                if targets is None:
                    continue
                self.kind.check(texts[0], targets, self.names)
            except ValueError as error:
                tally.damaged(f"{place}: {error}")
                continue
            if written != row[inputs:last]:
                tally.trimmed(written[0], f"{row[inputs][:40]!r} at {place}")
            kept.append(((*texts, *targets, *cells[last:]), line))
            found += names[i : i + 1]
        rows = [row for row, _ in kept]
        return LabelledChunk(
            path,
            [row[0] for row in rows],
            [line for _, line in kept],
            [row[1] for row in rows] if inputs == 2 else (),
            targets=[row[inputs:last] for row in rows],
            asides=[row[last:] for row in rows] if self.asked.asides else (),
            names=found,
        )

    def _input(self, place: int) -> str:
        return repr(self.asked.inputs[place]) if self.asked.inputs[place] else "the text"

    def targets_of(self, cells: Cells, place: str, tally: SkippedRecords) -> Cells | None:
        """The targets of a row from its cells; None where it can give none, which `tally` counts.

        ValueError where a cell does not have what data.pattern looks for.
        """
        found = tuple(
            self._known(i, self._label(self._known(i, cell))) for i, cell in enumerate(cells)
        )
        if not any(found):
            names = " or ".join(map(repr, self.names[:3])) + " …" * (len(self.names) > 3)
            said = next((cell for cell in cells if cell), "")
            why = f" has {said[:40]!r}, which data.missing lists" if said else ""
            tally.leave(f"no {names} value", place + why)
            return None
        return self._spelled(found, place, tally) if not self.kind.categorical else found

    def _known(self, i: int, cell: str) -> str:
        """A cell, or "" where it says that target i is missing."""
        if cell not in self.asked.missing or self.by_name:
            return cell
        return cell if cell == MINUS and i in self.written_as.signs else ""

    def _spelled(self, cells: Cells, place: str, tally: SkippedRecords) -> Cells | None:
        """Numbers as Python spells them; None where one is a text, or a bound."""
        found = []
        for name, cell, notation in zip(self.names, cells, self.written_as.notations, strict=True):
            spelled = notation.spell(cell) if cell else ""
            if spelled is None:
                if tally.strict:
                    self.kind.check("", (cell,), (name,))
                bound = f"a censored {name!r} value (a bound, not a number)"
                text = f"text instead of a number in column {name!r}"
                example = f"{place} has {cell[:40]!r}"
                tally.leave(bound if censored(cell) else text, example)
                return None
            if spelled != cell and name not in tally.notes:
                tally.notes[name] = (
                    f"column {name!r} is written with {notation.words}: {cell[:40]!r} "
                    f"({place}) was read as {number(spelled):.10g}"
                )
            found.append(spelled)
        return tuple(found)

    @property
    def spaced(self) -> dict[str, tuple[int, str]]:
        """Targets that had blanks around them in the latest pass: how many, and the first."""
        return self._tally.spaced

    def _written(self) -> Iterator[Cells]:
        """The targets of every row as they are written."""
        inputs, last = len(self.asked.inputs), len(self.asked.inputs) + len(self.names)
        for i, path in enumerate(self.files):
            for columns, _ in self._batches(i, path, SkippedRecords()):
                for row in zip(*columns[inputs:last], strict=True):
                    yield tuple(cell.strip() for cell in row)

    @property
    def signs(self) -> set[int]:
        """Which targets are signs: plus in some rows, so that minus is one too."""
        if self._signs is None:
            rows = self._written()
            self._signs, width = set(), len(self.names)
            while len(self._signs) < width and (row := next(rows, None)) is not None:
                self._signs.update(i for i, cell in enumerate(row) if cell == PLUS)
        return self._signs

    @property
    def notations(self) -> list[Notation]:
        """How the numbers of each target are written, as many rows say."""
        if self._notations is None:
            rows = list(islice(self._written(), SAMPLE))
            commas = isinstance(self._layout, TableReader) and self._layout.delimiter == ";"
            columns = zip(*rows, strict=True) if rows else [[] for _ in self.names]
            self._notations = [notation_of(column, commas=commas) for column in columns]
        return self._notations

    def _label(self, cell: str) -> str:
        """The part of a target's cell that is the label."""
        if not cell or not self.asked.pattern:
            return cell
        found = re.search(self.asked.pattern, cell)
        if found is None:
            raise ValueError(f"{cell[:40]!r} does not match data.pattern {self.asked.pattern!r}")
        return (found.group(1) or "") if found.re.groups else found.group()


def _by_id(layout: Fasta, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
    """FASTA of targets: ids, the targets that stand where sequences do, and asides."""
    for entry in entries(path, tally, layout.encoding):
        yield [[cell] for cell in (entry.id, entry.text, *layout.cells(entry))], [entry.line]


def class_of(path: Path) -> str:
    """The class that a file holds, by its name without the endings that are known."""
    name = path.name.rpartition("/")[2].removesuffix(".gz")
    stem, dot, ending = name.rpartition(".")
    return stem if dot and f".{ending.lower()}" in (*EXTENSIONS, *PLAIN_SUFFIXES) else name


def classes_like(files: Sequence[Path], classes: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The classes of files, each of which holds one, and how they were found: by the names of the
    files or, where those are others, by their order, which is that of `classes`.
    """
    found = expand(files)
    names = tuple(map(class_of, found))
    if set(names) <= set(classes):
        return names, "by the names of the files"
    if found == list(files) and len(found) == len(classes):
        pairs = zip(found, classes, strict=True)
        shown = ", ".join(f"{path.name} = {name}" for path, name in pairs)
        return tuple(classes), f"by the order of the files: {shown}"
    raise UsageError(
        f"which classes do {', '.join(path.name for path in found[:3])} hold? give one file "
        f"for each of {', '.join(classes)}, named so or in this order; a table needs --target"
    )


def columns_of(names: str) -> tuple[str, ...]:
    """Columns named in one text, with commas between them."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
