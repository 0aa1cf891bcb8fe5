"""What assessors that are fitted in one go share: rows read from a shard, and choosing what was
left open by rows that were not learned from.

Rows are judged by the validation part where it is large enough, and else by inner folds of the
training part, in which the classes have their shares and views of one record stay together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import Batch, LabelledExamples
from regard.data.shards import Shard
from regard.layers.embeddings import Inputs
from regard.models.supervised import Budget, HeadConfig

BATCH_TOKENS = 1 << 16  # positions read at once
ENOUGH, POSITIONS = 1000, 2000  # records, or positions, of a validation part that can choose
FOLDS = 5
MOST = 20_000  # rows learned from while choosing
LEAST = 1000  # the same, and in the end, where time is short
PROBED = (64, 256)  # rows that settings are timed on
GROWTH = 1.5  # by which more rows take longer than few, row by row: solvers take more steps
SCALES = tuple(2.0**n for n in range(-8, 5))  # of scores, when they are judged
Trial = TypeVar("Trial", bound="FittedConfig")
Sampled = TypeVar("Sampled", bound="SampledConfig")


@dataclass(frozen=True, kw_only=True)
class FittedConfig(HeadConfig):
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


@dataclass(frozen=True, kw_only=True)
class SampledConfig(FittedConfig):
    """A model learns from all records, or from some of them."""

    records: int = 0  # learned from, drawn at random; 0 = all, unless time is short

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("records")


def batches(shard: Shard, max_len: int) -> Iterator[tuple[Batch, Inputs]]:
    """The records of a labelled shard, those of like length together."""
    for batch in LabelledExamples(shard, None, max_len).batches(BATCH_TOKENS):
        assert batch.segments is not None
        yield batch, Inputs(batch.ids, batch.segments)


@dataclass(frozen=True)
class FitPace:
    """Seconds that a configuration takes to learn from rows and to answer: some, and some more for
    each row.
    """

    once: float
    each: float

    def at(self, rows: int) -> float:
        """Seconds of so many rows."""
        return self.once + self.each * rows


UNKNOWN = FitPace(0.0, 0.0)


@dataclass(eq=False)
class CandidateTrials:
    """What is asked of rows, those of the training part first, and `splits` of them into numbers of
    rows to learn from and to judge by; `how` says which. `rows` are learned from in the end.
    """

    task: str
    targets: Tensor
    splits: Sequence[tuple[Tensor, Tensor]]
    how: str
    rows: int
    chosen: FitPace | None = None  # of what was chosen
    final: float = 0.0  # seconds that its fit takes in the end, as far as it is known

    def best(
        self,
        tried: Sequence[Trial],
        answer: Callable[[Trial, Tensor, Tensor], Tensor],
        budget: Budget | None = None,
        *,
        share: float = 1.0,
        finish: float = 1.0,
    ) -> Trial:
        """The configuration whose answers cost least, the first of equals; `answer` learns from
        some rows and answers others.

        With a budget, a `share` of the time left is for choosing; splits, rows and configurations
        become fewer until it suffices. `finish` is how many times longer the fit of what is chosen
        takes than one of the same rows while choosing. What follows from an earlier choice is as
        fast as that.
        """
        budget = budget or Budget(lambda line: None)
        splits, paces, seconds = self.splits, [UNKNOWN for _ in tried], share * budget.left * 3 / 4
        if budget.limited and splits and len(splits[0][0]) > 2 * max(PROBED):
            known = self.chosen
            paces = [known] * len(tried) if known else probed(tried, answer, splits[0], budget)
            plan = ReducedSearch(self, budget, share, finish)
            tried, paces, splits, seconds = plan(tried, paces)
        place, rate = 0, 1.0
        if len(tried) > 1:
            place, rate = self.cheapest(tried, paces, splits, answer, budget, seconds)
        self.chosen = FitPace(rate * paces[place].once, rate * paces[place].each)
        self.final = finish * self.chosen.at(self.rows)
        return tried[place]

    def cheapest(
        self,
        tried: Sequence[Trial],
        paces: Sequence[FitPace],
        splits: Sequence[tuple[Tensor, Tensor]],
        answer: Callable[[Trial, Tensor, Tensor], Tensor],
        budget: Budget,
        seconds: float,
    ) -> tuple[int, float]:
        """The place of the configuration whose answers cost least, split after split, and how many
        times longer trials took than was expected.

        When the seconds are over, it is that of the splits on which all have been tried, and of the
        first split the best of those that have been.
        """
        found: list[list[float]] = [[] for _ in tried]
        began, foreseen, rate = time.monotonic(), 0.0, 1.0
        for number, (learn, check) in enumerate(splits):
            past = time.monotonic() - began
            if number and past * (number + 1) / number > seconds:
                self.how = f"{number} of {len(self.splits)} inner folds"
                budget.reduce(f"settings are compared on {self.how}")
                break
            for place, config in enumerate(tried):
                expected = paces[place].at(len(learn))
                past = time.monotonic() - began
                if not number and place and past + rate * expected > seconds:
                    budget.reduce(f"{len(tried) - place} of {len(tried)} settings are not tried")
                    return int(np.argmin([sum(some) for some in found[:place]])), rate
                scores = answer(config, learn, check)
                found[place].append(cost(self.task, scores, self.targets[check]))
                foreseen += expected
                rate = (time.monotonic() - began) / foreseen if foreseen else 1.0
                of = f", split {number + 1} of {len(splits)}" if len(splits) > 1 else ""
                budget.progress(f"setting {place + 1} of {len(tried)}{of} ({named(config, tried)})")
        return int(np.argmin([sum(some) for some in found])), rate

    def affordable(self, config: Sampled, budget: Budget) -> Sampled:
        """The chosen configuration, and where time is short from how many rows it learns."""
        rows = config.records or self.rows
        final = self.final * rows / max(1, self.rows)
        if final <= budget.left:
            return config
        most = max(LEAST, int(rows * max(0.0, budget.left) / final))
        if most >= rows:
            return config
        budget.reduce(f"the model learns from {most:,} of {rows:,} records")
        return replace(config, records=most)


def probed(
    tried: Sequence[Trial],
    answer: Callable[[Trial, Tensor, Tensor], Tensor],
    split: tuple[Tensor, Tensor],
    budget: Budget,
) -> list[FitPace]:
    """How long configurations take, from small parts of a split: of all, or of as many of the first
    as a quarter of the time allows. What takes as long whatever the rows, all have in common.
    """
    learn, check = split
    small, large = (
        (few(learn, n), few(check, max(1, n * len(check) // len(learn)))) for n in PROBED
    )

    def seconds(config: Trial, part: tuple[Tensor, Tensor]) -> float:
        began = time.monotonic()
        answer(config, *part)
        return time.monotonic() - began

    seconds(tried[0], small)  # imports, memory: what is slow only once
    enough, found = budget.left * 3 / 4, list[FitPace]()
    rows = PROBED[1] - PROBED[0]
    first = [seconds(tried[0], part) for part in (small, large)]
    once = max(0.0, first[1] - PROBED[1] * max(0.0, first[1] - first[0]) / rows)
    for config in tried:
        if len(found) > 1 and budget.left < enough:
            break
        took = first[1] if not found else seconds(config, large)
        each = max(took / 10, took - once) / PROBED[1]
        found.append(FitPace(min(once, took), GROWTH * each))
        budget.progress(f"timing setting {len(found)} of {len(tried)}")
    return found


@dataclass(frozen=True)
class ReducedSearch:
    """Makes a choice fit into the time that is left where it does not hold one split: fewer rows,
    then fewer configurations; and none whose final fit would take more than half of the time,
    where there are others.
    """

    trials: CandidateTrials
    budget: Budget
    share: float
    finish: float

    def __call__(
        self, tried: Sequence[Trial], paces: Sequence[FitPace]
    ) -> tuple[list[Trial], list[FitPace], Sequence[tuple[Tensor, Tensor]], float]:
        """Those of the configurations that are tried, the splits they are tried on, and seconds."""
        trials, splits, left = self.trials, self.trials.splits, self.budget.left
        final = [self.finish * one.at(trials.rows) for one in paces]
        every = range(len(paces))  # of those that were timed
        kept = [n for n in every if final[n] <= left / 2] or list(every)
        seconds = self.share * (left - min(left / 2, max(final[n] for n in kept)))
        learn, check = splits[0]
        if len(kept) > 1 and sum(paces[n].at(len(learn)) for n in kept) > seconds:
            once, each = (sum(getattr(paces[n], key) for n in kept) for key in ("once", "each"))
            rows = min(len(learn), max(LEAST, int((seconds - once) / max(each, 1e-12))))
            splits = [(few(learn, rows), check)]
            kept = self.cheapest(kept, paces, rows, seconds)
            if len(kept) > 1:
                self.tell(rows)
        if len(kept) < len(tried):
            names = "; ".join(named(tried[n], tried) for n in range(len(tried)) if n not in kept)
            self.budget.reduce(
                f"{len(tried) - len(kept)} of {len(tried)} settings are not tried ({names})"
            )
        return [tried[n] for n in kept], [paces[n] for n in kept], splits, seconds

    def cheapest(
        self, kept: Sequence[int], paces: Sequence[FitPace], rows: int, seconds: float
    ) -> list[int]:
        """Those of some configurations, the slowest left out first, that fit into the seconds when
        they learn from so many rows; one at least.
        """
        order = sorted(kept, key=lambda n: paces[n].at(rows))
        total, found = 0.0, list[int]()
        for n in order:
            total += paces[n].at(rows)
            if not found or total <= seconds:
                found.append(n)
        return sorted(found)

    def tell(self, rows: int) -> None:
        """Print what the settings are compared on."""
        trials = self.trials
        folds, whole = len(trials.splits), len(trials.splits[0][0])
        where = trials.how if folds == 1 else f"1 of {folds} inner folds"
        some = f", learning from {rows:,} of {whole:,}" if rows < whole else ""
        trials.how = f"{where}{some}"
        self.budget.reduce(f"settings are compared on {trials.how}")


def named(config: FittedConfig, among: Sequence[FittedConfig]) -> str:
    """What tells a configuration from others, in words."""
    keys = [
        one.name
        for one in fields(config)
        if len({str(getattr(other, one.name)) for other in among}) > 1
    ]
    return ", ".join(f"{key} {getattr(config, key)}" for key in keys) or "as given"


def trials(
    task: str, train: Tensor, valid: Tensor | None, groups: Tensor | None = None
) -> CandidateTrials:
    """Splits of training rows with these targets, and of those of the validation part, if any.
    Rows of one of (R,) `groups`, numbered in order, stay together.
    """
    count, enough = len(train), POSITIONS if task == "position-label" else ENOUGH
    if valid is not None and len(valid) >= enough:
        check = torch.arange(count, count + len(valid))
        if task in ("label", "position-label"):
            check = check[valid >= 0]
        part = few(torch.arange(count))
        return CandidateTrials(
            task, torch.cat([train, valid]), [(part, check)], "the validation part", count
        )
    groups = torch.arange(count) if groups is None else groups
    firsts = torch.cat([groups.new_ones(1), groups.diff()]).nonzero()[:, 0] if count else groups
    fold = folds(train[firsts] if train.dim() == 1 else train[firsts, 0], FOLDS)[groups]
    rows = [(fold != n, fold == n) for n in range(FOLDS)]
    splits = [(few(a.nonzero()[:, 0]), b.nonzero()[:, 0]) for a, b in rows if a.any() and b.any()]
    return CandidateTrials(task, train, splits, f"{FOLDS} inner folds", count)


def folds(keys: Tensor, many: int) -> Tensor:
    """(G,) the fold of each group, such that every fold has its share of every key."""
    mixed = torch.from_numpy(np.random.default_rng(0).permutation(len(keys)))
    order = mixed[keys[mixed].nan_to_num().argsort(stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(keys)) % many
    return fold


def few(rows: Tensor, most: int = MOST) -> Tensor:
    """At most so many of some rows, in order, the same every time."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(0).choice(len(rows), most, replace=False)
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
