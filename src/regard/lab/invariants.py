"""What attention always does: laws of the layer, checked on the layer itself.

Attention is a weighted mean whose weights depend on what is averaged. Decks 002 to 004 say that
self-attention is blind to order until positions are added, that weights are positive and sum to
one, so that every output lies in the convex hull of the values, that attention is no linear map,
that q·k must be divided by sqrt(d_k), and what LayerNorm does. (The layer is equivariant to the
order of its input tokens; a deck says of the rows of A.)

A layer with random weights reads random tokens, and the same in another order; its outputs are
sorted again and compared. Position schemes are those of the models. That an output lies in the
convex hull of the values is a linear program: are there weights, positive and summing to one, that
give it? It does not know how the output was made. Queries and keys of the variances are normal with
variance one. LayerNorm is (x - mean) / sqrt(variance + eps), times a gain, plus a bias; these start
as one and zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from regard.evaluation.head_scores import entropy_bits
from regard.lab.experiment import Claim, Mean, Options, Result, Z, curves
from regard.lab.linearity import LayerLinearity, linearity_table, measure_run
from regard.layers.attention import (
    SCORES,
    AttentionContext,
    SelfAttention,
    attend,
    make_score,
    softmax,
)
from regard.layers.norms import make_norm
from regard.layers.positions import POSITIONS, make_positions
from regard.layers.tap import Tap
from regard.look.page import Bars, Histogram, Lines, Scatter, Table
from regard.training.loop import seed_of

D_MODEL, N_HEADS, LENGTH = 32, 4, 12
WIDTHS = (1, 4, 16, 64, 256, 1024)  # of keys
N_NUMBERS, MAX_PAIRS = 1 << 22, 1 << 16  # drawn for a width, and pairs at most
KEYS = 64  # that a query attends to, for entropies
EXACT, INSIDE, ORDER_EFFECT, CLOSE, DRIFT = 1e-5, 1e-6, 0.05, 0.1, 0.3  # tolerances

Array = NDArray[np.float64]


def order_claims(differences: Mapping[str, float]) -> list[Claim]:
    """Blind without positions, sensitive to order with any scheme."""
    least = min(set(differences) - {"none"}, key=lambda name: differences[name])
    return [
        Claim.exact(
            "without positions order means nothing",
            f"shuffled inputs give shuffled outputs, to {EXACT:g}",
            differences["none"],
            most=EXACT,
        ),
        Claim.exact(
            "with positions it does",
            f"under every scheme outputs differ by at least {ORDER_EFFECT:g}",
            differences[least],
            f"{{:.3f}} with {least}, the least",
            least=ORDER_EFFECT,
        ),
    ]


def sum_claim(errors: Mapping[str, float]) -> Claim:
    largest = max(errors, key=lambda name: errors[name])
    name, stated = "weights of a query sum to one", f"for every score, to {EXACT:g}"
    measured = f"{{:.1e}} with {largest}, the farthest"
    return Claim.exact(name, stated, errors[largest], measured, most=EXACT)


def hull_claim(n: int) -> Claim:
    """Outputs of attention are mixtures of the values, as a linear program confirms for each."""
    farthest, n_passed = 0.0, 0
    for _ in range(n):
        q, k, v = (torch.randn(1, 1, LENGTH, 3) for _ in range(3))
        output, values = (x[0, 0].double().numpy() for x in (attend(q, k, v), v))
        farthest = max(farthest, distance_to_hull(output[0], values))
        direction = torch.randn(3, dtype=torch.float64).numpy()
        margin = (values @ direction).max() - output[0] @ direction
        outside = output[0] + direction * (margin + 0.1) / (direction @ direction)
        n_passed += distance_to_hull(outside, values) <= INSIDE
    return Claim(
        "outputs lie in the convex hull of the values",
        f"within {INSIDE:g} of a mixture of the values; points moved away are not",
        f"{farthest:.1e}, the farthest of {n}; {n_passed} of {n} moved away pass",
        farthest <= INSIDE and not n_passed,
    )


def linearity_claims() -> list[Claim]:
    """Compare f(a + b) with f(a) + f(b), of the layer and with fixed weights."""
    layer, context = SelfAttention(D_MODEL, N_HEADS), AttentionContext()
    a, b = (torch.randn(1, LENGTH, D_MODEL) for _ in range(2))

    def relative_gap(f: Callable[[Tensor], Tensor]) -> float:
        parts = f(a) + f(b)
        return float((f(a + b) - parts).norm() / parts.norm())

    def fixed(x: Tensor) -> Tensor:
        """The weights are those of other tokens."""
        q, k, _ = (t.transpose(1, 2) for t in layer.project(a, context))
        v = layer.project(x, context)[2].transpose(1, 2)
        return layer.out(attend(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    return [
        Claim.exact(
            "attention is no linear map",
            f"f(a + b) differs from f(a) + f(b) by at least {CLOSE:g} of its length",
            relative_gap(lambda x: layer(x, context)),
            "{:.3f}",
            least=CLOSE,
        ),
        Claim.exact(
            "with its weights held fixed it is linear",
            f"the same differs by at most {EXACT:g}",
            relative_gap(fixed),
            most=EXACT,
        ),
    ]


def run_claims(layers: Sequence[LayerLinearity]) -> list[Claim]:
    """The same of the layers of the user's run."""
    if not layers:
        return []
    least, most = min(x.added for x in layers), max(x.fixed for x in layers)
    return [
        Claim.exact(
            "the attention of your run is no linear map",
            f"in every layer f(a + b) differs from f(a) + f(b) by at least {CLOSE:g} of its length",
            least,
            "{:.3f}, the least",
            least=CLOSE,
        ),
        Claim.exact(
            "... and is one with its weights held fixed",
            f"the same differs by at most {100 * EXACT:g}",
            most,
            "{:.1e}, the most",
            most=100 * EXACT,
        ),
    ]


