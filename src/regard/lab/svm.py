"""Does attention trained by gradient descent become a margin classifier of tokens?

A lecture says that one layer of self-attention is a hard-margin support vector machine. Tarzanagh,
Li, Thrampoulidis & Oymak 2023 (arXiv:2308.16898, "Transformers as support vector machines") study
one layer, f(X, z) = v · Xᵀ softmax(X W z), the head v fixed. They show an implicit bias of gradient
descent: where tokens can be separated, the norm of W grows without bound while its *direction*
converges to that of a hard-margin problem,

    min |W|  such that  (x_selected - x_other)ᵀ W z ≥ 1  for every other token of every sequence,

in the Frobenius norm when W itself is trained; and in the nuclear norm for W = K Qᵀ, which is
proved for training with a regularisation that vanishes and only observed for plain descent. The
selected tokens need only be *locally* optimal; only under further conditions are they those with
the highest score v · x. It is no statement that attention *is* a support vector machine, nor about
multilayer models. So the angle measured here is to the problem of the tokens that descent selected;
whether they are the best ones is reported separately.

Sequences of unit vectors, the first of which is the query, have labels of either sign and a fixed
head; descent on the logistic loss takes steps of constant length. The margin problems are solved
independently, by non-negative least squares, the one in the nuclear norm by reweighting it. An
angle of 0 has the cosine 1. The theorem is about infinite time: what is measured is how near a
number of steps comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor
from torch.nn import functional as F

from regard.lab.experiment import Claim, Options, Proportion, Result, curves, seed_curves
from regard.lab.token_selection import select_tokens, selection_claims, selection_parts
from regard.layers.attention import attend, dot
from regard.layers.tap import Tap
from regard.look.page import Bars, Facts, Heatmap, Table
from regard.training.loop import seed_of

ALIGNED, ENOUGH = 0.95, 0.8  # cosine of the angle, and the share of seeds that must reach it
SELECTED = 0.95  # weight of a token that is selected
GROWTH = 1.5  # of the norm from the middle mark to the end
RATE, FACTOR_RATE = 0.05, 0.01  # length of a step; the product of two factors grows faster
SMALL_START = 0.01  # initial entries of K and Q

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    seeds: int
    steps: int
    records: int = 5  # B sequences of T tokens, D wide: separable, since T·B < D²
    tokens: int = 6
    width: int = 10
    marks: int = 30  # steps at which the angle is measured


LARGE, SMALL = Plan(seeds=16, steps=4000), Plan(seeds=2, steps=1500, marks=8)


@dataclass(frozen=True, eq=False)
class Descent:
    """One training: at some steps the angles to both margin problems of the selected tokens and the
    norm of W; at the end the attention weights (B, T).
    """

    steps: list[int]
    to_frobenius: list[float]
    to_nuclear: list[float]
    norms: list[float]
    weights: list[list[float]]
    best: bool  # are the selected tokens those of the highest score?

    @property
    def least_selected(self) -> float:
        """The least weight of a selected token."""
        return min(max(row) for row in self.weights)


Descents = Sequence[Descent]  # one for each seed


def claims(full: Descents, factored: Descents, *, quick: bool = False) -> list[Claim]:
    def most_seeds(name: str, stated: str, holds: Sequence[bool], detail: str = "") -> Claim:
        share = Proportion(sum(holds), len(holds))
        measured = f"{share.count} of {share.total}{detail}"
        return Claim.within(name, stated, share, measured, least=ENOUGH, may_rise=quick)

    def aligned(name: str, cosines: Sequence[float]) -> Claim:
        stated = f"cosine at least {ALIGNED} in {ENOUGH:.0%} of {len(cosines)} seeds"
        detail = f"; from {min(cosines):.4f} to {max(cosines):.4f}"
        return most_seeds(name, stated, [cosine >= ALIGNED for cosine in cosines], detail)

    runs, undecided = [*full, *factored], None if quick else False
    least = min(run.least_selected for run in runs)
    grows = [run.norms[-1] > GROWTH * run.norms[len(run.norms) // 2] for run in runs]
    return [
        aligned(
            "W tends to the largest margin in the Frobenius norm",
            [run.to_frobenius[-1] for run in full],
        ),
        aligned(
            "K Qᵀ tends to the largest margin in the nuclear norm",
            [run.to_nuclear[-1] for run in factored],
        ),
        most_seeds(
            "factors prefer the nuclear norm",
            f"K Qᵀ is nearer to the nuclear margin than to the Frobenius one in {ENOUGH:.0%}",
            [run.to_nuclear[-1] > run.to_frobenius[-1] for run in factored],
        ),
        Claim(
            "one token of each sequence is selected",
            f"its weight is at least {SELECTED} in every run",
            f"{least:.4f}, the least",
            least >= SELECTED or undecided,
        ),
        Claim(
            "the weights keep growing",
            "half as long again at the end as at the middle of the marks, in every run",
            f"{sum(grows)} of {len(grows)}",
            all(grows) or undecided,
        ),
    ]


def frobenius_margin(constraints: Array) -> Array:
    """Return the W of least Frobenius norm with <A, W> ≥ 1 for every A (N, D, D): least distance
    programming by non-negative least squares (Lawson & Hanson 1974, chapter 23).
    """
    flat = constraints.reshape(len(constraints), -1)  # (N, D²)
    matrix = np.concatenate([flat.T, np.ones((1, len(flat)))])
    target = np.append(np.zeros(flat.shape[1]), 1.0)
    weights, error = nnls(matrix, target, maxiter=50 * len(flat))
    if error < 1e-9:
        raise ValueError("the tokens cannot be separated: the constraints contradict one another")
    residual = target - matrix @ weights
    return np.asarray(-residual[:-1] / residual[-1]).reshape(constraints.shape[1:])


def nuclear_margin(constraints: Array, iterations: int = 80) -> Array:
    """Return the W of least nuclear norm under the same constraints, by reweighting (Mohan & Fazel
    2012, JMLR 13:3441): each iteration minimises tr(Wᵀ (W₀W₀ᵀ + ε)^(-1/2) W), the Frobenius problem
    in other coordinates.
    """
    w, epsilon = frobenius_margin(constraints), 1.0
    for _ in range(iterations):
        values, vectors = np.linalg.eigh(w @ w.T + epsilon * np.eye(len(w)))
        root = (vectors * values**0.25) @ vectors.T  # (W₀W₀ᵀ + ε)^(1/4)
        w = root @ frobenius_margin(root @ constraints)  # <A, root U> = <root A, U>
        epsilon = max(0.6 * epsilon, 1e-10)
    return w


def cosine(a: Array, b: Array) -> float:
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))


@dataclass(frozen=True, eq=False)
class TokenTask:
    """Sequences x (B, T, D), query tokens z (B, D), labels ±1 (B,) and a head v (D,)."""

    x: Tensor
    z: Tensor
    labels: Tensor
    v: Tensor

    @property
    def scores(self) -> Tensor:
        """(B, T): the margin if a token alone were selected."""
        return self.labels[:, None] * (self.x @ self.v)

    def attend(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the margins (B,) of the predictions and the attention weights (B, T) of W."""
        tap = Tap(["weights"])
        q = (self.z @ w.mT)[:, None, None]  # (B, 1, 1, D): W z
        x = self.x[:, None]  # (B, 1, T, D)
        y = attend(q, x, x, score=dot, tap=tap)[:, 0, 0]  # (B, D)
        return self.labels * (y @ self.v), tap.activations["weights"][:, 0, 0]

    def constraints(self, selected: Tensor) -> Array:
        """Return the matrices A (B·(T-1), D, D) with <A, W> = (x_selected - x_other)ᵀ W z."""
        matrices = []
        for x, z, best in zip(self.x, self.z, selected.tolist(), strict=True):
            others = torch.cat([x[:best], x[best + 1 :]])
            matrices.append((x[best] - others)[:, :, None] * z[None, None, :])
        return np.asarray(torch.cat(matrices).numpy())


