"""What a run answered to the records that were held out, kept in its folder, and the answers of the
folds of a cross-validation put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.columns import Array
from regard.data.targets import Targets
from regard.errors import UserError
from regard.evaluate.answers import Answered
from regard.run import FACTS, read_facts, read_tensors, write_tensors

ANSWERS = "answers.safetensors"  # of a run: scores and truths of what was held out


@dataclass(frozen=True, eq=False)
class Kept:
    """Answers, what was asked, and the seconds that answering took."""

    answered: Answered
    targets: Targets
    seconds: float

    @property
    def records(self) -> int:
        """How many were asked about."""
        return len(self.answered.lengths)

    def first(self, records: int) -> Kept:
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
        return int((told.truths < 0).sum()) if told.task == "label" else 0


def keep(run: Path, answered: Answered, seconds: float) -> None:
    """Store answers in a run folder, for `kept`."""
    tensors = {
        "scores": torch.from_numpy(np.ascontiguousarray(answered.scores)),
        "truths": torch.from_numpy(np.array(answered.truths)),
        "lengths": torch.from_numpy(np.array(answered.lengths)),
        "seconds": torch.tensor(seconds, dtype=torch.float64),
    }
    write_tensors(run / ANSWERS, tensors)


def kept(run: Path) -> Kept:
    """What a run answered when it ended."""
    found, targets = read_tensors(run / ANSWERS), targets_of(run)
    try:
        scores, truths, lengths = (found[name].numpy() for name in ("scores", "truths", "lengths"))
        told = Answered(targets.task, scores, truths, lengths, targets)
        return Kept(told, targets, float(found["seconds"]))
    except (KeyError, ValueError) as error:
        raise UserError(f"{run / ANSWERS} is damaged: {error}") from None


def targets_of(run: Path) -> Targets:
    """What is asked of a run: the task and the names of its answers."""
    stored = read_facts(run).get("data", {}).get("targets")
    if stored is None:
        raise UserError(f"{run / FACTS} does not say what is asked of this run")
    return Targets.stored(stored)


def together(folds: Sequence[Kept]) -> Kept:
    """The answers of all folds, one after the other, each record with those of the model that has
    not seen it.

    Training parts may lack a class: it is then impossible for that fold. Of several labels, one
    that a training part has in one form only is missing there.
    """
    if len(folds) == 1:
        return folds[0]
    task, names = folds[0].targets.task, folds[0].targets.names
    classes = _all_classes([one.targets for one in folds])
    parts = [_fitted(one, classes) for one in folds]
    scores, truths = (np.concatenate(several) for several in zip(*parts, strict=True))
    lengths = np.concatenate([one.answered.lengths for one in folds])
    first = folds[0].targets
    deviations = np.mean([one.targets.deviations for one in folds], axis=0).tolist()
    targets = Targets(task, names, classes, first.positive, tuple(deviations))
    whole = Answered(task, scores, truths, lengths, targets)
    return Kept(whole, targets, sum(one.seconds for one in folds))


def _all_classes(several: Sequence[Targets]) -> tuple[tuple[str, ...], ...]:
    """The classes of each column in any fold: those of the fullest fold first, then the rest."""
    columns = zip(*(one.classes for one in several), strict=True)
    ordered = (sorted(column, key=len, reverse=True) for column in columns)
    return tuple(tuple(dict.fromkeys(c for some in each for c in some)) for each in ordered)


def _fitted(one: Kept, classes: Sequence[Sequence[str]]) -> tuple[NDArray[np.float64], Array]:
    """Scores and truths of a fold, numbered by the classes of all."""
    scores, truths, own = one.answered.scores, one.answered.truths, one.targets.classes
    if one.targets.task == "value":
        return scores, truths
    if one.targets.task == "labels":
        whole = np.array([tuple(a) == tuple(b) for a, b in zip(own, classes, strict=True)])
        return np.where(whole, scores, 0.0), np.where(whole, truths, -1)
    places = np.array([classes[0].index(name) for name in own[0]], np.int64)
    wide = np.full((len(scores), len(classes[0])), -np.inf)
    wide[:, places] = scores
    return wide, np.where(truths >= 0, places[np.maximum(truths, 0)], -1)
