"""Objectives: what a batch is asked. `NextTokenObjective` asks every position for the token that
follows.

An objective is the module that is trained: the model and its loss in one, so that spreading it over
processes takes hold of both.

The objective of labelled records: how far a model's answers are from those of the data.

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

from regard.layers.embeddings import Inputs
from regard.models.language_model import IGNORE, Constrain, NeuralLanguageModel
from regard.models.seq2seq import NeuralSeq2Seq
from regard.models.supervised import NeuralSupervisedModel

try:
    from regard.kernels.cross_entropy import cross_entropy_
except ImportError:  # no Triton here: a CPU, or another system
    cross_entropy_ = None  # type: ignore[assignment, unused-ignore]

CHUNK = 1 << 21  # logits held at once: 8 MB in fp32, which a CPU's cache holds; a GPU holds more


class NextTokenObjective(nn.Module):
    """Every position is asked for the token that follows it."""

    def __init__(
        self,
        model: NeuralLanguageModel | NeuralSeq2Seq,
        *,
        label_smoothing: float = 0.0,
        consistency: float = 0.0,
        constrain: Constrain | None = None,
        changes: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.changes = changes  # what is done to pictures, where sources are, before they are shown
        self.label_smoothing, self.consistency = label_smoothing, consistency
        self.constrain = constrain

    def forward(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        source_ids: Tensor | None = None,
        source_segments: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The loss to descend and the plain negative log-likelihood of the targets (B, T), both
        summed, in nats; IGNORE is not asked. A translator is also given the source, (B, S) each, or
        (B, S, V) of tokens that are numbers.

        With `consistency`, all of it is asked twice, and what dropout makes of it is to agree.
        """
        if self.changes is not None and source_ids is not None:
            source_ids, source_segments = self.changes(source_ids, source_segments)
        if self.consistency:
            tensors = ids, targets, segments, source_ids, source_segments
            twice = [None if x is None else x.repeat(2, *[1] * (x.dim() - 1)) for x in tensors]
            ids, targets, segments, source_ids, source_segments = twice  # type: ignore[assignment]
        more = () if source_ids is None else (Inputs(source_ids, source_segments),)  # type: ignore[arg-type]
        hidden = self.model(ids, segments, *more).flatten(0, 1)  # (B·T, D)
        loss, nats = ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden,
            self.model.head.weight,
            targets.flatten(),
            ids.flatten(),
            self.label_smoothing,
            self.consistency,
            self.constrain,
        )
        return loss, nats


class ProjectedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of hidden vectors (N, D) times a matrix (V, D), summed: smoothed and plain.

    The logits (N, V) exist a chunk at a time, and their gradient is taken while they do: nothing of
    that size is kept for the backward pass, and nothing is computed twice.

    With `consistency`, the second half of the rows are the first, seen with other dropout: the mean
    of both is taken, and R-Drop's term joins the loss (Liang et al. 2021, arXiv:2106.14448).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        previous: Tensor,
        label_smoothing: float,
        consistency: float,
        constrain: Constrain | None,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        if torch.is_autocast_enabled(device):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        kernel = cross_entropy_ if hidden.is_cuda and hidden.dtype != torch.float64 else None
        if constrain is not None:
            kernel = None
        size, passes = len(weight), 2 if consistency else 1
        # a GPU is four times slower on rows that do not start at multiples of 16 bytes
        w = F.pad(weight.to(hidden.dtype), (0, 0, 0, -size % 8 if kernel else 0))
        rows = chunk(len(hidden), len(w), hidden.device) // passes
        loss = nats = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        learns = any(ctx.needs_input_grad)
        dh, dw = [], torch.zeros_like(w, dtype=weight.dtype) if learns else weight
        asked = [x.unflatten(0, (passes, -1)) for x in (hidden, targets, previous)]
        for several in zip(*(x.split(max(1, rows), dim=1) for x in asked), strict=True):
            h, t, p = (x.flatten(0, 1) for x in several)  # (n, D), (n,), (n,)
            logits = F.linear(h, w)  # (n, V)
            apart = symmetric_kl(logits[:, :size], t) if consistency else None
            if kernel is not None:
                part, plain, d = kernel(logits, t, label_smoothing, size)
            else:
                part, plain, d = cross_entropy(logits, t, p, label_smoothing, constrain)
            loss, nats = loss + part / passes, nats + plain / passes
            if apart is not None:
                loss = loss + consistency / 4 * apart[0]
                d.div_(2)[:, :size] += (consistency / 4 * apart[1]).to(d.dtype)
            if learns:
                dh.append((d @ w).unflatten(0, (passes, -1)))
                add_product(dw, d.mT, h)
        if learns:
            ctx.save_for_backward(torch.cat(dh, dim=1).flatten(0, 1), dw[:size])
        ctx.mark_non_differentiable(nats)
        return loss, nats

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dh, dw = ctx.saved_tensors
        return dh * gradients[0].to(dh.dtype), dw * gradients[0], *(None,) * 5


