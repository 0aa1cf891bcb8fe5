"""Objectives: what a batch is asked. `next` asks every position for the token that follows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.data.batching import Batch
from regard.models.language_model import CHUNK, IGNORE, Constrain, NeuralLanguageModel


def next_token(
    model: NeuralLanguageModel,
    batch: Batch,
    *,
    label_smoothing: float = 0.0,
    constrain: Constrain | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss to descend and the plain negative log-likelihood, both summed over the batch's
    targets in nats.
    """
    hidden = model(batch.ids, batch.segments).flatten(0, 1)  # (B·T, D)
    targets, previous = batch.targets.flatten(), batch.ids.flatten()
    rows = max(1, CHUNK // model.vocab_size)
    if len(targets) <= rows:
        return cross_entropy(
            hidden, model.head.weight, targets, previous, label_smoothing, constrain
        )
    loss = nats = hidden.new_zeros((), dtype=torch.float32)
    for h, t, p in zip(hidden.split(rows), targets.split(rows), previous.split(rows), strict=True):
        # projected again in the backward pass: the logits of one chunk are all that ever exist
        part, plain = checkpoint(
            cross_entropy,
            h,
            model.head.weight,
            t,
            p,
            label_smoothing,
            constrain,
            use_reentrant=False,
        )
        loss, nats = loss + part, nats + plain
    return loss, nats


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    previous: Tensor,
    label_smoothing: float,
    constrain: Constrain | None,
) -> tuple[Tensor, Tensor]:
    """Smoothed and plain cross-entropy of (N, D) hidden vectors against (N,) targets, summed.

    Label smoothing (Szegedy et al. 2016) spreads its share over the tokens that are allowed at each
    position.
    """
    logits = F.linear(hidden, weight).float()  # (N, V)
    if constrain is not None:
        logits = constrain(logits, previous)
    nats = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")
    if not label_smoothing:
        return nats, nats.detach()
    logs = logits.log_softmax(dim=-1)
    allowed = logs > -torch.inf
    spread = -(logs.masked_fill(~allowed, 0).sum(-1) / allowed.sum(-1))  # (N,)
    even = (spread * (targets != IGNORE)).sum()
    return (1 - label_smoothing) * nats + label_smoothing * even, nats.detach()
