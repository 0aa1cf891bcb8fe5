"""What attention always does: laws of the layer, checked on the layer itself.

Decks 002 to 004 say that self-attention is blind to order until positions are added, that weights
are positive and sum to one, so that every output lies in the convex hull of the values, that
attention is no linear map, that q·k must be divided by sqrt(d_k), and what LayerNorm does. (The
layer is equivariant to the order of its input tokens; a deck says of the rows of A.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import missing_extra
from regard.lab.result import Claim, Mean, Options, Result, Z
from regard.layers.attention import (
    SCORES,
    AttentionContext,
    SelfAttention,
    Tap,
    attend,
    make_score,
    softmax,
)
from regard.layers.norms import make_norm
from regard.layers.positions import POSITIONS, Positions, make_positions
from regard.look.page import Bars, Histogram, Lines, Scatter, Table, Text
from regard.training.loop import seed_of

D_MODEL, N_HEADS, LENGTH = 32, 4, 12
WIDTHS = (1, 4, 16, 64, 256, 1024)  # of keys
PAIRED, MOST_PAIRS = 1 << 22, 1 << 16  # numbers drawn for a width, and pairs at most
KEYS = 64  # that a query of the last experiment looks at
EXACT, INSIDE, SEEN, NEAR = 1e-5, 1e-6, 0.05, 0.1  # tolerances


def invariants(options: Options) -> Result:
    """The experiment."""
    samples = 500 if options.quick else 4000
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed_of(options.seed))
        moved = {name: shuffled(name) for name in POSITIONS}
        summed = {name: rows(name) for name in SCORES}
        outside, picture = hull(20 if options.quick else 200)
        bent = linearity()
        plain, scaled, spread, flat = products(samples)
        norm, histograms = normalised(samples)
    products_figure, entropy_figure = variance_figures(plain, scaled, spread, flat)
    return Result(
        title="What attention always does",
        question=QUESTION,
        reading=(
            "From left to right keys become wider: the variance of q·k grows as their width, and "
            "stays at one where it is divided by the root of it."
        ),
        readings=[
            "Without the factor a query falls upon one key as keys become wider; with it, it "
            "goes on looking at many.",
            "A bar says how much outputs change when tokens are shuffled and put back: nothing "
            "without positions, much with any scheme.",
            "Outputs are mixtures of the values, so that none lies outside the polygon the "
            "values span.",
            "Coordinates of all positions as they come, far from zero and skewed.",
            "The same after LayerNorm: centred and scaled position by position; their shape is "
            "left as it was.",
        ],
        claims=[
            *equivariance(moved),
            _most("weights of a query sum to one", f"for every score, to {EXACT:g}", summed, EXACT),
            outside,
            *bent,
            *variances(plain, scaled, spread, flat),
            norm,
        ],
        tables=[order_table(moved), variance_table(plain, scaled, spread, flat)],
        figures=[products_figure, entropy_figure, order_bars(moved), picture, *histograms],
        panels=[Text(MADE)],
    )


QUESTION = (
    "Attention is a weighted mean whose weights depend on what is averaged. Which laws follow, "
    "and do they hold of the layer that models are made of, in single precision?"
)
MADE = (
    f"How it is made. A layer of {N_HEADS} heads, {D_MODEL} wide, with random weights reads "
    f"{LENGTH} random tokens, and the same in another order; its outputs are put back in order and "
    "compared. A position scheme is whatever the models use. That an output lies in the convex "
    "hull of the values is a linear program: are there weights, positive and summing to one, that "
    "give it? Nothing is told how the output was made. Queries and keys of the variances are "
    "normal with variance one. LayerNorm is (x - mean) / sqrt(variance + eps), times a gain, plus "
    "a bias; these begin as one and zero."
)


def with_positions(name: str, x: Tensor) -> tuple[Tensor, AttentionContext]:
    """Tokens with the positions of a scheme, by whichever door it comes in."""
    head = D_MODEL // N_HEADS
    scheme: Positions = make_positions(
        name, d_model=D_MODEL, d_head=head, n_heads=N_HEADS, max_len=LENGTH, theta=100.0
    )
    at = torch.arange(LENGTH)
    where = range(LENGTH)
    return scheme.add(x, where, LENGTH), AttentionContext(
        None, scheme.rotation(where), scheme.bias(at, at)
    )


def shuffled(name: str) -> float:
    """How far layer(permuted x) is from permuted layer(x), of the largest output."""
    layer = SelfAttention(D_MODEL, N_HEADS)
    x, order = torch.randn(1, LENGTH, D_MODEL), torch.randperm(LENGTH)
    torch.manual_seed(0)  # a learned scheme is the same both times
    first = layer(*with_positions(name, x))
    torch.manual_seed(0)
    second = layer(*with_positions(name, x[:, order]))
    return float((second - first[:, order]).abs().max() / first.abs().max())


def rows(name: str) -> float:
    """How far the weights of any query are from summing to one."""
    q, k, v = (torch.randn(2, N_HEADS, LENGTH, 8) for _ in range(3))
    tap = Tap(["weights"])
    attend(q, k, v, score=make_score(name, N_HEADS, 8), tap=tap)
    weights = tap.found["weights"]
    low = -min(0.0, float(weights.min()))
    return max(low, float((weights.sum(-1) - 1).abs().max()))


def hull(many: int) -> tuple[Claim, Scatter]:
    """Outputs of attention are mixtures of the values: a linear program for each says so."""
    q, k, v = (torch.randn(1, 1, LENGTH, 2) for _ in range(3))
    y = attend(2 * q, k, v)[0, 0].double().numpy()
    points = v[0, 0].double().numpy()  # (S, 2)
    worst, missed = 0.0, 0
    for _ in range(many):
        q, k, v = (torch.randn(1, 1, LENGTH, 3) for _ in range(3))
        outputs = attend(q, k, v)[0, 0].double().numpy()
        worst = max(worst, distance_to_hull(outputs[0], v[0, 0].double().numpy()))
        towards = torch.randn(3, dtype=torch.float64).numpy()
        room = (v[0, 0].double().numpy() @ towards).max() - outputs[0] @ towards
        away = outputs[0] + towards * (room + 0.1) / (towards @ towards)  # beyond every value
        missed += distance_to_hull(away, v[0, 0].double().numpy()) <= INSIDE
    stated = f"within {INSIDE:g} of a mixture of the values; points moved away are not"
    measured = f"{worst:.1e}, the farthest of {many}; {missed} of {many} moved away pass"
    claim = Claim(
        "outputs lie in the convex hull of the values",
        stated,
        measured,
        worst <= INSIDE and not missed,
    )
    shown = np.concatenate([points, y])
    groups = ["values"] * LENGTH + ["outputs"] * LENGTH
    title = "Values, and what attention makes of them"
    return claim, Scatter(
        shown, groups=groups, x_label="first coordinate", y_label="second coordinate", title=title
    )


def distance_to_hull(point: NDArray[np.float64], corners: NDArray[np.float64]) -> float:
    """The least total deviation of `point` (K,) from a mixture of `corners` (S, K), by a linear
    program over weights and deviations of either sign.
    """
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    many, width = corners.shape
    cost = np.concatenate([np.zeros(many), np.ones(2 * width)])
    meets = np.concatenate([corners.T, np.eye(width), -np.eye(width)], axis=1)  # = point
    sums = np.concatenate([np.ones(many), np.zeros(2 * width)])[None]  # = 1
    found = linprog(
        cost, A_eq=np.concatenate([meets, sums]), b_eq=np.append(point, 1.0), bounds=(0, None)
    )
    return float(found.fun) if found.success else math.inf


def linearity() -> list[Claim]:
    """f(a + b) against f(a) + f(b), of the layer and of its values alone."""
    layer, place = SelfAttention(D_MODEL, N_HEADS), AttentionContext()
    a, b = (torch.randn(1, LENGTH, D_MODEL) for _ in range(2))

    def gap(f: object) -> float:
        assert callable(f)
        whole, parts = f(a + b), f(a) + f(b)
        return float((whole - parts).norm() / parts.norm())

    bent = gap(lambda x: layer(x, place))
    still = a.clone()  # who looks at whom is decided by other tokens: then it is linear

    def fixed(x: Tensor) -> Tensor:
        q, k, _ = (t.transpose(1, 2) for t in layer.heads(still, place))
        v = layer.heads(x, place)[2].transpose(1, 2)
        return layer.out(attend(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    straight = gap(fixed)
    return [
        Claim(
            "attention is no linear map",
            f"f(a + b) differs from f(a) + f(b) by at least {NEAR:g} of its length",
            f"{bent:.3f}",
            bent >= NEAR,
        ),
        Claim(
            "with its weights held fixed it is linear",
            f"the same differs by at most {EXACT:g}",
            f"{straight:.1e}",
            straight <= EXACT,
        ),
    ]


Values = dict[int, Mean]


def products(samples: int) -> tuple[Values, Values, Values, Values]:
    """For each width: the variance of q·k and of q·k / sqrt(K), and the entropy of both in bits."""
    plain, scaled, spread, flat = {}, {}, {}, {}
    for width in WIDTHS:
        q, k = torch.randn(1, 1, samples, width), torch.randn(1, 1, KEYS, width)
        many = min(MOST_PAIRS, max(4 * samples, PAIRED // width))
        single = (torch.randn(many, width) * torch.randn(many, width)).sum(-1)
        plain[width] = variance(single)
        scaled[width] = variance(single * width**-0.5)
        spread[width] = entropies(make_score("dot", 1, width)(q, k))
        flat[width] = entropies(make_score("scaled_dot", 1, width)(q, k))
    return plain, scaled, spread, flat


def variance(values: Tensor) -> Mean:
    """Of values whose mean is known to be 0."""
    return mean_of(values.double().square())


def mean_of(values: Tensor) -> Mean:
    """With the 95% interval of many values."""
    return Mean(float(values.mean()), Z * float(values.std()) / math.sqrt(len(values)))


def entropies(scores: Tensor) -> Mean:
    """Of the softmax of scores (..., S), in bits, on average."""
    return mean_of(entropy_each(softmax(scores)).flatten().double())


def entropy_of(weights: Tensor) -> float:
    """Of attention weights (..., S), in bits, on average."""
    return float(entropy_each(weights).mean())


def entropy_each(weights: Tensor) -> Tensor:
    """(...) bits of attention weights (..., S)."""
    logs = torch.where(weights > 0, weights, 1.0).log2()
    return -(weights * logs).sum(-1)


def variances(plain: Values, scaled: Values, spread: Values, flat: Values) -> list[Claim]:
    """What the factor is for."""
    off = [Mean(one.value / width - 1, one.half / width) for width, one in plain.items()]
    still = [Mean(one.value - 1, one.half) for one in scaled.values()]
    first, last = WIDTHS[1], WIDTHS[-1]  # products of single numbers have longer tails
    halves = math.hypot(flat[last].half, flat[first].half)
    drift = Mean(flat[last].value - flat[first].value, halves)
    return [
        near_zero("q·k has the variance d_k", off),
        near_zero("divided by sqrt(d_k) it has variance one", still),
        Claim.within(
            "without the factor the softmax hardens",
            f"of {KEYS} keys, below 1 bit at width {last}",
            f"{spread[last].value:.3f} bits, from {spread[first].value:.3f} at width {first}",
            spread[last].interval,
            most=1.0,
        ),
        Claim.within(
            "with it the entropy stays",
            f"changes by at most 0.3 bits from width {first} to {last}",
            f"{abs(drift.value):.3f} bits",
            drift.interval,
            least=-0.3,
            most=0.3,
        ),
    ]


def near_zero(name: str, found: Sequence[Mean]) -> Claim:
    """That all of these shares, the one that is farthest with its interval too, are about 0."""
    farthest = max(found, key=lambda one: abs(one.value) + one.half)
    measured, stated = f"{abs(farthest.value):.1%}, the farthest", f"to {NEAR:.0%} at every width"
    return Claim.within(name, stated, measured, farthest.interval, least=-NEAR, most=NEAR)


def normalised(samples: int) -> tuple[Claim, list[Histogram]]:
    """LayerNorm of vectors that are far from normal."""
    x = 3.0 + 5.0 * torch.rand(samples, D_MODEL).pow(3)
    y = make_norm("layer", D_MODEL, 1e-5, True)(x)
    mean = float(y.mean(-1).abs().max())
    spread = float((y.var(-1, correction=0) - 1).abs().max())
    stated = "every position has mean 0 to 1e-5 and variance 1 to 1e-3"
    claim = Claim(
        "LayerNorm centres and scales each position",
        stated,
        f"{mean:.1e} and {spread:.1e}",
        mean <= 1e-5 and spread <= 1e-3,
    )
    figures = []
    for title, values in (("before", x), ("after", y)):
        counts, edges = np.histogram(values.numpy().ravel(), bins=40)
        figures.append(
            Histogram(
                edges.tolist(),
                counts.tolist(),
                title=f"Coordinates {title} LayerNorm",
                x_label="value",
                y_label="coordinates",
            )
        )
    return claim, figures


def equivariance(moved: dict[str, float]) -> list[Claim]:
    """Blind without positions, seeing with any scheme."""
    others = {name: gap for name, gap in moved.items() if name != "none"}
    least = min(others, key=lambda name: others[name])
    return [
        Claim(
            "without positions order means nothing",
            f"shuffled inputs give shuffled outputs, to {EXACT:g}",
            f"{moved['none']:.1e}",
            moved["none"] <= EXACT,
        ),
        Claim(
            "with positions it does",
            f"under every scheme outputs differ by at least {SEEN:g}",
            f"{others[least]:.3f} with {least}, the least",
            others[least] >= SEEN,
        ),
    ]


def _most(name: str, stated: str, found: dict[str, float], most: float) -> Claim:
    worst = max(found, key=lambda key: found[key])
    return Claim(
        name, stated, f"{found[worst]:.1e} with {worst}, the farthest", found[worst] <= most
    )


def order_table(moved: dict[str, float]) -> Table:
    """By scheme."""
    return Table(
        ["positions", "largest difference over largest output"],
        [[name, f"{gap:.2e}"] for name, gap in moved.items()],
        title="Outputs for shuffled inputs, put back in order",
    )


def order_bars(moved: dict[str, float]) -> Bars:
    """The same as bars."""
    return Bars(
        list(moved),
        list(moved.values()),
        title="What shuffling the tokens changes, by position scheme",
        unit="largest difference over largest output",
    )


def heights(found: Values) -> list[float]:
    """The values without their intervals."""
    return [one.value for one in found.values()]


def variance_table(plain: Values, scaled: Values, spread: Values, flat: Values) -> Table:
    """By width."""
    rows: Sequence[Sequence[object]] = [
        [w, *(row[w].value for row in (plain, scaled, spread, flat))] for w in WIDTHS
    ]
    columns = ["d_k", "variance of q·k", "divided by sqrt(d_k)", "entropy, bits", "entropy with it"]
    return Table(columns, rows, title=f"Products of normal vectors, softmax over {KEYS} keys")


def variance_figures(
    plain: Values, scaled: Values, spread: Values, flat: Values
) -> tuple[Lines, Lines]:
    """Against the width."""
    xs = [float(w) for w in WIDTHS]
    first = Lines(
        [("q·k", xs, heights(plain)), ("q·k / sqrt(d_k)", xs, heights(scaled))],
        x_label="width of a key, d_k",
        y_label="variance",
        title="Variance of a score",
        log_x=True,
        log_y=True,
        x_ticks=xs,
    )
    second = Lines(
        [
            ("softmax(q·k)", xs, heights(spread)),
            ("softmax(q·k / sqrt(d_k))", xs, heights(flat)),
        ],
        x_label="width of a key, d_k",
        y_label="entropy of the weights, bits",
        title="How many keys a query attends to",
        log_x=True,
        x_ticks=xs,
        levels={"all alike": math.log2(KEYS)},
    )
    return first, second
