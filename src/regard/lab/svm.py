"""Hard-margin problems over matrices: the smallest W with <A, W> ≥ 1 for every A, by its norm.

Does attention trained by gradient descent become a margin classifier of tokens?

Tarzanagh, Li, Thrampoulidis & Oymak 2023 (arXiv:2308.16898, "Transformers as support vector
machines") study one layer, f(X, z) = v · Xᵀ softmax(X W z), the head v fixed. They show an implicit
bias of gradient descent: where tokens can be separated, the norm of W grows without bound while its
*direction* converges to that of a hard-margin problem,

    min |W|  such that  (x_selected - x_other)ᵀ W z ≥ 1  for every other token of every sequence,

in the Frobenius norm when W itself is trained; and in the nuclear norm for W = K Qᵀ, which is
proved for training with a regularisation that vanishes and only observed for plain descent. The
selected tokens need only be *locally* optimal; only under further conditions are they those with
the highest score v · x. It is no statement that attention *is* a support vector machine, nor about
multilayer models. So the angle measured here is to the problem of the tokens that descent selected;
whether they are the best ones stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import missing_extra
from regard.lab.result import Claim, Options, Result, Share
from regard.layers.attention import Tap, attend, dot
from regard.look.page import Bars, Facts, Heatmap, Lines, Table, Text
from regard.training.loop import seed_of

Array = NDArray[np.float64]


def frobenius(constraints: Array) -> Array:
    """min |W|_F with <A, W> ≥ 1 for every A (N, D, D): least distance programming by non-negative
    least squares (Lawson & Hanson 1974, chapter 23).
    """
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    flat = constraints.reshape(len(constraints), -1)  # (N, D²)
    matrix = np.concatenate([flat.T, np.ones((1, len(flat)))])
    target = np.append(np.zeros(flat.shape[1]), 1.0)
    weights, left = nnls(matrix, target, maxiter=50 * len(flat))
    rest = target - matrix @ weights
    if left < 1e-9:
        raise ValueError("the tokens cannot be separated: the constraints contradict one another")
    return np.asarray(-rest[:-1] / rest[-1]).reshape(constraints.shape[1:])


def nuclear(constraints: Array, passes: int = 80) -> Array:
    """min |W|_* under the same constraints, by reweighting (Mohan & Fazel 2012, JMLR 13:3441): each
    pass minimises tr(Wᵀ (W₀W₀ᵀ + ε)^(-1/2) W), the Frobenius problem in other coordinates.
    """
    w, epsilon = frobenius(constraints), 1.0
    for _ in range(passes):
        values, vectors = np.linalg.eigh(w @ w.T + epsilon * np.eye(len(w)))
        root = (vectors * values**0.25) @ vectors.T  # (W₀W₀ᵀ + ε)^(1/4)
        w = root @ frobenius(root @ constraints)  # <A, root U> = <root A, U>
        epsilon = max(0.6 * epsilon, 1e-10)
    return w


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two matrices."""
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))


ALIGNED, ENOUGH = 0.95, 0.8  # cosine of the angle, and the share of seeds that must reach it
SELECTED = 0.95  # weight of a token that is selected
RATES = {
    False: 0.05,
    True: 0.01,
}  # length of a step of W, and of K and Q, whose product grows faster
SMALL_START = 0.01  # entries of K and Q at first


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    seeds: int
    steps: int
    records: int = 5  # B sequences of T tokens, D wide: separable, since T·B < D²
    tokens: int = 6
    width: int = 10
    marks: int = 30  # moments at which the angle is measured


LARGE, SMALL = Plan(seeds=16, steps=4000), Plan(seeds=2, steps=1500, marks=8)


