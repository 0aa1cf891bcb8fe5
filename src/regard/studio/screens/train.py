"""The screen *Train*: files, the plan of `regard train --dry-run`, then training, which can be
stopped and resumed. What it runs is a command line, which it shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from regard.errors import UsageError, quoted
from regard.run_folders import NOT_FINISHED, describe
from regard.studio.jobs import command_line, file_word, option_words
from regard.studio.opened import UPLOADS
from regard.studio.screens import Screen, action, check_arguments, register_screen

if TYPE_CHECKING:
    from regard.data.table_columns import Column

MOST_FILES = 200  # that are listed
SETTING = re.compile(r"[a-z]\w*(\.[a-z]\w*)+", re.ASCII)
FILES = ("data.train", "data.valid", "data.test", "data.labels", "train.init_from", "train.log")
NAME = re.compile(r"\w[\w.+-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What to train: the arguments and options of `regard train`."""

    files: list[str]
    input: str = ""
    target: str = ""
    task: str = ""
    model: str = ""
    minutes: float = 0.0  # 0: as many as regard chooses
    out: str = ""  # the name of the run
    settings: list[str] = field(default_factory=list)  # KEY=VALUE of the recipe

    def words(self, out: str) -> list[str]:
        """Return the words of the command that writes into a run folder."""
        options = {
            "--input": self.input,
            "--target": self.target,
            "--task": self.task,
            "--model": self.model,
            "--minutes": f"{self.minutes:g}" if self.minutes else "",
            "--out": out,
        }
        settings = [word for setting in self.settings for word in ("--set", setting)]
        return ["train", *map(file_word, self.files), *option_words(options), *settings]


@register_screen("train", title="Train")
class Train(Screen):
    """Training in a process of its own."""

    @action
    def choices(self) -> dict[str, Any]:
        """Return the files that lie about, the tasks, and the models of each."""
        from regard.registry import MODELS, TASKS

        tasks = [{"name": name, "purpose": TASKS[name].purpose} for name in TASKS]
        models = {name: list(MODELS.names(name)) for name in TASKS}
        every = sorted({model for names in models.values() for model in names})
        return {"tasks": tasks, "models": models | {"": every}, "files": self.files()}

    def files(self) -> list[str]:
        """Return the files of the folder of data, and those that were uploaded."""
        folder, uploads = self.opened.data_folder, self.opened.root / UPLOADS
        paths = [path for path in folder.iterdir() if path.resolve() != self.opened.root.resolve()]
        paths += uploads.iterdir() if uploads.is_dir() else ()
        shown = (path for path in paths if not path.name.startswith("."))
        names = sorted(str(self.opened.from_data(path)) for path in shown)
        return [name for name in names if self.opened.is_inside(self.opened.data_folder / name)][
            :MOST_FILES
        ]

    @action
    def look(
        self, files: list[str], input: str = "", target: str = "", task: str = ""
    ) -> dict[str, Any]:
        """Return the columns of a table and, where more than one reading is possible, the question
        with its candidates, as regard lists them.
        """
        from regard.data.table_columns import columns_in, complete_data, table_format
        from regard.recipe import DataRecipe

        paths = [self.opened.data_folder / self.opened.data(name) for name in files]
        if not paths:
            return {"columns": [], "question": None, "lines": []}
        data = DataRecipe(train=tuple(map(str, paths)), input=input, target=target)
        format = table_format(data, paths)
        columns = columns_in(paths[0], format) if format else []
        question, lines = None, list[str]()
        try:
            lines = complete_data(data, task)[1]
        except UsageError as error:
            question = {"text": str(error), "details": list(error.details)}
        return {
            "columns": list(map(describe_column, columns)),
            "question": question,
            "lines": lines,
        }

    @action
    def command(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the command that trains, and the name of its run."""
        words, run = self.words(read_order(order))
        return {"command": command_line(words), "run": run}

    def words(self, order: TrainingRequest) -> tuple[list[str], str]:
        """Return the words of a command and the name of the run that it makes."""
        from regard.planning import default_folder

        if not order.files:
            raise UsageError("name a file to train on")
        files = [str(self.opened.data(name)) for name in order.files]
        for setting in order.settings:
            check_setting(setting)
        if order.minutes < 0:
            raise UsageError(f"minutes must be positive, got {order.minutes:g}")
        if order.out and not all(map(NAME.fullmatch, order.out.split("/"))):
            allowed = "letters and digits, then also '.', '-' and '+'"
            raise UsageError(f"the name of a run has {allowed}, got {quoted(order.out)}")
        first = self.opened.data_folder / files[0]
        folder = (
            self.opened.path(order.out)
            if order.out
            else default_folder(first, order.model, False, self.opened.root)
        )
        out = str(self.opened.from_data(folder))
        return replace(order, files=files).words(out), self.opened.name(folder)

    @action
    def plan(self, order: dict[str, Any]) -> dict[str, Any]:
        """Start `regard train --dry-run`; its lines are the plan."""
        words, _ = self.words(read_order(order))
        return self.opened.jobs.start([*words, "--dry-run"], "plan").to_json()

    @action
    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """Start training."""
        words, run = self.words(read_order(order))
        return self.opened.jobs.start(words, self.name, run).to_json()

    @action
    def resume(self, run: str) -> dict[str, Any]:
        """Go on with a run that was stopped."""
        folder = self.opened.folder(run)
        if describe(folder).state != NOT_FINISHED:
            raise UsageError(f"{run} is finished: there is nothing to go on with")
        words = ["train", file_word(str(self.opened.from_data(folder))), "--resume"]
        return self.opened.jobs.start(words, self.name, run).to_json()

    @action
    def jobs(self, screens: list[str]) -> dict[str, Any]:
        """Return the jobs of screens, the newest first."""
        jobs = self.opened.jobs.list()
        return {"jobs": [job.to_json() for job in jobs if job.screen in screens]}

    @action
    def job(self, number: int) -> dict[str, Any]:
        """Return a job: its state and its lines."""
        return self.opened.jobs.get(number).to_json()

    @action
    def stop(self, number: int) -> dict[str, Any]:
        """Stop a job, as Ctrl-C does: training is saved."""
        return self.opened.jobs.stop(number).to_json()


def read_order(values: Mapping[str, Any]) -> TrainingRequest:
    """Return an order; raise a UsageError that names an entry which is unknown or of another
    type.
    """
    return TrainingRequest(**check_arguments(TrainingRequest, values))


def check_setting(setting: str) -> None:
    """Raise a UsageError unless a setting is KEY=VALUE; what names a file, or sends metrics
    elsewhere, is for the command line.
    """
    key, equals, value = setting.partition("=")
    if not equals or not SETTING.fullmatch(key):
        raise UsageError(f"a setting is KEY=VALUE, such as train.lr=3e-4, got {quoted(setting)}")
    if key in FILES or "/" in value or "\\" in value:
        raise UsageError(f"{key} names a file or a service: set it on the command line")


def describe_column(column: Column) -> dict[str, Any]:
    """Return a column of a table as the page shows it."""
    return {
        "name": column.name,
        "words": column.words,
        "type": column.kind.name,
        "is_target": column.kind.is_target,
        "is_input": bool(column.kind.rank),
    }
