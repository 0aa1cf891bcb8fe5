"""Would more data, or a larger model, help? Loss against both on the user's file, with forecasts.

Hestness et al. 2017 (arXiv:1712.00409) and Kaplan et al. 2020 (arXiv:2001.08361): where one thing
is scarce and the others are not, the loss falls as a power of it, L(n) = E + A n^(-b). The law is
fitted to the smaller ones and asked for the largest, which it has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import Batch
from regard.lab.inputs import Stream, drawn, stream_of, windows
from regard.lab.mini_trainer import teach
from regard.lab.result import ABOVE, Claim, Mean, Options, Result
from regard.look.page import Lines, Table, Text
from regard.models.decoder import modern
from regard.models.language_model import NeuralLanguageModel
from regard.models.parameter_matching import parameters, sized
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.training.loop import seed_of

BOOTSTRAPS = 400
NEAR = 0.05  # of the loss by which a forecast may miss
LOOKS = 12  # at how well it does, while it learns
FLOORS = 60  # values of E that are tried

Losses = Mapping[int, Sequence[float]]  # by size, one for each seed
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    characters: Sequence[int]  # to learn from
    sizes: Sequence[int]  # parameters
    steps: int
    seeds: int
    length: int = 48
    batch: int = 32
    tested: int = 150


LARGE = Plan(
    characters=(2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000),
    sizes=(3_000, 6_000, 12_000, 24_000, 48_000, 96_000),
    steps=300,
    seeds=2,
)
SMALL = Plan(
    characters=(1000, 2000, 4000, 8000, 16_000),
    sizes=(3_000, 6_000, 12_000, 24_000),
    steps=60,
    seeds=1,
    length=32,
    batch=16,
    tested=60,
)


@dataclass(frozen=True)
class Law:
    """L(n) = floor + scale n^(-power)."""

    floor: float
    scale: float
    power: float

    def at(self, n: float) -> float:
        """The loss it says."""
        return self.floor + self.scale * math.pow(n, -self.power)

    def __str__(self) -> str:
        return f"{self.floor:.3f} + {self.scale:.3g} n^-{self.power:.3f}"


def fit(sizes: Sequence[int], losses: Sequence[float]) -> Law:
    """Least squares of log(L - E) on log n for each of many floors E below the least loss; the one
    whose losses are nearest. No floor is below zero, nor does a law rise.
    """
    n, y = np.log(np.asarray(sizes, dtype=np.float64)), np.asarray(losses, dtype=np.float64)
    floors = np.linspace(0.0, 0.999, FLOORS)[:, None] * y.min()  # (F, 1)
    logs, centred = np.log(y - floors), n - n.mean()  # (F, N), (N,)
    powers = np.maximum(-(logs @ centred) / (centred @ centred), 0.0)  # (F,)
    scales = np.exp(logs.mean(1) + powers * n.mean())
    said = floors + scales[:, None] * np.exp(-powers[:, None] * n)
    best = int(np.square(said - y).sum(1).argmin())
    return Law(float(floors[best, 0]), float(scales[best]), float(powers[best]))


def forecast(found: Losses, random: np.random.Generator) -> tuple[Law, Mean, tuple[float, float]]:
    """The law of all sizes but the largest, what it says of the largest (a mean whose half width
    is that of a 95% bootstrap over residuals), and the power's interval.
    """
    sizes = sorted(found)[:-1]
    means = np.array([Mean.of(found[n]).value for n in sizes])
    law = fit(sizes, means.tolist())
    said = np.array([law.at(n) for n in sizes])
    left = (means - said) * math.sqrt(len(sizes) / max(1, len(sizes) - 3))  # three were fitted
    last, powers = [], []
    for _ in range(BOOTSTRAPS):
        again = fit(sizes, (said + random.choice(left, len(left))).tolist())
        last.append(again.at(max(found)) + float(random.choice(left)))
        powers.append(again.power)
    low, high = np.quantile(last, [0.025, 0.975])
    ends = np.quantile(powers, [0.025, 0.975])
    return law, Mean(law.at(max(found)), float((high - low) / 2)), (float(ends[0]), float(ends[1]))


@cache
def shape_of(size: int, vocabulary: int, length: int) -> Any:
    """A decoder with so many parameters; looking for it takes a while."""
    return sized("transformer", size, vocabulary, n_layers=2, max_len=length)


def train(plan: Plan, stream: Stream, size: int, characters: int, seed: int) -> float:
    """Nats per character on the end of the stream, after learning from so much of its beginning, at
    the moment that did best on text between the two: little data is soon learned by heart.
    """
    vocabulary, learned = len(stream.letters), learnable(stream)
    recipe = TrainRecipe(steps=plan.steps, device="cpu", compile="off", seed=seed)
    valid = windows(stream.train[learned:], plan.length, plan.tested // 2)
    test = windows(stream.test, plan.length, plan.tested)
    kept: list[tuple[float, float]] = []

    def look(model: NeuralLanguageModel) -> None:
        with torch.no_grad():
            kept.append((nats(model.eval(), valid), nats(model, test)))

    def watch(step: int, loss: float, model: NeuralLanguageModel) -> None:
        if step % max(1, plan.steps // LOOKS) == 0:
            look(model)
            model.train()

    model = teach(
        lambda: family("transformer")(vocabulary, shape_of(size, vocabulary, plan.length)),
        recipe,
        lambda step: drawn(
            stream.train[:learned][:characters], plan.length, plan.batch, seed, step
        ),
        watch=watch,
    )
    look(model)
    return min(kept)[1]


def learnable(stream: Stream) -> int:
    """Characters that may be learned from: the rest, before the test, says when to stop."""
    return len(stream.train) - len(stream.train) // 20


def nats(model: NeuralLanguageModel, batch: Batch) -> float:
    """Per character."""
    return -float(model.score(batch.ids, batch.targets).double().mean())


def scaling(options: Options) -> Result:
    """The experiment, on the user's file or on names."""
    plan = SMALL if options.quick else LARGE
    stream = stream_of(options.file, 2 * plan.characters[0])
    most = learnable(stream)
    room = [c for c in plan.characters if c <= most]
    if len(room) < len(plan.characters):  # a small file: as many sizes, up to all of it
        room = np.geomspace(most / 16, most, 5).astype(int).tolist()
    sizes = [s for s in plan.sizes if s > 1.3 * least_size(stream, plan)]
    work = options.work(plan.seeds * (len(room) + len(sizes)))
    by_data: dict[int, list[float]] = {n: [] for n in room}
    by_size: dict[int, list[float]] = {n: [] for n in sizes}
    largest = sizes[-2] if len(sizes) > 1 else sizes[-1]
    for seed in range(options.seed, options.seed + plan.seeds):
        for n in room:
            by_data[n].append(train(plan, stream, largest, n, seed))
            work.add("scaling: data", 1)
        for n in sizes:
            by_size[n].append(train(plan, stream, n, most, seed))
            work.add("scaling: parameters", 1)
    return report(by_data, by_size, largest, most, options.seed)


