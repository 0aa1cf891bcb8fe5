"""The keywords of `regard.train`, `plan` and `compare` as tables of a recipe, and their data as
files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from regard.data.in_memory import MemoryTable, paths_of, read_table, splits_of, stored
from regard.errors import UsageError, did_you_mean
from regard.planning import default_folder, settings_of
from regard.recipe import FOREIGN_KEYS, DataRecipe, TrainRecipe
from regard.registry import MODALITIES, TASKS
from regard.run import RECIPE, refuse_used
from regard.training.progress import Reporter

Columns = str | Sequence[str]  # the name of a column, or of several
Settings = Mapping[str, Any]  # keys of a table of the recipe
Tables = dict[str, dict[str, Any]]  # of a recipe
Out = str | Path | None  # a folder; None: one in runs/
NO_SETTINGS: Settings = MappingProxyType({})


class Keywords(TypedDict, total=False):
    """The keywords of `train` besides the task, for type checkers: its own, then the settings of
    the built-in tasks and modalities.
    """

    y: Any
    target: Columns
    input: Columns
    model: str | Settings
    modality: str
    minutes: float | None
    valid: Any
    test: Any
    seed: int | None
    device: str
    data: Settings
    train: Settings
    augment: Settings
    pretrain: str | Path | None
    resume: bool
    progress: bool | Reporter
    forbid: str | Path
    shared_vocab: bool
    max_ratio: float
    mask: float
    quantiles: str
    n_groups: int
    group_size: int
    scale: Literal["auto", "unit", "kept"]
    mesh_points: int
    horizon: int
    lookback: int
    time: str
    id: str
    known: Columns
    static: Columns
    step: str
    fill: Literal["mask", "forward", "linear", "zero"]
    season: int
    borders: str
    patch: int
    columns: Columns
    exclude: Columns
    resize: int
    tokenizer: str
    vocab_size: int
    strict: bool
    k: int
    stride: int
    case: Literal["fold", "keep"]


def check_settings(settings: Settings) -> dict[str, Any]:
    """Return settings of tasks and modalities, lists of names joined; another keyword is a
    TypeError with a hint.
    """
    classes = [*TASKS.values(), *MODALITIES.values()]
    known = {name for cls in classes for name in settings_of(cls)}
    for name in settings:
        if name not in known:
            raise TypeError(f"unknown keyword {name!r}; {keyword_hint(name, known)}")
    return {name: join_columns(value) for name, value in settings.items()}


def keyword_hint(name: str, known: Collection[str]) -> str:
    """Return what to write in place of a keyword that `train` does not have."""
    for table, cls in (("train", TrainRecipe), ("data", DataRecipe)):
        key = FOREIGN_KEYS.get(name, name)
        if key in {field.name for field in fields(cls)}:
            return f"write {table}={{{key!r}: …}}"
    choices = [*Keywords.__annotations__, *known]
    hint = did_you_mean(name, choices)
    return hint if hint.startswith("did") else "help(regard.train) lists them"


def join_columns(value: Any) -> Any:
    """Return a list of names as a recipe has it, a,b,c; other values are not changed."""
    if isinstance(value, Path):
        return str(value)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def as_table(value: str | Settings) -> dict[str, Any]:
    """Return a table that is given as a dictionary or by its name alone."""
    return {"name": value or None} if isinstance(value, str) else dict(value)


def recipe_tables(
    target: Columns,
    input: Columns,
    task: str,
    model: str | Settings,
    *,
    data: Settings,
    train: Settings,
    augment: Settings,
) -> dict[str, dict[str, Any]]:
    """Return the tables of a recipe that keywords give; None stands for what is left open."""
    columns = {"input": join_columns(input) or None, "target": join_columns(target) or None}
    return {
        "task": as_table(task),
        "data": {**columns, **data},
        "model": as_table(model),
        "augment": dict(augment),
        "train": dict(train),
    }


@dataclass(frozen=True)
class DataInput:
    """What is trained on: paths or data in memory, with held-out data of the same form."""

    source: Any
    y: Any = None
    valid: Any = None
    test: Any = None
    modality: str = ""

    @property
    def held_out(self) -> dict[str, Any]:
        """The held-out data that are given, by split."""
        both = {"valid": self.valid, "test": self.test}
        return {split: data for split, data in both.items() if data is not None}

    def name(self, tables: Tables) -> str:
        """Return the name of the first file or, of data in memory, of the target."""
        paths = paths_of(self.source)
        return paths[0].stem if paths else str(tables["data"]["target"] or "data").split(",")[0]

    @contextmanager
    def files(self, out: Out, resume: bool, tables: Tables) -> Iterator[SourceFiles]:
        """Yield the files to read, with the tables of their recipe. Data in memory are written to
        OUT/source, by default runs/NAME/source, and removed after an error.
        """
        folder, data = Path(out) if out else None, tables["data"]
        if (paths := paths_of(self.source)) is not None:
            given = {split: path_strings(split, one) for split, one in self.held_out.items()}
            if self.y is not None:
                raise UsageError("y is for data in memory; of a file, target= names a column")
            yield SourceFiles(paths, folder, tables | {"data": data | given}, self.modality)
            return
        folder = folder or default_folder(Path(self.name(tables)), "", resume)
        started = resume and (folder / RECIPE).exists()
        if not resume:
            refuse_used(folder)
        with stored(self.parts(), folder, modality=self.modality, resume=resume) as written:
            given = {key: value for key, value in data.items() if value not in (None, "")}
            settings = {} if started else written.settings | given
            yield SourceFiles(written.paths, folder, tables | {"data": settings}, written.modality)

    def parts(self) -> dict[str, MemoryTable]:
        """Return data in memory by split."""
        train, *others = splits_of(self.source).items()
        parts = {"train": read_table(train[1], self.y), **{k: read_table(x) for k, x in others}}
        for split, held_out in self.held_out.items():
            if paths_of(held_out) is not None:
                raise UsageError(f"{split} must be data in memory, as the training data are")
            pair = held_out if self.y is not None else (held_out,)
            parts[split] = read_table(*pair)
        return parts


def path_strings(split: str, source: Any) -> list[str]:
    """Return the absolute paths of a split."""
    paths = paths_of(source)
    if paths is None:
        raise UsageError(f"{split} must be a path, as the training data are")
    return [str(path.resolve()) for path in paths]


@dataclass(frozen=True)
class SourceFiles:
    """Files to train on, the run folder if it is decided, and the tables and the modality that say
    how they are read.
    """

    paths: list[Path]
    folder: Path | None
    tables: Tables
    modality: str
