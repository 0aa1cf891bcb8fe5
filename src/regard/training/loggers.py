"""Loggers: programs that show the metrics of training besides metrics.jsonl.

`regard train FILE --log csv,tensorboard` names them; the recipe has them as train.log, so that a
run that is resumed goes on with its log. A logger is registered by its name, and gets every number
under the name EVENT/METRIC, such as valid/log_loss:

    @regard.registry.register_logger("print")
    class Printer(Logger):
        def log(self, step: int, values: Mapping[str, float]) -> None:
            print(step, dict(values))

Other packages name theirs as entry points of the group "regard.loggers".
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import UserError
from regard.evaluation import Metric
from regard.recipe import Recipe, tables
from regard.registry import LOGGERS
from regard.run import MetricsLog
from regard.storage import read_json, write_json, write_text

IDS = "loggers.json"  # in a run folder: the name that other programs have given to the run
PROJECT = "regard"  # where runs are listed, unless the variables of the program say otherwise


class Logger(ABC):
    """Receives the metrics of a run as they are measured."""

    packages: ClassVar[tuple[str, ...]] = ()  # modules that it needs, the first to be installed

    def __init__(self, run: Path, recipe: Recipe, step: int) -> None:
        """`step` is the last step of which the log of a run that is resumed has everything; steps
        after it are logged again. It is 0 for a new run.
        """
        self.run, self.recipe = run, recipe

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers by name."""

    def close(self) -> None:  # noqa: B027
        """Close the log; it may be opened again."""

    @classmethod
    def check(cls) -> None:
        """Raise a UserError that names the command to install what is missing."""
        for name in cls.packages:
            try:
                import_module(name)
            except ImportError:
                package = cls.packages[0].partition(".")[0]
                raise UserError(
                    f"--log needs {package}, which is not installed: pip install {package}"
                ) from None

    def stored_id(self, name: str) -> str:
        """Return the id of the run under which another program stores it, or ""."""
        path = self.run / IDS
        return str(read_json(path, dict[str, str]).get(name, "")) if path.exists() else ""

    def store_id(self, name: str, value: str) -> None:
        """Store the id, so that a run that is resumed goes on under it."""
        path = self.run / IDS
        ids = read_json(path, dict[str, str]) if path.exists() else {}
        write_json(path, ids | {name: value})


class CsvLogger(Logger):
    """Writes RUN/metrics.csv: a row for each step, a column for each number."""

    def __init__(self, run: Path, recipe: Recipe, step: int) -> None:
        super().__init__(run, recipe, step)
        self.path = run / "metrics.csv"
        self.rows: dict[int, dict[str, str]] = {}
        if step and self.path.exists():
            with open(self.path, newline="", encoding="utf-8") as file:
                rows = [row for row in csv.DictReader(file) if (row["step"] or "").isdecimal()]
            self.rows = {int(row["step"]): row for row in rows if int(row["step"]) <= step}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        row = self.rows.setdefault(step, {"step": str(step)})
        row |= {name: f"{value:.10g}" for name, value in values.items()}
        columns = dict.fromkeys(name for row in self.rows.values() for name in row)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows.values())
        write_text(self.path, text.getvalue())


class TensorBoardLogger(Logger):
    """Writes RUN/tensorboard, for `tensorboard --logdir runs`."""

    packages = ("tensorboard",)

    def __init__(self, run: Path, recipe: Recipe, step: int) -> None:
        super().__init__(run, recipe, step)
        from torch.utils.tensorboard.writer import SummaryWriter

        purge = step + 1 if step else None  # steps from here on are logged again
        self.writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=purge)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WandbLogger(Logger):
    """A run of Weights & Biases, in the project of WANDB_PROJECT or else "regard"."""

    packages = ("wandb",)

    def __init__(self, run: Path, recipe: Recipe, step: int) -> None:
        super().__init__(run, recipe, step)
        wandb = import_module("wandb")
        self.session: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=str(run),
            dir=str(run),
            id=self.stored_id("wandb") or None,
            resume="allow",
            config=tables(recipe),
        )
        self.store_id("wandb", str(self.session.id))
        # a session that goes on would drop the values of steps that it has begun
        self.session.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.session.log({"step": step, **values})

    def close(self) -> None:
        self.session.finish()


