"""Would more data, or a larger model, help? Loss against both on the user's file, with forecasts.

Hestness et al. 2017 (arXiv:1712.00409) and Kaplan et al. 2020 (arXiv:2001.08361): where one
resource is scarce and the others are not, the loss falls as a power of it, L(n) = E + A n^(-b). The
law is fitted to the smaller sizes and extrapolated to the largest, which it was not fitted to.

The end of the file is reserved for testing. For data, one model learns from more and more of the
start; for parameters, models of growing width learn from all of it. The loss reported is that at
the step with the best validation loss, since little data is soon memorized. Steps, batches and
settings are the same throughout, so that a larger model gets no more time: the curve holds for this
budget. The law is fitted by least squares; intervals come from resampling its residuals. With so
few points E and b are hard to separate, and the forecast is more certain than either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from regard.lab.experiment import (
    ABOVE,
    Claim,
    Interval,
    Mean,
    Options,
    Result,
    SizedModel,
    TextStream,
    generator,
    mean_loss,
    quantile_interval,
    random_windows,
    read_stream,
    spread_windows,
    train_model,
)
from regard.look.page import Lines, Table, Text
from regard.models import count_parameters
from regard.models.decoder import modern
from regard.models.language_model import NeuralLanguageModel

RESAMPLES = 400  # of the bootstrap
TOLERANCE = 0.05  # of the loss by which a forecast may miss
EVALUATIONS = 12  # during a training
FLOORS = 60  # values of E that are tried

Losses = Mapping[int, Sequence[float]]  # by size, one for each seed


@dataclass(frozen=True)
class Law:
    """L(n) = floor + scale n^(-power)."""

    floor: float
    scale: float
    power: float

    def at(self, n: float) -> float:
        return self.floor + self.scale * math.pow(n, -self.power)

    def __str__(self) -> str:
        return f"{self.floor:.3f} + {self.scale:.3g} n^-{self.power:.3f}"


@dataclass(frozen=True)
class Forecast:
    """Losses by size, the law fitted to all but the largest, the interval of its power, and its
    forecast of the largest.
    """

    losses: Losses
    law: Law
    power: Interval
    largest: Mean

    @property
    def sizes(self) -> list[int]:
        return sorted(self.losses)

    @property
    def means(self) -> list[float]:
        return [Mean.of(self.losses[n]).value for n in self.sizes]


def claims(forecasts: Mapping[str, Forecast]) -> list[Claim]:
    claims = []
    for name, forecast in forecasts.items():
        sizes, means = forecast.sizes, forecast.means
        ends = zip(forecast.losses[sizes[-1]], forecast.losses[sizes[0]], strict=True)
        low, high = forecast.largest.interval
        error = abs(forecast.largest.value / means[-1] - 1)
        where = "inside" if low <= means[-1] <= high else "outside"
        claims += [
            Claim.within(
                f"more {name} help" if name != "data" else "more data helps",
                "the largest has a lower loss than the smallest",
                Mean.of([last - first for last, first in ends]),
                f"{means[0]:.3f} to {means[-1]:.3f}",
                most=-ABOVE,
            ),
            Claim.within(
                f"{name}: the largest is forecast by the smaller",
                f"the law of the others is within {TOLERANCE:.0%} of the largest's loss",
                Interval(low / means[-1] - 1, high / means[-1] - 1),
                f"{forecast.largest} forecast, {means[-1]:.4g} measured, {error:.1%} off, "
                f"{where} the interval",
                least=-TOLERANCE,
                most=TOLERANCE,
            ),
        ]
    return claims


@dataclass(frozen=True, kw_only=True)
class Plan:
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


def fit_law(sizes: Sequence[int], losses: Sequence[float]) -> Law:
    """Return the best law: least squares of log(L - E) on log n for each of many floors E below the
    least loss. No floor is below zero, nor does a law rise.
    """
    n, y = np.log(np.asarray(sizes, dtype=np.float64)), np.asarray(losses, dtype=np.float64)
    floors = np.linspace(0.0, 0.999, FLOORS)[:, None] * y.min()  # (F, 1)
    logs, centered = np.log(y - floors), n - n.mean()  # (F, N), (N,)
    powers = np.maximum(-(logs @ centered) / (centered @ centered), 0.0)  # (F,)
    scales = np.exp(logs.mean(1) + powers * n.mean())
    predictions = floors + scales[:, None] * np.exp(-powers[:, None] * n)
    best = int(np.square(predictions - y).sum(1).argmin())
    return Law(float(floors[best, 0]), float(scales[best]), float(powers[best]))


def forecast_largest(losses: Losses, random: np.random.Generator) -> Forecast:
    """Fit the law of all sizes but the largest; intervals are of a bootstrap over residuals."""
    *sizes, largest = sorted(losses)
    means = np.array([Mean.of(losses[n]).value for n in sizes])
    law = fit_law(sizes, means.tolist())
    fitted_losses = np.array([law.at(n) for n in sizes])
    freedom = max(1, len(sizes) - 3)  # three parameters were fitted
    residuals = (means - fitted_losses) * math.sqrt(len(sizes) / freedom)
    values, powers = [], []
    for _ in range(RESAMPLES):
        resampled = fitted_losses + random.choice(residuals, len(residuals))
        other = fit_law(sizes, resampled.tolist())
        values.append(other.at(largest) + float(random.choice(residuals)))
        powers.append(other.power)
    low, high = quantile_interval(values)
    return Forecast(losses, law, quantile_interval(powers), Mean(law.at(largest), (high - low) / 2))


def train(plan: Plan, stream: TextStream, size: int, characters: int, seed: int) -> float:
    """Return bits per character on the end of the stream, after learning from so much of its start,
    at the step with the best validation loss: a model soon memorizes little data.
    """
    n_train = n_learnable(stream)
    validation = spread_windows(stream.train[n_train:], plan.length, plan.tested // 2)
    test = spread_windows(stream.test, plan.length, plan.tested)
    losses: list[tuple[float, float]] = []

    def evaluate(model: NeuralLanguageModel) -> None:
        losses.append((mean_loss(model.eval(), validation), mean_loss(model, test)))

    def watch(step: int, nats: float, model: NeuralLanguageModel) -> None:
        if step % max(1, plan.steps // EVALUATIONS) == 0:
            evaluate(model)
            model.train()

    model = train_model(
        SizedModel(family="transformer").builder(size, len(stream.letters), plan.length),
        partial(random_windows, stream.train[:n_train][:characters], plan.length, plan.batch, seed),
        plan.steps,
        seed,
        watch=watch,
    )
    evaluate(model)
    return min(losses)[1]


def n_learnable(stream: TextStream) -> int:
    """Return how many characters are trained on; the rest before the test is for validation."""
    return len(stream.train) - len(stream.train) // 20


def scaling(options: Options) -> Result:
    """Run the experiment on the user's file or on names."""
    plan = SMALL if options.quick else LARGE
    stream = read_stream(options.file, 2 * plan.characters[0])
    n_train = n_learnable(stream)
    amounts = [n for n in plan.characters if n <= n_train]
    if len(amounts) < len(plan.characters):  # a small file: five amounts, up to all of it
        amounts = np.geomspace(n_train / 16, n_train, 5).astype(int).tolist()
    narrowest = count_parameters("transformer", len(stream.letters), modern(2, 2))
    sizes = [size for size in plan.sizes if size > 1.3 * narrowest]
    progress = options.progress(plan.seeds * (len(amounts) + len(sizes)))
    by_data: dict[int, list[float]] = {n: [] for n in amounts}
    by_size: dict[int, list[float]] = {n: [] for n in sizes}
    size = sizes[-2] if len(sizes) > 1 else sizes[-1]

    def part(size: int, amount: int, seed: int) -> float:
        name = f"scaling {size} {amount} {seed}"
        return options.part(name, plan, float, partial(train, plan, stream, size, amount, seed))

    for seed in options.seeds(plan.seeds):
        for n in amounts:
            by_data[n].append(part(size, n, seed))
            progress.add("scaling: data", 1)
        for n in sizes:
            by_size[n].append(part(n, n_train, seed))
            progress.add("scaling: parameters", 1)
    random = generator(options.seed)
    forecasts = {
        "data": forecast_largest(by_data, random),
        "parameters": forecast_largest(by_size, random),
    }
    return report(forecasts, f"{size:,} parameters", f"{n_train:,} characters")


