"""What the studio has opened: a folder of runs with their models and results worth keeping, and the
folder that data files are read from, which is where the studio was started.

Nothing outside of the two can be named: a name is a path relative to one of them, without "..", and
what it leads to must lie inside.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import UserError, quoted
from regard.run_folders import CONFIG, WEIGHTS, RunEntry, find, is_comparison, is_run, winner
from regard.studio.jobs import Jobs

if TYPE_CHECKING:
    from regard.pipelines import Pipeline
    from regard.run import Run

PIPELINES = 4  # models in memory
RESULTS = 64
UPLOADS = "uploads"  # the folder, among the runs, of files that were dropped on the page
Value = TypeVar("Value")


@dataclass
class _Slot:
    lock: Lock = field(default_factory=Lock)
    value: Any = None
    filled: bool = False


class Cache:
    """The values that were asked for last. What two threads ask for at once is made once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = Lock()
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; `make` makes it if there is none."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > self.most:
                self._slots.popitem(last=False)
        with slot.lock:
            if not slot.filled:
                slot.value, slot.filled = make(), True
        value: Value = slot.value
        return value


class Opened:
    """A folder of runs; or one run, which is then the only one of its folder that is shown."""

    def __init__(self, root: str | Path, data: str | Path = ".") -> None:
        self.shown = Path(root)
        self.root = self.shown.parent if is_run(self.shown) else self.shown
        self.data_folder = Path(data)
        self.jobs = Jobs(self.data_folder)
        self._pipelines = Cache(PIPELINES)
        self._results = Cache(RESULTS)

    def folders(self) -> list[RunEntry]:
        """Return the runs and comparisons, the newest first."""
        return find(self.shown) if self.shown.is_dir() else []

    def name(self, path: Path) -> str:
        """Return the name of a folder or file: its path relative to the folder of runs."""
        return path.relative_to(self.root).as_posix()

    def path(self, name: str) -> Path:
        """Return the path of a name; raise a UserError unless it leads into the folder of runs."""
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or name.startswith("/") or "\\" in name or "\0" in name:
            raise UserError(f"{quoted(name)} is no name in {self.root}")
        path = self.root.joinpath(*parts)
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise UserError(f"{quoted(name)} leads out of {self.root}")
        return path

    def data(self, name: str) -> Path:
        """Return the path of a data file or folder, as a command in the folder of data takes it;
        raise a UserError unless it is there.
        """
        path = Path(name)
        inside = name and "\0" not in name and self.is_inside(self.data_folder / path)
        if not inside:
            raise UserError(
                f"{quoted(name)} is neither in {self.data_folder.resolve()} nor in {self.root}; "
                "drop the file on the page, or start `regard studio` in the folder that has it"
            )
        if not (self.data_folder / path).exists():
            raise UserError(f"{quoted(name)}: no such file or folder")
        return path

    def check_columns(self, *names: str) -> None:
        """Raise a UserError if columns that are named, A,B, are files out of reach: the targets of
        arrays may stand in a file of their own.
        """
        for name in (part.strip() for text in names for part in (text, *text.split(","))):
            if name and os.path.exists(self.data_folder / name):
                self.data(name)

    def is_inside(self, path: Path) -> bool:
        """Return whether a path leads into the folder of runs or that of data."""
        folders = (self.data_folder.resolve(), self.root.resolve())
        return any(path.resolve().is_relative_to(folder) for folder in folders)

    def from_data(self, path: Path) -> Path:
        """Return a path within the folder of runs as a command in the folder of data takes it."""
        relative = os.path.relpath(path, self.data_folder)
        return path.resolve() if relative.startswith("..") else Path(relative)

    def folder(self, name: str) -> Path:
        """Return the folder of a run or a comparison."""
        path = self.path(name)
        if not is_run(path) and not is_comparison(path):
            raise UserError(f"{quoted(name)}: no such run in {self.root}")
        return path

    def run(self, name: str) -> Run:
        """Return a run; of a comparison that of its best row."""
        from regard.run import Run

        return Run.open(self.folder(name))

    def pipeline(self, name: str) -> Pipeline:
        """Return the model of a run, ready to use; it is loaded anew if its weights changed."""
        from regard.pipelines import load

        version = self.version(name)
        pipeline: Pipeline = self._pipelines.get(version, lambda: load(version[0]))
        return pipeline

    def version(self, name: str) -> tuple[Path, tuple[int, ...]]:
        """Return the folder of a run's model and when that was written: what its results depend
        on, to be part of the key of `cached`.
        """
        folder = self.folder(name)
        run = winner(folder) or folder
        files = [run / file for file in (CONFIG, WEIGHTS) if (run / file).exists()]
        return run, tuple(file.stat().st_mtime_ns for file in files)

    def cached(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return a result that was made before under this key, or make it. The key holds all that
        the result depends on.
        """
        return self._results.get(key, make)
