"""Objectives: what a batch is asked. `NextToken` asks every position for the token that follows.

An objective is the module that is trained: the model and its loss in one, so that spreading it over
processes takes hold of both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.source import Source
from regard.models.language_model import IGNORE, Constrain, NeuralLanguageModel
from regard.models.translator import NeuralTranslator

try:
    from regard.train.kernels import cross_entropy_
except ImportError:  # no Triton here: a CPU, or another system
    cross_entropy_ = None  # type: ignore[assignment, unused-ignore]

CHUNK = 1 << 24  # logits held at once: 64 MB in fp32; a GPU may hold more


class NextToken(nn.Module):
    """Every position is asked for the token that follows it."""

    def __init__(
        self,
        model: NeuralLanguageModel | NeuralTranslator,
        *,
        label_smoothing: float = 0.0,
        constrain: Constrain | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing, self.constrain = label_smoothing, constrain

    def forward(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        source_ids: Tensor | None = None,
        source_segments: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The loss to descend and the plain negative log-likelihood of the targets (B, T), both
        summed, in nats; IGNORE is not asked. A translator is also given the source, (B, S) each.
        """
        more = () if source_ids is None else (Source(source_ids, source_segments),)  # type: ignore[arg-type]
        hidden = self.model(ids, segments, *more).flatten(0, 1)  # (B·T, D)
        loss, nats = ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden,
            self.model.head.weight,
            targets.flatten(),
            ids.flatten(),
            self.label_smoothing,
            self.constrain,
        )
        return loss, nats


class ProjectedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of hidden vectors (N, D) times a matrix (V, D), summed: smoothed and plain.

    The logits (N, V) exist a chunk at a time, and their gradient is taken while they do: nothing of
    that size is kept for the backward pass, and nothing is computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        previous: Tensor,
        label_smoothing: float,
        constrain: Constrain | None,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        if torch.is_autocast_enabled(device):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        kernel = cross_entropy_ if hidden.is_cuda and hidden.dtype != torch.float64 else None
        if constrain is not None:
            kernel = None
        size = len(weight)
        # a GPU is four times slower on rows that do not start at multiples of 16 bytes
        w = F.pad(weight.to(hidden.dtype), (0, 0, 0, -size % 8 if kernel else 0))
        rows = chunk(len(hidden), len(w), hidden.device)
        loss = nats = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        learns = any(ctx.needs_input_grad)
        dh, dw = [], torch.zeros_like(w, dtype=weight.dtype) if learns else weight
        for h, t, p in zip(
            hidden.split(rows), targets.split(rows), previous.split(rows), strict=True
        ):
            logits = F.linear(h, w)  # (n, V)
            if kernel is not None:
                part, plain, d = kernel(logits, t, label_smoothing, size)
            else:
                part, plain, d = cross_entropy(logits, t, p, label_smoothing, constrain)
            loss, nats = loss + part, nats + plain
            if learns:
                dh.append(d @ w)
                add_product(dw, d.mT, h)
        if learns:
            ctx.save_for_backward(torch.cat(dh), dw[:size])
        ctx.mark_non_differentiable(nats)
        return loss, nats

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dh, dw = ctx.saved_tensors
        return dh * gradients[0].to(dh.dtype), dw * gradients[0], None, None, None, None


def chunk(rows: int, size: int, device: torch.device) -> int:
    """Rows of `size` logits to hold at once, of equal chunks."""
    held = CHUNK
    if device.type == "cuda":  # a sixty-fourth of its memory, in bf16
        held = max(held, torch.cuda.get_device_properties(device).total_memory // 128)
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
    logs = logits.log_softmax(-1)
    right = logs.gather(1, at)  # (N, 1)
    loss = nats = -right.where(scored, 0).sum()
    told = 1 - label_smoothing
    wrong = right.exp() - told
    if label_smoothing and constrain is None:  # all tokens are allowed
        even = label_smoothing / logs.size(-1)
        loss = told * nats - even * logs.sum(-1, keepdim=True).where(scored, 0).sum()
        gradient, wrong = logs.exp_().sub_(even), wrong - even
    elif label_smoothing:
        allowed = logs > -torch.inf
        share = label_smoothing / allowed.sum(-1, keepdim=True)  # (N, 1)
        spread = -(share * logs.where(allowed, 0).sum(-1, keepdim=True)).where(scored, 0)
        loss = told * nats + spread.sum()
        gradient, wrong = logs.exp() - share * allowed, wrong - share
    else:
        gradient = logs.exp_()
    gradient = gradient.where(scored, 0).to(dtype)
    return loss, nats.clone(), gradient.scatter_(1, at, wrong.where(scored, 0).to(dtype))