def draw(plan: Plan, seed: int) -> TokenTask:
    """Return sequences of unit tokens, the first of which is the query."""
    generator = torch.Generator().manual_seed(seed)
    shape = (plan.records, plan.tokens, plan.width)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True)
    v = torch.randn(plan.width, generator=generator, dtype=torch.float64)
    labels = torch.arange(plan.records).remainder(2).mul(2).sub(1).double()
    return TokenTask(x, x[:, 0], labels, v / v.norm())


def initial_parts(plan: Plan, seed: int, *, factored: bool) -> list[Tensor]:
    shape = (plan.width, plan.width)
    if not factored:
        return [torch.zeros(shape, dtype=torch.float64).requires_grad_()]
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    return [(SMALL_START * part).requires_grad_() for part in parts]


def descend(task: TokenTask, plan: Plan, seed: int, *, factored: bool) -> Descent:
    """Descend on the logistic loss, of W or of K and Q, in steps of one length as in the paper."""
    parts = initial_parts(plan, seed, factored=factored)
    rate = FACTOR_RATE if factored else RATE

    def product() -> Tensor:
        return parts[0] @ parts[1].mT if factored else parts[0]

    marks = set(np.unique(np.geomspace(1, plan.steps, plan.marks).astype(int)).tolist())
    recorded: dict[int, Array] = {}
    for step in range(1, plan.steps + 1):
        loss = F.softplus(-task.attend(product())[0]).mean()
        gradients = torch.autograd.grad(loss, parts)
        largest = torch.stack([g.abs().max() for g in gradients]).max()  # squares would underflow
        norm = (torch.cat([g.flatten() for g in gradients]) / largest).norm()
        with torch.no_grad():
            for part, gradient in zip(parts, gradients, strict=True):
                part -= rate * gradient / largest / norm
        if step in marks:
            recorded[step] = product().detach().numpy().copy()
    weights = task.attend(torch.from_numpy(recorded[plan.steps]))[1]
    selected = weights.argmax(-1)
    constraints = task.constraints(selected)
    frobenius, nuclear = frobenius_margin(constraints), nuclear_margin(constraints)
    return Descent(
        list(recorded),
        [cosine(w, frobenius) for w in recorded.values()],
        [cosine(w, nuclear) for w in recorded.values()],
        [float(np.linalg.norm(w)) for w in recorded.values()],
        weights.tolist(),
        bool((selected == task.scores.argmax(-1)).all()),
    )


