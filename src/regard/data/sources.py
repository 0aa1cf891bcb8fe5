"""The files of a recipe as a stream of chunks, each of them for training, validation or test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data import Progress, Roles
from regard.data.column_kinds import ROWS, CellSample, recognize
from regard.data.labelled import ColumnSelection, columns_of
from regard.data.splits import (
    Leak,
    SplitPlan,
    assign,
    canonical_form,
    columns_read,
    cut_points,
    distinct,
    leaks,
    overlap,
    refuse_plan,
)
from regard.data.targets import UNDECIDED, OutputKind
from regard.data.text_files import Chunk, FileSet
from regard.errors import UserError
from regard.recipe import SPLITS, DataRecipe, Recipe
from regard.registry import MODALITIES, TABLES

UNUSED = 3  # the split of training data beyond data.train_fraction: only vocabularies see it
UNUSED_SEED = 1  # of the hash that chooses it: fractions of one data set are nested

Log = Callable[[str], None]


@dataclass(frozen=True)
class ReadRequest:
    """What to read: files, in which format, which columns, and what a record consists of."""

    files: Sequence[Path]
    columns: ColumnSelection
    format: str = "auto"
    labelled: bool = False  # records have labels or values
    paired: bool = False  # records have a source and a target text
    strict: bool = False
    encoding: str = "utf-8"


@dataclass(frozen=True)
class SourceChunk:
    """Some records, or a stretch of one document of running text with its borders marked.

    Of pairs, `texts` are the targets and `sources` their sources; of labelled records, `targets`
    are as written, and `sources` the second texts where there are two.
    """

    split: int  # an index into SPLITS, or UNUSED
    texts: Sequence[Any]
    begins: bool = False
    ends: bool = False
    sources: Sequence[Any] = ()
    place: Callable[[int], str] | None = None  # file:line of record i
    targets: Sequence[tuple[str, ...]] = ()
    keys: Sequence[str] = ()  # what records are compared by, for copies and leaks


def recognize_modality(data: DataRecipe, roles: Roles) -> str:
    """Return the modality of the training files: of their containers, or of the items or paths in
    the cells of a table; else "text".
    """
    files = [Path(path) for path in data.train]
    classes = [MODALITIES[name] for name in MODALITIES]
    if data.format == "auto":
        for cls in classes:
            if cls.recognize(files):
                return str(cls.name)
    if data.format in ("auto", *TABLES) and data.target and (roles.labels or roles.labels_optional):
        for cls in classes:
            if cls.recognize_table(files, columns_of(data.target)):
                return str(cls.name)
    if data.format in ("auto", *TABLES) and data.target and (roles.labels or roles.paired):
        cells = _first_cells(data, files, paired=roles.paired)
        sample = CellSample(cells=[cell.strip() for cell in cells[:ROWS] if cell.strip()])
        modality = recognize(sample).modality if sample.cells else ""
        if modality and not MODALITIES[modality].reads_text:
            return modality
    return "text"


def _first_cells(data: DataRecipe, files: Sequence[Path], *, paired: bool) -> Sequence[str]:
    """Return some cells of the input column, if the files are tables with one."""
    request = _request(data, files, labelled=not paired, paired=paired)
    reader: FileSet = MODALITIES["text"]().read(request)
    if reader.format not in TABLES or reader.two_texts:
        return ()
    chunk = next(iter(reader.records()), None)
    return () if chunk is None else (chunk.sources or chunk.texts)


def _request(
    data: DataRecipe,
    files: Sequence[Path],
    *,
    labelled: bool,
    paired: bool,
    train: FileSet | None = None,
) -> ReadRequest:
    """Return the request for files of one split; held-out ones are read as training files are."""
    targets = columns_of(data.target)
    if train is not None and train.labels_apart:
        targets = ()  # the file of labels is for the training files: held-out ones have their own
    columns = ColumnSelection(
        inputs=columns_of(data.input) or ("",),
        targets=targets,
        asides=columns_read(data) if train is None and (labelled or paired) else (),
        pattern=data.pattern,
        labels=Path(data.labels) if data.labels else None,
        classes=train.like(files) if train is not None else (),
        missing=data.missing,
        per_line=data.per_line,
    )
    return ReadRequest(
        files=files,
        columns=columns,
        format=data.format if train is None else train.format,
        labelled=labelled,
        paired=paired,
        strict=data.strict,
        encoding=data.encoding,
    )


class DataSource:
    """The files of a recipe as chunks that know their split.

    Pairs are split, and searched for in training, by their sources: a source that training has seen
    leaks whatever its target. Items with captions are split as labelled records are.
    """

    def __init__(
        self,
        data: DataRecipe,
        roles: Roles,
        modality: Any = None,
        *,
        kind: OutputKind = UNDECIDED,
        augmentation: Any = None,
        init_from: str = "",
    ) -> None:
        """`modality` reads the files; `kind` is what labels must be: other ones are damage."""
        if not data.train:
            raise UserError("data.train names no file")
        self.recipe, self.roles = data, roles
        self.modality = modality or MODALITIES[recognize_modality(data, roles)]()
        self.augmentation, self.init_from = augmentation, init_from
        named = bool(data.target or data.labels or data.format == "labelled")
        self.labelled = roles.labels or (roles.labels_optional and named)
        self.train = self._open(data.train)
        if not self.train.plannable:
            refuse_plan(data)
        self.held_out_files = [
            self._open(paths, self.train) if paths else None for paths in (data.valid, data.test)
        ]
        self.fractions = [
            0.0 if given else share
            for given, share in zip(
                self.held_out_files, (data.valid_fraction, data.test_fraction), strict=True
            )
        ]
        self.compare_as(self.modality)
        self.set_kind(kind)

    @classmethod
    def of(cls, recipe: Recipe, init_from: str = "") -> DataSource:
        """Return the data of a complete recipe; `init_from` is the run whose tokenizer is used."""
        task = recipe.build_task()
        return cls(
            recipe.data,
            task.roles,
            recipe.modality("input") or recipe.modality("output"),
            kind=task.kind,
            augmentation=recipe.augmentation(),
            init_from=init_from,
        )

    def _open(self, paths: Sequence[str], train: FileSet | None = None) -> FileSet:
        files = [Path(path) for path in paths]
        labelled, paired = self.labelled, self.roles.paired
        request = _request(self.recipe, files, labelled=labelled, paired=paired, train=train)
        reader: FileSet = self.modality.read(request)
        return reader

    def watch(self, progress: Progress, activity: str = "reading") -> None:
        """Show how far the passes over the files are."""
        for files in self.readers:
            files.progress, files.activity = progress, activity

    @property
    def readers(self) -> list[FileSet]:
        """The readers of all given files."""
        return [files for files in (self.train, *self.held_out_files) if files is not None]

    def compare_as(self, modality: Any) -> None:
        """Compare records as the tokenizer of a modality reads them."""
        size = sum(files.size for files in self.readers)
        form = modality.canonical(self.init_from)
        self.form = canonical_form(form, self.augmentation, self.train.format, size)
        for files in self.readers:
            files.form = self.form

    def set_kind(self, kind: OutputKind) -> None:
        """Require labels of a kind from now on; other ones are damage."""
        self.kind = kind
        given = any(self.held_out_files)
        self.plan = None
        if self.train.plannable:
            self.plan = SplitPlan(self.recipe, self.fractions, given, self.labelled)
            for files in self.readers:
                files.require(kind, self.train)

    @property
    def remarks(self) -> list[str]:
        """What else a user should know of the latest pass over all files."""
        notes = [self.form.note] if self.form.note else []
        return notes + [line for files in self.readers for line in files.remarks]

    @property
    def paired(self) -> bool:
        """Whether records have a source and a target text."""
        return self.roles.paired

    @property
    def has_second(self) -> bool:
        """Whether every record has two items: pairs, or two texts and a label."""
        return self.paired or self.train.two_texts

    @property
    def text(self) -> bool:
        """Whether it is running text."""
        return self.train.format == "text"

    def chunks(self) -> Iterator[SourceChunk]:
        """Yield everything, in order."""
        if self.text:
            yield from self._cut_text()
            for split, source in enumerate(self.held_out_files, start=1):
                for document in source.documents() if source else ():
                    yield SourceChunk(split, (), begins=True)
                    yield from (SourceChunk(split, [text]) for text in document.text())
                    yield SourceChunk(split, (), ends=True)
            return
        if self.train.continuous:
            yield from self.train.stretches(self.fractions, self.recipe.train_fraction)
            return
        first = 0
        for chunk in self.train.records():
            keys = self.train.keys(chunk)
            splits = self._splits(chunk, keys, first)
            first += len(chunk)
            if self.recipe.train_fraction < 1:
                share = 1 - self.recipe.train_fraction
                splits[(splits == 0) & (assign(keys, 0.0, share, UNUSED_SEED) > 0)] = UNUSED
            for split in np.unique(splits).tolist():
                yield _take(split, chunk, keys, np.flatnonzero(splits == split).tolist())
        for split, source in enumerate(self.held_out_files, start=1):
            for chunk in source.records() if source else ():
                yield _take(split, chunk, source.keys(chunk) if source else (), range(len(chunk)))

    def training_chunks(self) -> Iterator[SourceChunk]:
        """Yield the training records, those beyond data.train_fraction too."""
        return (chunk for chunk in self.chunks() if chunk.split in (0, UNUSED))

    def _splits(self, chunk: Chunk, keys: Sequence[str], first: int) -> NDArray[np.uint8]:
        """Return the splits of the records of a chunk, whose first is record `first`."""
        if self.plan is not None:
            splits = self.plan.splits(self.train, chunk, first)
            if splits is not None:
                return splits
        valid, test = self.fractions
        return assign(keys, valid, test, self.recipe.split_seed)

    def _cut_text(self) -> Iterator[SourceChunk]:
        """Yield running text, its end held out."""
        total = self.train.characters()
        first, second = cut_points(total, *self.fractions)
        used = round(first * self.recipe.train_fraction)
        stretches = [(used, 0), (first, UNUSED), (second, 1), (total, 2)]
        position, number = 0, 0
        for document in self.train.documents():
            opened = False
            for text in document.text():
                while text:
                    while number < 3 and position >= stretches[number][0]:
                        if opened:
                            yield SourceChunk(stretches[number][1], (), ends=True)
                            opened = False
                        number += 1
                    border, split = stretches[number]
                    if not opened:
                        yield SourceChunk(split, (), begins=True)
                        opened = True
                    part = text[: border - position]
                    yield SourceChunk(split, [part])
                    position, text = position + len(part), text[len(part) :]
            if opened:
                yield SourceChunk(split, (), ends=True)

    def keep_some_training(self, log: Log) -> None:
        """Hold out nothing if so few records are there that nothing would be left to train on."""
        if self.plan is not None and self.plan.decided:
            return
        if any(self.fractions) and not any(c.split == 0 and c.texts for c in self.chunks()):
            self.fractions = [0.0, 0.0]
            self.set_kind(self.kind)
            cut = "; --set data.format=text cuts sequences" if self.train.format == "fasta" else ""
            folds = "; `regard compare` with --folds 5 tests every record" * self.labelled
            log(f"too little data to hold any out: all of it trains, nothing measures{cut}{folds}")

    def fingerprints(self) -> dict[str, str]:
        """Return a hash of every split's files."""
        return {split: total for split, (total, _) in self.hashes().items()}

    def hashes(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Return `FileSet.hashes` of every split that has files."""
        sources = zip(SPLITS, (self.train, *self.held_out_files), strict=True)
        return {name: source.hashes() for name, source in sources if source is not None}

    def reading(self) -> dict[str, Any]:
        """Return how the training files are read, so that other files are read alike."""
        recipe, train = self.recipe, self.train
        inputs, targets = columns_of(recipe.input), columns_of(recipe.target)
        if columns := train.columns:
            texts = 2 if train.two_texts else 1
            inputs, targets = columns[:texts], columns[texts : texts + len(targets)]
        if any(Path(target).is_file() for target in targets):
            targets = ()  # a file of labels belongs to the files it was given with
        return {
            "inputs": list(inputs),
            "targets": list(targets),
            "classes": list(train.class_files),
            "labels": recipe.labels,
            "pattern": recipe.pattern,
            "encoding": train.encoding,
            "missing": list(recipe.missing),
            "per_line": recipe.per_line,
            "strip": train.plannable,
        }

    def overlaps(self) -> dict[str, Leak]:
        """Return which records of given validation and test files, or of labelled held-out
        records, training has too. Pairs are compared by their sources.
        """
        if self.text:
            return {}
        result = {}
        known = distinct(c.keys for c in self.chunks() if c.split == 0) if self.plan else None
        for split, (name, source) in enumerate(
            zip(SPLITS[1:], self.held_out_files, strict=True), start=1
        ):
            if known is not None:
                leak = overlap(known, (c.keys for c in self.chunks() if c.split == split))
            elif source is not None:
                train = map(self.train.keys, self.train.records())
                leak = leaks(train, map(source.keys, source.records()))
            if source is not None or (known is not None and leak.total):
                result[name] = leak
        return result

    def leaks(self) -> dict[str, Any]:
        """Return the same, as the manifest stores it."""
        return {
            name: {"records": leak.records, "examples": list(leak.examples)}
            for name, leak in self.overlaps().items()
        }


def open_texts(data: DataRecipe, modality: str = "text") -> FileSet:
    """Return the reader of the training files as texts without labels."""
    files = [Path(path) for path in data.train]
    request = _request(data, files, labelled=False, paired=False)
    reader: FileSet = MODALITIES[modality]().read(request)
    return reader


def _take(split: int, chunk: Chunk, keys: Sequence[str], chosen: Sequence[int]) -> SourceChunk:
    """Return some records of a chunk."""

    def take(values: Sequence[Any]) -> Sequence[Any]:
        return values if len(chosen) == len(values) else [values[i] for i in chosen if values]

    return SourceChunk(
        split,
        take(chunk.texts),
        sources=take(chunk.sources),
        place=partial(_place, chunk, chosen),
        targets=take(chunk.targets),
        keys=take(keys),
    )


def _place(chunk: Chunk, chosen: Sequence[int], i: int) -> str:
    return chunk.place(chosen[i])


@dataclass(frozen=True)
class Views:
    """Views of a text that mean the same, such as the two strands of DNA; the first is the text.

    Training shows one view of a record at a time, another in every epoch; predictions are averaged
    over all views. Metrics count records: views are no further data.
    """

    count: int
    make: Callable[[str, int], list[str]]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return all views of all texts, text by text."""
        return [view for text in texts for view in self.make(text, self.count)]

    def of(self, chunk: SourceChunk) -> SourceChunk:
        """Return a chunk with all views of its records."""
        place, count = chunk.place, self.count
        return replace(
            chunk,
            texts=self.texts(chunk.texts),
            targets=[row for row in chunk.targets for _ in range(count)],
            keys=[key for key in chunk.keys for _ in range(count)],
            place=None if place is None else lambda i: place(i // count),
        )
