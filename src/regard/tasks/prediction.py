"""Prediction: a class, several labels, a value, or a class at each position of an input.

The four tasks differ in the kind of their labels (`data.targets.OutputKind`), from which follow the
head of the model, the metrics and the parts of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import Roles
from regard.errors import UsageError, UserError
from regard.registry import MODALITIES
from regard.tasks import (
    Card,
    GradientTask,
    LookRequest,
    Tables,
    augmentation_module,
    loader_options,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.data.batching import LabelledLoader
    from regard.data.corpus import Corpus
    from regard.data.shards import Shard
    from regard.data.targets import OutputKind, TargetColumn, Targets
    from regard.evaluation import Metric
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.page import Page
    from regard.pipelines.predictor import Predictor
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.comparison_runs import RunResult
    from regard.training.trainer import Trainer, TrainingOutcome

MAX_CLASSES = 20  # whole numbers of up to so many different values are classes
MAX_LETTERS = 20  # of labels of positions ...
MIN_LENGTH = 5  # ... which have at least so many positions on average
NUMERIC = 0.9  # share of numbers from which a column holds values

TASKS_WITH_HEADS = ("label", "labels", "value", "position-label", "masked")


@dataclass(frozen=True, kw_only=True)
class PredictionConfig:
    """Prediction has no settings besides those of its data."""

    name: str = "label"


class PredictionTask(GradientTask):
    """Predict labels or values of records."""

    Config: ClassVar[type] = PredictionConfig
    roles = Roles(input=True, labels=True)
    card = Card(
        verbs=(
            "predict {run} FILE",
            "evaluate {run}",
            "look {run}",
            "embed {run} FILE",
            "verify {run}",
        ),
    )
    starts_from = TASKS_WITH_HEADS
    shows_records = True
    keeps_head = False  # classes of one task mean nothing to another
    pretrains_with = "masked"

    def __init__(self, config: Any = None) -> None:
        super().__init__(config or self.Config(name=self.name))

    @property
    def kind(self) -> OutputKind:
        from regard.data.targets import OUTPUT_KINDS

        return OUTPUT_KINDS[self.model_task]

    def defaults(self, tables: Tables) -> list[str]:
        from regard.data.sources import DataSource, recognize_modality
        from regard.recipe import DataRecipe, check, modality_name, registered

        data, table = check("data", DataRecipe, tables["data"]), tables["input"]
        name = table.get("name") or recognize_modality(data, self.roles)
        if name == "text":
            name = modality_name(table)
        modality = MODALITIES[name](registered("input", MODALITIES, table, name))
        source = DataSource(data, self.roles, modality, kind=self.kind).train
        if modality.reads_text:
            tables["data"]["format"] = source.format
        else:
            table["name"] = name
        lines: list[str] = modality.defaults(tables, source, self.kind)
        if self.kind.single:
            tables["train"].setdefault("label_smoothing", 0.1)
        return lines

    def loader(
        self, model: Any, corpus: Corpus, recipe: Recipe, *, captured: bool
    ) -> LabelledLoader:
        from regard.data.batching import LabelledLoader

        options = loader_options(model, corpus, recipe)
        return LabelledLoader(corpus.train, corpus.tokenizer, few=captured, **options)

    def objective(self, model: Any, corpus: Corpus, recipe: Recipe, constrain: Any) -> nn.Module:
        from regard.training.objectives import SupervisedObjective

        train = recipe.train
        return SupervisedObjective(
            model,
            label_smoothing=train.label_smoothing,
            r_drop=train.r_drop,
            weights=class_weights(corpus) if train.class_weights else None,
            augment=augmentation_module(model, recipe, aligned=self.kind.aligned),
        )

    def validation_loss(
        self, trainer: Trainer, shard: Shard, stop: Callable[[], object]
    ) -> MeanLoss:
        from regard.data.batching import LabelledExamples

        tokenizer, max_len = trainer.corpus.tokenizer, trainer.model.config.max_len
        return trainer.target_loss(LabelledExamples(shard, tokenizer, max_len, first=True), stop)

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        from regard.evaluation.predictions import (
            predict_shard,
            store_intervals,
            store_predictions,
        )

        corpus = outcome.corpus
        predictions = predict_shard(
            model, part, corpus.tokenizer, corpus.targets, outcome.reporter.progress
        )
        if split == corpus.reported_split:
            store_predictions(run.path, predictions)
        if split == "valid":
            store_intervals(run.path, predictions)
        return predictions.metrics()

    def result(self, run: Run, facts: dict[str, Any], shared: Path) -> RunResult:
        from regard.evaluation.predictions import load_predictions
        from regard.training.comparison_runs import RunResult

        split = "test" if facts["data"]["splits"]["test"]["records"] else "valid"
        return RunResult(facts, split, answers=load_predictions(run.path))

    def pipeline(self, run: Run, model: Any) -> Predictor:
        from regard.evaluation.predictions import read_targets
        from regard.pipelines import load_run_tokenizer
        from regard.pipelines.predictor import Predictor
        from regard.registry import AUGMENTATIONS

        tokenizer = load_run_tokenizer(run, "tokenizer.json", model.vocab_size)
        targets = read_targets(run.path)
        check_targets(run, model, targets)
        stored = dict(run.data.get("augment", {}))
        views = None
        if stored:
            augmentation = AUGMENTATIONS[stored["name"]]
            views = augmentation(augmentation.Config(**stored)).views()
        return Predictor(model, tokenizer, targets, run, views)

    def page(self, run: Run, request: LookRequest) -> Page:
        from regard.look.internals import choose_sample, run_facts
        from regard.look.prediction_page import prediction_page
        from regard.look.vocabulary_view import add_vocabulary

        predictor = self.pipeline(run, request.model(run))
        what, text = predictor.tokenizer.words[0], request.text
        if predictor.tokenizer.reads_text:
            text = given_text(predictor, request)
        records = None
        try:
            records = predictor.held_out()
        except UserError as error:
            if not text:
                raise UserError(f"no {what} given, and {error}") from None
            request.log(f"{error}: the page is about the {what} alone")
        item, title = choose_item(predictor, text, records, request)
        alone = request.record is not None
        page = prediction_page(
            predictor,
            item,
            title=f"{run.name} on {title}",
            facts=run_facts(run, predictor.model, predictor.tokenizer),
            held_out=None if alone else records,
            sample=choose_sample(run, records) if records and not alone else None,
            target=request.target,
        )
        add_vocabulary(predictor.tokenizer, page, item if isinstance(item, str) else "")
        return page


def given_text(predictor: Predictor, request: LookRequest) -> str:
    """Return the text that a page is about, or "" for held-out records."""
    from regard.look.internals import read_given

    max_len = int(predictor.model.config.max_len)
    text = read_given(request.text, running=False, most=max_len, log=request.log).strip()
    if request.target and not text:
        raise UsageError(
            "--target needs a text whose prediction is explained: regard look RUN TEXT"
        )
    return text


def choose_item(
    predictor: Predictor, text: str, records: tuple[str, Shard] | None, request: LookRequest
) -> tuple[Any, str]:
    """Return the item that a page is about, and how its title calls it."""
    from regard.look.internals import log_unknown, quote

    tokenizer, what = predictor.tokenizer, predictor.tokenizer.words[0]
    if request.record is not None and records is not None:
        item = tokenizer.decode_record(records[1].record(request.record * records[1].views))
        return item, f"record {request.record + 1:,} of the {records[0]} split"
    if tokenizer.reads_text:
        log_unknown(tokenizer.encode(text).tolist(), tokenizer, request.log)
        return text, quote(text) if text else "held-out records"
    if text:
        place, item = predictor.modality.open(text, tokenizer)
        return item, Path(place).name
    assert records is not None
    title = f"the first {what} of the {records[0]} split"
    request.log(f"no {what} given: looking at {title}")
    return tokenizer.decode_record(records[1].record(0)), title


def check_targets(run: Run, model: Any, targets: Targets) -> None:
    """Raise a UserError if the files of a run do not agree on what it predicts."""
    outputs = targets.n_outputs
    if targets.task != model.task or outputs != model.config.n_outputs:
        raise UserError(
            f"{run}: regard.json says {targets.task} with {outputs} outputs, config.json "
            f"{model.task} with {model.config.n_outputs}"
        )


def class_weights(corpus: Corpus) -> Tensor | None:
    """Return weights (C,) by which every class counts the same, and a record 1 on average."""
    import numpy as np
    import torch

    from regard.models.supervised import HEADS

    targets = corpus.targets
    if targets is None or not HEADS[targets.task].class_weights:
        return None
    labels = np.asarray(corpus.train.targets)
    counts = np.bincount(labels[labels >= 0], minlength=len(targets.classes[0]))
    return torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)


def describes_positions(column: TargetColumn) -> bool:
    """Return whether targets are as long as their texts, of few different letters."""
    return (
        column.as_long == column.filled
        and len(column.letters) <= MAX_LETTERS
        and " " not in column.letters
        and column.length >= MIN_LENGTH * column.filled
    )


class PositionLabelTask(PredictionTask):
    """Predict a class at each position."""

    name = model_task = "position-label"
    purpose = "a label for each position"

    @classmethod
    def suggest(
        cls, columns: Sequence[TargetColumn], names: Sequence[str], *, texts: bool
    ) -> str | None:
        if len(columns) == 1 and describes_positions(columns[0]):
            return f"targets under {names[0]!r} are as long as their texts, of few letters"
        return None


class LabelTask(PredictionTask):
    """Predict one of several classes."""

    name = model_task = "label"
    purpose = "classification"

    @classmethod
    def suggest(
        cls, columns: Sequence[TargetColumn], names: Sequence[str], *, texts: bool
    ) -> str | None:
        if len(columns) > 1:
            return None
        (column,) = columns
        count, where = len(column.different), f"under {names[0]!r}"
        if column.numeric > NUMERIC * column.filled:
            # a few texts among classes that are numbers do not make them values
            integers = column.whole == column.numeric
            if not (integers and count <= MAX_CLASSES and 2 * count <= column.filled):
                return None
            others = column.filled - column.numeric
            what = f"targets, whole numbers but for {others:,}," if others else "whole numbers"
            return f"{count} different {what} {where}"
        if 2 * count <= column.filled or (count <= 2 < column.filled):
            return f"{count:,} different targets {where}"
        if 2 * column.numeric >= column.filled > 0 or texts:
            return None
        return f"texts {where}, {count:,} different ones of {column.filled:,}"


class LabelsTask(PredictionTask):
    """Predict several labels, each present or absent."""

    name = model_task = "labels"
    purpose = "several labels at once"

    @classmethod
    def suggest(
        cls, columns: Sequence[TargetColumn], names: Sequence[str], *, texts: bool
    ) -> str | None:
        if len(columns) > 1 and all(len(column.different) <= 2 for column in columns):
            return f"{len(columns)} columns of two values each"
        return None


class ValueTask(PredictionTask):
    """Predict numbers."""

    name = model_task = "value"
    purpose = "regression"

    @classmethod
    def suggest(
        cls, columns: Sequence[TargetColumn], names: Sequence[str], *, texts: bool
    ) -> str | None:
        if len(columns) > 1:
            numeric = all(column.numeric > NUMERIC * column.filled for column in columns)
            return f"{len(columns)} columns of numbers" if numeric else None
        (column,) = columns
        if 2 * column.numeric >= column.filled > 0:
            return f"{column.numeric:,} of {column.filled:,} targets under {names[0]!r} are numbers"
        return None
