"""The objective of labelled records against plain formulas: gaps, units, classes, agreement."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.layers.embeddings import Inputs
from regard.models.encoder import EncoderModel, MaskedLM, modern
from regard.training.objectives import SupervisedObjective
from regard.training.trainer import class_weights


def make(task, outputs, **options):
    torch.manual_seed(0)
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "max_len": 16}
    config = dataclasses.replace(modern(1, 16), **sizes, task=task, n_outputs=outputs, **options)
    return EncoderModel(11, config)


def rows(seed=1):
    torch.manual_seed(seed)
    ids, segments = torch.randint(4, 11, (5, 7)), torch.ones(5, 7, dtype=torch.int64)
    segments[2, 4:] = 0
    return ids, segments


def test_classes_cost_cross_entropy_and_unknown_ones_nothing():
    model, (ids, segments) = make("label", 3).eval(), rows()
    targets = torch.tensor([0, 2, -1, 1, 2])
    weights = torch.tensor([1.0, 2.0, 0.5])
    loss, nats = SupervisedObjective(model, label_smoothing=0.1, weights=weights)(
        ids, targets, segments
    )
    logs = model.answers(Inputs(ids, segments)).log_softmax(-1)
    kept = [0, 1, 3, 4]
    plain = -sum(logs[i, targets[i]] for i in kept)
    torch.testing.assert_close(nats, plain.detach())
    smooth = sum(
        0.9 * weights[targets[i]] * -logs[i, targets[i]] + 0.1 / 3 * (weights * -logs[i]).sum()
        for i in kept
    )
    torch.testing.assert_close(loss, smooth)


def test_several_labels_leave_gaps_out():
    model, (ids, segments) = make("labels", 2).eval(), rows()
    targets = torch.tensor([[0, 1], [1, -1], [-1, -1], [1, 1], [0, 0]])
    _, nats = SupervisedObjective(model)(ids, targets, segments)
    p = model.answers(Inputs(ids, segments)).sigmoid()
    expected = 0.0
    for i, j in (targets >= 0).nonzero().tolist():
        expected -= torch.log(p[i, j] if targets[i, j] else 1 - p[i, j]).item()
    assert nats.item() == pytest.approx(expected, rel=1e-5)


def test_values_count_alike_whatever_their_units():
    model, (ids, segments) = make("value", 2).eval(), rows()
    targets = torch.tensor([[1.0, 1e4], [3.0, 2e4], [2.0, np.nan], [np.nan, 6e4], [6.0, 3e4]])
    model.standardise(targets)
    there = [targets[~targets[:, j].isnan(), j].numpy() for j in range(2)]
    np.testing.assert_allclose(model.shift.numpy(), [x.mean() for x in there], rtol=1e-6)
    np.testing.assert_allclose(model.scale.numpy(), [x.std() for x in there], rtol=1e-6)
    _, cost = SupervisedObjective(model)(ids, targets, segments)
    gap = (model.answers(Inputs(ids, segments)) - targets) / model.scale
    expected = (gap[~targets.isnan()] ** 2 / 2).sum()
    torch.testing.assert_close(cost, expected.detach())


def test_positions_are_asked_where_there_is_an_answer():
    model, (ids, segments) = make("position-label", 3).eval(), rows()
    targets = torch.randint(0, 3, (5, 7)).masked_fill(segments == 0, -1)
    targets[:, 0] = -1
    _, nats = SupervisedObjective(model)(ids, targets, segments)
    logs = model.answers(Inputs(ids, segments)).log_softmax(-1)
    expected = -logs[targets >= 0].gather(1, targets[targets >= 0][:, None]).sum()
    torch.testing.assert_close(nats, expected.detach())


@pytest.mark.parametrize("task", ["label", "labels", "value", "position-label"])
def test_two_passes_that_differ_by_dropout_are_to_agree(task):
    model, (ids, segments) = make(task, 2, dropout=0.5).train(), rows()
    shape = {"label": (5,), "position-label": (5, 7)}.get(task, (5, 2))
    targets = torch.randint(0, 2, shape)
    targets = targets.float() if task == "value" else targets
    torch.manual_seed(4)
    loss, _ = SupervisedObjective(model, consistency=5.0)(ids, targets, segments)
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


def test_balanced_classes_weigh_the_same():
    class Told:
        task, classes = "label", (("a", "b", "c"),)

    class Held:
        targets = np.array([0, 0, 0, 1, -1, 2, 2], np.int32)

    class Corpus:
        targets, train = Told, Held

    weights = class_weights(Corpus)
    counts = torch.tensor([3.0, 1.0, 2.0])
    torch.testing.assert_close(weights * counts, torch.full((3,), 2.0))


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
