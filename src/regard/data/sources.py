"""The files of a recipe as a stream of pieces, each of them for training, validation or test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.captions import Captions, paths_in_pairs
from regard.data.image_files import SUFFIXES
from regard.data.images import IMAGES, ImageFiles
from regard.data.labelled import ColumnSelection, LabelledFiles, columns_of
from regard.data.leakage import canonical_form
from regard.data.media import MediaFiles, paths_in_table
from regard.data.pairs import Pairs
from regard.data.point_clouds import ENDINGS, POINTS, PointCloudFiles, form_of
from regard.data.readers import Chunk, FileSet, TextFiles
from regard.data.splits import (
    Leak,
    SplitPlan,
    assign,
    columns_read,
    cut_points,
    distinct,
    leaks,
    overlap,
    refuse_plan,
)
from regard.data.targets import LABELLED, kind_for
from regard.errors import UsageError, UserError
from regard.recipe import NUMBERED, DataRecipe, TokensRecipe

SPLITS = ("train", "valid", "test")
UNUSED = 3  # the side of training data beyond data.train_fraction: it gives words, nothing else
SPARING = 1  # the seed of the hash that spares it: fractions of one set lie in one another
PATHS = {IMAGES: SUFFIXES, POINTS: ENDINGS}  # how paths to what is no text end, in tables

Say = Callable[[str], None]


@dataclass(frozen=True)
class SourceChunk:
    """Some records, or a stretch of one document of running text with its borders marked.

    Of pairs, `texts` are the targets and `sources` what they answer; of labelled records, `targets`
    are as written, and `sources` the second texts where there are two.
    """

    side: int
    texts: Sequence[str]
    begins: bool = False
    ends: bool = False
    sources: Sequence[str] = ()
    place: Callable[[int], str] | None = None  # where record i stands, as file:line
    targets: Sequence[tuple[str, ...]] = ()
    keys: Sequence[str] = ()  # what copies and leaks of records go by


class DataSource:
    """The files of a recipe as pieces that know their side; for the task `target`, pairs, and for
    those of `targets.LABELLED`, labelled records ("labelled" leaves open which). Where they are
    labelled, `masked` reads them as those do, so that what is held out there is held out here.

    Pairs are split, and looked for in training, by their sources: a source that training has seen
    leaks whatever its target. Those of pictures and captions are split as labelled records are.
    """

    def __init__(
        self,
        recipe: DataRecipe,
        task: str = "next",
        tokens: TokensRecipe | None = None,
        start: str = "",
    ) -> None:
        """`tokens`, those of the run `start` where it names one, decide which texts are the same
        record: see data.canonical.
        """
        if not recipe.train:
            raise UserError("data.train names no file")
        self.recipe, self.paired = recipe, task == "target"
        told = bool(recipe.target or recipe.labels or recipe.format == "labelled")
        self.labelled = task in (*LABELLED, "labelled") or (task == "masked" and told)
        if not self.labelled and not self.paired:
            refuse_plan(recipe)
        self.train = self._open(recipe.train, recipe.format)
        if isinstance(self.train, Pairs):
            refuse_plan(recipe)
        self.held_out_files = [
            self._open(paths, self.train.format, self.train) if paths else None
            for paths in (recipe.valid, recipe.test)
        ]
        self.fractions = [
            0.0 if given else share
            for given, share in zip(
                self.held_out_files, (recipe.valid_fraction, recipe.test_fraction), strict=True
            )
        ]
        self.tokenize_as(tokens, start)
        self.settle(task)

    def tokenize_as(self, tokens: TokensRecipe | None, start: str = "") -> None:
        """Compare records as these tokens read them: see data.canonical."""
        read = [files for files in (self.train, *self.held_out_files) if files is not None]
        size = sum(files.size for files in read)
        self.form = canonical_form(self.recipe, tokens, self.train.format, size, start)
        for files in read:
            files.form = self.form

    def settle(self, task: str) -> None:
        """Hold labelled records to a task: what its targets cannot be is damage from now on."""
        self.task = task
        planned = self.labelled or self.numbered
        given, labelled = any(self.held_out_files), self.labelled
        self.plan = SplitPlan(self.recipe, self.fractions, given, labelled) if planned else None
        for files in (self.train, *self.held_out_files):
            if isinstance(files, LabelledFiles) and isinstance(self.train, LabelledFiles):
                files.kind = kind_for(task)
                files.written_as = self.train

    def _open(self, paths: Sequence[str], format: str, train: FileSet | None = None) -> FileSet:
        """Files of one side; those that are held out are read as the training files are."""
        recipe, files = self.recipe, [Path(p) for p in paths]
        shared: dict[str, Any] = {"strict": recipe.strict, "encoding": recipe.encoding}
        if not (self.paired or self.labelled):
            return TextFiles(files, format=format, column=recipe.input, **shared)
        form = form_of(files) if format == "auto" else format
        if self.paired and form not in NUMBERED:
            columns = recipe.input, recipe.target
            pairs = Pairs(files, format=format, columns=columns, **shared)
            form = next((name for name in PATHS if paths_in_pairs(pairs, PATHS[name])), "")
            if format != "auto" or not form:
                return pairs
        targets = columns_of(recipe.target)
        if isinstance(train, ImageFiles) and Path(recipe.target).is_file():
            targets = ()  # that file is for those of training: held-out ones have their own
        asked = ColumnSelection(
            inputs=columns_of(recipe.input) or ("",),
            targets=targets,
            asides=columns_read(recipe) if train is None else (),
            pattern=recipe.pattern,
            labels=Path(recipe.labels) if recipe.labels else None,
            classes=train.like(files) if isinstance(train, LabelledFiles) else (),
            missing=recipe.missing,
            per_line=recipe.per_line,
        )
        if form in NUMBERED:
            return self._collect(form, files, asked)
        found = LabelledFiles(files, asked, format=format, **shared)
        if format == "auto":
            for form, endings in PATHS.items():
                if paths_in_table(found, endings):
                    return self._collect(form, files, asked)
        return found

    def _collect(self, form: str, files: Sequence[Path], asked: ColumnSelection) -> MediaFiles:
        """Files of what is no text."""
        recipe = self.recipe
        if form == IMAGES:
            reader = Captions if self.paired else ImageFiles
            return reader(files, asked, strict=recipe.strict, side=recipe.resize)
        if self.paired:
            raise UsageError(f"{files[0]}: point clouds have labels or values, not captions")
        return PointCloudFiles(files, asked, strict=recipe.strict, surface=recipe.surface)

    @property
    def remarks(self) -> list[str]:
        """What else a user should know of the latest pass over all files: see Files."""
        read = [files for files in (self.train, *self.held_out_files) if files is not None]
        notes = [self.form.note] if self.form.note else []
        return notes + [line for files in read for line in files.remarks]

    @property
    def two_sided(self) -> bool:
        """Has every record two texts: pairs, or labelled pairs of texts?"""
        return self.paired or (isinstance(self.train, LabelledFiles) and self.train.two_texts)

    @property
    def aligned(self) -> bool:
        """Whether there is a target for each position of a record."""
        return kind_for(self.task).aligned

    @property
    def numbered(self) -> bool:
        """Are records, or the sources of pairs, no texts, but pictures or point clouds?"""
        return isinstance(self.train, MediaFiles)

    @property
    def text(self) -> bool:
        """Is it running text?"""
        return self.train.format == "text"

    def pieces(self) -> Iterator[SourceChunk]:
        """Everything, in order."""
        if self.text:
            yield from self._cut()
            for side, source in enumerate(self.held_out_files, start=1):
                for document in source.documents() if source else ():
                    yield SourceChunk(side, (), begins=True)
                    yield from (SourceChunk(side, [text]) for text in document.text())
                    yield SourceChunk(side, (), ends=True)
            return
        start = 0
        for chunk in self.train.records():
            keys = self.train.keys(chunk)
            sides = self._sides(chunk, keys, start)
            start += len(chunk)
            if self.recipe.train_fraction < 1:
                share = 1 - self.recipe.train_fraction
                sides[(sides == 0) & (assign(keys, 0.0, share, SPARING) > 0)] = UNUSED
            for side in np.unique(sides).tolist():
                yield _piece(side, chunk, keys, np.flatnonzero(sides == side).tolist())
        for side, source in enumerate(self.held_out_files, start=1):
            for chunk in source.records() if source else ():
                yield _piece(side, chunk, source.keys(chunk) if source else (), range(len(chunk)))

    def _sides(self, chunk: Chunk, keys: Sequence[str], start: int) -> NDArray[np.uint8]:
        """The sides of the records of a chunk, of which the first is number `start`."""
        if self.plan is not None and isinstance(self.train, LabelledFiles):
            found = self.plan.sides(self.train, chunk, start)
            if found is not None:
                return found
        valid, test = self.fractions
        return assign(keys, valid, test, self.recipe.split_seed)

    def _cut(self) -> Iterator[SourceChunk]:
        """Running text, its end held out: a stretch of a document on one side is one there."""
        total = sum(len(text) for text in self.train.text())
        first, second = cut_points(total, *self.fractions)
        used = round(first * self.recipe.train_fraction)
        stretches = [(used, 0), (first, UNUSED), (second, 1), (total, 2)]
        at, number = 0, 0
        for document in self.train.documents():
            opened = False
            for text in document.text():
                while text:
                    while number < 3 and at >= stretches[number][0]:
                        if opened:
                            yield SourceChunk(stretches[number][1], (), ends=True)
                            opened = False
                        number += 1
                    border, side = stretches[number]
                    if not opened:
                        yield SourceChunk(side, (), begins=True)
                        opened = True
                    part = text[: border - at]
                    yield SourceChunk(side, [part])
                    at, text = at + len(part), text[len(part) :]
            if opened:
                yield SourceChunk(side, (), ends=True)

    def leave_something(self, say: Say) -> None:
        """Where so few records are that all would be held out, all of them train instead."""
        if self.plan is not None and self.plan.decided:
            return
        if any(self.fractions) and not any(p.side == 0 and p.texts for p in self.pieces()):
            self.fractions = [0.0, 0.0]
            self.settle(self.task)
            cut = "; --set data.format=text cuts sequences" if self.train.format == "fasta" else ""
            folds = "; `regard compare` with --folds 5 tests every record" * self.labelled
            say(f"too little data to hold any out: all of it trains, nothing measures{cut}{folds}")

    def fingerprints(self) -> dict[str, str]:
        """A hash of every side's files."""
        return {side: total for side, (total, _) in self.hashes().items()}

    def hashes(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Of every side, what `FileSet.hashes` gives."""
        sources = zip(SPLITS, (self.train, *self.held_out_files), strict=True)
        return {name: source.hashes() for name, source in sources if source is not None}

    def reading(self) -> dict[str, Any]:
        """How the training files are read, for `inputs.InputReader`: other files are read alike."""
        recipe, train = self.recipe, self.train
        inputs, targets = columns_of(recipe.input), columns_of(recipe.target)
        if found := train.columns:
            texts = 2 if isinstance(train, LabelledFiles) and train.two_texts else 1
            inputs, targets = found[:texts], found[texts : texts + len(targets)]
        if any(Path(target).is_file() for target in targets):
            targets = ()  # a file of labels belongs to the files that it stands beside
        return {
            "inputs": list(inputs),
            "targets": list(targets),
            "classes": list(train.class_files) if isinstance(train, LabelledFiles) else [],
            "labels": recipe.labels,
            "pattern": recipe.pattern,
            "encoding": train.encoding,
            "missing": list(recipe.missing),
            "per_line": recipe.per_line,
            "strip": isinstance(train, LabelledFiles),
        }

    def overlaps(self) -> dict[str, Leak]:
        """What of valid and test training has too: of given files and, of labelled records, of all
        that is held out. Of pairs, sources count.
        """
        if self.text:
            return {}
        found = {}
        known = distinct(p.keys for p in self.pieces() if p.side == 0) if self.plan else None
        for side, (name, source) in enumerate(
            zip(SPLITS[1:], self.held_out_files, strict=True), start=1
        ):
            if known is not None:
                leak = overlap(known, (p.keys for p in self.pieces() if p.side == side))
            elif source is not None:
                train = map(self.train.keys, self.train.records())
                leak = leaks(train, map(source.keys, source.records()))
            if source is not None or (known is not None and leak.total):
                found[name] = leak
        return found

    def leaks(self) -> dict[str, Any]:
        """The same, as the manifest has it."""
        return {
            name: {"records": leak.records, "examples": list(leak.examples)}
            for name, leak in self.overlaps().items()
        }


def _piece(side: int, chunk: Chunk, keys: Sequence[str], chosen: Sequence[int]) -> SourceChunk:
    """Some records of a chunk; `keys` are of all of it."""

    def of(values: Sequence[Any]) -> Sequence[Any]:
        return values if len(chosen) == len(values) else [values[i] for i in chosen if values]

    return SourceChunk(
        side,
        of(chunk.texts),
        sources=of(chunk.sources),
        place=partial(_place, chunk, chosen),
        targets=of(getattr(chunk, "targets", ())),
        keys=of(keys),
    )


def _place(chunk: Chunk, chosen: Sequence[int], i: int) -> str:
    return chunk.place(chosen[i])
