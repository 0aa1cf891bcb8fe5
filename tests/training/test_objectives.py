"""Losses against plain formulas: chunks change nothing, smoothing spreads over what is allowed,
constraints hold; of labelled records, gaps cost nothing and units do not matter.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.batching import Batch
from regard.decoding.constraints import ForbiddenTransitions
from regard.layers.embeddings import Inputs
from regard.models import encoder
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel, MaskedLM
from regard.training import objectives
from regard.training.objectives import SupervisedObjective

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
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_the_gradient_made_by_hand_is_the_gradient(smoothing, constrained, r_drop, monkeypatch):
    monkeypatch.setattr(objectives, "CHUNK", 4 * V)
    torch.manual_seed(0)
    hidden = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, 5, dtype=torch.float64, requires_grad=True)
    targets, previous = torch.tensor([3, -1, 0] * 2), torch.tensor([1, 2, 3] * 2)
    if not r_drop:  # else the second half are the first again
        targets = torch.tensor([3, -1, 0, 12, 7, -1])
    pairs = [(a, b) for a in (1, 2) for b in (5, 6)]
    rule = ForbiddenTransitions.from_pairs(pairs, V) if constrained else None

    def loss(hidden, weight):
        return objectives.ProjectedCrossEntropy.apply(
            hidden, weight, targets, previous, smoothing, r_drop, rule
        )[0]

    assert loss(hidden, weight).dtype == torch.float64
    assert torch.autograd.gradcheck(loss, (hidden, weight))


def test_two_passes_are_asked_to_agree():
    """R-Drop's loss by its definition: the mean cross-entropy of both, and the divergences."""
    model, x = Decoder(V, dataclasses.replace(modern(1, 32), dropout=0.5)), batch()
    torch.manual_seed(1)
    loss, nats, grads = gradients(model, x, label_smoothing=0.1, r_drop=5.0)
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


# Labelled records


def classifier(task, outputs, **options):
    torch.manual_seed(0)
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "max_len": 16}
    config = dataclasses.replace(
        encoder.modern(1, 16), **sizes, task=task, n_outputs=outputs, **options
    )
    return EncoderModel(11, config)


def labelled_rows(seed=1):
    torch.manual_seed(seed)
    ids, segments = torch.randint(4, 11, (5, 7)), torch.ones(5, 7, dtype=torch.int64)
    segments[2, 4:] = 0
    return ids, segments


def test_classes_cost_cross_entropy_and_unknown_ones_nothing():
    model, (ids, segments) = classifier("label", 3).eval(), labelled_rows()
    targets = torch.tensor([0, 2, -1, 1, 2])
    weights = torch.tensor([1.0, 2.0, 0.5])
    loss, nats = SupervisedObjective(model, label_smoothing=0.1, weights=weights)(
        ids, targets, segments
    )
    logs = model.predict(Inputs(ids, segments)).log_softmax(-1)
    kept = [0, 1, 3, 4]
    plain = -sum(logs[i, targets[i]] for i in kept)
    torch.testing.assert_close(nats, plain.detach())
    smooth = sum(
        0.9 * weights[targets[i]] * -logs[i, targets[i]] + 0.1 / 3 * (weights * -logs[i]).sum()
        for i in kept
    )
    torch.testing.assert_close(loss, smooth)


def test_several_labels_leave_gaps_out():
    model, (ids, segments) = classifier("labels", 2).eval(), labelled_rows()
    targets = torch.tensor([[0, 1], [1, -1], [-1, -1], [1, 1], [0, 0]])
    _, nats = SupervisedObjective(model)(ids, targets, segments)
    p = model.predict(Inputs(ids, segments)).sigmoid()
    expected = 0.0
    for i, j in (targets >= 0).nonzero().tolist():
        expected -= torch.log(p[i, j] if targets[i, j] else 1 - p[i, j]).item()
    assert nats.item() == pytest.approx(expected, rel=1e-5)


