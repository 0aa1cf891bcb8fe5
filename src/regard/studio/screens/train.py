"""The screen *Train*: files, the plan of `regard train --dry-run`, then training, which can be
stopped and resumed. What it runs is a command line, which it shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UsageError, UserError, did_you_mean, quoted
from regard.run_folders import NOT_FINISHED, describe
from regard.storage import read_json
from regard.studio.jobs import command_line, file_word, option_words
from regard.studio.opened import UPLOADS
from regard.studio.screens import Screen, action, check_arguments, register_screen

if TYPE_CHECKING:
    from regard.data.table_columns import Column
    from regard.recipe import DataRecipe

MOST_FILES = 200  # that are listed
SETTINGS = Path(__file__).parents[1] / "settings.json"  # docs/reference/recipe.md as data
SETTING = re.compile(r"[a-z]\w*(\.[a-z]\w*)*", re.ASCII)
COMMAND_LINE = "the command line only"
FIELDS = {  # what else sets a key of the recipe
    "data.train": "the files above",
    "data.valid": "--valid",
    "data.test": "--test",
    "data.input": "--input",
    "data.target": "--target",
    "data.strict": "--strict",
    "data.labels": COMMAND_LINE,
    "model.name": "--model",
    "train.init_from": "--pretrain",
    "train.minutes": "--minutes",
    "train.film": "--film",
    "train.log": COMMAND_LINE,
    "task.forbid": COMMAND_LINE,
}
SPLIT_FILES = ("data.train", "data.valid", "data.test", "train.init_from")
ELSEWHERE = {*SPLIT_FILES, "forbid", *(key for key in FIELDS if FIELDS[key] == COMMAND_LINE)}
NO_FILE = ("", "unseen")  # values of task.forbid that name no file
NAME = re.compile(r"\w[\w.+-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What to train: the arguments and options of `regard train`."""

    files: list[str]
    input: str = ""
    target: str = ""
    task: str = ""
    model: str = ""
    valid: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    pretrain: str = ""  # a file, or a run
    minutes: float = 0.0  # 0: as many as regard chooses
    out: str = ""  # the name of the run
    strict: bool = False
    film: bool = False
    settings: list[str] = field(default_factory=list)  # table.key=VALUE, or NAME=VALUE of an option

    def words(self, out: str) -> list[str]:
        """Return the words of the command that writes into a run folder."""
        options = {
            "--input": self.input,
            "--target": self.target,
            "--task": self.task,
            "--model": self.model,
            "--pretrain": file_word(self.pretrain),
            "--minutes": f"{self.minutes:g}" if self.minutes else "",
            "--out": out,
        }
        held_out = [("--valid", name) for name in self.valid] + [("--test", n) for n in self.test]
        return [
            "train",
            *map(file_word, self.files),
            *(word for option, name in held_out for word in (option, file_word(name))),
            *option_words(options),
            *(word for word, given in (("--strict", self.strict), ("--film", self.film)) if given),
            *(word for setting in self.settings for word in setting_words(setting)),
        ]


def setting_words(setting: str) -> list[str]:
    """Return the words of a setting: those of tasks and modalities are options of their own."""
    key, _, value = setting.partition("=")
    return ["--set", setting] if "." in key else option_words({option_of(key): value})


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
        return {
            "tasks": tasks,
            "models": models | {"": every},
            "files": self.files(),
            "runs": self.starts(),
        }

    def starts(self) -> list[str]:
        """Return the runs whose models pre-train others, as --pretrain takes them."""
        from regard.registry import TASKS

        kinds = {task.pretrains_with for task in TASKS.values()}
        finished = [one for one in self.opened.folders() if not one.state]
        return [str(self.opened.from_data(one.path)) for one in finished if kinds & {one.task}]

    @action
    def settings(self) -> dict[str, Any]:
        """Return every key of a recipe with what it does, its default and what it may be; `name` is
        how a setting is written here, `field` what else sets it.
        """
        rows = read_json(SETTINGS, list[dict[str, Any]])
        options = options_of_settings()
        return {
            "settings": [
                row
                | {
                    "name": name
                    if (name := row["key"].partition(".")[2]) in options
                    else row["key"],
                    "field": FIELDS.get(row["key"], ""),
                }
                for row in rows
            ]
        }

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
            return {"columns": [], "question": None, "lines": [], "modalities": []}
        self.opened.check_columns(input, target)
        data = DataRecipe(train=tuple(map(str, paths)), input=input, target=target)
        format = table_format(data, paths)
        columns = columns_in(paths[0], format) if format else []
        question, lines, read = None, list[str](), list[str]()
        try:
            chosen, lines = complete_data(data, task)
            read = modalities_of(replace(data, **chosen))
        except UsageError as error:
            question = {"text": str(error), "details": list(error.details)}
        return {
            "columns": list(map(describe_column, columns)),
            "question": question,
            "lines": lines,
            "modalities": read,
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
        order = self.confined(order)
        if order.minutes < 0:
            raise UsageError(f"minutes must be positive, got {order.minutes:g}")
        if order.out and not all(map(NAME.fullmatch, order.out.split("/"))):
            allowed = "letters and digits, then also '.', '-' and '+'"
            raise UsageError(f"the name of a run has {allowed}, got {quoted(order.out)}")
        first = self.opened.data_folder / order.files[0]
        folder = (
            self.opened.path(order.out)
            if order.out
            else default_folder(first, order.model, False, self.opened.root)
        )
        out = str(self.opened.from_data(folder))
        return order.words(out), self.opened.name(folder)

    def confined(self, order: TrainingRequest) -> TrainingRequest:
        """Return an order whose files are all within reach; raise a UserError that names another,
        or a setting that names a file.
        """

        def within(names: Sequence[str]) -> list[str]:
            return [str(self.opened.data(name)) for name in names]

        self.opened.check_columns(order.input, order.target)
        for setting in order.settings:
            check_setting(setting)
            self.opened.check_columns(setting.partition("=")[2])
        return replace(
            order,
            files=within(order.files),
            valid=within(order.valid),
            test=within(order.test),
            pretrain="".join(within([order.pretrain] if order.pretrain else [])),
        )

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
    options = options_of_settings()
    if "." not in key and key not in options:
        raise UsageError(f"no setting {quoted(key)}; {did_you_mean(key, options)}")
    if "/" in value or "\\" in value or (key in ELSEWHERE and value not in NO_FILE):
        raise UsageError(f"{key} names a file or a service: set it on the command line")


def options_of_settings() -> list[str]:
    """Return the settings of tasks and modalities that are options of `regard train`."""
    from regard.planning import settings_of
    from regard.registry import MODALITIES, TASKS

    owners = (registry[name] for registry in (TASKS, MODALITIES) for name in registry)
    names = dict.fromkeys(name for owner in owners for name in settings_of(owner))
    return [name for name in names if name not in TrainingRequest.__dataclass_fields__]


def modalities_of(data: DataRecipe) -> list[str]:
    """Return the modalities that files may be of: texts may be sequences or molecules, too."""
    from regard.data.sources import recognize_modality
    from regard.data.task_inference import LABELS
    from regard.registry import MODALITIES

    try:
        name = recognize_modality(data, LABELS)
    except UserError:
        return []
    texts = [one for one in MODALITIES if MODALITIES[one].reads_text]
    return texts if name in texts else [name]


def describe_column(column: Column) -> dict[str, Any]:
    """Return a column of a table as the page shows it."""
    return {
        "name": column.name,
        "words": column.words,
        "type": column.kind.name,
        "is_target": column.kind.is_target,
        "is_input": bool(column.kind.rank),
    }