@dataclass(frozen=True, eq=False)
class Task:
    """Sequences x (B, T, D), the token z (B, D) that asks, labels ±1 (B,) and a head v (D,)."""

    x: Tensor
    z: Tensor
    labels: Tensor
    v: Tensor

    @property
    def scores(self) -> Tensor:
        """(B, T): how much each token would help if it alone were selected."""
        return self.labels[:, None] * (self.x @ self.v)

    def weights(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """The margin of each answer (B,) and the attention weights (B, T) of W (D, D)."""
        tap = Tap(["weights"])
        q = (self.z @ w.mT)[:, None, None]  # (B, 1, 1, D): W z
        x = self.x[:, None]  # (B, 1, T, D)
        y = attend(q, x, x, score=dot, tap=tap)[:, 0, 0]  # (B, D)
        return self.labels * (y @ self.v), tap.found["weights"][:, 0, 0]

    def differences(self, chosen: Tensor) -> Array:
        """(B·(T-1), D, D): the matrix A with <A, W> = (x_chosen - x_other)ᵀ W z."""
        made = []
        for x, z, best in zip(self.x, self.z, chosen.tolist(), strict=True):
            others = torch.cat([x[:best], x[best + 1 :]])
            made.append((x[best] - others)[:, :, None] * z[None, None, :])
        return np.asarray(torch.cat(made).numpy())


def draw(plan: Plan, seed: int) -> Task:
    """Unit tokens; the first of each sequence asks."""
    generator = torch.Generator().manual_seed(seed)
    shape = (plan.records, plan.tokens, plan.width)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True)
    v = torch.randn(plan.width, generator=generator, dtype=torch.float64)
    labels = torch.arange(plan.records).remainder(2).mul(2).sub(1).double()
    return Task(x, x[:, 0], labels, v / v.norm())


@dataclass(frozen=True, eq=False)
class Course:
    """One descent: W at some steps, the attention weights at the end, tokens selected, and the
    angles to both margin problems of these tokens.
    """

    steps: list[int]
    to_frobenius: list[float]
    to_nuclear: list[float]
    norms: list[float]
    weights: Tensor  # (B, T)
    best: bool  # are the tokens selected those of the highest score?


def descend(task: Task, plan: Plan, seed: int, *, factors: bool) -> Course:
    """Descent on the logistic loss, of W or of K and Q, in steps of one length as in the paper."""
    generator = torch.Generator().manual_seed(seed)
    shape = (plan.width, plan.width)
    if factors:
        start = [
            SMALL_START * torch.randn(shape, generator=generator, dtype=torch.float64)
            for _ in range(2)
        ]
    else:
        start = [torch.zeros(shape, dtype=torch.float64)]
    parts = [part.requires_grad_() for part in start]
    marks = set(np.unique(np.geomspace(1, plan.steps, plan.marks).astype(int)).tolist())
    kept: dict[int, Array] = {}
    for step in range(1, plan.steps + 1):
        w = parts[0] @ parts[1].mT if factors else parts[0]
        loss = torch.nn.functional.softplus(-task.weights(w)[0]).mean()
        slopes = torch.autograd.grad(loss, parts)
        top = torch.stack([slope.abs().max() for slope in slopes]).max()  # squares would underflow
        flat = torch.cat([slope.flatten() for slope in slopes]) / top
        with torch.no_grad():
            for part, slope in zip(parts, slopes, strict=True):
                part -= RATES[factors] * slope / top / flat.norm()
        if step in marks:
            kept[step] = (parts[0] @ parts[1].mT if factors else parts[0]).detach().numpy().copy()
    weights = task.weights(torch.from_numpy(kept[plan.steps]))[1]
    chosen = weights.argmax(-1)
    margins = task.differences(chosen)
    short, low = frobenius(margins), nuclear(margins)
    return Course(
        list(kept),
        [cosine(w, short) for w in kept.values()],
        [cosine(w, low) for w in kept.values()],
        [float(np.linalg.norm(w)) for w in kept.values()],
        weights,
        bool((chosen == task.scores.argmax(-1)).all()),
    )


