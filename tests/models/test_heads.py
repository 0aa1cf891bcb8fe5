"""Heads against formulas written out: losses, divergences, averages of views, probabilities."""

from __future__ import annotations

import math

import pytest
import torch

from regard.models.heads import HEADS, Head, register_head


def test_positions_and_units_are_those_of_the_tasks():
    assert {name for name, head in HEADS.items() if head.positional} == {"position-label", "masked"}
    assert [name for name, head in HEADS.items() if head.scaled] == ["value"]


def test_the_loss_of_classes_is_smoothed_weighted_cross_entropy():
    scores, targets = torch.randn(4, 3).double(), torch.tensor([2, -1, 0, 1])
    weights = torch.tensor([1.0, 2.0, 0.5]).double()
    loss, plain = HEADS["label"].loss(scores, targets, smoothing=0.2, weights=weights)
    logs = scores.log_softmax(-1)
    expected = smooth = 0.0
    for row, target in ((0, 2), (2, 0), (3, 1)):
        expected -= logs[row, target]
        smooth -= 0.8 * weights[target] * logs[row, target] + 0.2 / 3 * (weights * logs[row]).sum()
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(loss, smooth)


def test_the_losses_of_labels_and_values_skip_what_is_missing():
    scores = torch.tensor([[0.5, -1.0], [2.0, 0.0]])
    labels, values = torch.tensor([[1, -1], [0, 1]]), torch.tensor([[1.5, math.nan], [2.0, 3.0]])
    _, plain = HEADS["labels"].loss(scores, labels, smoothing=0.0, weights=None)
    p = scores.sigmoid()
    torch.testing.assert_close(plain, -(p[0, 0].log() + (1 - p[1, 0]).log() + p[1, 1].log()))
    loss, plain = HEADS["value"].loss(scores, values, smoothing=0.0, weights=None)
    assert loss == plain == pytest.approx((1.0 + 0.0 + 9.0) / 2)


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_a_prediction_does_not_diverge_from_itself_and_divergence_is_symmetric(task):
    head, one, two = HEADS[task], torch.randn(5, 3), torch.randn(5, 3)
    targets = head.random_targets((5,), 3, torch.Generator().manual_seed(0))
    assert head.divergence(one, one, targets) == 0 < head.divergence(one, two, targets)
    torch.testing.assert_close(
        head.divergence(one, two, targets), head.divergence(two, one, targets)
    )


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_views_are_averaged_as_probabilities_or_values(task):
    head, scores = HEADS[task], torch.randn(4, 6, 3).double()  # six views each
    expected = head.probabilities(scores).mean(1)
    torch.testing.assert_close(head.probabilities(head.average(scores)), expected)


def test_probabilities_are_checked_by_what_must_hold():
    for task in ("label", "labels"):
        probabilities = HEADS[task].probabilities(torch.randn(4, 3))
        torch.testing.assert_close(*HEADS[task].must_agree(probabilities))
    assert HEADS["value"].must_agree(torch.randn(4, 3)) is None
    found, expected = HEADS["label"].must_agree(torch.full((2, 3), 0.5))
    assert not torch.allclose(found, expected)


@pytest.mark.parametrize("task", sorted(HEADS))
def test_random_targets_have_a_loss(task):
    head, shape = HEADS[task], (2, 5) if HEADS[task].positional else (2,)
    targets = head.random_targets(shape, 3, torch.Generator().manual_seed(1))
    loss, _ = head.loss(torch.randn(*shape, 3), targets, smoothing=0.0, weights=None)
    assert loss.isfinite() and loss > 0


def test_a_head_is_registered_for_its_tasks(monkeypatch):
    monkeypatch.setattr("regard.models.heads.HEADS", dict(HEADS))
    from regard.models import heads

    @register_head("ordinal")
    class Ordinal(type(HEADS["value"])):
        pass

    assert isinstance(heads.HEADS["ordinal"], Head) and "ordinal" not in HEADS