def report(forecasts: Mapping[str, Forecast], size: str, amount: str) -> Result:
    """Return tables, figures and claims; `size` and `amount` are what is held fixed."""
    data, parameters = forecasts["data"], forecasts["parameters"]
    return Result(
        title="Would more data or a larger model help?",
        answer=(
            "{}: {:.3f} bits with {:,} characters, {:.3f} with {:,}; {:.3f} with {:,} parameters, "
            "{:.3f} with {:,}.".format(
                "Both help" if falls(data) and falls(parameters) else "Not both",
                *ends(data),
                *ends(parameters),
            )
        ),
        question=__doc__ or "",
        reading=(
            "Dots are trainings, the line is the law fitted to all but the last of them: where the "
            "last dot lies on it, the forecast was right; where the line flattens, more of "
            "the same gains little."
        ),
        readings=["The same for larger and larger models, all trained for the same steps."],
        claims=claims(forecasts),
        tables=[table(forecasts, (size, amount))],
        figures=[
            law_curves(data, "characters learned from", "Loss against data"),
            law_curves(parameters, "parameters", "Loss against parameters"),
        ],
        panels=[advice(forecasts)],
    )


def falls(forecast: Forecast) -> bool:
    return forecast.means[-1] < forecast.means[0]


def ends(forecast: Forecast) -> tuple[float, int, float, int]:
    """Return the loss of the smallest, its size, and both of the largest."""
    means, sizes = forecast.means, forecast.sizes
    return means[0], sizes[0], means[-1], sizes[-1]


