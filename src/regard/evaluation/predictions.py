"""Predictions of a model for held-out records: computed, stored in its run folder, evaluated, and
those of the folds of a cross-validation joined.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data import Progress, no_progress
from regard.data.batching import Batch, LabelledExamples, known
from regard.data.shards import Array, Shard
from regard.data.targets import Targets
from regard.decoding.engine import device_of, gpu_lock
from regard.errors import UserError
from regard.evaluation import Metric, Report
from regard.evaluation.bootstrap import BootstrapEstimate, Floats
from regard.evaluation.classification import (
    classification_report,
    multilabel_report,
    position_report,
)
from regard.evaluation.regression import regression_report
from regard.layers.embeddings import Inputs
from regard.models.supervised import HEADS, SupervisedModel
from regard.run import METADATA, Run
from regard.storage import StoredIntervals, read_json, read_tensors, write_json, write_tensors
from regard.tokenizers import Tokenizer

BATCH_POSITIONS = 16384  # positions read at once
PREDICTIONS = "predictions.safetensors"  # of a run: scores and truths of the held-out records
INTERVALS = "intervals.json"  # of a run: how far true values lie from predicted ones
COVERED = 0.9  # share of the true values within their intervals
FEWEST_ERRORS = 20  # that give an interval


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scores and truths of the records of a shard: (R, O) and (R,) or (R, O) or, of positions,
    (P, O) and (P,), where `lengths` (R,) has the number of positions of each record.
    """

    task: str
    scores: Floats
    truths: Array
    lengths: Array
    targets: Targets | None = None  # the names of the columns and their classes
    seconds: float = 0.0  # of computing them

    @property
    def positional(self) -> bool:
        """Whether there is a prediction for each position."""
        return HEADS[self.task].positional

    @cached_property
    def report(self) -> Report:
        """The evaluation; records of classes that training does not have are left out."""
        return REPORTS[self.task](self)

    @property
    def estimates(self) -> Mapping[str, BootstrapEstimate]:
        return self.report.estimates

    def metrics(self) -> dict[str, Metric]:
        return self.report.metrics()

    @property
    def records(self) -> int:
        return len(self.lengths)

    @property
    def scored(self) -> bool:
        """Whether any truth is known."""
        return bool(known(self.truths).any())

    @property
    def unknown(self) -> int:
        """How many records have a class that training does not have."""
        single = self.targets is not None and self.targets.kind.single
        return int((self.truths < 0).sum()) if single else 0

    def losses(self) -> tuple[Floats, Floats]:
        """Return the loss of each record (R,), of values half their squared errors, and the number
        of targets it is the sum of.
        """
        ends, head = np.cumsum(self.lengths), HEADS[self.task]
        sums, counts = np.zeros(self.records), np.zeros(self.records)
        for i, (end, length) in enumerate(zip(ends.tolist(), self.lengths.tolist(), strict=True)):
            truths = np.asarray(self.truths[end - length : end])
            counts[i] = known(truths).sum()
            if counts[i]:
                scores = torch.from_numpy(np.asarray(self.scores[end - length : end]))
                targets = torch.from_numpy(truths.copy())
                targets = targets.to(scores.dtype) if head.scaled else targets.long()
                sums[i] = float(head.loss(scores, targets, smoothing=0.0, weights=None)[1])
        return sums, counts

    def first(self, records: int) -> Predictions:
        """Return the predictions for the first records."""
        lengths = self.lengths[:records]
        rows = int(lengths.sum())  # a row for each position, or for the record
        return replace(self, scores=self.scores[:rows], truths=self.truths[:rows], lengths=lengths)


ReportFunction = Callable[[Predictions], Report]
REPORTS: dict[str, ReportFunction] = {}


def register_report(task: str) -> Callable[[ReportFunction], ReportFunction]:
    """Register the function that evaluates the predictions of a task."""

    def register(function: ReportFunction) -> ReportFunction:
        REPORTS[task] = function
        return function

    return register


@register_report("value")
def report_values(predictions: Predictions) -> Report:
    targets = predictions.targets
    scale, names = (targets.deviations, targets.names) if targets else ((), ())
    return regression_report(predictions.scores, predictions.truths, scale=scale, names=names)


@register_report("labels")
def report_labels(predictions: Predictions) -> Report:
    targets, options = predictions.targets, dict[str, Any]()
    if targets is not None:
        numbers = [targets.place_of_positive(i) for i in range(len(targets.names))]
        options = {
            "positive": [1 if number is None else number for number in numbers],
            "classes": [pair if len(pair) == 2 else () for pair in targets.classes],
            "names": targets.names,
        }
    return multilabel_report(predictions.scores, predictions.truths, **options)


@register_report("label")
def report_label(predictions: Predictions) -> Report:
    scored = known(predictions.truths)
    if not scored.any():
        return report_positions(predictions)
    options = _class_options(predictions.targets)
    return classification_report(predictions.scores[scored], predictions.truths[scored], **options)


@register_report("position-label")
def report_positions(predictions: Predictions) -> Report:
    options = _class_options(predictions.targets)
    return position_report(predictions.scores, predictions.truths, predictions.lengths, **options)


def _class_options(targets: Targets | None) -> dict[str, Any]:
    if targets is None:
        return {}
    return {"positive": targets.place_of_positive(), "names": targets.classes[0]}


