"""Positions are frequencies: the binary code, the waves, what is linear in them, and which schemes
go on beyond the length they were trained on.

Lecture 14 (002) writes positions as binary numbers, whose bits are square waves of doubling period,
and softens them to sinusoids; decks 000 and 004 ask that a code be unique, bounded, unlimited, and
that a shift be a linear map. Pair i has the frequency base^(-2i/d), i from 0 (a deck begins at 1;
the paper, Vaswani et al. 2017, section 3.5, does not).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.lab import extrapolation
from regard.lab.extrapolation import Course
from regard.lab.inputs import stream_of
from regard.lab.result import Claim, Options, Result
from regard.layers.positions import Binary, sinusoids
from regard.look.page import Heatmap, Lines, Table, Text

D_MODEL, BASE, BASES = 64, 10_000.0, (10.0, 100.0, 10_000.0, 1_000_000.0)
BITS, SHIFT = 6, 7
EXACT, FAR = 1e-4, 0.1  # residuals of a map that is linear, and of one that is not

Codes = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    course: Course
    unique: int  # positions that must be told apart


LARGE = Plan(course=Course(steps=250, seeds=3), unique=4096)
SMALL = Plan(course=Course(steps=50, seeds=1, length=32, batch=16, tested=30), unique=512)


def waves(many: int, d_model: int = D_MODEL, base: float = BASE) -> Codes:
    """(N, D): the model's own sinusoids of positions 0 … N - 1."""
    return np.asarray(sinusoids(torch.arange(many), d_model, base).double().numpy())


def bits(many: int) -> Codes:
    """(N, bits): the model's own binary code, -1 and 1."""
    scheme = Binary(D_MODEL, many)
    code = scheme.add(torch.zeros(1, many, D_MODEL), range(many))[0, :, : scheme.bits]
    return np.asarray(code.double().numpy())


def shift_map(shift: int, d_model: int = D_MODEL, base: float = BASE) -> Codes:
    """(D, D): the matrix M with code(p + shift) = M code(p), a rotation of each pair."""
    made = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        angle = shift * base ** (-i / d_model)
        cosine, sine = math.cos(angle), math.sin(angle)
        made[i : i + 2, i : i + 2] = [[cosine, sine], [-sine, cosine]]
    return made


def residual(codes: Codes, shift: int) -> float:
    """How far the best linear map, found on even positions, misses the shifted codes of odd ones:
    root mean square over that of the codes.
    """
    many = len(codes) - shift
    before, after = codes[:many], codes[shift:]
    found, *_ = np.linalg.lstsq(before[::2], after[::2], rcond=None)
    miss = before[1::2] @ found - after[1::2]
    return float(np.sqrt(np.mean(miss**2) / np.mean(after[1::2] ** 2)))


def nearest(codes: Codes) -> float:
    """The least distance between the codes of two different positions."""
    least = math.inf
    squares = (codes**2).sum(1)
    for low in range(0, len(codes), 512):
        part = codes[low : low + 512]
        gaps = squares[low : low + 512, None] + squares - 2 * part @ codes.T
        gaps[np.arange(len(part)), low + np.arange(len(part))] = np.inf
        least = min(least, float(gaps.min()))
    return math.sqrt(max(least, 0.0))


def positions(options: Options) -> Result:
    """The experiment; text to learn from is the user's, or names."""
    plan = SMALL if options.quick else LARGE
    course = plan.course
    stream = stream_of(options.file, 40 * course.length * course.times)
    found = extrapolation.measure(course, stream, options)
    return Result(
        title="Positions are frequencies",
        question=QUESTION,
        reading=(
            "Each line is a scheme: where it rises to the right, places that training never met "
            "confuse it."
        ),
        readings=[
            "Two positions are the more alike the nearer they are; a larger base makes likeness "
            "fall more slowly.",
            "Each row is a position, each column a bit, which flips half as often as the one on "
            "its left.",
            "Each row is a position, each column a wave, slower to the right: smooth bits.",
        ],
        claims=[*claims(plan), *extrapolation.claims(found)],
        tables=[
            bits_table(),
            properties(plan),
            extrapolation.table(course, found, len(stream.letters)),
        ],
        figures=[extrapolation.figure(course, found), alike(), *code_maps()],
        panels=[map_figure(), Text(MADE)],
    )


QUESTION = (
    "A position can be written as a binary number, whose bits are square waves, or as sines and "
    "cosines of falling frequency. Is each position told apart, is a shift a linear map of the "
    "code, does likeness fall with distance? And once trained on short texts, which ways of "
    "putting positions in still work on long ones?"
)
MADE = (
    "How it is made. Codes are those of the models. The linear map of a shift is found by least "
    "squares on even positions and judged on odd ones; that it is the rotation "
    "the formula gives is a claim of its own. For extrapolation a small decoder learns windows of "
    "one length from text, once with each scheme, with the same steps, batches, size and seeds, "
    "and is then given windows several times as long from text it has not seen; the loss is "
    "measured by the place of the character in the window. A learned scheme has vectors for all "
    "places tested, of which training touches only the first."
)