def law_curves(forecast: Forecast, label: str, title: str) -> Lines:
    sizes, losses = forecast.sizes, forecast.losses
    grid = np.geomspace(sizes[0], 2 * sizes[-1], 60).tolist()
    band = [min(losses[n]) for n in sizes], [max(losses[n]) for n in sizes]
    return Lines(
        [
            ("measured", [float(n) for n in sizes], forecast.means),
            ("law of all but the last", grid, [forecast.law.at(n) for n in grid]),
        ],
        x_label=label,
        y_label="bits per character",
        title=title,
        log_x=True,
        bands={"measured": band},
        dots=["measured"],
    )


def table(forecasts: Mapping[str, Forecast], fixed: Sequence[str]) -> Table:
    rows: list[list[object]] = []
    for (name, forecast), other in zip(forecasts.items(), fixed, strict=True):
        low, high = forecast.power
        largest, law = forecast.sizes[-1], forecast.law
        row = [name, other, str(law), f"[{low:.3f}, {high:.3f}]", largest, str(forecast.largest)]
        rows.append([*row, forecast.means[-1], law.at(2.0 * largest)])
    columns = ["of", "with", "law", "power, 95%", "largest", "forecast", "measured"]
    title = "Power laws fitted to all but the largest, bits per character"
    return Table([*columns, "forecast for twice as much"], rows, title=title)


def advice(forecasts: Mapping[str, Forecast]) -> Text:
    gains = []
    for name, forecast in forecasts.items():
        largest = forecast.sizes[-1]
        gain = forecast.law.at(largest) - forecast.law.at(2 * largest)
        gains.append(f"twice the {name} would gain about {gain:.3f} bits per character")
    return Text(f"In short: {gains[0]}; {gains[1]}.")
