"""Tasks: what a model is trained for, measured by and used as.

A task brings together defaults, batches, loss, metrics, pipeline and page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

    from regard.data import Roles
    from regard.data.corpus import Corpus
    from regard.data.shards import Shard
    from regard.data.targets import OutputKind, TargetColumn
    from regard.evaluation import Metric
    from regard.evaluation.comparison import Comparison
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.page import Page
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.comparison_runs import RunResult
    from regard.training.trainer import Trainer, TrainingOutcome


Tables = dict[str, Any]  # of a recipe that is being planned


@dataclass(frozen=True)
class Card:
    """What users see of a task: the commands that apply to its runs, and the metrics shown."""

    verbs: tuple[str, ...]  # "{run}" is the run folder; the most useful command first
    metrics: tuple[str, ...] = ()  # in the model card; empty: all


@dataclass(frozen=True)
class LookRequest:
    """What `regard look` asks for."""

    text: str = ""
    target: str = ""
    beams: int = 0  # 0 = the task's default
    device: str = "cpu"
    record: int | None = None  # of the held-out ones, to be looked at by itself
    log: Callable[[str], None] = print

    def model(self, run: Run) -> Any:
        """Return the model of a run on the device."""
        from regard.training.step import choose_device

        return run.model().to(choose_device(self.device))


class Task(ABC):
    """What a model predicts. `config` is the recipe's table [task].

    Importing a module with a task must be cheap: options of the command line come from its Config,
    so heavy imports belong inside methods.
    """

    name: ClassVar[str]
    model_task: ClassVar[str]  # models registered for it are used, also by subclasses
    purpose: ClassVar[str]  # for messages, such as "language modelling"
    Config: ClassVar[type]
    roles: ClassVar[Roles]
    card: ClassVar[Card]
    measures_all: ClassVar[bool] = False  # of held-out splits, whatever the time
    compares: ClassVar[bool] = True  # `regard compare` has rows for it
    starts_from: ClassVar[tuple[str, ...]] = ()  # tasks whose runs train.init_from may name
    keeps_head: ClassVar[bool] = True  # of a run that it starts from
    lends_embeddings: ClassVar[bool] = False  # other tasks start from its embeddings alone
    pretrains_with: ClassVar[str] = ""  # the task of --pretrain FILE
    shows_records: ClassVar[bool] = False  # `page` can be about one held-out record
    own_options: ClassVar[tuple[str, ...]] = ()  # options that no other task has: they imply it

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @property
    def kind(self) -> OutputKind:
        """The kind of labels; undecided for tasks without labels."""
        from regard.data.targets import UNDECIDED

        return UNDECIDED

    @classmethod
    def suggest(
        cls, columns: Sequence[TargetColumn], names: Sequence[str], *, texts: bool
    ) -> str | None:
        """Return why these columns of targets are for this task, or None if they are not; `texts`
        says whether targets may be texts rather than labels.
        """
        return None

    @abstractmethod
    def defaults(self, tables: Tables) -> list[str]:
        """Fill in what the tables leave open; return lines that say what was chosen and why."""

    @abstractmethod
    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        """Return the metrics of a trained model on a part of a split; store predictions."""

    def result(self, run: Run, facts: dict[str, Any], shared: Path) -> RunResult:
        """Return what a row of a comparison is made of; `shared` has the data of all rows."""
        raise UsageError(
            f"task {self.name} has no table of models; `regard evaluate` has --against"
        )

    @abstractmethod
    def pipeline(self, run: Run, model: Any) -> Any:
        """Return what `regard.load` gives."""

    def ensemble(self, pipeline: Any, runs: Sequence[Run], models: Sequence[Any]) -> Any:
        """Return a pipeline in which other models predict together with the first."""
        raise UsageError(f"--ensemble is for translations; {pipeline.run} is of task {self.name}")

    @abstractmethod
    def page(self, run: Run, request: LookRequest) -> Page:
        """Return the page of `regard look`."""

    def add_to_comparison(self, page: Page, comparison: Comparison) -> None:
        """Add what this task alone shows to the page of `regard compare`; by default nothing."""
        return

    def metadata(self, model: Any, corpus: Corpus) -> dict[str, Any]:
        """Return what else regard.json says of a finished run."""
        return {}


class GradientTask(Task):
    """A task whose neural models are trained by gradient steps (`training.trainer.Trainer`)."""

    stores_last: ClassVar[bool] = False  # weights, not those of the best validation

    @abstractmethod
    def loader(self, model: Any, corpus: Corpus, recipe: Recipe, *, captured: bool) -> Any:
        """Return the training batches; steps that are `captured` as CUDA graphs want few shapes."""

    @abstractmethod
    def objective(self, model: Any, corpus: Corpus, recipe: Recipe, constrain: Any) -> nn.Module:
        """Return the module that maps the tensors of a batch to its loss."""

    @abstractmethod
    def validation_loss(
        self, trainer: Trainer, shard: Shard, stop: Callable[[], object]
    ) -> MeanLoss:
        """Return the mean loss of the model in training on a shard."""


def loader_options(model: Any, corpus: Corpus, recipe: Recipe) -> dict[str, Any]:
    """Return the options that all loaders of batches share."""
    import numpy as np

    train, source = recipe.train, corpus.train.source
    longest = (1 if corpus.source_tokenizer is None else 2) * model.config.max_len
    if source is not None and not source.cuttable:  # items are never cut
        longest += int(np.diff(source.offsets).max())
    return {
        "max_len": model.config.max_len,
        "batch_tokens": train.batch_tokens,
        "seed": train.seed,
        "micro_tokens": max(train.micro_tokens, longest),
        "supports_packing": model.supports_packing,
    }


def augmentation_module(model: Any, recipe: Recipe, *, aligned: bool = False) -> nn.Module | None:
    """Return the module that changes the batches of a recipe with augmentation."""
    augmentation = recipe.augmentation()
    module: nn.Module | None = (
        augmentation.module(model.config, aligned=aligned) if augmentation else None
    )
    return module
