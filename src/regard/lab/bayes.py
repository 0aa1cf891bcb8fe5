"""Counting with a prior: the Beta posterior, the Dirichlet on the simplex, and the MAP.

Counts alone give probability 0 to whatever did not occur. Lecture 14 (002) repairs that by a prior:
a Beta posterior that narrows as draws arrive, a Dirichlet prior over next letters, and Lagrange
multipliers that lead to its mode. With Dirichlet parameters 1 + α p (Siebert & Söding 2016), the
mode is (n + α p) / (N + α), and maximum likelihood is its limit α → 0.

A coin is drawn; from a flat prior, its posterior after s successes in n draws is
Beta(1 + s, 1 + n - s). Three letters with counts 7, 2, 0 and the prior 0.5, 0.3, 0.2 have the
posterior Dirichlet(1 + n + α p). Its mode is searched by Newton's method on the Lagrangian, which
knows the objective and the constraint that frequencies sum to one, and nothing else. The multiplier
it ends with is N + α: how much one more unit of probability would be worth. The posterior mean is
another estimate, (n + 1 + α p) / (N + K + α).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from regard.lab.experiment import Claim, Options, Proportion, Result, curves
from regard.look.page import Bars, Heatmap, Scatter, Table

TRUE = 0.3  # probability of the coin
N_DRAWS = (0, 1, 3, 10, 30, 100, 300)  # after which the posterior is shown
COUNTS, PRIOR, ALPHA = np.array([7.0, 2.0, 0.0]), np.array([0.5, 0.3, 0.2]), 6.0  # of three letters
CLOSE = 1e-8  # two ways to one mode
COVER = 0.03  # by which a share of intervals may miss 95%
COIN_DRAWS = 25  # of each coin whose interval is tested

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    coins: int  # for the coverage of intervals
    tables: int  # of counts, whose modes are searched
    points: int = 800


LARGE, SMALL = Plan(coins=2000, tables=300), Plan(coins=2000, tables=20, points=200)


def claims(plan: Plan, draws: NDArray[np.bool_], random: np.random.Generator) -> list[Claim]:
    errors = np.array([mode_errors(random) for _ in range(plan.tables)]).max(0)
    mode, multiplier, limit, better = errors.tolist()
    largest = f"{{:.1e}}, the largest of {plan.tables}"
    return [
        Claim.exact(
            "Lagrange multipliers lead to (n + α p) / (N + α)",
            f"the mode found by search differs by at most {CLOSE:g}",
            mode,
            largest,
            most=CLOSE,
        ),
        Claim.exact(
            "the multiplier is N + α", f"to a relative {CLOSE:g}", multiplier, largest, most=CLOSE
        ),
        Claim.exact(
            "the MAP without a prior is maximum likelihood",
            "at α = 1e-9 they differ by at most 1e-6",
            limit,
            largest,
            most=1e-6,
        ),
        Claim.exact(
            "nothing near is more probable",
            "no other frequencies nearby have a higher posterior",
            better,
            "{:.2e}, the highest less that of the mode",
            most=0,
        ),
        Claim.exact(
            "the posterior is what draw upon draw makes of it",
            "likelihoods multiplied draw by draw on a grid give the Beta density, to 0.1% of its "
            "top",
            posterior_error(draws),
            most=1e-3,
        ),
        Claim.within(
            "95% intervals hold the truth 95% of the time",
            f"after {COIN_DRAWS} draws, within {COVER:g} of 0.95 of coins from the prior",
            measure_coverage(plan.coins, random),
            least=0.95 - COVER,
            most=0.95 + COVER,
        ),
    ]


def closed_form(counts: Vector, prior: Vector, alpha: float) -> Vector:
    """Return the mode, (n + α p) / (N + α)."""
    return np.asarray((counts + alpha * prior) / (counts.sum() + alpha))


def objective(theta: Vector, counts: Vector, prior: Vector, alpha: float) -> float:
    """Return the log posterior, but for a constant: Σ (n + α p) log θ."""
    return float(((counts + alpha * prior) * np.log(theta)).sum())


def search_mode(
    counts: Vector, prior: Vector, alpha: float, iterations: int = 200
) -> tuple[Vector, float]:
    """Return the mode and its multiplier: Newton's method on the gradient of the Lagrangian,
    Σ (n + α p) log θ + λ (1 - Σ θ), from θ uniform; it knows the objective, not the solution.
    """
    weights = counts + alpha * prior
    theta, multiplier = np.full(len(counts), 1 / len(counts)), float(weights.sum() / 2)
    for _ in range(iterations):
        gradient = np.append(weights / theta - multiplier, 1 - theta.sum())  # of θ and λ
        hessian = np.zeros((len(theta) + 1, len(theta) + 1))
        hessian[:-1, :-1] = np.diag(-weights / theta**2)
        hessian[:-1, -1] = hessian[-1, :-1] = -1
        step = np.linalg.solve(hessian, -gradient)
        falling = step[:-1] < 0  # stay inside: at most half of the way to where θ is 0
        rate = np.min(-0.5 * theta[falling] / step[:-1][falling], initial=1.0)
        theta, multiplier = theta + rate * step[:-1], multiplier + rate * float(step[-1])
        if np.abs(step[:-1]).max() < 1e-15:
            break
    return theta, multiplier


def mode_errors(random: np.random.Generator) -> tuple[float, float, float, float]:
    """Return, for a random table of counts, the errors of the mode, of the multiplier and of the
    limit α → 0, and by how much frequencies near the mode are more probable.
    """
    size = int(random.integers(2, 30))
    prior, alpha = random.dirichlet(np.ones(size)) + 1e-3, float(random.uniform(0.2, 50))
    prior /= prior.sum()
    counts = random.poisson(3.0, size).astype(np.float64)
    counts[0] += 1
    mode, multiplier = search_mode(counts, prior, alpha)
    exact = closed_form(counts, prior, alpha)
    neighbors = exact * np.exp(0.05 * random.standard_normal((20, size)))
    neighbors /= neighbors.sum(1, keepdims=True)
    highest = objective(exact, counts, prior, alpha)
    return (
        float(np.abs(mode - exact).max()),
        abs(multiplier / (counts.sum() + alpha) - 1),
        float(np.abs(closed_form(counts, prior, 1e-9) - counts / counts.sum()).max()),
        max(objective(other, counts, prior, alpha) - highest for other in neighbors),
    )


def posterior_error(draws: NDArray[np.bool_]) -> float:
    """Return the largest error, relative to the top of the density, of the product of the
    likelihoods of single draws, normalised on a grid.
    """
    x = (np.arange(4000) + 0.5) / 4000
    logs, largest = np.zeros_like(x), 0.0
    for n, success in enumerate(draws[:100], 1):
        logs += np.log(x if success else 1 - x)
        if n in N_DRAWS:
            density = np.exp(logs - logs.max())
            density /= density.sum() * (x[1] - x[0])
            exact = posterior_of(draws[:n]).pdf(x)
            largest = max(largest, float(np.abs(density - exact).max() / exact.max()))
    return largest


def measure_coverage(n_coins: int, random: np.random.Generator) -> Proportion:
    """Return how many coins drawn from the prior lie in their 95% intervals."""
    successes = np.arange(COIN_DRAWS + 1)
    low, high = beta(1 + successes, 1 + COIN_DRAWS - successes).interval(0.95)
    coins = random.random(n_coins)
    n = random.binomial(COIN_DRAWS, coins)
    return Proportion(int(((low[n] <= coins) & (coins <= high[n])).sum()), n_coins)


def posterior_of(draws: NDArray[np.bool_]) -> beta:
    successes = int(draws.sum())
    return beta(1 + successes, 1 + len(draws) - successes)


def bayes(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    random = np.random.default_rng(options.seed)
    draws = random.random(N_DRAWS[-1]) < TRUE
    posteriors = {n: posterior_of(draws[:n]) for n in N_DRAWS}
    x = np.linspace(0.002, 0.998, 250)
    alphas = np.geomspace(1e-2, 1e3, 60)
    modes = np.array([closed_form(COUNTS, PRIOR, float(alpha)) for alpha in alphas])
    letters = ("A: count 7, prior 0.5", "B: count 2, prior 0.3", "C: count 0, prior 0.2")
    return Result(
        title="Counting with a prior",
        answer=answer(draws),
        question=__doc__ or "",
        reading=(
            "Each curve is the posterior of the coin after so many draws: flat at first, then a "
            f"peak that narrows around the true {TRUE:g}."
        ),
        readings=[
            "A point is a set of three frequencies, a corner all of one letter: the counts pull "
            "the points towards A, and the MAP lies between the counts and the prior.",
            "From left to right the prior weighs more, and each frequency goes from its share of "
            "the counts to that of the prior.",
        ],
        claims=claims(plan, draws, random),
        tables=[posterior_table(draws)],
        figures=[
            curves(
                x,
                {f"after {n} draws": posterior.pdf(x) for n, posterior in posteriors.items()},
                "Posterior of a coin as draws arrive",
                ("probability of a success", "posterior density"),
                ordered=True,
            ),
            simplex(plan.points, random),
            curves(
                alphas,
                dict(zip(letters, modes.T, strict=True)),
                "From maximum likelihood to the prior",
                ("α, the weight of the prior in counts", "most probable frequency"),
                log="x",
            ),
        ],
        panels=[density_map(), unseen_letter_bars()],
    )


def answer(draws: NDArray[np.bool_]) -> str:
    parts = []
    for n in (N_DRAWS[2], N_DRAWS[-1]):
        low, high = posterior_of(draws[:n]).interval(0.95)
        parts.append(f"after {n} draws it is from {low:.2f} to {high:.2f}")
    return (
        f"An interval that narrows: {', '.join(parts)}, with 95% probability (truth {TRUE:g}). The "
        "MAP is what the multipliers give, (n + α p) / (N + α)."
    )


def posterior_table(draws: NDArray[np.bool_]) -> Table:
    rows: list[list[object]] = []
    for n in N_DRAWS:
        successes, posterior = int(draws[:n].sum()), posterior_of(draws[:n])
        low, high = map(float, posterior.interval(0.95))
        share = successes / n if n else None
        rows.append([n, successes, share, float(posterior.mean()), low, high, high - low])
    columns = ["draws", "successes", "share", "posterior mean", "2.5%", "97.5%", "width"]
    return Table(columns, rows, title="Beta posterior from a flat prior")


def simplex(n: int, random: np.random.Generator) -> Scatter:
    """Return samples of the prior and the posterior, and both estimates, in a triangle whose
    corners are the letters.
    """
    prior = random.dirichlet(1 + ALPHA * PRIOR, n)
    posterior = random.dirichlet(1 + COUNTS + ALPHA * PRIOR, n)
    estimates = [COUNTS / COUNTS.sum(), closed_form(COUNTS, PRIOR, ALPHA)]
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]])
    return Scatter(
        np.concatenate([prior, posterior, estimates]) @ corners,
        groups=["prior"] * n + ["posterior"] * n + ["estimates"] * 2,
        marks={2 * n: "maximum likelihood", 2 * n + 1: "MAP"},
        outline=[
            (float(x), float(y), f"all {letter}")
            for (x, y), letter in zip(corners, "ABC", strict=True)
        ],
        title="Dirichlet on the simplex: frequencies of three letters with counts A 7, B 2, C 0",
    )


def density_map() -> Heatmap:
    """Return the posterior over a grid of frequencies; hatched where A and B exceed one."""
    ticks = np.linspace(0.02, 0.98, 25)
    a, b = np.meshgrid(ticks, ticks)  # B down, A across
    c = np.where(1 - a - b > 1e-9, 1 - a - b, np.nan)
    logs = np.tensordot(COUNTS + ALPHA * PRIOR, np.log([a, b, c]), 1)
    names = [f"{tick:.2f}" for tick in ticks]
    return Heatmap(
        np.exp(logs - np.nanmax(logs))[::-1],
        names[::-1],
        names,
        title="The same posterior, share of A across, of B down",
        unit="of the greatest density",
    )


def unseen_letter_bars() -> Bars:
    n = COUNTS.sum()
    estimates = {
        "maximum likelihood": COUNTS / n,
        "MAP": closed_form(COUNTS, PRIOR, ALPHA),
        "posterior mean": (COUNTS + 1 + ALPHA * PRIOR) / (n + 3 + ALPHA),
    }
    title = "Probability of the letter with count 0"
    values = [float(theta[2]) for theta in estimates.values()]
    return Bars(list(estimates), values, title=title, unit="probability")
