"""Attention is a weighted mean: interpolation, kernel smoothing and learned attention as one.

Lecture 14 (002) interpolates between points by w = 1/d and smooths with a Gaussian kernel; deck 003
takes the softmax of the negative distance (Nadaraya 1964, Watson 1964) and asks for the value at
4.21. Each is `layers.attention.attend` with another score: queries and keys are x, values are y.
Then what is fixed becomes learned: parameter-free attention x·x on a code of x, W_Q and W_K on it,
and W_V as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.lab.inputs import points_of
from regard.lab.result import ABOVE, Claim, Mean, Options, Result
from regard.layers.attention import (
    Gaussian,
    Score,
    Tap,
    attend,
    dot,
    negative_distance,
    negative_log_distance,
    scaled_dot,
)
from regard.layers.positions import sinusoids
from regard.look.page import Heatmap, Lines, Table, Text
from regard.training.loop import seed_of

# What deck 003 prints of its data, and the wave through these three points: A sin(B x + C).
PRINTED = ((1.36, 1.79), (3.40, -1.77), (6.05, -2.17))
ASKED = 4.21
AMPLITUDE, NOISE = 2.95883, 0.4  # the amplitude at which the third point lies on it too
NEAREST, FLATTEST, BANDWIDTHS = 0.02, 2.0, 25  # the sweep, in spreads of x
D_CODE, REACH = 16, 8.0  # width of the code of x, and the positions that its range is laid on
EXACT = 1e-5  # fp32: two ways to one number

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
INVERSE, NEGATIVE, UNIT, TUNED = "1/d", "softmax of −d", "Gaussian, h = 1", "Gaussian, h chosen"
FREE, LEARNED, FULL = "x·x, no parameters", "W_Q and W_K", "W_Q, W_K and W_V"
FIXED = (INVERSE, NEGATIVE, UNIT, FREE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    draws: int
    points: int = 48  # of each draw, to learn from
    held: int = 200  # and to be tested on
    steps: int = 400


LARGE, SMALL = Plan(draws=30), Plan(draws=4, points=32, steps=200)


def wave(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The wave that passes through the lecture's three points."""
    a1, a2, _ = (math.asin(abs(y) / AMPLITUDE) for _, y in PRINTED)
    (x1, _), (x2, _), _ = PRINTED
    turn = (a1 + a2) / (x2 - x1)  # from π - a1 to π + a2
    return AMPLITUDE * np.sin(turn * (x - x1) + math.pi - a1)


def sample(many: int, random: np.random.Generator) -> Points:
    """Noisy points of the wave over the lecture's range, in the order of x."""
    x = np.sort(random.uniform(0.5, 7.0, many))
    return x, wave(x) + NOISE * random.standard_normal(many)


def gaussian(h: float) -> Score:
    """The normal kernel of that bandwidth."""
    score = Gaussian(1, 1).requires_grad_(False)
    score.log_bandwidth.fill_(math.log(h))
    return score


def heads(values: NDArray[np.float64]) -> Tensor:
    """(N,) or (N, K) to (1, 1, N, K), as attention takes it."""
    made = torch.from_numpy(np.asarray(values, dtype=np.float32))
    return (made[:, None] if made.ndim == 1 else made)[None, None]