def svm(options: Options) -> Result:
    """The experiment."""
    plan = SMALL if options.quick else LARGE
    work = options.work(2 * plan.seeds)
    whole: list[Course] = []
    factors: list[Course] = []
    for i in range(plan.seeds):
        seed = seed_of(options.seed, i)
        task = draw(plan, seed)
        for runs, split in ((whole, False), (factors, True)):
            runs.append(descend(task, plan, seed, factors=split))
            work.add("svm", 1)
    return report(whole, factors, plan, short=options.quick)


QUESTION = (
    "A lecture says that one layer of self-attention is a hard-margin support vector machine. "
    "What the paper proves is about training: on sequences whose tokens can be separated, "
    "gradient descent lets the weights grow forever, and their direction tends to the separator "
    "with the largest margin between the token that is selected and all others: smallest in the "
    "Frobenius norm for W, in the nuclear norm for W = K Qᵀ. Which tokens are selected may depend "
    "on where descent begins. Does that happen?"
)
MADE = (
    "How it is made. Sequences of unit vectors, the first of which asks; labels of either sign and "
    "a fixed head; the logistic loss, and steps of constant length down its gradient. The margin "
    "problems are solved apart from all that, by non-negative least squares, for the tokens that "
    "descent selected; the one in the nuclear norm by reweighting it. An angle of 0 has the cosine "
    "1. The theorem speaks of infinite time: what is measured is how near some steps come."
)


def report(
    whole: list[Course], factors: list[Course], plan: Plan, *, short: bool = False
) -> Result:
    """Tables, figures and claims."""
    return Result(
        title="Attention and the largest margin",
        question=QUESTION,
        reading=(
            "Each line is the mean over seeds of how well the weights point at the solution of a "
            "margin problem; 1 is the same direction, and bands run from the worst seed to the "
            "best."
        ),
        readings=[
            "The weights grow for as long as training goes on: what converges is their direction.",
            "Each row is a sequence: the outlined token has all of its attention.",
        ],
        claims=claims(whole, factors, plan, short=short),
        tables=[seeds_table(whole, factors)],
        figures=[angles(whole, factors), growth(whole, factors), selected(whole[0])],
        panels=[tokens_of(whole, factors), finals(whole, factors), Text(MADE)],
    )


def angles(whole: list[Course], factors: list[Course]) -> Lines:
    """Against the steps."""
    groups = {
        "W to the Frobenius margin": [c.to_frobenius for c in whole],
        "K Qᵀ to the nuclear margin": [c.to_nuclear for c in factors],
        "K Qᵀ to the Frobenius margin": [c.to_frobenius for c in factors],
    }
    xs = [float(step) for step in whole[0].steps]
    series, bands = [], {}
    for name, rows in groups.items():
        values = np.array(rows)
        series.append((name, xs, values.mean(0).tolist()))
        bands[name] = (values.min(0).tolist(), values.max(0).tolist())
    return Lines(
        series,
        x_label="steps",
        y_label="cosine of the angle",
        title="Direction of the weights, and of the largest margin",
        log_x=True,
        bands=bands,
        levels={"the same": 1.0},
    )


def growth(whole: list[Course], factors: list[Course]) -> Lines:
    """The norm, which has no limit."""
    xs = [float(step) for step in whole[0].steps]
    series = [
        (name, xs, np.mean([c.norms for c in runs], axis=0).tolist())
        for name, runs in (("W", whole), ("K Qᵀ", factors))
    ]
    return Lines(
        series,
        x_label="steps",
        y_label="Frobenius norm",
        title="Length of the weights",
        log_x=True,
        log_y=True,
    )


def selected(course: Course) -> Heatmap:
    """Where each sequence looks in the end."""
    weights = course.weights.numpy()
    rows = [f"sequence {i + 1}" for i in range(len(weights))]
    columns = [f"token {j + 1}" for j in range(weights.shape[1])]
    marks = [(i, int(j)) for i, j in enumerate(weights.argmax(1))]
    return Heatmap(
        weights,
        rows,
        columns,
        title="Tokens selected after training W, first seed",
        scale="weights",
        unit="weight",
        marks=marks,
    )