def svm(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    progress = options.progress(2 * plan.seeds)
    full: list[Descent] = []
    factored: list[Descent] = []
    for i in range(plan.seeds):
        seed = seed_of(options.seed, i)
        for runs, is_factored in ((full, False), (factored, True)):
            runs.append(
                options.part(
                    f"svm {seed} {is_factored}",
                    plan,
                    Descent,
                    partial(descend, draw(plan, seed), plan, seed, factored=is_factored),
                )
            )
            progress.add("svm", 1)
    result = report(full, factored, quick=options.quick)
    if options.file is None:
        return result
    found = select_tokens(options.file)
    claims = [*result.claims, *selection_claims(found)]
    return replace(result, claims=claims, panels=[*selection_parts(found), *result.panels])


def report(full: Descents, factored: Descents, *, quick: bool = False) -> Result:
    both, steps = {"W": full, "K Qᵀ": factored}, full[0].steps
    cosines = {f"W, seed {i}": run.to_frobenius[-1] for i, run in enumerate(full)}
    cosines |= {f"K Qᵀ, seed {i}": run.to_nuclear[-1] for i, run in enumerate(factored)}
    return Result(
        title="Attention and the largest margin",
        answer=answer(full, factored),
        question=__doc__ or "",
        reading=(
            "Each line is the mean over seeds of the cosine between the weights and the solution "
            "of a margin problem; 1 is the same direction, and bands run from the worst seed to "
            "the best."
        ),
        readings=[
            "The weights grow for as long as training goes on: what converges is their direction.",
            "Each row is a sequence: the outlined token has all of its attention.",
        ],
        claims=claims(full, factored, quick=quick),
        tables=[seeds_table(full, factored)],
        figures=[
            seed_curves(
                steps,
                {
                    "W to the Frobenius margin": [run.to_frobenius for run in full],
                    "K Qᵀ to the nuclear margin": [run.to_nuclear for run in factored],
                    "K Qᵀ to the Frobenius margin": [run.to_frobenius for run in factored],
                },
                "Direction of the weights, and of the largest margin",
                ("steps", "cosine of the angle"),
                log="x",
                levels={"the same": 1.0},
            ),
            curves(
                steps,
                {name: np.mean([run.norms for run in runs], axis=0) for name, runs in both.items()},
                "Length of the weights",
                ("steps", "Frobenius norm"),
                log="xy",
            ),
            selection_map(np.array(full[0].weights)),
        ],
        panels=[
            Facts(
                [
                    (
                        f"the best tokens, {name}",
                        f"{sum(r.best for r in runs)} of {len(runs)} seeds",
                    )
                    for name, runs in both.items()
                ],  # the theorem leaves it open, so nothing is claimed of it
                title="Tokens selected: the best ones, or such that nearby ones are worse",
            ),
            Bars(
                list(cosines),
                list(cosines.values()),
                title="Cosine of the angle in the end, to its own margin",
                unit="cosine",
            ),
        ],
    )


def answer(full: Descents, factored: Descents) -> str:
    frobenius = float(np.mean([run.to_frobenius[-1] for run in full]))
    nuclear = float(np.mean([run.to_nuclear[-1] for run in factored]))
    return (
        f"In direction, nearly: after {full[0].steps[-1]:,} steps the cosine between the weights "
        f"and the largest margin is {frobenius:.3f} for W and {nuclear:.3f} for K Qᵀ, means over "
        f"{len(full)} seeds."
    )


def selection_map(weights: NDArray[np.float64]) -> Heatmap:
    n, length = weights.shape
    return Heatmap(
        weights,
        [f"sequence {i + 1}" for i in range(n)],
        [f"token {j + 1}" for j in range(length)],
        title="Tokens selected after training W, first seed",
        scale="weights",
        unit="weight",
        marks=[(i, int(j)) for i, j in enumerate(weights.argmax(1))],
    )


def seeds_table(full: Descents, factored: Descents) -> Table:
    rows: list[list[object]] = []
    for i, (w, kq) in enumerate(zip(full, factored, strict=True)):
        row: list[object] = [i, w.to_frobenius[-1], "best" if w.best else "local"]
        row += [kq.to_nuclear[-1], kq.to_frobenius[-1], "best" if kq.best else "local"]
        rows.append([*row, w.least_selected])
    columns = ["seed", "W: cosine to Frobenius", "tokens", "K Qᵀ: cosine to nuclear"]
    columns += ["... to Frobenius", "tokens ", "least weight selected"]
    title = "After training: cosine to the margin problem of the tokens selected"
    return Table(columns, rows, title=title)
