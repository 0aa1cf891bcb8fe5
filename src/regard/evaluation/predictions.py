"""How good a model's answers are: labels, several of them, values, or labels of positions.

What a run answered to the records that were held out, kept in its folder, and the answers of the
folds of a cross-validation put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import Batch, LabelledExamples, known
from regard.data.shards import Array, Shard
from regard.data.targets import Targets
from regard.decoding.engine import computing, device_of
from regard.errors import UserError
from regard.evaluation.classification import (
    ClassificationReport,
    MultilabelReport,
    label,
    labels,
    positions,
)
from regard.evaluation.estimates import BootstrapEstimate
from regard.evaluation.language_modeling import Metric
from regard.evaluation.regression import RegressionReport, values
from regard.layers.embeddings import Inputs
from regard.models.heads import HEADS
from regard.models.supervised import SupervisedModel
from regard.run import FACTS, read_metadata, read_tensors, write_tensors
from regard.tokenizers import Tokenizer

BATCH_TOKENS = 16384  # positions read at once


Report = ClassificationReport | MultilabelReport | RegressionReport


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model answers to the records of a shard, beside the truths.

    Both are (R, O) and (R,) or (R, O) or, of positions, (P, O) and (P,), where (R,) `lengths` says
    how many positions each record has.
    """

    task: str
    scores: NDArray[np.float64]
    truths: Array
    lengths: NDArray[np.int64]
    targets: Targets | None = None  # what was asked: names, classes, what metrics are of

    @property
    def positional(self) -> bool:
        """Whether there is a prediction for each position."""
        return HEADS[self.task].positional

    @cached_property
    def judged(self) -> Report:
        """How good they are; records whose class training does not have are left out."""
        return REPORTS[self.task](self)

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The metrics by name."""
        return self.judged.estimates

    def figures(self) -> dict[str, Metric]:
        """The metrics with their intervals."""
        return {name: one.figure() for name, one in self.estimates.items()}


REPORTS: dict[str, Callable[[Predictions], Report]] = {}


def register_report(task: str) -> Callable[[ReportFunction], ReportFunction]:
    """Register what measures the predictions of a task."""

    def register(function: ReportFunction) -> ReportFunction:
        REPORTS[task] = function
        return function

    return register


ReportFunction = Callable[[Predictions], Report]


@register_report("value")
def report_values(predictions: Predictions) -> Report:
    targets = predictions.targets
    scale, names = (targets.deviations, targets.names) if targets else ((), ())
    return values(predictions.scores, predictions.truths, scale=scale, names=names)


@register_report("labels")
def report_labels(predictions: Predictions) -> Report:
    targets, options = predictions.targets, dict[str, Any]()
    if targets is not None:
        places = [targets.place_of_positive(i) for i in range(len(targets.names))]
        options = {
            "positive": [1 if place is None else place for place in places],
            "classes": [pair if len(pair) == 2 else () for pair in targets.classes],
            "names": targets.names,
        }
    return labels(predictions.scores, predictions.truths, **options)


@register_report("label")
def report_label(predictions: Predictions) -> Report:
    scored = known(predictions.truths)
    if not scored.any():
        return report_positions(predictions)
    options = _class_options(predictions.targets)
    return label(predictions.scores[scored], predictions.truths[scored], **options)


@register_report("position-label")
def report_positions(predictions: Predictions) -> Report:
    options = _class_options(predictions.targets)
    return positions(predictions.scores, predictions.truths, predictions.lengths, **options)


def _class_options(targets: Targets | None) -> dict[str, Any]:
    if targets is None:
        return {}
    return {"positive": targets.place_of_positive(), "names": targets.classes[0]}


def predict_shard(
    model: SupervisedModel, shard: Shard, tokenizer: Tokenizer, targets: Targets | None = None
) -> Predictions:
    """Ask a model about every record of a labelled shard; `targets` are what its metrics are of."""
    asked = LabelledExamples(shard, tokenizer, int(model.config.max_len))
    outputs, each = int(model.config.n_outputs), asked.positional
    lengths = asked.lengths if each else np.ones(shard.records, np.int64)
    ends = np.cumsum(lengths)
    scores = np.empty((int(ends[-1]), outputs))
    for batch, found in run(model, asked):
        for row, record in enumerate(batch.items.tolist()):
            first = ends[record] - lengths[record]
            scores[first : ends[record]] = found[row, : lengths[record]] if each else found[row]
    truths = asked.targets
    if each:
        read = [asked.targets[a : a + n] for a, n in zip(asked.starts, lengths, strict=True)]
        truths = np.concatenate(read)
    if shard.views > 1:
        views = torch.from_numpy(scores).unflatten(0, (-1, shard.views))
        scores = model.output.average(views).numpy()
        truths, lengths = truths[:: shard.views], lengths[:: shard.views]
    return Predictions(model.task, scores, truths, lengths, targets)


@torch.inference_mode()
def run(model: SupervisedModel, asked: LabelledExamples) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch, and the answers to it on the host."""
    device = device_of(model)
    for batch in asked.batches(BATCH_TOKENS):
        assert batch.segments is not None
        source = Inputs(batch.ids, batch.segments)
        with computing(device):
            found = model.answers(source.to(device)).double().cpu()
        yield batch, found