@dataclass
class Products:
    """By width of keys: the variance of q·k and of q·k / sqrt(K), and the entropy in bits of the
    softmax of both.
    """

    variance: dict[int, Mean] = field(default_factory=dict)
    scaled_variance: dict[int, Mean] = field(default_factory=dict)
    entropy: dict[int, Mean] = field(default_factory=dict)
    scaled_entropy: dict[int, Mean] = field(default_factory=dict)


def scaling_claims(p: Products) -> list[Claim]:
    """What the factor 1 / sqrt(d_k) is for."""
    ratios = [Mean(m.value / w - 1, m.half_width / w) for w, m in p.variance.items()]
    errors = [Mean(m.value - 1, m.half_width) for m in p.scaled_variance.values()]
    first, last = WIDTHS[1], WIDTHS[-1]  # products of single numbers have longer tails
    start, end = p.scaled_entropy[first], p.scaled_entropy[last]
    drift = Mean(end.value - start.value, math.hypot(end.half_width, start.half_width))
    entropies = f"{p.entropy[last].value:.3f} bits, from {p.entropy[first].value:.3f} at width"
    return [
        zero_claim("q·k has the variance d_k", ratios),
        zero_claim("divided by sqrt(d_k) it has variance one", errors),
        Claim.within(
            "without the factor the softmax hardens",
            f"of {KEYS} keys, below 1 bit at width {last}",
            p.entropy[last],
            f"{entropies} {first}",
            most=1.0,
        ),
        Claim.within(
            "with it the entropy stays",
            f"changes by at most {DRIFT} bits from width {first} to {last}",
            drift,
            f"{abs(drift.value):.3f} bits",
            least=-DRIFT,
            most=DRIFT,
        ),
    ]


def zero_claim(name: str, values: Sequence[Mean]) -> Claim:
    """All values are about 0, even the farthest with its interval."""
    farthest = max(values, key=lambda mean: abs(mean.value) + mean.half_width)
    measured, stated = f"{abs(farthest.value):.1%}, the farthest", f"to {CLOSE:.0%} at every width"
    return Claim.within(name, stated, farthest, measured, least=-CLOSE, most=CLOSE)