def symmetric_kl(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """How far the distributions of two passes are apart, KL(p, q) + KL(q, p) summed over positions,
    and its gradient (2N, V).

    Of logits (2N, V), row n and row N + n are two views of one position; those whose target is
    IGNORE do not count.
    """
    logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    logs = logs.unflatten(0, (2, -1))  # (2, N, V)
    p, gap = logs.exp(), (logs - logs.flip(0)).nan_to_num_(0.0)  # what is forbidden is so in both
    apart = (p * gap).sum(-1, keepdim=True)  # (2, N, 1)
    scored = (targets != IGNORE).view(2, -1, 1)
    gradient = (p * (gap - apart) + p - p.flip(0)).where(scored, 0)
    return apart.where(scored, 0).sum(), gradient.flatten(0, 1)


def chunk(rows: int, size: int, device: torch.device) -> int:
    """Rows of `size` logits to hold at once, of equal chunks."""
    held = CHUNK
    if device.type == "cuda":  # a sixty-fourth of its memory, in bf16
        held = max(1 << 24, torch.cuda.get_device_properties(device).total_memory // 128)
    return -(-rows // -(-rows * size // held)) if rows else 1


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, summed in the precision of the total."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    elif total.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    previous: Tensor,
    label_smoothing: float,
    constrain: Constrain | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Smoothed and plain cross-entropy of logits (N, V) against targets (N,), summed, and the
    gradient (N, V) of the first.

    Label smoothing (Szegedy et al. 2016) spreads its share over the tokens that are allowed at each
    position, those whose logit is not -inf.
    """
    dtype = logits.dtype
    logits = logits.to(torch.promote_types(dtype, torch.float32))
    if constrain is not None:
        logits = constrain(logits, previous)
    scored = (targets != IGNORE)[:, None]  # (N, 1)
    at = targets.clamp_min(0)[:, None]  # (N, 1)
    gradient = logits.softmax(-1)
    # the log of the sum of exponentials: the likeliest token's share in the softmax is its inverse
    total = logits.amax(-1, keepdim=True) - gradient.amax(-1, keepdim=True).log()  # (N, 1)
    right = logits.gather(1, at) - total  # (N, 1)
    loss = nats = -right.where(scored, 0).sum()
    told = 1 - label_smoothing
    wrong = right.exp() - told
    if label_smoothing and constrain is None:  # all tokens are allowed
        even = label_smoothing / logits.size(-1)
        logs = logits.sum(-1, keepdim=True) - logits.size(-1) * total
        loss = told * nats - even * logs.where(scored, 0).sum()
        gradient, wrong = gradient.sub_(even), wrong - even
    elif label_smoothing:
        allowed = logits > -torch.inf
        share = label_smoothing / allowed.sum(-1, keepdim=True)  # (N, 1)
        logs = (logits - total).where(allowed, 0).sum(-1, keepdim=True)
        loss = told * nats - (share * logs).where(scored, 0).sum()
        gradient, wrong = gradient - share * allowed, wrong - share
    if constrain is None:
        gradient.mul_(scored)
    else:  # nothing may be allowed after padding, which gives no numbers
        gradient = gradient.where(scored, 0)
    gradient = gradient.to(dtype)
    return loss, nats.clone(), gradient.scatter_(1, at, wrong.where(scored, 0).to(dtype))


class SupervisedObjective(nn.Module):
    """An assessor and its loss. `weights` (C,) say how much each class counts."""

    weights: Tensor | None

    def __init__(
        self,
        model: NeuralSupervisedModel,
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
            nothing = self.model(Inputs(ids, there)).sum() * 0
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
        found = self.model(Inputs(*tensors), **where)
        found = found.to(torch.promote_types(found.dtype, torch.float32))
        loss, cost = (x / passes for x in self.cost(found, asked))
        if passes == 2:
            one, two = found.chunk(2)
            loss = loss + self.consistency / 4 * self.model.output.divergence(one, two, targets)
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

    def cost(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smoothed and the plain loss of scores beside their targets, summed."""
        if self.model.output.scaled:
            targets = (targets - self.model.shift) / self.model.scale
        smoothing, weights = self.label_smoothing, self.weights
        return self.model.output.loss(scores, targets, smoothing=smoothing, weights=weights)