def bits_table() -> Table:
    """Each bit, its period as defined and as measured by the Fourier transform."""
    codes = bits(1 << BITS)
    rows = [[f"bit {j}", 2 << j, period(codes[:, j])] for j in range(codes.shape[1])]
    return Table(["", "period, 2^(j + 1)", "period measured"], rows, title="Bits are frequencies")


def period(wave: NDArray[np.float64]) -> float:
    """The period with the most power, in positions."""
    power = np.abs(np.fft.rfft(wave - wave.mean())) ** 2
    return float(len(wave) / max(1, int(power.argmax())))


def code_maps() -> list[Heatmap]:
    """The binary code and the waves."""
    many = 1 << BITS
    binary, wave = bits(many), waves(many)
    names = [str(p) for p in range(many)]
    return [
        Heatmap(
            binary,
            names,
            [f"bit {j}" for j in range(binary.shape[1])],
            title="Binary code, positions down",
            scale="diverging",
            unit="code",
        ),
        Heatmap(
            wave,
            names,
            [f"{'sin' if i % 2 == 0 else 'cos'} {i // 2}" for i in range(D_MODEL)],
            title=f"Sinusoids, positions down, base {BASE:g}, {D_MODEL} wide",
            scale="diverging",
            unit="code",
        ),
    ]


def alike() -> Lines:
    """The dot product of two codes against their offset, for several bases."""
    offsets = np.arange(129)
    series = []
    for base in BASES:
        codes = waves(129, base=base)
        values = codes @ codes[0] / (codes[0] @ codes[0])
        series.append((f"base {base:,.0f}", offsets.astype(float).tolist(), values.tolist()))
    return Lines(
        series,
        x_label="offset between two positions",
        y_label="dot product of their codes, relative",
        title="How alike two positions are",
        levels={"nothing in common": 0.0},
    )


def map_figure() -> Heatmap:
    """The linear map of a shift."""
    names = [f"{'sin' if i % 2 == 0 else 'cos'} {i // 2}" for i in range(16)]
    return Heatmap(
        shift_map(SHIFT, 16),
        names,
        names,
        title=f"The linear map that shifts by {SHIFT} positions, 16 wide",
        scale="diverging",
        unit="entry",
    )


def properties(plan: Plan) -> Table:
    """What is asked of a code, of three of them."""
    random = np.random.default_rng(0).standard_normal((plan.unique, D_MODEL))
    made = {
        "sinusoidal": waves(plan.unique),
        "binary": bits(plan.unique),
        "random, as learned ones begin": random,
    }
    rows = [
        [
            name,
            residual(codes[:512], SHIFT),
            nearest(codes),
            float(np.ptp(np.linalg.norm(codes, axis=1))),
        ]
        for name, codes in made.items()
    ]
    columns = [
        "code",
        f"residual of a linear map for a shift of {SHIFT}",
        f"least distance of two of {plan.unique:,}",
        "spread of lengths",
    ]
    return Table(columns, rows, title="What is asked of a code of positions")


def claims(plan: Plan) -> list[Claim]:
    """What the decks ask of codes, measured."""
    codes, many = waves(plan.unique), plan.unique
    shifted = float(np.abs(waves(many + SHIFT)[SHIFT:] - codes @ shift_map(SHIFT).T).max())
    lengths = np.linalg.norm(codes, axis=1)
    off = float(np.abs(lengths - math.sqrt(D_MODEL / 2)).max())
    close, binary = nearest(codes), nearest(bits(many))
    straight, bent = residual(codes[:512], SHIFT), residual(bits(512), SHIFT)
    periods = [period(bits(1 << BITS)[:, j]) == 2 << j for j in range(BITS)]
    relation = waves(many)
    gaps = [
        float((relation[p] @ relation[p + 9]) - relation[0] @ relation[9])
        for p in range(0, many - 9, 31)
    ]
    drift = max(map(abs, gaps))
    return [
        Claim(
            "a bit is a square wave",
            "bit j has the period 2^(j + 1), every one",
            f"{sum(periods)} of {len(periods)}",
            all(periods),
        ),
        Claim(
            "a shift of sinusoids is a linear map",
            f"M code(p) is code(p + {SHIFT}) to {EXACT:g} for {many:,} positions",
            f"{shifted:.1e}",
            shifted <= EXACT,
        ),
        Claim(
            "least squares finds that map",
            f"residual on positions it was not found on at most {EXACT:g}",
            f"{straight:.1e}",
            straight <= EXACT,
        ),
        Claim(
            "a shift of binary codes is not",
            f"the same residual at least {FAR:g}",
            f"{bent:.3f}",
            bent >= FAR,
        ),
        Claim(
            "sinusoids have one length",
            f"sqrt(d / 2) to {EXACT:g}",
            f"{off:.1e}, the farthest",
            off <= EXACT,
        ),
        Claim(
            "likeness depends on the offset alone",
            f"the dot product at offset 9 changes by at most {EXACT:g} over all positions",
            f"{drift:.1e}",
            drift <= EXACT,
        ),
        Claim(
            "every position is told apart",
            f"of {many:,}: codes at least 0.1 apart, binary ones at least 1",
            f"{close:.3f} and {binary:.3f}",
            close >= 0.1 and binary >= 1,
        ),
    ]