def norm_claim(y: Tensor) -> Claim:
    mean, variance = y.mean(-1).abs().max(), (y.var(-1, correction=0) - 1).abs().max()
    return Claim(
        "LayerNorm centres and scales each position",
        "every position has mean 0 to 1e-5 and variance 1 to 1e-3",
        f"{float(mean):.1e} and {float(variance):.1e}",
        bool(mean <= 1e-5 and variance <= 1e-3),
    )


def with_positions(name: str, x: Tensor) -> tuple[Tensor, AttentionContext]:
    """Return tokens with the positions of a scheme, and the context with its rotation or bias."""
    scheme = make_positions(
        name,
        d_model=D_MODEL,
        d_head=D_MODEL // N_HEADS,
        n_heads=N_HEADS,
        max_len=LENGTH,
        theta=100.0,
    )
    where, at = range(LENGTH), torch.arange(LENGTH)
    context = AttentionContext(None, scheme.rotation(where), scheme.bias(at, at))
    return scheme.add(x, where, LENGTH), context


def order_difference(name: str) -> float:
    """Return how far layer(permuted x) is from permuted layer(x), over the largest output."""
    layer = SelfAttention(D_MODEL, N_HEADS)
    x, order = torch.randn(1, LENGTH, D_MODEL), torch.randperm(LENGTH)
    torch.manual_seed(0)  # a learned scheme is the same both times
    first = layer(*with_positions(name, x))
    torch.manual_seed(0)
    second = layer(*with_positions(name, x[:, order]))
    return float((second - first[:, order]).abs().max() / first.abs().max())


def sum_error(name: str) -> float:
    """Return how far the weights of any query are from positive and summing to one."""
    q, k, v = (torch.randn(2, N_HEADS, LENGTH, 8) for _ in range(3))
    tap = Tap(["weights"])
    attend(q, k, v, score=make_score(name, N_HEADS, 8), tap=tap)
    weights = tap.activations["weights"]
    return max(-float(weights.min()), float((weights.sum(-1) - 1).abs().max()))


def distance_to_hull(point: Array, corners: Array) -> float:
    """Return the least total deviation of `point` (K,) from a mixture of `corners` (S, K), by a
    linear program over weights and deviations of either sign.
    """
    n, width = corners.shape
    costs = np.concatenate([np.zeros(n), np.ones(2 * width)])
    mixture = np.concatenate([corners.T, np.eye(width), -np.eye(width)], axis=1)  # = point
    total = np.concatenate([np.ones(n), np.zeros(2 * width)])[None]  # = 1
    equations, values = np.concatenate([mixture, total]), np.append(point, 1.0)
    solution = linprog(costs, A_eq=equations, b_eq=values, bounds=(0, None))
    return float(solution.fun) if solution.success else math.inf