def least_size(stream: Stream, plan: Plan) -> int:
    """Parameters of the narrowest decoder for this alphabet."""
    return parameters("transformer", len(stream.letters), modern(2, 2))


QUESTION = (
    "Would more text help, or a larger model? The loss on text that nobody has learned from, "
    "against the characters learned from and against the number of parameters; a power law fitted "
    "to the smaller ones forecasts the largest."
)
MADE = (
    "How it is made. The end of the file is kept for testing. For data, one model learns from "
    "more and more of the beginning; for parameters, models of growing width learn from all of it. "
    "What is reported is the moment that did best on text kept apart for that, since little data "
    "is soon learned by heart. Steps, batches and settings are the same throughout, so that a "
    "larger model is not given more time: what the curve says is for this budget. The law "
    "E + A n^(-b) is fitted by least squares to all but the largest; intervals come from "
    "resampling what it left over. With so few points "
    "E and b are hard to tell apart, and the forecast is surer than either."
)


def report(by_data: Losses, by_size: Losses, size: int, characters: int, seed: int) -> Result:
    """Tables, figures and claims."""
    random = np.random.default_rng(seed_of(seed))
    laws = {"data": forecast(by_data, random), "parameters": forecast(by_size, random)}
    found = {"data": by_data, "parameters": by_size}
    return Result(
        title="Would more data or a larger model help?",
        question=QUESTION,
        reading=(
            "Dots are trainings, the line is the law fitted to all but the last of them: where the "
            "last dot lies on it, the forecast was right; where the line flattens, more of "
            "the same gains little."
        ),
        readings=["The same for larger and larger models, all given the same steps."],
        claims=claims(found, laws),
        tables=[table(found, laws, size, characters)],
        figures=[
            figure(by_data, laws["data"][0], "characters learned from", "Loss against data"),
            figure(by_size, laws["parameters"][0], "parameters", "Loss against parameters"),
        ],
        panels=[advice(found, laws), Text(MADE)],
    )


