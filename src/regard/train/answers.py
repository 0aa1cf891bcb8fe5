"""The objective of labelled records: how far a model's answers are from those of the data.

Classes are asked by cross-entropy, several labels by the same for each of them, values by the
square of the difference in units of their deviation, so that a column in grams and one in degrees
count alike. Gaps are not asked. R-Drop (Liang et al. 2021, arXiv:2106.14448), where it is wanted,
makes two passes agree that differ by dropout alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.source import Source
from regard.models.assessor import NeuralAssessor
from regard.models.language_model import IGNORE


class Answers(nn.Module):
    """An assessor and its loss. `weights` (C,) say how much each class counts."""

    weights: Tensor | None

    def __init__(
        self,
        model: NeuralAssessor,
        *,
        label_smoothing: float = 0.0,
        consistency: float = 0.0,
        weights: Tensor | None = None,
        share: float = 1.0,
        changes: nn.Module | None = None,
    ) -> None:
        """`share` of the tokens, or less, are to be filled in, in training."""
        super().__init__()
        self.changes = changes  # what is done to records before they are shown
        self.model, self.task = model, model.task
        self.label_smoothing, self.consistency, self.share = label_smoothing, consistency, share
        self.register_buffer("weights", weights)

    def forward(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, *_: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss to descend and the plain cost of the targets, both summed over what is asked:
        nats or, of values, half of squares. A batch without segments asks nothing.
        """
        if segments is None:  # of a process that has no part in a step, but in its gradient
            there = torch.ones(ids.shape[:2], dtype=torch.long, device=ids.device)
            nothing = self.model(Source(ids, there)).sum() * 0
            return nothing, nothing.detach()
        passes = 2 if self.consistency and self.model.training else 1
        if self.changes is not None:
            ids, segments = self.changes(ids, segments)
        both = (ids, segments)
        tensors = (x.repeat(passes, *[1] * (x.dim() - 1)) for x in both)
        asked = targets.repeat(passes, *[1] * (targets.dim() - 1))
        where: dict[str, Any] = {} if self.model.config.each else {"count": len(asked)}
        if self.task == "masked":  # most positions are not asked
            at = self.places(targets)  # (N,)
            where = {"at": torch.cat([at + i * targets.numel() for i in range(passes)])}
            targets = targets.flatten()[at]
            asked = targets.repeat(passes)
        # (passes · B, O), (passes · B, T, O) or, where few positions are asked, (passes · N, O)
        found = self.model(Source(*tensors), **where)
        found = found.to(torch.promote_types(found.dtype, torch.float32))
        loss, cost = (x / passes for x in self.cost(found, asked))
        if passes == 2:
            one, two = found.chunk(2)
            loss = loss + self.consistency / 4 * self.apart(one, two, targets)
        return loss, cost.detach()

    def places(self, targets: Tensor) -> Tensor:
        """(N,) places in the flattened (B, T) targets: all that are asked. In training some others
        are among them, so that their number depends on the shape alone: as many as chance will not
        exceed, eight deviations above what is expected.
        """
        asked, count = targets.flatten() >= 0, targets.numel()
        if not self.model.training:
            return asked.nonzero().squeeze(1)
        likely = self.share * count + 8 * math.sqrt(self.share * (1 - self.share) * count)
        return asked.int().topk(min(count, math.ceil(likely)), sorted=False).indices

    def cost(self, found: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Smoothed and plain cost of answers beside their targets, summed."""
        if self.task == "value":
            there = ~targets.isnan()
            wanted = (targets.nan_to_num(0.0) - self.model.shift) / self.model.scale
            half = ((found - wanted).square() / 2).where(there, 0).sum()
            return half, half
        if self.task == "labels":
            there, smooth = targets >= 0, self.label_smoothing
            wanted = targets.clamp_min(0).to(found.dtype)
            both = [
                F.binary_cross_entropy_with_logits(found, y, reduction="none").where(there, 0).sum()
                for y in (wanted * (1 - smooth) + smooth / 2, wanted)
            ]
            return both[0], both[1]
        logits, wanted = found.flatten(0, -2), targets.flatten()
        loss = F.cross_entropy(
            logits,
            wanted,
            self.weights,
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return loss, F.cross_entropy(logits, wanted, ignore_index=IGNORE, reduction="sum")

    def apart(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        """How far the answers of two passes are apart: KL(p, q) + KL(q, p), or of values the square
        of the difference, summed over what is asked.
        """
        if self.task == "value":
            return (one - two).square().where(~targets.isnan(), 0).sum()
        if self.task == "labels":  # of each label, being there and not
            p, q = one.sigmoid(), two.sigmoid()
            return ((p - q) * (one - two)).where(targets >= 0, 0).sum()
        p, q = one.log_softmax(-1), two.log_softmax(-1)
        gap = ((p.exp() - q.exp()) * (p - q)).sum(-1)
        return gap.where(targets >= 0, 0).sum()
