"""Margin problems against problems solved by hand and by another solver; descent by its laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize

from regard.lab import svm as lab
from regard.lab.experiment import Options
from regard.lab.svm import Plan, cosine, descend, draw, frobenius_margin, nuclear_margin


def make_constraints(seed=0, tokens=4, width=4):
    task = draw(Plan(seeds=1, steps=1, records=2, tokens=tokens, width=width), seed)
    return task.constraints(task.scores.argmax(-1))


def test_one_constraint_is_met_by_the_shortest_matrix_along_it():
    a = np.array([[[3.0, 0.0], [0.0, 4.0]]])
    assert np.allclose(frobenius_margin(a), a[0] / 25)
    nuclear = nuclear_margin(a)  # the dual norm is the largest singular value: all weight on 4
    assert np.allclose(nuclear, [[0, 0], [0, 0.25]], atol=1e-3)


def test_the_largest_margin_is_what_a_general_solver_finds():
    constraints = make_constraints()
    flat = constraints.reshape(len(constraints), -1)
    expected = optimize.minimize(
        lambda w: w @ w,
        np.zeros(flat.shape[1]),
        jac=lambda w: 2 * w,
        constraints={"type": "ineq", "fun": lambda w: flat @ w - 1, "jac": lambda w: flat},
        method="SLSQP",
    ).x
    margin = frobenius_margin(constraints)
    assert np.allclose(margin.ravel(), expected, atol=1e-5)
    assert (flat @ margin.ravel()).min() > 1 - 1e-9


def test_the_nuclear_norm_is_least_by_duality():
    """Any non-negative y with |Σ y A| ≤ 1 in the largest singular value bounds it by Σ y."""
    constraints = make_constraints(seed=3, tokens=3)
    margin = nuclear_margin(constraints)
    norm = np.linalg.norm(margin, "nuc")
    assert (constraints * margin).sum((1, 2)).min() > 1 - 1e-6
    assert norm <= np.linalg.norm(frobenius_margin(constraints), "nuc") + 1e-9

    def bound(y):
        return -np.abs(y).sum() / np.linalg.norm(np.tensordot(np.abs(y), constraints, 1), 2)

    starts = np.random.default_rng(0).random((2, len(constraints)))
    options = {"maxiter": 6000, "maxfev": 6000, "xatol": 1e-9, "fatol": 1e-9}
    best = max(
        -optimize.minimize(bound, y, method="Nelder-Mead", options=options).fun for y in starts
    )
    assert best <= norm + 1e-6 and best > 0.98 * norm


def test_constraints_that_contradict_are_refused():
    a = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]])
    with pytest.raises(ValueError, match="cannot be separated"):
        frobenius_margin(a)


def test_attention_of_the_layer_is_that_of_the_paper():
    task = draw(Plan(seeds=1, steps=1, records=3, tokens=4, width=5), 1)
    w = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    margins, weights = task.attend(w)
    for b in range(3):
        scores = (task.x[b] @ w @ task.z[b]).numpy()
        expected = np.exp(scores) / np.exp(scores).sum()
        assert np.allclose(weights[b].numpy(), expected)
        prediction = expected @ task.x[b].numpy() @ task.v.numpy()
        assert np.isclose(float(margins[b]), float(task.labels[b]) * prediction)


@pytest.mark.parametrize("factored", [False, True])
def test_descent_approaches_the_largest_margin_and_the_weights_grow(factored):
    plan = Plan(seeds=1, steps=400, records=3, tokens=4, width=8, marks=6)
    run = descend(draw(plan, 2), plan, 2, factored=factored)
    cosines = run.to_nuclear if factored else run.to_frobenius
    assert cosines[-1] > (0.5 if factored else 0.97) and cosines[-1] > cosines[0]
    assert run.norms == sorted(run.norms)
    assert cosine(np.eye(2), -np.eye(2)) == pytest.approx(-1)


def test_the_quick_form_reports_both_and_the_selected_tokens(monkeypatch):
    plan = Plan(seeds=2, steps=60, records=3, tokens=3, width=6, marks=4)
    monkeypatch.setattr(lab, "SMALL", plan)
    result = lab.svm(Options(quick=True))
    assert len(result.claims) == 5 and len(result.tables[0].rows) == 2
    assert result.figures[2].values.shape == (3, 3)
