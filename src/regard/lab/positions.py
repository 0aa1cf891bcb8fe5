"""Positions are frequencies: the binary code, the waves, what is linear in them, and which schemes
go on beyond the length they were trained on.

Lecture 14 (002) writes positions as binary numbers, whose bits are square waves of doubling period,
and softens them to sinusoids; decks 000 and 004 ask that a code be unique, bounded, unlimited, and
that a shift be a linear map. Pair i has the frequency base^(-2i/d), i from 0 (a deck starts at 1;
the paper, Vaswani et al. 2017, section 3.5, does not). Codes are those of the models. The linear
map of a shift is fitted by least squares to even positions and tested on odd ones; that it is the
rotation the formula gives is a separate claim.

Position schemes are then trained short and tested long (Press et al. 2022, arXiv:2108.12409, figure
1, on a small scale). A small decoder learns windows of one length from text, once with each scheme,
with the same steps, batches, size and seeds, and is then given windows several times as long from
text it was not trained on; the loss is measured by the position of the character in the window. A
learned scheme has vectors for all tested positions, of which training updates only the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from regard.lab.experiment import (
    BITS_PER_NAT,
    Claim,
    Mean,
    OnProgress,
    Options,
    Result,
    TextStream,
    curves,
    random_windows,
    read_stream,
    small_decoder,
    spread_windows,
    train_model,
)
from regard.layers.positions import POSITIONS, Binary, sinusoids
from regard.look.page import Heatmap, Lines, Table
from regard.models import count_parameters
from regard.models.decoder import Decoder, DecoderConfig

D_MODEL, BASE, BASES = 64, 10_000.0, (10.0, 100.0, 10_000.0, 1_000_000.0)
BITS, SHIFT, OFFSET = 6, 7, 9
EXACT, NONLINEAR = 1e-4, 0.1  # residuals of a map that is linear, and of one that is not
HOLDS, BREAKS = 0.07, 0.14  # bits by which the loss may rise beyond the trained length, or must
RELATIVE = ("t5", "alibi")  # biases by distance, which any length has
ABSOLUTE = ("binary", "sinusoidal", "learned")  # codes that are not trained beyond the length

Codes = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the experiment, the same for all schemes."""

    steps: int
    seeds: int
    length: int = 64  # trained on
    times: int = 4  # as long is tested
    batch: int = 32
    tested: int = 64  # windows
    codes: int = 4096  # that must differ

    @property
    def ends(self) -> list[int]:
        """Ends of stretches of positions: as long as trained, then twice as far each time."""
        return [0, *(self.length << i for i in range(self.times.bit_length()))]

    def config(self, scheme: str) -> DecoderConfig:
        """Return a small decoder with that scheme, for the longest test."""
        return small_decoder(self.length * self.times, positions=scheme)


LARGE = Plan(steps=250, seeds=3)
SMALL = Plan(steps=50, seeds=1, length=32, batch=16, tested=30, codes=512)

Losses = Mapping[str, Sequence[Sequence[float]]]  # by scheme and seed: bits in each stretch


def code_claims(n: int) -> list[Claim]:
    """Return what the decks ask of codes, measured on n positions."""
    codes = sinusoidal_codes(n)
    shifted = np.abs(sinusoidal_codes(n + SHIFT)[SHIFT:] - codes @ shift_map(SHIFT).T).max()
    similarities = [codes[p] @ codes[p + OFFSET] for p in range(0, n - OFFSET, 31)]
    nearest, nearest_binary = pdist(codes).min(), pdist(binary_codes(n)).min()
    periods = [period(wave) == 2 << j for j, wave in enumerate(binary_codes(1 << BITS).T)]
    return [
        Claim(
            "a bit is a square wave",
            "bit j has the period 2^(j + 1), every one",
            f"{sum(periods)} of {len(periods)}",
            all(periods),
        ),
        Claim.exact(
            "a shift of sinusoids is a linear map",
            f"M code(p) is code(p + {SHIFT}) to {EXACT:g} for {n:,} positions",
            shifted,
            most=EXACT,
        ),
        Claim.exact(
            "least squares finds that map",
            f"residual on positions it was not fitted to at most {EXACT:g}",
            shift_residual(codes[:512], SHIFT),
            most=EXACT,
        ),
        Claim.exact(
            "a shift of binary codes is not",
            f"the same residual at least {NONLINEAR:g}",
            shift_residual(binary_codes(512), SHIFT),
            "{:.3f}",
            least=NONLINEAR,
        ),
        Claim.exact(
            "sinusoids have one length",
            f"sqrt(d / 2) to {EXACT:g}",
            np.abs(np.linalg.norm(codes, axis=1) - math.sqrt(D_MODEL / 2)).max(),
            "{:.1e}, the farthest",
            most=EXACT,
        ),
        Claim.exact(
            "likeness depends on the offset alone",
            f"the dot product at offset {OFFSET} changes by at most {EXACT:g} over all positions",
            np.abs(np.subtract(similarities, similarities[0])).max(),
            most=EXACT,
        ),
        Claim(
            "every position is told apart",
            f"of {n:,}: codes at least 0.1 apart, binary ones at least 1",
            f"{nearest:.3f} and {nearest_binary:.3f}",
            nearest >= 0.1 and nearest_binary >= 1,
        ),
    ]