def predict_shard(
    model: SupervisedModel,
    shard: Shard,
    tokenizer: Tokenizer,
    targets: Targets | None = None,
    progress: Progress = no_progress,
) -> Predictions:
    """Predict the targets of every record of a labelled shard."""
    began = time.monotonic()
    examples = LabelledExamples(shard, tokenizer, int(model.config.max_len))
    positional, truths = examples.positional, examples.targets
    lengths = examples.lengths if positional else np.ones(shard.records, np.int64)
    ends = np.cumsum(lengths)
    scores = np.empty((int(ends[-1]), model.n_outputs))
    done, items = 0, tokenizer.words[1]
    progress("predicting", done, shard.records, items)
    for batch, outputs in _predict_batches(model, examples):
        done += len(batch.items)
        progress("predicting", done, shard.records, items)
        for output, record in zip(outputs, batch.items.tolist(), strict=True):
            length = lengths[record]
            scores[ends[record] - length : ends[record]] = output[:length] if positional else output
    if positional:
        spans = zip(examples.starts, lengths, strict=True)
        truths = np.concatenate([truths[start : start + length] for start, length in spans])
    if shard.views > 1:
        views = torch.from_numpy(scores).unflatten(0, (-1, shard.views))
        scores = model.output.average(views).numpy()
        truths, lengths = truths[:: shard.views], lengths[:: shard.views]
    seconds = time.monotonic() - began
    return Predictions(model.task, scores, truths, lengths, targets, seconds)


@torch.inference_mode()
def _predict_batches(
    model: SupervisedModel, examples: LabelledExamples
) -> Iterator[tuple[Batch, Tensor]]:
    device = device_of(model)
    for batch in examples.batches(BATCH_POSITIONS):
        assert batch.segments is not None
        with gpu_lock(device):
            outputs = model.predict(Inputs(batch.ids, batch.segments).to(device)).double().cpu()
        yield batch, outputs


def store_predictions(run: Path, predictions: Predictions) -> None:
    """Write predictions to a run folder."""
    tensors = {
        "scores": torch.from_numpy(np.ascontiguousarray(predictions.scores)),
        "truths": torch.from_numpy(np.array(predictions.truths)),
        "lengths": torch.from_numpy(np.array(predictions.lengths)),
        "seconds": torch.tensor(predictions.seconds, dtype=torch.float64),
    }
    write_tensors(run / PREDICTIONS, tensors)


def conformal_reach(residuals: Floats) -> float:
    """Return what the absolute error of a new record stays below with probability COVERED, if it is
    like these records (split conformal prediction, Lei et al. 2018, arXiv:1604.04173).
    """
    rank = math.ceil((len(residuals) + 1) * COVERED)
    return float(np.sort(np.abs(residuals))[min(rank, len(residuals)) - 1])


def store_intervals(run: Path, predictions: Predictions) -> None:
    """Write the intervals of predicted values, by the errors on validation records, which training
    has not read; targets with few known values have none.
    """
    targets = predictions.targets
    if targets is None or targets.kind.categorical:
        return
    errors = np.asarray(predictions.scores - predictions.truths, np.float64)
    columns = [column[np.isfinite(column)] for column in errors.T]
    reach = {
        name: conformal_reach(column)
        for name, column in zip(targets.names, columns, strict=True)
        if len(column) >= FEWEST_ERRORS
    }
    if reach:
        intervals = StoredIntervals(level=COVERED, records=predictions.records, reach=reach)
        write_json(run / INTERVALS, intervals)


def load_intervals(run: Path) -> StoredIntervals | None:
    """Read the intervals of the values that a run predicts; None if it has none."""
    path = run / INTERVALS
    intervals: StoredIntervals | None = read_json(path, StoredIntervals) if path.exists() else None
    return intervals


def load_predictions(run: Path) -> Predictions:
    """Read the predictions for the held-out records, stored when training ended."""
    tensors, targets = read_tensors(run / PREDICTIONS), read_targets(run)
    try:
        return Predictions(
            targets.task,
            tensors["scores"].numpy(),
            tensors["truths"].numpy(),
            tensors["lengths"].numpy(),
            targets,
            float(tensors["seconds"]),
        )
    except (KeyError, ValueError) as error:
        raise UserError(f"{run / PREDICTIONS} is damaged: {error}") from None


def read_targets(run: Path) -> Targets:
    """Read what a run predicts: its task, columns and classes."""
    stored = Run(run).data.get("targets")
    if stored is None:
        raise UserError(f"{run / METADATA} does not say what this run predicts")
    try:
        return Targets.stored(stored)
    except ValueError as error:
        raise UserError(f"{run / METADATA} is damaged: data.targets: {error}") from None


def join_folds(folds: Sequence[Predictions]) -> Predictions:
    """Concatenate the predictions of all folds, each record with those of the model that was not
    trained on it.

    A class that the training part of a fold lacks is impossible there. Of several labels, one that
    has a single value in a training part is missing there.
    """
    if len(folds) == 1:
        return folds[0]
    targets = [fold.targets for fold in folds if fold.targets is not None]
    classes = _join_classes(targets)
    parts = [
        of_fold.kind.renumber(of_fold, classes, fold.scores, fold.truths)
        for fold, of_fold in zip(folds, targets, strict=True)
    ]
    scores, truths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    deviations = np.mean([of_fold.deviations for of_fold in targets], axis=0).tolist()
    joined = replace(targets[0], classes=classes, deviations=tuple(deviations))
    lengths = np.concatenate([fold.lengths for fold in folds])
    seconds = sum(fold.seconds for fold in folds)
    return Predictions(folds[0].task, scores, truths, lengths, joined, seconds)


def _join_classes(folds: Sequence[Targets]) -> tuple[tuple[str, ...], ...]:
    """Return the classes of each column in any fold: those of the fold with most of them first."""
    joined = []
    for column in zip(*(targets.classes for targets in folds), strict=True):
        names = (name for classes in sorted(column, key=len, reverse=True) for name in classes)
        joined.append(tuple(dict.fromkeys(names)))
    return tuple(joined)