ANSWERS = "answers.safetensors"  # of a run: scores and truths of what was held out


@dataclass(frozen=True, eq=False)
class StoredPredictions:
    """Answers, what was asked, and the seconds that answering took."""

    answered: Predictions
    targets: Targets
    seconds: float

    @property
    def records(self) -> int:
        """How many were asked about."""
        return len(self.answered.lengths)

    def first(self, records: int) -> StoredPredictions:
        """Those of the first so many records."""
        told = self.answered
        count = int(told.lengths[:records].sum())  # a row for each position, or for the record
        short = replace(
            told,
            scores=told.scores[:count],
            truths=told.truths[:count],
            lengths=told.lengths[:records],
        )
        return replace(self, answered=short)

    @property
    def unknown(self) -> int:
        """Records of a class that training does not have."""
        told = self.answered
        return int((told.truths < 0).sum()) if self.targets.kind.single else 0


def store_predictions(run: Path, answered: Predictions, seconds: float) -> None:
    """Store answers in a run folder, for `kept`."""
    tensors = {
        "scores": torch.from_numpy(np.ascontiguousarray(answered.scores)),
        "truths": torch.from_numpy(np.array(answered.truths)),
        "lengths": torch.from_numpy(np.array(answered.lengths)),
        "seconds": torch.tensor(seconds, dtype=torch.float64),
    }
    write_tensors(run / ANSWERS, tensors)


def load_predictions(run: Path) -> StoredPredictions:
    """What a run answered when it ended."""
    found, targets = read_tensors(run / ANSWERS), targets_of(run)
    try:
        scores, truths, lengths = (found[name].numpy() for name in ("scores", "truths", "lengths"))
        told = Predictions(targets.task, scores, truths, lengths, targets)
        return StoredPredictions(told, targets, float(found["seconds"]))
    except (KeyError, ValueError) as error:
        raise UserError(f"{run / ANSWERS} is damaged: {error}") from None


def targets_of(run: Path) -> Targets:
    """What is asked of a run: the task and the names of its answers."""
    stored = read_metadata(run).get("data", {}).get("targets")
    if stored is None:
        raise UserError(f"{run / FACTS} does not say what is asked of this run")
    try:
        return Targets.stored(stored)
    except ValueError as error:
        raise UserError(f"{run / FACTS} is damaged: data.targets: {error}") from None


def join_folds(folds: Sequence[StoredPredictions]) -> StoredPredictions:
    """The answers of all folds, one after the other, each record with those of the model that has
    not seen it.

    Training parts may lack a class: it is then impossible for that fold. Of several labels, one
    that a training part has in one form only is missing there.
    """
    if len(folds) == 1:
        return folds[0]
    task, names = folds[0].targets.task, folds[0].targets.names
    classes = _all_classes([one.targets for one in folds])
    parts = [
        one.targets.kind.renumber(one.targets, classes, one.answered.scores, one.answered.truths)
        for one in folds
    ]
    scores, truths = (np.concatenate(several) for several in zip(*parts, strict=True))
    lengths = np.concatenate([one.answered.lengths for one in folds])
    first = folds[0].targets
    deviations = np.mean([one.targets.deviations for one in folds], axis=0).tolist()
    targets = Targets(task, names, classes, first.positive, tuple(deviations))
    whole = Predictions(task, scores, truths, lengths, targets)
    return StoredPredictions(whole, targets, sum(one.seconds for one in folds))


def _all_classes(several: Sequence[Targets]) -> tuple[tuple[str, ...], ...]:
    """The classes of each column in any fold: those of the fullest fold first, then the rest."""
    columns = zip(*(one.classes for one in several), strict=True)
    ordered = (sorted(column, key=len, reverse=True) for column in columns)
    return tuple(tuple(dict.fromkeys(c for some in each for c in some)) for each in ordered)