def extrapolation_claims(losses: Losses) -> list[Claim]:
    rises = {name: Mean.of([row[-1] - row[0] for row in seeds]) for name, seeds in losses.items()}
    stated = "loss in the farthest stretch higher than in the first by at"
    claims = []
    for name in (*RELATIVE, *ABSOLUTE, "rotary"):
        what, bound = "breaks beyond the length trained on", f"least {BREAKS}"
        least, most = BREAKS, math.inf
        if name in RELATIVE:
            what, bound = "holds beyond the length trained on", f"most {HOLDS}"
            least, most = -math.inf, HOLDS
        text = f"{stated} {bound} bits"
        claims.append(Claim.within(f"{name} {what}", text, rises[name], least=least, most=most))
    return claims


def sinusoidal_codes(n: int, d_model: int = D_MODEL, base: float = BASE) -> Codes:
    """Return the models' sinusoids (N, D) of positions 0 … N - 1."""
    return np.asarray(sinusoids(torch.arange(n), d_model, base).double().numpy())


def binary_codes(n: int) -> Codes:
    """Return the models' binary code (N, bits), -1 and 1."""
    scheme = Binary(D_MODEL, n)
    code = scheme.add(torch.zeros(1, n, D_MODEL), range(n))[0, :, : scheme.bits]
    return np.asarray(code.double().numpy())


def shift_map(shift: int, d_model: int = D_MODEL, base: float = BASE) -> Codes:
    """Return the matrix (D, D) with code(p + shift) = M code(p), a rotation of each pair."""
    matrix = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        angle = shift * base ** (-i / d_model)
        cosine, sine = math.cos(angle), math.sin(angle)
        matrix[i : i + 2, i : i + 2] = [[cosine, sine], [-sine, cosine]]
    return matrix


def shift_residual(codes: Codes, shift: int) -> float:
    """Return how far the best linear map, fitted to even positions, misses the shifted codes of odd
    ones: root mean square over that of the codes.
    """
    before, after = codes[: len(codes) - shift], codes[shift:]
    matrix, *_ = np.linalg.lstsq(before[::2], after[::2], rcond=None)
    errors = before[1::2] @ matrix - after[1::2]
    return float(np.sqrt(np.mean(errors**2) / np.mean(after[1::2] ** 2)))


def period(wave: NDArray[np.float64]) -> float:
    power = np.abs(np.fft.rfft(wave - wave.mean())) ** 2
    return float(len(wave) / max(1, int(power.argmax())))


def measure(plan: Plan, stream: TextStream, options: Options) -> Losses:
    """Train each scheme on short windows and test it on long ones."""
    tokens = plan.steps * plan.batch * plan.length
    progress = options.progress(len(POSITIONS) * plan.seeds * tokens)
    losses: dict[str, list[list[float]]] = {name: [] for name in POSITIONS}
    for seed in options.seeds(plan.seeds):
        for name in POSITIONS:
            on_progress = partial(progress.add, f"positions: {name}")
            learn = partial(extrapolate, name, plan, stream, seed, on_progress)
            key = f"positions {name} {seed}"
            losses[name].append(options.part(key, plan, list[float], learn))
    return losses


def extrapolate(
    name: str, plan: Plan, stream: TextStream, seed: int, on_progress: OnProgress
) -> list[float]:
    """Return the loss of a scheme in each part of long windows, trained on short ones."""
    model = train_model(
        partial(Decoder, len(stream.letters), plan.config(name)),
        partial(random_windows, stream.train, plan.length, plan.batch, seed),
        plan.steps,
        seed,
        on_progress=on_progress,
    )
    test = spread_windows(stream.test, plan.length * plan.times, plan.tested)
    chunks = zip(test.ids.split(8), test.targets.split(8), strict=True)
    with torch.no_grad():
        scores = torch.cat([model.score(ids, targets) for ids, targets in chunks])
    bits = -scores.double().mean(0).numpy() * BITS_PER_NAT  # (T,)
    return [float(bits[a:b].mean()) for a, b in pairwise(plan.ends)]


