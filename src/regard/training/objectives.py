"""Training objectives: the model and its loss in one module, so that DistributedDataParallel wraps
both.

`NextTokenObjective` is the cross-entropy of the next token at every position. `SupervisedObjective`
is the cross-entropy of classes, the sum of binary cross-entropies of several labels, or the squared
error of values in units of their standard deviation, so that columns of any unit count the same;
missing targets do not count. R-Drop (Liang et al. 2021, arXiv:2106.14448) adds the divergence of
two forward passes with different dropout.
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

CHUNK = 1 << 21  # logits in memory at once on a CPU: 8 MB in fp32, which fits into its cache


class NextTokenObjective(nn.Module):
    """The cross-entropy of the next token at every position."""

    def __init__(
        self,
        model: NeuralLanguageModel | NeuralSeq2Seq,
        *,
        label_smoothing: float = 0.0,
        r_drop: float = 0.0,
        constrain: Constrain | None = None,
        augment: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.augment = augment  # a random transform of source images
        self.label_smoothing, self.r_drop = label_smoothing, r_drop
        self.constrain = constrain

    def forward(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        source_ids: Tensor | None = None,
        source_segments: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the training loss and the negative log-likelihood of the targets (B, T), both
        summed, in nats; targets of IGNORE do not count. Sequence-to-sequence models also get the
        source, (B, S) each, or (B, S, V) if tokens are vectors of numbers.
        """
        if self.augment is not None and source_ids is not None:
            source_ids, source_segments = self.augment(source_ids, source_segments)
        if self.r_drop:
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
            self.r_drop,
            self.constrain,
        )
        return loss, nats


class ProjectedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of hidden vectors (N, D) times a matrix (V, D), summed: smoothed and plain.

    The logits (N, V) are computed in chunks, together with their gradient: nothing of that size is
    stored for the backward pass, and nothing is computed twice.

    With `r_drop`, the second half of the rows repeats the first with other dropout; the loss is the
    mean of both halves plus the term of R-Drop (Liang et al. 2021, arXiv:2106.14448).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        previous: Tensor,
        label_smoothing: float,
        r_drop: float,
        constrain: Constrain | None,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        if torch.is_autocast_enabled(device):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        kernel = cross_entropy_ if hidden.is_cuda and hidden.dtype != torch.float64 else None
        if constrain is not None:
            kernel = None
        size, copies = len(weight), 2 if r_drop else 1
        # a GPU is four times slower on rows that do not start at multiples of 16 bytes
        w = F.pad(weight.to(hidden.dtype), (0, 0, 0, -size % 8 if kernel else 0))
        rows = chunk(len(hidden), len(w), hidden.device) // copies
        loss = nats = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        learns = any(ctx.needs_input_grad)
        dh, dw = [], torch.zeros_like(w, dtype=weight.dtype) if learns else weight
        tensors = [x.unflatten(0, (copies, -1)) for x in (hidden, targets, previous)]
        for chunks in zip(*(x.split(max(1, rows), dim=1) for x in tensors), strict=True):
            h, t, p = (x.flatten(0, 1) for x in chunks)  # (n, D), (n,), (n,)
            logits = F.linear(h, w)  # (n, V)
            divergence = symmetric_kl(logits[:, :size], t) if r_drop else None
            if kernel is not None:
                part, plain, d = kernel(logits, t, label_smoothing, size, IGNORE)
            else:
                part, plain, d = cross_entropy(logits, t, p, label_smoothing, constrain)
            loss, nats = loss + part / copies, nats + plain / copies
            if divergence is not None:
                loss = loss + r_drop / 4 * divergence[0]
                d.div_(2)[:, :size] += (r_drop / 4 * divergence[1]).to(d.dtype)
            if learns:
                dh.append((d @ w).unflatten(0, (copies, -1)))
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
    """Return KL(p, q) + KL(q, p) summed over positions, and its gradient (2N, V).

    Rows n and N + n of the logits (2N, V) are two predictions for one position; positions whose
    target is IGNORE do not count.
    """
    logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    logs = logs.unflatten(0, (2, -1))  # (2, N, V)
    p, gap = logs.exp(), (logs - logs.flip(0)).nan_to_num_(0.0)  # -inf is forbidden in both
    divergence = (p * gap).sum(-1, keepdim=True)  # (2, N, 1)
    scored = (targets != IGNORE).view(2, -1, 1)
    gradient = (p * (gap - divergence) + p - p.flip(0)).where(scored, 0)
    return divergence.where(scored, 0).sum(), gradient.flatten(0, 1)


