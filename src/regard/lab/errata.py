"""What the lectures state loosely or wrongly, and by how much it differs from what is right.

A formula of a deck is computed as printed, and what is right by the package's own layers. Ten of
the seventeen statements in docs/lectures/errata.md have a number of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.sampling import Sample
from regard.evaluation.head_scores import entropy_bits
from regard.lab.experiment import Claim, Options, Result, curves
from regard.lab.invariants import distance_to_hull
from regard.lab.slides import count_pairs, read_names
from regard.layers.attention import AttentionContext, SelfAttention, attend, scaled_dot, softmax
from regard.layers.masks import Padding
from regard.layers.norms import make_norm
from regard.layers.positions import sinusoids
from regard.lectures import load_errata
from regard.look.page import Heatmap, Lines, Table
from regard.training.loop import seed_of

Array = NDArray[np.float64]

D_MODEL, N_HEADS, LENGTH, PADDED = 32, 4, 7, 12
N_TOKENS, STEPS, MASS = 8, 5, 0.9  # of the sequences that a nucleus keeps
COUNT_EPS, EPS = 0.0001, 1e-5  # of the deck's counts, and of LayerNorm, as in PyTorch
EXACT, DIFFERENT = 1e-5, 0.05  # equal in fp32, and different, relative to the largest number


def relative(a: Tensor, b: Tensor) -> float:
    """Return the largest difference over the largest number of `b`."""
    return float((a - b).abs().max() / b.abs().max())


def same(name: str, stated: str, value: float) -> Claim:
    return Claim.exact(name, f"{stated}, to {EXACT:g}", value, most=EXACT)


def differs(name: str, stated: str, value: float) -> Claim:
    stated = f"{stated}, by at least {DIFFERENT:g}"
    return Claim.exact(name, stated, value, "{:.3g}", least=DIFFERENT)


# Decoding


def zipf() -> Tensor:
    """Return probabilities of N_TOKENS tokens, (1, V): the i-th is proportional to 1 / i."""
    weights = 1 / torch.arange(1, N_TOKENS + 1, dtype=torch.float64)
    return (weights / weights.sum())[None]


def nucleus_claims() -> list[Claim]:
    """E2: the nucleus of each token, against the smallest set of sequences of the same mass."""
    p = zipf()
    kept = Sample(top_p=MASS).weights(p.log())[0][0] > 0  # in descending order, as p is
    masses = {
        sequence: math.prod(float(p[0, i]) for i in sequence)
        for sequence in product(range(N_TOKENS), repeat=STEPS)
    }
    sequences = sorted(masses, key=lambda sequence: -masses[sequence])
    reached = np.cumsum([masses[sequence] for sequence in sequences])
    by_sequence = sequences[: int(np.searchsorted(reached, MASS)) + 1]
    mass = sum(m for sequence, m in masses.items() if all(kept[i] for i in sequence))
    expected = float(p[0][kept].sum()) ** STEPS
    n_lost = sum(not all(kept[i] for i in sequence) for sequence in by_sequence)
    return [
        Claim.exact(
            "E2: top-P is a rule for each token",
            f"{STEPS} tokens with P = {MASS:g} keep {expected:.3f}, the product of their masses",
            mass,
            "{:.3f}",
            least=expected - 1e-9,
            most=expected + 1e-9,
        ),
        Claim.exact(
            "E2: a rule for sequences would keep others",
            f"some of its {len(by_sequence):,} sequences have a token that top-P excludes",
            n_lost,
            "{:,}",
            least=1,
        ),
    ]


def temperature_claims() -> list[Claim]:
    """E3: exp(π/T) against exp(z/T), both at T = 1."""
    p, uniform = zipf(), math.log2(N_TOKENS)
    own, logits, printed = (float(entropy_bits(x)) for x in (p, softmax(p.log()), softmax(p)))
    return [
        same("E3: logits at T = 1 change nothing", "the entropy stays", abs(logits - own)),
        Claim.exact(
            "E3: probabilities in place of logits are nearly uniform",
            f"entropy within 0.05 of {uniform:g} bits; the distribution itself has {own:.2f}",
            uniform - printed,
            "{:.3f} bits below",
            most=0.05,
        ),
    ]


def temperature_curves() -> Lines:
    p, temperatures = zipf(), np.geomspace(0.05, 10, 41)
    rows = {"exp(z/T), z logits": p.log(), "exp(π/T), as printed": p}
    return curves(
        temperatures,
        {
            name: [float(entropy_bits(softmax(scores / t))) for t in temperatures]
            for name, scores in rows.items()
        },
        "Entropy of a distribution at a temperature",
        ("temperature T", "entropy, bits"),
        log="x",
        levels={"uniform": math.log2(N_TOKENS), "the distribution": float(entropy_bits(p))},
    )


def count_claims() -> list[Claim]:
    """E6: bigram counts divided as the deck divides them."""
    letters, counts = count_pairs(read_names())
    rows = counts / np.sum(counts + COUNT_EPS, axis=1, keepdims=True)
    gaps = np.abs(rows.sum(1) - 1)
    return [
        Claim.exact(
            "E6: rows divided as printed do not sum to 1",
            f"none of {len(letters)} rows, and one that was not counted sums to 0",
            float(gaps.min()),
            f"{{:.1e}}, the nearest; {gaps.max():g}, the farthest",
            least=1e-12,
        ),
        Claim.exact(
            "E6: pairs that were not counted keep probability 0",
            f"at least one of {rows.size} pairs",
            float((rows == 0).sum()),
            "{:.0f} pairs",
            least=1,
        ),
    ]


# Attention


def padding_claims(layer: SelfAttention) -> list[Claim]:
    """E4: the outputs of a sequence alone, and in a batch with padding."""
    x, full = torch.randn(1, PADDED, D_MODEL), AttentionContext()
    alone = layer(x[:, :LENGTH], full)
    masked = layer(x, AttentionContext(mask=Padding(torch.tensor([LENGTH]))))[:, :LENGTH]
    plain = layer(x, full)[:, :LENGTH]
    return [
        same("E4: a mask hides padding, untrained", "outputs are equal", relative(masked, alone)),
        differs("E4: without it padding counts", "outputs differ", relative(plain, alone)),
    ]


def axis_claims(scores: Tensor, v: Tensor) -> list[Claim]:
    """E8 and E15: scores (T, S) with a softmax over keys, and over queries as printed."""
    keys, queries = softmax(scores), softmax(scores.T).T
    sums = queries.sum(1)
    corners = v.double().numpy()
    inside, outside = (
        max(distance_to_hull(y, corners) for y in (w @ v).double().numpy()) for w in (keys, queries)
    )
    spread = f"sums, from {sums.min():.2f} to {sums.max():.2f}, differ from 1"
    return [
        differs("E8: queries are not keys", "exchanged: weights differ", relative(queries.T, keys)),
        same("E15: weights over keys sum to 1", "sums", float((keys.sum(1) - 1).abs().max())),
        differs("E15: over queries they do not", spread, float((sums - 1).abs().max())),
        same("E15: over keys outputs lie in the hull of the values", "distance", inside),
        differs("E15: over queries some are outside", "distance", outside),
    ]


def axis_maps(scores: Tensor) -> list[Heatmap]:
    names = [f"{i + 1}" for i in range(len(scores))]
    rows = {"over keys: rows sum to 1": softmax(scores), "over queries": softmax(scores.T).T}
    return [
        Heatmap(
            weights.numpy(),
            names,
            names,
            title=f"Softmax {name}; queries down, keys across",
            scale="weights",
            unit="weight",
        )
        for name, weights in rows.items()
    ]


def order_claims(layer: SelfAttention) -> list[Claim]:
    """E10: which reordering changes what."""
    q, k, v = (torch.randn(1, 1, LENGTH, D_MODEL) for _ in range(3))
    x, order = torch.randn(1, LENGTH, D_MODEL), torch.arange(LENGTH).roll(2)
    y, context = attend(q, k, v), AttentionContext()
    tokens = relative(layer(x[:, order], context), layer(x, context)[:, order])
    both = relative(attend(q, k[:, :, order], v[:, :, order]), y)
    alone = relative(attend(q, k, v[:, :, order]), y)
    return [
        same("E10: rows of X in another order", "outputs have that order", tokens),
        same("E10: keys with values in another order", "outputs are equal", both),
        differs("E10: values alone in another order", "outputs differ", alone),
    ]


def heads(parts: Iterable[Tensor]) -> Tensor:
    """Return the attention (T, D) of queries, keys and values (T, D)."""
    q, k, v = (part[None, None] for part in parts)
    return attend(q, k, v)[0, 0]


def position_claims() -> list[Claim]:
    """E11: positions added before, and after, the projections."""
    x, p = torch.randn(LENGTH, D_MODEL), sinusoids(torch.arange(LENGTH), D_MODEL)

    def gap(weights: list[Tensor]) -> float:
        return relative(heads(x @ w + p for w in weights), heads((x + p) @ w for w in weights))

    learned = gap([torch.randn(D_MODEL, D_MODEL) / D_MODEL**0.5 for _ in range(3)])
    identity = gap([torch.eye(D_MODEL)] * 3)
    return [
        differs("E11: p added to q, k, v is not p added to x", "outputs differ", learned),
        same("E11: with identities as projections it is", "outputs are equal", identity),
    ]


# Formulas


def exponent_claims() -> list[Claim]:
    """E16: the fastest wave of a code of 8 numbers, by the paper and by the deck."""
    width, near = 8, torch.arange(2)
    paper, base = sinusoids(near, width), 10_000.0
    first = base ** (2 / width)  # the deck's exponents begin at 2 · 1 / d
    deck = torch.stack([(near / first).sin(), (near / first).cos()], -1)
    step, printed = (float((code[1] - code[0]).norm()) for code in (paper[:, :2], deck))
    return [
        Claim.exact(
            "E16: the fastest wave has the period 2π",
            "neighbors on its circle are 2 sin(1/2) = 0.959 apart, to 1e-6",
            abs(step - 2 * math.sin(0.5)),
            most=1e-6,
        ),
        Claim.exact(
            f"E16: with the exponent 2/{width} it is {first:g} times as slow",
            "neighbors are less than 0.11 apart",
            printed,
            "{:.3f}",
            most=0.11,
        ),
    ]


def norm_deviations(sigma: float) -> tuple[float, float]:
    """E17: return the deviation of a row of deviation `sigma` after LayerNorm, and as printed."""
    x = torch.randn(1, 4096, dtype=torch.float64)
    x = 3 + sigma * (x - x.mean()) / x.std(correction=0)
    norm = make_norm("layer", x.size(-1), EPS, True).double()
    printed = (x - x.mean()) / (x.std(correction=0) + EPS)
    return float(norm(x).detach().std(correction=0)), float(printed.std(correction=0))


def norm_claims() -> list[Claim]:
    sigma = 1e-3
    inside, outside = norm_deviations(sigma)
    expected = sigma / math.sqrt(sigma**2 + EPS)
    return [
        Claim.exact(
            "E17: ε is under the root, with the variance",
            f"deviation {sigma:g} becomes σ/√(σ² + ε) = {expected:.3f}, to {EXACT:g}",
            abs(inside - expected),
            most=EXACT,
        ),
        Claim.exact(
            "E17: outside of the root it hardly acts",
            "the same deviation becomes more than 0.9",
            outside,
            "{:.3f}",
            least=0.9,
        ),
    ]


def norm_curves() -> Lines:
    sigmas = np.geomspace(1e-6, 1, 25)
    inside, outside = zip(*(norm_deviations(float(sigma)) for sigma in sigmas), strict=True)
    return curves(
        sigmas,
        {"(x − μ)/√(σ² + ε)": inside, "(x − μ)/(σ + ε), as printed": outside},
        "Deviation of a row after LayerNorm",
        ("deviation σ before", "deviation after"),
        log="x",
    )


def errata(options: Options) -> Result:
    """Which statements of the lectures are loose or wrong, and by how much?

    Each claim begins with the number of its statement in docs/lectures/errata.md. What is right
    must agree to the precision of the computation, and what is printed must differ from it: both
    are claims.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed_of(options.seed))
        layer = SelfAttention(D_MODEL, N_HEADS)
        q, k, v = (torch.randn(1, 1, LENGTH, 3) for _ in range(3))
        scores = 3 * scaled_dot(q, k)[0, 0]  # (T, S)
        claims = [
            *nucleus_claims(),
            *temperature_claims(),
            *padding_claims(layer),
            *count_claims(),
            *axis_claims(scores, v[0, 0]),
            *order_claims(layer),
            *position_claims(),
            *exponent_claims(),
            *norm_claims(),
        ]
        norms = norm_curves()
    return Result(
        title="What the lectures state loosely",
        answer=(
            f"{len(load_errata())} of them; {len(claims)} measurements show by how much what is "
            "printed differs from what is right."
        ),
        question=errata.__doc__ or "",
        reading=(
            "Divided into logits, the temperature 1 leaves the distribution as it is; divided into "
            "probabilities, it makes the distribution uniform."
        ),
        readings=[
            "Each row is a query. Over keys, its weights sum to one.",
            "Over queries, as printed, columns sum to one, and a query's weights to anything.",
            "Rows that hardly vary are scaled up to deviation 1 by the formula as printed; with ε "
            "under the root they stay small.",
        ],
        claims=claims,
        tables=[statements()],
        figures=[temperature_curves(), *axis_maps(scores), norms],
    )


def statements() -> Table:
    rows = [[number, one.deck, one.says, one.right] for number, one in load_errata().items()]
    return Table(["", "lecture", "states", "right is"], rows, title="All statements")
