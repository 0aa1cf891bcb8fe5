"""Coefficients of linear models: closed forms, and costs written out that have no slope there."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.errors import UserError
from regard.models.linear import of_classes, of_labels, of_margins, of_values
from regard.models.ngram_features import SparseCounts

R, D, C = 40, 6, 3  # rows, features, answers
needs_solver = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="scikit-learn is not installed"
)


def sparse(table):
    """A dense table as bags."""
    table = torch.tensor(table, dtype=torch.float64)
    there = table != 0
    starts = F.pad(there.sum(1).cumsum(0), (1, 0))
    return SparseCounts(starts, there.nonzero()[:, 1], table[there], table.size(1))


@pytest.fixture
def table():
    draw = np.random.default_rng(1)
    return draw.poisson(0.7, (R, D)) * draw.uniform(0.5, 2, D)


def classes(many=C):
    return torch.from_numpy(np.random.default_rng(2).integers(0, many, R))


def labels():
    """Some of them gaps."""
    return torch.from_numpy(np.random.default_rng(3).integers(-1, 2, (R, C)))


def slopes(table, cost, weights, bias):
    """Of a cost of scores, by weights and biases."""
    weights, bias = weights.clone().requires_grad_(), bias.clone().requires_grad_()
    cost(torch.from_numpy(table) @ weights + bias, weights, bias).backward()
    return weights.grad.abs().max().item(), bias.grad.abs().max().item()


@needs_solver
def test_classes_are_likeliest_there(table):
    y = classes()
    weights, bias = of_classes(sparse(table), y, C, 0.7)

    def cost(scores, w, b):
        logs = scores.log_softmax(-1)
        return -sum(logs[i, y[i]] for i in range(R)) + 0.35 * w.square().sum()

    assert weights.abs().max() > 0.1
    assert max(slopes(table, cost, weights, bias)) < 1e-3


@needs_solver
def test_two_classes_mirror_each_other(table):
    y = classes(2)
    weights, bias = of_classes(sparse(table), y, 2, 0.7)
    torch.testing.assert_close(weights[:, 0], -weights[:, 1])

    def cost(scores, w, b):
        margin = scores[:, 1] - scores[:, 0]
        difference = w[:, 1] - w[:, 0]
        each = F.softplus(torch.where(y == 1, -margin, margin))
        return each.sum() + 0.35 * difference.square().sum()

    assert max(slopes(table, cost, weights, bias)) < 1e-3
    weights, bias = of_margins(sparse(table), y, 2, 0.7)
    torch.testing.assert_close(weights[:, 0], -weights[:, 1])
    torch.testing.assert_close(bias[:1], -bias[1:])


@needs_solver
def test_labels_are_likeliest_there_and_gaps_say_nothing(table):
    y = labels()
    weights, bias = of_labels(sparse(table), y, C, 0.7)

    def cost(scores, w, b):
        p = scores.sigmoid()
        told = [(p[i, j] if y[i, j] else 1 - p[i, j]).log() for i, j in (y >= 0).nonzero().tolist()]
        return -sum(told) + 0.35 * w.square().sum()

    assert max(slopes(table, cost, weights, bias)) < 1e-3


@needs_solver
@pytest.mark.parametrize("targets", [classes, labels])
@pytest.mark.parametrize("scaled", [False, True])
def test_margins_are_widest_there(table, targets, scaled):
    y = targets()
    torch.manual_seed(4)
    scales = torch.rand(D, C, dtype=torch.float64) + 0.5 if scaled else None
    weights, bias = of_margins(sparse(table), y, C, 0.7, scales=scales)

    def cost(scores, w, b):
        scores = torch.from_numpy(table) @ (w * scales if scaled else w) + b
        total = 0.35 * (w.square().sum() + b.square().sum())  # as LIBLINEAR has it
        for i in range(R):
            for j in range(C):
                told = int(y[i] == j) if y.dim() == 1 else int(y[i, j])
                if told >= 0:
                    total = total + torch.relu(1 - (2 * told - 1) * scores[i, j]) ** 2
        return total

    assert weights.abs().max() > 0.1
    assert max(slopes(table, cost, weights, bias)) < 0.05  # of a sum of about a hundred
    torch.testing.assert_close(
        of_margins(sparse(table), y, C, 0.7, scales=scales), (weights, bias), atol=0, rtol=0
    )


@needs_solver
def test_values_have_a_closed_form(table):
    draw = np.random.default_rng(5)
    y = draw.normal(3, 2, (R, 2))
    y[::3, 1] = np.nan
    w, b = of_values(sparse(table), torch.from_numpy(y), 2, 2.5)
    for column in range(2):
        there = ~np.isnan(y[:, column])
        x = np.column_stack([table[there], np.ones(there.sum())])
        penalty = 2.5 * np.diag([1.0] * D + [0.0])
        expected = np.linalg.solve(x.T @ x + penalty, x.T @ y[there, column])
        np.testing.assert_allclose([*w[:, column].tolist(), float(b[column])], expected, atol=1e-5)


@needs_solver
def test_a_class_or_label_that_never_occurs_is_improbable(table):
    y = classes(2)
    weights, bias = of_classes(sparse(table), y, 4, 1.0)
    p = (torch.from_numpy(table) @ weights + bias).softmax(-1)
    assert not weights[:, 2:].any() and (p[:, 2:] < 0.05).all()
    one = of_classes(sparse(table), torch.zeros(R, dtype=torch.long), 2, 1.0)[1]
    assert one.softmax(-1).tolist() == pytest.approx([R / (R + 0.5), 0.5 / (R + 0.5)])
    none = torch.zeros(R, 2, dtype=torch.long)
    none[:, 1] = 1
    for solve in (of_labels, of_margins):
        weights, bias = solve(sparse(table), none, 2, 1.0)
        assert not weights.any() and bias[0] < -0.9 and bias[1] > 0.9


def test_without_scikit_learn_it_is_said_what_to_install(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[science\]'"):
        of_classes(sparse(table), classes(), C, 1.0)
