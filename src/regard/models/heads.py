"""Heads: what the scores of a supervised model mean, one class for each kind of output.

A head knows its loss, the probabilities of its scores, how to average the views of a record and how
far two predictions are apart. It has no parameters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

IGNORE = -1  # the target of a class that is not scored


class Head(ABC):
    """The meaning of scores (…, O)."""

    positional: bool = False  # predicts at each position instead of once for a record
    scaled: ClassVar[bool] = False  # scores are in units of the training targets' deviation
    class_weights: ClassVar[bool] = False  # the loss may weight classes
    multilabel: ClassVar[bool] = False  # each output is a label that is present or absent

    @abstractmethod
    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise, smoothed and weighted, and the plain loss, both summed."""

    @abstractmethod
    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        """Return how far two predictions are apart, summed over the targets that are scored."""

    @abstractmethod
    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the probabilities of classes or labels; values are returned unchanged."""

    @abstractmethod
    def average(self, scores: Tensor) -> Tensor:
        """Return the scores (R, O) of records from those of their views (R, n_views, O)."""

    @abstractmethod
    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        """Return random targets of rows, or of rows and positions."""

    def must_agree(self, probabilities: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return two tensors that are equal if probabilities are sound; None where none are."""
        return None


HEADS: dict[str, Head] = {}


def register_head(*tasks: str) -> Callable[[type[Head]], type[Head]]:
    """Register a head for tasks."""

    def register(cls: type[Head]) -> type[Head]:
        HEADS.update({task: cls() for task in tasks})
        return cls

    return register


@register_head("label")
class ClassHead(Head):
    """Logits of classes."""

    class_weights = True

    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, classes = scores.flatten(0, -2), targets.flatten()
        loss = F.cross_entropy(
            logits,
            classes,
            weights,
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=smoothing,
        )
        return loss, F.cross_entropy(logits, classes, ignore_index=IGNORE, reduction="sum")

    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        """KL(p, q) + KL(q, p)."""
        p, q = one.log_softmax(-1), two.log_softmax(-1)
        gap = ((p.exp() - q.exp()) * (p - q)).sum(-1)
        return gap.where(targets >= 0, 0).sum()

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def average(self, scores: Tensor) -> Tensor:
        return scores.log_softmax(-1).logsumexp(1) - math.log(scores.size(1))

    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        return torch.randint(n_outputs, shape, generator=draw)

    def must_agree(self, probabilities: Tensor) -> tuple[Tensor, Tensor] | None:
        """They sum to one."""
        totals = probabilities.sum(-1)
        return totals, torch.ones_like(totals)


@register_head("position-label", "masked")
class PositionClassHead(ClassHead):
    """Logits of classes at each position."""

    positional = True


@register_head("labels")
class LabelsHead(Head):
    """Logits of labels, each present or absent."""

    multilabel = True

    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        scored, wanted = targets >= 0, targets.clamp_min(0).to(scores.dtype)
        smooth, plain = (
            F.binary_cross_entropy_with_logits(scores, y, reduction="none").where(scored, 0).sum()
            for y in (wanted * (1 - smoothing) + smoothing / 2, wanted)
        )
        return smooth, plain

    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        p, q = one.sigmoid(), two.sigmoid()
        return ((p - q) * (one - two)).where(targets >= 0, 0).sum()

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()

    def average(self, scores: Tensor) -> Tensor:
        return torch.logit(scores.sigmoid().mean(1), eps=1e-12)

    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        return torch.randint(2, (*shape, n_outputs), generator=draw)

    def must_agree(self, probabilities: Tensor) -> tuple[Tensor, Tensor] | None:
        """Each is from 0 to 1."""
        return probabilities, probabilities.clamp(0, 1)


@register_head("value")
class ValueHead(Head):
    """Numbers; targets are standardised as the scores are, NaN where a value is missing."""

    scaled = True

    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Half the squared error."""
        half = ((scores - targets.nan_to_num(0.0)).square() / 2).where(~targets.isnan(), 0).sum()
        return half, half

    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        return (one - two).square().where(~targets.isnan(), 0).sum()

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores

    def average(self, scores: Tensor) -> Tensor:
        return scores.mean(1)

    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        return torch.randn((*shape, n_outputs), generator=draw, dtype=torch.float64)
