"""Infer the task from the files: parallel text, classes, targets of a table, or one corpus.

The decision is logged with its reason and with the option that reads the files in another way. If
the files are ambiguous, a UsageError asks the user to choose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regard.data import Roles
from regard.data.formats import detect, expand, head, is_archive
from regard.data.labelled import class_of, columns_of
from regard.data.sources import DataSource, open_texts, recognize_modality
from regard.data.targets import UNDECIDED, survey
from regard.data.text_files import (
    PART_NAMES,
    FileSet,
    class_folders,
    correlation,
    count_lines,
    looks_paired,
)
from regard.errors import UsageError
from regard.recipe import DataRecipe
from regard.registry import MODALITIES, MODELS, TABLES, TASKS

# Words in file names of negative and positive examples.
NEGATIVE = {"non", "not", "no", "neg", "negative", "negatives", "decoy", "decoys", "background"}
POSITIVE = {"pos", "positive", "positives"}
LABELS = Roles(input=True, labels=True)
MAX_CLASS_FILES = 50
MANY, MANY_A_LABEL, FEW = 10_000, 50, 3  # lines; how many a label has on average, and at least
SHOWN = 4  # names of files or columns listed
MAX_WORDS = 5  # in which names of opposite files may differ


@dataclass(frozen=True)
class InferredTask:
    """A task, the reason, and a line to log ("" if there was nothing to decide)."""

    task: str
    why: str = ""
    line: str = ""


def infer_task(
    recipe: DataRecipe, model: str = "", settings: Mapping[str, Any] | None = None
) -> InferredTask:
    """Infer the task of a recipe without one; raise a UsageError if the user has to choose.

    A model that exists for one task only decides it. `settings` are those of the input, by name;
    others are ignored.
    """
    files = [Path(path) for path in recipe.train]
    name = recognize_modality(recipe, LABELS) if files else "text"
    modality = configure_media(name, settings or {})
    task, why = modality.suggest_task(files, columns_of(recipe.target))
    if task:
        return InferredTask(task, why)
    is_media = not modality.reads_text
    if recipe.target or recipe.labels or recipe.format == "labelled" or is_media:
        return _infer_from_targets(recipe, modality)
    model_task = task_of_model(model)
    if model_task != "next" and files and (folders := class_folders(files)):
        names = dict.fromkeys(name for _, name in folders)
        line = f"reading {len(names)} folders as classes ({_listed(names)})"
        if not any(map(is_archive, files)):
            line += "; --task next reads all files as one corpus"
        return InferredTask("label", "by the names of the folders", line)
    if model_task == "next" or recipe.format == "text" or not files:
        return InferredTask("next")
    if model_task != "label" and (why := looks_paired(files)):
        alternatives = "--task label makes each file a class, --task next reads one corpus"
        return InferredTask(
            "target", line=f"reading 2 files as parallel text ({why}); {alternatives}"
        )
    expanded = expand(files)
    if len(expanded) > 1:
        return _infer_from_files(recipe, files, expanded, model_task)
    line = _other_columns_line(recipe) or _first_words_line(expanded, recipe)
    return InferredTask("next", line=line)


def task_of_model(model: str) -> str:
    """Return the task of a model that supports only one of those that files suggest, or ""."""
    tasks = [task for task in ("next", "target", "label") if model in MODELS.names(task)]
    return tasks[0] if len(tasks) == 1 else ""


def configure_media(recognized: str, settings: Mapping[str, Any]) -> Any:
    """Return the modality that is recognized or, of other items than texts, the one that the
    settings name, with those settings that it has and that are texts.
    """
    given = MODALITIES[settings.get("name") or recognized]
    cls = MODALITIES[recognized] if given.reads_text else given
    if cls.reads_text:
        return cls()
    names = {field.name for field in fields(cls.Config) if field.type == "str"} - {"name"}
    return cls(cls.Config(**{key: str(x) for key, x in settings.items() if key in names}))


def _infer_from_targets(recipe: DataRecipe, modality: Any) -> InferredTask:
    """Return the task that the targets suggest."""
    source = DataSource(recipe, LABELS, modality).train
    task, why = suggest_task(source)
    if TASKS[task].roles.output and source.format in TABLES and not recipe.input:
        raise UsageError(
            f"{source.files[0]}: column {recipe.target!r} holds different texts ({why}); say "
            "--task label if they are classes, or name the column to predict them from with --input"
        )
    return InferredTask(task, why)


def suggest_task(source: FileSet) -> tuple[str, str]:
    """Return the first registered task that fits the targets of labelled records, and why."""
    source.require(UNDECIDED, source)
    columns = survey(source.records(), len(source.names))
    for name in TASKS:
        if reason := TASKS[name].suggest(columns, source.names, texts=source.tells):
            return name, reason
    mixed = next(i for i, column in enumerate(columns) if len(column.different) > 2)
    example = next(cell for cell in columns[mixed].different)
    raise UsageError(
        f"--target {','.join(source.names)}: several targets are all numbers, or all of two "
        f"values; {source.names[mixed]!r} has {len(columns[mixed].different):,}, such as "
        f"{example[:40]!r}"
    )


def _infer_from_files(
    recipe: DataRecipe, given: Sequence[Path], files: Sequence[Path], model_task: str
) -> InferredTask:
    """Infer the task of several files that are not named after two languages."""
    if model_task == "label":
        return _as_labels(_classes_line(files, "the model is a classifier"))
    format = recipe.format if recipe.format != "auto" else detect(files, recipe.encoding)[0]
    by_class = given == files and format in ("lines", "fasta", "smi") and differ_by_class(files)
    may_be_paired = format in ("lines", "text") and len(files) == 2 and not _are_parts(files)
    if may_be_paired and (inferred := _infer_from_two(recipe, files, by_class)) is not None:
        return inferred
    if by_class:
        return _as_labels(_classes_line(files, "their names differ in one word"))
    hint = ""
    if given == files and _are_splits(files):
        hint = "; --valid FILE and --test FILE hold a file out"
    label = "--task label" + (" --set data.format=lines" if format == "text" else "")
    line = (
        f"reading {len(files):,} files as one corpus for a language model (--task next); {label} "
        f"makes each file a class{hint}"
    )
    return InferredTask("next", line=line)


def _infer_from_two(
    recipe: DataRecipe, files: Sequence[Path], by_class: bool
) -> InferredTask | None:
    """Infer the task of two files with equal numbers of lines; None if the numbers differ."""
    counts = [count_lines(path) for path in files]
    if counts[0] != counts[1] or counts[0] < 2:
        return None
    relation = correlation(files, recipe.encoding)
    if relation.related:
        line = f"reading 2 files of {counts[0]:,} lines as parallel text: {relation.words}"
        return InferredTask("target", line=f"{line}; --task label makes each file a class")
    if by_class and (relation.related is False or _are_opposite(files)):
        line = _classes_line(files, f"their names differ in one word and their {relation.words}")
        return _as_labels(f"{line}, --task target line n of both as a pair")
    raise UsageError(
        f"{files[0].name} and {files[1].name} have {counts[0]:,} lines each: {relation.words}; say "
        "--task target if line n of one belongs to line n of the other, --task label if each file "
        "is a class, --task next if they are one corpus"
    )


def _as_labels(line: str) -> InferredTask:
    return InferredTask("label", "by the names of the files", line)


def _classes_line(files: Sequence[Path], why: str) -> str:
    names = _listed(map(class_of, files))
    return (
        f"reading {len(files)} files as classes ({names}), because {why}; --task next reads them "
        "as one corpus for a language model"
    )


def _listed(names: Iterable[str]) -> str:
    shortened = [name[:40] for name in names]
    return ", ".join(shortened[:SHOWN]) + (
        f" and {len(shortened) - SHOWN} more" if shortened[SHOWN:] else ""
    )


def _other_columns_line(recipe: DataRecipe) -> str:
    """Return a hint at the other columns of a table, which could be predicted, or ""."""
    source = open_texts(recipe)
    columns = getattr(source._layout, "columns", ())
    if len(columns) < 2:
        return ""
    others = [name for name in columns if name not in source.columns]
    return (
        f"reading column {source.columns[0]!r} as texts for a language model; --target COLUMN "
        f"predicts another: {_listed(others)}"
    )


def _first_words_line(files: Sequence[Path], recipe: DataRecipe) -> str:
    """Return a hint at labels at the beginnings of lines, or ""."""
    if recipe.format != "auto" or not files or detect(files, recipe.encoding)[0] != "lines":
        return ""
    lines = head(files[0], recipe.encoding)[0].splitlines()[:MANY]
    firsts = Counter(line.split(maxsplit=1)[0] for line in lines if len(line.split()) > 2)
    rare = sum(count < FEW for count in firsts.values())
    if not 1 < len(firsts) <= len(lines) / MANY_A_LABEL or firsts.total() < 0.95 * len(lines):
        return ""
    if rare > 0.2 * len(firsts):
        return ""
    return (
        f"the lines begin with one of {len(firsts)} words ({_listed(firsts)}); if these are "
        "labels: --task label --set data.format=labelled"
    )


def _differing_words(files: Sequence[Path]) -> list[list[str]]:
    """Return the words of each file name without common prefixes and suffixes.

    Files with equal names are compared with their folders.
    """
    names = [class_of(path) for path in files]
    if len(set(names)) < len(names):
        names = [str(path.parent / class_of(path)) for path in files]
    parts = [re.split(r"[/._\- ]+", name) for name in names]
    for end in (0, -1):
        while all(parts) and len({part[end] for part in parts}) == 1:
            parts = [part[1:] if end == 0 else part[:-1] for part in parts]
    return parts


def _are_splits(files: Sequence[Path]) -> bool:
    """Whether the names differ in words like train, valid or test."""
    words = [{word.lower() for word in rest} for rest in _differing_words(files)]
    shared = words[0].intersection(*words[1:])
    return any((words_of_file - shared) & PART_NAMES for words_of_file in words)


def _are_parts(files: Sequence[Path]) -> bool:
    """Whether the names are parts of one data set, such as part-1 and part-2, train and test."""
    if _are_splits(files):
        return True
    rest = [" ".join(words).lower() for words in _differing_words(files)]
    return len({re.sub(r"\d+", "", words) for words in rest}) < len(files)


def _are_opposite(files: Sequence[Path]) -> bool:
    """Whether one of the names is the negation of another, as in pos and neg."""
    names = [set(re.split(r"[/._\- ]+", class_of(path).lower())) for path in files]
    negative = [bool(words & NEGATIVE) for words in names]
    return any(negative) and (not all(negative) or any(words & POSITIVE for words in names))


def differ_by_class(files: Sequence[Path]) -> bool:
    """Whether file names differ in one word that may name a class, or are opposite."""
    if not 2 <= len(files) <= MAX_CLASS_FILES or len(set(map(class_of, files))) < len(files):
        return False
    if _are_parts(files):
        return False
    rest = _differing_words(files)
    if all(len(words) == 1 and len(words[0]) > 1 for words in rest):
        return True
    return _are_opposite(files) and all(len(words) <= MAX_WORDS for words in rest)
