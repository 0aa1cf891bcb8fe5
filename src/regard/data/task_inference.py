"""What files are read as where no task is given: pairs, classes, targets of a table, or one corpus.

A guess is printed with its reason and with the option that reads the files otherwise. Where the
files could well be two things, the user is asked instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.archives import is_archive
from regard.data.class_folders import class_folders
from regard.data.formats import detect, expand
from regard.data.labelled import LabelledFiles, class_of
from regard.data.pairs import NO_SIDES, correlation, count_lines, looks_paired
from regard.data.point_clouds import form_of
from regard.data.readers import TABLES
from regard.data.report import task_of
from regard.data.sources import DataSource
from regard.data.tables import TableReader
from regard.errors import UsageError
from regard.recipe import NUMBERED, DataRecipe
from regard.registry import TASKS

# Words of a name that make a file the opposite of one that lacks them, or has one of the others.
NEGATIVE = {"non", "not", "no", "neg", "negative", "negatives", "decoy", "decoys", "background"}
POSITIVE = {"pos", "positive", "positives"}
MOST = 50  # files of which each may be a class by its name
SHOWN = 4  # names of files or columns listed


@dataclass(frozen=True)
class InferredTask:
    """A task, the reason for it, and a line that says what was decided and what else there is; no
    line where there was nothing to decide.
    """

    task: str
    why: str = ""
    line: str = ""


def infer_task(recipe: DataRecipe, model: str = "") -> InferredTask:
    """How the files of a recipe are read where no task is given. A model that only one reading has
    decides it. UsageError where the user has to say.
    """
    files = [Path(path) for path in recipe.train]
    shown = recipe.format in NUMBERED or form_of(files)
    if recipe.target or recipe.labels or recipe.format == "labelled" or shown:
        return _by_targets(recipe)
    only = _only(model)
    if only != "next" and files and (found := class_folders(files)):
        names = dict.fromkeys(name for _, name in found)
        line = f"reading {len(names)} folders as classes ({_listed(names)})"
        if not any(map(is_archive, files)):
            line += "; --task next reads all files as one corpus"
        return InferredTask("label", "by the names of the folders", line)
    if only == "next" or recipe.format == "text" or not files:
        return InferredTask("next")
    if only != "label" and (why := looks_paired(files)):
        other = "--task label makes each file a class, --task next reads one corpus"
        return InferredTask("target", line=f"reading 2 files as parallel text ({why}); {other}")
    listed = expand(files)
    if len(listed) > 1:
        return _several(recipe, files, listed, only)
    return InferredTask("next", line=_columns(recipe))


def _only(model: str) -> str:
    """The task of a model that cannot be trained for any other that files alone suggest."""
    tasks = [task for task in ("next", "target", "label") if model in TASKS[task]]
    return tasks[0] if len(tasks) == 1 else ""


def _by_targets(recipe: DataRecipe) -> InferredTask:
    """The task that targets suggest."""
    source = DataSource(recipe, "labelled").train
    if not isinstance(source, LabelledFiles):
        return InferredTask("next")
    task, why = task_of(source)
    if task == "target" and source.format in TABLES and not recipe.input:
        raise UsageError(
            f"{source.files[0]}: column {recipe.target!r} holds different texts ({why}); say "
            "--task label if they are classes, or name the column to predict them from with --input"
        )
    return InferredTask(task, why)


def _several(
    recipe: DataRecipe, given: Sequence[Path], files: Sequence[Path], only: str
) -> InferredTask:
    """What more than one file are whose names are not those of two languages: pairs by what their
    lines say, classes, or one corpus.
    """
    if only == "label":
        return _labelled(_as_classes(files, "the model is a classifier"))
    format = recipe.format if recipe.format != "auto" else detect(files, recipe.encoding)[0]
    named = given == files and format in ("lines", "fasta", "smi") and differ_by_class(files)
    two = format in ("lines", "text") and len(files) == 2 and not _parts(files)
    if two and (reading := _maybe_paired(recipe, files, named)) is not None:
        return reading
    if named:
        return _labelled(_as_classes(files, "their names differ in one word"))
    hint = ""
    if given == files and _sides(files):
        hint = "; --valid FILE and --test FILE hold a file out"
    label = "--task label" + (" --set data.format=lines" if format == "text" else "")
    line = (
        f"reading {len(files):,} files as one corpus for a language model (--task next); {label} "
        f"makes each file a class{hint}"
    )
    return InferredTask("next", line=line)


def _maybe_paired(recipe: DataRecipe, files: Sequence[Path], named: bool) -> InferredTask | None:
    """What two files of as many lines are; None where they have nothing to do with each other, or
    other numbers of lines.
    """
    counts = [count_lines(path) for path in files]
    if counts[0] != counts[1] or counts[0] < 2:
        return None
    found = correlation(files, recipe.encoding)
    if found.alike:
        line = f"reading 2 files of {counts[0]:,} lines as parallel text: {found.words}"
        return InferredTask("target", line=f"{line}; --task label makes each file a class")
    if named and (found.alike is False or _opposite(files)):
        line = _as_classes(files, f"their names differ in one word and their {found.words}")
        return _labelled(f"{line}, --task target line n of both as a pair")
    raise UsageError(
        f"{files[0].name} and {files[1].name} have {counts[0]:,} lines each: {found.words}; say "
        "--task target if line n of one belongs to line n of the other, --task label if each file "
        "is a class, --task next if they are one corpus"
    )


def _labelled(line: str) -> InferredTask:
    return InferredTask("label", "by the names of the files", line)


def _as_classes(files: Sequence[Path], why: str) -> str:
    names = _listed(map(class_of, files))
    return (
        f"reading {len(files)} files as classes ({names}), because {why}; --task next reads them "
        "as one corpus for a language model"
    )


def _listed(names: Iterable[str]) -> str:
    found = [name[:40] for name in names]
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if found[SHOWN:] else "")


def _columns(recipe: DataRecipe) -> str:
    """What one can predict of a table, instead of its text."""
    source = DataSource(recipe, "next").train
    layout = source._layout
    if not isinstance(layout, TableReader) or len(layout.columns) < 2:
        return ""
    others = [name for name in layout.columns if name not in layout.names]
    return (
        f"reading column {layout.names[0]!r} as texts for a language model; --target COLUMN "
        f"predicts another: {_listed(others)}"
    )


def _words(path: Path) -> set[str]:
    return set(re.split(r"[/._\- ]+", class_of(path).lower()))


def _remainders(files: Sequence[Path]) -> list[list[str]]:
    """The words of the names, less those that all begin or end with; of the folders too, where the
    files have one name.
    """
    names = [class_of(path) for path in files]
    if len(set(names)) < len(names):
        names = [str(path.parent / class_of(path)) for path in files]
    parts = [re.split(r"[/._\- ]+", name) for name in names]
    for end in (0, -1):
        while all(parts) and len({part[end] for part in parts}) == 1:
            parts = [part[1:] if end == 0 else part[:-1] for part in parts]
    return parts


def _sides(files: Sequence[Path]) -> bool:
    """Do names differ in being those of training, validation or test?"""
    words = [{word.lower() for word in rest} for rest in _remainders(files)]
    shared = words[0].intersection(*words[1:])
    return any((own - shared) & NO_SIDES for own in words)


def _parts(files: Sequence[Path]) -> bool:
    """Do names number or name the parts of one whole, such as part-1 and part-2, train and test?"""
    if _sides(files):
        return True
    rest = [" ".join(words).lower() for words in _remainders(files)]
    return len({re.sub(r"\d+", "", words) for words in rest}) < len(files)


def _opposite(files: Sequence[Path]) -> bool:
    """Do the names say that one of two files is what the other is not?"""
    words = [_words(path) for path in files]
    return any(found & NEGATIVE for found in words) and (
        any(not found & NEGATIVE for found in words) or any(found & POSITIVE for found in words)
    )


def differ_by_class(files: Sequence[Path]) -> bool:
    """Do the names of files differ in one word that can name a class, or in being the opposite?"""
    if not 2 <= len(files) <= MOST or len(set(map(class_of, files))) < len(files):
        return False
    if _parts(files):
        return False
    rest = _remainders(files)
    if all(len(words) == 1 and len(words[0]) > 1 for words in rest):
        return True
    return _opposite(files) and all(len(words) <= SHOWN + 1 for words in rest)
