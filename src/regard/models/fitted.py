"""What assessors that are fitted in one go share: rows read from a shard, and choosing what was
left open by rows that were not learned from.

Rows are judged by the validation part where it is large enough, and else by inner folds of the
training part, in which the classes have their shares and views of one record stay together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import Batch
from regard.data.questions import Asked
from regard.data.shards import Shard
from regard.layers.source import Source
from regard.models.assessor import AnswerConfig

BATCH_TOKENS = 1 << 16  # positions read at once
ENOUGH, POSITIONS = 1000, 2000  # records, or positions, of a validation part that can choose
FOLDS = 5
MOST = 20_000  # rows learned from while choosing
SCALES = tuple(2.0**n for n in range(-8, 5))  # of scores, when they are judged
Trial = TypeVar("Trial", bound=AnswerConfig)


@dataclass(frozen=True, kw_only=True)
class FittedConfig(AnswerConfig):
    """Records are read up to max_len tokens."""

    max_len: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {self.max_len}")

    def positive(self, name: str, most: float = math.inf) -> None:
        """Raise unless a number is 0, which leaves it open, or above."""
        value = getattr(self, name)
        if not (0 <= value <= most and math.isfinite(value)):
            until = f" and at most {most:g}" if math.isfinite(most) else ""
            raise ValueError(f"{name} must be 0 (chosen) or more{until}, got {value}")


def batches(shard: Shard, max_len: int) -> Iterator[tuple[Batch, Source]]:
    """The records of a labelled shard, those of like length together."""
    for batch in Asked(shard, None, max_len).batches(BATCH_TOKENS):
        assert batch.segments is not None
        yield batch, Source(batch.ids, batch.segments)


@dataclass(frozen=True, eq=False)
class Trials:
    """What is asked of rows, those of the training part first, and `splits` of them into numbers of
    rows to learn from and to judge by; `how` says which.
    """

    task: str
    targets: Tensor
    splits: Sequence[tuple[Tensor, Tensor]]
    how: str

    def best(
        self, tried: Sequence[Trial], answer: Callable[[Trial, Tensor, Tensor], Tensor]
    ) -> Trial:
        """The configuration whose answers cost least, the first of equals; `answer` learns from
        some rows and answers others.
        """
        if len(tried) == 1:
            return tried[0]
        costs = [
            sum(
                cost(self.task, answer(config, learn, check), self.targets[check])
                for learn, check in self.splits
            )
            for config in tried
        ]
        return tried[int(np.argmin(costs))]


def trials(task: str, train: Tensor, valid: Tensor | None, groups: Tensor | None = None) -> Trials:
    """Splits of training rows with these targets, and of those of the validation part, if any.
    Rows of one of (R,) `groups`, numbered in order, stay together.
    """
    count, enough = len(train), POSITIONS if task == "position-label" else ENOUGH
    if valid is not None and len(valid) >= enough:
        check = torch.arange(count, count + len(valid))
        if task in ("label", "position-label"):
            check = check[valid >= 0]
        part = few(torch.arange(count))
        return Trials(task, torch.cat([train, valid]), [(part, check)], "the validation part")
    groups = torch.arange(count) if groups is None else groups
    firsts = torch.cat([groups.new_ones(1), groups.diff()]).nonzero()[:, 0] if count else groups
    fold = folds(train[firsts] if train.dim() == 1 else train[firsts, 0], FOLDS)[groups]
    rows = [(fold != n, fold == n) for n in range(FOLDS)]
    splits = [(few(a.nonzero()[:, 0]), b.nonzero()[:, 0]) for a, b in rows if a.any() and b.any()]
    return Trials(task, train, splits, f"{FOLDS} inner folds")


def folds(keys: Tensor, many: int) -> Tensor:
    """(G,) the fold of each group, such that every fold has its share of every key."""
    mixed = torch.from_numpy(np.random.default_rng(0).permutation(len(keys)))
    order = mixed[keys[mixed].nan_to_num().argsort(stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(keys)) % many
    return fold


def few(rows: Tensor) -> Tensor:
    """At most MOST of some rows, in order, the same every time."""
    if len(rows) <= MOST:
        return rows
    chosen = np.random.default_rng(0).choice(len(rows), MOST, replace=False)
    return rows[torch.from_numpy(np.sort(chosen))]


def cost(task: str, scores: Tensor, targets: Tensor) -> float:
    """What scores (R, O) cost beside their targets, to be compared: of values the square of the
    difference in units of the deviation, else cross-entropy at the scale that suits the scores
    best, since being too sure is not the same as being wrong.
    """
    if task == "value":
        there = ~targets.isnan()
        squares = (scores - targets.nan_to_num(0.0)).square().where(there, 0.0).sum(0)
        mean = targets.nan_to_num(0.0).sum(0) / there.sum(0).clamp_min(1)
        spread = (targets.nan_to_num(0.0) - mean).square().where(there, 0.0).sum(0)
        return float((squares / spread.clamp_min(1e-12)).mean())
    costs = []
    for scale in SCALES:
        if task == "labels":
            there, wanted = targets >= 0, targets.clamp_min(0).to(scores.dtype)
            each = F.binary_cross_entropy_with_logits(scores * scale, wanted, reduction="none")
            costs.append(float(each.where(there, 0.0).sum() / there.sum().clamp_min(1)))
        else:
            costs.append(float(F.cross_entropy(scores * scale, targets)))
    return min(costs)


def shares(targets: Tensor, classes: int) -> Tensor:
    """(C,) the share of each class, fp64; a class that never occurs counts as half a record."""
    counts = torch.bincount(targets[targets >= 0], minlength=classes).double().clamp_min(0.5)
    return counts / counts.sum()


def varied(config: Trial, **choices: Sequence[Any]) -> list[Trial]:
    """The configuration with every combination of values for what it leaves open: 0 or "auto"."""
    found = [config]
    for name, values in choices.items():
        if getattr(config, name) in (0, "auto"):
            found = [replace(one, **{name: value}) for one in found for value in values]
    return found
