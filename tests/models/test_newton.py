"""The Newton method against scikit-learn's solvers and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from regard.models.newton import (
    CrossEntropy,
    LabelEntropy,
    SquaredError,
    SquaredHinge,
    minimise,
)

R, D, C = 70, 9, 4  # rows, features, outputs
L2 = 0.6


@pytest.fixture
def x():
    """Features of which some are far more frequent than others."""
    random = np.random.default_rng(1)
    return random.poisson(np.geomspace(0.2, 20, D), (R, D)).astype(float)


def draw_signs(missing=True):
    signs = np.random.default_rng(2).choice([-1, 1], (R, C), p=[0.7, 0.3])
    if missing:
        signs[::6, 1] = 0
    return signs.astype(float)


def oracle(estimator, x, signs):
    """Fit a scikit-learn estimator to each output; return weights (O, F) and biases (O,)."""
    weights, bias = [], []
    for column in signs.T:
        estimator.fit(x[column != 0], column[column != 0])
        weights.append(estimator.coef_[0])
        bias.append(estimator.intercept_[0])
    return np.array(weights), np.array(bias)


@pytest.mark.parametrize("make", [csr_matrix, np.asarray])
def test_labels_are_those_of_logistic_regression_in_scikit_learn(x, make):
    signs = draw_signs()
    weights, bias, converged = minimise(make(x), LabelEntropy(signs), L2, tol=1e-6)
    expected = oracle(LogisticRegression(C=1 / L2, tol=1e-8, max_iter=5000), x, signs)
    assert converged
    np.testing.assert_allclose(weights, expected[0], atol=1e-4)
    np.testing.assert_allclose(bias, expected[1], atol=2e-3)


def test_classes_are_those_of_multinomial_regression_in_scikit_learn(x):
    classes = np.random.default_rng(3).integers(0, C, R)
    weights, bias, _ = minimise(csr_matrix(x), CrossEntropy(np.eye(C)[classes]), L2, tol=1e-6)
    machine = LogisticRegression(C=1 / L2, tol=1e-8, max_iter=5000).fit(x, classes)
    np.testing.assert_allclose(weights, machine.coef_, atol=1e-4)
    np.testing.assert_allclose(bias - bias.mean(), machine.intercept_, atol=2e-3)


def test_margins_are_those_of_liblinear(x):
    signs = draw_signs()
    weights, bias, _ = minimise(csr_matrix(x), SquaredHinge(signs), L2, tol=1e-6)
    machine = LinearSVC(C=1 / L2, dual=False, tol=1e-9, max_iter=100_000)
    expected = oracle(machine, x, signs)
    np.testing.assert_allclose(weights, expected[0], atol=1e-3)
    np.testing.assert_allclose(bias, expected[1], atol=1e-3)


def test_values_are_those_of_ridge_regression(x):
    values = np.random.default_rng(4).normal(3, 2, (R, 2))
    weights, bias, _ = minimise(csr_matrix(x), SquaredError(values, np.ones((R, 2))), L2, tol=1e-8)
    machine = Ridge(alpha=L2).fit(x, values)
    np.testing.assert_allclose(weights, machine.coef_, atol=1e-6)
    np.testing.assert_allclose(bias, machine.intercept_, atol=1e-6)


@pytest.mark.parametrize("kind", [LabelEntropy, SquaredHinge])
def test_an_output_does_not_depend_on_the_others(x, kind):
    signs, scales = draw_signs(), np.random.default_rng(5).uniform(0.2, 2, (C, D))
    together = minimise(csr_matrix(x), kind(signs), L2, scales=scales, tol=1e-6)
    for n in range(C):
        alone = minimise(csr_matrix(x * scales[n]), kind(signs[:, n : n + 1]), L2, tol=1e-6)
        np.testing.assert_allclose(together[0][n], alone[0][0], atol=1e-4)
        np.testing.assert_allclose(together[1][n], alone[1][0], atol=1e-3)


def test_single_precision_is_enough_for_a_rough_solution(x):
    signs = draw_signs(missing=False)
    exact, _, _ = minimise(csr_matrix(x), LabelEntropy(signs), L2, tol=1e-6)
    single = LabelEntropy(signs.astype(np.float32))
    rough, _, converged = minimise(csr_matrix(x), single, L2, tol=1e-3, dtype=np.float32)
    assert converged
    np.testing.assert_allclose(rough, exact, atol=0.02)


def test_a_fit_that_must_stop_returns_what_it_has(x):
    signs, steps = draw_signs(missing=False), []

    def over(step):
        steps.append(step)
        return step == 2

    loss = LabelEntropy(signs)
    weights, bias, converged = minimise(csr_matrix(x), loss, L2, tol=1e-12, over=over)
    assert set(steps) == {1, 2} and not converged
    constant = loss.value(np.tile(loss.constant(), (R, 1)))
    assert (loss.value(x @ weights.T + bias) < constant).all()


def test_features_that_say_nothing_have_no_weight():
    signs = draw_signs(missing=False)
    weights, bias, converged = minimise(csr_matrix(np.zeros((R, D))), LabelEntropy(signs), L2)
    odds = np.log((signs > 0).sum(0) / (signs < 0).sum(0))
    assert converged and not weights.any()
    np.testing.assert_allclose(bias, odds)
