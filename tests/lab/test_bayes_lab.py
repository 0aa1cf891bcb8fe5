"""Posteriors and modes against scipy's, and the claims of the quick form."""

from __future__ import annotations

import numpy as np
import pytest

from regard.lab.bayes import bayes, beta_density, by_multipliers, closed_form, objective
from regard.lab.result import Options

scipy_stats = pytest.importorskip("scipy.stats")
scipy_optimize = pytest.importorskip("scipy.optimize")


def test_the_density_is_that_of_scipy():
    x = np.linspace(0.01, 0.99, 20)
    assert np.allclose(beta_density(x, 3.5, 8.0), scipy_stats.beta(3.5, 8.0).pdf(x))


def test_the_mode_is_where_scipy_finds_the_greatest_posterior():
    counts, prior, alpha = np.array([5.0, 0.0, 2.0]), np.array([0.2, 0.5, 0.3]), 4.0
    posterior = scipy_stats.dirichlet(1 + counts + alpha * prior)

    def cost(free):
        theta = np.exp(free) / np.exp(free).sum()
        return -posterior.logpdf(theta)

    found = scipy_optimize.minimize(cost, np.zeros(3), method="Nelder-Mead", tol=1e-10).x
    searched = np.exp(found) / np.exp(found).sum()
    mode, multiplier = by_multipliers(counts, prior, alpha)
    assert np.allclose(mode, searched, atol=1e-4)
    assert np.allclose(mode, closed_form(counts, prior, alpha), atol=1e-12)
    assert abs(multiplier - 11) < 1e-9
    gap = posterior.logpdf(mode) - posterior.logpdf(prior)
    same = objective(mode, counts, prior, alpha) - objective(prior, counts, prior, alpha)
    assert abs(gap - same) < 1e-9


def test_every_claim_of_the_quick_form_holds():
    result = bayes(Options(quick=True, seed=4))
    assert len(result.claims) == 6
    assert [claim.name for claim in result.claims if not claim.holds] == []
    widths = [row[-1] for row in result.tables[0].rows]
    assert widths[0] == pytest.approx(0.95) and widths[-1] < 0.12