def chunk(rows: int, size: int, device: torch.device) -> int:
    """Return the rows of a chunk of logits (rows, size), such that chunks have equal sizes."""
    numbers = CHUNK
    if device.type == "cuda":  # a sixty-fourth of its memory, in bf16
        numbers = max(1 << 24, torch.cuda.get_device_properties(device).total_memory // 128)
    return -(-rows // -(-rows * size // numbers)) if rows else 1


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to the total, in the precision of the total."""
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
    """Return the smoothed and the plain cross-entropy of logits (N, V) and targets (N,), summed,
    and the gradient (N, V) of the first.

    Label smoothing (Szegedy et al. 2016) is uniform over the tokens that are allowed at a position,
    those whose logit is not -inf.
    """
    dtype = logits.dtype
    logits = logits.to(torch.promote_types(dtype, torch.float32))
    if constrain is not None:
        logits = constrain(logits, previous)
    scored = (targets != IGNORE)[:, None]  # (N, 1)
    at = targets.clamp_min(0)[:, None]  # (N, 1)
    gradient = logits.softmax(-1)
    # the log of the sum of exponentials, from the largest logit and its probability
    total = logits.amax(-1, keepdim=True) - gradient.amax(-1, keepdim=True).log()  # (N, 1)
    target_logs = logits.gather(1, at) - total  # (N, 1)
    loss = nats = -target_logs.where(scored, 0).sum()
    confidence = 1 - label_smoothing
    target_gradient = target_logs.exp() - confidence
    if label_smoothing and constrain is None:  # all tokens are allowed
        even = label_smoothing / logits.size(-1)
        logs = logits.sum(-1, keepdim=True) - logits.size(-1) * total
        loss = confidence * nats - even * logs.where(scored, 0).sum()
        gradient, target_gradient = gradient.sub_(even), target_gradient - even
    elif label_smoothing:
        allowed = logits > -torch.inf
        share = label_smoothing / allowed.sum(-1, keepdim=True)  # (N, 1)
        logs = (logits - total).where(allowed, 0).sum(-1, keepdim=True)
        loss = confidence * nats - (share * logs).where(scored, 0).sum()
        gradient, target_gradient = gradient - share * allowed, target_gradient - share
    if constrain is None:
        gradient.mul_(scored)
    else:  # after padding all tokens may be forbidden, which gives NaN
        gradient = gradient.where(scored, 0)
    gradient = gradient.to(dtype)
    return loss, nats.clone(), gradient.scatter_(1, at, target_gradient.where(scored, 0).to(dtype))


class SupervisedObjective(nn.Module):
    """A supervised model and its loss, with class `weights` (C,)."""

    weights: Tensor | None

    def __init__(
        self,
        model: NeuralSupervisedModel,
        *,
        label_smoothing: float = 0.0,
        r_drop: float = 0.0,
        weights: Tensor | None = None,
        share: float = 1.0,
        augment: nn.Module | None = None,
    ) -> None:
        """Of masked language models, `share` is the largest share of tokens with targets."""
        super().__init__()
        self.augment = augment  # a random transform of records
        self.model = model
        self.label_smoothing, self.r_drop, self.share = label_smoothing, r_drop, share
        self.register_buffer("weights", weights)

    def forward(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, *_: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the training loss and the plain loss of the targets, both summed: nats or, for
        values, half of the squared errors. A batch without segments has no targets.
        """
        if segments is None:  # a process without data still takes part in the gradient
            ones = torch.ones(ids.shape[:2], dtype=torch.long, device=ids.device)
            zero = self.model(Inputs(ids, ones)).sum() * 0
            return zero, zero.detach()
        copies = 2 if self.r_drop and self.model.training else 1
        if self.augment is not None:
            ids, segments = self.augment(ids, segments)
        inputs = Inputs(*(x.repeat(copies, *[1] * (x.dim() - 1)) for x in (ids, segments)))
        repeated = targets.repeat(copies, *[1] * (targets.dim() - 1))
        where: dict[str, Any] = {} if self.model.output.positional else {"count": len(repeated)}
        if self.model.sparse_targets:  # most positions have no target
            at = self.places(targets)  # (N,)
            where = {"positions": torch.cat([at + i * targets.numel() for i in range(copies)])}
            targets = targets.flatten()[at]
            repeated = targets.repeat(copies)
        # (copies · B, O), (copies · B, T, O) or, if targets are sparse, (copies · N, O)
        scores = self.model(inputs, **where)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        loss, plain = (x / copies for x in self.cost(scores, repeated))
        if copies == 2:
            one, two = scores.chunk(2)
            loss = loss + self.r_drop / 4 * self.model.output.divergence(one, two, targets)
        return loss, plain.detach()

    def places(self, targets: Tensor) -> Tensor:
        """Return the positions (N,) of targets in the flattened (B, T).

        In training other positions are added, so that their number depends on the shape only: it is
        eight standard deviations above the expected number of targets.
        """
        labelled, count = targets.flatten() >= 0, targets.numel()
        if not self.model.training:
            return labelled.nonzero().squeeze(1)
        most = self.share * count + 8 * math.sqrt(self.share * (1 - self.share) * count)
        return labelled.int().topk(min(count, math.ceil(most)), sorted=False).indices

    def cost(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smoothed and the plain loss of scores, summed."""
        if self.model.output.scaled:
            targets = (targets - self.model.shift) / self.model.scale
        smoothing, weights = self.label_smoothing, self.weights
        return self.model.output.loss(scores, targets, smoothing=smoothing, weights=weights)