def measure_products(samples: int) -> Products:
    products = Products()
    for width in WIDTHS:
        q, k = torch.randn(1, 1, samples, width), torch.randn(1, 1, KEYS, width)
        n = min(MAX_PAIRS, max(4 * samples, N_NUMBERS // width))
        scores = (torch.randn(n, width) * torch.randn(n, width)).sum(-1)
        products.variance[width] = variance(scores)
        products.scaled_variance[width] = variance(scores * width**-0.5)
        products.entropy[width] = entropy(make_score("dot", 1, width)(q, k))
        products.scaled_entropy[width] = entropy(make_score("scaled_dot", 1, width)(q, k))
    return products


def variance(values: Tensor) -> Mean:
    """Return the variance of values whose mean is known to be 0."""
    return normal_mean(values.double().square())


def entropy(scores: Tensor) -> Mean:
    """Return the mean entropy in bits of the softmax of scores (..., S)."""
    return normal_mean(entropy_bits(softmax(scores)).flatten().double())


def normal_mean(values: Tensor) -> Mean:
    """Return the mean of many values, with the 95% interval of a normal distribution."""
    return Mean(float(values.mean()), Z * float(values.std()) / math.sqrt(len(values)))


def invariants(options: Options) -> Result:
    samples, n_hulls = (500, 20) if options.quick else (4000, 200)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed_of(options.seed))
        differences = {name: order_difference(name) for name in POSITIONS}
        sums = sum_claim({name: sum_error(name) for name in SCORES})
        mixtures, hull = mixture_scatter(), hull_claim(n_hulls)
        linearity = linearity_claims()
        products = measure_products(samples)
        x = 3.0 + 5.0 * torch.rand(samples, D_MODEL).pow(3)  # far from normal
        y = make_norm("layer", D_MODEL, 1e-5, True)(x)
    orders = list(differences), list(differences.values())
    layers = [] if options.file is None else measure_run(options.file)
    claimed = [
        *order_claims(differences),
        sums,
        hull,
        *linearity,
        *scaling_claims(products),
        norm_claim(y),
        *run_claims(layers),
    ]
    kept = sum(claim.holds is True for claim in claimed)
    return Result(
        title="What attention always does",
        answer=(
            f"These {kept} of {len(claimed)} hold: "
            f"{'; '.join(claim.name for claim in claimed if claim.holds)}."
        ),
        question=__doc__ or "",
        reading=(
            "From left to right keys become wider: the variance of q·k grows as their width, and "
            "stays at one where it is divided by the root of it."
        ),
        readings=[
            "Without the factor a query attends to a single key as keys become wider; with it, to "
            "many.",
            "A bar shows how much outputs change when tokens are shuffled and sorted again: "
            "nothing without positions, much with any scheme.",
            "Outputs are mixtures of the values, so that none lies outside the polygon the "
            "values span.",
            "Coordinates of all positions as they come, far from zero and skewed.",
            "The same after LayerNorm: centred and scaled position by position; their shape is "
            "unchanged.",
        ],
        claims=claimed,
        tables=[
            Table(
                ["positions", "largest difference over largest output"],
                [[name, f"{gap:.2e}"] for name, gap in differences.items()],
                title="Outputs for shuffled inputs, sorted again",
            ),
            product_table(products),
            *([] if options.file is None else [linearity_table(layers, options.file.name)]),
        ],
        figures=[
            *product_curves(products),
            Bars(
                *orders,
                title="What shuffling the tokens changes, by position scheme",
                unit="largest difference over largest output",
            ),
            mixtures,
            histogram(x, "before"),
            histogram(y, "after"),
        ],
    )


def mixture_scatter() -> Scatter:
    q, k, v = (torch.randn(1, 1, LENGTH, 2) for _ in range(3))
    points = torch.cat([v, attend(2 * q, k, v)], dim=2)[0, 0].double().numpy()
    return Scatter(
        points,
        groups=["values"] * LENGTH + ["outputs"] * LENGTH,
        x_label="first coordinate",
        y_label="second coordinate",
        title="Values, and what attention makes of them",
    )


def histogram(values: Tensor, when: str) -> Histogram:
    counts, edges = np.histogram(values.numpy().ravel(), bins=40)
    return Histogram(
        edges.tolist(),
        counts.tolist(),
        title=f"Coordinates {when} LayerNorm",
        x_label="value",
        y_label="coordinates",
    )


def product_table(p: Products) -> Table:
    measured = (p.variance, p.scaled_variance, p.entropy, p.scaled_entropy)
    rows = [[width, *(row[width].value for row in measured)] for width in WIDTHS]
    columns = ["d_k", "variance of q·k", "divided by sqrt(d_k)", "entropy, bits", "entropy with it"]
    return Table(columns, rows, title=f"Products of normal vectors, softmax over {KEYS} keys")


def product_curves(p: Products) -> list[Lines]:
    def lines(
        title: str, unit: str, rows: Mapping[str, Mapping[int, Mean]], **options: Any
    ) -> Lines:
        values = {name: [mean.value for mean in row.values()] for name, row in rows.items()}
        return curves(WIDTHS, values, title, ("width of a key, d_k", unit), ticks=True, **options)

    variances = {"q·k": p.variance, "q·k / sqrt(d_k)": p.scaled_variance}
    entropies = {"softmax(q·k)": p.entropy, "softmax(q·k / sqrt(d_k))": p.scaled_entropy}
    title, levels = "How many keys a query attends to", {"all equal": math.log2(KEYS)}
    return [
        lines("Variance of a score", "variance", variances, log="xy"),
        lines(title, "entropy of the weights, bits", entropies, log="x", levels=levels),
    ]