def positions(options: Options) -> Result:
    """Run the experiment; the text is the user's, or names."""
    plan = SMALL if options.quick else LARGE
    stream = read_stream(options.file, 40 * plan.length * plan.times)
    losses = measure(plan, stream, options)
    return Result(
        title="Positions are frequencies",
        answer=answer(plan, losses),
        question=__doc__ or "",
        reading=(
            "Each line is a scheme: where it rises to the right, positions beyond those of "
            "training hurt its predictions."
        ),
        readings=[
            "Two positions are the more similar the nearer they are; with a larger base the "
            "similarity falls more slowly.",
            "Each row is a position, each column a bit, which flips half as often as the one on "
            "its left.",
            "Each row is a position, each column a wave, slower to the right: smooth bits.",
        ],
        claims=[*code_claims(plan.codes), *extrapolation_claims(losses)],
        tables=[
            bits_table(),
            code_table(plan.codes),
            loss_table(plan, losses, len(stream.letters)),
        ],
        figures=[loss_curves(plan, losses), similarity_curves(), *code_maps()],
        panels=[
            code_map(
                shift_map(SHIFT, 16),
                wave_names(16),
                wave_names(16),
                f"The linear map that shifts by {SHIFT} positions, 16 wide",
                "entry",
            )
        ],
    )


def answer(plan: Plan, losses: Losses) -> str:
    rises = {
        name: float(np.mean([row[-1] - row[0] for row in rows])) for name, rows in losses.items()
    }
    order = ", ".join(
        f"{name} {rises[name]:+.2f}" for name in sorted(rises, key=lambda name: rises[name])
    )
    return (
        "Yes, bits are square waves and sinusoids soft ones. Trained on "
        f"{plan.length} positions and read at {plan.times} times as many, the loss changes by "
        f"(bits per character): {order}."
    )


def bits_table() -> Table:
    """Return each bit's period as defined and as measured by the Fourier transform."""
    waves = binary_codes(1 << BITS).T
    rows = [[f"bit {j}", 2 << j, period(wave)] for j, wave in enumerate(waves)]
    return Table(["", "period, 2^(j + 1)", "period measured"], rows, title="Bits are frequencies")


def code_table(n: int) -> Table:
    codes = {
        "sinusoidal": sinusoidal_codes(n),
        "binary": binary_codes(n),
        "random, as learned ones start": np.random.default_rng(0).standard_normal((n, D_MODEL)),
    }
    rows = [
        [
            name,
            shift_residual(code[:512], SHIFT),
            float(pdist(code).min()),
            float(np.ptp(np.linalg.norm(code, axis=1))),
        ]
        for name, code in codes.items()
    ]
    columns = ["code", f"residual of a linear map for a shift of {SHIFT}"]
    columns += [f"least distance of two of {n:,}", "range of lengths"]
    return Table(columns, rows, title="Properties of position codes")


def loss_table(plan: Plan, losses: Losses, vocab_size: int) -> Table:
    rows = []
    for name, seeds in losses.items():
        size = count_parameters("transformer", vocab_size, plan.config(name))
        rows.append([name, size, *(str(Mean.of(column)) for column in zip(*seeds, strict=True))])
    columns = ["positions", "parameters", *(f"{a} to {b}" for a, b in pairwise(plan.ends))]
    title = f"Bits per character by position in the window, {plan.length} trained on"
    return Table(columns, rows, title=title)


def loss_curves(plan: Plan, losses: Losses) -> Lines:
    """Return the loss against the position, at the geometric middle of each stretch."""
    means = {
        name: [Mean.of(column) for column in zip(*seeds, strict=True)]
        for name, seeds in losses.items()
    }
    bands = {}
    if plan.seeds > 1:
        bands = {
            name: ([m.interval.low for m in row], [m.interval.high for m in row])
            for name, row in means.items()
        }
    lines = curves(
        [math.sqrt(max(low, 1) * high) for low, high in pairwise(plan.ends)],
        {name: [mean.value for mean in row] for name, row in means.items()},
        "Trained short, tested long",
        (f"position in the window, {plan.length} trained on", "bits per character"),
        log="x",
        bands=bands,
    )
    return replace(lines, x_ticks=[max(end, 1) for end in plan.ends])  # of the stretches


def similarity_curves() -> Lines:
    rows = {}
    for base in BASES:
        codes = sinusoidal_codes(129, base=base)
        rows[f"base {base:,.0f}"] = codes @ codes[0] / (codes[0] @ codes[0])
    return curves(
        range(129),
        rows,
        "Similarity of two positions",
        ("offset between two positions", "dot product of their codes, relative"),
        levels={"nothing in common": 0.0},
    )


def code_maps() -> list[Heatmap]:
    n = 1 << BITS
    rows, bits = list(map(str, range(n))), [f"bit {j}" for j in range(BITS)]
    title = f"Sinusoids, positions down, base {BASE:g}, {D_MODEL} wide"
    return [
        code_map(binary_codes(n), rows, bits, "Binary code, positions down", "code"),
        code_map(sinusoidal_codes(n), rows, wave_names(D_MODEL), title, "code"),
    ]


def code_map(
    values: Codes, rows: Sequence[str], columns: Sequence[str], title: str, unit: str
) -> Heatmap:
    return Heatmap(values, rows, columns, title=title, scale="diverging", unit=unit)


def wave_names(n: int) -> list[str]:
    return [f"{'sin' if i % 2 == 0 else 'cos'} {i // 2}" for i in range(n)]
