"""Modalities: what is read, text, biological sequences, molecules, images, point clouds and time
series.

A modality recognizes and reads files, encodes their items, and knows their augmentations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data.column_kinds import SEQUENCE, CellSample, ColumnKind
from regard.errors import UsageError, UserError
from regard.registry import MODELS, TASKS

if TYPE_CHECKING:
    from torch import nn

    from regard.data import Roles
    from regard.data.sources import DataSource, ReadRequest, SourceChunk, Views
    from regard.data.targets import OutputKind
    from regard.data.text_files import FileSet
    from regard.evaluation.validity import Rule
    from regard.look.page.records import Picture
    from regard.recipe import DataRecipe
    from regard.tokenizers import Tokenizer
    from regard.tokenizers.tokenizer import Canonical


Tables = dict[str, Any]  # of a recipe that is being planned
MOST_PATHS = 0.95  # share of the cells of a column of paths that end as such files do


def recognize_paths(
    sample: CellSample, suffixes: tuple[str, ...], modality: type[Modality]
) -> ColumnKind | None:
    """Return the kind of cells that are paths of files with these endings; else None."""
    count = sum(cell.lower().endswith(suffixes) for cell in sample.cells)
    if not count or count < MOST_PATHS * len(sample.cells):
        return None
    name = f"paths of {modality.words[1]}"
    reason = f"they end in {Path(sample.cells[0]).suffix}"
    return ColumnKind(name=name, reason=reason, score=10, rank=SEQUENCE, modality=modality.name)


class Augmentation:
    """Variants of training items that keep their labels. `config` is the recipe's table [augment].

    An augmentation makes several views of each record before training, or changes batches on the
    device during training.
    """

    Config: ClassVar[type]
    kind: ClassVar[str] = "tokens"  # of the inputs that it applies to, as in Modality

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    def views(self) -> Views | None:
        """Return the views of a record that are made before training, if any."""
        return None

    def running_text(self, chunks: Iterator[SourceChunk]) -> Iterator[SourceChunk]:
        """Return the chunks of running text with those that the augmentation adds."""
        raise UsageError(f"augment.name = {self.config.name!r} is for records, not running text")

    def canonical(self, form: Canonical) -> Canonical:
        """Return the form in which records are compared, so that all views of one are equal."""
        return form

    def module(self, config: Any, *, aligned: bool) -> nn.Module | None:
        """Return what changes a batch (inputs, segments), given the model's configuration; with
        `aligned`, each position has a label.
        """
        return None


class Modality(ABC):
    """One kind of data. `config` is the recipe's table [input] or [output].

    Importing a module with a modality must be cheap: options of the command line come from its
    Config, so heavy imports belong inside methods.
    """

    name: ClassVar[str]
    kind: ClassVar[str]  # of the encoded input: tokens, patches, points; models register for it
    words: ClassVar[tuple[str, str]]  # one item, several items
    reads_text: ClassVar[bool] = False  # items are texts, which a tokenizer encodes
    has_pictures: ClassVar[bool] = False  # items are drawn in a way of their own
    array_axes: ClassVar[tuple[int, ...]] = ()  # of an array in memory that holds such items
    Config: ClassVar[type]

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @classmethod
    def recognize(cls, files: Sequence[Path]) -> bool:
        """Return whether files are containers of this modality, by their names or contents."""
        return False

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        """Return what cells are to this modality: items, paths of its files; None if neither."""
        return None

    @classmethod
    def parts(cls, folder: Path) -> dict[str, list[Path]]:
        """Return the files of a folder by split, where their names say so; {} if they do not."""
        return {}

    @classmethod
    def recognize_table(cls, files: Sequence[Path], targets: Sequence[str]) -> bool:
        """Return whether tables with these columns of targets hold items of this modality besides
        them.
        """
        return False

    def suggest_task(self, files: Sequence[Path], targets: Sequence[str]) -> tuple[str, str]:
        """Return the task of files, given the columns of targets, and why; "" if what the targets
        hold decides.
        """
        return "", ""

    @classmethod
    def tasks(cls) -> list[str]:
        """Return the tasks that have models for these items."""
        return [task for task in TASKS if MODELS.names(task, cls.kind)]

    @abstractmethod
    def read(self, request: ReadRequest) -> FileSet:
        """Return the reader of files."""

    @abstractmethod
    def items(self, path: Path, encoder: Any, *, strict: bool = True) -> Iterator[tuple[str, Any]]:
        """Yield the items of a file or folder without labels, each after its place.

        A damaged item is a UserError or, unless `strict`, a str that says what is wrong.
        """

    @property
    def training_limit(self) -> float:
        """Characters that are enough to fit the encoder."""
        return math.inf

    @abstractmethod
    def fit_encoder(self, items: Iterable[Any]) -> Tokenizer:
        """Fit the tokenizer or featurizer on training items."""

    def canonical(self, init_from: str = "") -> Canonical:
        """Return how items are compared for copies and leaks."""
        from regard.tokenizers.tokenizer import PLAIN

        return PLAIN

    @abstractmethod
    def defaults(self, tables: Tables, source: FileSet, kind: OutputKind) -> list[str]:
        """Fill in encoder, model size and augmentation for predicting `kind` of these items, where
        the tables leave them open; return two lines that say what was chosen and why.
        """

    def masked_defaults(self, tables: Tables, data: DataRecipe, roles: Roles) -> list[str]:
        """Do the same for filling in masked parts of these items."""
        raise UsageError(f"--task masked does not read {self.words[1]}")

    def validity_rule(self, encoder: Any) -> Rule | None:
        """Return what makes a generated text valid; None where any text is."""
        return None

    def holds_items(self, path: Path) -> bool:
        """Return whether a file to predict from holds items, rather than paths of some."""
        return self.recognize([path])

    def pair_defaults(self, tables: Tables, source: FileSet) -> list[str]:
        """Do the same for predicting a text from each item."""
        raise UserError(f"{self.words[1]} have labels or values, not texts")

    @abstractmethod
    def report(self, sources: DataSource, why: str) -> Any:
        """Return what `regard data` shows: an object with `rows()` and `to_json()`."""

    def picture(self, item: Any) -> Picture:
        """Return how an item is drawn small; texts are shown as they are."""
        return {"text": str(item)}

    def describe_labels(self, labels: Sequence[str]) -> dict[str, str]:
        """Return what labels of positions mean, where their names are a convention."""
        return {}

    def open(self, name: str, encoder: Any, base: Path = Path()) -> tuple[str, Any]:
        """Return one item after its place, by the path of its file from the folder `base`, or by
        its number in a file of many: digits.npz[12].
        """
        if not name:
            raise UserError("an empty path names no file")
        file, bracket, number = name.rstrip("]").rpartition("[")
        numbered = bool(bracket) and number.isdigit() and not (base / name).exists()
        path, index = (base / file, int(number)) if numbered else (base / name, 0)
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        item = next(islice(self.items(path, encoder), index, None), None)
        if item is None:
            raise UserError(f"{path}: has no {self.words[0]} {index}")
        return item

    def open_all(self, items: Sequence[Any], encoder: Any) -> list[Any]:
        """Return items, those given as paths opened, those given as arrays as files would give
        them.
        """
        is_path = [isinstance(one, str | Path) for one in items]
        arrays = [one for one, path in zip(items, is_path, strict=True) if not path]
        in_memory = iter(self.from_memory(arrays, encoder))
        return [
            self.open(str(one).strip(), encoder)[1] if path else next(in_memory)
            for one, path in zip(items, is_path, strict=True)
        ]

    def from_memory(self, values: list[Any], encoder: Any) -> list[Any]:
        """Return the items that arrays in memory stand for."""
        return values