class MlflowLogger(Logger):
    """A run of MLflow, in the experiment of MLFLOW_EXPERIMENT_NAME or else "regard"."""

    packages = ("mlflow",)

    def __init__(self, run: Path, recipe: Recipe, step: int) -> None:
        super().__init__(run, recipe, step)
        self.mlflow: Any = import_module("mlflow")
        self.mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        stored = self.stored_id("mlflow")
        named = {"run_id": stored} if stored else {"run_name": str(run)}
        session = self.mlflow.start_run(**named)
        if not stored:
            self.store_id("mlflow", str(session.info.run_id))
            for table, keys in tables(recipe).items():
                self.mlflow.log_params({f"{table}.{key}": value for key, value in keys.items()})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # names may have letters, digits and a few signs: not the parentheses of single targets
        allowed = str.maketrans("()", "  ")
        self.mlflow.log_metrics({k.translate(allowed): v for k, v in values.items()}, step=step)

    def close(self) -> None:
        self.mlflow.end_run()


NUMBERS = ("learning_rate", "gradient_norm", "standard_error", "seconds", "memory_bytes")


def numbers_of(event: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of an event of metrics.jsonl by name."""
    named = {name: values[name] for name in NUMBERS if name in values}
    if "metric" in values:
        named[str(values["metric"])] = values["value"]
    if "read_per_second" in values:
        named[f"{values['items']}_per_second".replace(" ", "_")] = values["read_per_second"]
    numbers = {f"{event}/{name}": value for name, value in named.items()}
    return {name: value for name, value in numbers.items() if abs(value) < float("inf")}


def check_loggers(recipe: Recipe) -> None:
    """Raise a UserError if a logger of a recipe lacks a package."""
    for name in recipe.train.log:
        LOGGERS[name].check()


Warn = Callable[[str], object]


class Group:
    """The loggers of a run. One that fails is left out with a warning: metrics.jsonl has all."""

    def __init__(self, run: Path, recipe: Recipe, step: int, warn: Warn) -> None:
        self.warn = warn
        self.loggers: dict[str, Logger] = {}
        for name in recipe.train.log:
            with self.guarded(name):
                self.loggers[name] = LOGGERS[name](run, recipe, step)

    @contextlib.contextmanager
    def guarded(self, name: str) -> Iterator[None]:
        """Turn a failure of a logger into a warning, and leave the logger out from now on."""
        try:
            yield
        except Exception as error:  # whatever other programs raise
            self.loggers.pop(name, None)
            reason = str(error).strip().splitlines()
            self.warn(f"--log {name} stopped: {reason[0] if reason else type(error).__name__}")

    def each(self, work: Callable[[Logger], None]) -> None:
        """Do some work with each logger."""
        for name, logger in list(self.loggers.items()):
            with self.guarded(name):
                work(logger)

    def receive(self, event: str, values: Mapping[str, Any]) -> None:
        """Log the numbers of an event of metrics.jsonl."""
        self.each(lambda logger: logger.log(values["step"], numbers_of(event, values)))


@contextlib.contextmanager
def opened(run: Path, recipe: Recipe, step: int, warn: Warn) -> Iterator[Group]:
    """Yield the loggers of a recipe, and close them."""
    group = Group(run, recipe, step, warn)
    try:
        yield group
    finally:
        group.each(lambda logger: logger.close())


@contextlib.contextmanager
def listening(
    metrics: MetricsLog, run: Path, recipe: Recipe, step: int, warn: Warn
) -> Iterator[None]:
    """Give the events that metrics.jsonl gets to the loggers of a recipe, too."""
    with opened(run, recipe, step, warn) as group:
        metrics.listeners = [group.receive]
        yield


def log_results(
    run: Path,
    recipe: Recipe,
    step: int,
    figures: Mapping[str, Mapping[str, Metric]],
    warn: Warn,
) -> None:
    """Log the final metrics of each held-out split."""
    values = {
        f"final/{split}_{name}": metric.value
        for split, metrics in figures.items()
        for name, metric in metrics.items()
        if abs(metric.value) < float("inf")
    }
    with opened(run, recipe, step, warn) as group:
        group.each(lambda logger: logger.log(step, values))