def smooth(
    asked: NDArray[np.float64], points: Points, score: Score
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What attention answers at `asked` (T,), and its weights (T, S) on the points."""
    tap = Tap(["weights"])
    y = attend(heads(asked), heads(points[0]), heads(points[1]), score=score, tap=tap)
    weights = tap.found["weights"][0, 0]  # (T, S)
    return y[0, 0, :, 0].double().numpy(), weights.double().numpy()


class Attention(nn.Module):
    """Attention over tokens (code of x, y): queries and keys of the codes, values of both.

    Without parameters a score is the dot product of two codes and a value is y. The code is a
    sinusoid of x (Vaswani et al. 2017, section 3.5), so that x·x is a kernel of the distance.
    """

    def __init__(self, points: Points, *, learned: bool, valued: bool) -> None:
        super().__init__()
        x, y = points
        self.points, self.learned, self.valued = points, learned, valued
        self.low, self.scale = float(x.min()), REACH / float(x.max() - x.min())
        self.middle = float(y.mean())
        eye = torch.eye(D_CODE) * D_CODE**0.25  # at first scaled dot = dot: no parameters
        self.query, self.key = (nn.Parameter(eye.clone()) for _ in range(2))  # W_Q, W_K (K, K)
        self.value = nn.Parameter(torch.zeros(D_CODE))  # W_V: what a code adds to y
        self.keep = nn.Parameter(torch.ones(()))

    def code(self, x: NDArray[np.float64]) -> Tensor:
        """(N,) to (N, K)."""
        return sinusoids(torch.from_numpy((x - self.low) * self.scale), D_CODE, base=100.0)

    def forward(
        self, asked: NDArray[np.float64], *, out: bool = False, tap: Tap | None = None
    ) -> Tensor:
        """(T,) to (T,); with `out`, the points themselves, each from all others."""
        k, q = self.code(self.points[0]), self.code(asked)
        v = heads(self.points[1] - self.middle)
        if self.valued:
            v = self.keep * v + (k @ self.value)[None, None, :, None]
        bias = torch.zeros(len(q), len(k))
        if out:
            bias.fill_diagonal_(-torch.inf)
        if self.learned:
            q, k = q @ self.query, k @ self.key
        score = scaled_dot if self.learned else dot
        y = attend(q[None, None], k[None, None], v, bias=bias, score=score, tap=tap)
        return y[0, 0, :, 0] + self.middle


def fit(points: Points, steps: int, *, valued: bool, seed: int) -> Attention:
    """Learned so that each point is answered from all others, by leave-one-out squares alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Attention(points, learned=True, valued=valued)
        moved = [model.query, model.key, *([model.value, model.keep] if valued else [])]
        optimizer = torch.optim.AdamW(moved, lr=0.02, weight_decay=0.05)
        target = torch.from_numpy(points[1]).float()
        for _ in range(steps):
            optimizer.zero_grad()
            (model(points[0], out=True) - target).square().mean().backward()
            optimizer.step()
    return model.requires_grad_(False).eval()


def left_out(points: Points, h: float) -> float:
    """Root mean square error of a Gaussian kernel, each point from all others."""
    x, y = points
    bias = torch.zeros(len(x), len(x)).fill_diagonal_(-torch.inf)
    found = attend(heads(x), heads(x), heads(y), bias=bias, score=gaussian(h))[0, 0, :, 0].numpy()
    return rms(found - y)


def rms(errors: NDArray[np.float64]) -> float:
    """Their root mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def bandwidths(points: Points) -> NDArray[np.float64]:
    """Those that are tried."""
    spread = float(points[0].std())
    return np.geomspace(NEAREST * spread, FLATTEST * spread, BANDWIDTHS)


def chosen(points: Points) -> float:
    """The bandwidth with the least leave-one-out error."""
    return float(min(bandwidths(points), key=lambda h: left_out(points, h)))


Answer = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def answers(points: Points, steps: int, seed: int) -> dict[str, Answer]:
    """Every way to answer, from the same points."""

    def fixed(score: Score) -> Answer:
        return lambda x: smooth(x, points, score)[0]

    def attention(model: Attention) -> Answer:
        return lambda x: model(x).detach().double().numpy()

    return {
        INVERSE: fixed(negative_log_distance),
        NEGATIVE: fixed(negative_distance),
        UNIT: fixed(gaussian(1.0)),
        FREE: attention(Attention(points, learned=False, valued=False)),
        TUNED: fixed(gaussian(chosen(points))),
        LEARNED: attention(fit(points, steps, valued=False, seed=seed)),
        FULL: attention(fit(points, steps, valued=True, seed=seed)),
    }


def kernels(options: Options) -> Result:
    """The experiment, on the user's points or on the lecture's."""
    plan = SMALL if options.quick else LARGE
    own = None if options.file is None else points_of(options.file, 12)
    work = options.work(plan.draws)
    found: dict[str, list[float]] = {}
    for draw in range(plan.draws):
        random = np.random.default_rng(seed_of(options.seed, draw))
        points, held = divided(own, plan, random)
        for name, answer in answers(points, plan.steps, seed_of(options.seed, draw)).items():
            found.setdefault(name, []).append(rms(answer(held[0]) - held[1]))
        work.add("kernels", 1)
    points = shown(options.seed) if own is None else own
    return report(points, found, plan, options)


def divided(own: Points | None, plan: Plan, random: np.random.Generator) -> tuple[Points, Points]:
    """Points to learn from and points to be tested on: fresh ones, or parts of the user's."""
    if own is None:
        return sample(plan.points, random), sample(plan.held, random)
    order = random.permutation(len(own[0]))
    cut = max(2, len(order) // 5)
    test, train = np.sort(order[:cut]), np.sort(order[cut:])
    return (own[0][train], own[1][train]), (own[0][test], own[1][test])


def shown(seed: int) -> Points:
    """The lecture's three points and as many drawn around the wave as make a picture."""
    x, y = sample(21, np.random.default_rng(seed_of(seed)))
    x, y = np.append(x, [p[0] for p in PRINTED]), np.append(y, [p[1] for p in PRINTED])
    order = np.argsort(x)
    return x[order], y[order]


def report(points: Points, found: Mapping[str, Sequence[float]], plan: Plan, o: Options) -> Result:
    """Tables, figures and claims."""
    made = answers(points, plan.steps, seed_of(o.seed))
    asked = ASKED if points[0][0] <= ASKED <= points[0][-1] else float(np.median(points[0]))
    rows = [
        [name, str(Mean.of(errors)), float(made[name](np.array([asked]))[0])]
        for name, errors in found.items()
    ]
    columns = ["weights", "error on held-out points, RMS", f"answer at {asked:.4g}"]
    many = len(next(iter(found.values())))
    table = Table(columns, rows, title=f"Mean of {many} draws with 95% intervals")
    return Result(
        title="Attention is a weighted mean",
        question=QUESTION,
        reading=(
            "Each curve is a weighted mean of the dots, by weights that fall with distance in "
            "its own way; the better the weights, the nearer the curve lies to what the dots "
            "scatter around."
        ),
        readings=[
            "Too narrow a kernel copies the noise, too wide a one smooths everything away: the "
            "least error lies between.",
            "Each row shares one point's attention out among all points, dark where much: a "
            "fixed kernel looks around itself.",
            "The same after learning: attention looks where it helps, which need not be near.",
        ],
        claims=claims(points, found, short=o.quick),
        tables=[table],
        figures=[curves(points, made), sweep(points), *maps(points, plan, o.seed)],
        panels=[Text(MADE)],
    )


QUESTION = (
    "What is attention when keys and queries are plain numbers? A weighted mean of values, the "
    "weights a softmax of a score. Minus the log of the distance gives 1/d, minus its square a "
    "Gaussian kernel, minus the distance what a lecture calls soft lookup; all of them are the "
    "model's own attention with another score. Does learning the weights gain anything over "
    "assuming them?"
)
MADE = (
    "How it is made. The lecture prints three points and an ellipsis; the others are drawn around "
    f"a wave through these three, with normal noise of {NOISE}. Each draw has new points to learn "
    "from and new ones to be tested on; a user's own points are divided afresh instead, a fifth "
    "held out. The Gaussian's bandwidth is chosen, and W_Q, W_K and W_V are learned, by "
    "leave-one-out squares on the points to learn from alone. Learned attention begins as x·x on "
    "a sinusoidal code of x; so the only thing that it has more than the others is parameters."
)


def curves(points: Points, made: Mapping[str, Answer]) -> Lines:
    """The points and the curve of each way."""
    x, y = points
    grid = np.linspace(x.min(), x.max(), 160)
    series = [("points", x.tolist(), y.tolist())]
    series += [(name, grid.tolist(), answer(grid).tolist()) for name, answer in made.items()]
    title = "Weighted means of the same points"
    return Lines(series, x_label="x", y_label="y", title=title, dots=["points"])


def sweep(points: Points) -> Lines:
    """Leave-one-out error against bandwidth: too near copies noise, too far smooths all away."""
    hs = bandwidths(points).tolist()
    errors = [left_out(points, h) for h in hs]
    return Lines(
        [("Gaussian", hs, errors)],
        x_label="bandwidth h, in units of x",
        y_label="leave-one-out error, RMS",
        title="Bandwidth of the Gaussian kernel",
        log_x=True,
        levels={"the best": min(errors)},
    )


def maps(points: Points, plan: Plan, seed: int) -> list[Heatmap]:
    """The weight matrices of a fixed kernel and of learned attention."""
    x, names = points[0], [f"{value:.3g}" for value in points[0]]
    model, tap = fit(points, plan.steps, valued=True, seed=seed_of(seed)), Tap(["weights"])
    model(x, tap=tap)
    learned = tap.found["weights"][0, 0].numpy()
    fixed = smooth(x, points, gaussian(chosen(points)))[1]
    titles = {f"Weights: {TUNED}, queries down, keys across": fixed}
    titles[f"Weights: {FULL}, queries down, keys across"] = learned
    return [
        Heatmap(weights, names, names, title=title, scale="weights", unit="weight")
        for title, weights in titles.items()
    ]


def claims(
    points: Points, found: Mapping[str, Sequence[float]], *, short: bool = False
) -> list[Claim]:
    """Attention is these weighted means; learning the weights gains over assuming them."""
    grid = np.linspace(points[0].min(), points[0].max(), 97) + 1e-3
    away = np.abs(grid[:, None] - points[0])  # (T, S)
    made = [
        same("1/d is attention", grid, points, negative_log_distance, 1 / away),
        same("a Gaussian kernel is attention", grid, points, gaussian(0.5), np.exp(-2 * away**2)),
        same("soft lookup by −d is attention", grid, points, negative_distance, np.exp(-away)),
    ]
    made += [gains(found, name, 0.0, short=short) for name in FIXED]
    return [*made, gains(found, TUNED, 0.05, short=short), values_gain(found, short=short)]


def same(
    name: str, grid: NDArray[np.float64], points: Points, score: Score, kernel: NDArray[np.float64]
) -> Claim:
    """`attend` against the formula, in double precision."""
    expected = (kernel @ points[1]) / kernel.sum(1)
    gap = float(np.abs(smooth(grid, points, score)[0] - expected).max())
    scale = float(np.abs(points[1]).max())
    stated = f"attend and Σ w y / Σ w differ by at most {EXACT:g} of the largest |y|"
    return Claim(name, stated, f"{gap / scale:.1e}", gap <= EXACT * scale)


def gains(found: Mapping[str, Sequence[float]], other: str, slack: float, *, short: bool) -> Claim:
    """Learned weights have a lower error than these, draw by draw; or one higher by a little."""
    gap = Mean.of(np.subtract(found[FULL], found[other]).tolist())
    said = f"at most {slack:g}" if slack else "below 0"
    stated = f"error of {FULL} less that of {other}: upper end of the 95% interval {said}"
    name = f"learned attention beats {other}" if not slack else f"... and is no worse than {other}"
    return Claim.within(name, stated, gap, gap.interval, most=slack or -ABOVE, may_fall=short)


def values_gain(found: Mapping[str, Sequence[float]], *, short: bool) -> Claim:
    """W_V on top of W_Q and W_K."""
    gap = Mean.of(np.subtract(found[FULL], found[LEARNED]).tolist())
    stated = "error with W_V less that without: upper end of the 95% interval below 0"
    name = "learning the values too gains more"
    return Claim.within(name, stated, gap, gap.interval, most=-ABOVE, may_fall=short)