Forecasts = Mapping[str, tuple[Law, Mean, tuple[float, float]]]


def figure(found: Losses, law: Law, label: str, title: str) -> Lines:
    """Measured and said."""
    xs = sorted(found)
    grid = np.geomspace(xs[0], 2 * xs[-1], 60)
    means = [Mean.of(found[n]).value for n in xs]
    low = [min(found[n]) for n in xs]
    high = [max(found[n]) for n in xs]
    return Lines(
        [
            ("measured", [float(x) for x in xs], means),
            ("law of all but the last", grid.tolist(), [law.at(float(x)) for x in grid]),
        ],
        x_label=label,
        y_label="nats per character",
        title=title,
        log_x=True,
        bands={"measured": (low, high)},
        dots=["measured"],
    )


def table(found: Mapping[str, Losses], laws: Forecasts, size: int, characters: int) -> Table:
    """Laws, intervals, forecasts."""
    rows: list[list[object]] = []
    for name, (law, said, ends) in laws.items():
        last = max(found[name])
        held = f"{size:,} parameters" if name == "data" else f"{characters:,} characters"
        rows.append(
            [
                name,
                held,
                str(law),
                f"[{ends[0]:.3f}, {ends[1]:.3f}]",
                last,
                str(said),
                Mean.of(found[name][last]).value,
                law.at(2.0 * last),
            ]
        )
    columns = [
        "of",
        "with",
        "law",
        "power, 95%",
        "largest",
        "forecast",
        "measured",
        "said of twice as much",
    ]
    return Table(
        columns, rows, title="Power laws fitted to all but the largest, nats per character"
    )


def advice(found: Mapping[str, Losses], laws: Forecasts) -> Text:
    """What that means, in words."""
    said = []
    for name, (law, _, _) in laws.items():
        last = max(found[name])
        gain = law.at(last) - law.at(2 * last)
        said.append(f"twice the {name} would gain about {gain:.3f} nats per character")
    return Text(f"What it says: {said[0]}; {said[1]}.")


def claims(found: Mapping[str, Losses], laws: Forecasts) -> list[Claim]:
    """More helps, and by a law."""
    made = []
    for name, (_, said, _) in laws.items():
        rows = found[name]
        sizes = sorted(rows)
        means = [Mean.of(rows[n]).value for n in sizes]
        ends = zip(rows[sizes[-1]], rows[sizes[0]], strict=True)
        made.append(
            Claim.within(
                f"more {name} help" if name != "data" else "more data helps",
                "the largest has a lower loss than the smallest",
                f"{means[0]:.3f} to {means[-1]:.3f}",
                Mean.of([last - first for last, first in ends]).interval,
                most=-ABOVE,
            )
        )
        miss = abs(said.value / means[-1] - 1)
        low, high = said.interval
        side = "inside" if low <= means[-1] <= high else "outside"
        stated = f"the law of the others is within {NEAR:.0%} of the largest's loss"
        made.append(
            Claim.within(
                f"{name}: the largest is forecast by the smaller",
                stated,
                f"{said} said, {means[-1]:.4g} found, {miss:.1%} off, {side} the interval",
                (low / means[-1] - 1, high / means[-1] - 1),
                least=-NEAR,
                most=NEAR,
            )
        )
    return made
