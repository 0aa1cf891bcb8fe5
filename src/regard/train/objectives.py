"""Objectives: what a batch is asked. `NextToken` asks every position for the token that follows.

An objective is the module that is trained: the model and its loss in one, so that spreading it over
processes takes hold of both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.language_model import IGNORE, Constrain, NeuralLanguageModel

try:
    from regard.train.kernels import cross_entropy_
except ImportError:  # no Triton here: a CPU, or another system
    cross_entropy_ = None  # type: ignore[assignment, unused-ignore]

CHUNK = {"cpu": 1 << 24, "cuda": 1 << 29}  # logits held at once: 64 MB in fp32, 1 GB in bf16


class NextToken(nn.Module):
    """Every position is asked for the token that follows it."""

    def __init__(
        self,
        model: NeuralLanguageModel,
        *,
        label_smoothing: float = 0.0,
        constrain: Constrain | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing, self.constrain = label_smoothing, constrain

    def forward(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss to descend and the plain negative log-likelihood of the targets (B, T), both
        summed, in nats; IGNORE is not asked.
        """
        hidden = self.model(ids, segments).flatten(0, 1)  # (B·T, D)
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
        w = weight.to(hidden.dtype)
        rows = max(1, CHUNK[device] // len(weight))
        loss = nats = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        learns = any(ctx.needs_input_grad)
        dh, dw = [], torch.zeros_like(weight) if learns else weight
        for h, t, p in zip(
            hidden.split(rows), targets.split(rows), previous.split(rows), strict=True
        ):
            logits = F.linear(h, w)  # (n, V)
            plain_gpu = logits.is_cuda and constrain is None and logits.dtype != torch.float64
            if plain_gpu and cross_entropy_ is not None:
                part, plain, d = cross_entropy_(logits, t, label_smoothing)
            else:
                part, plain, d = cross_entropy(logits, t, p, label_smoothing, constrain)
            loss, nats = loss + part, nats + plain
            if learns:
                dh.append(d @ w)
                dw += d.mT @ h
        if learns:
            ctx.save_for_backward(torch.cat(dh), dw)
        ctx.mark_non_differentiable(nats)
        return loss, nats

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dh, dw = ctx.saved_tensors
        return dh * gradients[0].to(dh.dtype), dw * gradients[0], None, None, None, None


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
    if label_smoothing:
        allowed = logs > -torch.inf
        share = label_smoothing / allowed.sum(-1, keepdim=True)  # (N, 1)
        even = -(share * logs.where(allowed, 0).sum(-1, keepdim=True)).where(scored, 0)
        loss = told * nats + even.sum()
        gradient, wrong = logs.exp() - share * allowed, wrong - share
    else:
        gradient = logs.exp_()
    gradient = gradient.where(scored, 0).to(dtype)
    return loss, nats.clone(), gradient.scatter_(1, at, wrong.where(scored, 0).to(dtype))