def finals(whole: list[Course], factors: list[Course]) -> Bars:
    """The last angles, seed by seed."""
    names = [f"W, seed {i}" for i in range(len(whole))] + [
        f"K Qᵀ, seed {i}" for i in range(len(factors))
    ]
    values = [c.to_frobenius[-1] for c in whole] + [c.to_nuclear[-1] for c in factors]
    return Bars(
        names, values, title="Cosine of the angle in the end, to its own margin", unit="cosine"
    )


def tokens_of(whole: list[Course], factors: list[Course]) -> Facts:
    """Which tokens were selected: the theorem leaves it open, so nothing is claimed of it."""
    facts = [
        (f"the best tokens, {name}", f"{sum(c.best for c in runs)} of {len(runs)} seeds")
        for name, runs in (("W", whole), ("K Qᵀ", factors))
    ]
    return Facts(facts, title="Tokens selected: the best ones, or such that nearby ones are worse")


def seeds_table(whole: list[Course], factors: list[Course]) -> Table:
    """Seed by seed."""
    rows: list[list[object]] = [
        [
            i,
            w.to_frobenius[-1],
            "best" if w.best else "local",
            f.to_nuclear[-1],
            f.to_frobenius[-1],
            "best" if f.best else "local",
            float(w.weights.amax(-1).min()),
        ]
        for i, (w, f) in enumerate(zip(whole, factors, strict=True))
    ]
    columns = [
        "seed",
        "W: cosine to Frobenius",
        "tokens",
        "K Qᵀ: cosine to nuclear",
        "... to Frobenius",
        "tokens ",
        "least weight selected",
    ]
    return Table(
        columns, rows, title="After training: cosine to the margin problem of the tokens selected"
    )


def claims(
    whole: list[Course], factors: list[Course], plan: Plan, *, short: bool = False
) -> list[Claim]:
    """In direction, in length, and in which norm, after training or after a `short` one."""
    made = []
    for name, found in (
        (
            "W tends to the largest margin in the Frobenius norm",
            [c.to_frobenius[-1] for c in whole],
        ),
        (
            "K Qᵀ tends to the largest margin in the nuclear norm",
            [c.to_nuclear[-1] for c in factors],
        ),
    ):
        share = Share(sum(value >= ALIGNED for value in found), len(found))
        stated = f"cosine at least {ALIGNED} in {ENOUGH:.0%} of {plan.seeds} seeds"
        made.append(
            Claim.within(
                name,
                stated,
                f"{share.right} of {share.of}; from {min(found):.4f} to {max(found):.4f}",
                share.interval,
                least=ENOUGH,
                may_rise=short,
            )
        )
    nearer = Share(sum(c.to_nuclear[-1] > c.to_frobenius[-1] for c in factors), len(factors))
    made.append(
        Claim.within(
            "factors prefer the nuclear norm",
            f"K Qᵀ is nearer to the nuclear margin than to the Frobenius one in {ENOUGH:.0%}",
            f"{nearer.right} of {nearer.of}",
            nearer.interval,
            least=ENOUGH,
            may_rise=short,
        )
    )
    least = min(float(c.weights.amax(-1).min()) for c in [*whole, *factors])
    made.append(
        Claim(
            "one token of each sequence is selected",
            f"its weight is at least {SELECTED} in every run",
            f"{least:.4f}, the least",
            least >= SELECTED or (None if short else False),
        )
    )
    late = [c.norms[-1] > 1.5 * c.norms[len(c.norms) // 2] for c in [*whole, *factors]]
    made.append(
        Claim(
            "the weights keep growing",
            "half as long again at the end as at the middle of the marks, in every run",
            f"{sum(late)} of {len(late)}",
            all(late) or (None if short else False),
        )
    )
    return made
