"""Position schemes trained short and tested long, at equal budget (Press et al. 2022,
arXiv:2108.12409, figure 1, on a small scale).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard.lab.inputs import Stream, drawn, windows
from regard.lab.mini_trainer import practise
from regard.lab.result import Claim, Mean, Options
from regard.layers.positions import POSITIONS
from regard.look.page import Lines, Table
from regard.models.decoder import DecoderConfig
from regard.models.parameter_matching import parameters
from regard.recipe import TrainRecipe

HOLDS, BREAKS = 0.05, 0.1  # nats by which the loss may rise beyond the length trained on, or must
RELATIVE = ("t5", "alibi")  # biases by distance, which any length has
ABSOLUTE = ("binary", "sinusoidal", "learned")  # codes that nothing trained beyond

Losses = Mapping[str, Sequence[Sequence[float]]]  # by scheme and seed: nats in each stretch


@dataclass(frozen=True, kw_only=True)
class Course:
    """The budget, the same for all schemes."""

    steps: int
    seeds: int
    length: int = 64  # trained on
    times: int = 4  # as long is tested
    batch: int = 32
    tested: int = 64  # windows

    @property
    def ends(self) -> list[int]:
        """Stretches of positions: as long as trained, then twice as far each time."""
        return [0, *(self.length << i for i in range(self.times.bit_length()))]

    def config(self, scheme: str) -> DecoderConfig:
        """A small decoder with that scheme, and room for the longest test."""
        return DecoderConfig(
            n_layers=2,
            d_model=64,
            n_heads=4,
            n_kv_heads=4,
            d_head=16,
            d_ff=128,
            max_len=self.length * self.times,
            positions=scheme,
        )


def measure(course: Course, stream: Stream, options: Options) -> Losses:
    """Each scheme learns short windows and is asked about long ones."""
    work = options.work(len(POSITIONS) * course.seeds * course.steps)
    longest, vocabulary = course.length * course.times, len(stream.letters)
    test = windows(stream.test, longest, course.tested)
    found: dict[str, list[list[float]]] = {name: [] for name in POSITIONS}
    for seed in range(options.seed, options.seed + course.seeds):
        for name in POSITIONS:
            recipe = TrainRecipe(steps=course.steps, device="cpu", compile="off", seed=seed)
            model = practise(
                "transformer",
                vocabulary,
                course.config(name),
                recipe,
                lambda step, s=seed: drawn(stream.train, course.length, course.batch, s, step),  # type: ignore[misc]
                lambda batch, n=name: work.add(f"positions: {n}", 1),  # type: ignore[misc]
            )
            with torch.no_grad():
                parts = [
                    model.score(ids, targets)
                    for ids, targets in zip(test.ids.split(8), test.targets.split(8), strict=True)
                ]
            losses = -torch.cat(parts).double().mean(0).numpy()  # (T,)
            cuts = zip(course.ends, course.ends[1:], strict=False)
            found[name].append([float(losses[low:high].mean()) for low, high in cuts])
    return found


def names_of(course: Course) -> list[str]:
    """The stretches in words."""
    return [f"{low} to {high}" for low, high in zip(course.ends, course.ends[1:], strict=False)]


def table(course: Course, found: Losses, vocabulary: int) -> Table:
    """Schemes down, stretches across."""
    rows = []
    for name, seeds in found.items():
        means = [str(Mean.of([row[i] for row in seeds])) for i in range(len(seeds[0]))]
        size = parameters("transformer", vocabulary, course.config(name))
        rows.append([name, size, *means])
    columns = ["positions", "parameters", *names_of(course)]
    title = f"Nats per character by place in the window, {course.length} trained on"
    return Table(columns, rows, title=title)


def figure(course: Course, found: Losses) -> Lines:
    """The loss against the place, which grows beyond what was trained."""
    middles = [
        float(np.sqrt(max(low, 1) * high))
        for low, high in zip(course.ends, course.ends[1:], strict=False)
    ]
    series, bands = [], {}
    for name, seeds in found.items():
        means = [Mean.of([row[i] for row in seeds]) for i in range(len(middles))]
        series.append((name, middles, [mean.value for mean in means]))
        if len(seeds) > 1:
            low, high = zip(*(mean.interval for mean in means), strict=True)
            bands[name] = (list(low), list(high))
    return Lines(
        series,
        x_label=f"place in the window, {course.length} trained on",
        y_label="nats per character",
        title="Trained short, tested long",
        log_x=True,
        bands=bands,
    )


def claims(found: Losses) -> list[Claim]:
    """Who holds beyond the length trained on, and who breaks."""
    rises = {name: Mean.of([row[-1] - row[0] for row in seeds]) for name, seeds in found.items()}
    made = []
    for name in RELATIVE:
        stated = f"loss in the farthest stretch higher than in the first by at most {HOLDS} nats"
        made.append(
            Claim.within(
                f"{name} holds beyond the length trained on",
                stated,
                rises[name],
                rises[name].interval,
                most=HOLDS,
            )
        )
    for name in (*ABSOLUTE, "rotary"):
        stated = f"loss in the farthest stretch higher than in the first by at least {BREAKS} nats"
        made.append(
            Claim.within(
                f"{name} breaks beyond the length trained on",
                stated,
                rises[name],
                rises[name].interval,
                least=BREAKS,
            )
        )
    return made
