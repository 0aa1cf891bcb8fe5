"""Posteriors and modes against scipy's, and the claims of the quick form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from regard.lab.bayes import bayes, closed_form, objective, posterior_of, search_mode, simplex
from regard.lab.experiment import Options


def test_the_posterior_of_draws_is_a_beta():
    draws = np.array([True, False, True, True])
    x = np.linspace(0.01, 0.99, 20)
    assert np.allclose(posterior_of(draws).pdf(x), stats.beta(4, 2).pdf(x))


def test_the_mode_is_where_scipy_finds_the_greatest_posterior():
    counts, prior, alpha = np.array([5.0, 0.0, 2.0]), np.array([0.2, 0.5, 0.3]), 4.0
    posterior = stats.dirichlet(1 + counts + alpha * prior)

    def loss(free):
        theta = np.exp(free) / np.exp(free).sum()
        return -posterior.logpdf(theta)

    solution = optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", tol=1e-10).x
    expected = np.exp(solution) / np.exp(solution).sum()
    mode, multiplier = search_mode(counts, prior, alpha)
    assert np.allclose(mode, expected, atol=1e-4)
    assert np.allclose(mode, closed_form(counts, prior, alpha), atol=1e-12)
    assert abs(multiplier - 11) < 1e-9
    gap = posterior.logpdf(mode) - posterior.logpdf(prior)
    difference = objective(mode, counts, prior, alpha) - objective(prior, counts, prior, alpha)
    assert abs(gap - difference) < 1e-9


def test_every_claim_of_the_quick_form_holds():
    result = bayes(Options(quick=True, seed=4))
    assert len(result.claims) == 6
    assert [claim.name for claim in result.claims if not claim.holds] == []
    widths = [row[-1] for row in result.tables[0].rows]
    assert widths[0] == pytest.approx(0.95) and widths[-1] < 0.12


def test_the_simplex_has_its_corners_and_all_points_within():
    scatter = simplex(50, np.random.default_rng(0))
    (ax, ay, a), (bx, by, b), (cx, cy, c) = scatter.outline
    assert (a, b, c) == ("all A", "all B", "all C")
    edges = np.array([[bx - ax, by - ay], [cx - ax, cy - ay]]).T
    shares = np.linalg.solve(edges, (scatter.array() - [ax, ay]).T)  # of B and C
    assert (shares >= -1e-9).all() and (shares.sum(0) <= 1 + 1e-9).all()
