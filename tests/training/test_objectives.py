"""The loss: chunks change nothing, smoothing spreads over what is allowed, constraints hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.batching import Batch
from regard.decoding.constraints import ForbiddenTransitions
from regard.models.decoder import Decoder, modern
from regard.training import objectives

V = 13


def batch(seed=0):
    torch.manual_seed(seed)
    ids, targets = torch.randint(0, V, (3, 7)), torch.randint(0, V, (3, 7))
    targets[1, 3:] = -1
    return Batch(ids, targets, None, np.arange(3), 17, 17)


def gradients(model, x, **kwargs):
    model.zero_grad()
    loss, nats = objectives.NextTokenObjective(model, **kwargs)(x.ids, x.targets)
    loss.backward()
    return loss.detach(), nats, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_equals_torchs_cross_entropy_whole_and_in_chunks(smoothing, monkeypatch):
    model, x = Decoder(V, modern(1, 32)), batch()
    logits = model.logits(x.ids).detach().flatten(0, 1)
    expected = F.cross_entropy(
        logits, x.targets.flatten(), ignore_index=-1, reduction="sum", label_smoothing=smoothing
    )
    loss, nats, whole = gradients(model, x, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nats, -model.score(x.ids, x.targets).sum().detach())
    monkeypatch.setattr(objectives, "CHUNK", 4 * V)
    chunked_loss, chunked_nats, chunked = gradients(model, x, label_smoothing=smoothing)
    torch.testing.assert_close(chunked_loss, loss)
    torch.testing.assert_close(chunked_nats, nats)
    for a, b in zip(whole, chunked, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_forbidden_transitions_leave_the_loss_and_get_no_gradient():
    model, x = Decoder(V, modern(1, 32)), batch()
    x.targets[x.targets == 4] = 5
    forbidden = ForbiddenTransitions.from_pairs([(a, 4) for a in range(V)], V)
    loss, _, _ = gradients(model, x, constrain=forbidden)
    logits = model.logits(x.ids).detach().flatten(0, 1)
    kept = torch.cat([logits[:, :4], logits[:, 5:]], dim=1)
    targets = x.targets.flatten()
    shifted = torch.where(targets > 4, targets - 1, targets)
    torch.testing.assert_close(
        loss, F.cross_entropy(kept, shifted, ignore_index=-1, reduction="sum")
    )
    assert (model.head.weight.grad[4] == 0).all()


def test_smoothing_spreads_only_over_what_is_allowed():
    model, x = Decoder(V, modern(1, 32)), batch()
    x.targets[x.targets == 4] = 5
    forbidden = ForbiddenTransitions.from_pairs([(a, 4) for a in range(V)], V)
    loss, _, grads = gradients(model, x, constrain=forbidden, label_smoothing=0.2)
    assert torch.isfinite(loss) and all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("consistency", [0.0, 3.0])
def test_the_gradient_made_by_hand_is_the_gradient(
    smoothing, constrained, consistency, monkeypatch
):
    monkeypatch.setattr(objectives, "CHUNK", 4 * V)
    torch.manual_seed(0)
    hidden = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, 5, dtype=torch.float64, requires_grad=True)
    targets, previous = torch.tensor([3, -1, 0] * 2), torch.tensor([1, 2, 3] * 2)
    if not consistency:  # else the second half are the first again
        targets = torch.tensor([3, -1, 0, 12, 7, -1])
    pairs = [(a, b) for a in (1, 2) for b in (5, 6)]
    rule = ForbiddenTransitions.from_pairs(pairs, V) if constrained else None

    def loss(hidden, weight):
        return objectives.ProjectedCrossEntropy.apply(
            hidden, weight, targets, previous, smoothing, consistency, rule
        )[0]

    assert loss(hidden, weight).dtype == torch.float64
    assert torch.autograd.gradcheck(loss, (hidden, weight))


def test_two_passes_are_asked_to_agree():
    """R-Drop's loss by its definition: the mean cross-entropy of both, and the divergences."""
    model, x = Decoder(V, dataclasses.replace(modern(1, 32), dropout=0.5)), batch()
    torch.manual_seed(1)
    loss, nats, grads = gradients(model, x, label_smoothing=0.1, consistency=5.0)
    model.zero_grad()
    torch.manual_seed(1)
    both = model.logits(x.ids.repeat(2, 1)).flatten(0, 1)
    targets = x.targets.repeat(2, 1).flatten()
    asked = {"ignore_index": -1, "reduction": "sum"}
    one, two = both.log_softmax(-1)[targets >= 0].chunk(2)
    apart = F.kl_div(one, two, reduction="sum", log_target=True)
    apart = apart + F.kl_div(two, one, reduction="sum", log_target=True)
    expected = F.cross_entropy(both, targets, label_smoothing=0.1, **asked) / 2 + 5 / 4 * apart
    expected.backward()
    assert apart > 0.01
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(nats, F.cross_entropy(both, targets, **asked).detach() / 2)
    for mine, p in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad, atol=1e-5, rtol=1e-4)
