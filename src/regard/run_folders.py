"""Folders of runs and comparisons: what they are called, where they are, what each is about.

Nothing here loads a model or reads data, so that a list of runs takes no time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import UserError
from regard.registry import TASKS
from regard.storage import Event, RunMetadata, StoredComparison, StoredRow, read_json, read_lines

CONFIG, WEIGHTS = "config.json", "model.safetensors"
RECIPE, METADATA, METRICS = "recipe.toml", "regard.json", "metrics.jsonl"
DATA = "data"  # the folder of encoded data
COMPARISON = "compare.json"
CANDIDATES = "candidates"  # the folder in a run of the models that were tried and not kept
FOLD = "fold-000"  # the first run of a row that is cross-validated
RUNS, LATEST = "runs", "latest"  # the folder of runs, and the link there to the newest
DEPTH = 4  # levels of folders in which runs are looked for
NOT_FINISHED, IMPORTED = "not finished", "imported"  # states of runs without metrics
CURVES = (  # event, key in metrics.jsonl, title
    ("train", "value", "training"),
    ("valid", "value", "validation"),
    ("train", "learning_rate", "learning rate"),
    ("train", "gradient_norm", "gradient norm"),
)
FACTS = ("metrics", "parameters", "steps", "epochs", "train_seconds", "device", "selection")
REPORTED = ("test", "valid")  # the first of these splits that was measured


def is_comparison(folder: Path) -> bool:
    """Return whether a folder holds a finished comparison."""
    return (folder / COMPARISON).is_file() and not (folder / CONFIG).exists()


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run, finished or not."""
    if (folder / CONFIG).is_file():
        return (folder / METADATA).is_file() or (folder / RECIPE).is_file()
    return (folder / RECIPE).is_file() and (folder / DATA).is_dir()


def winner(folder: Path) -> Path | None:
    """Return the run of the best row of a comparison; None if the folder holds none."""
    if not is_comparison(folder):
        return None
    return row_run(folder, read_json(folder / COMPARISON, StoredComparison)["rows"][0])


def row_run(folder: Path, row: StoredRow) -> Path | None:
    """Return the first run of a row of a comparison, whose folder may have been moved since; None
    if it is not in there.
    """
    model = row["model"]
    named = [Path(run).parts for run in row.get("runs", [])[:1]] or [(model,), (model, FOLD)]
    places = [folder.joinpath(*parts[-n:]) for parts in named for n in range(1, DEPTH)]
    inside = (path for path in places if path.is_relative_to(folder) and ".." not in path.parts)
    return next((path for path in inside if (path / CONFIG).is_file()), None)


def mark_latest(folder: Path, parent: Path = Path(RUNS)) -> None:
    """Let the link runs/latest lead to a run or a comparison; nothing is done where there is no
    folder called runs, or no links.
    """
    if not parent.is_dir() or not folder.is_dir():
        return
    link = parent / LATEST
    target = os.path.relpath(folder.resolve(), parent.resolve())
    temporary = parent / f".{LATEST}.{os.getpid()}.tmp"
    if link.is_symlink() or not link.exists():
        with contextlib.suppress(OSError, NotImplementedError):
            temporary.symlink_to(target, target_is_directory=True)
            os.replace(temporary, link)


class Measurement(NamedTuple):
    """A number that was measured during training, under its true name."""

    seconds: float
    value: float
    step: int
    metric: str
    unit: str


def measurements(folder: Path, event: str, key: str = "value") -> Iterator[Measurement]:
    """Yield the finite numbers under a key of the events of this name, train or valid, in
    metrics.jsonl.
    """
    for line in read_lines(folder / METRICS, Event):
        seconds, value = line.get("seconds"), line.get(key)
        if line["event"] == event and seconds is not None and value is not None:
            metric = line.get("metric", "loss") if key == "value" else key
            unit = line.get("unit", "") if key == "value" else ""
            yield Measurement(float(seconds), float(value), line.get("step", 0), metric, unit)


