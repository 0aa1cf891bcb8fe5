"""Counting with a prior: the Beta posterior, the Dirichlet on the simplex, and the MAP.

Lecture 14 (002) repairs zero counts by a prior: a Beta posterior that narrows as draws arrive, a
Dirichlet prior over next letters, and Lagrange multipliers that lead to its mode. With Dirichlet
parameters 1 + α p (Siebert & Söding 2016), the mode is (n + α p) / (N + α), and maximum likelihood
is its limit α → 0. Here the closed form stands beside a search that knows only the objective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.lab.result import Claim, Options, Result, Share
from regard.look.page import Bars, Heatmap, Lines, Scatter, Table, Text
from regard.models.dirichlet_ngram import quantile

TRUE = 0.3  # probability of the coin
SEEN = (0, 1, 3, 10, 30, 100, 300)  # draws after which the posterior is shown
CLOSE = 1e-8  # two ways to one mode
COVER = 0.03  # by which a share of intervals may miss 95%

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    coins: int  # repeated, to see how often intervals hold the truth
    tables: int  # of counts, whose modes are sought
    dots: int = 800


LARGE, SMALL = Plan(coins=2000, tables=300), Plan(coins=2000, tables=20, dots=200)


def beta_density(x: Vector, a: float, b: float) -> Vector:
    """Of Beta(a, b) at x in (0, 1)."""
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    logs = norm + (a - 1) * np.log(x) + (b - 1) * np.log1p(-x)
    return np.asarray(np.exp(logs))


def closed_form(counts: Vector, prior: Vector, alpha: float) -> Vector:
    """(n + α p) / (N + α)."""
    return np.asarray((counts + alpha * prior) / (counts.sum() + alpha))


def objective(theta: Vector, counts: Vector, prior: Vector, alpha: float) -> float:
    """The log posterior, but for a constant: Σ (n + α p) log θ."""
    return float(((counts + alpha * prior) * np.log(theta)).sum())


def by_multipliers(
    counts: Vector, prior: Vector, alpha: float, passes: int = 200
) -> tuple[Vector, float]:
    """The mode and its multiplier: Newton's method on the gradient of the Lagrangian,
    Σ (n + α p) log θ + λ (1 - Σ θ), from θ uniform; it knows the objective, not the solution.
    """
    weights = counts + alpha * prior
    theta, multiplier = np.full(len(counts), 1 / len(counts)), float(weights.sum() / 2)
    for _ in range(passes):
        slope = np.append(weights / theta - multiplier, 1 - theta.sum())  # of θ and λ
        bend = np.zeros((len(theta) + 1, len(theta) + 1))
        bend[:-1, :-1] = np.diag(-weights / theta**2)
        bend[:-1, -1] = bend[-1, :-1] = -1
        step = np.linalg.solve(bend, -slope)
        falling = step[:-1] < 0  # stay inside: half of the way to the nearest side, at most
        room = np.min(-0.5 * theta[falling] / step[:-1][falling], initial=1.0)
        theta, multiplier = theta + room * step[:-1], multiplier + room * float(step[-1])
        if np.abs(step[:-1]).max() < 1e-15:
            break
    return theta, multiplier


def bayes(options: Options) -> Result:
    """The experiment."""
    plan = SMALL if options.quick else LARGE
    random = np.random.default_rng(options.seed)
    draws = random.random(SEEN[-1]) < TRUE
    counts, prior = np.array([7.0, 2.0, 0.0]), np.array([0.5, 0.3, 0.2])
    return Result(
        title="Counting with a prior",
        question=QUESTION,
        reading=(
            "Each curve is what is known of the coin after so many draws: flat at first, then a "
            f"peak that narrows around the true {TRUE:g}."
        ),
        readings=[
            "A point is a set of three frequencies, a corner all of one letter: what was seen "
            "pulls the cloud towards A, and the MAP lies between the counts and the prior.",
            "From left to right the prior weighs more, and each frequency goes from its share of "
            "the counts to that of the prior.",
        ],
        claims=claims(plan, draws, random),
        tables=[posteriors(draws)],
        figures=[arriving(draws), simplex(counts, prior, plan, random), pulled(counts, prior)],
        panels=[density(counts, prior), unseen(counts, prior), Text(MADE)],
    )


QUESTION = (
    "Counts alone hold what was never seen for impossible. A prior says what was known before: "
    "a Beta for a coin, a Dirichlet for a letter. What is known as draws arrive, and is the most "
    "probable set of frequencies what Lagrange multipliers say, (n + α p) / (N + α)?"
)
MADE = (
    f"How it is made. A coin of probability {TRUE:g} is drawn; from a flat prior, its posterior "
    "after s successes in n draws is Beta(1 + s, 1 + n - s). Three letters with counts 7, 2, 0 and "
    "the prior 0.5, 0.3, 0.2 have the posterior Dirichlet(1 + n + α p). Its mode is sought by "
    "Newton's method on the Lagrangian, which is told the objective and that frequencies sum to "
    "one, and nothing else. The multiplier it ends with is N + α: how much one more unit of "
    "probability would be worth. The posterior mean is another estimate, (n + 1 + α p) / "
    "(N + K + α)."
)


def arriving(draws: NDArray[np.bool_]) -> Lines:
    """The posterior as draws arrive."""
    x = np.linspace(0.002, 0.998, 250)
    series = []
    for many in SEEN:
        hits = int(draws[:many].sum())
        y = beta_density(x, 1 + hits, 1 + many - hits)
        series.append((f"after {many} draws", x.tolist(), y.tolist()))
    return Lines(
        series,
        x_label="probability of a success",
        y_label="posterior density",
        title="What is known of a coin as draws arrive",
    )


def posteriors(draws: NDArray[np.bool_]) -> Table:
    """The same in numbers."""
    rows: list[list[object]] = []
    for many in SEEN:
        hits = int(draws[:many].sum())
        a, b = 1 + hits, 1 + many - hits
        ends = [quantile(p, a, b) for p in (0.025, 0.975)]
        mle = hits / many if many else None
        rows.append([many, hits, mle, a / (a + b), *ends, ends[1] - ends[0]])
    columns = ["draws", "successes", "share", "posterior mean", "2.5%", "97.5%", "width"]
    return Table(columns, rows, title="Beta posterior from a flat prior")


def corner(theta: Vector) -> Vector:
    """(N, 3) frequencies to (N, 2) points of a triangle with corners at each letter."""
    return np.asarray(theta @ np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]]))


def simplex(counts: Vector, prior: Vector, plan: Plan, random: np.random.Generator) -> Scatter:
    """Draws from the prior and the posterior, and both estimates."""
    alpha = 6.0
    before = random.dirichlet(1 + alpha * prior, plan.dots)
    after = random.dirichlet(1 + counts + alpha * prior, plan.dots)
    shown = np.concatenate(
        [before, after, [counts / counts.sum()], [closed_form(counts, prior, alpha)]]
    )
    groups = ["prior"] * plan.dots + ["posterior"] * plan.dots + ["estimates"] * 2
    many = 2 * plan.dots
    return Scatter(
        corner(shown),
        groups=groups,
        marks={many: "maximum likelihood", many + 1: "MAP"},
        x_label="all A at 0, all B at 1",
        y_label="share of C, times √3/2",
        title="Dirichlet on the simplex: frequencies of three letters, A 7, B 2, C 0 seen",
    )


def pulled(counts: Vector, prior: Vector) -> Lines:
    """The mode against α."""
    alphas = np.geomspace(1e-2, 1e3, 60)
    modes = np.array([closed_form(counts, prior, float(a)) for a in alphas])
    names = ("A: 7 seen, prior 0.5", "B: 2 seen, prior 0.3", "C: none seen, prior 0.2")
    series = [(name, alphas.tolist(), modes[:, i].tolist()) for i, name in enumerate(names)]
    return Lines(
        series,
        x_label="α, the weight of the prior in counts",
        y_label="most probable frequency",
        title="From maximum likelihood to the prior",
        log_x=True,
    )


def density(counts: Vector, prior: Vector) -> Heatmap:
    """The posterior over a grid of frequencies of A and B; hatched where they exceed one."""
    ticks = np.linspace(0.02, 0.98, 25)
    a, b = np.meshgrid(ticks, ticks)  # B down, A across
    c = 1 - a - b
    inside = c > 1e-9
    weights = counts + 6.0 * prior
    logs = weights[0] * np.log(a) + weights[1] * np.log(b)
    logs = np.where(inside, logs + weights[2] * np.log(np.where(inside, c, 1.0)), np.nan)
    values = np.exp(logs - np.nanmax(logs))
    names = [f"{tick:.2f}" for tick in ticks]
    return Heatmap(
        values[::-1],
        names[::-1],
        names,
        title="The same posterior, share of A across, of B down",
        unit="of the greatest density",
    )


def unseen(counts: Vector, prior: Vector) -> Bars:
    """What each estimate holds for the letter nobody has seen."""
    alpha, many = 6.0, counts.sum()
    mean = (counts + 1 + alpha * prior) / (many + 3 + alpha)
    made = {
        "maximum likelihood": counts / many,
        "MAP": closed_form(counts, prior, alpha),
        "posterior mean": mean,
    }
    return Bars(
        list(made),
        [float(v[2]) for v in made.values()],
        title="Probability of the letter that was never seen",
        unit="probability",
    )


def claims(plan: Plan, draws: NDArray[np.bool_], random: np.random.Generator) -> list[Claim]:
    """What the closed forms say, against searches and repeated draws."""
    gaps, multipliers, limits, better = [], [], [], []
    for _ in range(plan.tables):
        size = int(random.integers(2, 30))
        prior, alpha = random.dirichlet(np.ones(size)) + 1e-3, float(random.uniform(0.2, 50))
        prior /= prior.sum()
        counts = random.poisson(3.0, size).astype(np.float64)
        counts[0] += 1
        mode, multiplier = by_multipliers(counts, prior, alpha)
        exact = closed_form(counts, prior, alpha)
        gaps.append(float(np.abs(mode - exact).max()))
        multipliers.append(abs(multiplier / (counts.sum() + alpha) - 1))
        limits.append(float(np.abs(closed_form(counts, prior, 1e-9) - counts / counts.sum()).max()))
        near = exact * np.exp(0.05 * random.standard_normal((20, size)))
        near /= near.sum(1, keepdims=True)
        top = objective(exact, counts, prior, alpha)
        better.append(max(objective(other, counts, prior, alpha) - top for other in near))
    return [
        _least(
            "Lagrange multipliers lead to (n + α p) / (N + α)",
            f"the mode found by search differs by at most {CLOSE:g}",
            gaps,
            CLOSE,
        ),
        _least("the multiplier is N + α", f"to a relative {CLOSE:g}", multipliers, CLOSE),
        _least(
            "the MAP without a prior is maximum likelihood",
            "at α = 1e-9 they differ by at most 1e-6",
            limits,
            1e-6,
        ),
        Claim(
            "nothing near is more probable",
            "no other frequencies nearby have a higher posterior",
            f"{max(better):.2e}, the highest less that of the mode",
            max(better) <= 0,
        ),
        arrives(draws),
        covers(plan, random),
    ]


def _least(name: str, stated: str, found: Sequence[float], most: float) -> Claim:
    return Claim(name, stated, f"{max(found):.1e}, the largest of {len(found)}", max(found) <= most)


def arrives(draws: NDArray[np.bool_]) -> Claim:
    """One at a time or all at once: the product of the likelihoods, normalised on a grid."""
    x = (np.arange(4000) + 0.5) / 4000
    logs = np.zeros_like(x)
    worst = 0.0
    for many, hit in enumerate(draws[:100], 1):
        logs += np.log(x if hit else 1 - x)
        if many in SEEN:
            density = np.exp(logs - logs.max())
            density /= density.sum() * (x[1] - x[0])
            hits = int(draws[:many].sum())
            exact = beta_density(x, 1 + hits, 1 + many - hits)
            worst = max(worst, float(np.abs(density - exact).max() / exact.max()))
    stated = (
        "likelihoods multiplied draw by draw on a grid give the Beta density, to 0.1% of its top"
    )
    return Claim(
        "the posterior is what draw upon draw makes of it", stated, f"{worst:.1e}", worst <= 1e-3
    )


def covers(plan: Plan, random: np.random.Generator) -> Claim:
    """Coins drawn from the prior: 95% intervals hold 95% of them."""
    many = 25
    ends = [[quantile(p, 1 + h, 1 + many - h) for p in (0.025, 0.975)] for h in range(many + 1)]
    coins = random.random(plan.coins)
    hits = random.binomial(many, coins)
    held = sum(ends[h][0] <= coin <= ends[h][1] for h, coin in zip(hits, coins, strict=True))
    share = Share(int(held), plan.coins)
    stated = f"after {many} draws, within {COVER:g} of 0.95 of coins from the prior"
    return Claim.within(
        "95% intervals hold the truth 95% of the time",
        stated,
        share,
        share.interval,
        least=0.95 - COVER,
        most=0.95 + COVER,
    )