def test_values_count_alike_whatever_their_units():
    model, (ids, segments) = classifier("value", 2).eval(), labelled_rows()
    targets = torch.tensor([[1.0, 1e4], [3.0, 2e4], [2.0, np.nan], [np.nan, 6e4], [6.0, 3e4]])
    model.standardise(targets)
    there = [targets[~targets[:, j].isnan(), j].numpy() for j in range(2)]
    np.testing.assert_allclose(model.shift.numpy(), [x.mean() for x in there], rtol=1e-6)
    np.testing.assert_allclose(model.scale.numpy(), [x.std() for x in there], rtol=1e-6)
    _, cost = SupervisedObjective(model)(ids, targets, segments)
    gap = (model.predict(Inputs(ids, segments)) - targets) / model.scale
    expected = (gap[~targets.isnan()] ** 2 / 2).sum()
    torch.testing.assert_close(cost, expected.detach())


def test_positions_are_asked_where_there_is_an_answer():
    model, (ids, segments) = classifier("position-label", 3).eval(), labelled_rows()
    targets = torch.randint(0, 3, (5, 7)).masked_fill(segments == 0, -1)
    targets[:, 0] = -1
    _, nats = SupervisedObjective(model)(ids, targets, segments)
    logs = model.predict(Inputs(ids, segments)).log_softmax(-1)
    expected = -logs[targets >= 0].gather(1, targets[targets >= 0][:, None]).sum()
    torch.testing.assert_close(nats, expected.detach())


@pytest.mark.parametrize("task", ["label", "labels", "value", "position-label"])
def test_two_passes_that_differ_by_dropout_are_to_agree(task):
    model, (ids, segments) = classifier(task, 2, dropout=0.5).train(), labelled_rows()
    shape = {"label": (5,), "position-label": (5, 7)}.get(task, (5, 2))
    targets = torch.randint(0, 2, shape)
    targets = targets.float() if task == "value" else targets
    torch.manual_seed(4)
    loss, _ = SupervisedObjective(model, r_drop=5.0)(ids, targets, segments)
    torch.manual_seed(4)
    both = model(Inputs(ids.repeat(2, 1), segments.repeat(2, 1)))
    halves = SupervisedObjective(model)
    twice = torch.cat([targets, targets])
    cost = halves.cost(both, twice)[0] / 2
    one, two = both.chunk(2)
    if task == "value":
        apart = (one - two).square().sum()
    elif task == "labels":
        pairs = [torch.stack([x.sigmoid(), 1 - x.sigmoid()], -1).log() for x in (one, two)]
        apart = divergence(*pairs)
    else:
        apart = divergence(one.log_softmax(-1), two.log_softmax(-1))
    assert apart > 0
    torch.testing.assert_close(loss, cost + 5 / 4 * apart)


def divergence(p, q):
    both = {"reduction": "sum", "log_target": True}
    return F.kl_div(p, q, **both) + F.kl_div(q, p, **both)


def test_filling_in_costs_the_same_however_many_places_are_looked_at():
    """In training the places depend on the shape alone; those not asked among them cost nothing."""
    model = MaskedLM(11, MaskedLM.PRESETS["modern"](1, 16)).double()
    ids, segments = torch.randint(3, 11, (6, 9)), torch.ones(6, 9, dtype=torch.long)
    targets = torch.where(torch.rand(6, 9) < 0.15, ids, -1)
    logits = model(Inputs(ids, segments)).flatten(0, 1)
    want = F.cross_entropy(logits, targets.flatten(), ignore_index=-1, reduction="sum")
    objective = SupervisedObjective(model, share=0.15)
    counts = set()
    for training in (True, False):
        objective.train(training)
        torch.testing.assert_close(objective(ids, targets, segments)[0], want)
        counts.add(len(objective.places(targets)))
        assert set(objective.places(targets).tolist()) >= set(
            (targets.flatten() >= 0).nonzero().flatten().tolist()
        )
    assert min(counts) == int((targets >= 0).sum()) and max(counts) == 30  # 8.1 + 8 · 2.62, up