def curves_of(folder: Path) -> dict[str, list[Measurement]]:
    """Return the measurements of each curve by its title; none of a run without metrics.jsonl."""
    if not exists(folder, METRICS):
        return {title: [] for *_, title in CURVES}
    return {title: list(measurements(folder, event, key)) for event, key, title in CURVES}


def metadata_of(folder: Path) -> dict[str, Any]:
    """Return the metadata of a run; {} if it has none yet."""
    if not exists(folder, METADATA):
        return {}
    metadata: dict[str, Any] = read_json(folder / METADATA, RunMetadata)
    return metadata


def facts_of(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a run cost, in words."""
    for key, unit in (("parameters", "parameters"), ("steps", "steps")):
        if key in metadata:
            yield f"{metadata[key]:,} {unit}"
    if metadata.get("epochs"):
        yield f"{metadata['epochs']:.3g} epochs"
    if "train_seconds" in metadata:
        yield f"{metadata['train_seconds']:,.0f} s on {metadata.get('device', 'cpu')}"


def card(folder: Path) -> dict[str, Any]:
    """Return the document of `regard show --json`: the entry of a run, its metrics and curves."""
    metadata = metadata_of(folder)
    facts = {key: metadata[key] for key in FACTS if key in metadata}
    curves = {
        title: [[one.step, one.value] for one in points]
        for title, points in curves_of(folder).items()
        if points
    }
    return describe(folder).to_json() | facts | {"curves": curves}


@dataclass(frozen=True)
class RunEntry:
    """A run or a comparison in a list."""

    path: Path
    task: str = ""
    data: str = ""  # names of the training files
    model: str = ""
    metric: str = ""  # the one that ranks models, and its values
    values: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""
    state: str = ""  # where it is not done
    seconds: float = 0.0  # when it was written, since 1970
    bytes: int = 0

    @property
    def date(self) -> datetime:
        """When it was written."""
        return datetime.fromtimestamp(self.seconds)

    @property
    def result(self) -> str:
        """The metric with its interval, in words; or why there is none."""
        name, value = self.metric.replace("_", " "), self.values.get("value")
        if not self.metric:
            return self.state
        if value is None:
            return f"{name} infinite"
        interval = ""
        if "low" in self.values:
            interval = f" [{short_number(self.values['low'])}, {short_number(self.values['high'])}]"
        return f"{name} {short_number(value)}{interval}{', ' * bool(self.state)}{self.state}"

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `regard runs --json`."""
        metric = {"name": self.metric, "split": self.split, **self.values}
        return {
            "path": str(self.path),
            "task": self.task,
            "data": self.data,
            "model": self.model,
            "metric": metric if self.metric else None,
            "state": self.state or "done",
            "date": self.date.isoformat(timespec="seconds"),
            "bytes": self.bytes,
        }


def next_verbs(entry: RunEntry) -> Sequence[str]:
    """Return what `regard` can do with a trained run, with {run} in place of its folder."""
    if entry.state not in ("", IMPORTED) or entry.task not in TASKS:
        return ()
    verbs: Sequence[str] = TASKS[entry.task].card.verbs
    return verbs


def short_number(value: float) -> str:
    """Return a number with three digits, or all before the decimal point."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def find(root: Path) -> list[RunEntry]:
    """Return the runs and comparisons below a folder, the newest first; of a comparison its rows,
    and of a run itself.
    """
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; `regard train FILE` makes runs/NAME")
    folders = [root] if is_run(root) else list(_below(root, DEPTH))
    return sorted(map(describe, folders), key=lambda entry: -entry.seconds)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if not path.is_dir() or path.is_symlink() or path.name.startswith("."):
            continue
        if is_run(path) or is_comparison(path):
            yield path
        elif depth > 1:
            yield from _below(path, depth - 1)


def complete(beginning: str) -> list[str]:
    """Return the paths of runs and comparisons, and of folders on the way, that begin so."""
    parent, _, name = beginning.rpartition("/")
    folder = Path(parent or ".")
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    matching = [one for one in names if one.startswith(name) and not one.startswith(".")]
    prefix = f"{parent}/" if parent else ""
    paths = [Path(prefix + one) for one in matching]
    ends = ["" if is_run(path) else "/" for path in paths]
    return [f"{path}{end}" for path, end in zip(paths, ends, strict=True)]


def describe(folder: Path) -> RunEntry:
    """Return the entry of a run or a comparison; what is damaged is said there."""
    try:
        return describe_comparison(folder) if is_comparison(folder) else describe_run(folder)
    except (UserError, OSError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = str(error).removeprefix(f"{folder}/")
        return RunEntry(folder, state=reason or "damaged", seconds=folder.stat().st_mtime)


def describe_run(folder: Path) -> RunEntry:
    """Return the entry of a run."""
    recipe = read_recipe(folder)
    metadata = read_json(folder / METADATA, dict[str, Any]) if exists(folder, METADATA) else {}
    config = read_json(folder / CONFIG, dict[str, Any]) if exists(folder, CONFIG) else {}
    metrics = metadata.get("metrics", {})
    split = next((name for name in REPORTED if metrics.get(name)), "")
    name, values = next(iter(metrics[split].items())) if split else ("", {})
    newest = METADATA if exists(folder, METADATA) else RECIPE
    return RunEntry(
        folder,
        task=recipe.get("task", {}).get("name", config.get("task", "next")),
        data=file_names(recipe) or Path(metadata.get("imported_from", "")).name,
        model=config.get("family", recipe.get("model", {}).get("name", "")),
        metric=name,
        values=values,
        split=split,
        state=state_of(metadata),
        seconds=(folder / newest).stat().st_mtime,
        bytes=size_of(folder),
    )


def state_of(metadata: Mapping[str, Any]) -> str:
    """Return what a run without metrics is; "" for a run that was trained to its end."""
    if metadata.get("outcome"):
        return ""
    return IMPORTED if "imported_from" in metadata else NOT_FINISHED


def describe_comparison(folder: Path) -> RunEntry:
    """Return the entry of a comparison: that of its best row."""
    document = read_json(folder / COMPARISON, StoredComparison)
    best, run = document["rows"][0], winner(folder)
    metric = document["ranked_by"]
    count = len(document["rows"])
    return RunEntry(
        folder,
        task=document["task"],
        data=file_names(read_recipe(run)) if run else "",
        model=f"{best['model']}, best of {count}" if count > 1 else best["model"],
        metric=metric,
        values=best["metrics"].get(metric, {}),
        split=document["split"],
        seconds=(folder / COMPARISON).stat().st_mtime,
        bytes=size_of(folder),
    )


def exists(folder: Path, name: str) -> bool:
    """Return whether a folder has a file of this name."""
    return (folder / name).is_file()


def read_recipe(folder: Path) -> dict[str, Any]:
    """Return the tables of a recipe as they are; {} if there is none."""
    try:
        return tomllib.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / RECIPE} is damaged: {error}") from None


def file_names(recipe: Mapping[str, Any]) -> str:
    """Return the names of the training files of a recipe, the first two of many."""
    names = [Path(path).name for path in recipe.get("data", {}).get("train", [])]
    more = f" + {len(names) - 2}" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder; a file with two names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(parent, name))
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def check_removable(folder: Path) -> None:
    """Raise a UserError unless a folder is a run or a comparison, and nobody is in it."""
    target = folder.resolve()
    if not target.exists():
        raise UserError(f"{folder}: no such folder; nothing was removed")
    if not is_run(target) and not is_comparison(target):
        raise UserError(f"{folder}: neither a run nor a comparison; nothing was removed")
    if target in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"{folder}: the current folder is in it; nothing was removed")


def remove(folder: Path) -> None:
    """Remove a run or a comparison, and the link runs/latest if it leads there."""
    check_removable(folder)
    target = folder.resolve()
    for link in {folder, target.parent / LATEST, Path(RUNS) / LATEST}:
        if link.is_symlink() and link.resolve() == target:
            link.unlink()
    try:
        shutil.rmtree(target)
    except OSError as error:
        raise UserError(f"cannot remove {folder}: {error.strerror or error}") from None
